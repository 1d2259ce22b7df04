"""Bytes on the wire per participant and round, and what coarser uploads would save and cost.

    python -m benchmarks.wire traffic [--jobs 2]
    python -m benchmarks.wire rounding --config digits --rounds 60 --seeds 1 2 3 4 5 [--jobs 2]

`traffic` plays short runs of the released configurations and prints what they counted themselves, as a share of dense
float32, 4 D bytes. `rounding` plays the same run with uploads

- as they are, and with the last bit of every entry changed: what chance alone makes of a run,
- in bfloat16,
- in 8 bits with a scale for every layer and stochastic rounding, which is right on average,
- in 8 bits rounded to the nearest with error feedback: what rounding takes away is kept and sent later (Karimireddy et
  al. 2019, https://arxiv.org/abs/1901.09847).
"""

from __future__ import annotations

import argparse
import csv
import json
import multiprocessing
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import mean, stdev
from tempfile import TemporaryDirectory
from typing import Any, Literal

import torch
from torch import Tensor

from rffl_pl.servers import RFFL, FedAvg
from rffl_pl.servers.base import ParticipantSide

Form = Literal["float32", "last bit", "bf16", "8 bits", "8 bits with feedback"]
FORMS: tuple[Form, ...] = ("float32", "last bit", "bf16", "8 bits", "8 bits with feedback")
_BLOCK, _BITS, _LEVELS = 32, 8, 127


class Rounded(ParticipantSide):
    """Uploads travel in a coarser form.

    Args:
        form: Which.
        kwargs: Options of the server.
    """

    def __init__(self, *, form: Form = "float32", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.form = form

    def outgoing(self, update: Tensor, memory: dict[str, Tensor], model: Tensor) -> Tensor:
        wanted = super().outgoing(update, memory, model)
        if self.form != "8 bits with feedback" or not wanted.isfinite().all() or not wanted.any():
            return wanted
        wanted = wanted + memory.get("error", torch.zeros_like(wanted))
        sent = self.unpack(self.pack(wanted), len(wanted))
        memory["error"] = wanted - sent
        return sent

    def pack(self, upload: Tensor) -> Tensor:
        if self.form in ("float32", "last bit"):
            changed = torch.nextafter(upload, torch.full_like(upload, torch.inf))
            return super().pack(upload if self.form == "float32" else changed.where(upload != 0, upload))
        if self.form == "bf16":
            return _without_zeros(upload.to(torch.bfloat16))
        layers = upload.split(tuple(self.layers))
        scales = torch.stack([layer.abs().max() / _LEVELS for layer in layers])
        steps = upload / scales.clamp_min(torch.finfo(torch.float32).tiny).repeat_interleave(torch.tensor(self.layers))
        whole = steps.round() if "feedback" in self.form else (steps + torch.rand(steps.shape)).floor()
        return torch.cat([scales.view(torch.uint8), _without_zeros(whole.clamp(-_LEVELS, _LEVELS).to(torch.int8))])

    def unpack(self, payload: Tensor, dimension: int) -> Tensor:
        if self.form in ("float32", "last bit"):
            return super().unpack(payload, dimension)
        payload = payload.clone()
        if self.form == "bf16":
            return _with_zeros(payload, dimension, torch.bfloat16).float()
        cut = 4 * len(self.layers)
        scales = payload[:cut].view(torch.float32).repeat_interleave(torch.tensor(self.layers))
        return _with_zeros(payload[cut:], dimension, torch.int8) * scales


class RoundedRFFL(Rounded, RFFL):
    """RFFL."""


class RoundedFedAvg(Rounded, FedAvg):
    """FedAvg."""


def _without_zeros(values: Tensor) -> Tensor:
    """As `rffl_pl.functional.wire.pack_blocks` for entries of any type: no blocks of 32 zeros, and which they are."""
    count = len(values) // _BLOCK
    blocks, rest = values[: count * _BLOCK].view(count, _BLOCK), values[count * _BLOCK :]
    used = (blocks != 0).any(1)
    bits = torch.nn.functional.pad(used, (0, -count % _BITS)).view(-1, _BITS)
    mask = (bits * 2 ** torch.arange(_BITS)).sum(1).to(torch.uint8)
    return torch.cat([mask, blocks[used].flatten().view(torch.uint8), rest.view(torch.uint8)])


def _with_zeros(payload: Tensor, dimension: int, dtype: torch.dtype) -> Tensor:
    """The entries ``[dimension]`` behind `_without_zeros`."""
    count = dimension // _BLOCK
    size = -(-count // _BITS)
    used = (payload[:size].unsqueeze(1) & 2 ** torch.arange(_BITS) != 0).flatten()[:count]
    values = payload[size:].clone().view(dtype)
    vector = torch.zeros(dimension, dtype=dtype)
    vector[: count * _BLOCK].view(count, _BLOCK)[used] = values[: _BLOCK * int(used.sum())].view(-1, _BLOCK)
    vector[count * _BLOCK :] = values[_BLOCK * int(used.sum()) :]
    return vector


# Runs.

QUICK = (
    "--run.wandb", "false", "--run.figures", "false", "--standalone.enabled", "false",
    "--trainer.enable_progress_bar", "false",
)  # fmt: skip


def played(words: Sequence[object]) -> dict[str, Any]:
    """What a run's own files say: every round's figures by name, the final accuracies, and D."""
    from rffl_pl.cli.entry import run

    torch.set_num_threads(1)
    with TemporaryDirectory() as root:
        run(["fit", *map(str, words), *QUICK, "--run.root", root])
        (folder,) = (path.parent for path in Path(root).glob("*/*/summary.json"))
        rows = list(csv.DictReader((folder / "metrics.csv").open()))
        weights = torch.load(folder / "weights" / "participant_0.pt", weights_only=True)
        summary = json.loads((folder / "summary.json").read_text())
    return {"rounds": rows, "summary": summary, "dimension": sum(w.numel() for w in weights.values())}


def of_participants(row: Mapping[str, str], name: str) -> list[float]:
    """One figure of every participant."""
    count = sum(key.startswith("bytes_up/participant_") for key in row)
    return [float(row[f"{name}/participant_{i}"] or "nan") for i in range(count)]


def share(run: Mapping[str, Any], name: str) -> float:
    """Bytes per participant and round as a share of dense ones, over the members of every round."""
    sizes = [size for row in run["rounds"] for size in of_participants(row, name)]
    dimension: int = run["dimension"]
    return mean(sizes) / (4 * dimension)


def together(lines: Sequence[Sequence[object]], jobs: int) -> Iterator[dict[str, Any]]:
    """The runs' results in the order of the lines, each as soon as it is there."""
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(played, lines)


SERVERS = ("rffl", "fedavg", "cffl", "sign_sgd")
JOBS: dict[str, tuple[object, ...]] = {
    "digits": ("--trainer.max_epochs", 30),
    "mnist": ("--trainer.max_epochs", 2, "--federation.participants", 5, "--data.examples_per_participant", 200),
    "cifar10": ("--trainer.max_epochs", 2, "--federation.participants", 5, "--data.examples_per_participant", 100),
    "mr": ("--trainer.max_epochs", 1, "--federation.participants", 5, "--model.local_epochs", 1),
}
"""Short runs; who takes part is small, since what one sends hardly depends on how many there are."""


UNMEASURED = ("--trainer.limit_val_batches", 1, "--trainer.limit_test_batches", 1)
"""Nobody asks here how good the models are."""


def config_of(job: str, server: str) -> tuple[object, ...]:
    """The files of a run; CFFL's server needs examples of its own."""
    held_out = ("--data.validation", 0.1) if server == "cffl" else ()
    return (
        "--config",
        f"configs/{job}.yaml",
        "--config",
        f"configs/servers/{server}.yaml",
        *JOBS[job],
        *UNMEASURED,
        *held_out,
    )


def traffic(given: argparse.Namespace) -> None:
    print("| job | D | server | up | down | bytes up | bytes down |\n|---|---|---|---|---|---|---|")
    cells = [(job, server) for job in given.configs for server in given.servers]
    for (job, server), run in zip(cells, together([config_of(*cell) for cell in cells], given.jobs), strict=True):
        dense = 4 * run["dimension"]
        up, down = share(run, "bytes_up"), share(run, "bytes_down")
        sizes = f"{up * dense:,.0f} | {down * dense:,.0f}"
        print(f"| {job} | {run['dimension']:,} | {server} | {up:.1%} | {down:.1%} | {sizes} |", flush=True)


ROUNDED = {
    "RFFL": ("benchmarks.wire.RoundedRFFL", "--server.preset", "released"),
    "guarded": ("benchmarks.wire.RoundedRFFL", "--server.preset", "guarded"),
    "FedAvg": ("benchmarks.wire.RoundedFedAvg",),
}


def rounding(given: argparse.Namespace) -> None:
    """Every form beside float32 of the same seed."""
    cells = [(name, form, seed) for name in given.servers for seed in given.seeds for form in FORMS]
    lines = []
    for name, form, seed in cells:
        server, *preset = ROUNDED[name]
        own = ("--server", server, *preset, "--server.form", form)
        rounds = ("--trainer.max_epochs", given.rounds, "--seed_everything", seed)
        lines.append(("--config", f"configs/{given.config}.yaml", *own, *rounds, *given.more))
    runs = dict(zip(cells, together(lines, given.jobs), strict=True))
    print("| server | uploads | up | accuracy | against float32 | reputations differ by | rank order | removed |")
    print("|---|---|---|---|---|---|---|---|")
    for name in given.servers:
        for form in FORMS:
            plain, these = ([runs[name, kind, seed] for seed in given.seeds] for kind in ("float32", form))
            accuracies = [honest(run) for run in these]
            gains = [after - before for before, after in zip(map(honest, plain), accuracies, strict=True)]
            apart = [distance(*map(reputations, pair)) for pair in zip(plain, these, strict=True)]
            order = mean(agreement(*map(reputations, pair)) for pair in zip(plain, these, strict=True))
            gone = ", ".join(map(removed, these))
            print(
                f"| {name} | {form} | {mean(share(run, 'bytes_up') for run in these):.1%} | {spread(accuracies)} "
                f"| {spread(gains, sign='+')} | {mean(apart):.1e} | {order:.2f} | {gone} |",
                flush=True,
            )


def honest(run: Mapping[str, Any]) -> float:
    """Mean accuracy of the honest participants on the test set at the end, in per cent."""
    return 100 * float(run["summary"]["mean"])


def reputations(run: Mapping[str, Any]) -> list[float]:
    """Everybody's at the end."""
    return [float(value) for value in run["summary"]["reputation"]]


def distance(a: Sequence[float], b: Sequence[float]) -> float:
    """How far two runs' last reputations are apart, at most."""
    return max(abs(x - y) for x, y in zip(a, b, strict=True))


def agreement(a: Sequence[float], b: Sequence[float]) -> float:
    """The share of pairs of participants that stand in the same order in both."""
    pairs = [(i, j) for i in range(len(a)) for j in range(i)]
    return mean((a[i] > a[j]) == (b[i] > b[j]) for i, j in pairs)


def removed(run: Mapping[str, Any]) -> str:
    """The round in which the adversary was removed, and how many of the honest were."""
    honest_removed = run["summary"]["honest_removed"]
    return f"{run['summary']['first_removal'] or '-'}" + (f" and {honest_removed} honest" if honest_removed else "")


def spread(values: Sequence[float], sign: str = "") -> str:
    several = f" ± {stdev(values):.2f}" if len(values) > 1 else ""
    return f"{mean(values):{sign}.2f}{several}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_subparsers(required=True)
    counted = what.add_parser("traffic")
    counted.add_argument("--configs", nargs="+", choices=JOBS, default=list(JOBS))
    counted.add_argument("--servers", nargs="+", default=SERVERS)
    counted.set_defaults(do=traffic)
    coarser = what.add_parser("rounding")
    coarser.add_argument("--config", default="digits")
    coarser.add_argument("--servers", nargs="+", choices=ROUNDED, default=list(ROUNDED))
    coarser.add_argument("--rounds", type=int, default=60)
    coarser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    coarser.add_argument("--more", nargs=argparse.REMAINDER, default=[], help="further options of every run")
    coarser.set_defaults(do=rounding)
    for command in (counted, coarser):
        command.add_argument("--jobs", type=int, default=2, help="runs at a time, of one thread each")
    given = parser.parse_args()
    given.do(given)


if __name__ == "__main__":
    main()
