"""Copies in place of tensors that others will write to, wherever an object holds them."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import is_dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rffl_pl.errors import UserError

_LIBRARIES = sys.stdlib_module_names | {"torch", "numpy", "lightning", "torchmetrics", "rffl_pl"}
"""Whose objects, but for collections, modules and records, keep nothing of what somebody computes with."""
_PLAIN = frozenset((int, float, complex, bool, str, bytes, type(None)))


def kept_apart(memory: dict[str, Any], *given: Tensor) -> None:
    """Have a memory hold copies of what it has of tensors that somebody was given, and others write to after it.

    Args:
        memory: Tensors, arrays of NumPy's, collections of such in one another and objects of a user's own classes that
            hold them; whatever else is in it stays.
        given: The tensors.
    """
    _Copies(given).within(memory)


def check_tensors(whose: str, memory: Mapping[str, Any]) -> None:
    """See that a memory has tensors alone, which a checkpoint keeps.

    Args:
        whose: Who remembers, as it is typed: ``--adversaries OnOff``.
        memory: What is remembered.

    Raises:
        UserError: If it has anything else.
    """
    for name, value in memory.items():
        if not isinstance(value, Tensor):
            raise UserError(
                f"Expected {whose} to remember tensors, which a checkpoint keeps, but its memory has {name} of type "
                f"{type(value).__name__}; give torch.tensor(...)."
            )


class _Copies:
    """Copies of what lies in the memory of some tensors.

    Args:
        given: The tensors.
    """

    def __init__(self, given: Iterable[Tensor]) -> None:
        given = [*given]
        self.storages = {_storage(tensor) for tensor in given} - {None}
        self.arrays = [tensor.detach().numpy() for tensor in given if _is_array(tensor)]
        self.met: dict[int, tuple[Any, Any]] = {}  # what was met, and what is to be kept for it
        self.left: list[Any] = []  # what can be changed in place, and is not yet

    def within(self, memory: dict[str, Any]) -> None:
        """Have a memory hold copies."""
        self.left.append(memory)
        while self.left:
            self._change(self.left.pop())

    def of(self, value: Any) -> Any:
        """What to keep for a value: a copy, or itself if it has none of these tensors or its copies are put into it."""
        if type(value) in _PLAIN:
            return value
        if id(value) not in self.met:
            self.met[id(value)] = value, value
            self.met[id(value)] = value, self._made_of(value)
        return self.met[id(value)][1]

    def _made_of(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return value.detach().clone() if _storage(value) in self.storages else value
        if isinstance(value, np.ndarray):
            return value.copy() if any(np.may_share_memory(value, array) for array in self.arrays) else value
        if isinstance(value, tuple | frozenset):
            before = [*value]
            own = [self.of(one) for one in before]
            make = getattr(value, "_make", tuple if isinstance(value, tuple) else frozenset)
            return value if _same(own, before) else make(own)
        self.left.append(value)
        return value

    def _change(self, value: Any) -> None:
        if isinstance(value, MutableMapping):
            self._change_items(value)
        elif isinstance(value, list | deque | set):
            before = [*value]
            own = [self.of(one) for one in before]  # tensors in a set differ by which they are
            if not _same(own, before):
                value.clear()
                (value.update if isinstance(value, set) else value.extend)(own)
        elif _may_hold(value):
            if isinstance(value, nn.Module):
                self._change_parameters(value)
            self._change_items(vars(value))

    def _change_items(self, holder: MutableMapping[Any, Any]) -> None:
        for key, value in [*holder.items()]:
            if (own := self.of(value)) is not value:
                holder[key] = own

    def _change_parameters(self, module: nn.Module) -> None:
        """Replace the data of a module's parameters by copies; the parameters stay the same objects."""
        for parameter in module._parameters.values():
            if parameter is not None and _storage(parameter) in self.storages:
                parameter.data = parameter.detach().clone()


def _same(own: Sequence[Any], before: Sequence[Any]) -> bool:
    return all(one is other for one, other in zip(own, before, strict=True))


def _storage(t: Tensor) -> int | None:
    """Which memory a tensor's entries lie in; None of a sparse one, whose lie in several."""
    return t.untyped_storage()._cdata if t.layout == torch.strided else None


def _is_array(t: Tensor) -> bool:
    """Whether NumPy can look at its memory."""
    return t.device.type == "cpu" and t.layout == torch.strided and t.dtype != torch.bfloat16


def _may_hold(value: Any) -> bool:
    """Whether it is an object that may hold anything: one of a user's own class, a module, a record of facts."""
    kind = type(value)
    named = isinstance(value, nn.Module) or is_dataclass(kind) or kind is SimpleNamespace
    return hasattr(value, "__dict__") and (named or kind.__module__.partition(".")[0] not in _LIBRARIES)
