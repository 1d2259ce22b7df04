"""A device that is none, for machines without a GPU: ``torch.device("card")``, whose memory is the CPU's.

torch lets a device be written in Python. What is on this one is a tensor that wraps one on the CPU, where every
operation is carried out, so results are the CPU's to the bit. What a GPU refuses is refused: operations between the
card and the CPU, and NumPy's hands on what lies on the card; under `never_waiting` also whatever a GPU is waited for.

Importing this changes torch for the whole process: only programs of ranks do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend


class _Module:
    """What torch asks of ``torch.card``: every process sees one card."""

    def is_initialized(self) -> bool:
        return True

    def is_available(self) -> bool:
        return True

    def current_device(self) -> int:
        return 0

    def device_count(self) -> int:
        return 1

    def manual_seed_all(self, seed: int) -> None:
        """Operations draw on the CPU."""

    def _is_in_bad_fork(self) -> bool:
        return False


_setup_privateuseone_for_python_backend("card", _Module())
CARD = torch.device("card", 0)
_aten = torch.ops.aten
# Of a card and the CPU: copies, and positions, which may be on the CPU for what is on a card.
_COPIES = (_aten.copy_.default, _aten._to_copy.default)
_INDEXED = (_aten.index.Tensor, _aten.index_put.default, _aten.index_put_.default, _aten._index_put_impl_.default)
# Whose result the CPU has to know before it goes on.
_READ = (
    _aten._local_scalar_dense.default, _aten.equal.default, _aten.is_nonzero.default, _aten.nonzero.default,
    _aten.masked_select.default, _aten._unique2.default, _aten.unique_consecutive.default, _aten.unique_dim.default,
    _aten.repeat_interleave.Tensor,
)  # fmt: skip
_never = [False]


@contextmanager
def never_waiting() -> Iterator[None]:
    """Refuse what a GPU would be waited for, as ``torch.cuda.set_sync_debug_mode("error")`` does there."""
    _never[0] = True
    try:
        yield
    finally:
        _never[0] = False


class OnCard(Tensor):
    """A tensor on the card.

    Attributes:
        held: Its entries, on the CPU.
    """

    held: Tensor

    @staticmethod
    def __new__(cls: Any, held: Tensor) -> OnCard:
        made: OnCard = Tensor._make_wrapper_subclass(
            cls, held.shape, strides=held.stride(), storage_offset=held.storage_offset(), dtype=held.dtype, device=CARD
        )
        made.held = held
        return made

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"OnCard({self.held})"

    @property
    def data(self) -> Any:
        return Tensor.data.__get__(self)  # type: ignore[attr-defined]

    @data.setter
    def data(self, given: Tensor) -> None:
        assert isinstance(given, OnCard)
        Tensor.data.__set__(self, given)  # type: ignore[attr-defined]
        self.held = given.held

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.held.__reduce_ex__(protocol)

    def tolist(self) -> Any:
        return self.held.tolist()

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # a decorator hides its signature
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func.namespace == "c10d":  # torch's own way to the process group's backend of the card
            return func._op_dk(torch._C.DispatchKey.PrivateUse1, *args, **kwargs)
        return _carried_out(func, args, kwargs)


def _carried_out(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The result of an operation, on the card unless it is one that brings something to the CPU."""
    given = [value for value in pytree.tree_leaves((args, kwargs)) if isinstance(value, Tensor)]
    _refuse_mixing(func, args, given)
    if _never[0]:
        _refuse_waiting(func, args, kwargs, given)
    # What is changed in place comes back as the very tensor that was given.
    same = {id(tensor.held if isinstance(tensor, OnCard) else tensor): tensor for tensor in given}
    to_cpu = kwargs.get("device") is not None and kwargs["device"].type == "cpu"

    def placed(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        return same.get(id(value), value if to_cpu else OnCard(value))

    made = func(*pytree.tree_map(_held, tuple(args)), **pytree.tree_map(_held, dict(kwargs)))
    for tensor in given:
        if isinstance(tensor, OnCard):
            _reshape(tensor)
    return pytree.tree_map(placed, made)


def _reshape(tensor: OnCard) -> None:
    """Have a tensor follow the one that it wraps, where an operation in place changed that one's shape."""
    held = tensor.held
    if (tensor.shape, tensor.stride()) != (held.shape, held.stride()):
        key = torch._C.DispatchKey.CompositeExplicitAutogradNonFunctional
        _aten.as_strided_.default._op_dk(key, tensor, held.shape, held.stride(), held.storage_offset())


def _refuse_mixing(func: Any, args: Sequence[Any], given: Sequence[Tensor]) -> None:
    """As CUDA does; single numbers may be on the CPU."""
    strange = any(not isinstance(tensor, OnCard) and tensor.dim() > 0 for tensor in given)
    mixed = strange and any(isinstance(tensor, OnCard) for tensor in given)
    if mixed and func not in _COPIES and not (func in _INDEXED and isinstance(args[0], OnCard)):
        raise RuntimeError(f"Expected all tensors to be on the same device, but {func} found card:0 and cpu")


def _refuse_waiting(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], given: Sequence[Tensor]) -> None:
    """Results that are read, positions that come from the CPU or are counted first, and copies that are waited for."""
    on_card = [isinstance(tensor, OnCard) for tensor in given]
    waits = func in _READ and any(on_card)
    if func in _INDEXED:
        places = [place for place in args[1] if place is not None]
        waits = any(place.dtype in (torch.bool, torch.uint8) or not isinstance(place, OnCard) for place in places)
    if func is _aten.copy_.default and len(set(on_card)) == 2:
        waits = not (on_card[0] and (kwargs.get("non_blocking") or args[2:3] == (True,)))
    if func is _aten._to_copy.default and on_card[0]:
        waits = kwargs.get("device") is not None and kwargs["device"].type == "cpu"
    if waits:
        raise RuntimeError(f"called a synchronizing operation: {func}")


def _held(value: Any) -> Any:
    if isinstance(value, OnCard):
        return value.held
    return torch.device("cpu") if isinstance(value, torch.device) and value.type == "card" else value


def _from_nothing(func: Any) -> Callable[..., Any]:
    """An operation without tensors to tell where it happens: torch comes to the card by its device argument."""
    return lambda *args, **kwargs: _carried_out(func, args, kwargs)


def _copy_from(source: Tensor, target: Tensor, non_blocking: bool = False) -> Tensor:
    _carried_out(_aten.copy_.default, (target, source, non_blocking), {})
    return target


_LIBRARY = torch.library.Library("aten", "IMPL")
for _name in ("empty.memory_format", "empty_strided", "arange", "arange.start", "arange.start_step"):
    _packet, _, _overload = _name.partition(".")
    _LIBRARY.impl(_name, _from_nothing(getattr(getattr(_aten, _packet), _overload or "default")), "PrivateUse1")
_LIBRARY.impl("_copy_from", _copy_from, "PrivateUse1")
