"""The digests by which a checkpoint knows its examples: those of runs that are kept stay as they are."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rffl_pl.datamodules import FederatedDataModule, Sources
from rffl_pl.datamodules.splits import Pool, Split
from rffl_pl.errors import UserError
from rffl_pl.federation import Federation
from rffl_pl.runs.identity import check_identity, identity
from tests.datamodules.small import CLASSES, TEST, TRAIN, InMemory, Plain, ready, tensors
from tests.datamodules.test_fingerprints import Said


class Mixed(FederatedDataModule):
    """Examples as they are given."""

    num_classes = CLASSES
    class_names = ("a", "b", "c", "d")

    def __init__(self, federation: Federation, sources: Sources, **options: Any) -> None:
        super().__init__(federation, **options)
        self.given = sources

    def load(self) -> Sources:
        return self.given


CASES: dict[str, tuple[Sources, dict[str, Any]]] = {
    "in memory": (Sources(train=tensors(TRAIN), test=tensors(TEST)), {}),
    "silent": (Sources(train=Plain(TRAIN), test=Plain(TEST)), {}),
    "said": (Sources(train=Said(TRAIN, "x"), test=tensors(TEST), validation=Said(11, "y")), {}),
    "own": (
        Sources(train=lambda i: tensors(9 + i), test=lambda i: Said(5 + i, f"of {i}"), validation=tensors(11)),
        {"split": "OWN"},
    ),
}
KEPT = {
    "in memory": {
        "shards": "73b46d8fdf881f4f",
        "shard sizes": "5c33f3c425fc0ba8",
        "inputs": "2e4ee8886f00412b",
        "training examples": "ff19c65c9fbdc116",
    },
    "silent": {
        "shards": "73b46d8fdf881f4f",
        "shard sizes": "5c33f3c425fc0ba8",
        "training examples": "6d1eeb83f5addb03",
    },
    "said": {
        "shards": "d8c4499d09ed68a4",
        "shard sizes": "62e7cf59c0d1e0a2",
        "validation": "a53df55ce9c6aa08",
        "inputs": "c6fbee0d94905a13",
        "training inputs": "x",
        "training examples": "7face15e8ef06af5",
    },
    "own": {
        "own test examples": "caef82d2 28884bef c3bf7d9e",
        "own training examples": "be84b05e d1b5a39b e251915e",
        "shards": "94c781b121525ac8",
        "inputs": "9f1edb13ea73265f",
        "own inputs": "65324cadf3ffab14",
        "training inputs": "f711c2924ef48497",
        "training examples": "eff8908cd7c66294",
    },
}


@pytest.mark.parametrize("case", CASES)
def test_the_digests_that_checkpoints_have(case: str) -> None:
    """One that was kept is refused, though its data be the same."""
    sources, options = CASES[case]
    data = ready(Mixed(Federation(participants=2, adversaries=1, seed=1), sources, adversary_examples=9, **options))
    told = [(name, fact) for name, fact in data.identity().items() if name not in ("data set", "classes", "split")]
    assert told == [*KEPT[case].items()]


class AtBorder(Split):
    """The first so many examples are participant 0's, the others 1's."""

    def __init__(self, first: int) -> None:
        self.first = first

    def cut(self, pool: Pool) -> list[Tensor]:
        order = torch.randperm(len(pool.labels), generator=pool.generator)
        return [order[: self.first], order[self.first :]]


@pytest.mark.parametrize("training", [True, False])
def test_shards_that_end_elsewhere(training: bool) -> None:
    """One after another they are the same, and a run went on with the examples of another participant."""

    def of(first: int) -> dict[str, dict[str, str]]:
        data = ready(InMemory(Federation(participants=2), split=AtBorder(first)))
        network = nn.Linear(1, CLASSES)
        return identity(network, data.federation, data.identity(), torch.optim.SGD(network.parameters(), lr=0.1))

    with pytest.raises(UserError, match=r"but data: shard sizes is .* there and .* here; give the config.yaml"):
        check_identity(of(60), of(70), training=training)
    older = of(60)
    del older["data"]["shard sizes"]  # as in checkpoints of earlier versions
    assert check_identity(older, of(60), training=training)


@pytest.mark.parametrize("training", [True, False])
def test_whose_own_examples_are_others(training: bool) -> None:
    """Of digests of everybody's nobody could tell whose file had changed; a checkpoint of earlier says no more."""

    def of(trained: int, tested: int) -> dict[str, dict[str, str]]:
        sources = Sources(
            train=lambda i: tensors(9 + (trained if i == 1 else i)),
            test=lambda i: tensors(5 + (tested if i == 2 else i)),
            validation=tensors(11),
        )
        data = ready(Mixed(Federation(participants=3), sources, split="OWN"))
        network = nn.Linear(1, CLASSES)
        return identity(network, data.federation, data.identity(), torch.optim.SGD(network.parameters(), lr=0.1))

    with pytest.raises(UserError, match=r"but data: own training examples of participant 1 are others here; data: "):
        check_identity(of(1, 2), of(4, 2), training=training)
    if training:
        with pytest.raises(UserError, match=r"but data: own test examples of participant 2 are others here; data: "):
            check_identity(of(1, 2), of(1, 4), training=True)
    else:  # they may be others, as where all are measured on the same
        assert not check_identity(of(1, 2), of(1, 4), training=False)
    older = of(1, 2)
    for which in ("training", "test"):
        del older["data"][f"own {which} examples"]
    assert check_identity(older, of(1, 2), training=training)


def test_a_name_of_a_class_that_is_no_text() -> None:
    """As of a folder whose name is written otherwise: there was a traceback."""
    data = Mixed(Federation(participants=2), CASES["in memory"][0], adversary_examples=9)
    plain = ready(data).identity()
    data = Mixed(Federation(participants=2), CASES["in memory"][0], adversary_examples=9)
    data.class_names = ("a", "b", "c", "\udce9")
    assert ready(data).identity()["training examples"] != plain["training examples"]


class Unsaid(Plain):
    """Has its fingerprint in a file that is not there."""

    @property
    def fingerprint(self) -> str:
        raise OSError("no such file")


def test_a_fingerprint_that_cannot_be_told() -> None:
    data = ready(Mixed(Federation(participants=2), Sources(train=Unsaid(TRAIN), test=Plain(TEST))))
    with pytest.raises(UserError, match=r"^Expected Unsaid to have its fingerprint, but OSError: no such file \(test_"):
        data.identity()
