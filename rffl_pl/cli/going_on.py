"""How a run goes on: what it must have in common with what is asked for, and where nothing is left of it to do."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from lightning.pytorch import Trainer

from rffl_pl import launch
from rffl_pl.callbacks.ending import limits, remedies
from rffl_pl.callbacks.resuming import SINCE
from rffl_pl.cli.run import Run
from rffl_pl.comparison.options import options_of
from rffl_pl.errors import UserError
from rffl_pl.module import FederatedModule
from rffl_pl.runs import RunFolder
from rffl_pl.runs.checkpoint import header, sound
from rffl_pl.runs.facts import last_round
from rffl_pl.strategy import FederatedStrategy, leave_process_group

_TRAINED = (
    "--seed_everything", "--federation", "--data", "--model", "--server", "--adversaries", "--trainer.precision",
)  # fmt: skip
"""Beginnings of the options that decide what is trained."""
_MEASURED = (
    "--data.watch", "--data.measurements", "--data.own_test", "--data.predict", "--model.measures", "--model.engine",
)  # fmt: skip
"""Those of them that do not: they decide what is measured, or how it is computed."""


def is_cell(folder: Path) -> bool:
    """Whether a folder is that of a study's cell, in which its runs have theirs."""
    return (folder / "lock").is_file()


def check_no_cell(run: Run) -> None:
    """Refuse the folder of a study's cell, whose configuration names it: the study would take the run for its own.

    Raises:
        UserError: If it is one, and no study runs it in this process.
    """
    if not is_cell(Path(run.root, run.name)):
        return
    from rffl_pl.studies.cells import CellFolder  # here: no other run needs it

    cell = CellFolder(Path(run.root), run.name)
    if not cell.is_held():
        raise UserError(
            f"Expected a folder of this run's own, but {cell.path} is that of a study's cell, which takes its newest "
            "result; give --run.root runs --run.name mine, or run the study again to go on with the cell."
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
        f"Expected the options of the finished run in {run.path}, which has its {rounds} rounds, but got another "
        f"{others[0]}; give more rounds, another --run.name, or leave out --ckpt_path."
    )


def leave_if_complete_on_every_disk(
    run: RunFolder,
    trainer: Trainer,
    module: FederatedModule,
    strategy: FederatedStrategy,
    changed: Callable[[RunFolder], Sequence[str] | None],
) -> None:
    """`leave_if_complete` where no disk has all of the run: all ranks leave, or none, once they have met.

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
    """How many rounds a run has when it is finished: those it had if limits ended it that are still the same."""
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
