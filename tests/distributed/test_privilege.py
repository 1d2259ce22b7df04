"""What reaches a participant's rank is its own downloads: every tensor that a process group brings is looked at.

Beside its downloads' payloads a rank that is not the server gets, and this is all:

- in a round the lengths of those payloads, 8 bytes for each of its participants that was asked (-1 tells one that it
  is removed, 0 and -1 whether one is asked), and single numbers that are the same on all ranks: the honest
  participants' mean accuracy and flags whether to stop;
- before the first round the run folder's name and the first fact in which ranks differ, if there is one.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

import pytest
import torch
from torch import Tensor

from rffl_pl.functional import wire
from tests.conftest import QUICK
from tests.ranks import forked

pytestmark = pytest.mark.distributed
RANKS, ROUNDS = 3, 5
HERE = "tests.distributed.probe"
LINE = (
    "fit", "--config", "configs/digits.yaml", *QUICK, "--trainer.max_epochs", ROUNDS, "--server", f"{HERE}.KeptRFFL",
    "--server.gamma", 0.5, "--server.removal_from", 2, "--server.alpha", 0.5, f"--trainer.callbacks+={HERE}.Received",
)  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """What every rank received in a run of everybody and in one of some in each round."""
    root = tmp_path_factory.mktemp("received")
    kinds = {"all": 1.0, "some": 0.6}
    for kind in kinds:
        (root / kind).mkdir()
    lines = [
        " ".join(map(str, (*LINE, "--trainer.callbacks.folder", root / kind, "--federation.participation", share)))
        for kind, share in kinds.items()
    ]
    (root / "lines").write_text("\n".join(lines))
    ended = forked(RANKS, root / "lines", root=root / "runs", module="tests.distributed.many")
    assert ended.code == 0, ended.err
    return {
        kind: [torch.load(root / kind / f"received_{rank}.pt", weights_only=True) for rank in range(RANKS)]
        for kind in kinds
    }


def by_round(rank: dict[str, Any]) -> Iterator[tuple[str, list[Tensor]]]:
    """The tensors with at least one entry that a rank received, by when."""
    for when, group in groupby(rank["seen"], key=lambda entry: entry[0]):
        yield when, [tensor for _, _, tensor in group if tensor.numel()]


@pytest.mark.parametrize("kind", ["all", "some"])
def test_a_rank_receives_its_own_downloads(runs: dict[str, list[dict[str, Any]]], kind: str) -> None:
    """Some byte of a round that reaches a rank is none of its own participants' downloads or their lengths."""
    server, *others = runs[kind]
    downloads: list[dict[int, Tensor]] = server["downloads"]
    assert len(downloads) == ROUNDS
    assert len({i for download in downloads for i in download}) == 6
    for rank in others:
        played = [(when, tensors) for when, tensors in by_round(rank) if when.startswith("round")]
        assert [when for when, _ in played] == [f"round {i}" for i in range(ROUNDS)]
        for (when, tensors), sent in zip(played, downloads, strict=True):
            own = [wire.pack(sent[i]) for i in rank["hosted"] if i in sent]
            vectors = [tensor for tensor in tensors if tensor.dtype == torch.uint8]
            assert b"".join(map(_bytes, vectors)) == b"".join(map(_bytes, own)), when
            lengths = [tensor.tolist() for tensor in tensors if tensor.dtype == torch.int64 and tensor.dim() == 1]
            assert [len(payload) for payload in own if len(payload)] == [
                length for told in lengths for length in told if length > 1
            ], when
            assert max(map(len, lengths)) <= len(rank["hosted"])
            rest = [tensor for tensor in tensors if tensor.is_floating_point()]
            number = int(when.removeprefix("round "))
            assert [tensor.tolist() for tensor in rest] == [pytest.approx(server["accuracy"][number], abs=1e-6)]


def _bytes(tensor: Tensor) -> bytes:
    return tensor.flatten().view(torch.uint8).numpy().tobytes()


def test_who_is_removed_is_told_once(runs: dict[str, list[dict[str, Any]]]) -> None:
    """A participant that is removed goes on receiving, or its rank is told of another's removal."""
    server, *others = runs["all"]
    members = [sorted(download) for download in server["downloads"]]
    (gone,) = set(members[0]) - set(members[-1])
    for rank in others:
        told = [
            tensor.tolist().count(-1)
            for _, tensors in by_round(rank)
            for tensor in tensors
            if tensor.dtype == torch.int64 and tensor.dim() == 1
        ]
        assert sum(told) == (gone in rank["hosted"])


def test_nothing_as_long_as_a_model_travels_outside_of_rounds(runs: dict[str, list[dict[str, Any]]]) -> None:
    """Before the first round or after the last a vector reaches a rank, or more than a few words."""
    for rank in [rank for ranks in runs.values() for rank in ranks[1:]]:
        for when, tensors in by_round(rank):
            if not when.startswith("round"):
                assert sum(map(len, map(_bytes, tensors))) < rank["dimension"]


def test_nothing_is_a_pickle(runs: dict[str, list[dict[str, Any]]]) -> None:
    """What a rank sends to another is a pickle, which could run code where it is read."""
    for rank in [rank for ranks in runs.values() for rank in ranks]:
        sent = [_bytes(tensor) for _, _, tensor in rank["seen"] if tensor.dtype == torch.uint8]
        assert any(payload.startswith(b'"') for payload in sent)  # a folder's name, as text
        assert [payload[:99] for payload in sent if payload.startswith(b"\x80") and payload.endswith(b".")] == []


def test_the_server_receives_uploads(runs: dict[str, list[dict[str, Any]]]) -> None:
    """Otherwise the record would be of a run in which nothing travels."""
    for when, tensors in by_round(runs["all"][0]):
        if when.startswith("round"):
            assert max(tensor.numel() for tensor in tensors) >= 5 * 4 * runs["all"][0]["dimension"]
