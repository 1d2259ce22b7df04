"""What a checkpoint and the run that loads it must agree on."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import torch
from torch import nn
from torch.optim import Optimizer

from rffl_pl.errors import UserError
from rffl_pl.federation import Federation

Identity = dict[str, dict[str, str]]


def identity(network: nn.Module, federation: Federation, data: dict[str, str], optimizer: Optimizer) -> Identity:
    """What a checkpoint and the run that loads it must agree on; on ``training`` only to go on training."""
    options = {key: str(value) for key, value in optimizer.defaults.items() if key != "lr"}
    parameters = {name: _described(p) for name, p in network.named_parameters()}
    return {
        "model": {"network": type(network).__name__, **parameters},
        "federation": {
            "participants": str(federation.honest),
            "adversaries": str(federation.adversaries),
            "seed": str(federation.seed),
        },
        "data": data,
        "training": {"optimizer": type(optimizer).__name__, **options},
    }


def check_identity(saved: Identity, here: Identity, *, training: bool) -> None:
    """Refuse a checkpoint of another run.

    Of the optimizer's options only those are compared that both know: torch adds some from version to version.

    Raises:
        UserError: With the first differences.
    """
    differences = [
        f"{group}: {key} is {saved[group].get(key, 'absent')} there and {here[group].get(key, 'absent')} here"
        for group in here
        if group != "training" or training
        for key in (_shared if group == "training" else _either)(here[group], saved[group])
        if here[group].get(key) != saved[group].get(key)
    ]
    if differences:
        more = f" (and {len(differences) - 3} more)" if len(differences) > 3 else ""
        raise UserError(
            f"Expected the checkpoint at --ckpt_path to be of this run, but {'; '.join(differences[:3])}{more}; "
            "give the config.yaml that lies beside it."
        )


def _described(parameter: nn.Parameter) -> str:
    """A parameter's shape; of one that is frozen, which no checkpoint holds, also its values' digest."""
    shape = "x".join(map(str, parameter.shape))
    if parameter.requires_grad:
        return shape
    values = parameter.detach().cpu().contiguous().view(-1).view(torch.uint8)
    return f"{shape} frozen {hashlib.sha256(values.numpy().tobytes()).hexdigest()[:12]}"


def _shared(here: Mapping[str, str], there: Mapping[str, str]) -> list[str]:
    return [key for key in here if key in there]


def _either(here: Mapping[str, str], there: Mapping[str, str]) -> list[str]:
    return list({**here, **there})
