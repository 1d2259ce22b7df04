"""How a run was trained, and what somebody changes who goes on."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from dataclasses import is_dataclass
from enum import Enum
from functools import partial
from types import BuiltinFunctionType, FunctionType, SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

from rffl_pl.configured import Configured, short
from rffl_pl.errors import path_of
from rffl_pl.functional.fingerprints import fingerprint

Settings = dict[str, str]

_NO_MATTER = ("--data.data_dir", "--data.num_workers", "--data.eval_batch_size")
_DECIDED = ("--federation.participants",)  # None, or the number that it stands for; the identity has it

_DEEPEST = 4
"""Levels of nested objects that are told."""
_FEW = 1000
"""Tensors and arrays with no more numbers are written out."""

EVERY_MODULES = frozenset(vars(nn.Module()))
"""What a module without anything of its own has."""
_EVERY_OPTIMIZERS = frozenset(vars(SGD([nn.Parameter(torch.zeros(1))], lr=1.0)))


def settings_of(
    *,
    federation: Configured,
    server: Configured,
    model: Configured,
    network: nn.Module,
    loss: nn.Module | None,
    objective: Configured | None,
    data: Configured,
    rates: Settings,
    precision: str,
) -> Settings:
    """Every training setting as its option is typed: ``--server.gamma`` to ``0.5``.

    Args:
        federation: Who takes part.
        server: The rule.
        model: Local training and attacks.
        network: Of which dropout and the like are no parameters.
        loss: What participants train by, if it is none of ours.
        objective: What they minimise in its place, if they do.
        data: The data and its split.
        rates: The options of the participants' optimizer.
        precision: Of local training.
    """
    every = model.settings("--model") | data_settings(data) | server.settings("--server")
    every |= federation.settings("--federation")
    every |= {f"--model.optimizer.{name}": value for name, value in rates.items()}
    every |= {f"--model.network.{name}": _printed(layer) for name, layer in network.named_modules() if _is_leaf(layer)}
    every |= {
        ".".join(filter(None, ("--model.network", name, attribute))): value
        for name, layer in network.named_modules()
        if not _tells_all(layer)
        for attribute, value in attributes(layer).items()
    }
    every |= loss_settings(loss)
    every |= {} if objective is None else objective.settings("--model.objective")
    every["--trainer.precision"] = precision
    classes = ("--model", "--federation")  # of these there is one
    return {
        name.replace("--model.adversaries", "--adversaries"): value
        for name, value in every.items()
        if name not in (*_DECIDED, *classes)
    }


def data_settings(data: Configured) -> Settings:
    """Those of the data and its split, but for what changes no result: where it lies, and how it is read."""
    return {name: value for name, value in data.settings("--data").items() if name not in _NO_MATTER}


def optimizer_settings(optimizer: Optimizer) -> Settings:
    """The options of an optimizer as it is made, of its groups after the first too, and what one's own keeps beside."""
    first, *others = optimizer.param_groups
    told = {name: value for name, value in first.items() if name != "params"}
    told |= {f"{name}.{k}": each[name] for k, each in enumerate(others, 1) for name in each if name != "params"}
    own = beside_state(optimizer)
    if type(optimizer).__module__.startswith("torch."):  # what they keep hidden says nothing of their steps
        own = {name: value for name, value in own.items() if not name.startswith("_")}
    every = {name: str(value) for name, value in told.items()} | {name: _told(value) for name, value in own.items()}
    return {name: value for name, value in every.items() if value is not None}


def beside_state(optimizer: Optimizer) -> dict[str, Any]:
    """What an optimizer keeps as attributes, beside its state and its groups."""
    return {name: value for name, value in vars(optimizer).items() if name not in _EVERY_OPTIMIZERS}


def loss_settings(loss: nn.Module | None) -> Settings:
    """What a loss is, keeps and weighs by; nothing of none."""
    if loss is None:
        return {}
    parts = [(".".join(filter(None, ("--model.loss", name))), part) for name, part in loss.named_modules()]
    kept = {f"--model.loss.{name}": str(value.tolist()) for name, value in loss.named_buffers()}
    kept |= {f"{name}.{key}": value for name, part in parts for key, value in attributes(part).items()}
    return {name: type(part).__name__ for name, part in parts} | kept


def attributes(layer: nn.Module) -> Settings:
    """What a module keeps beside parameters, buffers and layers: it need not print it, but may compute by it.

    Plain values, tensors, the names of functions, and collections, dataclasses and namespaces of these.
    """
    every = {name: _told(value) for name, value in vars(layer).items() if name not in EVERY_MODULES}
    return {name: value for name, value in every.items() if value is not None}


def _told(value: object, depth: int = 0) -> str | None:
    """A value in words that are the same in every process; None of one that has none."""
    if _is_plain(value):
        return str(value)
    if isinstance(value, FunctionType | BuiltinFunctionType):
        return path_of(value)
    if isinstance(value, Tensor | np.ndarray):
        return None if isinstance(value, nn.Parameter) else _told_in_short(value)
    return _told_in_parts(value, depth) if depth < _DEEPEST else None


def _told_in_short(values: Tensor | np.ndarray[Any, Any]) -> str:
    few = (values.numel() if isinstance(values, Tensor) else values.size) <= _FEW
    return short(str(values.tolist()) if few else fingerprint(values))


def _told_in_parts(value: object, depth: int) -> str | None:
    """A collection in words: a sequence or set if all items can be told, a mapping or record with those that can."""
    if isinstance(value, partial):
        return _told((value.func, value.args, value.keywords), depth + 1)
    if isinstance(value, list | tuple | set | frozenset):
        items = [_told(item, depth + 1) for item in value]
        told = [item for item in items if item is not None]
        ordered = told if isinstance(value, list | tuple) else sorted(told)
        return f"[{', '.join(ordered)}]" if len(told) == len(items) else None
    if is_dataclass(value) or isinstance(value, SimpleNamespace | Namespace):
        return f"{type(value).__name__} {_told(vars(value), depth + 1)}"
    if isinstance(value, Mapping):
        named = {key: _told(item, depth + 1) for key, item in value.items()}
        return f"{{{', '.join(f'{key}: {item}' for key, item in named.items() if item is not None)}}}"
    return None


def _is_plain(value: object) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, str | int | float | torch.dtype | Enum)


def _tells_all(layer: nn.Module) -> bool:
    """Whether what a layer prints is all there is to say."""
    return _is_leaf(layer) and type(layer).__module__.startswith("torch.nn.")


def _is_leaf(layer: nn.Module) -> bool:
    return next(layer.children(), None) is None


def _printed(layer: nn.Module) -> str:
    return f"{type(layer).__name__}({layer.extra_repr()})"


def changes(saved: Mapping[str, str], here: Mapping[str, str]) -> list[str]:
    """What differs, ``--server.gamma 0.5 -> 0.3``, of what both know: releases add options."""
    return [f"{name} {saved[name]} -> {here[name]}" for name in here if name in saved and saved[name] != here[name]]
