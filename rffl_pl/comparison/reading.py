"""A run as the comparison sees it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from rffl_pl.comparison.stages import options_over_rounds
from rffl_pl.errors import UserError
from rffl_pl.runs import RunFolder, Summary
from rffl_pl.runs.facts import rounds_asked

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
        stood_for: A digest of what the study's labels stood for.
        own: Digests of a user's own code and files that options name, by option; None if the run tells nothing of them.
    """

    path: Path
    options: Mapping[str, str]
    settings: Mapping[str, str]
    rounds: str
    summary: Summary | None
    study: str | None = None
    stood_for: str = ""
    own: Mapping[str, str] | None = None

    @property
    def moment(self) -> datetime | None:
        """When it began, if its folder's name says so."""
        return _moment(self.path)


def names(results: Sequence[Result]) -> list[str]:
    """Of each the run's name and its moment, and as much of the path above as tells it from the others."""
    paths = [result.path.resolve().parts for result in results]
    deepest = max(map(len, paths), default=0)
    often = {depth: Counter(parts[-depth:] for parts in paths) for depth in range(2, deepest + 1)}
    depths = (next((d for d in often if often[d][parts[-d:]] == 1), len(parts)) for parts in paths)
    return [str(Path(*parts[-depth:])) for parts, depth in zip(paths, depths, strict=True)]


def is_trained(path: Path) -> bool:
    """Whether a folder has something that training leaves: tests, predictions and what never began do not.

    Nor do weights alone: they may be anybody's, and one batch (``fast_dev_run``) is no run. Nor does a table of rounds
    alone, which another logger may have written under the same name.
    """
    run = RunFolder(path)
    if run.summary_file.is_file():
        return True
    configured = run.config_file.is_file()
    logged = run.metrics_file.is_file() and (configured or run.rounds_file.is_file())  # of runs from Python
    return logged or (configured and is_part(path))


def is_part(path: Path) -> bool:
    """Whether a folder has what ranks leave on a disk of their own, and not what the first one does."""
    run = RunFolder(path)
    files = (run.metrics_file, run.summary_file)
    return (run.weights_files.is_dir() or run.checkpoints.is_dir()) and not any(file.is_file() for file in files)


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """A sentence for what a disk refuses to show of a folder."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"Expected {path} to be a folder that can be read, but {error.strerror}: {error.filename}; see to its "
            "permissions, or leave it out."
        ) from error


def read(path: Path) -> Result:
    """A run that trains or has trained.

    Raises:
        UserError: If there is none in the folder, or it cannot be read.
    """
    with readable(path):
        return _read(path)


def _read(path: Path) -> Result:
    if not path.is_dir():
        raise UserError(
            f"Expected {path} to be the folder of a run, or of the results of a study, as runs/studies/digits, but "
            f"{'it is a file' if path.is_file() else 'there is no such folder'}."
        )
    run = RunFolder.open(path)
    config = run.config() if run.config_file.is_file() else {}  # runs from Python have none
    options = options_over_rounds(run, config) if config else {}
    summary = run.summary() if run.summary_file.is_file() else None
    done = summary.rounds if summary else len(run.rounds()) if run.metrics_file.is_file() else 0
    asked = None if summary else rounds_asked(config.get("trainer", {}))
    rounds = f"{done}" if summary or asked is None else f"{done} of {asked}"
    return Result(path=path, options=options, settings=options, rounds=rounds, summary=summary, own=_own(run))


def _own(run: RunFolder) -> dict[str, str] | None:
    """What lay behind its options when it began; where that had changed when it went on, each in turn."""
    told = [start["own"] for start in run.starts() if isinstance(start.get("own"), Mapping)]
    found: dict[str, list[str]] = {}
    for option, digest in (item for own in told for item in own.items()):
        found.setdefault(option, []).append(str(digest)[:6])
    if not told:
        return None
    return {option: ", then ".join(dict.fromkeys(digests)) for option, digests in found.items()}


def seconds(path: Path) -> float | None:
    """How long a run took: what a study noted, else from its first file to its result.

    None where neither is known: the times of files that were copied say nothing, nor do those of a run that went on.
    """
    try:
        return float(json.loads((path.parent / "cell.json").read_text(encoding="utf-8"))["seconds"])
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
