"""Runs beside each other: which settings differ, and what came of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rffl_pl.errors import UserError
from rffl_pl.runs.folder import RunFolder
from rffl_pl.runs.records import Summary, percent

_ASIDE = (
    "--run", "--ckpt_path", "--standalone.cache_dir", "--data.data_dir", "--data.num_workers", "--data.eval_batch_size",
    "--trainer.logger", "--trainer.enable_progress_bar", "--trainer.default_root_dir",
)  # fmt: skip
"""Options that change no result."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a run was asked for and what came of it.

    Attributes:
        path: Its folder.
        settings: Every option that may change the result, as it is typed.
        rounds: Rounds done, and asked for where that is known.
        summary: None if the run has not ended.
    """

    path: Path
    settings: Mapping[str, str]
    rounds: str
    summary: Summary | None


def read_finished(path: Path) -> Result:
    """A run that has ended.

    Raises:
        UserError: If there is none in the folder.
    """
    if not path.is_dir():
        raise UserError(f"Expected {path} to be the folder of a run, but there is no such folder.")
    result = read(path)
    if result.summary is None:
        raise UserError(
            f"Expected the run in {path} to have ended, but it has no summary.json after {result.rounds} rounds; go on "
            "from its checkpoint, or leave it out."
        )
    return result


def read(path: Path) -> Result:
    """A run that trains or has trained.

    Raises:
        UserError: If there is none in the folder.
    """
    run = RunFolder.open(path)
    config = run.config() if run.config_file.is_file() else {}  # runs from Python have none
    if config and not all(isinstance(config.get(key), Mapping) for key in ("federation", "server", "data", "trainer")):
        raise UserError(f"Expected {run.config_file} to be of a run of rffl_pl, but it says nothing of a federation.")
    summary = run.summary() if run.summary_file.is_file() else None
    done = summary.rounds if summary else len(run.rounds())
    asked = config.get("trainer", {}).get("max_epochs", done)
    rounds = f"{done}" if summary else f"{done} of {asked}"
    return Result(path=path, settings=dict(_options(config)), rounds=rounds, summary=summary)


def differing(every: Sequence[Mapping[str, str]]) -> list[str]:
    """The options that differ between some settings.

    An option that a class does not have differs only where that class is the same: what another server cannot be told
    is no difference of its own.
    """
    names = dict.fromkeys(name for settings in every for name in settings)
    return [name for name in names if _differs(name, every)]


def _differs(name: str, every: Sequence[Mapping[str, str]]) -> bool:
    if len({settings[name] for settings in every if name in settings}) > 1:
        return True
    owner = name.rpartition(".")[0]
    owners = {settings.get(owner) for settings in every}
    return len(owners) == 1 and any(name not in settings for settings in every if settings)


def table(results: Sequence[Result]) -> str:
    """A row per run: its folder, the settings that differ, and the results."""
    differ = differing([result.settings for result in results])
    head = ["run", *differ, "rounds", "mean", "maximum", "fairness", "gain", "adversaries removed", "honest removed"]
    rows = [
        [_short(result.path), *(result.settings.get(name, "-") for name in differ), result.rounds, *_values(result)]
        for result in results
    ]
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = [_line(cells, widths) for cells in (head, ["-" * width for width in widths], *rows)]
    same = [] if differ or len(results) < 2 else ["all settings are the same"]
    return "\n".join([*lines, *same])


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *rest = cells
    padded = [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)]
    return "  ".join([first.ljust(widths[0]), *padded])


def _values(result: Result) -> list[str]:
    summary = result.summary
    if summary is None:
        return ["-"] * 6
    gone = [number is not None for number in summary.removed_in_round]
    adversaries = gone[summary.honest :]
    return [
        percent(summary.mean),
        percent(summary.maximum),
        "-" if summary.fairness is None else f"{summary.fairness:.3f}",
        "-" if summary.gain is None else f"{summary.gain:+.1%}",
        f"{sum(adversaries)} of {len(adversaries)}" if adversaries else "-",
        f"{sum(gone[: summary.honest])} of {summary.honest}",
    ]


def _short(path: Path) -> str:
    """The run's name and its moment."""
    return "/".join(path.resolve().parts[-2:])


def _options(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Every option that may change the result as it is typed: ``--server.gamma``; a class by its own name."""
    for option, value in _typed(config, "-"):
        if not any(option == aside or option.startswith(f"{aside}.") for aside in _ASIDE):
            yield option, value


def _typed(value: Any, name: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, below in value.items():
            if key == "class_path":
                yield name, str(below).rpartition(".")[2]
            elif key in ("init_args", "dict_kwargs"):
                yield from _typed(below, name)
            else:
                yield from _typed(below, f"--{key}" if name == "-" else f"{name}.{key}")
    elif isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
        for number, item in enumerate(value):
            yield from _typed(item, f"{name}.{number}")
    else:
        yield name, str(value)
