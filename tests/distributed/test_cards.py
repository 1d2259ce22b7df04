"""The way that the exchange takes on NCCL, on machines without a GPU: cards that are none, and a backend as picky."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.distributed.test_every_server import assert_same_bits, line, named, result, run_all
from tests.distributed.test_sharded_runs import without_bytes, words
from tests.ranks import forked

pytestmark = [
    pytest.mark.distributed,
    pytest.mark.skipif(
        tuple(map(int, torch.__version__.split(".")[:2])) < (2, 14),
        reason="torch has backends and devices written in Python from 2.14 on",
    ),
]
MIXED, WAVES = "cpu:gloo,card:picky", (1 << 24, 40)
DIFFERENT = "RuntimeError: Ranks call different collectives, or with different types or numbers of entries"
ELSEWHERE = "RuntimeError: Expected all tensors to be on the same device"
GATHERING = "allgather" if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 15) else "all_gather_single"
REFUSALS = {
    "an input on the CPU": "ValueError: Tensors must be CUDA and dense",
    "an output on the CPU": "ValueError: Tensors must be CUDA and dense",
    "int16": "ValueError: Unconvertible NCCL type torch.int16",
    "uint16": "ValueError: Unconvertible NCCL type torch.uint16",
    "not contiguous": "ValueError: Tensors must be contiguous",
    "dtypes in and out": "ValueError: Invalid usage of tensors with different dtypes",
    "dtypes of two ranks": DIFFERENT,
    "splits that do not add up": "ValueError: Split sizes doesn't match total dim 0 size",
    "a negative split": "ValueError: Split sizes must be non-negative",
    "splits for three ranks": "ValueError: Number of tensor splits not equal to group size",
    "splits of two ranks": "RuntimeError: Message truncated",
    "widths of two ranks": DIFFERENT,
    "another collective": DIFFERENT,
    "numbers of entries of two ranks": DIFFERENT,
    "bits of all ranks": "ValueError: Cannot use ReduceOp.BAND with NCCL",
    "a sum with the CPU": ELSEWHERE,
    "a sum into the CPU": ELSEWHERE,
    "positions on a card": ELSEWHERE,
    "NumPy": "RuntimeError: .numpy() is not supported",
    "the CPU without gloo": "RuntimeError: No backend type associated with device type cpu",
    "an object without gloo": f"RuntimeError: Backend picky does not support {GATHERING}",
}


def told(folder: Path, what: str, ranks: int) -> list[dict[str, Any]]:
    """What every rank of the program has to say."""
    ended = forked(ranks, what, folder, module="tests.distributed.on_cards")
    assert ended.code == 0, ended.err
    return [torch.load(folder / f"rank_{rank}.pt") for rank in range(ranks)]


@pytest.fixture(scope="module")
def refusals(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    return told(tmp_path_factory.mktemp("refusals"), "refusals", 2)


@pytest.mark.parametrize("case", REFUSALS)
def test_what_nccl_refuses_is_refused(refusals: list[dict[str, str]], case: str) -> None:
    """On both ranks, so that neither waits for the other."""
    for rank in refusals:
        assert rank[case].startswith(REFUSALS[case])


def test_metrics_of_what_lies_on_a_card(refusals: list[dict[str, str]]) -> None:
    """As on the CPU: a program may measure where its models are."""
    assert {each["metrics"] for each in refusals} == {"passed"}


def test_both_ranks_hear_of_a_refusal(refusals: list[dict[str, str]]) -> None:
    """With NCCL the rank whose tensor was right would hang."""
    assert [rank["another rank's tensor on the CPU"] for rank in refusals] == [
        "RuntimeError: Another rank's tensors are refused",
        "ValueError: Tensors must be CUDA and dense",
    ]


def test_what_nccl_takes_passes(refusals: list[dict[str, str]]) -> None:
    """After all refusals, and no case has been forgotten."""
    for rank in refusals:
        assert rank[f"right in {MIXED}"] == rank["right in card:picky"] == "passed"
        assert len(rank) == len(REFUSALS) + 4


def test_two_ranks_on_one_card_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the communicator is made, which for a group that is told its device is at once."""
    monkeypatch.setenv("CARD_BUS_ID", "0000:17:00.0")
    ended = forked(2, "refusals", tmp_path, module="tests.distributed.on_cards")
    assert ended.code != 0
    assert ended.err.count("RuntimeError: ncclInvalidUsage: Multiple Ranks are using the same GPU/Partition") == 2


@pytest.fixture(scope="module", params=[2, 4])
def exchanges(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return told(tmp_path_factory.mktemp("exchange"), "exchange", request.param)


@pytest.mark.parametrize("buffer", WAVES, ids=["one wave", "a wave for every participant"])
def test_the_exchange_gives_gloos_bits(exchanges: list[dict[str, Any]], buffer: int) -> None:
    """Of every operation, on two and four ranks; models, uploads, downloads and rows lie on the card at the end."""
    for rank in exchanges:
        gloo, cards = (rank[f"{backend}, {buffer}"] for backend in ("gloo", MIXED))
        assert_equal(gloo["told"], cards["told"])
    rounds = exchanges[0][f"{MIXED}, {buffer}"]["told"]["rounds"]
    assert [len(one["uploads"]) for one in rounds] == {2: [5, 2, 3, 1], 4: [6, 2, 4, 1]}[len(exchanges)]


@pytest.mark.parametrize("buffer", WAVES)
def test_all_transfers_pass_over_the_card(exchanges: list[dict[str, Any]], buffer: int) -> None:
    """And nothing else does: whether anybody needs something is asked on the CPU, as is what a rank has to say."""
    for rank in exchanges:
        assert complaint(rank[f"{MIXED}, {buffer}"]) is None


SABOTAGED = {
    "OnTheCPU": "not all transfers pass over the card",
    "RowsAsTheyAre": "ValueError: Tensors must be CUDA and dense",
    "Sideways": "ValueError: Tensors must be contiguous",
    "Narrow": "ValueError: Unconvertible NCCL type torch.int16",
}


@pytest.mark.parametrize("name", SABOTAGED)
def test_a_broken_exchange_is_found(exchanges: list[dict[str, Any]], name: str) -> None:
    """On every rank; two of them do what they should with gloo alone."""
    complaints = {complaint(rank[f"sabotaged on {MIXED}"][name]) for rank in exchanges}
    assert complaints - {"RuntimeError: Another rank's tensors are refused"} == {SABOTAGED[name]}
    for rank in exchanges:
        if name in ("OnTheCPU", "RowsAsTheyAre"):
            assert_equal(rank["sabotaged on gloo"][name]["told"], rank[f"gloo, {WAVES[0]}"]["told"])


WHOLE = {2: ("rffl", "sign_sgd", "fedavg by halves"), 4: ("cffl", "q_ffl", "rffl attacked")}
STACKED = {2: "fedavg by halves", 4: "q_ffl"}
"""Trained as one stack too. Stacks of other sizes differ by rounding, on some processors."""


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 4])
def test_whole_runs_give_the_bits_of_one_process(ranks: int, tmp_path: Path) -> None:
    """Two rounds under several servers, with training, evaluation and checkpoints, where everything is on cards."""
    two = ("--trainer.max_epochs", 2, "--model.engine")
    stacked = STACKED[ranks]
    lines = [line(server, "cards", *two, "loop") for server in WHOLE[ranks]] + [line(stacked, "stack", *two, "stacked")]
    run_all(1, lines, tmp_path / "alone")
    (tmp_path / "lines").write_text("\n".join(lines))
    ended = forked(ranks, "play", tmp_path / "lines", root=tmp_path / "cards", module="tests.distributed.on_cards")
    assert ended.code == 0, ended.err
    assert ended.out.count("over the card: all_to_all_single") == ranks * len(lines)

    def both(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
        return result(tmp_path / "alone", name)[0], result(tmp_path / "cards", name)[0]

    for server in WHOLE[ranks]:
        assert_same_bits(*both(f"{named(server)}-cards"), server)
    alone, cards = (one["federation"]["participants"] for one in both(f"{named(stacked)}-stack"))
    for i, mine in alone.items():
        torch.testing.assert_close(cards[i]["network"], mine["network"], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_every_card_serves_a_part(tmp_path: Path) -> None:
    """The statistics and thresholds that ranks share pass over the cards, with the bits of one server on the CPU."""
    short = ("--trainer.max_epochs", 2, "--model.engine", "loop")
    late = ("--adversaries", "[]", "--federation.adversaries", 0, "--model.optimizer.lr", 1e-30)  # all are silent
    lines = {kind: words(kind, "cards", *short) for kind in ("guarded", "rffl", "sign_sgd")}
    lines |= {kind: words(kind, "cards", *short, *late) for kind in ("rffl late", "cgsv late")}
    run_all(1, list(lines.values()), tmp_path / "alone")
    (tmp_path / "lines").write_text("\n".join(f"{each} --exchange sharded" for each in lines.values()))
    ended = forked(2, "play", tmp_path / "lines", root=tmp_path / "cards", module="tests.distributed.on_cards")
    assert ended.code == 0, ended.err
    assert ended.out.count(", broadcast\n") == 2 * len(lines)
    for kind in lines:
        alone, cards = (result(tmp_path / where, f"{named(kind)}-cards")[0] for where in ("alone", "cards"))
        assert_same_bits(without_bytes(alone), without_bytes(cards), kind)


def complaint(outcome: str | dict[str, Any]) -> str | None:
    """What is wrong with the operations of an exchange, as `tests.distributed.on_cards` tells of them."""
    if isinstance(outcome, str):
        return outcome
    whole = outcome["over the card"] == outcome["transfers"]
    return None if whole else "not all transfers pass over the card"


def assert_equal(a: Any, b: Any) -> None:
    """To the bit, through containers."""
    assert type(a) is type(b)
    if isinstance(a, torch.Tensor):
        assert a.dtype == b.dtype
        assert torch.equal(a, b)
    elif isinstance(a, dict):
        assert a.keys() == b.keys()
        for key in a:
            assert_equal(a[key], b[key])
    elif isinstance(a, list | tuple):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            assert_equal(x, y)
    else:
        assert a == b
