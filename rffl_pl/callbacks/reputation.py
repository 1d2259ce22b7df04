"""The exchange that ends every round: reputation update, removal and download."""

from __future__ import annotations

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.trainer.states import TrainerFn
from torch import Tensor

from rffl_pl.cohort import layer_sizes
from rffl_pl.errors import UserError
from rffl_pl.exchange import Traffic
from rffl_pl.module import FederatedModule
from rffl_pl.servers import Server, Verdict


class ReputationExchange(Callback):
    """Brings the uploads to the server on rank 0, asks its rule, and brings everybody what it earned.

    Args:
        server: The framework's server. Every rank has one, for what participants do to their uploads; only rank 0's
            ever sees an upload or holds a reputation.

    Attributes:
        verdict: The server's answer to the last round; None on other ranks and without communication.
        traffic: The bytes of the last round; likewise.
    """

    def __init__(self, server: Server) -> None:
        self.server = server
        self.verdict: Verdict | None = None
        self.traffic: Traffic | None = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        assert isinstance(pl_module, FederatedModule)
        self.server.start(pl_module.data.examples, layer_sizes(pl_module.network))

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """The exchange of one round."""
        assert isinstance(pl_module, FederatedModule)
        updates = pl_module.cohort.updates()
        pl_module.cohort.revert_unsound()
        if self.server.communicates:
            self._exchange(pl_module, updates)
        pl_module.round += 1
        # Lightning counts the steps of optimizers it wraps; a round is our step, and checkpoints and loggers go by it.
        progress = trainer.fit_loop.epoch_loop.manual_optimization.optim_step_progress
        progress.increment_ready()
        progress.increment_completed()

    def _exchange(self, module: FederatedModule, updates: Tensor) -> None:
        cohort, exchange = module.cohort, module.exchange
        own = self.server.kept(updates)
        uploads, senders = exchange.gather_uploads(self.server.outgoing(module.corrupted(updates)))
        self.verdict = self.server.step(uploads, senders) if exchange.rank == 0 else None
        downloads, self.traffic = exchange.scatter_downloads(
            self.verdict.download if self.verdict else None,
            self.verdict.removed if self.verdict else (),
            cohort.weights.shape[1],
        )
        cohort.integrate(own, downloads)

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        checkpoint.setdefault("server", {}).update(name=type(self.server).__name__, rule=self.server.state_dict())

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Rank 0 takes the server's state; no other rank has it.

        Raises:
            UserError: If training is to go on with another server.
        """
        if "server" not in checkpoint or trainer.state.fn != TrainerFn.FITTING:
            return
        saved, here = checkpoint["server"]["name"], type(self.server).__name__
        if saved != here:
            raise UserError(
                f"Expected --server to be the checkpoint's, {saved}, but got {here}; give --server {saved}."
            )
        self.server.load_state_dict(checkpoint["server"]["rule"])
