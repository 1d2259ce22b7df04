"""Copies of what somebody keeps of tensors that others write to."""

from __future__ import annotations

from collections import deque
from types import MappingProxyType
from typing import Any

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
