"""One progress bar per run, one tick per round."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ProgressBar
from tqdm import tqdm

from rffl_pl.callbacks.find import find
from rffl_pl.callbacks.report import RunReport


class RoundProgress(ProgressBar):
    """Shows the round, the mean accuracy of the honest participants and how many members are left.

    Who waits for seconds while models are measured sees a bar for that too.
    """

    def __init__(self) -> None:
        super().__init__()
        self._enabled = True
        self._bar: Any = None
        self._measuring: Any = None

    def disable(self) -> None:
        self._enabled = False

    def enable(self) -> None:
        self._enabled = True

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._enabled and trainer.is_global_zero:
            limit = None if trainer.max_epochs == -1 else trainer.max_epochs
            self._bar = tqdm(total=limit, initial=trainer.current_epoch, unit="round", file=sys.stderr, desc="training")

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._bar is None:
            return
        report = find(trainer, RunReport)
        if report is not None and report.history.last is not None:
            self._bar.set_postfix_str(report.history.last.headline(), refresh=False)
        self._bar.update()
        if self._bar.total is not None and self._bar.n >= self._bar.total:
            self._close()  # now: what follows the last round prints below the bar

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._close()

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._measure(trainer, trainer.num_val_batches)

    def on_validation_batch_end(self, trainer: Trainer, *_: Any, **__: Any) -> None:
        if self._measuring is not None:
            self._measuring.update()

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._close_measuring()

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._measure(trainer, trainer.num_test_batches)

    on_test_batch_end = on_validation_batch_end
    on_test_end = on_validation_end

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._close()

    def _measure(self, trainer: Trainer, batches: Sequence[int | float]) -> None:
        if self._enabled and trainer.is_global_zero and not trainer.sanity_checking:
            total = sum(batches)
            self._measuring = tqdm(desc="evaluation", total=total, leave=False, file=sys.stderr, unit="batch", delay=2)

    def _close_measuring(self) -> None:
        if self._measuring is not None:
            self._measuring.close()
            self._measuring = None

    def _close(self) -> None:
        self._close_measuring()
        if self._bar is not None:
            self._bar.close()
            self._bar = None
