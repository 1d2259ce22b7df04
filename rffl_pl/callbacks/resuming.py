"""What somebody is told who goes on with other settings than the checkpoint's."""

from __future__ import annotations

import warnings
from collections.abc import Collection

import torch
from lightning.pytorch import Trainer

from rffl_pl.datamodules import FederatedDataModule
from rffl_pl.module import FederatedModule
from rffl_pl.runs.settings import Settings, changes, optimizer_settings, settings_of
from rffl_pl.servers import Server


def training_settings(trainer: Trainer, server: Server) -> Settings:
    """How this run trains, and with which torch: bits may depend on it, and states of optimizers do."""
    module = trainer.lightning_module
    assert isinstance(module, FederatedModule)
    settings = settings_of(
        federation=module.federation,
        server=server,
        model=module,
        network=module.network,
        loss=module.loss,
        objective=module.objective,
        data=module.data,
        rates=optimizer_settings(module.new_optimizer()),
        precision=str(trainer.precision),
    )
    return settings | {"torch": str(torch.__version__)}


def places_of(data: FederatedDataModule) -> set[str]:
    """The options that say where the data lies, which may be elsewhere: what is read there is compared."""
    return {f"--data.{option}" for option in data.places}


SINCE = dict.fromkeys(
    ("--model.loss", "--model.objective", "--model.local_steps", "--federation.coalition", "--federation.tolerated",
     "--data.augment"), "None",
) | {"--data.white": "65535"}  # fmt: skip
"""By option the value of runs whose checkpoints and configurations, from before it existed, do not name it."""


def warn_of_changes(saved: Settings, here: Settings, elsewhere: Collection[str] = ()) -> None:
    """Name what differs from the checkpoint's run, in one warning; nothing of options that say where data lies."""
    changed = changes(SINCE | saved, {name: value for name, value in here.items() if name not in elsewhere})
    if changed:
        warnings.warn(
            f"Going on with other settings than the checkpoint's: {', '.join(changed)}; a standalone reference has the "
            "new ones from its first round on.",
            stacklevel=2,
        )
