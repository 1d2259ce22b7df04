"""A run's options over its rounds: it may have gone on with others, in its folder or from another run's checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rffl_pl.comparison.options import options_in
from rffl_pl.errors import UserError
from rffl_pl.runs import RunFolder
from rffl_pl.runs.facts import LIMITS

_ROUNDS = [f"--trainer.{name}" for name in LIMITS]
"""Options that say how many rounds: a run that goes on with these alone changed is the same run."""
_FROM = "--ckpt_path"
Options = Mapping[str, str]


def options_over_rounds(
    run: RunFolder, config: Mapping[str, Any], seen: Sequence[Path] = (), left: int | None = None
) -> dict[str, str]:
    """Every option that may change a run's result, with what it was before: ``0.5 until 8, then 0.1``.

    Args:
        run: The run.
        config: Its configuration.
        seen: Runs that went on from this one, which is not asked about them again.
        left: After how many rounds they did; None for all that it has.
    """
    configs = run.earlier_configs()
    if left is not None:  # what it went on with later is nothing to them
        config = next((earlier for number, earlier in configs if number >= left), config)
        configs = [(number, earlier) for number, earlier in configs if number < left]
    last = options_in(run.config_file, config)
    files = {number: run.config_file.with_suffix(f".{number}.yaml") for number, _ in configs}
    stages: list[tuple[str, Options]] = [(f"until {n}", options_in(files[n], earlier)) for n, earlier in configs]
    if (source := config.get("ckpt_path")) is not None:
        before = _options_of_source(_places(run, Path(str(source))), [run.path.resolve(), *seen], _began(run))
        if before is None:  # what it was trained with until then is not known
            last[_FROM] = str(source)
        else:
            stages.insert(0, ("at first", before))
    names = dict.fromkeys(name for options in (last, *(options for _, options in stages)) for name in options)
    known = {name: last.get(name) if name in _ROUNDS else _told(name, stages, last) for name in names}
    return {name: value for name, value in known.items() if value is not None}


def _began(run: RunFolder) -> int | None:
    """After how many rounds of another run it began; None where it does not say so, as of earlier releases."""
    rounds = next((start.get("rounds") for start in run.starts()), None)
    return rounds if isinstance(rounds, int) else None


def _places(run: RunFolder, checkpoint: Path) -> list[Path]:
    """Where what a run began from may lie: as it was typed beside what is above the run, then beside where one is now.

    Both may have been copied elsewhere since, and whoever compares them may be anywhere.
    """
    above = [] if checkpoint.is_absolute() else run.path.resolve().parents
    return [place / checkpoint for place in (*above, Path())]


def _options_of_source(places: Sequence[Path], seen: Sequence[Path], left: int | None) -> Options | None:
    """Those of the run that a checkpoint is of, until it was left; None if it is not there any more."""
    for above in (above for checkpoint in places for above in list(checkpoint.parents)[:2]):
        run = RunFolder(above)
        if run.config_file.is_file() and above.resolve() not in seen:
            try:
                return options_over_rounds(run, run.config(), seen, left)
            except UserError:  # it is damaged
                return None
    return None


def _told(name: str, stages: Sequence[tuple[str, Options]], last: Options) -> str | None:
    every = [options.get(name) for options in (*(options for _, options in stages), last)]
    ended = zip((when for when, _ in stages), every, every[1:], strict=False)
    changes = [f"{value} {when}" for when, value, following in ended if value != following]
    return f"{', '.join(changes)}, then {every[-1]}" if changes else every[-1]
