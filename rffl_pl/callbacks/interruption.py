"""What happens when a run is asked to end: all ranks finish the round, leave its checkpoint, and end together."""

from __future__ import annotations

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import EarlyStopping
from lightning.pytorch.trainer.states import TrainerFn
from lightning.pytorch.utilities.rank_zero import rank_zero_warn

from rffl_pl.callbacks.ending import limits, remedies
from rffl_pl.callbacks.find import every
from rffl_pl.launch.stopping import STOP, Stopped
from rffl_pl.module import FederatedModule
from rffl_pl.strategy import FederatedStrategy


class Interruption(Callback):
    """Answers SIGTERM: with a checkpoint at the end of the round, at once where no round is played.

    A signal may reach one rank alone, or all at different moments, and a signal handler must not wait for others. So
    it is kept in mind until the end of the round, when all ranks ask each other. Whoever waits for longer than the
    strategy's ``grace`` gives up the round; the final evaluation and the standalone reference end at once, since a
    run that goes on from its last round makes them again. Checkpoints say whether that was the last one, since who
    stopped training early would not stop again.
    """

    def __init__(self) -> None:
        self.agreed = False  # the checkpoint of this round is written now, whatever its cadence
        self._limits: Any = None  # of the checkpoint's run, if it had come to its end
        self._patience: list[tuple[EarlyStopping, int]] = []

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Hear the signal, before Lightning does."""
        self.agreed, self._limits = False, None
        self._patience = [(early, early.patience) for early in every(trainer, EarlyStopping)]
        STOP.listen()

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Train no further where training had come to its end, unless the user gives it another one."""
        assert isinstance(pl_module, FederatedModule)
        for early, patience in self._patience:  # the user's, not the checkpoint's
            early.patience = patience
        if self._limits == limits(trainer):
            trainer.should_stop = True
            rank_zero_warn(
                f"Training had already ended after round {pl_module.round} and is not continued; to train on, give "
                f"another limit: {remedies(trainer)}."
            )

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Defer SIGTERM until the round has ended, and take it back from Lightning, whose handler waits for ranks."""
        STOP.listen()
        STOP.deferred = True

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """End where Lightning would play on."""
        if self.agreed:
            raise Stopped(STOP.number)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Have the other ranks know which round this one plays."""
        assert isinstance(pl_module, FederatedModule)
        if isinstance(trainer.strategy, FederatedStrategy):
            trainer.strategy.plays(pl_module.round + 1)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Agree to end here, if anybody was asked to.

        That training ends is for others to say, who may do so after this: the checkpoint tells who goes on.
        """
        assert isinstance(pl_module, FederatedModule)
        self.agreed = pl_module.exchange.anybody(STOP.heard is not None)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """End before anything is evaluated; whoever is asked later ends at once."""
        STOP.deferred = False
        if self.agreed or STOP.heard is not None:
            raise Stopped(STOP.number)

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Tell that training ended with this round, if it did."""
        assert isinstance(pl_module, FederatedModule)
        loop = trainer.fit_loop
        # Unlike a checkpoint that a user's callback asks for after validation, which lacks the round's record.
        whole = loop.epoch_progress.current.processed == pl_module.round  # type: ignore[attr-defined]  # Lightning's own
        checkpoint["ended"] = limits(trainer) if whole and trainer.should_stop and loop._can_stop_early else None

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        if trainer.state.fn == TrainerFn.FITTING:
            self._limits = checkpoint.get("ended")

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Outside of training there is nothing to save."""
        STOP.listen()

    on_test_start = on_predict_start = on_validation_start

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Let SIGTERM end the process at once again: no round will end that it could wait for."""
        STOP.deferred = False

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        STOP.ignore()
