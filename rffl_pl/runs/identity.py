"""What a checkpoint and the run that loads it must agree on."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

from torch import nn
from torch.optim import Optimizer

from rffl_pl.configured import IMPLEMENTATIONS
from rffl_pl.errors import UserError
from rffl_pl.federation import Federation
from rffl_pl.functional.fingerprints import raw
from rffl_pl.runs.settings import optimizer_settings

Identity = dict[str, dict[str, str]]

_TRAINED = "training examples"
_OWN = "own training examples"
_OWN_MEASURED = ("own test examples", "own validation examples")
_ALL = ("shards", "inputs", "own inputs", "validation", "token ids", *_OWN_MEASURED)
"""Facts of data that depend on all examples, not only on those that models are trained on."""
_LATER = ("inputs", "own inputs", "training inputs", "validation", "shard sizes", _TRAINED, _OWN, *_OWN_MEASURED)
"""Facts of data that checkpoints of earlier versions lack."""

_FROZEN_ALONE = re.compile(r"model: \S+ is (\S+) frozen \w+ there and \1 frozen \w+ here")
"""Matches a difference in the values alone of a frozen parameter, as of a backbone that is read from a file."""


def identity(network: nn.Module, federation: Federation, data: dict[str, str], optimizer: Optimizer) -> Identity:
    """What a checkpoint and the run that loads it must agree on; on ``training`` only to go on training.

    The optimizer is one as it is made: learning rates do not count.
    """
    options = {key: value for key, value in optimizer_settings(optimizer).items() if key.partition(".")[0] != "lr"}
    parameters = {name: _described(p) for name, p in network.named_parameters()}
    return {
        "model": {"network": type(network).__name__, **parameters},
        "federation": {
            "participants": str(federation.honest),
            "adversaries": str(federation.adversaries),
            "seed": str(federation.seed),
        },
        "data": data,
        "training": {"optimizer": type(optimizer).__name__, "tensors by group": _sizes(optimizer), **options},
    }


def _sizes(optimizer: Optimizer) -> str:
    return ", ".join(str(len(group["params"])) for group in optimizer.param_groups)


def check_identity(saved: Identity, here: Identity, *, training: bool) -> bool:
    """Refuse a checkpoint of another run.

    Of the optimizer's options only those are compared that both know, since torch adds some from version to version,
    and none that only says how its steps are computed. Where nobody trains, models may be measured on other examples
    than in their run, if the training examples are its own, by which words are numbered and columns scaled.

    Returns:
        Whether what models are measured on is the same, too.

    Raises:
        UserError: With the first differences.
    """
    found = _differing(saved, here, training=training)
    told = _TRAINED in here["data"] and _TRAINED in saved["data"]
    left_out = _ALL if told and not training else (_TRAINED,)
    differences = [
        f"{group}: {_told(key, saved[group].get(key, 'absent'), here[group].get(key, 'absent'))}"
        for group, key in found
        if group != "data" or key not in left_out
    ]
    if differences:
        frozen = all(_FROZEN_ALONE.fullmatch(one) for one in differences)
        remedy = "give the network the frozen weights that the run began with, which no checkpoint holds"
        files = ", and data as it was then" if all(one.startswith("data: ") for one in differences) else ""
        more = f" (and {len(differences) - 3} more)" if len(differences) > 3 else ""
        raise UserError(
            f"Expected the checkpoint at --ckpt_path to be of this run, but {'; '.join(differences[:3])}{more}; "
            f"{remedy if frozen else f'give the config.yaml that lies beside it{files}'}."
        )
    return not any(group == "data" and key in _ALL for group, key in found)


def _told(key: str, there: str, here: str) -> str:
    """A fact that differs; of what participants have of their own whose does, where as many are compared."""
    pairs = [*enumerate(zip(there.split(), here.split(), strict=False))]
    if key in (_OWN, *_OWN_MEASURED) and (whose := [str(i) for i, (a, b) in pairs if a != b]):
        return f"{key} of participant {', '.join(whose)} are others here"
    return f"{key} is {there} there and {here} here"


def _described(parameter: nn.Parameter) -> str:
    """A parameter's shape; of one that is frozen, which no checkpoint holds, also its values' digest."""
    shape = "x".join(map(str, parameter.shape))
    if parameter.requires_grad:
        return shape
    return f"{shape} frozen {hashlib.sha256(raw(parameter)).hexdigest()[:12]}"


def _differing(saved: Identity, here: Identity, *, training: bool) -> list[tuple[str, str]]:
    """The facts that differ, each by its group and its key."""
    return [
        (group, key)
        for group in here
        if group != "training" or training
        for key in (_shared if group == "training" else _either)(here[group], saved[group])
        if here[group].get(key) != saved[group].get(key)
    ]


def _shared(here: Mapping[str, str], there: Mapping[str, str]) -> list[str]:
    return [key for key in here if key in there and key not in IMPLEMENTATIONS]


def _either(here: Mapping[str, str], there: Mapping[str, str]) -> list[str]:
    """The names of the facts to compare; those that earlier versions lack only where both have them."""
    return [key for key in {**here, **there} if key not in _LATER or (key in here and key in there)]
