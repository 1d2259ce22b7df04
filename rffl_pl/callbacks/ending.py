"""Whether training has come to its end, so that a run that goes on has its result left to give, and no round."""

from __future__ import annotations

from typing import Any

from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import EarlyStopping, Timer

from rffl_pl.callbacks.find import find
from rffl_pl.module import FederatedModule


def over(trainer: Trainer, module: FederatedModule) -> bool:
    """Whether a run that goes on has nothing left to train; asked before Lightning has its own state back."""
    return module.round > 0 and (trainer.should_stop or module.round in (trainer.max_epochs, trainer.max_steps))


def limits(trainer: Trainer) -> dict[str, Any]:
    """What ends training, as the user gave it: whoever gives something else goes on training."""
    timer, early = find(trainer, Timer), find(trainer, EarlyStopping)
    return {
        "epochs": [trainer.min_epochs, trainer.max_epochs],
        "steps": [trainer.min_steps, trainer.max_steps],
        "seconds": timer and timer._duration,
        "early": early is not None,
    }
