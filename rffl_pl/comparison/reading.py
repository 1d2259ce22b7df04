"""A run as the comparison sees it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from rffl_pl.errors import UserError
from rffl_pl.runs import RunFolder, Summary

_ASIDE = (
    "--run", "--ckpt_path", "--standalone.cache_dir", "--data.num_workers", "--data.eval_batch_size",
    "--trainer.logger", "--trainer.enable_progress_bar", "--trainer.default_root_dir",
)  # fmt: skip
"""Options that change no result."""
_WHERE = "--data.data_dir"
"""Likewise of the package's own data sets; a class of a user's own may mean by it which data it is."""
_SHORT = ("rffl_pl", "torch", "torchvision", "torchmetrics", "lightning")
_AT_ONCE = 120  # seconds between the moment that names a folder and the first file in it


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a run was asked for and what came of it.

    Attributes:
        path: Its folder.
        options: Every option that may change the result, as it is typed.
        settings: What tells it from others: its options, or a study's labels by axis.
        rounds: Rounds done, and asked for where that is known.
        summary: None if the run has not ended.
        study: The study that it was named by.
    """

    path: Path
    options: Mapping[str, str]
    settings: Mapping[str, str]
    rounds: str
    summary: Summary | None
    study: str | None = None

    @property
    def name(self) -> str:
        """The run's name and its moment."""
        return "/".join(self.path.resolve().parts[-2:])

    @property
    def moment(self) -> datetime | None:
        """When it began, if its folder's name says so."""
        return _moment(self.path)


def is_run(path: Path) -> bool:
    """Whether a folder has something that a run leaves."""
    run = RunFolder(path)
    return any(file.is_file() for file in (run.config_file, run.metrics_file, run.summary_file))


def is_trained(path: Path) -> bool:
    """Whether a folder has something that training leaves: tests, predictions and what never began do not."""
    run = RunFolder(path)
    return run.metrics_file.is_file() or run.summary_file.is_file()


def read(path: Path) -> Result:
    """A run that trains or has trained.

    Raises:
        UserError: If there is none in the folder.
    """
    if not path.is_dir():
        raise UserError(
            f"Expected {path} to be the folder of a run, or of the results of a study, as runs/studies/digits, but "
            f"{'it is a file' if path.is_file() else 'there is no such folder'}."
        )
    run = RunFolder.open(path)
    config = run.config() if run.config_file.is_file() else {}  # runs from Python have none
    if config and not all(isinstance(config.get(key), Mapping) for key in ("federation", "server", "data", "trainer")):
        raise UserError(f"Expected {run.config_file} to be of a run of rffl_pl, but it says nothing of a federation.")
    summary = run.summary() if run.summary_file.is_file() else None
    done = summary.rounds if summary else len(run.rounds()) if run.metrics_file.is_file() else 0
    asked = config.get("trainer", {}).get("max_epochs", done)
    rounds = f"{done}" if summary else f"{done} of {asked}"
    options = options_of(config)
    return Result(path=path, options=options, settings=options, rounds=rounds, summary=summary)


def seconds(path: Path) -> float | None:
    """How long a run took: what a study noted, else from its first file to its result.

    None where neither is known: the times of files that were copied say nothing, nor do those of a run that went on.
    """
    try:
        return float(json.loads((path.parent / "cell.json").read_text())["seconds"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    run = RunFolder(path)
    began = _moment(path)
    if began is None or not (run.config_file.is_file() and run.summary_file.is_file()):
        return None
    if len(run.launches()) > 1 or run.config().get("ckpt_path") is not None:
        return None
    first, last = run.config_file.stat().st_mtime, run.summary_file.stat().st_mtime
    return last - first if abs(first - began.timestamp()) < _AT_ONCE and last >= first else None


def _moment(path: Path) -> datetime | None:
    try:
        return datetime.strptime(path.resolve().name[:19], "%Y-%m-%d_%H-%M-%S")
    except ValueError:
        return None


def options_of(config: Mapping[str, Any]) -> dict[str, str]:
    """Every option that may change the result as it is typed: ``--server.gamma``; a class by its name."""
    typed = dict(_typed(config, "-"))
    asides = [*_ASIDE, *[_WHERE] * ("." not in typed.get("--data", ""))]
    return {
        option: value
        for option, value in typed.items()
        if not any(option == aside or option.startswith(f"{aside}.") for aside in asides)
    }


def _class(path: str) -> str:
    """A class by its name, one of a user's own by its path: two of those may have the same name."""
    room, _, name = path.rpartition(".")
    return name if room.partition(".")[0] in _SHORT else path


def _typed(value: Any, name: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, below in value.items():
            if key == "class_path":
                yield name, _class(str(below))
            elif key in ("init_args", "dict_kwargs"):
                yield from _typed(below, name)
            else:
                yield from _typed(below, f"--{key}" if name == "-" else f"{name}.{key}")
    elif isinstance(value, list) and (not value or any(isinstance(item, Mapping) for item in value)):
        for number, item in enumerate(value):
            yield from _typed(item, f"{name}.{number}")
    else:
        yield name, str(value)
