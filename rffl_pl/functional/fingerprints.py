"""What an object or a tensor is: in words, and to see whether somebody's code changes it."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rffl_pl.errors import UserError


def described(value: object, *, dtype: bool = False) -> str:
    """What somebody's code gave in place of a tensor of some shape, for messages: ``shape [3]``, or its type's name.

    Args:
        value: What it gave.
        dtype: Whether the type of a tensor's entries is told, too: ``torch.int64 of shape [3]``.
    """
    if not isinstance(value, Tensor):
        return type(value).__name__
    return f"{f'{value.dtype} of ' if dtype else ''}shape {list(value.shape)}"


def fingerprints(one: object) -> dict[str, str]:
    """Of each attribute of an object, and of those that its classes share, what it is now.

    Tensors, arrays, modules, optimizers and generators go by what is in them, in lists and dictionaries too; anything
    else by what it prints. What lies in a module of Python's is not seen.
    """
    shared = {
        name: value
        for kind in reversed(type(one).__mro__[:-1])
        for name, value in vars(kind).items()
        if not name.startswith("_") and not callable(value) and not hasattr(value, "__get__")
    }
    return {name: fingerprint(value) for name, value in {**shared, **vars(one)}.items()}


@contextmanager
def stays(what: str, one: object, remedy: str) -> Iterator[None]:
    """Where an object is used that serves all participants of a process.

    Args:
        what: As it is typed: ``--model.objective Own``.
        one: The object, or a copy that is used for it.
        remedy: Where to keep what belongs to a participant.

    Raises:
        UserError: If it changes itself: results would depend on who shares a process, and on interruptions.
    """
    before = fingerprints(one)
    yield
    if changed := changes(before, fingerprints(one)):
        raise UserError(
            f"Expected {what} not to change itself during use, since one object serves all participants of a process, "
            f"but its attribute {changed[0]} changes; {remedy}."
        )


@contextmanager
def left_alone(what: str, *tensors: Tensor) -> Iterator[None]:
    """Where somebody's code is given tensors that others are given after it.

    Args:
        what: Whose code, and which tensors: ``--model.network Own to leave its inputs as they are``.
        tensors: What it is given.

    Raises:
        UserError: If one of them is changed in place.
    """
    before = [_written(tensor) for tensor in tensors]
    yield
    if [_written(tensor) for tensor in tensors] != before:
        raise UserError(
            f"Expected {what}, but it changes them in place, and others are given them too; have it make new ones, "
            "x = x - 1 for x -= 1."
        )


def _written(tensor: Tensor) -> tuple[int, str]:
    """How often it has been written to, and what is in it: torch counts no writes by NumPy or ``.data``.

    Nor any of one that was made in ``inference_mode``.
    """
    return 0 if tensor.is_inference() else tensor._version, fingerprint(tensor)


def fingerprint(value: Any) -> str:
    """What a value is now, in words or a digest of what is in it."""
    if isinstance(value, Tensor):
        return f"{value.dtype} {list(value.shape)} {_digest(raw(value))}"
    if isinstance(value, np.ndarray) and value.dtype != object:
        return f"{value.dtype} {list(value.shape)} {_digest(value.tobytes())}"
    if isinstance(value, nn.Module):
        return fingerprint([value.training, value.state_dict()])
    if isinstance(value, torch.optim.Optimizer):
        return fingerprint(value.state_dict())
    if isinstance(value, torch.Generator):
        return fingerprint(value.get_state())
    if isinstance(value, random.Random):
        return repr(value.getstate())
    if isinstance(value, np.random.Generator | np.random.RandomState):
        return repr(
            value.bit_generator.state if isinstance(value, np.random.Generator) else value.get_state(legacy=False)
        )
    if isinstance(value, Mapping):
        return _each((f"{key!r}: {fingerprint(item)}" for key, item in value.items()))
    return _each(map(fingerprint, value)) if isinstance(value, list | tuple) else repr(value)


def counts(network: nn.Module) -> dict[str, Any]:
    """The numbers, words and flags that layers keep as plain attributes, by name, ``layer.attribute``."""
    return {
        f"{name}.{key}".lstrip("."): value
        for name, layer in network.named_modules()
        for key, value in vars(layer).items()
        if key != "training" and isinstance(value, bool | int | float | str)
    }


def changes(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """The names of those that have changed, or come."""
    return [name for name, value in after.items() if name not in before or repr(before[name]) != repr(value)]


def close(one: Tensor, other: Tensor, within: float = 1e-4) -> bool:
    """Whether what two copies computed is the same but for rounding, a share of the largest entry."""
    one, other = one.double().cpu(), other.double().cpu()
    scale = within * float(other.abs().nan_to_num(0.0, 0.0, 0.0).max()) if other.numel() else 0.0
    return one.shape == other.shape and torch.allclose(one, other, rtol=0.0, atol=scale, equal_nan=True)


def checksum(t: Tensor) -> int:
    """A sum of a tensor's bits, which equal ones have in common, and few others."""
    return int(t.view(torch.int32).sum() if t.dtype == torch.float32 and t.is_contiguous() else bytes_of(t).sum())


def bytes_of(t: Tensor) -> Tensor:
    """A tensor's bytes, whatever its type: sums of complex numbers are none, and those of masks may be infinite."""
    return t.contiguous().view(-1).view(torch.uint8)


def raw(t: Tensor) -> bytes:
    """A tensor's bytes as Python's `bytes`, from any device."""
    return bytes_of(t.detach().cpu()).numpy().tobytes()


def _each(items: Iterable[str]) -> str:
    return f"[{', '.join(items)}]"


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
