"""All ranks start alike, and in one folder, or not at all."""

from __future__ import annotations

import hashlib
from pathlib import Path

import lightning
import torch
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import ProgressBar

import rffl_pl
from rffl_pl.callbacks.checkpointing import RoundCheckpoint
from rffl_pl.callbacks.find import find
from rffl_pl.callbacks.resuming import places_of, training_settings
from rffl_pl.callbacks.standalone import StandaloneReference
from rffl_pl.datamodules.splits import OWN
from rffl_pl.errors import UserError
from rffl_pl.exchange import Difference
from rffl_pl.functional.fingerprints import raw
from rffl_pl.module import FederatedModule
from rffl_pl.runs import RunFolder
from rffl_pl.servers import Server

_REMEDIES = {
    "the initial weights": "give --seed_everything a number, in a program seed_everything(1), so that all draw alike",
    "the data": "have all nodes read the same files",
    "the versions": "install the same releases on all nodes",
}
_PRIVATE = "--data"
_READABLE = 160
"""Characters."""


def named_alike(folder: RunFolder, trainer: Trainer) -> RunFolder:
    """This rank's folder of the run, named as rank 0's: it is the same one where they have the same --run.root.

    Raises:
        UserError: If rank 0 names a place elsewhere.
    """
    name = trainer.strategy.broadcast(folder.path.name)
    if (name != "" and Path(name).parts != (name,)) or name == "..":
        raise UserError(f"Expected rank 0 to name a folder below --run.root and --run.name, but it says {name!r}.")
    return folder if name in ("", folder.path.name) else RunFolder(folder.path.parent / name)


def check_agreement(trainer: Trainer, module: FederatedModule, server: Server) -> None:
    """Compare what ranks start from: results would depend on which rank hosts whom, and nobody would notice.

    Raises:
        UserError: On every rank, with the first difference there is.
    """
    elsewhere = places_of(module.data)
    settings = training_settings(trainer, server)
    weights = hashlib.sha256(b"".join(raw(tensor) for tensor in module.network.state_dict().values()))
    facts = {
        "the versions": f"{rffl_pl.__version__}, torch {torch.__version__}, lightning {lightning.__version__}",
        "the exchange": "sharded" if module.exchange.sharded else "central",
        **{option: _told(option, value) for option, value in settings.items() if option not in elsewhere},
        **_meetings(trainer),
        "the data": repr(module.data.identity()),
        "the initial weights": weights.hexdigest(),
    }
    found = module.exchange.first_difference(facts)
    if found is not None:
        remedy = _REMEDIES.get(found.name, "start all ranks with the same options")
        if found.name == "the data" and isinstance(module.data.split, OWN):
            remedy += ", but for each participant's own"
        differ = "differ" if found.name.endswith("s") and found.name.startswith("the ") else "differs"
        raise UserError(
            f"Expected all ranks to start alike, but {found.name} of rank {found.rank} {differ} from rank 0's"
            f"{_values(found)}; {remedy}."
        )


def _told(option: str, value: str) -> str:
    """An option's value for other ranks: a digest if it says where data comes from, which may contain a password."""
    return hashlib.sha256(value.encode()).hexdigest() if option.startswith(_PRIVATE) else value


def _values(found: Difference) -> str:
    """Both ranks' values in brackets, for messages; empty where people could not read them or should not."""
    if (
        found.name in ("the data", "the initial weights")
        or found.name.startswith(_PRIVATE)
        or len(f"{found.there}{found.here}") > _READABLE
    ):
        return ""
    return f" ({'nothing' if found.there is None else found.there} and {found.here})"


def _meetings(trainer: Trainer) -> dict[str, str]:
    """Options that decide when ranks communicate: a rank with more rounds or measurements would wait for ever."""
    named = (
        "max_epochs", "min_epochs", "min_steps", "check_val_every_n_epoch", "val_check_interval",
        "num_sanity_val_steps", "limit_train_batches", "limit_val_batches", "limit_test_batches",
    )  # fmt: skip
    checkpoints, reference = find(trainer, RoundCheckpoint), find(trainer, StandaloneReference)
    # By their keys of a checkpoint, which say for instance after how many rounds one is written.
    others = [one.state_key for one in trainer.callbacks if not isinstance(one, ProgressBar)]  # type: ignore[attr-defined]  # Lightning's own
    return {f"--trainer.{name}": str(getattr(trainer, name)) for name in named} | {
        "--run.checkpoint_every": str(checkpoints and checkpoints._every_n_epochs),
        "--standalone.enabled": str(reference is not None and reference.enabled),
        "the callbacks": ", ".join(sorted(others)),
    }
