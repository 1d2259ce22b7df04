"""Running statistics that all share have the bits of one process: over ranks, engines, checkpoints, exchanges."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.distributed.test_every_server import assert_same_bits, line, named, result, run_all
from tests.distributed.test_sharded_runs import CENTRAL, FOUR, SHARDED, TWO, without_bytes

pytestmark = pytest.mark.distributed
SHARED = ["fedavg by halves", "nnm"]
KINDS = [*SHARED, "rffl by halves"]
RUNS = [(kind, way) for way in ("central", "sharded", "in_parts") for kind in (KINDS if way == "central" else SHARED)]
"""In parts every rank serves some coordinates; else the last of four all of so small a network, and rank 0 none.

These come last: what makes blocks small lasts as long as its process.
"""
WAYS = {
    "central": CENTRAL,
    "sharded": SHARDED,
    "in_parts": (*SHARDED, "--trainer.callbacks+=tests.distributed.probe.SmallBlocks"),
}


def words(kind: str, name: str, *more: object) -> str:
    """A run of a network with BatchNorm: five honest, a free-rider, and one whose statistics are infinite."""
    attacks = ("--adversaries", "[]", "--adversaries+=FreeRider", "--adversaries+=tests.norms.Blinding")
    options = ("--model.network", "tests.norms.Normed", *attacks, "--federation.adversaries", 2, *more)
    return line(kind, name, *options)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_bits_of_one_process(tmp_path: Path) -> None:
    """Participants of other ranks are left behind, or a run goes on with other statistics than it was left with."""
    one, four, two = (tmp_path / name for name in ("one", "four", "two"))
    lines = [words(kind, "whole", *FOUR, *CENTRAL) for kind in KINDS]
    run_all(1, [*lines, words(SHARED[0], "stacked", *FOUR, *CENTRAL, "--model.engine", "stacked")], one)
    run_all(4, [words(kind, f"half-{way}", *TWO, *WAYS[way]) for kind, way in RUNS], four)
    halves = [result(four, f"{named(kind)}-half-{way}")[1] for kind, way in RUNS]
    resumed = zip(RUNS, halves, strict=True)
    run_all(2, [words(kind, way, *FOUR, *WAYS[way], "--ckpt_path", half) for (kind, way), half in resumed], two)
    wholes = {kind: without_bytes(result(one, f"{named(kind)}-whole")[0]) for kind in KINDS}
    for kind, way in RUNS:
        assert_same_bits(wholes[kind], without_bytes(result(two, f"{named(kind)}-{way}")[0]), f"{kind} {way}")
    stacked = result(one, f"{named(SHARED[0])}-stacked")[0]
    assert_same_bits(wholes[SHARED[0]], without_bytes(stacked), "stacked")
    for kind, whole in wholes.items():
        networks = [state["network"] for state in whole["federation"]["participants"].values()]
        means = torch.stack([network["layers.1.running_mean"] for network in networks])
        assert (means == means[0]).all() == (kind in SHARED)
        assert means.isfinite().all() or kind not in SHARED
        assert any(6 in entry["set_aside"] for entry in whole["server"]["history"]) == (kind in SHARED)
