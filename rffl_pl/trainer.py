"""A trainer for who writes Python instead of command lines."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral
from typing import Any, Literal
from weakref import WeakSet

from lightning.pytorch import Callback, Trainer
from lightning.pytorch import callbacks as lightnings
from lightning.pytorch.callbacks import ProgressBar
from lightning.pytorch.loggers import WandbLogger
from lightning.pytorch.plugins import CheckpointIO
from lightning.pytorch.profilers import PyTorchProfiler
from lightning.pytorch.utilities.model_helpers import is_overridden

from rffl_pl import launch
from rffl_pl.callbacks import (
    EndTogether,
    Interruption,
    PredictionWriter,
    ReputationExchange,
    RoundCheckpoint,
    RoundProgress,
    RunReport,
    StandaloneReference,
)
from rffl_pl.callbacks.metrics_file import MetricsFile
from rffl_pl.callbacks.watching import WATCHED
from rffl_pl.errors import UserError, check_number
from rffl_pl.runs import RunFolder
from rffl_pl.runs.facts import last_round
from rffl_pl.servers import Server
from rffl_pl.strategy import FederatedStrategy

UNFIT = (
    lightnings.BaseFinetuning, lightnings.BatchSizeFinder, lightnings.GradientAccumulationScheduler,
    lightnings.LearningRateFinder, lightnings.LearningRateMonitor, lightnings.ModelPruning, lightnings.SpikeDetection,
    lightnings.StochasticWeightAveraging, lightnings.WeightAveraging,
)  # fmt: skip
"""Lightning's callbacks that change, tune or watch how the one model of a trainer is trained."""
WHOLE_ROUNDS = {
    "limit_train_batches": (1, "for less or more training in it give --data.examples_per_participant or "
                               "--model.local_epochs or --model.local_steps"),
    "overfit_batches": (0, "for few examples to train on give --data.examples_per_participant"),
    "val_check_interval": (1, "for every how many rounds give --trainer.check_val_every_n_epoch"),
}  # fmt: skip
"""Lightning's options that count a trainer's batches, with the value that changes nothing and what does as meant."""


_OWN_STEPS = "every participant trains with an optimizer of its own, and Lightning sees none of its steps; "
NOT_OF_ONE_MODEL: dict[str, tuple[tuple[object, ...], str]] = {
    "gradient_clip_val": (
        (None, 0), f"{_OWN_STEPS}give --model.optimizer one of your own that clips, as under RFFL --server.gamma does "
                   "uploads"
    ),
    "gradient_clip_algorithm": ((None,), f"{_OWN_STEPS}leave it out"),
    "accumulate_grad_batches": ((1,), f"{_OWN_STEPS}for larger batches give --data.batch_size"),
    "sync_batchnorm": ((False,), "every participant trains on batches of its own; under a --server with one model "
                                 "their statistics meet after a round"),
    "barebones": ((False,), "a round is recorded; for less of it give --run.wandb, --run.figures and "
                            "--trainer.enable_checkpointing false"),
    "fast_dev_run": ((False, True), "a trial plays one round, and that is one batch; give true"),
}  # fmt: skip
"""Lightning's options that mean the one model of a trainer, with the values that are taken and what to do."""
ROUNDS = 10_000_000
"""More than any run plays."""
COUNTS = ("max_epochs", "max_steps", "min_epochs", "min_steps")
"""Lightning's options that are numbers of rounds."""
RANKS = ("devices", "num_nodes", "strategy")
"""Lightning's options that say what torchrun says here."""
DEFAULTS = {"enable_model_summary": False, "num_sanity_val_steps": 0, "log_every_n_steps": 1}
"""Lightning's options that have another default here: a round is a step, and many models are no one model."""


def check_options(options: Mapping[str, Any]) -> None:
    """See that Lightning's trainer is told what a federation can do; what is not said is left as Lightning has it.

    Raises:
        UserError: If one of the options is to divide a round, to Lightning one batch, which would do nothing, or means
            the one model of a trainer.
    """
    _check_counts(options)
    for name, (without, instead) in WHOLE_ROUNDS.items():
        given = options.get(name)
        if given is not None and given != without:
            raise UserError(
                f"Expected --trainer.{name} to be left alone, but got {_typed(given)}: a round is one batch; {instead}."
            )
    for name, (taken, instead) in NOT_OF_ONE_MODEL.items():
        if name in options and options[name] not in taken:
            raise UserError(f"Expected --trainer.{name} to be left alone, but got {options[name]}: {instead}.")
    _check_parts(options)


def _check_counts(options: Mapping[str, Any]) -> None:
    """See that there are rounds, and that what is done every so many of them is."""
    for name in COUNTS:
        given = options.get(name)
        if given is not None and (not isinstance(given, Integral) or isinstance(given, bool)):
            raise UserError(f"Expected --trainer.{name} to be a whole number of rounds, but got {given!r}; give one.")
    for name in ("max_epochs", "max_steps"):
        if options.get(name) not in (None, -1):
            check_number(f"--trainer.{name}", options[name], 1, ROUNDS, "a round is one of them")
    for name, least in (("check_val_every_n_epoch", 1), ("log_every_n_steps", 0)):
        if options.get(name) is not None:
            check_number(f"--trainer.{name}", options[name], least)


def _check_parts(options: Mapping[str, Any]) -> None:
    """See that no profiler is torch's, and that no plugin writes checkpoints."""
    profiler, plugins = options.get("profiler"), options.get("plugins") or []
    if profiler == "pytorch" or isinstance(profiler, PyTorchProfiler):
        raise UserError(
            "Expected --trainer.profiler to be simple or advanced, but got that of torch, which cannot be copied as a "
            "trainer is here; for torch's own run torch.profiler around trainer.fit in a program."
        )
    for plugin in plugins if isinstance(plugins, Sequence) else [plugins]:
        if isinstance(plugin, CheckpointIO):
            raise UserError(
                f"Expected no --trainer.plugins that write checkpoints, but got {type(plugin).__name__}: a checkpoint "
                "of a federation is written by participants; leave it out."
            )


def _typed(given: object) -> str:
    return f"{given:g}" if isinstance(given, float) else str(given)


def check_callbacks(callbacks: Iterable[object]) -> None:
    """See that callbacks of Lightning's are none for the one model of a trainer, and watch for the right end.

    Raises:
        UserError: If not.
    """
    kept: set[str] = set()
    for callback in callbacks:
        if not isinstance(callback, Callback):
            raise UserError(f"Expected callbacks to be instances, such as EarlyStopping(...), but got {callback}.")
        if is_overridden("state_dict", callback, Callback):
            _check_key(callback.state_key, kept)
        if isinstance(callback, UNFIT):
            raise UserError(
                f"Expected --trainer.callbacks that watch a federation, but got {type(callback).__name__}, which "
                "is for how a single model is trained; leave it out."
            )
        watched = str(getattr(callback, "monitor", ""))
        if watched.startswith("accuracy/") and getattr(callback, "mode", "") == "min":
            raise UserError(
                f"Expected --trainer.callbacks.mode max for {watched}, which is the better the higher, but "
                f"{type(callback).__name__} has min, Lightning's default; give it."
            )
        if isinstance(callback, lightnings.OnExceptionCheckpoint) or getattr(callback, "save_on_exception", False):
            raise UserError(
                f"Expected --trainer.callbacks that save whole rounds, but got {type(callback).__name__} that saves "
                "after a failure, when other ranks do not come to write their part; leave that out, since every round "
                "leaves a checkpoint anyway."
            )
        if isinstance(callback, lightnings.ModelCheckpoint) and not isinstance(callback, RoundCheckpoint):
            _check_checkpoints(callback)


def _check_key(key: str, kept: set[str]) -> None:
    """See that a callback's state takes no other one's place in checkpoints; from now on the key is among the kept.

    Raises:
        UserError: If it does.
    """
    if key in kept:
        raise UserError(
            f"Expected --trainer.callbacks whose states have a key each in checkpoints, but {key} is there twice; give "
            "one, or the class a property state_key that tells them apart, as "
            "self._generate_state_key(name=self.name)."
        )
    kept.add(key)


def _check_checkpoints(given: lightnings.ModelCheckpoint) -> None:
    """See that checkpoints are whole, of whole rounds, and lie where a run that goes on looks for them.

    Raises:
        UserError: If not.
    """
    kind = type(given).__name__
    if given.save_weights_only:
        raise UserError(
            f"Expected --trainer.callbacks that write checkpoints a run can be resumed from, but got {kind} with "
            "save_weights_only; leave that out, since a run leaves its weights in weights/ anyway."
        )
    often = {
        "every_n_train_steps": given._every_n_train_steps,
        "train_time_interval": given._train_time_interval,
        "save_on_train_epoch_end false": given._save_on_train_epoch_end is False,
    }
    for option, asked in often.items():
        if asked:
            raise UserError(
                f"Expected --trainer.callbacks that save at the end of a round, with its record, but got {kind} with "
                f"{option}; give every_n_epochs in its place."
            )
    if given.dirpath is not None and given not in _KEPT_IN_A_RUN:
        raise UserError(
            f"Expected --trainer.callbacks.dirpath to be left alone, but got {given.dirpath}: a run keeps its "
            "checkpoints in its folder, where --ckpt_path last finds them; for the folder of all runs give --run.root."
        )
    name = given.filename or ""
    if "/" in (name if given.auto_insert_metric_name else re.sub(r"\{.*?\}", "", name)):
        raise UserError(
            f"Expected --trainer.callbacks.filename to make names without /, but got {name}; with "
            "--trainer.callbacks.auto_insert_metric_name false a value stands without its metric's name."
        )


_KEPT_IN_A_RUN: WeakSet[lightnings.ModelCheckpoint] = WeakSet()
"""Callbacks whose folder was decided here: a program may give one to another trainer."""


def check_watching(callbacks: Iterable[Callback], options: Mapping[str, Any]) -> None:
    """See that what callbacks watch is measured in some round, or they would do nothing without a word.

    Raises:
        UserError: If not.
    """
    kinds = (lightnings.EarlyStopping, lightnings.ModelCheckpoint)
    watching = [type(one).__name__ for one in callbacks if isinstance(one, kinds) and one.monitor == WATCHED]
    if not watching:
        return
    rounds, every = last_round(options.get("max_epochs"), options.get("max_steps")), _measured_every(options)
    if 0 < rounds < every:
        raise UserError(
            f"Expected --trainer.check_val_every_n_epoch to be at most {rounds}, the rounds of this run, since "
            f"{watching[0]} watches {WATCHED}, but got {every}; give a lower one."
        )
    if options.get("limit_val_batches") == 0:
        raise UserError(
            f"Expected --trainer.limit_val_batches above 0, since {watching[0]} watches {WATCHED}, but got 0; leave "
            "one of them out."
        )


def keep_in(folder: RunFolder, callbacks: Iterable[Callback], options: Mapping[str, Any]) -> None:
    """Have checkpoints of a user's own lie in the run folder, each written when the round has its record.

    Lightning would take a logger's folder, and save after validation where not every round has one; saved at the end of
    every round, those that nothing is measured of would have the accuracy of one before.
    """
    for callback in callbacks:
        if isinstance(callback, lightnings.ModelCheckpoint):
            callback.dirpath = str(folder.checkpoints.resolve())
            callback._save_on_train_epoch_end = True
            if callback.monitor == WATCHED:
                callback._every_n_epochs = math.lcm(callback._every_n_epochs, _measured_every(options))
            _KEPT_IN_A_RUN.add(callback)


def watch_measured_rounds(callbacks: Iterable[Callback], options: Mapping[str, Any]) -> None:
    """Have EarlyStopping look after validation where not every round has one: after another it would find nothing."""
    for callback in callbacks:
        if (
            isinstance(callback, lightnings.EarlyStopping)
            and callback.monitor == WATCHED
            and _measured_every(options) > 1
        ):
            callback._check_on_train_epoch_end = False


def check_loggers(loggers: Iterable[object]) -> None:
    """See that no logger is to upload checkpoints, which Lightning's would leave out without a word.

    Raises:
        UserError: If one is.
    """
    for logger in loggers:
        if isinstance(logger, WandbLogger) and logger._log_model:
            raise UserError(
                f"Expected --trainer.logger.log_model to be left alone, but got {logger._log_model}: a checkpoint of a "
                "federation is a folder, and WandbLogger uploads files; leave it out, since a run keeps its "
                "checkpoints in its folder."
            )


_LATE = (StandaloneReference, RunReport, EndTogether, RoundProgress, PredictionWriter, lightnings.Checkpoint)


def sorted_late(trainer: Trainer) -> Trainer:
    """The trainer, with what may take long before a first round, or instead of one, behind everybody else's callbacks.

    Lightning puts that of ``max_time`` last: the report would not hear of it when it looks whether there is a round.
    """
    trainer.callbacks.sort(key=lambda one: isinstance(one, _LATE))  # type: ignore[attr-defined]  # Lightning's own
    return trainer


def _measured_every(options: Mapping[str, Any]) -> int:
    """Every how many rounds something is measured."""
    return options.get("check_val_every_n_epoch") or 1


def of_torchrun(strategy: FederatedStrategy) -> dict[str, Any]:
    """Lightning's options that say how many ranks there are, and that each evaluates on all examples.

    Raises:
        UserError: If nodes differ in their number of ranks.
    """
    world, local = launch.world_size(), launch.local_world_size()
    if world % local:
        raise UserError(
            f"Expected as many ranks on every node, but {world} ranks are not a multiple of the {local} of this one; "
            "give the same --nproc_per_node on all."
        )
    return {
        "strategy": strategy,
        "accelerator": strategy.root_device.type,
        "num_nodes": world // local,
        "use_distributed_sampler": False,
    }


def _check_kinds(folder: object, exchange: object, options: Mapping[str, Any]) -> None:
    if not isinstance(folder, RunFolder):
        raise UserError(f"Expected the folder to be a RunFolder, as RunFolder.make('{folder}'), but got {folder!r}.")
    if exchange not in ("central", "sharded"):
        raise UserError(f"Expected the exchange to be central or sharded, but got {exchange}.")
    for name in RANKS:
        if options.get(name, "auto") != "auto":
            raise UserError(
                f"Expected {name} to be left out, but got {options[name]}: ranks come from torchrun, --nproc_per_node "
                "for those of a node, --nnodes for nodes."
            )


def federated_trainer(
    server: Server,
    *,
    folder: RunFolder,
    exchange: Literal["central", "sharded"] = "central",
    callbacks: Sequence[Callback] | Callback | None = (),
    figures: bool = False,
    **options: Any,
) -> Trainer:
    """A Lightning trainer that plays and reports the rounds of a federation, as the command line's does.

    Its ranks are torchrun's: one process, or as many as ``torchrun --nproc_per_node`` starts.

    Args:
        server: The framework's server.
        folder: Where results go.
        exchange: Who the server is: rank 0, or every rank for a part of the coordinates, with the same bits.
        callbacks: Your own; one of a kind that there is anyway, a ``StandaloneReference(enabled=False)`` say, takes the
            place of the usual one, and any ``ModelCheckpoint``, a `RoundCheckpoint` with another cadence say, that of
            the one which keeps every round.
        figures: Draw pictures at the end.
        options: Of Lightning's ``Trainer``, ``max_epochs`` for the number of rounds; they win over what is chosen here.
            ``logger`` goes beside ``metrics.csv``.

    Raises:
        UserError: If an option is to divide a round or to start ranks, an option or a callback is for the one model of
            a trainer, or something is of another kind.
    """
    check_options(options)
    options |= {name: int(options[name]) for name in COUNTS if options.get(name) is not None}  # of NumPy's, say
    _check_kinds(folder, exchange, options)
    own = [callbacks] if isinstance(callbacks, Callback) else list(callbacks or [])
    check_callbacks(own)
    if any(isinstance(callback, ReputationExchange) for callback in own):
        raise UserError("Expected callbacks without ReputationExchange, which comes with the server, but got one more.")
    check_watching(own, options)
    keep_in(folder, own, options)
    watch_measured_rounds(own, options)
    logger = options.pop("logger", None)
    if isinstance(logger, str):
        raise UserError(f"Expected logger to be an instance, such as CSVLogger(...), but got {logger}.")
    given = [] if logger in (None, True, False) else [*logger] if isinstance(logger, Iterable) else [logger]
    check_loggers(given)
    by_torchrun = of_torchrun(FederatedStrategy(options.pop("accelerator", None) or "auto", exchange=exchange))
    for name in RANKS:
        options.pop(name, None)
    usual: list[Callback] = [ReputationExchange(server), Interruption(), StandaloneReference()]
    usual += [RunReport(folder.path, figures), EndTogether()]
    kept = any(isinstance(one, lightnings.ModelCheckpoint) for one in own)
    if options.get("enable_checkpointing") is not False and not kept:
        usual.append(RoundCheckpoint(folder.checkpoints))
    if options.get("enable_progress_bar") is not False and not any(isinstance(one, ProgressBar) for one in own):
        usual.append(RoundProgress())
    ours = [next((one for one in own if isinstance(one, type(callback))), callback) for callback in usual]
    chosen: dict[str, Any] = {
        **by_torchrun,
        **DEFAULTS,
        "callbacks": [*(one for one in own if one not in ours), *ours],
        "logger": [*given, MetricsFile(folder.path)],
        "default_root_dir": str(folder.path),
    }
    return sorted_late(Trainer(**chosen | options))
