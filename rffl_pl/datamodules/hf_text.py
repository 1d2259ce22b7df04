"""A Hugging Face data set of sentences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rffl_pl.datamodules.hugging_face import HuggingFaceData, column_of
from rffl_pl.datamodules.labelled import Labelled
from rffl_pl.datamodules.text import TextDataModule, Texts
from rffl_pl.errors import UserError
from rffl_pl.federation import Federation


class HFText(HuggingFaceData, TextDataModule):
    """A Hugging Face data set of sentences, from a folder or the hub, by the names of its columns.

    The extra ``datasets`` reads the files.

    Args:
        federation: Who takes part.
        text: The column of sentences.
        kwargs: See `HuggingFaceData` and `TextDataModule`.

    Raises:
        UserError: As `HuggingFaceData`, and if the column holds no sentences.
    """

    def __init__(self, federation: Federation, *, text: str = "text", **kwargs: Any) -> None:
        super().__init__(federation, **kwargs)
        self.text = text

    @property
    def columns(self) -> Mapping[str, str]:
        return {self.text: "--data.text"}

    def read(self) -> tuple[Texts, Texts | None, Texts]:
        train, val, test = self.parts()
        return self._texts(train), None if val is None else self._texts(val), self._texts(test)

    def check_rows(self, rows: Any, which: str) -> None:
        for i, sentence in enumerate(column_of(rows, self.text)):
            if not isinstance(sentence, str) or not sentence.strip():
                got = "none" if isinstance(sentence, str | None) else type(sentence).__name__
                raise UserError(
                    f"Expected sentences in column {self.text} of --data.{which}, but example {i} has {got}; name "
                    "another column with --data.text or leave such examples out."
                )

    def _texts(self, part: Labelled) -> Texts:
        sentences = column_of(part.rows, self.text)
        return Texts(sentences=sentences, labels=part.labels, groups=part.groups, places=part.places)
