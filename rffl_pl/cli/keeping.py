"""The configuration that a run leaves in its folder."""

from __future__ import annotations

import shutil
from enum import Enum

import yaml
from jsonargparse import ArgumentParser, Namespace
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.cli import SaveConfigCallback
from lightning.pytorch.loggers import WandbLogger

from rffl_pl.callbacks.agreement import named_alike
from rffl_pl.cli.going_on import changed_options, leave_if_complete_on_every_disk
from rffl_pl.comparison.own import own_of
from rffl_pl.errors import UserError
from rffl_pl.files import replaced
from rffl_pl.module import FederatedModule
from rffl_pl.runs import RunFolder
from rffl_pl.runs.durable import written
from rffl_pl.runs.facts import LIMITS, facts
from rffl_pl.strategy import FederatedStrategy

# Lightning's Timer has an enumeration's member as the default of an option that is a word.
yaml.SafeDumper.add_multi_representer(Enum, lambda dumper, member: dumper.represent_data(member.value))


def as_kept(parser: ArgumentParser, config: Namespace) -> str:
    """A configuration as a run folder has it: every option, as YAML."""
    text: str = parser.dump(config, skip_unset=False, skip_validation=True)
    return text


class ConfigKeeper(SaveConfigCallback):
    """Leaves the resolved configuration in the run folder and in W&B; where a run goes on, once nothing is refused.

    Machines that have a run folder of their own have a configuration of their own in it.
    """

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Keep the configuration; where there is training not yet, since the checkpoint has not been read.

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
            here = yaml.safe_load(as_kept(self.parser, self.config))
            leave_if_complete_on_every_disk(
                RunFolder(trainer.default_root_dir),
                trainer,
                pl_module,
                trainer.strategy,
                lambda run: changed_options(run, here, pl_module.data.places),
            )

    def save_config(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._keep(RunFolder(trainer.default_root_dir), 0)

    def _start(self, folder: RunFolder, reached: int, ranks: int) -> None:
        """Training begins or goes on here after so many rounds: leave with what, once nothing is refused."""
        self._keep(folder, reached)
        folder.start(reached, ranks, own_of(folder.config()))

    def _keep(self, folder: RunFolder, reached: int) -> None:
        folder.path.mkdir(parents=True, exist_ok=True)
        kept = self.config.clone()
        if kept.get("ckpt_path") == str(folder.checkpoints):  # of this run; it may have begun from another one's
            kept["ckpt_path"] = folder.config().get("ckpt_path") if folder.config_file.is_file() else None
        text = as_kept(self.parser, kept)
        self._set_earlier_aside(folder, reached, text)
        with written(folder.config_file), replaced(folder.config_file) as partial:  # a restart finds its run by it
            partial.write_text(text, encoding="utf-8")

    def _set_earlier_aside(self, folder: RunFolder, reached: int, text: str) -> None:
        """Where a run goes on with other options: those of its rounds so far are ``config.<rounds>.yaml``."""
        if self.config.get("ckpt_path") != str(folder.checkpoints) or not folder.config_file.exists():
            return
        aside = folder.config_file.with_suffix(f".{reached}.yaml")
        earlier, kept = folder.config()["trainer"], yaml.safe_load(text)
        rounds = {name: earlier[name] for name in LIMITS}  # more of them alone are the same run
        changed = changed_options(folder, {**kept, "trainer": {**kept["trainer"], **rounds}})
        if changed != [] and not aside.exists():  # one that came to no round is nobody's
            shutil.copyfile(folder.config_file, aside)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        strategy, folder = trainer.strategy, named_alike(RunFolder(trainer.default_root_dir), trainer)
        assert isinstance(strategy, FederatedStrategy)
        assert isinstance(pl_module, FederatedModule)
        # Not the last checkpoint's: where that is damaged the one before was gone on from.
        reached, leads = pl_module.round, strategy.disks.at(folder.path).leads
        strategy.together(lambda: self._start(folder.take(), reached, trainer.world_size) if leads else None)
        for logger in trainer.loggers:
            if isinstance(logger, WandbLogger):
                config = self.config.as_dict()
                logger.log_hyperparams({**config, **facts(config)})
