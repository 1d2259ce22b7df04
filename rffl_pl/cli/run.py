"""What a run is made of: its folder, its trainer's options, its callbacks and its loggers."""

from __future__ import annotations

import os
import re
import shutil
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any, Literal, NoReturn

import yaml
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint, ProgressBar
from lightning.pytorch.cli import SaveConfigCallback
from lightning.pytorch.loggers import Logger, WandbLogger
from lightning.pytorch.utilities.rank_zero import rank_zero_warn

from rffl_pl import launch
from rffl_pl.callbacks import EndTogether, PredictionWriter, RoundCheckpoint, RoundProgress, RunReport
from rffl_pl.callbacks.ending import limits, remedies
from rffl_pl.callbacks.find import named_alike
from rffl_pl.callbacks.resuming import SINCE
from rffl_pl.cli.login import offline_without_login, wandb_project
from rffl_pl.comparison.options import options_of
from rffl_pl.comparison.own import own_of
from rffl_pl.errors import UserError, at_home, check_folder, check_number
from rffl_pl.files import replaced
from rffl_pl.module import FederatedModule
from rffl_pl.rehearsal.checks import check_precision
from rffl_pl.runs import RunFolder
from rffl_pl.runs.checkpoint import RUN, header, sound, wandb_run
from rffl_pl.runs.facts import cell, facts, group, last_round, tags
from rffl_pl.strategy import FederatedStrategy, leave_process_group
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
            checkpoints = {run: run.newest_checkpoint() for run in meant or runs}
            written = {run: checkpoint / RUN for run, checkpoint in checkpoints.items() if checkpoint is not None}
        return max(written, key=lambda run: (written[run].stat().st_mtime, *_named(run.path)), default=None)

    def _moved(self, configs: Sequence[Path]) -> list[RunFolder]:
        """Runs that were begun under this name and root, and whose configurations and checkpoints lie elsewhere now."""
        runs = [RunFolder(file.parent) for file in configs]
        runs = [run for run in runs if run.config_file in configs and run.newest_checkpoint() is not None]
        begun = [(run, run.config().get("run") or {}) for run in runs]
        here = (Path(self.root), self.name)
        return [run for run, its in begun if (Path(os.path.expanduser(its.get("root", ""))), its.get("name")) == here]


def _named(folder: Path) -> tuple[bool, str]:
    """Of two folders of one moment a copy or a link, with a name that somebody gave it, is less than its run."""
    return re.fullmatch(r"[\d_-]+", folder.name) is not None, folder.name


_TRAINED = (
    "--seed_everything", "--federation", "--data", "--model", "--server", "--adversaries", "--trainer.precision",
)  # fmt: skip
"""How options begin that say what is trained."""
_MEASURED = (
    "--data.watch", "--data.measurements", "--data.own_test", "--data.predict", "--model.measures", "--model.engine",
)  # fmt: skip
"""And some of them that say what is measured, or how it is computed."""

# Lightning's Timer has an enumeration's member as the default of an option that is a word.
yaml.SafeDumper.add_multi_representer(Enum, lambda dumper, member: dumper.represent_data(member.value))


class Opening(Callback):
    """Opens W&B's run when everything that can be refused has been checked; Lightning would before it sees the data."""

    def __init__(self, loggers: Iterable[Logger]) -> None:
        self._loggers = list(loggers)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        trainer.loggers = [*trainer.loggers, *self._loggers]


def check_no_cell(run: Run) -> None:
    """Refuse the folder of a study's cell, whose configuration names it: the study would take the run for its own.

    Raises:
        UserError: If it is one, and no study runs it in this process.
    """
    folder = Path(run.root) / run.name
    if not (folder / "lock").is_file():
        return
    from rffl_pl.studies.cells import CellFolder  # here: no other run needs it

    if not CellFolder(Path(run.root), run.name).is_run():
        raise UserError(
            f"Expected a folder of this run's own, but {folder} is that of a study's cell, which takes its newest "
            "result; give --run.root runs --run.name mine, or run the study again to go on with the cell."
        )


def check_rounds(checkpoint: str | Path, asked: Mapping[str, int | None]) -> None:
    """Refuse a checkpoint that training does not go on from: it would keep its rounds under other settings.

    Args:
        checkpoint: What training is to go on from.
        asked: How many rounds, by the options that say so; None or -1 where one says nothing.

    Raises:
        UserError: If it has more rounds than are asked for.
    """
    with sound(checkpoint):
        reached = int(header(checkpoint)["round"])
    for option, rounds in asked.items():
        if rounds is not None and -1 < rounds < reached:
            raise UserError(
                f"Expected {option} of at least {reached}, the rounds that {checkpoint} has, but got {rounds}; give "
                "more of them, or leave out --ckpt_path to begin anew."
            )


def leave_if_complete(
    run: RunFolder, asked: Mapping[str, int | None], changed: Callable[[RunFolder], Sequence[str] | None]
) -> None:
    """End this process where a run that goes on in its folder has all that is asked for: nobody writes there again.

    Args:
        run: The run.
        asked: How many rounds are, by the options that say so; None or -1 where one says nothing.
        changed: In which options something else is asked for than a run was.

    Raises:
        UserError: If these are of what is trained: it would be taken for trained.
        SystemExit: With code 0, as a scheduler that starts a finished job again expects it.
    """
    rounds = last_round(*asked.values())
    if not run.complete(rounds):
        return
    if (refusal := _trained_otherwise(run, rounds, changed(run))) is not None:
        raise UserError(refusal)
    _leave(run, rounds, " and ".join(f"a higher {option}" for option, limit in asked.items() if limit == rounds))


def _trained_otherwise(run: RunFolder, rounds: int, changed: Iterable[str] | None) -> str | None:
    """Why a finished run is not what is asked for, if it was trained with other options."""
    others = [option for option in changed or () if option.startswith(_TRAINED) and not option.startswith(_MEASURED)]
    if not others:
        return None
    return (
        f"Expected other options with more rounds or in a run of their own, but the run in {run.path} has its {rounds} "
        f"rounds and was trained with another {others[0]}; give another --run.name, or leave out --ckpt_path."
    )


def leave_if_complete_on_every_disk(
    run: RunFolder,
    trainer: Trainer,
    module: FederatedModule,
    strategy: FederatedStrategy,
    changed: Callable[[RunFolder], Sequence[str] | None],
) -> None:
    """Likewise where no disk has all of the run: all ranks leave, or none, once they have met.

    By then it is known what ends training early, and so whether it has ended.

    Raises:
        UserError: On every rank, if on one of them what is asked for is not what was trained.
        SystemExit: On every rank, with code 0.
    """
    rounds, rank = _rounds_of(run, trainer), strategy.global_rank
    hosted = module.federation.hosted_by(rank, strategy.world_size)
    first, *others = strategy.everybodys(run.ended(rounds, hosted, result=rank == 0))
    if first is not None and all(theirs == first for theirs in others):
        if (refusal := strategy.first_word(_trained_otherwise(run, rounds, changed(run)))) is not None:
            raise UserError(refusal)
        leave_process_group()  # now: who exits early may take the store with it
        _leave(run, rounds, remedies(trainer))


def _rounds_of(run: RunFolder, trainer: Trainer) -> int:
    """How many rounds a run has in the end: those that it had when something else ended it that still would."""
    with suppress(UserError), sound(run.checkpoints):  # who is to go on from it tells what is wrong with it
        last = header(run.checkpoints)
        if last["ended"] == limits(trainer):
            return int(last["round"])
    return last_round(trainer.max_epochs, trainer.max_steps)


def _leave(run: RunFolder, rounds: int, more: str) -> NoReturn:
    if launch.rank() == 0:
        print(
            f"The run in {run.path} has its {rounds} rounds and its result: nothing is left to do; for more give "
            f"{more}, for another run leave out --ckpt_path.",
            flush=True,
        )
    sys.exit(0)


def changed_options(
    run: RunFolder, config: Mapping[str, Any], places: Iterable[str] = (), *, any_seed: bool = False
) -> list[str] | None:
    """In which options a run was asked for something else, but for what changes no result and places of data.

    Args:
        run: The run.
        config: The configuration.
        places: Options of the data that say where files lie.
        any_seed: Whether the seed may be another one, as where each launch draws its own.

    Returns:
        ``--server.gamma`` and the like; None of a run without a configuration, or with a damaged one.
    """
    elsewhere = {f"--data.{option}" for option in places} | ({"--seed_everything"} if any_seed else set())
    try:
        there, here = options_of(run.config()), options_of(config)
    except UserError:
        return None
    there = {option: told for option, told in SINCE.items() if option in here} | there
    every = [option for option in {**here, **there} if option not in elsewhere]
    return [option for option in every if there.get(option) != here.get(option)]


class ConfigKeeper(SaveConfigCallback):
    """Leaves the resolved configuration in the run folder and in W&B; where a run goes on, once nothing is refused.

    Machines that have a run folder of their own have a configuration of their own in it.
    """

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Not yet where there is training: the checkpoint has not been read.

        Raises:
            UserError: On every rank, if some have a checkpoint to go on from and others have none.
            SystemExit: On every rank, if each has its part of a run that is finished, one that was ended early too.
        """
        assert isinstance(trainer.strategy, FederatedStrategy)
        found = trainer.strategy.everybodys(bool(self.config.get("ckpt_path")))
        if len(set(found)) > 1:
            raise UserError(
                f"Expected every rank to have a checkpoint to go on from, but rank {found.index(False)} has none and "
                f"rank {found.index(True)} has; give --ckpt_path on every machine, and each its own part of the run "
                "below --run.root and --run.name, or begin anew under another --run.name."
            )
        if stage != "fit":
            super().setup(trainer, pl_module, stage)
        elif all(found):
            assert isinstance(pl_module, FederatedModule)
            here = yaml.safe_load(self.parser.dump(self.config, skip_unset=False, skip_validation=True))
            leave_if_complete_on_every_disk(
                RunFolder(trainer.default_root_dir),
                trainer,
                pl_module,
                trainer.strategy,
                lambda run: changed_options(run, here, pl_module.data.places),
            )

    def save_config(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._keep(RunFolder(trainer.default_root_dir))

    def _start(self, folder: RunFolder, ranks: int) -> None:
        """Training begins or goes on here: leave with what, once nothing is refused."""
        self._keep(folder)
        checkpoint = self.config.get("ckpt_path")
        folder.start(int(header(checkpoint)["round"]) if checkpoint else 0, ranks, own_of(folder.config()))

    def _keep(self, folder: RunFolder) -> None:
        folder.path.mkdir(parents=True, exist_ok=True)
        kept = self.config.clone()
        if kept.get("ckpt_path") == str(folder.checkpoints):  # the whole run is in this folder
            kept["ckpt_path"] = None
        text = self.parser.dump(kept, skip_unset=False, skip_validation=True)
        self._set_earlier_aside(folder, text)
        with replaced(folder.config_file) as partial:  # a restart finds its run by it
            partial.write_text(text, encoding="utf-8")

    def _set_earlier_aside(self, folder: RunFolder, text: str) -> None:
        """Where a run goes on with other options: those of its rounds so far are ``config.<rounds>.yaml``."""
        if self.config.get("ckpt_path") != str(folder.checkpoints) or not folder.config_file.exists():
            return
        aside = folder.config_file.with_suffix(f".{int(header(folder.checkpoints)['round'])}.yaml")
        rounds = folder.config()["trainer"]["max_epochs"]  # more of them alone are the same run
        kept = yaml.safe_load(text)
        changed = changed_options(folder, {**kept, "trainer": {**kept["trainer"], "max_epochs": rounds}})
        if changed != [] and not aside.exists():  # one that came to no round is nobody's
            shutil.copyfile(folder.config_file, aside)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        strategy, folder = trainer.strategy, named_alike(RunFolder(trainer.default_root_dir), trainer)
        assert isinstance(strategy, FederatedStrategy)
        leads = strategy.disks.at(folder.path).leads
        strategy.together(lambda: self._start(folder.take(), trainer.world_size) if leads else None)
        for logger in trainer.loggers:
            if isinstance(logger, WandbLogger):
                config = self.config.as_dict()
                logger.log_hyperparams({**config, **facts(config)})


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


def callbacks(command: str, config: dict[str, Any], run: Run, folder: Path) -> list[Any]:
    """The report, the common end, the progress, and what the command writes; the user's own stand in ``config``."""
    chosen: list[Any] = [RunReport(folder, run.figures), EndTogether()]
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
                f"but got {getattr(run, name)}, which nothing would go by; leave it out."
            )


def wandb_loggers(config: dict[str, Any], run: Run, folder: Path) -> list[Logger]:
    """W&B in the run folder, unless nobody wants it; where a run goes on in its folder, so does its W&B run.

    Args:
        config: The resolved configuration.
        run: Whether to log to W&B.
        folder: The run folder.
    """
    if not run.wandb or not _wandb_is_there():
        return []
    offline_without_login()
    resumed = config.get("ckpt_path")  # only commands have it, not a parser alone
    # Elsewhere it is a run of its own: several may go on from one checkpoint.
    here = resumed is not None and Path(resumed).resolve().is_relative_to(folder.resolve())
    earlier = wandb_run(str(resumed)) if here else None
    name = None if earlier else os.environ.get("WANDB_NAME") or cell(config) or f"{run.name}-{folder.name}"
    project = run.wandb_project or wandb_project()
    wandb = WandbLogger(name=name, id=earlier, save_dir=folder, project=project, **_found_by(config))
    wandb._wandb_init.pop("anonymous")  # Lightning always passes it, and W&B warns whoever does
    return [wandb]


def _found_by(config: dict[str, Any]) -> dict[str, Any]:
    """Group, job type and tags of a W&B run; the environment decides first."""
    given = os.environ.get("WANDB_TAGS")
    return {
        "group": os.environ.get("WANDB_RUN_GROUP") or group(config),
        "job_type": os.environ.get("WANDB_JOB_TYPE") or "fit",
        "tags": given.split(",") if given else tags(config),
    }


def _wandb_is_there() -> bool:
    """Whether W&B can be imported; if not, rank 0 says what that means."""
    try:
        import wandb  # noqa: F401
    except ImportError as error:
        rank_zero_warn(
            f"W&B cannot be imported ({error}): this run logs to metrics.csv alone; pip install wandb, or give "
            "--run.wandb false to hear no more of it."
        )
        return False
    return True
