"""Cells: the runs of a study, each found again by what its result depends on."""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import os
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from rffl_pl.configured import PUBLISHED
from rffl_pl.datamodules import FederatedDataModule
from rffl_pl.errors import UserError, writable
from rffl_pl.files import locked, replaced
from rffl_pl.runs import RunFolder
from rffl_pl.runs.circumstances import circumstances
from rffl_pl.runs.facts import rounds_asked
from rffl_pl.runs.folder import newest_result
from rffl_pl.runs.written import code
from rffl_pl.studies.own import (
    WHERE_DATA_LIES,
    code_behind,
    contained,
    digest_of,
    of_package,
    own_in,
    path_digest,
    source_of,
)
from rffl_pl.studies.settings import settings_digest
from rffl_pl.studies.study import Place, Study, place_text

Settings = dict[str, Any]
Resolve = Callable[[list[str]], Settings]

_NO_MATTER = {  # what a result does not depend on
    "": {"run", "ckpt_path", "config", "seed_everything"},
    "trainer": {"enable_progress_bar", "default_root_dir", "logger"},
    "standalone": {"cache_dir"},
}


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One run of a study.

    Attributes:
        place: Its label on every axis.
        seed: Of everything.
        rounds: As many as it is to have.
        words: Of the command line, without the folder.
        settings: A digest of what its words say, see `settings_digest`.
        digest: Of all that its result depends on; the name of its folder.
        mates: A digest of what it has alike with those it can train with as one stack; empty if it trains alone.
        own: What its words name of the user's own, each with the digest it had when this one was taken.
    """

    place: Place
    seed: int
    rounds: int
    words: list[str]
    settings: str
    digest: str
    mates: str = ""
    own: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{place_text(self.place)} seed={self.seed}"


def cells_of(
    study: Study,
    seeds: Sequence[int],
    rounds: int | None,
    resolve: Resolve,
    only: Mapping[str, Iterable[str]] = MappingProxyType({}),
) -> list[Cell]:
    """The cells of a study.

    Args:
        study: The study.
        seeds: One cell each at every place.
        rounds: Instead of the configuration's.
        resolve: Every option that words of a command line stand for; a UserError if they stand for none.
        only: Labels by axis to which it is narrowed.

    Raises:
        UserError: If words say no run, two places are the same run, or no cell is left.
    """
    asked = ["--trainer.max_epochs", str(rounds), "--trainer.max_steps", "-1"] if rounds is not None else []
    known: dict[str, Place] = {}
    within = functools.cache(path_digest)  # which most places name
    cells = []
    for place in study.places(only):
        words = [*study.words(place), *asked]
        try:
            settings = resolve(words)
        except UserError as mistake:
            raise UserError(f"Expected a run at {place_text(place)} of {study.name}, but: {mistake}") from mistake
        matter = _matter(settings)
        base = digest_of(matter, code(), torch.__version__)
        if base in known:
            raise UserError(
                f"Expected every cell of {study.name} to be another run, but {place_text(known[base])} and "
                f"{place_text(place)} have the same settings; exclude one of them."
            )
        known[base] = place
        _check_players(study, settings)
        _check_whole(study, settings)
        length, of_words, mates = _rounds(study, settings), settings_digest(study, place), _mates(settings)
        own = own_in(words, within)
        cells += [
            Cell(
                place=place,
                seed=seed,
                rounds=length,
                words=[*words, "--seed_everything", str(seed), *_named(study, place)],
                settings=of_words,
                digest=hashlib.sha256(f"{base} {seed}".encode()).hexdigest()[:16],
                mates=mates,
                own=own,
            )
            for seed in seeds
        ]
    if not cells:
        raise UserError(f"Expected --only to leave a cell of {study.name}, but exclude leaves out all of them.")
    return cells


def _named(study: Study, place: Place) -> list[str]:
    """What a cell's run is told of where it belongs."""
    return ["--run.study", study.name, "--run.place", json.dumps(dict(place), ensure_ascii=False)]


def _check_players(study: Study, settings: Settings) -> None:
    """See that a study's players are the participants of its runs.

    Raises:
        UserError: If not.
    """
    federation = settings["federation"]
    total = (federation.get("participants") or 1) + (federation.get("adversaries") or 0)
    if study.players and study.players != total:
        raise UserError(
            f"Expected players of {study.name} to be the number of all participants, adversaries too, but it is "
            f"{study.players} and its runs have {total}; mend it."
        )


def _check_whole(study: Study, settings: Settings) -> None:
    """See that a study's runs have results.

    Raises:
        UserError: If they try a batch alone.
    """
    if settings["trainer"].get("fast_dev_run"):
        raise UserError(
            f"Expected the runs of {study.name} to have results, but --trainer.fast_dev_run tries one batch alone; "
            "leave it out."
        )


def _rounds(study: Study, settings: Settings) -> int:
    """How many rounds a run is to have.

    Raises:
        UserError: If nothing says.
    """
    rounds = rounds_asked(settings["trainer"])
    if rounds is None:
        given = settings["trainer"].get("max_epochs") or "null"
        raise UserError(
            f"Expected --trainer.max_epochs in {study.name} to be a number of rounds, but got {given}; give one."
        )
    return rounds


def packed(cells: Sequence[Cell], most: int, jobs: int = 1) -> list[list[Cell]]:
    """The cells in packs of those that can train together, in their order; as even as there are jobs for.

    Args:
        cells: The cells.
        most: How many a pack has at most.
        jobs: How many packs are run at a time.
    """
    alike: dict[str, list[Cell]] = {}
    for cell in cells:
        alike.setdefault((most > 1 and cell.mates) or cell.digest, []).append(cell)
    packs = []
    for mates in alike.values():
        size = min(most, -(-len(mates) // jobs))
        packs += [mates[k : k + size] for k in range(0, len(mates), size)]
    return packs


def _mates(settings: Settings) -> str:
    """`Cell.mates`, a digest of network, schedule, data set and trainer, less what rows of a stack may differ in.

    Loggers of one's own, W&B's too, often know one run in a process.
    """
    model, data, trainer = settings["model"], settings["data"], settings["trainer"]
    on_gpu = trainer["accelerator"] != "cpu" and torch.cuda.is_available()
    stacked = model["engine"] == "stacked" or (model["engine"] == "auto" and on_gpu)
    if not stacked or settings["run"]["wandb"] or trainer.get("logger") not in (None, True, False):
        return ""
    every = inspect.signature(FederatedDataModule.__init__).parameters
    of_its_own = {name: value for name, value in data.get("init_args", {}).items() if name not in every}
    shared = {name: value for name, value in trainer.items() if name not in ("max_epochs", "callbacks")}
    return digest_of(model, data["class_path"], of_its_own, data.get("dict_kwargs"), shared)


def _matter(settings: Settings) -> Settings:
    """The options that matter, and what lies in the user's files that they name."""
    matter = {
        group: {name: value for name, value in options.items() if name not in _NO_MATTER.get(group, ())}
        if isinstance(options, dict)
        else options
        for group, options in settings.items()
        if group not in _NO_MATTER[""]
    }
    data = matter["data"]
    published = of_package(data["class_path"])
    if published:
        given = {name: value for name, value in data.get("init_args", {}).items() if name not in WHERE_DATA_LIES}
        matter["data"] = data | {"init_args": given}
    return dict(_settled(matter, published))


def _settled(value: Any, published: bool, option: str = "") -> Any:
    """Canonical form: package classes by name, a user's code and files by their content."""
    if isinstance(value, dict):
        inner = {key: _settled(item, published, f"{option}.{key}".lstrip(".")) for key, item in value.items()}
        return inner | ({"class_path": _class(value["class_path"])} if "class_path" in value else {})
    if isinstance(value, list):
        return [_settled(item, published, option) for item in value]
    return (contained(option, value, published) or _function(value)) if isinstance(value, str) else value


def _class(path: str) -> str:
    module, _, within = path.partition(".")
    if module == "rffl_pl":
        return path.rpartition(".")[2]
    return f"{path} {source_of(module)}" if within and module not in PUBLISHED else path


def _function(said: str) -> str:
    """A text; of what names a function of a user's own, which an option of a class may take, how it is written too."""
    source = code_behind(said)
    return f"{said} {source}" if source else said


_HELD: set[Path] = set()
"""The folders of the cells that this process runs."""


class CellFolder:
    """Where a cell's runs lie: more than one if it was interrupted, each with a folder of its own.

    Args:
        root: Folder of all cells.
        digest: The cell's.
    """

    def __init__(self, root: Path, digest: str) -> None:
        self.root, self.digest = root, digest
        self.path = root / digest
        self.log = self.path / "log.txt"

    @contextmanager
    def held(self, patience: float = 0) -> Iterator[bool]:
        """Whether the cell is this process's while the context lasts; the kernel lets go of it when a process dies.

        Args:
            patience: Seconds to wait for another process that holds it.

        Raises:
            UserError: If there is no writing.
        """
        with writable("--root"):
            self.path.mkdir(parents=True, exist_ok=True)
            file = (self.path / "lock").open("ab", buffering=0)
        with file:
            mine = locked(file, patience)
            if mine:
                with suppress(OSError):  # on a full disk it holds all the same, without a name
                    file.truncate(0)
                    file.write(f"{os.getpid()} on {platform.node()}\n".encode())
                _HELD.add(self.path.resolve())
            try:
                yield mine
            finally:
                if mine:
                    _HELD.remove(self.path.resolve())

    def is_held(self) -> bool:
        """Whether this process holds it: any other run in its folder would be taken for the cell's."""
        return self.path.resolve() in _HELD

    def finished(self) -> RunFolder | None:
        """The run that has a whole result, if there is one."""
        return newest_result(self.path)

    def runs(self) -> set[Path]:
        """The folders of the runs that began."""
        return {path.parent for path in self.path.glob("*/config.yaml")}

    def set_aside(self, runs: Iterable[Path]) -> None:
        """Have runs be none of the cell's, neither finished nor to be gone on with; what they left stays to be seen."""
        for run in runs:
            (self.path / "changed").mkdir(exist_ok=True)
            run.rename(self.path / "changed" / run.name)

    def checkpoints(self) -> Path | None:
        """The folder of an interrupted run with the newest checkpoint: where that is damaged the one before will do."""
        runs = map(RunFolder, self.runs())
        newest = {path: run.checkpoints for run in runs if (path := run.newest_checkpoint())}
        return newest[max(newest, key=lambda path: path.stat().st_mtime)] if newest else None

    def words(self, cell: Cell) -> list[str]:
        """The whole command line of a cell, which goes on where it was interrupted."""
        checkpoints = self.checkpoints()
        resumed = ["--ckpt_path", str(checkpoints or "null")]  # never that of a configuration that a base names
        where = ["--run.root", str(self.root), "--run.name", self.digest, "--trainer.enable_progress_bar", "false"]
        return ["fit", *cell.words, *where, *resumed]

    def record(self) -> dict[str, Any]:
        """How long the cell took, in all its attempts, on which machine and with which code."""
        try:
            return dict(json.loads((self.path / "cell.json").read_text(encoding="utf-8")))
        except (OSError, ValueError):
            return {}

    def note(self, seconds: float, words: list[str]) -> None:
        """Add an attempt to the record, where the disk has room for one."""
        seconds = round(self.record().get("seconds", 0.0) + seconds, 3)
        self._record({"seconds": seconds, **circumstances(), "words": words})

    def fail(self, sentence: str) -> None:
        """Add to the record why its last attempt failed."""
        self._record(self.record() | {"failed": sentence})

    def _record(self, record: dict[str, Any]) -> None:
        with suppress(OSError), replaced(self.path / "cell.json") as partial:  # how the attempt ended matters more
            partial.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
