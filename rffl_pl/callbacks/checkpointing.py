"""When a checkpoint is written."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint

from rffl_pl.callbacks.find import every, find
from rffl_pl.callbacks.interruption import Interruption
from rffl_pl.errors import GO_ON, UserError
from rffl_pl.runs import RunFolder
from rffl_pl.runs.checkpoint import CheckpointNotWrittenError, header, sound
from rffl_pl.strategy import FederatedStrategy


class RoundCheckpoint(ModelCheckpoint):
    """Keeps the newest round as ``last.ckpt``: every so many rounds, and the last one.

    Args:
        folder: Where.
        every: Every how many rounds.
        errors: Whether a checkpoint that cannot be written ends the run (``stop``), or the run goes on without
            (``warn``). Either way the one before stays.

    Raises:
        UserError: If `every` is below 1, or `errors` another word.
    """

    def __init__(self, folder: str | Path, every: int = 1, errors: Literal["stop", "warn"] = "stop") -> None:
        if every < 1:
            raise UserError(
                f"Expected --run.checkpoint_every to be at least 1 round, but got {every}; for none at all give "
                "--trainer.enable_checkpointing false."
            )
        if errors not in ("stop", "warn"):
            raise UserError(f"Expected --run.checkpoint_errors to be stop or warn, but got {errors}.")
        super().__init__(
            folder, "last", every_n_epochs=every, enable_version_counter=False, save_on_train_epoch_end=True
        )
        self.errors = errors
        self._failed = False

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """See where checkpoints will lie, before there is one."""
        self._failed = False
        self._last_global_step_saved = 0  # whatever another trainer's run came to
        if isinstance(trainer.strategy, FederatedStrategy):
            assert self.dirpath is not None
            with self._tolerant(trainer):
                trainer.strategy.checkpoints.disk_of(self.dirpath)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save if it is time or the run ends here."""
        super().on_train_epoch_end(trainer, pl_module)
        if _ends_here(trainer) and not self._should_skip_saving_checkpoint(trainer):
            self._save_topk_checkpoint(trainer, self._monitor_candidates(trainer))

    def _save_checkpoint(self, trainer: Trainer, filepath: str) -> None:
        with self._tolerant(trainer):
            super()._save_checkpoint(trainer, filepath)

    @contextmanager
    def _tolerant(self, trainer: Trainer) -> Iterator[None]:
        """Go on without what cannot be written, and say so once, if that is wanted."""
        try:
            yield
        except CheckpointNotWrittenError as error:
            if self.errors == "stop":
                without = "or give --run.checkpoint_errors warn to train on without."
                raise CheckpointNotWrittenError(f"{str(error).removesuffix('.')}, {without}") from error
            if not self._failed and trainer.is_global_zero:
                warnings.warn(f"{error} This run goes on.", stacklevel=2)
            self._failed = True

    def state_dict(self) -> dict[str, Any]:
        """Nothing: a run that goes on has a folder of its own, and may have another cadence."""
        return {}


@contextmanager
def rounds_kept(trainer: Trainer) -> Iterator[None]:
    """Context of measuring after the last round, whose errors say that training is kept and how to go on from it.

    Args:
        trainer: Whose callbacks write checkpoints.

    Raises:
        UserError: As what is done within, with what to do behind it where there is a checkpoint.
    """
    try:
        yield
    except UserError as error:
        reached = _reached(trainer)
        if reached is None or GO_ON in str(error):
            raise
        raise UserError(f"{str(error).rstrip('.')}; rounds are kept up to round {reached}: {GO_ON}.") from error


def _reached(trainer: Trainer) -> int | None:
    """The round of the checkpoint that ``--ckpt_path last`` finds; None where there is none that can be read."""
    folders = [RunFolder(Path(one.dirpath).parent) for one in every(trainer, ModelCheckpoint) if one.dirpath]
    newest = next(filter(None, (folder.newest_checkpoint() for folder in folders)), None)
    if newest is None:
        return None
    with suppress(UserError), sound(newest):
        return int(header(newest)["round"])
    return None


def _ends_here(trainer: Trainer) -> bool:
    rounds = trainer.current_epoch + 1  # completed is counted after the hook
    asked = find(trainer, Interruption)
    return trainer.should_stop or rounds == trainer.max_epochs or (asked is not None and asked.agreed)
