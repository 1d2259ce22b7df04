"""The base of data modules of sentences."""

from __future__ import annotations

import hashlib
import warnings
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

import torch
from lightning.pytorch.utilities.rank_zero import rank_zero_warn

from rffl_pl.datamodules.base import FederatedDataModule
from rffl_pl.datamodules.labelled import Lines
from rffl_pl.datamodules.own import Own
from rffl_pl.datamodules.reading import Reader
from rffl_pl.datamodules.row_files import COLUMNS, read_lines
from rffl_pl.datamodules.sentences import Sentences
from rffl_pl.datamodules.sources import Sources
from rffl_pl.datamodules.tokenizing import UNKNOWN, Encoder, with_tokenizers, with_torchtext
from rffl_pl.errors import UserError, check_number
from rffl_pl.federation import Federation


@dataclass(frozen=True, kw_only=True)
class Texts:
    """Sentences and their classes.

    Attributes:
        sentences: N strings.
        labels: Their classes, N numbers from 0 on.
        groups: For the split ``GROUPS``: which training sentences belong together, N numbers from 0 on.
        places: Where each comes from, N texts, for the files that ``predict`` writes.

    Raises:
        UserError: If there are not as many classes as sentences, a sentence is no string or a class no number.
    """

    sentences: Sequence[str]
    labels: Sequence[int]
    groups: Sequence[int] | None = None
    places: Sequence[str] = ()

    def __post_init__(self) -> None:
        if len(self.sentences) != len(self.labels):
            raise UserError(
                f"Expected as many labels as sentences, but got {len(self.labels)} and {len(self.sentences)}."
            )
        other = next((i for i, sentence in enumerate(self.sentences) if not isinstance(sentence, str)), None)
        if other is not None:
            raise UserError(
                f"Expected sentences to be strings, but number {other} is of type "
                f"{type(self.sentences[other]).__name__}; leave it out or make it one."
            )
        strange = [label for label in self.labels if label is None or isinstance(label, str)]
        if strange:
            raise UserError(
                f"Expected labels to be numbers of classes, from 0 on, but got {strange[0]!r}; give for instance the "
                "place of each in a list of all."
            )


OwnTexts = Callable[[int], Texts]
"""From a participant's number to the sentences that are its own."""


class TextDataModule(FederatedDataModule):
    """Divides sentences among participants. Your own text is a subclass with `num_classes` and `read`.

    The vocabulary is built from the training sentences of `read` (those that a share is held out of, whole) and from
    no validation or test sentences; or from a file that all have, which there has to be under the split ``OWN``, where
    nobody reads everybody's sentences. Batches hold sentences of about the same length.

    Args:
        federation: Who takes part.
        vocabulary_size: Number of token ids, with padding and unknown; rarer words are unknown.
        vocabulary_file: A text file with a sentence per line from which the vocabulary is built.
        tokenizer: ``tokenizers``, or ``torchtext`` (an extra) for the same ids.
        predict_file: For ``predict``: a text file with a sentence per line instead of the test set; of a `TextFile`
            also one with columns, whose labels, if it has any, nobody reads.
        kwargs: See `FederatedDataModule`.

    Raises:
        UserError: If an argument is out of range, and in `setup` if a file cannot be used.
    """

    places: Sequence[str] = ("vocabulary_file", "predict_file")
    validation_remedy = "have read() return some, or "

    def __init__(
        self,
        federation: Federation,
        *,
        vocabulary_size: int = 20_000,
        vocabulary_file: str | None = None,
        tokenizer: Literal["tokenizers", "torchtext"] = "tokenizers",
        predict_file: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(federation, **kwargs)
        check_number("--data.vocabulary_size", vocabulary_size, 3, remedy="try 20000")
        self.vocabulary_size = vocabulary_size
        self.vocabulary_file = vocabulary_file
        self.tokenizer = tokenizer
        self.predict_file = predict_file
        self.encode: Encoder
        self._numbered_by = b""

    @abstractmethod
    def read(self) -> tuple[Texts | OwnTexts, Texts | OwnTexts | None, Texts | OwnTexts]:
        """The training, validation and test sentences; without validation a share of training is held out.

        Of participants who have sentences of their own, a function that reads one participant's: in place of the
        training sentences, and then in place of the others too, or of one of them.
        """

    def load(self) -> Sources:
        train, validation, test = _three(self.read(), type(self).__name__)
        build = with_tokenizers if self.tokenizer == "tokenizers" else with_torchtext
        vocabulary = self._vocabulary(train)
        self.encode = build(vocabulary, self.vocabulary_size)
        if self.vocabulary_file is not None:
            numbers = self.encode(vocabulary)
            cut = any(UNKNOWN in sentence for sentence in numbers)  # by the number of token ids
            self._numbered_by = "\n".join(vocabulary).encode() + (repr(numbers).encode() if cut else b"")
        return Sources(
            train=self._encoded(train, "training sentences"),
            test=self._encoded(test, "test sentences"),
            validation=None if validation is None else self._encoded(validation, "validation sentences"),
            groups=train.groups if isinstance(train, Texts) else None,
        )

    def identity(self) -> dict[str, str]:
        """As for any data, and the token ids: with another vocabulary a model would read other words."""
        facts = super().identity()
        trained = f"{facts['training examples']} {self._token_digests[0]}"
        return facts | {"token ids": self._token_digests[1], "training examples": trained}

    @cached_property
    def _token_digests(self) -> tuple[str, str]:
        """Of a vocabulary's sentences and everybody's for training, and of these and all others."""
        assert self.sources is not None
        found = hashlib.sha256(self._numbered_by)
        digests = []
        for part in self.sources.parts().values():  # of which the training examples are the first
            if isinstance(part, Sentences):
                found.update(part.lengths.numpy().data)
                found.update(torch.cat(part.tokens).numpy().data)
            digests.append(found.hexdigest()[:16])
        return digests[0], digests[-1]

    def _vocabulary(self, train: Texts | OwnTexts) -> Sequence[str]:
        """The sentences that the vocabulary is built from."""
        if self.vocabulary_file is not None:
            return _lines_of(Path(self.vocabulary_file), "--data.vocabulary_file")
        if isinstance(train, Texts):
            return train.sentences
        raise UserError(
            f"Expected --data.vocabulary_file for {type(self).__name__} with --data.split OWN, but got none; give a "
            "text file with a sentence per line that is the same everywhere: all number its words, and nobody reads "
            "everybody's own sentences."
        )

    @property
    def asked(self) -> Reader | None:
        return self._read_once(self.predict_file, self._sentences_in)

    def _sentences_in(self, file: str) -> Sentences:
        return self._numbered(self.asked_in(Path(file)), "sentences of --data.predict_file", rank_zero_warn)

    def asked_in(self, path: Path) -> Texts:
        """The sentences of a file that classes are asked for, whatever their labels.

        Raises:
            UserError: If it cannot be read, or has none.
        """
        if path.suffix.lower() in COLUMNS:
            raise UserError(
                f"Expected --data.predict_file to be a text file with a sentence per line, but got {path}, whose lines "
                "have columns; write its sentences alone into a .txt file."
            )
        lines = _lines_of(path, "--data.predict_file")
        return unlabelled(lines, Lines("line", range(1, len(lines) + 1)))

    def _encoded(self, texts: Texts | OwnTexts, whose: str) -> Sentences | Own:
        """Their token ids, or somebody's own when they are asked for, of which this rank alone can tell what is odd."""
        if isinstance(texts, Texts):
            return self._numbered(texts, whose, rank_zero_warn)
        warn = partial(warnings.warn, stacklevel=3)
        return lambda i: self._numbered(texts(i), f"{whose} of participant {i}", warn)

    def _numbered(self, texts: Texts, whose: str, warn: Callable[[str], None]) -> Sentences:
        numbers = self.encode(texts.sentences)
        if unknown := self._mostly_unknown(numbers, whose):
            warn(unknown)
        return Sentences(numbers, texts.labels, texts.places)

    def _mostly_unknown(self, numbers: Sequence[Sequence[int]], whose: str) -> str | None:
        """The sentence on token ids more than half of which stand for an unknown word; None of others."""
        words, unknown = sum(map(len, numbers)), sum(sentence.count(UNKNOWN) for sentence in numbers)
        if 2 * unknown <= words:
            return None
        source = "the training sentences" if self.vocabulary_file is None else "--data.vocabulary_file"
        return (
            f"{unknown / words:.0%} of the words of the {whose} are not in the vocabulary, the "
            f"{self.vocabulary_size - 2} most frequent words of {source}; build it from a text like these by "
            "--data.vocabulary_file, raise --data.vocabulary_size, or put blanks between words."
        )


def unlabelled(sentences: Sequence[str], places: Sequence[str]) -> Texts:
    """Sentences whose classes nobody reads, and where each stands."""
    return Texts(sentences=sentences, labels=[0] * len(sentences), places=places)


def _three(read: Any, owner: str) -> tuple[Texts | OwnTexts, Texts | OwnTexts | None, Texts | OwnTexts]:
    """What a data module's `read` gives.

    Raises:
        UserError: If it is something else.
    """
    parts = read if isinstance(read, tuple | list) else (read,)
    fits = [isinstance(part, Texts) or callable(part) for part in parts]
    if len(parts) != 3 or not (fits[0] and fits[2] and (fits[1] or parts[1] is None)):
        raise UserError(
            f"Expected read() of {owner} to give three Texts, training, validation or None, and test, but got "
            f"{', '.join(type(part).__name__ for part in parts)}; give Texts(sentences=..., labels=...) for each."
        )
    train, validation, test = parts
    return train, validation, test


def _lines_of(path: Path, option: str) -> list[str]:
    """The sentences of a file that has one in each line, and no labels."""
    lines = read_lines(path.expanduser(), option, "utf-8")
    if not lines:
        raise UserError(f"Expected a sentence per line in {option} {path}, but it is empty.")
    return lines
