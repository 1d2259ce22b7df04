"""The digests by which a checkpoint knows its examples: those of runs that are kept stay as they are."""

from __future__ import annotations

from typing import Any

import pytest

from rffl_pl.datamodules import FederatedDataModule, Sources
from rffl_pl.federation import Federation
from tests.datamodules.small import CLASSES, TEST, TRAIN, Plain, ready, tensors
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
        "inputs": "2e4ee8886f00412b",
        "training examples": "ff19c65c9fbdc116",
    },
    "silent": {"shards": "73b46d8fdf881f4f", "training examples": "6d1eeb83f5addb03"},
    "said": {
        "shards": "d8c4499d09ed68a4",
        "validation": "a53df55ce9c6aa08",
        "inputs": "c6fbee0d94905a13",
        "training inputs": "x",
        "training examples": "7face15e8ef06af5",
    },
    "own": {
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
