"""Your own sentences in a CSV or JSONL file."""

from __future__ import annotations

import csv
import json
import math
import os
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from rffl_pl.datamodules.class_names import given_classes
from rffl_pl.datamodules.shards import held_out
from rffl_pl.datamodules.splits import OWN
from rffl_pl.datamodules.text import OwnTexts, TextDataModule, Texts, read_lines
from rffl_pl.errors import UserError
from rffl_pl.federation import Federation

NUMBER = "{participant}"
"""Stands for a participant's number in the name of its file."""

Rows = list[tuple[str, str]]
"""Sentences, each with its label."""


class TextFile(TextDataModule):
    """Sentences and labels from two columns of a ``.csv``, ``.tsv`` or ``.jsonl`` file.

    In a ``.csv`` file a field with commas, quotation marks or several lines stands in quotation marks, and those within
    are doubled; in a ``.tsv`` file quotation marks are part of the text.

    Labels may be any strings or numbers; sorted, they are the classes. With ``--data.split OWN`` every participant has
    a training file of its own, which the rank that hosts it reads and which need not be anywhere else. So may be its
    test file; one that is the same everywhere has the classes as its labels. The vocabulary's file is the same
    everywhere.

    Args:
        federation: Who takes part.
        train_file: The training sentences; under ``OWN`` with ``{participant}`` for a participant's number,
            ``train_{participant}.csv``.
        test_file: The test sentences; by default `test_share` of the training sentences. Under ``OWN`` to be given,
            with ``{participant}`` where everybody has its own.
        test_share: Share of the training sentences that become test sentences without a `test_file`; one of every class
            stays for training.
        text: Name of the column with the sentence.
        label: Name of the column with the label.
        classes: The labels that there are, in their order, where no file that all read has all of them; others are
            refused. Those that YAML takes for something else in quotes, ``['yes', 'no']`` or ``['007', '008']``.
        encoding: Of `train_file` and `test_file`; other files are UTF-8.
        kwargs: See `TextDataModule`.

    Raises:
        UserError: If an argument is out of range, and in `setup` if a file cannot be read, lacks a column, has a row
            without text or label, has one class only or one for every sentence, or a label in the test file alone.
    """

    num_classes = 0
    places = ("train_file", "test_file")
    validation_remedy = ""

    def __init__(
        self,
        federation: Federation,
        *,
        train_file: str,
        test_file: str | None = None,
        test_share: float = 0.1,
        text: str = "text",
        label: str = "label",
        classes: list[str | int | float | bool] | None = None,
        encoding: str = "utf-8",
        **kwargs: Any,
    ) -> None:
        super().__init__(federation, **kwargs)
        if not 0 < test_share < 1:
            raise UserError(f"Expected --data.test_share to lie between 0 and 1, but got {test_share}; try 0.1.")
        if text == label:
            raise UserError(f"Expected --data.text and --data.label to be two columns, but got {text} for both.")
        if not _known(encoding):
            raise UserError(f"Expected --data.encoding to be one that Python knows, but got {encoding!r}; try utf-8.")
        self.train_file, self.test_file = os.fspath(train_file), None if test_file is None else os.fspath(test_file)
        self.test_share = test_share
        self.text, self.label, self.encoding = text, label, encoding
        self.given_classes = given_classes(classes)

    def read(self) -> tuple[Texts | OwnTexts, None, Texts | OwnTexts]:
        self._check_apart()
        if isinstance(self.split, OWN):
            return self._read_apart()
        numbered = [file for file in (self.train_file, self.test_file) if file is not None and NUMBER in file]
        if numbered:
            raise UserError(
                f"Expected --data.split OWN with {NUMBER} in the name of a file, but got {type(self.split).__name__} "
                f"and {numbered[0]}; give OWN, or a file that all share."
            )
        given = f"--data.train_file {self.train_file}"
        train = self._rows(Path(self.train_file), "--data.train_file")
        self._take_classes(train, given)
        if self.test_file is None:
            train, test = self._divided(train)
            return self._texts(train, given), None, self._texts(test, given)
        test = self._rows(Path(self.test_file), "--data.test_file")
        if not test:
            raise UserError(f"Expected test sentences in --data.test_file {self.test_file}, but it has none.")
        return self._texts(train, given), None, self._texts(test, f"--data.test_file {self.test_file}")

    def _check_apart(self) -> None:
        """See that no file, whosever it is, is for training and for the test."""
        if self.test_file is None:
            return
        trained, tested = self._places_of(self.train_file), self._places_of(self.test_file)
        both = next((place for place in tested if place in trained), None)
        if both is not None:
            raise UserError(
                f"Expected --data.test_file to be another file than --data.train_file, but both are {both}; a model "
                "would be measured on what it was trained on; give another"
                f"{'' if isinstance(self.split, OWN) else ', or leave it out'}."
            )

    def _places_of(self, file: str) -> dict[str, None]:
        """Where it lies, or each participant's of that name, however it is written."""
        everybodys = range(self.federation.total) if NUMBER in file else range(1)
        return dict.fromkeys(_place(file.replace(NUMBER, str(i))) for i in everybodys)

    def _read_apart(self) -> tuple[OwnTexts, None, Texts | OwnTexts]:
        """Of each participant the training sentences when they are asked for; test sentences likewise or at once."""
        if self.test_file is None or NUMBER not in self.train_file:
            raise UserError(
                f"Expected --data.train_file with {NUMBER} in its name and --data.test_file with --data.split OWN, but "
                f"got {self.train_file} and {self.test_file or 'none'}; give for instance train_{NUMBER}.csv and "
                f"{self.test_file or 'test.csv'}."
            )
        train = partial(self._apart, self.train_file, "--data.train_file")
        if NUMBER in self.test_file:
            if self.given_classes is None:
                raise UserError(
                    f"Expected --data.classes with --data.test_file {self.test_file}, but got none; give all labels "
                    "there are, for instance --data.classes '[negative, positive]': nobody reads everybody's files."
                )
            self._take_classes([], "")
            return train, None, partial(self._apart, self.test_file, "--data.test_file")
        test = self._rows(Path(self.test_file), "--data.test_file")
        self._take_classes(test, f"--data.test_file {self.test_file}")
        return train, None, self._texts(test, f"--data.test_file {self.test_file}")

    def _apart(self, file: str, option: str, participant: int) -> Texts:
        """A participant's own sentences."""
        path = Path(file.replace(NUMBER, str(participant)))
        return self._texts(self._rows(path, option), f"{option} {path}")

    def _take_classes(self, rows: Rows, where: str) -> None:
        """Have the labels of these sentences be the classes, unless they are given."""
        names = self.given_classes or sorted({label for _, label in rows}, key=by_number)
        if len(names) < 2:
            raise UserError(
                f"Expected at least two classes in column {self.label} of {where}, but there is "
                f"{f'{names[0]} alone' if names else 'none'}; name another column with --data.label."
            )
        self.class_names, self.num_classes = tuple(names), len(names)

    def _texts(self, rows: Rows, where: str) -> Texts:
        """Sentences, and their labels by their numbers among the classes."""
        numbers = {name: number for number, name in enumerate(self.class_names)}
        unknown = sorted({label for _, label in rows} - numbers.keys())
        if unknown:
            others = "test" if isinstance(self.split, OWN) else "training"
            known = "--data.classes" if self.given_classes else f"those of the {others} sentences"
            raise UserError(
                f"Expected the labels in {where} among {known}, {', '.join(self.class_names[:5])}, but {unknown[0]} is "
                "not; correct it, or --data.label."
            )
        return Texts(sentences=[text for text, _ in rows], labels=[numbers[label] for _, label in rows])

    def _divided(self, rows: Rows) -> tuple[Rows, Rows]:
        """Training and test sentences: some at random, but of every class one stays for training."""
        labels = [label for _, label in rows]
        trained, tested = held_out(len(rows), labels, self.test_share, self.federation.seed_for("test"))
        if not tested:
            raise UserError(
                f"Expected --data.train_file {self.train_file} to have a test sentence beside one of every class, but "
                f"each of its {len(rows)} sentences has a class of its own in column {self.label}; name another column "
                "with --data.label, or give --data.test_file."
            )
        return [rows[i] for i in trained], [rows[i] for i in tested]

    def _rows(self, path: Path, option: str) -> Rows:
        """Sentence and label of every row."""
        rows = []
        for number, row in self._records(path.expanduser(), option):
            for column in (self.text, self.label):
                if column not in row:
                    raise UserError(
                        f"Expected the columns {self.text} and {self.label} in {option} {path}, but {number} has "
                        f"{', '.join(map(str, row)) or 'none'}; name yours with --data.text and --data.label."
                    )
            text, label = row[self.text], label_of(row[self.label])
            if not isinstance(text, str) or not text.strip():
                raise UserError(f"Expected a sentence in column {self.text} of {option} {path}, but {number} has none.")
            if not label:
                given = row[self.label]
                got = "none" if given is None or isinstance(given, str) else json.dumps(given)
                raise UserError(f"Expected a label in column {self.label} of {option} {path}, but {number} has {got}.")
            self._check_characters(text + label, f"{number} of {option} {path}")
            rows.append((text, label))
        return rows

    def _check_characters(self, text: str, where: str) -> None:
        """See that no half of a character stands alone, which JSON can say and no tokenizer or file can take."""
        half = re.search("[\ud800-\udfff]", text)
        if half is not None:
            raise UserError(
                f"Expected whole characters in columns {self.text} and {self.label}, but {where} has "
                f"\\u{ord(half[0]):04x}, half of one; correct it, or leave the line out."
            )

    def _records(self, path: Path, option: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Every row by its columns, with the words for where it stands."""
        kind = path.suffix.lower()
        if kind not in (".csv", ".tsv", ".jsonl"):
            raise UserError(f"Expected {option} to be a .csv, .tsv or .jsonl file, but got {path}.")
        lines = read_lines(path, option, self.encoding)
        if kind == ".jsonl":
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield f"line {number}", self._parsed(line, f"line {number} of {option} {path}")
            return
        blank = next((number for number, line in enumerate(lines) if line.strip()), 0)
        how: dict[str, Any] = {"delimiter": "\t", "quoting": csv.QUOTE_NONE} if kind == ".tsv" else {"strict": True}
        reader = csv.DictReader((line + "\n" for line in lines[blank:]), **how)
        try:
            names = list(reader.fieldnames or ())
            if twice := [name for name in (self.text, self.label) if names.count(name) > 1]:
                raise UserError(
                    f"Expected a column {twice[0]} once in {option} {path}, but its first line has it "
                    f"{names.count(twice[0])} times; give the others another name."
                )
            if names and not {self.text, self.label} <= {*names}:
                yield "its first line", dict.fromkeys(names)
            for row in reader:
                number = blank + reader.line_num
                if None in row:
                    raise UserError(
                        f"Expected {len(names)} fields in every line of {option} {path}, as in its first, but line "
                        f"{number} has {len(names) + len(row[None])}; "
                        f"{'take tabs out of fields' if kind == '.tsv' else 'put fields with commas in quotes'}."
                    )
                yield f"line {number}", row
        except csv.Error as error:
            raise UserError(
                f"Expected {option} {path} to be a {kind} file with a line for each row, but line "
                f"{blank + reader.line_num + 1} cannot be read ({error}); save it with the line ends of Unix or "
                "Windows, shorter fields, and quotation marks within a field in quotes and doubled."
            ) from error

    @staticmethod
    def _parsed(line: str, where: str) -> dict[str, Any]:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(f"Expected a JSON object in {where}, but it is no JSON ({error}).") from error
        if not isinstance(row, dict):
            raise UserError(f"Expected a JSON object in {where}, but got {type(row).__name__}.")
        return row


def label_of(given: Any) -> str:
    """A label as a class is called: text, a number or a truth; of what is none nothing."""
    if isinstance(given, float):
        given = (int(given) if given.is_integer() else given) if math.isfinite(given) else ""
    return str(given).strip() if isinstance(given, str | int | float) else ""


def _place(file: str) -> str:
    """A file's own path, without links."""
    try:
        return os.path.realpath(os.path.expanduser(file))
    except ValueError:  # what no file can be called, as reading it says
        return file


def _known(encoding: str) -> bool:
    """Whether there is such an encoding of text."""
    try:
        b"a".decode(encoding)
    except UnicodeError:  # there is, of other bytes
        return True
    except (LookupError, ValueError):
        return False
    return True


def by_number(label: str) -> tuple[bool, float, str]:
    """Numbers by their value, before other labels."""
    try:
        value = float(label)
    except ValueError:
        value = math.nan
    return not math.isfinite(value), value if math.isfinite(value) else 0.0, label
