"""What happens when a run is asked to end: all ranks finish the round, leave its checkpoint, and end together."""

from __future__ import annotations

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from rffl_pl.launch.stopping import STOP, Stopped
from rffl_pl.module import FederatedModule
from rffl_pl.strategy import FederatedStrategy


class Interruption(Callback):
    """Answers SIGTERM: with a checkpoint at the end of the round, at once where no round is played.

    A signal may reach one rank alone, or all at different moments, and a signal handler must not wait for others. So
    it is kept in mind until the end of the round, when all ranks ask each other. Whoever waits for longer than the
    strategy's ``grace`` gives up the round; the final evaluation and the standalone reference end at once, since a
    run that goes on from its last round makes them again.
    """

    def __init__(self) -> None:
        self._agreed = False

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Hear the signal, before Lightning does."""
        self._agreed = False
        STOP.listen()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Keep it in mind from now on; not as Lightning does, whose handler waits for other ranks."""
        STOP.listen()
        STOP.deferred = True

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """End where Lightning plays on, for the user's ``min_epochs``."""
        if self._agreed:
            raise Stopped(STOP.number)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Have the other ranks know which round this one plays."""
        assert isinstance(pl_module, FederatedModule)
        if isinstance(trainer.strategy, FederatedStrategy):
            trainer.strategy.plays(pl_module.round + 1)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Agree to end here, if anybody was asked to."""
        assert isinstance(pl_module, FederatedModule)
        if pl_module.exchange.anybody(STOP.heard is not None):
            trainer.should_stop = True  # the checkpoint of this round is written now, whatever its cadence
            self._agreed = True

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """End before anything is evaluated; whoever is asked later ends at once."""
        STOP.deferred = False
        if self._agreed or STOP.heard is not None:
            raise Stopped(STOP.number)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Outside of training there is nothing to save."""
        STOP.listen()

    on_test_start = on_predict_start = on_validation_start

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """No round is waited for any more."""
        STOP.deferred = False

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        STOP.ignore()
