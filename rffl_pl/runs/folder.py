"""The folder of a run: which file is where, and how each is read back."""

from __future__ import annotations

import csv
import functools
import io
import itertools
import json
import re
import reprlib
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, TextIO, get_type_hints

import torch
import yaml
from torch import Tensor

from rffl_pl import launch
from rffl_pl.errors import UserError, writable
from rffl_pl.files import locked
from rffl_pl.runs.checkpoint import RUN, Stamp, choices, participant_file, stamp_of
from rffl_pl.runs.circumstances import circumstances
from rffl_pl.runs.durable import put, written
from rffl_pl.runs.kinds import of_kind
from rffl_pl.runs.records import Round, Summary

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast where libyaml is
_PARTICIPANT = re.compile(r"(.+)/participant_(\d+)")


PATIENCE = 15.0
"""For how many seconds an orphan of an earlier launch may still hold the folder of its run."""


class _Taken(threading.local):
    """The folders that this thread has to itself: cells of a study that train together have a thread each."""

    def __init__(self) -> None:
        self.files: dict[Path, TextIO] = {}


_taken = _Taken()


class RunFolder:
    """A run's results on disk.

    Args:
        path: The folder, whether it exists or not.

    Example:
        >>> run = RunFolder.open("runs/digits/2026-01-31_12-00-00")  # doctest: +SKIP
        >>> run.summary().fairness, run.rounds()[-1].measures["reputation"], run.weights(3)  # doctest: +SKIP
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def __fspath__(self) -> str:
        return str(self.path)

    def __repr__(self) -> str:
        return f"RunFolder({str(self.path)!r})"

    @classmethod
    def make(cls, path: str | Path) -> RunFolder:
        """Make the folder, with a number behind its name if another run has it; it is nobody else's from then on.

        Rank 0 makes it; the other ranks hear its name when they meet, and use none before.

        Raises:
            UserError: If it cannot be made.
        """
        path = Path(path)
        if not path.name:
            raise UserError(f"Expected a run to have a folder of its own, but got {path}; give one, as runs/mine.")
        if launch.rank() != 0:
            return cls(path)
        with writable("--run.root"):
            path.parent.mkdir(parents=True, exist_ok=True)
            for name in itertools.chain([path.name], (f"{path.name}_{n}" for n in itertools.count(2))):
                with suppress(FileExistsError):
                    path.with_name(name).mkdir(exist_ok=False)
                    return cls(path.with_name(name))
        raise AssertionError("unreachable")

    def take(self) -> RunFolder:
        """Have the folder to oneself until it is freed (`free`); of the ranks that see it, one alone.

        Raises:
            UserError: If another process still writes into it.
        """
        if self._place not in _taken.files:
            file = self.launch_file.open("a+")
            if not locked(file, PATIENCE):
                file.close()
                raise UserError(
                    f"Expected the run in {self.path} to have ended, but another process goes on with it; end that one "
                    "first, or give another --run.name."
                )
            _taken.files[self._place] = file
        return self

    def sign(self) -> None:
        """Leave the launch's name in the folder, if this thread has taken it: from now on the launch writes there."""
        if (file := _taken.files.get(self._place)) is not None:
            _append(file, launch.identity() or "")
            file.flush()

    @property
    def _place(self) -> Path:
        """The folder's real path, the same whichever way a path to it is written."""
        return self.path.resolve()

    @staticmethod
    def taken() -> Callable[[], list[RunFolder]]:
        """Gives what this thread has to itself, whichever thread asks it."""
        files = _taken.files
        return lambda: [RunFolder(place) for place in files]

    @staticmethod
    def free() -> None:
        """Let others have what this thread took, as the end of its process does."""
        while _taken.files:
            _taken.files.popitem()[1].close()

    @classmethod
    def open(cls, path: str | Path) -> RunFolder:
        """The folder of a run to read from.

        Raises:
            UserError: If there is none.
        """
        run = cls(path)
        if not run.is_run:
            raise UserError(
                f"Expected the folder of a run, with config.yaml, metrics.csv or summary.json, but {path} has none of "
                "them; give runs/<name>/<date and time>."
            )
        return run

    @property
    def is_run(self) -> bool:
        """Whether the folder has something that a run leaves."""
        return any(file.is_file() for file in (self.config_file, self.metrics_file, self.summary_file))

    @property
    def config_file(self) -> Path:
        """The resolved configuration."""
        return self.path / "config.yaml"

    @property
    def launch_file(self) -> Path:
        """Which launches wrote here, a line each."""
        return self.path / "launch"

    def launches(self) -> list[str]:
        """The names of the launches that wrote here, in their order; empty of those that have none."""
        return self.launch_file.read_text("utf-8", "replace").splitlines() if self.launch_file.is_file() else []

    @property
    def starts_file(self) -> Path:
        """When training began or went on here, and with what, a line of JSON each."""
        return self.path / "starts.jsonl"

    def starts(self) -> list[dict[str, Any]]:
        """The lines of `starts_file`, a dict each, but for those cut off; none of runs from Python or old releases."""
        found = []
        lines = self.starts_file.read_text("utf-8", "replace").splitlines() if self.starts_file.is_file() else []
        for line in lines:
            with suppress(ValueError):
                found.append(json.loads(line))
        return [start for start in found if isinstance(start, dict)]

    def start(self, rounds: int, ranks: int, own: Mapping[str, str] = MappingProxyType({})) -> None:
        """Leave the launch's name and what it computes with: from now on it writes here.

        Args:
            rounds: How many the run has already.
            ranks: How many train.
            own: Digests of a user's own code and files that options name, by option.
        """
        at = datetime.now().astimezone().isoformat(timespec="seconds")
        line = json.dumps({"at": at, "rounds": rounds, "ranks": ranks, **circumstances(), "own": dict(own)})
        with written(self.starts_file), self.starts_file.open("a+", encoding="utf-8", errors="replace") as file:
            _append(file, line)
        self.sign()

    def launch(self) -> str | None:
        """The name of the launch that wrote here last; None for none."""
        names = self.launches()
        return (names[-1] or None) if names else None

    @property
    def metrics_file(self) -> Path:
        """A row per round."""
        return self.path / "metrics.csv"

    @property
    def rounds_file(self) -> Path:
        """A line of JSON per round."""
        return self.path / "rounds.jsonl"

    @property
    def summary_file(self) -> Path:
        """The result."""
        return self.path / "summary.json"

    @property
    def scores_file(self) -> Path:
        """What ``test`` or ``validate`` measured."""
        return self.path / "scores.json"

    @property
    def checkpoints(self) -> Path:
        """The checkpoints, ``last.ckpt`` unless the run kept others."""
        return self.path / "checkpoints"

    @property
    def weights_files(self) -> Path:
        """Where everybody's final weights lie."""
        return self.path / "weights"

    def weights_file(self, participant: int) -> Path:
        """A participant's final weights."""
        return self.weights_files / participant_file(participant)

    def predictions_file(self, participant: int) -> Path:
        """A participant's predictions."""
        return self.path / "predictions" / f"participant_{participant}.csv"

    def newest_checkpoint(self) -> Path | None:
        """The checkpoint that was written last, if there is one."""
        newest = choices(self.checkpoints)[0]
        return None if newest == self.checkpoints else newest

    def source(self) -> str | None:
        """The checkpoint of another run that training began from here, if it did."""
        with suppress(UserError):  # damaged, or killed before it was there
            return self.config().get("ckpt_path") if self.starts_file.is_file() else None
        return None

    def complete(self, rounds: int) -> bool:
        """Whether the run has ended after so many rounds: its result and everybody's weights are of its checkpoint.

        A rank that is killed at the end has not written its weights, though rank 0 may have written the result. Where
        other machines have parts of the checkpoint, nobody can tell alone: each asks for its own part (`ended`).
        """
        newest = self.newest_checkpoint()
        try:
            summary = self.summary()
        except UserError:  # none, or it was damaged and is to be written again
            return False
        if newest is None or summary.rounds != rounds:
            return False
        return self._left_after(newest, range(len(summary.examples)), result=True)

    def ended(self, rounds: int, participants: Sequence[int], *, result: bool) -> Stamp | None:
        """The checkpoint of the last round, if what one rank leaves at the end of a run is here and is of it.

        Args:
            rounds: Those of the run.
            participants: Those that the rank hosts.
            result: Whether it is rank 0, which leaves the result.
        """
        newest = self.newest_checkpoint()
        if newest is None:
            return None
        try:
            stamp = stamp_of(newest)
            reached = {stamp.round, self.summary().rounds} if result else {stamp.round}
        except UserError:  # none, or one that is damaged
            return None
        return stamp if reached == {rounds} and self._left_after(newest, participants, result=result) else None

    def _left_after(self, checkpoint: Path, participants: Sequence[int], *, result: bool) -> bool:
        """Whether a checkpoint has participants' parts, and their weights, and the result, were written after it."""
        began = (checkpoint / RUN).stat().st_mtime
        written = [*map(self.weights_file, participants), *([self.summary_file] if result else [])]
        whole = all((checkpoint / participant_file(i)).is_file() for i in participants)
        return whole and all(file.is_file() and file.stat().st_mtime >= began for file in written)

    def config(self) -> dict[str, Any]:
        """The resolved configuration, which runs of the command line have.

        Raises:
            UserError: If there is none.
        """
        if self.metrics_file.is_file() and not self.config_file.exists():
            raise UserError(
                f"Expected {self.config_file}, but there is none: a run from Python has its options in its program."
            )
        return _config(self.config_file)

    def earlier_configs(self) -> list[tuple[int, dict[str, Any]]]:
        """Where the run went on with other options: until which round they were others, and the configuration."""
        numbered = ((file, re.fullmatch(r"config\.(\d+)\.yaml", file.name)) for file in self.path.glob("config.*.yaml"))
        return [(number, _config(file)) for number, file in sorted((int(m[1]), file) for file, m in numbered if m)]

    def rounds(self) -> list[Round]:
        """Every round; who was set aside or silent in it, and callbacks' numbers, as ``rounds.jsonl`` has them.

        Without these where that is not there, or not whole.
        """
        text = _text(self.metrics_file)
        whole = text[: text.rfind("\n") + 1]  # a last row without an end is of a run that was killed, or still writes
        table = csv.DictReader(io.StringIO(whole))
        rows = [row for row in table if row.get("round")]
        if rows and "member/participant_0" not in rows[0]:
            raise UserError(f"Expected {self.metrics_file} to be of a run of rffl_pl, but it has no participants.")
        honest = self._honest()
        matches = map(_PARTICIPANT.fullmatch, table.fieldnames or ())
        places = {match[0]: (match[1], int(match[2])) for match in matches if match}
        rounds: list[Round] = []
        try:
            for row in rows:
                rounds.append(_round(row, places, rounds[-1].members if rounds else None, honest))
        except (ValueError, TypeError, KeyError, OverflowError) as error:
            raise UserError(
                f"Expected {self.metrics_file} to have numbers, but {error}: it is damaged; rounds.jsonl beside it has "
                "the same."
            ) from error
        beside = self._beside()
        for entry in rounds:
            entry.set_aside, entry.silent, entry.numbers = beside.get(entry.number, ([], [], {}))
        return rounds

    def _beside(self) -> dict[int, tuple[list[int], list[int], dict[str, float]]]:
        """By round who was set aside, who was silent, and callbacks' numbers."""
        try:
            entries = [json.loads(line) for line in self.rounds_file.read_bytes().splitlines()]
            return {e["number"]: (e["set_aside"], e["silent"], e.get("numbers", {})) for e in entries}
        except (OSError, ValueError, KeyError, TypeError):
            return {}

    def _honest(self) -> int | None:
        """How many participants are honest; runs from Python have no configuration to say so."""
        if self.config_file.is_file():
            config = self.config()
            try:
                return int(config["federation"]["participants"])
            except (KeyError, TypeError, ValueError) as error:
                raise UserError(
                    f"Expected {self.config_file} to say how many federation.participants there are, but it does not; "
                    "put the number back."
                ) from error
        if self.rounds_file.is_file():
            with self.rounds_file.open("rb") as lines:
                first = next(lines, b"")
            try:
                return int(json.loads(first)["honest"])
            except (KeyError, TypeError, ValueError) as error:
                raise UserError(f"Expected {self.rounds_file} to be the rounds of a run, but it is damaged.") from error
        return self.summary().honest if self.summary_file.is_file() else None

    def summary(self) -> Summary:
        """The result."""
        kinds = _kinds()
        found = {name: value for name, value in _json(self.summary_file).items() if name in kinds}
        odd = next((name for name, value in found.items() if not of_kind(value, kinds[name])), None)
        if odd is not None:
            raise UserError(
                f"Expected {self.summary_file} to be the result of a run, but its {odd} is {reprlib.repr(found[odd])}."
            )
        try:
            summary = Summary(**found)
        except TypeError as error:
            raise UserError(f"Expected {self.summary_file} to be the result of a run, but it is another's.") from error
        for name, value in found.items():
            if isinstance(value, list) and value and len(value) != len(summary.examples):
                raise UserError(
                    f"Expected {self.summary_file} to have a value for each of {len(summary.examples)} participants, "
                    f"but its {name} has {len(value)}."
                )
        return summary

    def write_summary(self, summary: Summary) -> None:
        """Leave the result."""
        _write_json(self.summary_file, asdict(summary))

    def set_result_aside(self) -> None:
        """Where a run goes on behind its result, that is ``summary.<rounds>.json`` from now on."""
        if self.summary_file.is_file():
            with suppress(UserError):  # damaged: the next one takes its place
                self.summary_file.replace(self.summary_file.with_suffix(f".{self.summary().rounds}.json"))

    def scores(self) -> dict[str, Any]:
        """What was measured: ``command``, ``checkpoint``, ``round`` and ``scores``, a list per measure."""
        return _json(self.scores_file)

    def write_scores(self, scores: dict[str, Any]) -> None:
        """Leave what was measured."""
        _write_json(self.scores_file, scores)

    def weights(self, participant: int) -> dict[str, Tensor]:
        """A participant's final weights, a state_dict of the bare network.

        Raises:
            UserError: If they are not there, or no weights.
        """
        path = self.weights_file(participant)
        _check(path)
        try:
            return dict(torch.load(path, map_location="cpu", weights_only=True))
        except Exception as error:  # whatever torch makes of a damaged file
            raise UserError(f"Expected {path} to hold weights, but it cannot be read: it is damaged.") from error

    def write_weights(self, states: Iterable[tuple[int, dict[str, Tensor]]]) -> None:
        """Leave participants' final weights, by the rank that hosts them; of its states one is held at a time."""
        put((self.weights_file(participant), partial(torch.save, state)) for participant, state in states)

    def predictions(self, participant: int) -> list[dict[str, str]]:
        """A participant's predictions, a row per example: ``example``, ``class`` and every class's ``p_<c>``.

        With names of classes also ``label``; where the data says where an example comes from, ``source``.
        """
        file = self.predictions_file(participant)
        _check(file)
        with file.open(encoding="utf-8", newline="") as lines:  # a class's name may have ends of lines in it
            return list(csv.DictReader(lines))


def newest_result(above: Path) -> RunFolder | None:
    """Of the runs in a folder the last one that has a whole result; None where none has."""
    for file in sorted(above.glob("*/summary.json"), reverse=True):
        run = RunFolder(file.parent)
        with suppress(UserError, TypeError):  # half written: the run was interrupted there
            run.summary()
            return run
    return None


def _round(
    row: dict[str, str], places: Mapping[str, tuple[str, int]], before: list[bool] | None, honest: int | None
) -> Round:
    """A round from its row of the metrics, whose columns are a measure's of a participant; empty cells are NaN."""
    if None in row:
        raise ValueError("a row has more cells than there are columns")
    cells: dict[str, dict[int, float]] = {}
    for column, (measure, participant) in places.items():
        cells.setdefault(measure, {})[participant] = float(value) if (value := row[column]) else float("nan")
    members = [bool(member) for _, member in sorted(cells.pop("member").items())]
    total = len(members)
    started = before or [True] * total
    return Round(
        number=int(float(row["round"])),
        honest=total if honest is None else honest,
        members=members,
        removed=[i for i in range(total) if started[i] and not members[i]],
        measures={name: [values.get(i, float("nan")) for i in range(total)] for name, values in cells.items()},
    )


@functools.cache
def _kinds() -> dict[str, Any]:
    """The types of a result's fields, cached: to resolve them takes as long as to read a result."""
    return get_type_hints(Summary)


def _append(file: TextIO, line: str) -> None:
    """Add a line to a file whose last one may be cut off, as earlier releases and killed processes leave it."""
    file.seek(0)
    cut_off = file.read()[-1:] not in ("", "\n")
    file.write("\n" * cut_off + f"{line}\n")


def _check(path: Path) -> None:
    if not path.is_file():
        raise UserError(f"Expected the run to have left {path}, but there is no such file; did it end?")


def _config(file: Path) -> dict[str, Any]:
    text = _text(file)
    try:
        return dict(yaml.load(text, Loader=_LOADER))
    except (yaml.YAMLError, TypeError, ValueError) as error:
        raise UserError(f"Expected {file} to be the YAML of a run, but it is damaged.") from error


def _text(path: Path) -> str:
    _check(path)
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"Expected {path} to be text that can be read, but {error}.") from error


def _json(path: Path) -> dict[str, Any]:
    text = _text(path)
    try:
        return dict(json.loads(text))
    except (ValueError, TypeError) as error:
        raise UserError(f"Expected {path} to be JSON, but it is damaged ({error}).") from error


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(content, indent=1, allow_nan=False) + "\n"
    put([(path, lambda file: file.write(text.encode()))])
