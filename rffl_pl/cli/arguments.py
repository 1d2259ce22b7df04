"""The groups of options, what they are linked to, and how the trainer is made of them."""

from __future__ import annotations

import pkgutil
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
import yaml
from jsonargparse import ArgumentError, Namespace
from jsonargparse.typing import register_type
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI
from lightning.pytorch.utilities.rank_zero import rank_zero_warn

import rffl_pl.models  # noqa: F401  # so that --model.network MNISTCNN needs no path
from rffl_pl import launch
from rffl_pl.adversaries import Adversary
from rffl_pl.callbacks import Interruption, ReputationExchange, StandaloneReference
from rffl_pl.callbacks.ending import check_rounds
from rffl_pl.callbacks.metrics_file import MetricsFile
from rffl_pl.cli.checks import (
    check_checkpoint,
    check_split,
    check_trainer,
    check_values,
    constructed,
    naming_inner_options,
)
from rffl_pl.cli.going_on import changed_options, check_no_cell, is_cell, leave_if_complete
from rffl_pl.cli.keeping import ConfigKeeper, as_kept
from rffl_pl.cli.limits import LimitedTrainer
from rffl_pl.cli.mistakes import sentence
from rffl_pl.cli.options import Parser, arrange, described
from rffl_pl.cli.own import own_files
from rffl_pl.cli.reserved import Reserved
from rffl_pl.cli.run import Run, callbacks, ranks_and_precision
from rffl_pl.cli.typed import check_behind, check_whose, tell_of_dropped, tell_of_overlaid, tell_of_rate, tell_of_stages
from rffl_pl.cli.wandb_run import Opening, wandb_loggers
from rffl_pl.datamodules import FederatedDataModule
from rffl_pl.errors import UserError, at_home, check_number
from rffl_pl.federation import Federation
from rffl_pl.launch.stopping import STOP
from rffl_pl.module import FederatedModule
from rffl_pl.runs import RunFolder
from rffl_pl.runs.checkpoint import header, sound
from rffl_pl.runs.facts import LIMITS
from rffl_pl.servers import Server
from rffl_pl.trainer import DEFAULTS, check_loggers, check_watching, keep_in, sorted_late, watch_measured_rounds


def _tensor(numbers: Any) -> torch.Tensor:
    """What a list of numbers stands for where a class takes a tensor, such as the weights of classes."""
    try:
        return torch.tensor(numbers, dtype=torch.float32)
    except (ValueError, TypeError, RuntimeError) as error:
        raise ValueError(f"Expected a <class 'Tensor'>. Got value: {numbers}") from error


register_type(torch.Tensor, torch.Tensor.tolist, _tensor)


class _Built(threading.local):
    """The parsers of this thread, since one parses one command line at a time; each by the commands that it knows."""

    def __init__(self) -> None:
        self.parsers: dict[tuple[str, ...], dict[str, Any]] = {}


_BUILT = _Built()


class FederatedCLI(LightningCLI):
    """Lightning's CLI with the groups ``federation``, ``server``, ``adversaries``, ``standalone`` and ``run``."""

    earlier: RunFolder | None = None
    """The run that goes on in its own folder."""

    words: Sequence[str] = ()
    """As the user typed them."""

    _drawn = False  # whether the seed was left to this command line to draw

    @staticmethod
    def subcommands() -> dict[str, set[str]]:
        """Lightning's, less what is decided here."""
        decided = {"verbose", "weights_only", "return_predictions"}
        return {name: skipped | decided for name, skipped in LightningCLI.subcommands().items()}

    def setup_parser(self, add_subcommands: bool, *args: Any) -> None:
        """As the base class does; with commands once, for building takes as long as parsing, and a study has many."""
        commands, before = tuple(self.subcommands()), {*vars(self)}
        if add_subcommands and commands in _BUILT.parsers:
            vars(self).update(_BUILT.parsers[commands])
            return
        super().setup_parser(add_subcommands, *args)
        if add_subcommands:
            _BUILT.parsers[commands] = {name: value for name, value in vars(self).items() if name not in before}

    def _prepare_subcommand_parser(self, klass: type, subcommand: str, **kwargs: Any) -> LightningArgumentParser:
        parser = super()._prepare_subcommand_parser(klass, subcommand, **kwargs)
        assert isinstance(parser, Parser)
        arrange(parser, subcommand)
        return parser

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """The groups of a federation, and who needs which."""
        parser.add_class_arguments(Federation, "federation")
        parser.add_subclass_arguments(Server, "server")
        parser.add_argument("--adversaries", type=list[Adversary], default=[], help="What each adversary does.")
        parser.add_argument(
            "--exchange",
            type=Literal["central", "sharded"],
            default="central",
            help="Who the server is: rank 0, or every rank for a part of the coordinates, with the same bits.",
        )
        parser.add_lightning_class_args(ReputationExchange, "reputation")
        parser.add_lightning_class_args(StandaloneReference, "standalone")
        parser.add_class_arguments(Run, "run")
        parser.set_defaults({"server": {"class_path": "rffl_pl.servers.RFFL"}})
        parser.link_arguments("seed_everything", "federation.seed", compute_fn=int)
        parser.link_arguments("federation", "model.federation", apply_on="instantiate")
        parser.link_arguments("federation", "data.init_args.federation", apply_on="instantiate")
        parser.link_arguments("adversaries", "model.adversaries")
        parser.link_arguments("server", "reputation.server", apply_on="instantiate")

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        """Straight to the command's parser: the one above it checks everything once more, which takes as long again.

        That one prints configurations, says what is wrong by its whole name, and is alone where nothing is to run.
        """
        with own_files():
            self._parse(parser, args)

    def _parse(self, parser: LightningArgumentParser, args: Any) -> None:
        command = str(args[0]) if args else ""
        shown = any(str(word).startswith("--print_config") for word in args or ())
        if command in getattr(self, "_subcommand_parsers", {}) and not shown:
            with suppress(ArgumentError):
                said = self._parser(command).parse_args(args[1:])
                self.config = Namespace(subcommand=command, **{command: said})  # type: ignore[no-untyped-call]  # theirs
                return
        try:
            self.config = parser.parse_args(args)
        except ArgumentError as error:  # which names a class for an option of it
            if "expected one argument" in str(error):
                check_behind([*map(str, args)])
            raise

    def before_instantiate_classes(self) -> None:
        """Check what is not one class's own, and write the number of participants into the configuration."""
        check_values(self.config.get(str(self.subcommand), self.config))
        self._check_checkpoint()
        check_split((self._get(self.config, "data") or {}).get("init_args", {}).get("split"))
        if self._get(self.config, "server") is None:
            raise UserError("Expected --server to be a class, but got null; `rffl list servers` names all.")
        federation = self._get(self.config, "federation")
        federation.seed = int(self._get(self.config, "seed_everything"))
        if federation.participants is None:
            federation.participants = Federation(**federation.as_dict()).honest
            self._tell_of_being_alone(federation.participants + federation.adversaries)
        self._tell_of_idle_attacks(federation.adversaries)
        if self.subcommand == "fit":
            tell_of_overlaid(self.words)
            for tell in (tell_of_rate, tell_of_dropped, tell_of_stages):
                tell(self.words, self.config[self.subcommand])
            self._go_on()

    def _check_checkpoint(self) -> None:
        """See that what is gone on from, or looked at, can be a checkpoint and is the one that is meant."""
        given = self._get(self.config, "ckpt_path")
        check_checkpoint(given)
        if given is not None:
            given = at_home("--ckpt_path", given)
            self.config.get(str(self.subcommand), self.config)["ckpt_path"] = given
        if self.subcommand in (None, "fit"):
            return
        if given in (None, "best", "last"):
            raise UserError(
                f"Expected --ckpt_path to be the checkpoints of a run, as runs/NAME/TIME/checkpoints, to "
                f"{self.subcommand} its models, but got {given or 'none'}."
            )
        check_whose(self.words, str(self.subcommand), given)

    def _tell_of_being_alone(self, participants: int) -> None:
        """Most configurations say nothing of the number of participants, and one process hosts one then."""
        if self.subcommand == "fit" and participants == 1:
            rank_zero_warn(
                "There is one participant, which trains alone: a single process hosts one by default; give "
                "--federation.participants."
            )

    def _tell_of_idle_attacks(self, adversaries: int) -> None:
        """Attacks are named beside the number of adversaries; whoever types that it is 0 knows that nobody attacks."""
        attacks = [attack.class_path.rpartition(".")[2] for attack in self._get(self.config, "adversaries") or ()]
        typed = any(word.partition("=")[0] == "--federation.adversaries" for word in self.words)
        if attacks and adversaries == 0 and self.subcommand == "fit" and not typed:
            rank_zero_warn(
                f"Nobody plays {' and '.join(attacks)}: --federation.adversaries is 0; give how many adversaries "
                "there are."
            )

    def _go_on(self) -> None:
        """Find the run that a restarted launch or ``--ckpt_path last`` goes on with, in its own folder.

        Raises:
            UserError: If what is gone on from has more rounds than are asked for, or its folder is a study's.
            SystemExit: If that run has exactly those, and its result.
        """
        checkpoint = self._get(self.config, "ckpt_path")
        configs = [Path(file.absolute).resolve() for file in self._get(self.config, "config") or () if file is not None]
        run = Run(**self._get(self.config, "run").as_dict())
        check_no_cell(run)
        self._leave_study(run, configs)
        self.earlier = run.earlier(checkpoint, self._fits, self._fits_elsewhere, configs=configs)
        if self.earlier is not None and self._drawn:
            self._take_seed(self.earlier.config()["seed_everything"])
        if self.earlier is not None and self.earlier.newest_checkpoint() is not None:
            self.config[self.subcommand].ckpt_path = str(self.earlier.checkpoints)
        elif checkpoint == "last":
            source = None if self.earlier is None else self.earlier.source()
            if source is None:
                rank_zero_warn("No run to go on with has a checkpoint yet: training begins.")
            self.config[self.subcommand].ckpt_path = source
        self._check_earlier()

    def _leave_study(self, run: Run, configs: Sequence[Path]) -> None:
        """Have a run elsewhere with the configuration of a study's cell be none of the study's: it is a variation."""
        of_a_cell = any(is_cell(file.parent.parent) for file in configs)
        if of_a_cell and not is_cell(Path(run.root, run.name)):
            given = self._get(self.config, "run")
            given.study = given.place = None

    def _check_earlier(self) -> None:
        """See that there are rounds left to play.

        Raises:
            UserError: If what is gone on from has more rounds than are asked for, or was trained otherwise.
            SystemExit: If the run that goes on in its folder has exactly those, and its result.
        """
        source, trainer = self._get(self.config, "ckpt_path"), self._get(self.config, "trainer")
        if source is not None:
            asked = {f"--trainer.{name}": trainer[name] for name in LIMITS}
            with sound(source):
                reached = int(header(source)["round"])
            check_rounds(source, reached, asked)
            if self.earlier is not None:
                leave_if_complete(self.earlier, asked, lambda run: self._changed(run, self._places()))

    def _changed(self, run: RunFolder, places: Sequence[str] = ()) -> list[str] | None:
        """In which options a run differs from these, spelt as a run folder keeps them."""
        parser, config = self._parser(self.subcommand), self.config[self.subcommand]
        kept = yaml.safe_load(as_kept(parser, config))
        return changed_options(run, kept, places, any_seed=self._drawn)

    def _fits(self, run: RunFolder) -> bool:
        """Whether a run is of these options."""
        return self._changed(run) == []

    def _fits_elsewhere(self, run: RunFolder) -> bool:
        """`_fits` on another rank: its data may lie elsewhere, and a shared folder has rank 0's options."""
        return self._changed(run, self._places()) == []

    def _places(self) -> Sequence[str]:
        """The options of the data that say where files lie."""
        places: Sequence[str] = pkgutil.resolve_name(self._get(self.config, "data").class_path).places
        return places

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        """A trainer whose ranks are torchrun's and whose results lie in one run folder."""
        run: Run = self._get(self.config_init, "run")
        config = self._get(self.config_init, "trainer")
        command = self.subcommand or "fit"
        decided = ranks_and_precision(config, run, self._get(self.config_init, "exchange"))
        if isinstance(config["callbacks"], Callback):  # Lightning takes one for a list of it
            config["callbacks"] = [config["callbacks"]]
        check_trainer(config)
        if command == "fit":
            check_watching(config["callbacks"] or (), config)
        self._reserved = Reserved(run, command, self.earlier)
        if self.earlier is not None and launch.world_size() == 1:  # several ranks ask each other when they have met
            self._check_earlier()  # again: until now another process may have played on there
        with self._reserved.unless_a_mistake():
            return self._trainer(command, run, decided | kwargs)

    def _trainer(self, command: str, run: Run, decided: dict[str, Any]) -> Trainer:
        """What Lightning makes of its options and of what is decided here."""
        config, folder = self._get(self.config_init, "trainer"), self._reserved.path
        decided["default_root_dir"] = str(folder)
        given, later = config["logger"], []
        if command != "fit":
            decided["logger"] = False if given in (None, True) else given
        elif given in (None, True):
            decided["logger"] = MetricsFile(folder)
            if not config["fast_dev_run"]:  # Lightning lets no logger write then
                later = wandb_loggers(self.config.get(command, self.config).as_dict(), run, folder)
        else:  # the user's own, if any, and what the run folder is read by
            theirs = given if isinstance(given, list) else [given] if given else []
            check_loggers(theirs)
            decided["logger"] = [*theirs, MetricsFile(folder)]
        # Before anybody begins an evaluation, or logs.
        own = config["callbacks"] or []
        keep_in(RunFolder(folder), own, config)
        watch_measured_rounds(own, config)
        decided["callbacks"] = [Interruption(), Opening(later), *own]
        # These come last: the report needs what the exchange and the reference leave.
        ours = callbacks(command, config, run, folder)
        self.trainer_defaults = {**self.trainer_defaults, "callbacks": ours}
        try:
            # The configuration is kept before what comes late begins.
            return sorted_late(super().instantiate_trainer(**decided))
        except (ValueError, TypeError) as error:
            raise UserError(f"Expected options that Lightning's Trainer takes, but {sentence(error)}") from error

    def _set_seed(self) -> None:
        """As the base class does, once the seed is known to be one; it would take 0 where one is to be drawn."""
        seed = self._get(self.config, "seed_everything")
        self._drawn = isinstance(seed, bool)  # false too: a run that nobody seeds is one that nobody can repeat
        if self._drawn:
            self.config.get(str(self.subcommand), self.config)["seed_everything"] = launch.random_seed()
        else:
            check_number("--seed_everything", seed, 0, 2**32 - 1)
        super()._set_seed()

    def _take_seed(self, seed: int) -> None:
        """Go on with the seed that an earlier launch of the same run drew."""
        config = self.config[self.subcommand]
        config.seed_everything, config.federation.seed = seed, int(seed)
        super()._set_seed()

    def instantiate_classes(self) -> None:
        """Instead of the base class's, which notes hyperparameters for checkpoints: ours hold none."""
        making = partial(constructed, self.config.get(str(self.subcommand), self.config))
        with naming_inner_options("--server", self._get(self.config, "server")):
            self.config_init = self.parser.instantiate(self.config, instantiators=[(making, object, True)])
        self.datamodule = self._get(self.config_init, "data")
        self.model = self._get(self.config_init, "model")
        self.trainer = self.instantiate_trainer()

    def _add_instantiators(self) -> None:
        """None by the parser's older way, which warns: `instantiate_classes` names them."""

    def _run_subcommand(self, subcommand: str) -> None:
        """As the base class does; a mistake leaves nothing behind."""
        with self._reserved.unless_a_mistake():
            super()._run_subcommand(subcommand)

    def _parse_ckpt_path(self) -> None:
        """Checkpoints hold no hyperparameters; whether one can be read is the strategy's to say."""


def command_line(args: list[str]) -> None:
    """Parse the words and run the command; a mistake is raised, not printed."""
    try:
        made(_cli_for(args), args)
    finally:
        RunFolder.free()
        STOP.ignore()  # after an exception Lightning puts back what it found


def made(cli: type[FederatedCLI], args: list[str]) -> FederatedCLI:
    """A command line of that kind that has seen the words."""
    raising = {"exit_on_error": False}
    return cli(
        FederatedModule,
        FederatedDataModule,
        subclass_mode_data=True,
        trainer_class=LimitedTrainer,
        save_config_callback=ConfigKeeper,
        save_config_kwargs={"save_to_log_dir": False},
        trainer_defaults={"max_epochs": 100} | DEFAULTS,
        seed_everything_default=1,
        parser_class=Parser,
        parser_kwargs={"prog": "rffl", **raising, **{name: raising | described(name) for name in cli.subcommands()}},
        auto_configure_optimizers=False,
        args=args,
    )


def _cli_for(args: list[str]) -> type[FederatedCLI]:
    """The command line with the parser of the one subcommand that is asked for: building all four takes seconds."""
    everything = FederatedCLI.subcommands()
    wanted = {name: skipped for name, skipped in everything.items() if [name] == args[:1]} or everything

    class Wanted(FederatedCLI):
        words = args

        @staticmethod
        def subcommands() -> dict[str, set[str]]:
            return wanted

    return Wanted
