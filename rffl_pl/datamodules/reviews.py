"""Sentences of film reviews: MR and SST."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch

from rffl_pl.datamodules.files import data_dir, ensure, unpack_from
from rffl_pl.datamodules.row_files import read_lines
from rffl_pl.datamodules.text import TextDataModule, Texts
from rffl_pl.errors import UserError
from rffl_pl.federation import Federation

_MR_URL = "https://www.cs.cornell.edu/people/pabo/movie-review-data/rt-polaritydata.tar.gz"
_MR_MD5 = {
    "rt-polarity.neg": "1e35b7f7c5df24a135ca62b8eecded53",
    "rt-polarity.pos": "afcc7ff580b3b4df4bdb6528e6558ab5",
}
_MR_FOLDER = "MR/rt-polaritydata"
_MR_TRAINING = 9596 / 10662
_SST_URL = "https://nlp.stanford.edu/sentiment/trainDevTestTrees_PTB.zip"
_SST_FOLDER = "SST/trees"
_SST_MD5 = {
    "train.txt": "b12d531b1b913a3bb49719ba5cc1f67a",
    "dev.txt": "c405f1d724964e6f72314b5a51fea691",
    "test.txt": "97b75f6ca1ae58b4d52fbf9381dc6f8c",
}


class MR(TextDataModule):
    """10,662 sentences, half of them negative and half positive (Pang & Lee 2005, rt-polarity).

    The seed draws 9,596 for training and halves the rest into validation and test, 533 each. The released code of RFFL
    built its vocabulary from test sentences too.

    Args:
        federation: Who takes part.
        data_dir: Folder with ``MR/rt-polaritydata``; by default ``RFFL_DATA_DIR``, else ``data``. Downloaded when
            absent.
        kwargs: See `TextDataModule`.
    """

    num_classes = 2
    class_names = ("negative", "positive")

    def __init__(self, federation: Federation, *, data_dir: str | None = None, **kwargs: Any) -> None:
        super().__init__(federation, **kwargs)
        self.data_dir = data_dir

    def prepare_data(self) -> None:
        ensure("MR", data_dir(self.data_dir), _MR_FOLDER, _MR_MD5, lambda root: unpack_from(_MR_URL, root / "MR"))

    def read(self) -> tuple[Texts, Texts | None, Texts]:
        negative, positive = (
            read_lines(self._folder / f"rt-polarity.{kind}", "--data.data_dir", "latin-1") for kind in ("neg", "pos")
        )
        sentences = [*negative, *positive]
        labels = [0] * len(negative) + [1] * len(positive)
        generator = torch.Generator().manual_seed(self.federation.seed_for("MR"))
        order = torch.randperm(len(labels), generator=generator)
        training = round(_MR_TRAINING * len(labels))
        held_out = (len(labels) - training) // 2
        parts = order.split([training, held_out, len(labels) - training - held_out])
        train, validation, test = (
            Texts(sentences=[sentences[i] for i in part], labels=[labels[i] for i in part]) for part in parts
        )
        return train, validation, test

    @property
    def _folder(self) -> Path:
        return data_dir(self.data_dir) / _MR_FOLDER


class SST(TextDataModule):
    """11,855 sentences from very negative to very positive (Socher et al. 2013), split as published.

    8,544 for training, 1,101 for validation, 2,210 for test. The released code of RFFL built its vocabulary from test
    sentences too.

    Args:
        federation: Who takes part.
        binary: Negative and positive alone, without the neutral sentences: 6,920, 872 and 1,821.
        data_dir: Folder with ``SST/trees``; by default ``RFFL_DATA_DIR``, else ``data``. Downloaded when absent.
        kwargs: See `TextDataModule`.
    """

    def __init__(
        self, federation: Federation, *, binary: bool = False, data_dir: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(federation, **kwargs)
        self.binary = binary
        self.data_dir = data_dir
        fine = ("very negative", "negative", "neutral", "positive", "very positive")
        self.class_names = ("negative", "positive") if binary else fine
        self.num_classes = len(self.class_names)

    def prepare_data(self) -> None:
        ensure("SST", data_dir(self.data_dir), _SST_FOLDER, _SST_MD5, lambda root: unpack_from(_SST_URL, root / "SST"))

    def read(self) -> tuple[Texts, Texts | None, Texts]:
        train, validation, test = (self._read(f"{part}.txt") for part in ("train", "dev", "test"))
        return train, validation, test

    def _read(self, name: str) -> Texts:
        lines = read_lines(self._folder / name, "--data.data_dir", "utf-8")
        try:
            parsed = [sentence_of(line) for line in lines]
        except (ValueError, IndexError) as error:
            raise UserError(
                f"Expected a tree in every line of {self._folder / name}, (3 (2 It) (4 (2 's) (4 great))), but one is "
                "none; mend it, or give --data TextFile for sentences and labels in two columns."
            ) from error
        if self.binary:
            parsed = [(words, int(label > 2)) for words, label in parsed if label != 2]
        return Texts(sentences=[words for words, _ in parsed], labels=[label for _, label in parsed])

    @property
    def _folder(self) -> Path:
        return data_dir(self.data_dir) / _SST_FOLDER


def sentence_of(tree: str) -> tuple[str, int]:
    """The words and the label of the root of a labelled tree, ``(3 (2 It) (4 (2 's) (4 great)))``."""
    words = " ".join(re.findall(r"\(\d ([^() ]+)\)", tree))  # three words hold a space that does not break
    for code, character in (("-LRB-", "("), ("-RRB-", ")"), (r"\/", "/"), (r"\*", "*")):
        words = words.replace(code, character)
    return words, int(tree[1])
