"""A trainer for who writes Python instead of command lines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from lightning.pytorch import Callback, Trainer
from lightning.pytorch import callbacks as lightnings

from rffl_pl import launch
from rffl_pl.callbacks import (
    EndTogether,
    Interruption,
    ReputationExchange,
    RoundCheckpoint,
    RoundProgress,
    RunReport,
    StandaloneReference,
)
from rffl_pl.callbacks.metrics_file import MetricsFile
from rffl_pl.errors import UserError
from rffl_pl.runs import RunFolder
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
                               "--model.local_epochs"),
    "overfit_batches": (0, "for few examples to train on give --data.examples_per_participant"),
    "val_check_interval": (1, "for every how many rounds give --trainer.check_val_every_n_epoch"),
}  # fmt: skip
"""Lightning's options that count a trainer's batches, with the value that changes nothing and what does as meant."""


def check_whole_rounds(options: Mapping[str, Any]) -> None:
    """See that no option is to divide a round: Lightning, to whom it is one batch, would do nothing.

    Raises:
        UserError: If one is.
    """
    for name, (without, instead) in WHOLE_ROUNDS.items():
        given = options.get(name)
        if isinstance(given, int | float) and given != without:
            raise UserError(
                f"Expected --trainer.{name} to be left alone, but got {given:g}: a round is one batch; {instead}."
            )


def check_callbacks(given: Any) -> None:
    """See that callbacks of Lightning's are none for the one model of a trainer, and watch for the right end.

    Raises:
        UserError: If not.
    """
    for callback in given if isinstance(given, list) else [given]:
        if isinstance(callback, UNFIT):
            raise UserError(
                f"Expected --trainer.callbacks that watch a federation, but got {type(callback).__name__}, which "
                "is for how a single model is trained; leave it out."
            )
        if str(getattr(callback, "monitor", "")).startswith("accuracy/") and getattr(callback, "mode", "") == "min":
            raise UserError(
                f"Expected --trainer.callbacks.mode max for {callback.monitor}, which is the better the higher, but "
                f"{type(callback).__name__} has min, Lightning's default; give it."
            )
        if getattr(callback, "save_weights_only", False):
            raise UserError(
                "Expected --trainer.callbacks whose checkpoints can be gone on from, but got "
                f"{type(callback).__name__} with save_weights_only; leave that out, since a run "
                "leaves its weights in weights/ anyway."
            )
        if isinstance(callback, lightnings.OnExceptionCheckpoint) or getattr(callback, "save_on_exception", False):
            raise UserError(
                f"Expected --trainer.callbacks that save whole rounds, but got {type(callback).__name__} that saves "
                "after a failure, when other ranks do not come to write their part; leave that out, since every round "
                "leaves a checkpoint anyway."
            )


def _check_kinds(server: object, folder: object, exchange: object, options: Mapping[str, Any]) -> None:
    if not isinstance(server, Server):
        raise UserError(f"Expected the server to be one that is made, as RFFL(), but got {server}.")
    if not isinstance(folder, RunFolder):
        raise UserError(f"Expected the folder to be a RunFolder, as RunFolder.make('{folder}'), but got {folder!r}.")
    if exchange not in ("central", "sharded"):
        raise UserError(f"Expected the exchange to be central or sharded, but got {exchange}.")
    for name in ("devices", "num_nodes", "strategy"):
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
        callbacks: Your own.
        figures: Draw pictures at the end.
        options: Of Lightning's ``Trainer``, ``max_epochs`` for the number of rounds; they win over what is chosen here.
            ``logger`` goes beside ``metrics.csv``.

    Raises:
        UserError: If an option is to divide a round or to start ranks, a callback is for the one model of a trainer, or
            something is of another kind.
    """
    check_whole_rounds(options)
    _check_kinds(server, folder, exchange, options)
    own = [callbacks] if isinstance(callbacks, Callback) else list(callbacks or [])
    check_callbacks(own)
    logger = options.pop("logger", None)
    given = [] if logger in (None, True, False) else [*logger] if isinstance(logger, Iterable) else [logger]
    strategy = FederatedStrategy(options.pop("accelerator", "auto"), exchange=exchange)
    ours = [Interruption(), StandaloneReference(), RunReport(folder.path, figures), EndTogether()]
    kept = [RoundCheckpoint(folder.checkpoints)] if options.get("enable_checkpointing") is not False else []
    shown = [RoundProgress()] if options.get("enable_progress_bar") is not False else []
    chosen: dict[str, Any] = {
        "strategy": strategy,
        "accelerator": strategy.root_device_type,
        "num_nodes": launch.world_size() // launch.local_world_size(),
        "callbacks": [*own, ReputationExchange(server), *ours, *kept, *shown],
        "logger": [*given, MetricsFile(folder.path)],
        "default_root_dir": str(folder.path),
        "use_distributed_sampler": False,
        "enable_model_summary": False,
        "num_sanity_val_steps": 0,
        "log_every_n_steps": 1,
    }
    return Trainer(**chosen | options)
