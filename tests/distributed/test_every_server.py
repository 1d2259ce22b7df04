"""Every server gives the bits of one process on any number of ranks, and goes on from a checkpoint to the same bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.conftest import QUICK, ROOT
from tests.ranks import forked
from tests.runs import kept_in

pytestmark = pytest.mark.distributed
# Variants that differ in numbers alone are left out, for time.
SAME = {"standalone", "fedavg_released", "foolsgold_sum", "sign_sgd_literal"}
SERVERS = sorted({path.stem for path in (ROOT / "configs" / "servers").iterdir()} - SAME)
SERVERS += [f"{server} by halves" for server in ("rffl", "fedavg", "foolsgold")]
SERVERS += ["rffl attacked", "rffl by halves attacked"]
SERVERS += ["guarded by halves", "guarded by clones", "guarded sure by clones", "rffl with all guards by clones"]
ATTACKS = (
    "--adversaries", "[]", "--adversaries+=OnOff", "--adversaries.honest", 1, "--adversaries.period", 2,
    "--adversaries.then", "replay", "--adversaries+=Replay", "--adversaries+=DeltaWeights", "--adversaries.noise", 0.1,
    "--adversaries+=Imitation", "--adversaries+=Sybil", "--adversaries.jitter", 0.1, "--adversaries+=Sybil",
    "--adversaries+=MinMax", "--adversaries+=Mimic", "--adversaries.warmup", 3, "--adversaries+=Backdoor",
    "--adversaries+=Fang",
)  # fmt: skip
SURE = ("--server.earned", "true", "--server.confirmed_by", 0.5)
GUARDS = (
    "--server.similarity", "leave_one_out", "--server.normalise", "true", "--server.duplicates", "once",
    "--server.probation", 1, "--server.removal_confidence", 0.999, "--server.short_memory", 0.5, *SURE,
)  # fmt: skip


def line(kind: str, name: str, *more: object) -> str:
    """A federation of five, a free-rider, a flipper of labels and an omniscient adversary under one server.

    By halves, one half of the members takes part in each round. Attacked, it is by ten others instead; by clones, by
    three of a kind. Sure, whoever guards asks half of the others and pays nobody ahead.
    """
    server, _, how = kind.partition(" ")
    more = (*more, "--federation.participation", 0.5) if "by halves" in how else more
    configs = ("configs/digits.yaml", f"configs/servers/{server}.yaml", "configs/adversaries/label_flip.yaml")
    adam = ("--model.local_epochs", 1, "--model.optimizer", "Adam", "--model.optimizer.lr", 0.003)
    usual = ("--adversaries+=FreeRider", "--adversaries+=InnerProduct", "--federation.adversaries", 3)
    clones = ("--adversaries", "[]", *["--adversaries+=Sybil"] * 3, "--federation.adversaries", 3)
    attacks = (*ATTACKS, "--federation.adversaries", 10) if "attacked" in how else clones if "clones" in how else usual
    switches = GUARDS if "all guards" in how else SURE if "sure" in how else ()
    files = [argument for config in configs for argument in ("--config", config)]
    return " ".join(
        map(str, ("fit", *files, *adam, *attacks, *switches, *QUICK, "--run.name", f"{named(kind)}-{name}", *more))
    )


def named(kind: str) -> str:
    """A kind of run as a folder's name."""
    return kind.replace(" ", "_")


def run_all(ranks: int, lines: list[str], root: Path) -> None:
    """The lines on so many ranks."""
    root.mkdir()
    (root / "lines").write_text("\n".join(lines))
    ended = forked(ranks, root / "lines", root=root, module="tests.distributed.many")
    assert ended.code == 0, ended.err


def result(root: Path, name: str) -> tuple[dict[str, Any], Path]:
    """The last checkpoint of the run of that name, and its path."""
    (path,) = root.glob(f"{name}/*/checkpoints/last.ckpt")
    return kept_in(path), path


def assert_same_bits(a: dict[str, Any], b: dict[str, Any], where: str) -> None:
    """Models, optimizers, server and history are equal to the bit."""
    assert repr(a["server"]["history"]) == repr(b["server"]["history"]), where
    assert repr(a["federation"]["members"]) == repr(b["federation"]["members"]), where
    for i, mine in a["federation"]["participants"].items():
        theirs = b["federation"]["participants"][i]
        for part in ("network", "memory", "attack"):
            for key, value in mine[part].items():
                assert torch.equal(value, theirs[part][key]), (where, i, key)
            assert mine[part].keys() == theirs[part].keys(), (where, i)
        assert repr(flatten(mine["optimizer"])) == repr(flatten(theirs["optimizer"])), (where, i)
    for part in ("rule", "colluders"):
        assert repr(flatten(a["server"][part])) == repr(flatten(b["server"][part])), (where, part)


def flatten(state: Any) -> Any:
    """Tensors as numbers, so that states can be compared whatever they hold."""
    if isinstance(state, torch.Tensor):
        return state.tolist()
    if isinstance(state, dict):
        return {key: flatten(value) for key, value in state.items()}
    return state


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_ranks_and_checkpoints_do_not_matter(tmp_path: Path) -> None:
    """Four rounds in one process, and two on four ranks followed by two on two ranks, end in the same bits."""
    four, two = ("--trainer.max_epochs", 4), ("--trainer.max_epochs", 2)
    run_all(1, [line(server, "whole", *four) for server in SERVERS], tmp_path / "1")
    run_all(4, [line(server, "half", *two) for server in SERVERS], tmp_path / "4")
    halves = {server: result(tmp_path / "4", f"{named(server)}-half")[1] for server in SERVERS}
    resumed = [line(server, "resumed", *four, "--ckpt_path", halves[server]) for server in SERVERS]
    run_all(2, resumed, tmp_path / "2")
    for server in SERVERS:
        alone, together = (
            result(tmp_path / "1", f"{named(server)}-whole")[0],
            result(tmp_path / "2", f"{named(server)}-resumed")[0],
        )
        assert_same_bits(alone, together, server)
        if server == "rffl attacked":
            on_off, replay, delta, imitation, *_ = (
                alone["federation"]["participants"][i]["attack"] for i in range(5, 11)
            )
            assert {*on_off} == {*replay} == {"download", "recorded"}
            assert ({*delta}, {*imitation}) == ({"model"}, {"download"})
            assert [(i, set(kept)) for i, kept in alone["server"]["colluders"].items() if kept] == [
                (12, {"z", "rounds"})
            ]
        if "clones" in server:
            trust = alone["server"]["rule"]["trust"]
            assert trust["confirmations.confirmed"].tolist() == [True] * 5 + [False] * 3, server
            assert trust["confirmations.waiting"].tolist() == [5, 6, 7], server
            assert not trust["confirmations.totals"][:, 5:].any(), server  # the same, in every round
