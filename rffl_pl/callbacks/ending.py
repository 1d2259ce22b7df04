"""Where training ends: on all ranks at once, and whether a run that goes on has come there already."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import EarlyStopping, Timer

from rffl_pl.callbacks.find import every, find
from rffl_pl.errors import UserError
from rffl_pl.module import FederatedModule
from rffl_pl.runs.facts import last_round

_EARLY = ("monitor", "mode", "patience", "min_delta", "stopping_threshold", "divergence_threshold")
"""What ends training by EarlyStopping, by its attributes."""


class EndTogether(Callback):
    """Ends training on all ranks where it is to end on one: that one alone would leave the others waiting for it.

    Placed behind the callbacks that may set the trainer's `should_stop`, and before the checkpoint of the last round.
    """

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Agree before Lightning measures models, as it does whenever training is to end."""
        self._agree(trainer, pl_module)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Agree before the checkpoint, and before the next round."""
        self._agree(trainer, pl_module)

    @staticmethod
    def _agree(trainer: Trainer, module: LightningModule) -> None:
        assert isinstance(module, FederatedModule)
        trainer.should_stop = module.exchange.anybody(trainer.should_stop)


def count_in_epochs(trainer: Trainer) -> None:
    """Have Lightning end training by epochs alone, since a step is a round as well, and so is an epoch.

    Where it counts steps it ends an epoch once more whenever a run goes on, and is a round ahead of it from then on.
    """
    loop = trainer.fit_loop
    loop.max_epochs, loop.epoch_loop.max_steps = last_round(trainer.max_epochs, trainer.max_steps), -1


def over(trainer: Trainer, module: FederatedModule) -> bool:
    """Whether a run that goes on has nothing left to train; asked before Lightning has its own state back."""
    return module.round > 0 and (trainer.should_stop or module.round == trainer.max_epochs)


def check_rounds(checkpoint: object, reached: int, asked: Mapping[str, int | None]) -> None:
    """Refuse fewer rounds than there are: training would end at once, say nothing, and keep them under other settings.

    Args:
        checkpoint: What training is to go on from.
        reached: The rounds that it has.
        asked: How many rounds, by the options that say so; None or -1 where one says nothing.

    Raises:
        UserError: If it has more rounds than are asked for.
    """
    for option, rounds in asked.items():
        if rounds is not None and -1 < rounds < reached:
            raise UserError(
                f"Expected {option} of at least {reached}, the rounds that {checkpoint} has, but got {rounds}; give "
                f"more than {reached} to train on, or leave out --ckpt_path to begin anew."
            )


def cut_short(trainer: Trainer, module: FederatedModule) -> list[str]:
    """What is said where callbacks ended training before all its rounds were played: otherwise it looks complete."""
    asked = trainer.max_epochs
    if not trainer.should_stop or asked is None or not 0 < module.round < asked:
        return []
    early, timer = find(trainer, EarlyStopping), find(trainer, Timer)
    left = None if timer is None else timer.time_remaining()
    why = "a callback asked for it"
    if left is not None and left <= 0:
        why = "its Timer has run out"
    elif early is not None and early.stopped_epoch:  # 0 also if it stopped in the first one
        why = f"EarlyStopping watches {early.monitor}, at best {early.best_score.item():.4f}"
    return [f"training ended after {module.round} of {asked} rounds: {why}"]


def limits(trainer: Trainer) -> dict[str, Any]:
    """The user's limits on training: a run that goes on with others trains on."""
    timer = find(trainer, Timer)
    return {
        "epochs": [trainer.min_epochs, last_round(trainer.max_epochs, trainer.max_steps)],
        "steps": [trainer.min_steps, -1],  # which are among the epochs, before and behind `count_in_epochs`
        "seconds": timer and timer._duration,
        "early": [[getattr(early, name) for name in _EARLY] for early in every(trainer, EarlyStopping)],
    }


def remedies(trainer: Trainer) -> str:
    """The options that say when training ends, as they are typed."""
    named = ["a higher --trainer.max_epochs"]
    if find(trainer, EarlyStopping) is not None:
        named.insert(0, "a higher --trainer.callbacks.patience")
    if find(trainer, Timer) is not None:
        named.insert(0, "a longer --trainer.max_time")
    return " or ".join(named)
