"""All ranks start alike, or not at all."""

from __future__ import annotations

import hashlib

import lightning
import torch
from lightning.pytorch import Trainer

import rffl_pl
from rffl_pl.callbacks.resuming import training_settings
from rffl_pl.errors import UserError
from rffl_pl.module import FederatedModule
from rffl_pl.runs.identity import raw
from rffl_pl.servers import Server

_REMEDIES = {
    "the initial weights": "give --seed_everything a number, so that all draw the same",
    "the data": "have all nodes read the same files",
    "the versions": "install the same releases on all nodes",
}


def check_agreement(trainer: Trainer, module: FederatedModule, server: Server) -> None:
    """Compare what ranks start from: results would hang on which rank hosts whom, and nobody would notice.

    Raises:
        UserError: On every rank, with the first difference there is.
    """
    elsewhere = {f"--data.{option}" for option in module.data.places}
    settings = training_settings(trainer, server)
    weights = hashlib.sha256(b"".join(raw(tensor) for tensor in module.network.state_dict().values()))
    facts = {
        "the initial weights": weights.hexdigest(),
        "the data": repr(module.data.identity()),
        "the versions": f"{rffl_pl.__version__}, torch {torch.__version__}, lightning {lightning.__version__}",
        "the exchange": "sharded" if len(module.exchange.shards) > 1 else "central",
        **{option: value for option, value in settings.items() if option not in elsewhere},
    }
    found = module.exchange.first_difference(facts)
    if found is not None:
        rank, name = found
        remedy = _REMEDIES.get(name, "start all ranks with the same options")
        raise UserError(
            f"Expected all ranks to start alike, but {name} of rank {rank} differs from rank 0's; {remedy}."
        )
