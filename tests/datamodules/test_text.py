"""Sentences: token ids, batches of like length, MR and SST."""

from __future__ import annotations

import importlib.util
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch

from rffl_pl.datamodules import MR, SST, Texts
from rffl_pl.datamodules.reading import Reader
from rffl_pl.datamodules.reviews import sentence_of
from rffl_pl.datamodules.rounds import Shard
from rffl_pl.datamodules.row_files import read_lines
from rffl_pl.datamodules.sentences import Sentences
from rffl_pl.datamodules.text import TextDataModule
from rffl_pl.datamodules.tokenizing import Encoder, with_tokenizers, with_torchtext
from rffl_pl.errors import UserError
from rffl_pl.federation import Federation

DATA = os.environ.get("RFFL_DATA_DIR")
needs_data = pytest.mark.skipif(not DATA, reason="RFFL_DATA_DIR, the folder with MR and SST, is not set")
has_torchtext = importlib.util.find_spec("torchtext") is not None
needs_torchtext = pytest.mark.skipif(not has_torchtext, reason="torchtext, an extra beside torch 2.3, is not installed")

CORPUS = [
    'The film\'s "plot" (if any) is thin; watch it: twice!',
    "Isn't it good?<br />It is, it is.",
    "A caf\xe9 in \xc5rhus -- na\xefve\x85 and   plain",
    "Tabs\tand\xa0spaces",
    ";:",
]


def words_of(sentence: str) -> list[str]:
    """torchtext's basic_english, from its documentation."""
    line = sentence.lower()
    for character in "'.,()!?":
        line = line.replace(character, f" {character} ")
    line = line.replace('"', "").replace(";", " ").replace(":", " ")
    return line.split()


def reference(training: list[str], size: int) -> Callable[[list[str]], list[list[int]]]:
    """Ids by descending frequency, then alphabetically, after padding and unknown."""
    counts = Counter(word for sentence in training for word in words_of(sentence))
    order = sorted(counts, key=lambda word: (-counts[word], word))[: size - 2]
    ids = {word: 2 + i for i, word in enumerate(order)}
    return lambda sentences: [[ids.get(word, 1) for word in words_of(s)] or [1] for s in sentences]


def real_corpora() -> list[list[str]]:
    """All sentences of MR and of SST."""
    assert DATA is not None
    mr = Path(DATA) / "MR" / "rt-polaritydata"
    sst = Path(DATA) / "SST" / "trees"
    return [
        [line for kind in ("neg", "pos") for line in read_lines(mr / f"rt-polarity.{kind}", "file", "latin-1")],
        [
            sentence_of(line)[0]
            for part in ("train", "dev", "test")
            for line in read_lines(sst / f"{part}.txt", "file", "utf-8")
        ],
    ]


@pytest.mark.parametrize("size", [3, 10, 20_000])
def test_token_ids(size: int) -> None:
    """Ids differ from the reference's, on words seen or not, or a sentence without words has no id."""
    training = [sentence for sentence in CORPUS[:3] if "<br" not in sentence]
    encode, expected = with_tokenizers(training, size), reference(training, size)
    plain = [sentence for sentence in CORPUS if "<br" not in sentence]
    assert encode(plain) == expected(plain)
    assert encode(["", ";:", "zebra"]) == [[1], [1], [1]]
    assert len(encode([CORPUS[1]])[0]) == len(words_of(CORPUS[1].replace("<br />", " ")))


def test_what_a_text_calls_as_a_special_token() -> None:
    """It would be taken for padding, or number all others anew."""
    encode = with_tokenizers(["the film was good", "a dull <UNK> film <pad>"], 100)
    assert encode(["zebra <pad> <Unk>"]) == encode(["zebra < pad > < unk >"])
    assert encode(["zebra"]) == [[1]]
    assert 0 not in encode(["a <pad> b"])[0]
    assert encode(['<"pad> <un"k>']) == encode(["<pad> <unk>"])  # quotation marks are dropped, and make no such name


def test_many_sentences_are_encoded_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `tokenizers` makes of 200,000 at once took 800 MB, in portions a fifth of that; ids stay the same."""
    portions: list[int] = []
    made_of = tokenizers.Tokenizer

    class Portions:
        """One that notes how many sentences it is given."""

        def __init__(self, model: Any) -> None:
            self.__dict__["real"] = made_of(model)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.__dict__["real"], name)

        def __setattr__(self, name: str, value: Any) -> None:
            setattr(self.__dict__["real"], name, value)

        def encode_batch(self, sentences: list[str]) -> Any:
            portions.append(len(sentences))
            return self.__dict__["real"].encode_batch(sentences)

    training = [f"word {i % 700} of {i}" for i in range(3000)]
    with monkeypatch.context() as patched:
        patched.setattr("tokenizers.Tokenizer", Portions)
        encode = with_tokenizers(training, 500)
    assert encode([*training, ""]) == reference(training, 500)([*training, ""])
    assert sum(portions) == 3001
    assert max(portions) <= 1024


@pytest.mark.parametrize("build", [with_tokenizers, pytest.param(with_torchtext, marks=needs_torchtext)])
def test_characters_that_are_written_in_two_ways(build: Callable[[list[str], int], Encoder]) -> None:
    """A file from a Mac, with accents apart, would have other words than one from elsewhere."""
    together, apart = "un caf\xe9 \xe0 c\xf4t\xe9", "un cafe\u0301 a\u0300 co\u0302te\u0301"
    encode = build([together, "un film"], 100)
    assert encode([apart]) == encode([together])
    assert 1 not in encode([apart])[0]


@pytest.mark.slow
@needs_data
@pytest.mark.parametrize("size", [5000, 20_000])
def test_token_ids_of_the_whole_of_mr_and_sst(size: int) -> None:
    """On real text likewise, with a vocabulary from the first half."""
    for corpus in real_corpora():
        training = corpus[: len(corpus) // 2]
        assert with_tokenizers(training, size)(corpus) == reference(training, size)(corpus)


@needs_torchtext
@needs_data
@pytest.mark.parametrize("size", [5000, 100_000])
def test_torchtext_gives_the_same_ids(size: int) -> None:
    """On the whole of MR and SST the two libraries agree in every id."""
    for corpus in [*real_corpora(), CORPUS]:
        training = corpus[: len(corpus) // 2]
        assert with_torchtext(training, size)(corpus) == with_tokenizers(training, size)(corpus)


@pytest.mark.skipif(has_torchtext, reason="torchtext is installed")
def test_without_torchtext_one_sentence_says_so() -> None:
    with pytest.raises(UserError, match=r"--data\.tokenizer torchtext.*constraints-torchtext\.txt"):
        with_torchtext(CORPUS, 10)


def some_sentences(count: int = 103) -> Sentences:
    generator = torch.Generator().manual_seed(1)
    lengths = torch.randint(1, 40, (count,), generator=generator).tolist()
    return Sentences([[i + 1] * length for i, length in enumerate(lengths)], [i % 2 for i in range(count)])


def test_a_batch_is_padded_behind() -> None:
    """Ids first, zeros behind, as long as the longest."""
    data = Sentences([[5, 6, 7], [8], [9, 10]], [0, 1, 1])
    x, y = data[torch.tensor([1, 2])]
    assert x.tolist() == [[8, 0], [9, 10]]
    assert y.tolist() == [1, 1]
    assert data[0][0].tolist() == [5, 6, 7]


def test_batches_hold_sentences_of_like_length_in_a_seeded_order() -> None:
    """Every sentence once, hardly any padding, the order that of the random stream and another in the next epoch."""
    data = some_sentences()
    shard = Shard(Reader(data), torch.arange(3, 103), 16)

    def epoch() -> list[list[int]]:
        return [(x[:, 0] - 1).tolist() for x, _ in shard.epoch()]

    torch.manual_seed(7)
    first, second = epoch(), epoch()
    torch.manual_seed(7)
    assert epoch() == first
    assert first != second
    assert sorted(i for batch in first for i in batch) == list(range(3, 103))
    spans = [data.lengths[batch].max() - data.lengths[batch].min() for batch in first]
    assert max(spans) < 12 < 39
    longest = [int(data.lengths[batch].max()) for batch in first]
    assert longest != sorted(longest)
    assert sorted(i for x, _ in shard.in_order() for i in (x[:, 0] - 1).tolist()) == list(range(3, 103))


@pytest.fixture(scope="module")
def mr() -> MR:
    data = MR(Federation(participants=5, seed=1), split="POW")
    data.prepare_data()
    data.setup("fit")
    return data


def parts_of(data: TextDataModule) -> list[Sentences]:
    """Training, validation (where the data set brings its own) and test sentences."""
    assert data.sources is not None
    parts = (data.sources.train, data.sources.validation, data.sources.test)
    return [part for part in parts if isinstance(part, Sentences)]


@needs_data
def test_mr(mr: MR) -> None:
    """9,596 + 533 + 533 sentences in two balanced classes, none twice, POW shards that grow."""
    parts = parts_of(mr)
    assert [len(part) for part in parts] == [9596, 533, 533]
    labels = torch.cat([part.labels for part in parts])
    assert labels.bincount().tolist() == [5331, 5331]
    assert sum(mr.shard_sizes) == 5 * (9596 // 5)
    assert mr.shard_sizes == sorted(mr.shard_sizes)
    assert mr.class_names == ("negative", "positive")


@needs_data
def test_the_vocabulary_is_of_training_text_alone(mr: MR) -> None:
    """Some words of the test sentences are unknown, no word of a training sentence is."""
    assert mr.sources is not None
    train, test = mr.sources.train, mr.sources.test
    assert isinstance(train, Sentences)
    assert isinstance(test, Sentences)
    assert not any((tokens == 1).any() for tokens in train.tokens)
    assert any((tokens == 1).any() for tokens in test.tokens)
    assert max(int(tokens.max()) for tokens in train.tokens) < 20_000


@needs_data
@pytest.mark.parametrize(
    ("binary", "counts", "labels"),
    [
        (False, [8544, 1101, 2210], [1092, 2218, 1624, 2322, 1288]),
        (True, [6920, 872, 1821], [3310, 3610]),
    ],
)
def test_sst(binary: bool, counts: list[int], labels: list[int]) -> None:
    """The published split: sentences per part and, of training, per class."""
    data = SST(Federation(participants=5), split="POW", binary=binary)
    data.prepare_data()
    data.setup("fit")
    parts = parts_of(data)
    assert [len(part) for part in parts] == counts
    assert parts[0].labels.bincount().tolist() == labels
    assert len(data.class_names) == data.num_classes == len(labels)


@pytest.mark.parametrize(
    ("tree", "words", "label"),
    [
        ("(3 (2 It) (4 (2 's) (4 great)))", "It 's great", 3),
        ("(0 (2 -LRB-) (1 (2 1\\/2) (2 -RRB-)))", "( 1/2 )", 0),
        ("(2 Word)", "Word", 2),
        ("(3 (2 nearly) (2 2\xa01\\/2) (2 hours))", "nearly 2\xa01/2 hours", 3),  # which the tokenizer parts
    ],
)
def test_trees(tree: str, words: str, label: int) -> None:
    assert sentence_of(tree) == (words, label)


class Read(TextDataModule):
    """Reads what it is told to."""

    num_classes = 2

    def __init__(self, found: Any) -> None:
        super().__init__(Federation(participants=2), split="UNI")
        self.found = found

    def read(self) -> Any:
        return self.found


SOME = Texts(sentences=["good", "bad"], labels=[1, 0])


@pytest.mark.parametrize(
    ("found", "told"),
    [
        ((["good"], None, SOME), "list, NoneType, Texts"),
        ((SOME, None, None), "Texts, NoneType, NoneType"),
        ((SOME, SOME), "Texts, Texts"),
        (SOME, "Texts"),
    ],
)
def test_what_read_does_not_give(found: Any, told: str) -> None:
    """It is nobody's own examples."""
    with pytest.raises(UserError, match=f"read\\(\\) of Read to give three Texts, .* but got {told}; give Texts"):
        Read(found).setup("fit")


@pytest.mark.parametrize("labels", [["pos", "neg"], [None, 1]])
def test_labels_that_are_no_numbers(labels: Any) -> None:
    """What a tensor cannot be made of is told as what it is."""
    with pytest.raises(UserError, match=f"labels to be numbers of classes, from 0 on, but got {labels[0]!r}; give"):
        Texts(sentences=["good", "bad"], labels=labels)


def test_labels_of_a_column_whose_rows_are_not_counted_from_zero() -> None:
    """As of a data frame some rows of which were taken out."""
    column = pytest.importorskip("pandas", reason="pandas, of an extra, is not installed").Series(
        [0, 1, 1, 0] * 5, index=range(3, 23)
    )
    texts = Texts(sentences=["bad", "good", "fine", "dull"] * 5, labels=column)
    data = Read((texts, texts, texts))
    data.setup("fit")
    assert data.classes == [2, 2]


def test_mr_of_ones_own(tmp_path: Path) -> None:
    """In its layout, with as many sentences as there are; nine in ten to train with."""
    folder = tmp_path / "MR" / "rt-polaritydata"
    folder.mkdir(parents=True)
    for kind in ("neg", "pos"):
        (folder / f"rt-polarity.{kind}").write_text("".join(f"a {kind} film {i}\n" for i in range(50)))
    data = MR(Federation(participants=2), split="UNI", data_dir=str(tmp_path))
    data.setup("fit")
    assert [len(part) for part in parts_of(data)] == [90, 5, 5]


def test_missing_files_are_one_sentence(tmp_path: Path) -> None:
    for kind, name in ((MR, "MR"), (SST, "SST")):
        data = kind(Federation(participants=2), split="UNI", data_dir=str(tmp_path))
        with pytest.raises(UserError, match=rf"Expected the files of {name} in .*--data\.data_dir"):
            data.prepare_data()
