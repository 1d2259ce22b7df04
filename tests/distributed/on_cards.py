"""Ranks with a card each, which meet as ranks with a GPU each do; see `tests.distributed.picky`.

python -m tests.distributed.on_cards refusals|exchange|play FOLDER [ARGUMENTS]
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from lightning.pytorch.accelerators import AcceleratorRegistry, CPUAccelerator
from torch import Tensor

import rffl_pl.cli.run
import rffl_pl.exchange
import rffl_pl.strategy
from rffl_pl import launch
from rffl_pl.cli.entry import run
from rffl_pl.exchange import Exchange, Ranks
from rffl_pl.metrics import CollaborationGain, Detection, Fairness, RankFairness, TakeHome
from rffl_pl.strategy import FederatedStrategy, leave_process_group
from tests.distributed.card import CARD
from tests.distributed.picky import calls
from tests.metrics.test_metrics import numbers
from tests.test_exchange import DIMENSION, model_of, payload_of, sparse

CPU = torch.device("cpu")
GLOO, MIXED, ALONE = "gloo", "cpu:gloo,card:picky", "card:picky"
BLOCKS: dict[int, list[list[int]]] = {2: [[0, 3, 4], [1, 2]], 4: [[0, 5], [1], [2, 4], [3]]}
ROUNDS: list[dict[str, Any]] = [
    {"removed": (2, 3), "reports": dict.fromkeys(range(6), 1.5)},
    {"asked": [1, 4], "reports": {0: 1.0, 1: 2.0, 4: 3.0}},
    {},
    {"asked": [0], "removed": (0,)},  # the other ranks' payloads are empty
]


@contextmanager
def group(backend: str, name: str) -> Iterator[None]:
    """The ranks' process group, as `FederatedStrategy` has it for GPUs."""
    rank, ranks = launch.rank(), launch.world_size()
    store = dist.FileStore(name, ranks)
    device = None if backend == GLOO else CARD
    patience = timedelta(seconds=30)
    dist.init_process_group(backend, store=store, rank=rank, world_size=ranks, timeout=patience, device_id=device)
    try:
        yield
    finally:
        dist.destroy_process_group()


# What NCCL refuses.


def swap(output: Tensor, given: Tensor, received: Sequence[int] = (2, 2), sent: Sequence[int] = (2, 2)) -> None:
    """Two ranks give each other parts."""
    dist.all_to_all_single(output, given, list(received), list(sent))


def on_card(dtype: torch.dtype = torch.float32, *shape: int) -> Tensor:
    return torch.zeros(shape or (4,), dtype=dtype).to(CARD)


KINDS = (torch.int32, torch.float32)
REFUSED: dict[str, Callable[[int], Any]] = {
    "an input on the CPU": lambda rank: swap(on_card(), torch.zeros(4)),
    "an output on the CPU": lambda rank: swap(torch.zeros(4), on_card()),
    "another rank's tensor on the CPU": lambda rank: swap(on_card(), torch.zeros(4) if rank else on_card()),
    "int16": lambda rank: swap(on_card(torch.int16), on_card(torch.int16)),
    "uint16": lambda rank: swap(on_card(torch.uint16), on_card(torch.uint16)),
    "not contiguous": lambda rank: swap(on_card(), on_card(torch.float32, 4, 2)[:, 0]),
    "dtypes in and out": lambda rank: swap(on_card(torch.int32), on_card()),
    "dtypes of two ranks": lambda rank: swap(on_card(KINDS[rank]), on_card(KINDS[rank])),
    "splits that do not add up": lambda rank: swap(on_card(), on_card(), sent=(2, 1)),
    "a negative split": lambda rank: swap(on_card(), on_card(), sent=(5, -1)),
    "splits for three ranks": lambda rank: swap(on_card(), on_card(), sent=(2, 1, 1)),
    "splits of two ranks": lambda rank: swap(on_card(), on_card(), received=(2, 2), sent=(1, 3)),
    "widths of two ranks": lambda rank: swap(on_card(KINDS[1], 4, 1 + rank), on_card(KINDS[1], 4, 1 + rank)),
    "another collective": lambda rank: swap(on_card(), on_card()) if rank else dist.barrier(),
    "numbers of entries of two ranks": lambda rank: dist.all_reduce(on_card(torch.float32, 1 + rank)),
    "bits of all ranks": lambda rank: dist.all_reduce(on_card(torch.int32), dist.ReduceOp.BAND),
    "a sum with the CPU": lambda rank: on_card() + torch.zeros(4),
    "a sum into the CPU": lambda rank: torch.zeros(4).add_(on_card()),
    "positions on a card": lambda rank: torch.zeros(4)[on_card(torch.int64)],
    "NumPy": lambda rank: on_card().numpy(),
}
_SHARES, _ATTACKS = (torch.tensor([0.5, 0.7, 0.6, 0.9]), torch.tensor([0.8, 0.9, 0.7, 0.95])), torch.arange(4) > 2
MEASURED: dict[Callable[[], Any], tuple[Tensor, ...]] = {
    Fairness: _SHARES,
    RankFairness: _SHARES,
    CollaborationGain: _SHARES,
    Detection: (torch.tensor([3.0, 2.0, torch.inf, 7.0]), _ATTACKS),
    partial(TakeHome, 0.1): (*_SHARES[::-1], torch.tensor([10, 20, 30, 40]), _ATTACKS, ~_ATTACKS),
}
REFUSED_ALONE: dict[str, Callable[[int], Any]] = {
    "the CPU without gloo": lambda rank: dist.all_reduce(torch.zeros(1)),
    "an object without gloo": lambda rank: dist.all_gather_object(list[Any]((None, None)), rank),
}


def refusals(folder: Path) -> None:
    """How every case is refused; beside it that what is right passes, before and after."""
    told: dict[str, str] = {}
    for backend, cases in ((MIXED, REFUSED), (ALONE, REFUSED_ALONE)):
        with group(backend, f"{folder}/store {backend}"):
            for name, case in {**cases, f"right in {backend}": right}.items():
                told[name] = outcome(case)
    told["metrics"] = outcome(measures)
    torch.save(told, folder / f"rank_{launch.rank()}.pt")


def measures(_: int) -> None:
    """The package's metrics, of participants whose numbers lie on the card."""
    for kind, given in MEASURED.items():
        here, there = kind(), kind()
        here.update(*given)
        there.update(*(each.to(CARD) for each in given))
        assert numbers(there) == numbers(here)


def outcome(case: Callable[[int], Any]) -> str:
    """What it ends with."""
    try:
        case(launch.rank())
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "passed"


def right(rank: int) -> None:
    """Every type of NCCL's that torch can fill arrives as it was sent, in parts of unequal lengths, rows whole."""
    dtypes = (torch.uint8, torch.int64, torch.float32, torch.float64, torch.bool, torch.bfloat16, torch.float8_e4m3fn)
    for dtype in dtypes:
        given = torch.arange(rank * 3, rank * 3 + 3).repeat(2, 1).T.contiguous().to(dtype)
        got = torch.empty(2 if rank == 0 else 4, 2, dtype=dtype, device=CARD)
        swap(got, given.to(CARD), received=[(1, 1), (2, 2)][rank], sent=(1, 2))
        both = torch.arange(6).repeat(2, 1).T.to(dtype)
        assert torch.equal(got.cpu().double(), both[[0, 3] if rank == 0 else [1, 2, 4, 5]].double())
    assert (on_card() + torch.tensor(1.0))[torch.tensor([1, 2])].tolist() == [1, 1]


# The exchange.


def exchanges(folder: Path) -> None:
    """What every operation gives this rank on either backend, and how often which passed over the card."""
    told: dict[str, Any] = {}
    for backend, device in ((GLOO, CPU), (MIXED, CARD)):
        with group(backend, f"{folder}/store {backend}"):
            for buffer in (1 << 24, DIMENSION):  # one wave, and one for every participant
                with mock.patch.object(rffl_pl.exchange, "_BUFFER", buffer):
                    told[f"{backend}, {buffer}"] = operations(device)
    for backend, device in ((GLOO, CPU), (MIXED, CARD)):
        told[f"sabotaged on {backend}"] = {
            name: sabotaged(kind, device, backend, f"{folder}/store {backend} {name}")
            for name, kind in SABOTAGES.items()
        }
    torch.save(told, folder / f"rank_{launch.rank()}.pt")


def operations(device: torch.device, kind: type[Exchange] = Exchange) -> dict[str, Any]:
    """Every operation of an exchange; tensors must lie on its device."""
    rank, blocks = launch.rank(), BLOCKS[launch.world_size()]
    exchange = kind(blocks, rank, device, DIMENSION)
    calls.clear()
    kinds = ("all_to_all_single", "broadcast")
    with ExitStack() as counted:
        transfers = {
            kind: counted.enter_context(mock.patch.object(dist, kind, wraps=getattr(dist, kind))) for kind in kinds
        }
        rows = torch.arange(12.0).view(6, 2)[list(blocks[rank])].to(device)
        told = {
            "rounds": [one_round(exchange, **one) for one in ROUNDS],
            "rows": [brought(exchange.gather_rows(rows.to(dtype)), device) for dtype in (torch.float64, torch.int64)],
            "anybody": [exchange.anybody(rank == 1), exchange.anybody(False)],
        }
    made = {kind: transfer.call_count for kind, transfer in transfers.items() if transfer.called}
    passed = dict(calls)
    facts = ({"a": "same", "b": str(rank)}, {"a": "same"})
    told["differences"] = [str(exchange.first_difference(one)) for one in facts]  # rank 0's words go by the CPU
    return {"told": told, "transfers": made, "over the card": passed}


def one_round(
    exchange: Exchange,
    asked: Sequence[int] | None = None,
    reports: dict[int, float] | None = None,
    removed: Sequence[int] = (),
) -> dict[str, Any]:
    """As `rffl_pl.round.play` has it: payloads, models and downloads lie on the device."""
    server, device, models = exchange.rank == 0, exchange.device, {}

    def model(participant: int) -> Tensor | None:
        made = model_of(participant)
        return None if made is None else made.to(device)

    if asked is None:
        exchange.ask_all()
    else:
        models = dict(exchange.ask(asked if server else (), model if server else None, 0))
    uploads: dict[int, Tensor] = {}
    exchange.gather_uploads(lambda i, where: payload_of(i).to(device), uploads.__setitem__)
    mine = {i: value for i, value in (reports or {}).items() if i in exchange.hosted}
    reported = None if reports is None else repr(exchange.gather_reports(mine).tolist())
    download = (lambda i: sparse(i).to(device)) if server else None
    downloads = dict(exchange.scatter_downloads(download, removed if server else ()))
    received = {
        name: {i: brought(vector, device) for i, vector in part.items()}
        for name, part in (("models", models), ("uploads", uploads), ("downloads", downloads))
    }
    traffic = vars(exchange.traffic) if exchange.traffic else None
    return {
        **received,
        "senders": sorted(uploads),
        "reported": reported,
        "members": exchange.members,
        "traffic": traffic,
    }


def brought(tensor: Tensor, device: torch.device) -> Tensor:
    """A copy on the CPU of what has come to lie on the device."""
    assert tensor.device == device
    return tensor.cpu()


# The exchange, broken.


class OnTheCPU(Exchange):
    """As with gloo alone: what lies on the card takes the way through the CPU."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.ranks.wire_device = CPU


class RowsAsTheyAre(Exchange):
    """Sends rows from where they are, and not only what lies on the card."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.ranks = _AsTheyAre(self.ranks.rank, self.ranks.count, self.ranks.device)


class _AsTheyAre(Ranks):
    def all_to_all(self, rows: Tensor, sent: Sequence[int], received: Sequence[int]) -> Tensor:
        out = rows.new_empty((sum(received), *rows.shape[1:]), device=self.wire_device)
        dist.all_to_all_single(out, rows, list(received), list(sent))
        return out


class Sideways(Exchange):
    """Sends rows that lie in columns as they lie."""

    def gather_rows(self, rows: Tensor) -> Tensor:
        rows = rows.T.contiguous().T
        with mock.patch.object(Tensor, "contiguous", lambda tensor: tensor):
            return super().gather_rows(rows)


class Narrow(Exchange):
    """Sends rows as int16."""

    def gather_rows(self, rows: Tensor) -> Tensor:
        return super().gather_rows(rows.to(torch.int16)).to(rows.dtype)


SABOTAGES: dict[str, type[Exchange]] = {kind.__name__: kind for kind in (OnTheCPU, RowsAsTheyAre, Sideways, Narrow)}


def sabotaged(kind: type[Exchange], device: torch.device, backend: str, name: str) -> Any:
    """What an exchange ends with that is broken; in a process group of its own, which it may leave in pieces."""
    with group(backend, name):
        try:
            return operations(device, kind)
        except Exception as error:
            return f"{type(error).__name__}: {error}"


# Whole runs.


class CardAccelerator(CPUAccelerator):
    """Lightning's part of the card."""

    def setup_device(self, device: torch.device) -> None:
        assert device == CARD

    @staticmethod
    def get_parallel_devices(devices: int | str) -> list[torch.device]:
        return [CARD] * int(devices)

    @staticmethod
    def is_available() -> bool:
        return True


class CardStrategy(FederatedStrategy):
    """The strategy of ranks that find a GPU each; every one is the first that its process sees."""

    def __init__(self, accelerator: str, **options: Any) -> None:
        with mock.patch.object(rffl_pl.strategy, "plan_devices", lambda _, ranks, __: ([CARD] * ranks, "nccl")):
            super().__init__(accelerator, **options)
        self._process_group_backend = self._get_process_group_backend().replace("cuda:nccl", "card:picky")


def play(lines: Path, *more: str) -> None:
    """Command lines, one after the other."""
    AcceleratorRegistry.register("card", CardAccelerator)
    # Inference mode has no views of tensors written in Python.
    without = mock.patch.object(torch, "inference_mode", torch.no_grad)
    with without, mock.patch.object(rffl_pl.cli.run, "FederatedStrategy", CardStrategy):
        for line in lines.read_text().splitlines():
            run([*shlex.split(line), *more])
            print(f"over the card: {', '.join(sorted(calls))}", flush=True)
            calls.clear()
    leave_process_group()


if __name__ == "__main__":
    what, where, *rest = sys.argv[1:]
    if what == "play":
        play(Path(where), *rest)
    else:
        {"refusals": refusals, "exchange": exchanges}[what](Path(where))
    sys.stdout.flush()
    os._exit(0)  # gloo's threads may abort what ends with connections open
