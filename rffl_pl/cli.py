"""The command line: ``python -m rffl_pl {fit,validate,test,predict}``, alone or under torchrun."""

from __future__ import annotations

import ctypes
import itertools
import logging
import netrc
import os
import re
import sys
import warnings
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from jsonargparse import ArgumentError
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI, SaveConfigCallback
from lightning.pytorch.loggers import CSVLogger, Logger, WandbLogger
from lightning.pytorch.utilities.exceptions import MisconfigurationException

import rffl_pl.models  # noqa: F401  # so that --model.network MNISTCNN needs no path
from rffl_pl.adversaries import Adversary
from rffl_pl.callbacks import PredictionWriter, ReputationExchange, RoundProgress, RunReport, StandaloneReference
from rffl_pl.datamodules import FederatedDataModule
from rffl_pl.errors import UserError
from rffl_pl.federation import Federation
from rffl_pl.module import FederatedModule
from rffl_pl.servers import Server
from rffl_pl.strategy import FederatedStrategy, leave_process_group


@dataclass(frozen=True, kw_only=True)
class Run:
    """Where a run leaves its results: ``<root>/<name>/<date and time>``.

    Args:
        name: The run's name.
        root: Folder of all runs.
        wandb: Log to Weights & Biases; offline where nobody is logged in.
        wandb_project: The project there.
        figures: Draw pictures at the end.
    """

    name: str = "run"
    root: str = "runs"
    wandb: bool = True
    wandb_project: str = "rffl_pl"
    figures: bool = True


class ConfigKeeper(SaveConfigCallback):
    """Leaves the resolved configuration in the run folder and in W&B."""

    def save_config(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        folder = Path(trainer.default_root_dir)
        folder.mkdir(parents=True, exist_ok=True)
        self.parser.save(self.config, folder / self.config_filename, skip_unset=False, overwrite=True)
        for logger in trainer.loggers:
            if isinstance(logger, WandbLogger):
                logger.log_hyperparams(self.config.as_dict())


class FederatedCLI(LightningCLI):
    """Lightning's CLI with the groups ``federation``, ``server``, ``adversaries``, ``standalone`` and ``run``."""

    @staticmethod
    def subcommands() -> dict[str, set[str]]:
        """Lightning's, less what is decided here."""
        decided = {"verbose", "weights_only", "return_predictions"}
        return {name: skipped | decided for name, skipped in LightningCLI.subcommands().items()}

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """The groups of a federation, and who needs which."""
        parser.add_class_arguments(Federation, "federation")
        parser.add_subclass_arguments(Server, "server")
        parser.add_argument("--adversaries", type=list[Adversary], default=[], help="What each adversary does.")
        parser.add_lightning_class_args(ReputationExchange, "exchange")
        parser.add_lightning_class_args(StandaloneReference, "standalone")
        parser.add_class_arguments(Run, "run")
        parser.set_defaults({"server": {"class_path": "rffl_pl.servers.RFFL"}})
        parser.link_arguments("seed_everything", "federation.seed", compute_fn=int)
        parser.link_arguments("federation", "model.federation", apply_on="instantiate")
        parser.link_arguments("federation", "data.init_args.federation", apply_on="instantiate")
        parser.link_arguments("adversaries", "model.adversaries")
        parser.link_arguments("server", "exchange.server", apply_on="instantiate")

    def before_instantiate_classes(self) -> None:
        """Write the number of participants into the configuration, so that the saved one says it."""
        if self.subcommand not in (None, "fit") and self._get(self.config, "ckpt_path") in (None, "best", "last"):
            raise UserError(f"Expected a checkpoint to {self.subcommand}; give --ckpt_path and the file of a run.")
        federation = self._get(self.config, "federation")
        federation.seed = int(self._get(self.config, "seed_everything"))  # `true` has been replaced by a number
        if federation.participants is None:
            federation.participants = Federation(**federation.as_dict()).honest

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        """A trainer whose ranks are torchrun's and whose results lie in one run folder."""
        run: Run = self._get(self.config_init, "run")
        config = self._get(self.config_init, "trainer")
        if config["devices"] != "auto" or config["num_nodes"] != 1 or config["strategy"] != "auto":
            raise UserError(
                "Expected --trainer.devices, --trainer.num_nodes and --trainer.strategy to be left alone, but got "
                f"{config['devices']}, {config['num_nodes']} and {config['strategy']}; ranks come from torchrun: "
                "--nproc_per_node for the ranks of a node, --nnodes for nodes."
            )
        stamp = datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
        suffix = "" if self.subcommand == "fit" else f"-{self.subcommand}"
        folder = _unused(Path(run.root) / run.name / f"{stamp}{suffix}")
        world, local = (int(os.environ.get(name, "1")) for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"))
        if config["precision"] not in (None, 32, "32", "32-true", "bf16", "bf16-mixed"):
            raise UserError(
                f"Expected --trainer.precision to be 32-true or bf16-mixed, but got {config['precision']}: uploads are "
                "float32."
            )
        if world % local:
            raise UserError(f"Expected as many ranks on every node, but {world} ranks are not a multiple of {local}.")
        strategy = FederatedStrategy(config["accelerator"])
        decided = {
            "strategy": strategy,
            "accelerator": strategy.root_device_type,
            "num_nodes": world // local,
            "use_distributed_sampler": False,
            "default_root_dir": str(folder),
            "logger": self._loggers(config["logger"], run, folder),
        }
        # These come last: the report needs what the exchange and the reference leave.
        self.trainer_defaults = {**self.trainer_defaults, "callbacks": self._callbacks(config, folder, run.figures)}
        try:
            return super().instantiate_trainer(**decided, **kwargs)
        except (ValueError, TypeError) as error:
            raise UserError(f"Expected options that Lightning's Trainer takes, but {_sentence(error)}") from error

    def after_fit(self) -> None:
        """Complete W&B's files."""
        for logger in self.trainer.loggers:
            if isinstance(logger, WandbLogger):
                logger.experiment.finish()

    def _callbacks(self, config: dict[str, Any], folder: Path, figures: bool) -> list[Any]:
        callbacks: list[Any] = [RunReport(str(folder), figures)]
        if config["enable_progress_bar"] is not False:
            callbacks.append(RoundProgress())
        if self.subcommand == "predict":
            callbacks.append(PredictionWriter(str(folder)))
        given = any(isinstance(callback, ModelCheckpoint) for callback in config["callbacks"] or [])
        if not given:  # that a run goes on in a folder of its own costs only those who keep the best rounds
            warnings.filterwarnings("ignore", message=".*dirpath has changed.*")
        if self.subcommand == "fit" and config["enable_checkpointing"] is not False and not given:
            # One file that every round replaces; `save_last` without a best one would be written at the end alone.
            callbacks.append(
                ModelCheckpoint(
                    folder / "checkpoints", "last", enable_version_counter=False, save_on_train_epoch_end=True
                )
            )
        return callbacks

    def _loggers(self, given: Any, run: Run, folder: Path) -> list[Logger] | bool:
        """The user's own loggers, or a CSV file and W&B in the run folder."""
        if given not in (None, True):
            return given
        if self.subcommand != "fit":
            return False
        loggers: list[Logger] = [CSVLogger(folder, name="", version="", flush_logs_every_n_steps=1)]
        if run.wandb:
            name = f"{run.name}-{folder.name}"
            _offline_without_login()
            loggers.append(WandbLogger(name=name, save_dir=folder, project=run.wandb_project))
        return loggers

    def _parse_ckpt_path(self) -> None:
        """Checkpoints hold no hyperparameters; whether one can be read is the strategy's to say."""


def main(args: list[str] | None = None) -> None:
    """Run the command line.

    A user's mistake is one sentence on the first rank of each node, and exit code 2.
    """
    _keep_freed_memory()
    _be_quiet()
    raising = {"exit_on_error": False}
    cli = _cli_for(sys.argv[1:] if args is None else args)
    try:
        cli(
            FederatedModule,
            FederatedDataModule,
            subclass_mode_data=True,
            save_config_callback=ConfigKeeper,
            save_config_kwargs={"save_to_log_dir": False},
            trainer_defaults={
                "max_epochs": 100,
                "enable_model_summary": False,
                "num_sanity_val_steps": 0,
                "log_every_n_steps": 1,
            },
            seed_everything_default=1,
            parser_kwargs={**raising, **{name: dict(raising) for name in cli.subcommands()}},
            auto_configure_optimizers=False,
            args=args,
        )
        leave_process_group()
    except Exception as error:
        mistake = _mistake(error)
        if mistake is None:
            raise
        if os.environ.get("LOCAL_RANK", "0") == "0":
            print(f"Error: {_sentence(mistake)}", file=sys.stderr, flush=True)
        sys.exit(2)


def _cli_for(args: list[str]) -> type[FederatedCLI]:
    """The command line with the parser of the one subcommand that is asked for: building all four takes seconds."""
    everything = FederatedCLI.subcommands()
    wanted = {name: skipped for name, skipped in everything.items() if [name] == args[:1]} or everything

    class Wanted(FederatedCLI):
        @staticmethod
        def subcommands() -> dict[str, set[str]]:
            return wanted

    return Wanted


def _mistake(error: BaseException) -> BaseException | None:
    """The user's mistake behind an exception, if there is one; the parser wraps what a constructor raises.

    EarlyStopping alone of Lightning's callbacks has no exception of its own for a metric that nobody logs.
    """
    if isinstance(error, UserError | ArgumentError | MisconfigurationException):
        return error
    if isinstance(error, RuntimeError) and str(error).startswith("Early stopping conditioned on metric"):
        return error
    return _mistake(error.__cause__) if error.__cause__ is not None else None


def _sentence(error: BaseException) -> str:
    """A message in one line, without what the parser says of types that were not meant."""
    noise = ("Does not validate", "Subtypes:", "Errors:", "Given value", "Expected a <class 'NoneType'>")
    lines = (line.strip().removeprefix("- ") for line in str(error).splitlines())
    sentence = " ".join(line for line in lines if line and not line.startswith(noise))
    sentence = re.sub(
        r"- Does not validate.*|Does not validate against any of the Union subtypes", "", sentence
    ).strip()
    if "is abstract" in sentence:
        sentence += "; name a class first, or put --config before the options that change it"
    if "dot import path" in sentence:
        sentence += "; give a class of this package by its name, or your own as my_package.MyClass"
    return sentence


def _unused(folder: Path) -> Path:
    """The folder, or with a number behind it if another run has it."""
    numbered = (folder.with_name(f"{folder.name}_{n}") for n in itertools.count(2))
    return next(name for name in itertools.chain([folder], numbered) if not name.exists())


def _offline_without_login() -> None:
    """Have W&B run offline if nobody said otherwise and nobody is logged in; it would ask for a key, or fail."""
    if any(name in os.environ for name in ("WANDB_MODE", "WANDB_API_KEY", "WANDB_IDENTITY_TOKEN_FILE")):
        return
    host = urlparse(os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")).hostname or ""
    try:
        known = netrc.netrc(os.environ.get("NETRC")).authenticators(host)
    except (OSError, netrc.NetrcParseError):
        known = None
    if known is None:
        os.environ["WANDB_MODE"] = "offline"
        os.environ.setdefault("WANDB_SILENT", "true")  # the report says where the files are


def _keep_freed_memory() -> None:
    """Have glibc keep freed memory instead of returning it to the kernel.

    Activations lie above its mmap threshold, so that every training step would map and unmap them: without the page
    faults training on the CPU is 1.4 times as fast. Elsewhere than on glibc nothing happens.
    """
    mmap_threshold, trim_threshold, top_pad = -3, -1, -2
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return
    for parameter, size in ((mmap_threshold, 1 << 25), (trim_threshold, 1 << 30), (top_pad, 1 << 28)):
        mallopt(parameter, size)


def _be_quiet() -> None:
    """Leave the terminal to the run: Lightning's notes on devices and loaders say nothing about a federation."""
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
    warnings.formatwarning = lambda message, *_, **__: f"Warning: {message}\n"
    for message in (
        ".*isinstance.treespec, LeafSpec.*",
        ".*does not have many workers.*",
        ".*configure_optimizers. returned .None.*",
        ".*Checkpoint directory .* exists.*",
        ".*Experiment logs directory .* exists.*",
    ):
        warnings.filterwarnings("ignore", message=message)
