"""Runs in which every rank serves a part of the coordinates have the bits of one server, whoever goes on with whose."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import QUICK, Ended
from tests.distributed.test_every_server import assert_same_bits, line, named, result, run_all
from tests.ranks import forked

pytestmark = pytest.mark.distributed
# All but CFFL and FLTrust, which are refused, and Standalone, under which nobody is served; by halves the server keeps
# the model.
STATES = [
    "rffl paper",
    "afl by halves",
    "iafl by halves",
    "foolsgold by halves",
    "sign_sgd by halves",
    "centered_clipping by halves",
    "guarded sure by clones",
]
"""Whose state a run goes on with in another kind of exchange: numbers per participant, vectors, histories."""
KINDS = [
    "afl",
    "arc",
    "bucketing",
    "bulyan",
    "cgsv",
    "dnc",
    "fed_mgda",
    "fed_opt",
    "fedavg",
    "flame",
    "geometric_median",
    "guarded",
    "guarded by halves",
    "iafl",
    "krum",
    "median",
    "nnm",
    "norm_bound",
    "q_ffl",
    "rffl",
    "rffl by halves",
]
KINDS += ["term", "trimmed_mean", *STATES]
CENTRAL, SHARDED = ("--exchange", "central"), ("--exchange", "sharded")
FOUR, TWO = ("--trainer.max_epochs", 4), ("--trainer.max_epochs", 2)


def words(kind: str, name: str, *more: object) -> str:
    """A federation of five, two free-riders and one whose uploads are unfit or zeros, with uploads in small blocks.

    By clones, the free-riders are.
    """
    riders = f"--adversaries+={'Sybil' if 'clones' in kind else 'FreeRider'}"
    attacks = ("--adversaries", "[]", riders, "--adversaries+=tests.distributed.probe.Unfit")
    preset = ("--server.preset", "paper", "--server.alpha", 0.3) if kind.endswith(" paper") else ()
    noise = ("--server.noise", 0.1) if kind == "norm_bound" else ()
    blocks = "--trainer.callbacks+=tests.distributed.probe.SmallBlocks"
    return line(kind, name, *attacks, *preset, *noise, blocks, *more)


def resumed(kind: str, name: str, folder: Path, half: str, *more: object) -> str:
    """A run that goes on with the half of another."""
    return words(kind, name, *FOUR, *more, "--ckpt_path", result(folder, f"{named(kind)}-{half}")[1])


def without_bytes(checkpoint: dict[str, Any]) -> dict[str, Any]:
    """All but what pieces weigh, which is another number than that of the whole."""
    stripped = copy.copy(checkpoint)
    history = [dict(entry) for entry in checkpoint["server"]["history"]]
    for entry in history:
        entry["measures"] = {name: v for name, v in entry["measures"].items() if not name.startswith("bytes_")}
    stripped["server"] = {**checkpoint["server"], "history": history}
    return stripped


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_shards_are_one_server(tmp_path: Path) -> None:
    """Two rounds on four ranks and two more on two of them, or in one process, or the other way round, move a bit."""
    four, one, two = (tmp_path / name for name in ("four", "one", "two"))
    run_all(4, [words(kind, "half", *TWO, *SHARDED) for kind in KINDS], four)
    lines = [words(kind, "whole", *FOUR, *CENTRAL) for kind in KINDS]
    lines += [words(kind, "half", *TWO, *CENTRAL) for kind in STATES]
    lines += [resumed(kind, "resumed", four, "half", *CENTRAL) for kind in STATES]
    lines += [words(kind, "alone", *FOUR, *SHARDED) for kind in STATES]
    run_all(1, lines, one)
    lines = [resumed(kind, "resumed", four, "half", *SHARDED) for kind in KINDS]
    lines += [resumed(kind, "from_central", one, "half", *SHARDED) for kind in STATES]
    run_all(2, lines, two)
    for kind in KINDS:
        whole = without_bytes(result(one, f"{named(kind)}-whole")[0])
        others = [(two, "resumed")]
        if kind in STATES:
            others += [(one, "resumed"), (one, "alone"), (two, "from_central")]
        for folder, name in others:
            run = result(folder, f"{named(kind)}-{name}")[0]
            assert_same_bits(whole, without_bytes(run), f"{kind} {folder.name} {name}")
        history = whole["server"]["history"]
        if "by halves" not in kind:
            assert [entry["set_aside"] for entry in history] == [[], [6], [], []], kind
        assert kind != "fedavg" or [entry["silent"] for entry in history] == [[], [], [6], []]
        assert kind != "rffl paper" or any(entry["removed"] for entry in history)


def test_ranks_that_decide_otherwise_end_the_run(tmp_path: Path) -> None:
    """Verdicts that differ in a last bit would let models drift apart, and nobody would notice."""
    contrary = ("--server", "tests.distributed.probe.Contrary", *SHARDED)
    ended = forked(2, "fit", "--config", "configs/digits.yaml", *QUICK, *contrary, root=tmp_path)
    assert ended.code == 2
    assert ended.err.count("Error: Expected all ranks to decide alike under --exchange sharded, but rank 1") == 1


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            ("--server", "CFFL", "--data.validation", 0.1),
            "Expected --server to be one that works on a part of the coordinates under --exchange sharded, but got "
            "CFFL, ",
        ),
        (
            ("--adversaries", "[]", "--adversaries+=InnerProduct"),
            "Expected --adversaries to go by what they have themselves under --exchange sharded, but got "
            "InnerProduct, ",
        ),
        (("--server", "FLTrust"), "under --exchange sharded, but got FLTrust, "),
        (
            ("--server", "NNM", "--server.rule", "tests.servers.test_own_rules.Warm"),
            "Expected --server.rule to be one that works on a part of the coordinates under --exchange sharded, but "
            "got Warm, ",
        ),
        (("--exchange", "split"), "--exchange"),
    ],
)
def test_what_cannot_be_sharded_is_refused(
    rffl: Callable[..., Ended], given: tuple[object, ...], sentence: str
) -> None:
    """Whatever the number of ranks, and before anything is trained."""
    ended = rffl("fit", "--config", "configs/digits.yaml", *QUICK, "--exchange", "sharded", *given)
    assert ended.code == 2
    assert ended.err.count("Error: Expected") == 1
    assert sentence in ended.err
    assert "central" in ended.err
