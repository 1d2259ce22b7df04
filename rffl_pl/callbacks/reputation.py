"""Where reputations are updated and participants removed: the callback that plays every round."""

from __future__ import annotations

import copy
import warnings
from typing import Any, ClassVar

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.trainer.states import TrainerFn
from torch import Tensor

from rffl_pl import servers
from rffl_pl.callbacks.agreement import check_agreement
from rffl_pl.callbacks.ending import count_in_epochs
from rffl_pl.callbacks.find import every
from rffl_pl.callbacks.resuming import places_of, training_settings, warn_of_changes
from rffl_pl.callbacks.watching import check_logged
from rffl_pl.errors import GO_ON, UserError, is_packaged, path_of
from rffl_pl.exchange import Traffic
from rffl_pl.module import FederatedModule
from rffl_pl.rehearsal.pieces import check_pieces
from rffl_pl.rehearsal.server import (
    check_coalition,
    check_corrections,
    check_shardable,
    check_shared,
    check_sharing,
    check_side,
)
from rffl_pl.round.play import bring_up_to_date, play
from rffl_pl.round.table import Table
from rffl_pl.runs.checkpoint import sound
from rffl_pl.servers import Server, Verdict
from rffl_pl.servers.around import surrounded
from rffl_pl.servers.base import at_work
from rffl_pl.strategy import FederatedStrategy

Memories = dict[int, dict[str, Tensor]]


class ReputationExchange(Callback):
    """Plays the rounds (`rffl_pl.round.play`), keeps the server's verdict, and owns its state in checkpoints.

    Args:
        server: The framework's server. Every rank has one, for what participants do themselves; only those of ranks
            that serve, rank 0's unless ``--exchange sharded``, ever see an upload or hold a reputation.

    Attributes:
        plays: Tells what looks at a trainer before a run that somebody plays the rounds.
        verdict: The server's answer to the last round; None on other ranks and without communication.
        traffic: The bytes of the last round; None on other ranks and without communication.

    Raises:
        UserError: If the server is none.
    """

    plays: ClassVar[bool] = True

    def __init__(self, server: Server) -> None:
        if not isinstance(server, Server):
            raise UserError(f"Expected the server to be an instance, such as RFFL(), but got {server}.")
        self.server = server
        self.verdict: Verdict | None = None
        self.traffic: Traffic | None = None
        self._colluders: Memories = {}
        self._behind = False
        self._unstarted: Server | None = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Tell the server its task, and Lightning how many rounds there are.

        Raises:
            UserError: If the server cannot work with it, or the module hosts no participants.
        """
        if not isinstance(pl_module, FederatedModule):
            raise UserError(
                f"Expected the trainer to be given a FederatedModule, which hosts the participants, but got "
                f"{type(pl_module).__name__}; give FederatedModule(federation, {type(pl_module).__name__}()), which "
                "trains its forward."
            )
        if stage != "fit":
            return
        count_in_epochs(trainer)
        self._check_beside(trainer, pl_module)
        self._unstarted = _copy_of_ones_own(self.server)
        with at_work(self.server, "start"), warnings.catch_warnings():
            if not trainer.is_global_zero:
                warnings.simplefilter("ignore")  # rank 0 says it
            self.server.start(pl_module.task())
        for rule in surrounded(self.server):
            if len(getattr(rule, "members", ())) != len(pl_module.data.shard_sizes):
                raise UserError(
                    f"Expected start of {rule.given_as} to call super().start(task), but it does not; have it do "
                    "so first."
                )
        if pl_module.federation.coalition is not None:
            check_shared(self.server, pl_module.initial_weights())
        if self._unstarted is not None:
            check_pieces(self._unstarted, pl_module.task())
            check_side(self._unstarted, pl_module.task())
        self._colluders, self._behind = {}, False
        if trainer.is_global_zero and pl_module.cast.omniscient:
            names = ", ".join(sorted({type(attack).__name__ for attack in pl_module.cast.omniscient.values()}))
            warnings.warn(f"Simulation: {names} is shown the honest uploads on the server.", stacklevel=2)

    def _check_beside(self, trainer: Trainer, module: FederatedModule) -> None:
        """See that the server fits what is asked for beside it, and that callbacks watch what is logged."""
        if type(module) is FederatedModule:  # a class of one's own may log what it will
            check_logged([*every(trainer, Callback)])
        if isinstance(trainer.strategy, FederatedStrategy) and trainer.strategy.sharded:
            check_shardable(self.server, module.cast)
        check_sharing(self.server, {"--model.personal": module.pull > 0, "--model.scaffold": module.scaffold})
        if module.scaffold:
            check_corrections(self.server)
        if module.federation.coalition is not None:
            check_coalition(self.server, module.pull)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """See that there is something to train, and that all ranks start alike.

        Raises:
            UserError: If the trainer has played its rounds and is not to go on from a checkpoint, or a rank does not.
        """
        assert isinstance(pl_module, FederatedModule)
        if trainer.ckpt_path is None and trainer.fit_loop.epoch_progress.current.completed:
            raise UserError(
                "Expected a trainer that has played no rounds yet to begin with, but this one has played its own; make "
                "another for another run, or give trainer.fit the ckpt_path of what it goes on from."
            )
        check_agreement(trainer, pl_module, self.server)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Play one round."""
        assert isinstance(pl_module, FederatedModule)
        table = self._table(trainer, pl_module, self._restored(pl_module))
        outcome = play(table, batch, pl_module.round)
        self.verdict, self.traffic = outcome.verdict, outcome.traffic
        self._behind = self.server.communicates
        pl_module.completed(outcome.losses, outcome.personal_losses)
        # Lightning counts the steps of optimizers it wraps; a round is our step, and checkpoints and loggers go by it.
        progress = trainer.fit_loop.epoch_loop.manual_optimization.optim_step_progress
        progress.increment_ready()
        progress.increment_completed()

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Whoever missed rounds is measured with the model that all share; outside of training ranks start here.

        Raises:
            UserError: If ranks do not start alike.
        """
        if trainer.state.fn != TrainerFn.FITTING:
            assert isinstance(pl_module, FederatedModule)
            check_agreement(trainer, pl_module, self.server)
        self._bring_up_to_date(trainer, pl_module)

    on_test_start = on_predict_start = on_validation_start

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Bring models up to date for export."""
        self._bring_up_to_date(trainer, pl_module)

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Add the server's state; models are first brought up to date, so that they measure as they do in the run."""
        self._bring_up_to_date(trainer, pl_module)
        checkpoint.setdefault("server", {}).update(
            name=_named(self.server), rule=self.server.whole_state(), colluders=_copied(self._colluders, "cpu")
        )
        checkpoint["server"]["settings"] = training_settings(trainer, self.server)

    def _table(self, trainer: Trainer, module: FederatedModule, restored: Server | None = None) -> Table:
        return Table(
            federation=module.federation,
            cohort=module.cohort,
            cast=module.cast,
            exchange=module.exchange,
            server=self.server,
            schedule=module.schedule,
            precision=trainer.precision_plugin,
            personal=module.personal,
            pull=module.pull,
            colluders=self._colluders,
            restored=restored,
        )

    def _restored(self, module: FederatedModule) -> Server | None:
        """In rounds `_TRIED`: a copy of a user's server, restored from its state_dict as after an interruption.

        Raises:
            UserError: If it does not take its state back.
        """
        if self._unstarted is None or module.round not in _TRIED or not module.exchange.serves:
            return None
        restored = copy.deepcopy(self._unstarted)
        taking = at_work(self.server, "take back what its state_dict gives", GO_ON)
        with taking, warnings.catch_warnings(action="ignore"):
            restored.start(module.task())
            restored.load_state_dict(copy.deepcopy(self.server.state_dict()))
        return restored

    def _bring_up_to_date(self, trainer: Trainer, module: LightningModule) -> None:
        """Give whoever missed the last round the model that all share, once after each round that was played here."""
        assert isinstance(module, FederatedModule)
        if self._behind:
            bring_up_to_date(self._table(trainer, module))
            self._behind = False

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Every rank that serves takes the server's state, of its own coordinates; no other rank has it.

        Raises:
            UserError: If training is to go on with another server.
        """
        assert isinstance(pl_module, FederatedModule)
        if not pl_module.exchange.serves or trainer.state.fn != TrainerFn.FITTING:
            return
        with sound(trainer.ckpt_path):
            saved, here = checkpoint["server"]["name"], _named(self.server)
            if saved != here and not _may_have_moved(saved, self.server):
                raise UserError(
                    f"Expected --server to be the checkpoint's, {saved}, but got {here}; give --server {saved}."
                )
            self.server.load_whole_state(checkpoint["server"]["rule"])
            self._colluders = _copied(checkpoint["server"]["colluders"], pl_module.exchange.device)
            if trainer.is_global_zero:
                settings, elsewhere = training_settings(trainer, self.server), places_of(pl_module.data)
                warn_of_changes(checkpoint["server"]["settings"], settings, elsewhere)


_TRIED = (2, 10)
"""The rounds, counted from 0, in which a server of one's own is compared with one that has only its state."""


def _copy_of_ones_own(server: Server) -> Server | None:
    """A copy before it starts; None where all rules are the package's, and of one that cannot be copied."""
    if not server.communicates or is_packaged(type(server.answerable)):
        return None
    try:
        return copy.deepcopy(server)
    except Exception:  # with a lock or an open file; a run needs no copy
        return None


def _named(server: Server) -> str:
    """As users type it: a rule of the package by its name, one's own by its path."""
    kind = type(server)
    return kind.__name__ if is_packaged(kind) else path_of(kind)


def _may_have_moved(saved: str, server: Server) -> bool:
    """Whether a checkpoint's server may be of this class of a user's own, which lies elsewhere now.

    What was written in a cell or a script may have moved to a file. Older checkpoints have the class's name alone.
    """
    elsewhere = "__main__" in (saved.partition(".")[0], _named(server).partition(".")[0])
    alone = "." not in saved and not hasattr(servers, saved)
    named_alike = saved.rpartition(".")[2] == type(server).__name__
    return named_alike and (elsewhere or alone) and not is_packaged(type(server)) and not hasattr(servers, saved)


def _copied(memories: Memories, device: torch.device | str) -> Memories:
    return {i: {name: value.to(device, copy=True) for name, value in memory.items()} for i, memory in memories.items()}
