"""What somebody keeps of tensors that others write to later: copies, wherever they lie."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, MutableMapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

_LIBRARIES = sys.stdlib_module_names | {"torch", "numpy", "lightning", "torchmetrics", "rffl_pl"}
"""Whose objects, but for collections and modules, keep nothing of what somebody computes with."""


def kept_apart(memory: dict[str, Any], *given: Tensor) -> None:
    """Have a memory hold copies of what it has of tensors that somebody was given, and others write to after it.

    Args:
        memory: Tensors, arrays of NumPy's, collections of such in one another and objects of a user's own classes that
            hold them; whatever else is in it stays.
        given: The tensors.
    """
    _Copies(given).within(memory)


class _Copies:
    """Copies of what lies in the memory of some tensors.

    Args:
        given: The tensors.
    """

    def __init__(self, given: Iterable[Tensor]) -> None:
        given = [*given]
        self.storages = {_storage(tensor) for tensor in given} - {None}
        self.arrays = [tensor.detach().numpy() for tensor in given if _is_array(tensor)]
        self.seen: set[int] = set()

    def within(self, holder: MutableMapping[Any, Any]) -> None:
        """Have a mapping hold copies."""
        for key, value in [*holder.items()]:
            if (own := self.of(value)) is not value:
                holder[key] = own

    def of(self, value: Any) -> Any:
        """What is to be kept for a value: itself, if nothing of it lies there."""
        if isinstance(value, Tensor):
            return self._tensor_of(value)
        if isinstance(value, np.ndarray):
            return value.copy() if any(np.may_share_memory(value, array) for array in self.arrays) else value
        if id(value) in self.seen:  # one that holds itself
            return value
        self.seen.add(id(value))
        if isinstance(value, MutableMapping):
            self.within(value)
        elif isinstance(value, list | deque | set):
            self._refill(value)
        elif isinstance(value, tuple):
            return self._tuple_of(value)
        elif _is_ones_own(value):
            self.within(vars(value))
        return value

    def _tensor_of(self, value: Tensor) -> Tensor:
        if _storage(value) not in self.storages:
            return value
        if isinstance(value, nn.Parameter):  # which its module knows as that
            value.data = value.detach().clone()
            return value
        return value.detach().clone()

    def _refill(self, value: list[Any] | deque[Any] | set[Any]) -> None:
        """Tensors in a set differ by which they are, not by their entries."""
        before = [*value]
        own = [self.of(one) for one in before]
        if not _same(own, before):
            value.clear()
            (value.update if isinstance(value, set) else value.extend)(own)

    def _tuple_of(self, value: tuple[Any, ...]) -> tuple[Any, ...]:
        own = [self.of(one) for one in value]
        if _same(own, value):
            return value
        return type(value)(*own) if hasattr(value, "_fields") else tuple(own)


def _same(own: Sequence[Any], before: Sequence[Any]) -> bool:
    return all(one is other for one, other in zip(own, before, strict=True))


def _storage(t: Tensor) -> int | None:
    """Which memory a tensor's entries lie in; None of a sparse one, whose lie in several."""
    return t.untyped_storage()._cdata if t.layout == torch.strided else None


def _is_array(t: Tensor) -> bool:
    """Whether NumPy can look at its memory."""
    return t.device.type == "cpu" and t.layout == torch.strided and t.dtype != torch.bfloat16


def _is_ones_own(value: Any) -> bool:
    """Whether it is an object of a user's own class, or a module, which may hold anything."""
    own = type(value).__module__.partition(".")[0] not in _LIBRARIES
    return hasattr(value, "__dict__") and (own or isinstance(value, nn.Module))
