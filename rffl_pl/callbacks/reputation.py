"""The exchange that ends every round: reputation update, removal and download."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.trainer.states import TrainerFn
from torch import Tensor

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
        self._losses: Tensor | None = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Tell the server its task.

        Raises:
            UserError: If the server cannot work with it.
        """
        assert isinstance(pl_module, FederatedModule)
        self.server.start(pl_module.task())
        if trainer.is_global_zero and pl_module.omniscient and stage == "fit":
            names = ", ".join(sorted({type(attack).__name__ for attack in pl_module.omniscient.values()}))
            warnings.warn(f"Simulation: {names} is shown the honest uploads on the server.", stacklevel=2)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """What participants measure before they train."""
        assert isinstance(pl_module, FederatedModule)
        if self.server.hears_losses:
            with trainer.precision_plugin.val_step_context():
                self._losses = pl_module.cohort.losses(pl_module.examples(batch))

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
        own = torch.stack([self.server.kept(update) for update in updates])
        sent = map(self.server.outgoing, module.corrupted(updates), cohort.memories, cohort.before)
        payloads, senders = exchange.gather_uploads(torch.stack([self.server.pack(upload) for upload in sent]))
        losses = exchange.gather_losses(self._losses) if self._losses is not None else None
        self.verdict = None
        if exchange.rank == 0:
            received = [self.server.unpack(payload) for payload in payloads]
            uploads = self._colluded(module, torch.stack(received) if received else cohort.before[:0], senders)
            self.verdict = self.server.step(uploads, senders, losses)
        downloads, self.traffic = exchange.scatter_downloads(
            self.verdict.download if self.verdict else None,
            self.verdict.removed if self.verdict else (),
            cohort.weights.shape[1],
        )
        cohort.integrate(own, downloads)

    def _colluded(self, module: FederatedModule, uploads: Tensor, senders: list[int]) -> Tensor:
        """The uploads ``[m, D]`` with what omniscient adversaries make of the honest ones in their rows."""
        honest = [row for row, i in enumerate(senders) if module.federation.is_honest(i)]
        known = uploads[honest]
        known = known[known.isfinite().all(1)]
        if not len(known) or not module.omniscient:
            return uploads
        for row, participant in enumerate(senders):
            if (attack := module.omniscient.get(participant)) is not None:
                forged = module.shaped(attack.collude(known, module.stream_of(participant)), like=uploads[row])
                # The adversary has no way around the form in which uploads travel.
                sent = self.server.outgoing(forged, {}, torch.zeros_like(forged))
                uploads[row] = self.server.unpack(self.server.pack(sent))
        return uploads

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
