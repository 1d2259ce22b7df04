"""The base of data modules that read rows with labels from files."""

from __future__ import annotations

import json
import os
import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from lightning.pytorch.utilities.rank_zero import rank_zero_warn

from rffl_pl import launch
from rffl_pl.datamodules.base import FederatedDataModule
from rffl_pl.datamodules.class_names import column_name, given_classes
from rffl_pl.datamodules.columns import gaps_among
from rffl_pl.datamodules.group_names import check_groups
from rffl_pl.datamodules.labelled import Groups, Labelled, Lines, by_number, check_alike, label_of, written_alike
from rffl_pl.datamodules.row_files import Record, check_characters, records
from rffl_pl.datamodules.shards import held_out
from rffl_pl.datamodules.splits import OWN, check_group
from rffl_pl.errors import UserError
from rffl_pl.federation import Federation

NUMBER = "{participant}"
"""Stands for a participant's number in the name of its file."""


class Found(NamedTuple):
    """What is read of a row, its label, the group that it is of, where that is asked for, and the line it ends in."""

    content: Any
    label: str
    group: str
    line: int


OwnRows = Callable[[int], Labelled]
"""From a participant's number to the rows that are its own."""


class LabelledFile(FederatedDataModule):
    """Rows with labels of a ``.csv``, ``.tsv`` or ``.jsonl`` file.

    In a ``.csv`` file a field with commas, quotation marks or several lines stands in quotation marks, and those within
    are doubled; in a ``.tsv`` file quotation marks are part of the text. Rows with nothing in any field are skipped.

    Labels may be any strings or numbers; sorted, they are the classes. With ``--data.split OWN`` every participant has
    a training file of its own, which the rank that hosts it reads and which need not be anywhere else. So may be its
    test file; one that is the same everywhere has the classes as its labels.

    Args:
        federation: Who takes part.
        train_file: The training rows; under ``OWN`` with ``{participant}`` for a participant's number,
            ``train_{participant}.csv``.
        test_file: The test rows; by default `test_share` of the training rows. Under ``OWN`` to be given, with
            ``{participant}`` where everybody has its own.
        test_share: Share of the training rows that become test rows without a `test_file`; one of every class stays for
            training.
        label: Name of the column with the label.
        classes: The labels that there are, in their order, where no file that all read has all of them; others are
            refused. Those that YAML takes for something else in quotes, ``['yes', 'no']`` or ``['007', '008']``.
        encoding: Of these files, and of others with such rows; those with a sentence per line are UTF-8.
        group: Name of a column of the training file that says which rows belong together, for ``--data.split GROUPS``.
        kwargs: See `FederatedDataModule`.

    Raises:
        UserError: If an argument is out of range, and in `setup` if a file cannot be read, lacks a column, has a row
            without a label, or with a word for none where others are numbers, writes one number in two ways, has its
            first line twice, has one class only or, without a test file, one for every row, or a label in that alone.
    """

    num_classes = 0
    places: Sequence[str] = ("train_file", "test_file")
    validation_remedy = ""

    noun: ClassVar[str] = "row"
    """What a row is called in messages."""

    def __init__(
        self,
        federation: Federation,
        *,
        train_file: str,
        test_file: str | None = None,
        test_share: float = 0.1,
        label: str = "label",
        classes: list[str | int | float | bool] | None = None,
        encoding: str = "utf-8",
        group: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(federation, **kwargs)
        if not 0 < test_share < 1:
            raise UserError(f"Expected --data.test_share to lie between 0 and 1, but got {test_share}; try 0.1.")
        if not _known(encoding):
            raise UserError(f"Expected --data.encoding to be one that Python knows, but got {encoding!r}; try utf-8.")
        self.train_file, self.test_file = os.fspath(train_file), None if test_file is None else os.fspath(test_file)
        self.test_share = test_share
        self.label, self.encoding = column_name(label), encoding
        self.given_classes = given_classes(classes)
        check_group(group, self.split)
        self.group = None if group is None else column_name(group)
        if self.group == self.label:
            raise UserError(f"Expected --data.group and --data.label to be two columns, but got {group} for both.")

    @property
    @abstractmethod
    def columns(self) -> Mapping[str, str]:
        """The columns that are read beside the label, each with what to do where a file has none of that name."""

    @abstractmethod
    def content(self, record: Record, where: str) -> Any:
        """What is read of a row, the ``record`` at ``where``, beside its label.

        Raises:
            UserError: If it cannot be used.
        """

    def parts(self) -> tuple[Labelled | OwnRows, Labelled | OwnRows]:
        """Training and test rows, or who reads a participant's own when they are asked for; sets the classes."""
        self._check_apart()
        self.check_numbered()
        if isinstance(self.split, OWN):
            return self._parts_apart()
        given = f"--data.train_file {self.train_file}"
        train = self._rows(Path(self.train_file), "--data.train_file")
        self._take_classes(train, given)
        if self.test_file is None:
            train, test = self._divided(train)
            return self._labelled(train, given), self._labelled(test, given)
        test = self._rows(Path(self.test_file), "--data.test_file")
        if not test:
            raise UserError(f"Expected test {self.noun}s in --data.test_file {self.test_file}, but it has none.")
        return self._labelled(train, given), self._labelled(test, f"--data.test_file {self.test_file}")

    def check_numbered(self) -> None:
        """See that files have a participant's number in their names for ``OWN`` alone.

        Raises:
            UserError: If one has for another split.
        """
        own = [file for file in (self.train_file, self.test_file) if file is not None and NUMBER in file]
        if own and not isinstance(self.split, OWN):
            raise UserError(
                f"Expected --data.split OWN with {NUMBER} in the name of a file, but got {type(self.split).__name__} "
                f"and {own[0]}; give OWN, or a file that all share."
            )

    def _check_apart(self) -> None:
        """See that no file, whosever it is, is for training and for the test."""
        if self.test_file is None:
            return
        trained, tested = self._places_of(self.train_file), self._places_of(self.test_file)
        both = next((place for file, place in tested.items() if file in trained), None)
        if both is not None:
            raise UserError(
                f"Expected --data.test_file to be another file than --data.train_file, but both are {both}; a model "
                "would be measured on what it was trained on; give another"
                f"{'' if isinstance(self.split, OWN) else ', or leave it out'}."
            )

    def _places_of(self, file: str) -> dict[object, str]:
        """The real path of a file, or with a number in its name everybody's, by what tells a file from others."""
        everybodys = range(self.federation.total) if NUMBER in file else range(1)
        places = [_place(file.replace(NUMBER, str(i))) for i in everybodys]
        return {_itself(place): place for place in places}

    def _parts_apart(self) -> tuple[OwnRows, Labelled | OwnRows]:
        """What reads a participant's training rows when asked to, and what reads its test rows, or everybody's."""
        if self.test_file is None or NUMBER not in self.train_file:
            raise UserError(
                f"Expected --data.train_file with {NUMBER} in its name and --data.test_file with --data.split OWN, but "
                f"got {self.train_file} and {self.test_file or 'none'}; give for instance train_{NUMBER}.csv and "
                f"{self.test_file or 'test.csv'}."
            )
        self._tell_of_more()
        train = partial(self._apart, self.train_file, "--data.train_file")
        if NUMBER in self.test_file:
            if self.given_classes is None:
                raise UserError(
                    f"Expected --data.classes with --data.test_file {self.test_file}, but got none; give all labels "
                    "there are, for instance --data.classes '[negative, positive]': nobody reads everybody's files."
                )
            self._take_classes([], "")
            return train, partial(self._apart, self.test_file, "--data.test_file")
        test = self._rows(Path(self.test_file), "--data.test_file")
        self._take_classes(test, f"--data.test_file {self.test_file}")
        return train, self._labelled(test, f"--data.test_file {self.test_file}")

    def _tell_of_more(self) -> None:
        """Warn, once on each machine, where there is a file of one participant more than there are."""
        total = self.federation.total
        for option, file in (("train_file", self.train_file), ("test_file", self.test_file or "")):
            more = file.replace(NUMBER, str(total))
            if NUMBER in file and launch.local_rank() == 0 and os.path.exists(_place(more)):
                warnings.warn(
                    f"--data.{option} is read of {total} participants, 0 to {total - 1}, but there is also {more}, "
                    "which nobody reads; raise --federation.participants if it is to take part.",
                    stacklevel=2,
                )

    def _apart(self, file: str, option: str, participant: int) -> Labelled:
        """A participant's own rows."""
        path = Path(file.replace(NUMBER, str(participant)))
        return self._labelled(self._rows(path, option), f"{option} {path}")

    def _take_classes(self, rows: Sequence[Found], where: str) -> None:
        """Have the labels of these rows be the classes, unless they are given."""
        names = self.given_classes or sorted({row.label for row in rows}, key=by_number)
        if len(names) < 2:
            raise UserError(
                f"Expected at least two classes in column {self.label} of {where}, but there is "
                f"{f'{names[0]} alone' if names else 'none'}; name another column with --data.label."
            )
        if self.given_classes is None:
            self._check_gaps(names, rows, where)
            two = ", or name both by --data.classes if they are two"
            check_alike(names, "classes", f"column {self.label} of {where}", two)
        self.class_names, self.num_classes = tuple(names), len(names)

    def _check_gaps(self, names: Sequence[str], rows: Sequence[Found], where: str) -> None:
        """Tell of a word for a label that is missing, which is a class of its own; where others are numbers refuse it.

        Among words it may be meant, as in none, mild and severe.
        """
        gaps, among_numbers = gaps_among(names)
        if gaps and among_numbers:
            raise UserError(
                f"Expected a number as label in column {self.label} of {where}, as other {self.noun}s have, but some "
                f"have {gaps[0]!r}; take those out, or say with --data.classes that it is a class."
            )
        for gap in gaps:
            rank_zero_warn(
                f"In column {self.label} of {where} {gap!r} is a class of its own, of "
                f"{sum(row.label == gap for row in rows)} {self.noun}s; take them out if they have no label, or say "
                "with --data.classes that it is a class."
            )

    def _labelled(self, rows: Sequence[Found], where: str) -> Labelled:
        """Rows, and their labels by their numbers among the classes."""
        numbers = {name: number for number, name in enumerate(self.class_names)}
        unknown = sorted({row.label for row in rows} - numbers.keys())
        if unknown:
            others = "test" if isinstance(self.split, OWN) else "training"
            known = "--data.classes" if self.given_classes else f"those of the {others} {self.noun}s"
            more = f" and {len(self.class_names) - 5} more" if len(self.class_names) > 5 else ""
            raise UserError(
                f"Expected the labels in {where} among {known}, {', '.join(self.class_names[:5])}{more}, but "
                f"{unknown[0]} is {self._remedy(unknown[0])}."
            )
        return Labelled(
            rows=[row.content for row in rows],
            labels=[numbers[row.label] for row in rows],
            groups=None if self.group is None else Groups([row.group for row in rows]),
            places=Lines("line", (row.line for row in rows)),
        )

    def _remedy(self, unknown: str) -> str:
        """What a label that is no class is instead, and what to do."""
        if alike := written_alike(unknown, self.class_names):
            return f"{alike} written in another way; write them alike"
        correct, name_all = "correct it, or --data.label", "name all labels there are by --data.classes"
        if self.given_classes:
            return f"not; {correct}"
        # A test file in common may well lack a class that somebody has.
        return f"not; {name_all}, or {correct}" if isinstance(self.split, OWN) else f"not; {correct}, or {name_all}"

    def _divided(self, rows: Sequence[Found]) -> tuple[list[Found], list[Found]]:
        """Training and test rows: some at random, but of every class one stays for training."""
        labels = [row.label for row in rows]
        trained, tested = held_out(len(rows), labels, self.test_share, self.federation.seed_for("test"))
        if not tested:
            raise UserError(
                f"Expected --data.train_file {self.train_file} to have a test {self.noun} beside one of every class, "
                f"but each of its {len(rows)} {self.noun}s has a class of its own in column {self.label}; name another "
                "column with --data.label, or give --data.test_file."
            )
        return [rows[i] for i in trained], [rows[i] for i in tested]

    def unlabelled(self, file: str, option: str) -> dict[int, Any]:
        """What is read of the rows of a file whose labels, if it has any, nobody reads, by the lines they end in.

        Raises:
            UserError: If the file or a row cannot be used, or there is none.
        """
        found = records(Path(file), option, self.encoding, self.columns)
        rows = {line: self.content(record, f"line {line} of {option} {file}") for line, record in found}
        if not rows:
            raise UserError(f"Expected {self.noun}s in {option} {file}, but it has none.")
        return rows

    def _rows(self, path: Path, option: str) -> list[Found]:
        """What is read of every row."""
        named = {self.label: "label"}
        if self.group is not None and option == "--data.train_file":
            named[self.group] = "group"
        needed = {**self.columns, **{column: f"name yours with --data.{what}" for column, what in named.items()}}
        rows = []
        file = f"{option} {path}"
        for line, record in records(path, option, self.encoding, needed):
            content = self.content(record, f"line {line} of {file}")
            names = {column: _name(record[column], what, column, line, file) for column, what in named.items()}
            rows.append(Found(content, names[self.label], names.get(self.group or "", ""), line))
        if self.group in named:
            check_groups([row.group for row in rows], f"column {self.group} of {file}")
        return rows


def _name(given: Any, what: str, column: str, line: int, file: str) -> str:
    """What a label or a group, as ``what`` says, is called.

    Raises:
        UserError: If there is none, or one that no file can take.
    """
    name = label_of(given)
    if not name:
        got = "none" if given is None or isinstance(given, str) else json.dumps(given)
        raise UserError(f"Expected a {what} in column {column} of {file}, but line {line} has {got}.")
    check_characters(name, column, f"line {line} of {file}")
    return name


def _place(file: str) -> str:
    """A file's own path, without links."""
    try:
        return os.path.realpath(os.path.expanduser(file))
    except ValueError:  # what no file can be called, as reading it says
        return file


def _itself(place: str) -> object:
    """What tells a file from others, whose names may be hard links; of one that is not here, its path."""
    try:
        found = os.stat(place)
    except (OSError, ValueError):
        return place
    return found.st_dev, found.st_ino


def _known(encoding: str) -> bool:
    """Whether there is such an encoding of text."""
    try:
        b"a".decode(encoding)
    except UnicodeError:  # there is, of other bytes
        return True
    except (LookupError, ValueError):
        return False
    return True
