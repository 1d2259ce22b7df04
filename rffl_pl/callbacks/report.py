"""What a run leaves behind: metrics of every round, a table, figures and every participant's weights."""

from __future__ import annotations

import shlex
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.trainer.states import TrainerFn
from torch import Tensor

from rffl_pl import launch
from rffl_pl.callbacks import loggers
from rffl_pl.callbacks.agreement import named_alike
from rffl_pl.callbacks.checkpointing import rounds_kept
from rffl_pl.callbacks.collecting import collected, gathered
from rffl_pl.callbacks.ending import check_rounds, cut_short, over
from rffl_pl.callbacks.every_round import RoundCallback, numbers_of
from rffl_pl.callbacks.faults import Faults, ongoing
from rffl_pl.callbacks.find import every, find
from rffl_pl.callbacks.reputation import ReputationExchange
from rffl_pl.callbacks.standalone import StandaloneReference
from rffl_pl.callbacks.stopwatch import Stopwatch
from rffl_pl.errors import GO_ON, UserError, lost_a_rank, ones_own
from rffl_pl.launch.meeting import last_word
from rffl_pl.launch.stopping import STOP, Stopped
from rffl_pl.module import FederatedModule
from rffl_pl.runs import Round, RunFolder
from rffl_pl.runs.checkpoint import header, sound
from rffl_pl.runs.facts import last_round
from rffl_pl.runs.history import History
from rffl_pl.runs.shown import batches, table_of, table_of_scores
from rffl_pl.runs.summarise import ELSEWHERE, defined, summarise
from rffl_pl.strategy import FederatedStrategy

_MOMENT = 2
"""Seconds within which a launcher asks the other ranks to end once it has seen that one of them has."""


class RunReport(Callback):
    """Collects, logs and reports; only rank 0 logs.

    Args:
        folder: The run folder.
        draw: Whether to draw pictures at the end.

    Attributes:
        history: Every round so far, on rank 0, where `last` is the last one.
    """

    def __init__(self, folder: str | Path, draw: bool = True) -> None:
        self.folder = RunFolder(folder)
        self.draw = draw
        self.history = History(self.folder.rounds_file)
        self._earlier: list[Round] = []  # those of the checkpoint, until training goes on
        self._faults = Faults()
        self._stopwatch = Stopwatch()
        self._wandb_run: str | None = None  # that of the checkpoint
        self._wandb_kept = 0  # the last round that it has already
        self._wandb_before = loggers.open_already()
        self._before = 0  # rounds completed when Lightning's epoch began

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Have the folder named as rank 0's; training begins without a past, if no checkpoint brings one."""
        self.folder = named_alike(self.folder, trainer)
        if isinstance(trainer.strategy, FederatedStrategy):
            trainer.strategy.disks.runs_in(self.folder.path)
        if stage == "fit":
            self.history, self._faults, self._wandb_run = History(self.folder.rounds_file), Faults(), None
            self._earlier, self._stopwatch = [], Stopwatch()

    def _check_empty(self, trainer: Trainer) -> None:
        """See that training that begins has a folder without a result or checkpoint of another run.

        Raises:
            UserError: On every rank, if not.
        """
        begins = trainer.ckpt_path is None and not trainer.fit_loop.epoch_progress.current.completed
        there = None
        if begins and trainer.is_global_zero:
            there = self.folder.summary_file if self.folder.summary_file.exists() else self.folder.newest_checkpoint()
        if there := trainer.strategy.broadcast(there):
            raise UserError(
                f"Expected the folder of a run that begins to have nothing of another run, but there is {there}; give "
                f"RunFolder.make('{self.folder.path}'), which puts a number behind, or fit the ckpt_path to go on from."
            )

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Take over the earlier rounds of a run that goes on; end what was interrupted after its last round."""
        assert isinstance(pl_module, FederatedModule)
        self._check_empty(trainer)
        _check_trial(trainer)
        limit = last_round(trainer.max_epochs, trainer.max_steps)
        check_rounds(trainer.ckpt_path, pl_module.round, {"--trainer.max_epochs, or max_steps,": limit})
        self._before = pl_module.round
        # Only now: what is refused leaves the folder, which may have later rounds, as it is.
        self.history, self._earlier = History(self.folder.rounds_file, self._earlier), []
        if trainer.is_global_zero:
            self._wandb_kept = loggers.begin(trainer.loggers, self.history, self._wandb_run)
            if self._before:
                print(f"going on after round {self._before}: {self.folder.path}", file=sys.stderr, flush=True)
        if over(trainer, pl_module):
            self.on_train_end(trainer, pl_module)
        elif trainer.should_stop:
            raise UserError(
                "Expected at least one round to be played, but a callback ends training before it; give a longer "
                "--trainer.max_time, or leave that callback out."
            )

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, FederatedModule)
        self._before = pl_module.round
        self._stopwatch.start()

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._stopwatch.played()

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Gather the round's metrics on rank 0, log them and tell the user's own callbacks."""
        self._stopwatch.played()
        assert isinstance(pl_module, FederatedModule)
        if pl_module.round == self._before:
            return  # from a checkpoint of before the end of an epoch Lightning ends that one once more
        exchange = find(trainer, ReputationExchange)
        assert exchange is not None
        this = collected(pl_module, exchange)
        if not trainer.is_global_zero:
            return
        for callback in every(trainer, RoundCallback):
            with ones_own(callback, "--trainer.callbacks", f"give numbers of round {this.number}", GO_ON):
                this.numbers |= numbers_of(callback, this, pl_module.evaluation.measures)
        self.folder.set_result_aside()  # of a run that goes on it is that of earlier rounds
        self.history.append(this)
        self._faults.warn(this, exchange.verdict.reasons if exchange.verdict is not None else {})
        loggers.log(trainer.loggers, this, self._wandb_kept)
        for callback in every(trainer, RoundCallback):
            with ones_own(callback, "--trainer.callbacks", f"hear of round {this.number}", GO_ON):
                callback.on_round_end(trainer, this)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Measure the final models and leave the run folder complete."""
        assert isinstance(pl_module, FederatedModule)
        test = pl_module.data.test_dataloader()
        cohort = pl_module.models
        with rounds_kept(trainer):
            scored = pl_module.score(test, cohort, "final evaluation")
        final = gathered(pl_module, scored)
        strategy = trainer.strategy
        assert isinstance(strategy, FederatedStrategy)
        leads = strategy.disks.at(self.folder.path).leads
        states = ((i, cohort.network_state(index)) for index, i in enumerate(cohort.participants))
        strategy.together(lambda: self.folder.write_weights(states))
        if trainer.is_global_zero and self.history:
            self._conclude(trainer, pl_module, list(self.history), final)
        elif leads and not trainer.is_global_zero:
            print(f"run folder of this machine's participants: {self.folder.path}", flush=True)

    def _conclude(
        self, trainer: Trainer, module: FederatedModule, history: list[Round], final: dict[str, Tensor]
    ) -> None:
        reference = find(trainer, StandaloneReference)
        alone, initial = (reference.accuracies, reference.initial) if reference is not None else (None, None)
        attacks = module.cast.attacks
        named = [type(attacks[i]).__name__ if i in attacks else None for i in range(module.federation.total)]
        idle = [i for i in attacks if not any(module.cast.trains(i, entry.number - 1) for entry in history)]
        data = module.data
        summary = summarise(
            history, data.shard_sizes, final, alone=alone, initial=initial, attacks=named, idle=idle,
            watched=data.watch, groups=data.shard_groups,
        )  # fmt: skip
        if not trainer.fast_dev_run:  # type: ignore[attr-defined]  # Lightning's own; one batch is no result
            self.folder.write_summary(summary)
        advice = self._stopwatch.advice(trainer.check_val_every_n_epoch)
        ended = cut_short(trainer, module)
        share = [*_share(data.test_sample, "test", data.apart("test")), *_limited(trainer.limit_test_batches)]
        print("\n".join(["", *ongoing(history), table_of(summary), *ended, *share, *advice]))
        print(f"run folder: {self.folder.path}", flush=True)
        pictures: list[Path] = []
        if self.draw:
            from rffl_pl.runs import figures  # matplotlib takes a second to import

            pictures = figures.draw(self.folder.path, history, summary)
        loggers.end(trainer.loggers, history, summary, pictures)
        loggers.say_where(trainer.loggers, earlier=self._wandb_run)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Close the W&B run of what ended well, once all callbacks have logged."""
        loggers.close(trainer.loggers, self._wandb_before, exit_code=0)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Close the W&B run, so that the next one in this process is another; tell who interrupted how to go on.

        Another rank that has heard of the same may have ended by now, and this one is asked to: not before it has told.
        """
        with STOP.held():
            loggers.close(trainer.loggers, self._wandb_before, exit_code=1)
            self._tell_how_to_go_on(trainer, pl_module, exception)

    def _tell_how_to_go_on(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        how = _asked_to_end(exception) if trainer.state.fn == TrainerFn.FITTING else None
        if how is None:
            return
        assert isinstance(pl_module, FederatedModule)
        if not trainer.is_global_zero:
            if launch.rank() >= launch.local_world_size():  # on another node than rank 0
                launch.say(f"{how} after round {pl_module.round}; start all nodes again with --ckpt_path last.")
            return
        newest = self.folder.newest_checkpoint() or trainer.ckpt_path  # a resumed run may not have come to its own
        rest = "there is no checkpoint to go on from"
        if newest:
            rest = f"the checkpoint at {newest} cannot be read"
            with suppress(UserError):
                reached = header(newest)["round"]
                start = "" if reached == len(self.history) else f" from round {reached}"
                rest = f"go on{start} with: {self._going_on(newest)}"
                if self.folder.config_file.is_file() and self.folder.config().get("run", {}).get("study"):
                    rest = "go on with it by running the study again"
        print(f"\n{how} after round {len(self.history)}; {rest}", file=sys.stderr, flush=True)

    def _going_on(self, checkpoint: str | Path) -> str:
        """The command that goes on; of a run from Python, which has no configuration, the call."""
        config = self.folder.config_file
        if not config.is_file():
            there = self.folder.checkpoints if checkpoint == self.folder.newest_checkpoint() else checkpoint
            return f"trainer.fit(module, data, ckpt_path='{there}')"
        words = ["fit", "--config", str(config), "--ckpt_path", "last"]
        whole = launch.again(words)
        return shlex.join(whole) + (" behind what starts the ranks of every node" if whole == words else "")

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Outside of training, print and keep every participant's scores."""
        self._stopwatch.measured()
        if trainer.state.fn == TrainerFn.VALIDATING:
            self._keep_scores(trainer, pl_module)

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._keep_scores(trainer, pl_module)

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        checkpoint.setdefault("server", {})["history"] = self.history
        checkpoint["wandb"] = loggers.wandb_run(trainer.loggers)

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Have the records of the rounds that the run has; nothing is written before training goes on.

        Raises:
            UserError: If the last one lacks its record.
        """
        rounds = checkpoint.get("server", {}).get("history")
        if trainer.state.fn == TrainerFn.FITTING:
            with sound(trainer.ckpt_path):
                self._earlier = [Round(**entry) for entry in rounds or []]
            if rounds is not None:  # it is read on rank 0, and there is none where nobody kept records
                self._check_whole(checkpoint["federation"]["round"], trainer.ckpt_path)
        self._wandb_run = checkpoint.get("wandb")

    def _check_whole(self, reached: int, path: object) -> None:
        last = self._earlier[-1].number if self._earlier else 0
        if last != reached:
            raise UserError(
                f"Expected the checkpoint at --ckpt_path to have the record of every round, but {path} was written in "
                f"round {reached}, before its record: who was removed in it would be lost; go on from an earlier one, "
                "and write such behind it, by a ModelCheckpoint with save_on_train_epoch_end=True, or in on_round_end."
            )

    def _keep_scores(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, FederatedModule)
        measured = gathered(pl_module, pl_module.watched)
        if not trainer.is_global_zero or trainer.state.fn is None:
            return
        scores = {name: [defined(x) for x in values.tolist()] for name, values in measured.items()}
        data, test = pl_module.data, trainer.state.fn == TrainerFn.TESTING
        sample = data.test_sample if test else data.watched_sample
        share = _share(sample, "test" if test else data.watch, data.apart("test" if test else data.watch))
        share += _limited(trainer.limit_test_batches if test else trainer.limit_val_batches)
        own = [name for name in scores if name not in ELSEWHERE]
        table = table_of_scores(scores, pl_module.federation.honest, data.shard_groups, own)
        print("\n".join([table, *share]), flush=True)
        self.folder.write_scores(
            {
                "command": trainer.state.fn.value,
                "checkpoint": str(Path(trainer.ckpt_path).resolve()) if trainer.ckpt_path else None,
                "round": pl_module.round,
                "examples": sample[0],
                "scores": scores,
            }
        )
        print(f"scores: {self.folder.scores_file}", flush=True)


def _asked_to_end(exception: BaseException) -> str | None:
    """By what this rank, or another that is gone, was asked to end: ``Stopped by SIGTERM``; None if something failed.

    A rank that was asked alone ends, and its launcher has the others end: these find it gone a little earlier.
    """
    if isinstance(exception, Stopped):
        return f"Stopped by {exception.signal}"
    if isinstance(exception, KeyboardInterrupt):
        return "Interrupted"
    gone = lost_a_rank(exception) and last_word() is None  # who fails leaves a word, and tells it
    return f"Stopped by {STOP.number.name}" if gone and STOP.comes(_MOMENT) else None


def _check_trial(trainer: Trainer) -> None:
    """See that a trial, which plays one round, does not go on from rounds that there are.

    Raises:
        UserError: If it does.
    """
    if trainer.fast_dev_run and trainer.ckpt_path is not None:  # type: ignore[attr-defined]  # Lightning's own
        raise UserError(
            f"Expected --trainer.fast_dev_run for a run that begins, since it plays one round, but got --ckpt_path "
            f"{trainer.ckpt_path} beside it; leave one of them out."
        )


def _limited(limit: float) -> list[str]:
    """What is said where not every batch is evaluated, as in a trial by ``fast_dev_run``."""
    if (much := batches(limit)) is None:
        return []
    return [
        f"measured on {much} at most, as the trainer is told: the first ones, of sentences the shortest; "
        "--data.measurements draws some of all"
    ]


def _share(sample: tuple[int, int], which: str, apart: bool) -> list[str]:
    """What is said where not everything is measured."""
    measured, there = sample
    if measured == there:
        return []
    most = "at most " if apart else ""
    return [f"measured on {most}{measured} of {most}{there} {which} examples each; --data.measurements null takes all"]
