"""Your own sentences in a CSV or JSONL file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from rffl_pl.datamodules.class_names import column_name
from rffl_pl.datamodules.labelled import Labelled, Lines
from rffl_pl.datamodules.labelled_file import LabelledFile, OwnRows
from rffl_pl.datamodules.row_files import COLUMNS, Record, check_characters
from rffl_pl.datamodules.text import OwnTexts, TextDataModule, Texts, unlabelled
from rffl_pl.errors import UserError
from rffl_pl.federation import Federation


class TextFile(LabelledFile, TextDataModule):
    """Sentences and labels from two columns of a ``.csv``, ``.tsv`` or ``.jsonl`` file.

    With ``--data.split OWN`` the vocabulary's file is the same everywhere.

    Args:
        federation: Who takes part.
        text: Name of the column with the sentence.
        kwargs: See `LabelledFile` and `TextDataModule`.

    Raises:
        UserError: As `LabelledFile`, and if a row has no sentence.
    """

    noun: ClassVar[str] = "sentence"

    def __init__(self, federation: Federation, *, text: str = "text", **kwargs: Any) -> None:
        super().__init__(federation, **kwargs)
        text = column_name(text)
        if text == self.label:
            raise UserError(f"Expected --data.text and --data.label to be two columns, but got {text} for both.")
        if text == self.group:
            raise UserError(f"Expected --data.text and --data.group to be two columns, but got {text} for both.")
        self.text = text

    @property
    def columns(self) -> Mapping[str, str]:
        return {self.text: "name yours with --data.text"}

    def content(self, record: Record, where: str) -> str:
        sentence = record[self.text]
        if not isinstance(sentence, str) or not sentence.strip():
            got = "none" if isinstance(sentence, str | None) else json.dumps(sentence)
            raise UserError(f"Expected a sentence in column {self.text}, but {where} has {got}.")
        check_characters(sentence, self.text, where)
        return sentence

    def asked_in(self, path: Path) -> Texts:
        if path.suffix.lower() not in COLUMNS:
            return super().asked_in(path)
        found = self.unlabelled(str(path), "--data.predict_file")
        return unlabelled([*found.values()], Lines("line", found))

    def read(self) -> tuple[Texts | OwnTexts, None, Texts | OwnTexts]:
        train, test = self.parts()
        return _texts(train), None, _texts(test)


def _texts(part: Labelled | OwnRows) -> Texts | OwnTexts:
    """Sentences, or who reads a participant's."""
    return _texts_of(part) if isinstance(part, Labelled) else lambda participant: _texts_of(part(participant))


def _texts_of(rows: Labelled) -> Texts:
    return Texts(sentences=rows.rows, labels=rows.labels, groups=rows.groups, places=rows.places)
