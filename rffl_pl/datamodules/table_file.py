"""Your own table in a CSV or JSONL file."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.utilities.rank_zero import rank_zero_warn

from rffl_pl.datamodules.class_names import column_names, listed
from rffl_pl.datamodules.columns import Columns, Row, text_of
from rffl_pl.datamodules.labelled import Labelled, Lines, Placed
from rffl_pl.datamodules.labelled_file import LabelledFile, OwnRows
from rffl_pl.datamodules.own import Own
from rffl_pl.datamodules.reading import Reader
from rffl_pl.datamodules.row_files import Record, check_characters, columns_of
from rffl_pl.datamodules.sources import Sources
from rffl_pl.datamodules.splits import OWN
from rffl_pl.errors import UserError, nearest
from rffl_pl.federation import Federation


class TableFile(LabelledFile):
    """Numbers and categories from the columns of a ``.csv``, ``.tsv`` or ``.jsonl`` file, and a label from another one.

    A row is an input ``[entries]``. A column of numbers is standardised, (x - mean) / deviation. A gap in it, an empty
    field, ``NA``, ``N/A``, ``NaN``, ``null``, ``None`` or ``?``, is 0, which is the mean; where the training rows have
    gaps a second entry is 1 in them. A column of texts has an entry for each text of the training rows, which is 1 in
    rows that have it; another text, or none, is zeros. Numbers that are `categories` go by their values, ``1`` as
    ``1.0``. A column of which a tenth or more of the rows that have a value have such other texts is warned of.

    With ``--data.split OWN`` nobody reads everybody's rows, and means, deviations and texts come from a file that is
    the same everywhere.

    Args:
        federation: Who takes part.
        columns_file: A file with such rows, which need no labels, from which means, deviations and texts are taken; by
            default the training rows, under ``OWN`` to be given. Two rows with the mean less and plus the deviation say
            them as well.
        features: The columns that are read; by default all of `columns_file`, or of the training file, but the label
            and the group.
        leave_out: Columns that are not read, where `features` does not say which are.
        categories: Columns of which each value is a category, though they be numbers, or more than 100 texts.
        predict_file: For ``predict``: a file with such rows, which need no labels, instead of the test set.
        kwargs: See `LabelledFile`.

    Raises:
        UserError: As `LabelledFile`, and if a column is none of the file, has no value, numbers and texts, numbers
            written as ``1,5``, or more than 100 texts unasked.
    """

    places = ("columns_file", "predict_file")
    columns_read: Columns
    """How rows become inputs, once they have been read."""

    def __init__(
        self,
        federation: Federation,
        *,
        columns_file: str | None = None,
        features: list[str | int | float | bool] | str | None = None,
        leave_out: list[str | int | float | bool] | str | None = None,
        categories: list[str | int | float | bool] | str | None = None,
        predict_file: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(federation, **kwargs)
        self.columns_file = None if columns_file is None else os.fspath(columns_file)
        self.predict_file = None if predict_file is None else os.fspath(predict_file)
        self.features = column_names("--data.features", features)
        self.leave_out = column_names("--data.leave_out", leave_out)
        self.categories = column_names("--data.categories", categories)
        if features is not None and leave_out is not None:
            raise UserError(
                "Expected --data.features or --data.leave_out, but got both; leave one out: what is no feature is not "
                "read."
            )
        if features is not None and not self.features:
            raise UserError("Expected --data.features to name at least one column, but got none.")
        if self.label in self.features:
            raise UserError(
                f"Expected --data.label to be another column than those of --data.features, but got {self.label} in "
                "both; a model would be told what it is to find out."
            )
        self.names: list[str] = []

    @property
    def columns(self) -> Mapping[str, str]:
        return {name: f"add it, or leave it out with --data.leave_out {listed(name)}" for name in self.names}

    def content(self, record: Record, where: str) -> Row:
        given = [*map(record.__getitem__, self.names)]
        if _are_plain(given):
            return Row(where, [*map(str.strip, given)])
        return Row(where, [self._value(value, name, where) for value, name in zip(given, self.names, strict=True)])

    def load(self) -> Sources:
        path, option = self._reference()
        self.names = self._chosen(columns_of(path, option, self.encoding), f"{option} {path}")
        train, test = self.parts()
        if self.columns_file is not None:
            rows = [*self.unlabelled(self.columns_file, "--data.columns_file").values()]
        else:
            assert isinstance(train, Labelled)
            rows = train.rows
        self.columns_read = Columns.of(self.names, rows, self.categories)
        groups = train.groups if isinstance(train, Labelled) else None
        return Sources(train=self._inputs_of(train), test=self._inputs_of(test), groups=groups)

    def identity(self) -> dict[str, str]:
        """As for any data, and how its rows are read: with other means a model would read other numbers."""
        return super().identity() | {"columns": self.columns_read.digest}

    @property
    def asked(self) -> Reader | None:
        return self._read_once(self.predict_file, self._rows_in)

    def _rows_in(self, file: str) -> Placed:
        found = self.unlabelled(file, "--data.predict_file")
        x = self.columns_read.encode([*found.values()], rank_zero_warn)
        return Placed(x, torch.zeros(len(x), dtype=torch.int64), places=Lines("line", found))

    def _reference(self) -> tuple[Path, str]:
        """The file that says which columns there are, and its option."""
        if self.columns_file is not None:
            return Path(self.columns_file), "--data.columns_file"
        self.check_numbered()
        if isinstance(self.split, OWN):
            raise UserError(
                f"Expected --data.columns_file for {type(self).__name__} with --data.split OWN, but got none; give a "
                "file with such rows that is the same everywhere, two with the mean less and plus the deviation for "
                "instance: nobody reads everybody's own rows."
            )
        return Path(self.train_file), "--data.train_file"

    def _chosen(self, there: Sequence[str], file: str) -> list[str]:
        """Of the columns that there are those that are read."""
        if not there:
            raise UserError(f"Expected rows in {file}, but it has none.")
        options = {"features": self.features, "leave_out": self.leave_out, "categories": self.categories}
        for option, given in options.items():
            for name in given:
                self._check_column(name, option, there, file)
        names = self.features or [name for name in there if name not in {self.label, self.group, *self.leave_out}]
        if "" in names:
            raise UserError(
                f"Expected every column of {file} to have a name, but number {there.index('') + 1} has none; if it "
                "numbers the rows leave it out with --data.leave_out \"['']\"."
            )
        for name in self.categories:
            if name not in names:
                raise UserError(
                    f"Expected --data.categories to name columns that are read, but got {name}, which is "
                    f"{'not among --data.features' if self.features else 'left out'}; leave it out there."
                )
        if not names:
            raise UserError(f"Expected a column beside the label in {file}, but it has {', '.join(there)} alone.")
        return names

    def _check_column(self, name: str, option: str, there: Sequence[str], file: str) -> None:
        """See that a column that an option names is there to be read."""
        for what, column in (("label", self.label), ("group", self.group)):
            if name == column:
                raise UserError(
                    f"Expected --data.{option} to name columns that are read, but got {name}, which is the {what} and "
                    "no feature; leave it out there."
                )
        if name not in there:
            near = nearest(name, there)
            raise UserError(
                f"Expected --data.{option} to name columns of {file}, but got {name} and it has "
                f"{', '.join(there)}{near or '; correct it.'}"
            )

    def _value(self, given: Any, name: str, where: str) -> str:
        text = text_of(given)
        if text is None:
            raise UserError(
                f"Expected a number or a text in column {name}, but {where} has a {type(given).__name__}; leave it out "
                f"with --data.leave_out {listed(name)}."
            )
        check_characters(text, name, where)
        return text

    def _inputs_of(self, part: Labelled | OwnRows) -> Placed | Own:
        """Inputs and classes, or who reads a participant's, of which this rank alone can tell what is odd."""
        if isinstance(part, Labelled):
            return self._encoded(part, rank_zero_warn)
        return lambda participant: self._encoded(part(participant), partial(warnings.warn, stacklevel=2))

    def _encoded(self, rows: Labelled, warn: Callable[[str], None]) -> Placed:
        x, y = self.columns_read.encode(rows.rows, warn), torch.tensor(rows.labels, dtype=torch.int64)
        return Placed(x, y, places=rows.places)


def _are_plain(fields: Sequence[Any]) -> bool:
    """Whether all are texts of ASCII, in which nothing is to be looked for; most tables have millions of them."""
    try:
        return "".join(fields).isascii()
    except TypeError:
        return False
