"""Copies of what somebody keeps of tensors that others write to."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from types import MappingProxyType, SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from rffl_pl.functional.kept import kept_apart


def test_the_parameter_of_a_module() -> None:
    """It stays the module's parameter, and no longer lies in what is written to."""
    given = torch.ones(2, 3)
    module = nn.Linear(3, 1, bias=False)
    module.weight = nn.Parameter(given[:1])
    memory: dict[str, Any] = {"module": module}
    kept_apart(memory, given)
    given.zero_()
    assert isinstance(module.weight, nn.Parameter)
    assert list(module.parameters()) == [module.weight]
    assert (module.weight == 1).all()


@dataclass(frozen=True)
class Fact:
    """Holds one."""

    value: Any


class Counted(NamedTuple("Counted", [("first", Any)])):
    """Makes itself of something else than its fields."""

    def __new__(cls, first: Any, times: int) -> Counted:
        return super().__new__(cls, first)


class Link:
    """Holds the one before."""

    def __init__(self, value: torch.Tensor, before: Link | None) -> None:
        self.value, self.before = value, before


def test_wherever_it_lies() -> None:
    """Each of these held what is written to; and a long chain ended in a traceback."""
    given = torch.ones(3)
    pair, chain = (given, 1), Link(given[2:], None)
    for _ in range(3000):
        chain = Link(given[1:], chain)
    memory: dict[str, Any] = {
        "fact": Fact([given]),
        "names": SimpleNamespace(value=given),
        "counted": Counted(given, 2),
        "frozen": frozenset({given}),
        "pair": pair,
        "the same": [pair],
        "chain": chain,
        "parameter": nn.Parameter(given),
    }
    kept_apart(memory, given)
    given.zero_()
    while chain.before is not None:
        assert (chain.value == 1).all()
        chain = chain.before
    found = [
        memory["fact"].value[0],
        memory["names"].value,
        memory["counted"].first,
        *memory["frozen"],
        memory["pair"][0],
        memory["the same"][0][0],
        chain.value,
        memory["parameter"],
    ]
    assert all(bool((one == 1).all()) for one in found)
    assert memory["pair"] is memory["the same"][0]


def test_a_parameter_by_itself_stays_where_it_trains() -> None:
    """A participant's own: it left the row that it is a part of, and trained there unseen."""
    row = torch.ones(3)
    parameter = nn.Parameter(row)
    memory: dict[str, Any] = {"before": parameter}
    kept_apart(memory, row)
    assert parameter.data_ptr() == row.data_ptr() != memory["before"].data_ptr()


def test_what_lies_elsewhere_stays_as_it_is() -> None:
    """The same objects, none copied: a rule may have given them to others."""
    given = torch.ones(4)
    other, array, one = torch.ones(4), np.ones(4), object()
    memory: dict[str, Any] = {
        "tensor": other,
        "array": array,
        "tuple": (other, 1),
        "deque": deque([other]),
        "set": {other},
        "proxy": MappingProxyType({"given": given}),
        "object": one,
        "words": ["a", 1, None],
    }
    before = {name: (id(value), repr(value)) for name, value in memory.items()}
    kept_apart(memory, given)
    assert {name: (id(value), repr(value)) for name, value in memory.items()} == before
    assert memory["tuple"][0] is memory["deque"][0] is next(iter(memory["set"])) is other


def test_a_sparse_tensor_and_bfloat16() -> None:
    """Neither has an array of NumPy's, and the second lies in what is written to."""
    given = torch.ones(4, dtype=torch.bfloat16)
    memory: dict[str, Any] = {"sparse": torch.eye(2).to_sparse(), "part": given[1:], "array": np.ones(2)}
    kept_apart(memory, given, torch.eye(2).to_sparse())
    given.zero_()
    assert (memory["part"] == 1).all()
