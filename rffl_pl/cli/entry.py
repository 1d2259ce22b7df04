"""From the words of a command line to an exit code."""

from __future__ import annotations

import os
import sys

from rffl_pl.cli.arguments import cli_for
from rffl_pl.cli.mistakes import mistake_behind, sentence
from rffl_pl.cli.process import be_quiet, keep_freed_memory
from rffl_pl.cli.run import ConfigKeeper
from rffl_pl.datamodules import FederatedDataModule
from rffl_pl.module import FederatedModule
from rffl_pl.strategy import leave_process_group


def main(args: list[str] | None = None) -> None:
    """Run the command line.

    A user's mistake is one sentence on the first rank of each node, and exit code 2.
    """
    run(sys.argv[1:] if args is None else args)
    leave_process_group()


def run(args: list[str]) -> None:
    """Run one command line; the process group stays open for another."""
    keep_freed_memory()
    be_quiet()
    raising = {"exit_on_error": False}
    cli = cli_for(args)
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
    except Exception as error:
        mistake = mistake_behind(error)
        if mistake is None:
            raise
        if os.environ.get("LOCAL_RANK", "0") == "0":
            print(f"Error: {sentence(mistake)}", file=sys.stderr, flush=True)
        sys.exit(2)
