"""What a run is made of: its folder, its trainer's options and its callbacks."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from lightning.pytorch.callbacks import Callback, ModelCheckpoint, ProgressBar

from rffl_pl import launch
from rffl_pl.callbacks import EndTogether, PredictionWriter, RoundCheckpoint, RoundProgress, RunReport
from rffl_pl.errors import UserError, at_home, check_folder, check_number
from rffl_pl.rehearsal.checks import check_precision
from rffl_pl.runs import RunFolder
from rffl_pl.runs.checkpoint import RUN
from rffl_pl.strategy import FederatedStrategy
from rffl_pl.trainer import of_torchrun


@dataclass(frozen=True, kw_only=True)
class Run:
    """Where a run leaves its results: ``<root>/<name>/<date and time>``.

    Args:
        name: The run's name.
        root: Folder of all runs.
        wandb: Log to Weights & Biases; offline where nobody is logged in.
        wandb_project: The project there; None is that of WANDB_PROJECT, or ``rffl_pl``.
        figures: Draw pictures at the end.
        checkpoint_every: Leave a checkpoint every so many rounds, and after the last one.
        checkpoint_errors: Whether a checkpoint that cannot be written ends the run (``stop``) or not (``warn``).
        patience: After how many seconds without a sign of life another rank is given up, and the run ends; at least 5.
        grace: How many seconds a round may go on after SIGTERM; a little less than the launcher waits before it kills.
        study: The study that the run is a cell of; `rffl study` says so.
        place: The cell's label on every axis of that study; `rffl study` says so.

    Raises:
        UserError: If a name is none of a folder, the name leaves the root, or a number is out of range.
    """

    name: str = "run"
    root: str = "runs"
    wandb: bool = True
    wandb_project: str | None = None
    figures: bool = True
    checkpoint_every: int = 1
    checkpoint_errors: Literal["stop", "warn"] = "stop"
    patience: float = 60
    grace: float = 20
    study: str | None = None
    place: dict[str, str] | None = None

    def __post_init__(self) -> None:
        check_folder("--run.name", self.name)
        check_folder("--run.root", self.root)
        # As Lightning does, by which half of a run would lie elsewhere.
        object.__setattr__(self, "root", str(Path(at_home("--run.root", self.root))))
        if Path(self.name).is_absolute() or ".." in Path(self.name).parts or not Path(self.name).parts:
            raise UserError(
                f"Expected --run.name to be a folder below --run.root, but got {self.name}; give its place with "
                "--run.root."
            )
        check_number("--run.patience", self.patience, 5)  # ranks look at each other once a second
        check_number("--run.grace", self.grace, 0)
        check_number(
            "--run.checkpoint_every", self.checkpoint_every, 1,
            remedy="for no checkpoints at all give --trainer.enable_checkpointing false",
        )  # fmt: skip

    def folder(self, command: str) -> RunFolder:
        """A folder of this run's own, named after the moment and, unless it trains, the command."""
        stamp = datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
        suffix = "" if command == "fit" else f"-{command}"
        return RunFolder.make(Path(self.root) / self.name / f"{stamp}{suffix}")

    def earlier(
        self, ckpt_path: str | None, *fits: Callable[[RunFolder], bool], configs: Sequence[Path] = ()
    ) -> RunFolder | None:
        """The folder in which training goes on, if the launch was restarted or ``--ckpt_path last`` is given.

        It is the last that was written to, whatever its name: users rename folders. Who gives a run's own
        configuration, as who interrupts one is told, means that run and no later one, wherever its folder is by now.
        What began from another's checkpoint can be gone on with as well: from that one, until it has its own.

        Args:
            ckpt_path: What is gone on from, as the user says it.
            configs: The files of options, resolved.
            fits: Whether a run is of the options that are given, since a job may have several of one name; the first
                answer that finds one counts.
        """
        runs = [RunFolder(folder) for folder in (Path(self.root) / self.name).glob("*/")]
        written: dict[RunFolder, Path] = {}
        if launch.restarted():
            ours = [run for run in runs if run.launch() == launch.identity()]
            found = ([run for run in ours if fit(run)] for fit in fits)
            written = {run: run.launch_file for run in next(filter(None, found), [])}
        if not written and ckpt_path == "last":  # also of a launch that ended before it wrote anywhere
            meant = [run for run in runs if run.config_file.resolve() in configs] or self._moved(configs)
            files = {run: _last_written(run) for run in meant or runs}
            written = {run: file for run, file in files.items() if file is not None}
        return max(written, key=lambda run: (written[run].stat().st_mtime, *_named(run.path)), default=None)

    def _moved(self, configs: Sequence[Path]) -> list[RunFolder]:
        """Runs that were begun under this name and root, and whose configurations and checkpoints lie elsewhere now."""
        runs = [RunFolder(file.parent) for file in configs]
        runs = [run for run in runs if run.config_file in configs and _last_written(run) is not None]
        begun = [(run, run.config().get("run") or {}) for run in runs]
        here = (Path(self.root), self.name)
        return [run for run, its in begun if (Path(os.path.expanduser(its.get("root", ""))), its.get("name")) == here]


def _last_written(run: RunFolder) -> Path | None:
    """The newest file that a run can be continued from, whose time says how recent it is; None without any."""
    checkpoint = run.newest_checkpoint()
    if checkpoint is not None:
        return checkpoint / RUN
    began_elsewhere = run.source() is not None and not run.summary_file.exists()  # it may be all that is kept
    return run.starts_file if began_elsewhere else None


def _named(folder: Path) -> tuple[bool, str]:
    """Sort key of folders written at one moment: a copy or a link, named by somebody, is less than its run's own."""
    return re.fullmatch(r"[\d_-]+", folder.name) is not None, folder.name


def ranks_and_precision(config: dict[str, Any], run: Run, exchange: Literal["central", "sharded"]) -> dict[str, Any]:
    """The trainer's options that are decided here: ranks are torchrun's.

    Raises:
        UserError: If the user decided otherwise, or nodes differ in their number of ranks.
    """
    if config["devices"] != "auto" or config["num_nodes"] != 1 or config["strategy"] != "auto":
        raise UserError(
            "Expected --trainer.devices, --trainer.num_nodes and --trainer.strategy to be left alone, but got "
            f"{config['devices']}, {config['num_nodes']} and {config['strategy']}; ranks come from torchrun: "
            "--nproc_per_node for the ranks of a node, --nnodes for nodes."
        )
    check_precision(config["precision"])
    return of_torchrun(
        FederatedStrategy(config["accelerator"], patience=run.patience, grace=run.grace, exchange=exchange)
    )


def callbacks(command: str, config: dict[str, Any], run: Run, folder: Path) -> list[Callback]:
    """The report, the common end, the progress, and what the command writes; the user's own stand in ``config``."""
    chosen: list[Callback] = [RunReport(folder, run.figures), EndTogether()]
    own_bar = any(isinstance(callback, ProgressBar) for callback in config["callbacks"] or [])
    if config["enable_progress_bar"] is not False and not own_bar:
        chosen.append(RoundProgress())
    if command == "predict":
        chosen.append(PredictionWriter(folder))
    given = any(isinstance(callback, ModelCheckpoint) for callback in config["callbacks"] or [])
    if command == "fit" and (given or config["enable_checkpointing"] is False):
        _check_no_cadence(run)
    if command != "fit" or not given:  # going on in a folder of its own costs only those who keep the best rounds
        warnings.filterwarnings("ignore", message=".*dirpath has changed.*")
    if command == "fit" and config["enable_checkpointing"] is not False and not given:
        chosen.append(RoundCheckpoint(folder / "checkpoints", run.checkpoint_every, run.checkpoint_errors))
    return chosen


def _check_no_cadence(run: Run) -> None:
    """See that nobody says when checkpoints are written that are not the package's.

    Raises:
        UserError: If somebody does.
    """
    for name, default in (("checkpoint_every", 1), ("checkpoint_errors", "stop")):
        if getattr(run, name) != default:
            raise UserError(
                f"Expected --run.{name} without a ModelCheckpoint of your own and with --trainer.enable_checkpointing, "
                f"but got {getattr(run, name)}, which would have no effect; leave it out."
            )
