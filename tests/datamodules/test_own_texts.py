"""Sentences of one's own under the split OWN: each participant's file is read where it is hosted."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from rffl_pl.datamodules import TextDataModule, TextFile, Texts
from rffl_pl.errors import UserError
from rffl_pl.federation import Federation
from tests.cli.folders import assert_same_bits
from tests.conftest import QUICK, Ended, only_run
from tests.datamodules.apart import machines
from tests.datamodules.small import ready
from tests.ranks import forked

GOOD, BAD = "a fine film that we liked and saw twice", "a dull film that nobody saw to its end"


def rows(count: int, words: str) -> list[tuple[str, str]]:
    """Sentences of two classes, told by a word of their own."""
    return [(f"{GOOD if i % 2 else BAD} {words} {i}", "yes" if i % 2 else "no") for i in range(count)]


def write(path: Path, content: list[tuple[str, str]]) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *content])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three participants' files, the test sentences and those of the vocabulary."""
    files = tmp_path / "files"
    files.mkdir()
    for i in range(3):
        write(files / f"train_{i}.csv", rows(20 + 4 * i, f"here {i}"))
    write(files / "test.csv", rows(16, "there"))
    (files / "words.txt").write_text(f"{GOOD}\n{BAD}\nhere and there\n")
    return files


def options(folder: Path, **more: Any) -> dict[str, Any]:
    files = {"train_file": "train_{participant}.csv", "test_file": "test.csv", "vocabulary_file": "words.txt"}
    common = {"split": "OWN", "validation": 0, "watch": "test"}
    return common | {name: str(folder / file) for name, file in files.items()} | more


def words(folder: Path) -> list[str]:
    """The same on the command line."""
    given = [str(word) for name, value in options(folder).items() for word in (f"--data.{name}", value)]
    return [
        "fit", "--data", "TextFile", *given, "--federation.participants", "3", "--model.network", "TextCNN",
        "--model.network.vocabulary", "40", "--model.network.width", "8", "--model.network.kernels", "4",
        "--model.network.classes", "2", "--model.optimizer", "SGD", "--model.optimizer.lr", "0.1",
        "--data.vocabulary_size", "40", "--trainer.max_epochs", "2", *QUICK,
    ]  # fmt: skip


def data_of(folder: Path, **more: Any) -> TextFile:
    data = TextFile(Federation(participants=3), **options(folder, **more))
    ready(data)
    return data


def test_sentences_that_each_is_measured_on(rffl: Callable[..., Ended], folder: Path) -> None:
    """A participant is tested on another's sentences, or on all of them, or labels are numbered otherwise."""
    (folder / "test.csv").unlink()
    for i in range(3):
        write(folder / f"test_{i}.csv", rows(5 + i, "there")[i == 1 :: 1 + (i == 1)])
    own = {"test_file": str(folder / "test_{participant}.csv")}
    data = data_of(folder, classes=["yes", "no"], **own)
    assert (data.class_names, data.num_classes, data.test_sample) == (("yes", "no"), 2, (7, 7))
    (item,) = data.test_dataloader()
    assert isinstance(item, dict)
    assert [sorted(item[i][1].tolist()) for i in range(3)] == [[0, 0, 1, 1, 1], [0, 0, 0], [0, 0, 0, 1, 1, 1, 1]]
    given = [*words(folder), "--data.test_file", own["test_file"], "--data.classes", "[yes, no]"]
    assert "YAML reads one as True; quote it, as in \"['yes', 'no']\"" in rffl(*given).err
    given[-1] = "['yes', 'no']"
    ended = rffl(*given)
    assert ended.code == 0, ended.err
    with pytest.raises(
        UserError, match=r"Expected --data.split OWN with {participant} in the name of a file, but got POW"
    ):
        data_of(folder, split="POW", validation=0.1, watch="validation", **own)
    with pytest.raises(UserError, match=r"Expected --data.classes with --data.test_file .*, but got none"):
        data_of(folder, **own)
    with pytest.raises(UserError, match=r"train_0.csv among --data.classes, no, maybe, but yes is not"):
        data_of(folder, classes=["no", "maybe"], **own)


def test_everybody_numbers_the_words_alike(folder: Path) -> None:
    """A participant's words get ids of its own sentences, or those that only it uses get any."""
    data = data_of(folder)
    assert data.shard_sizes == [20, 24, 28]
    assert data.class_names == ("no", "yes")
    first = [data.example(i)[0][0].tolist() for i in range(3)]
    assert first[0][:8] == first[1][:8] == first[2][:8]
    assert 1 not in first[0][:8]  # known to the vocabulary, as the sentence's last word is not
    assert all(sentence[-1] == 1 for sentence in first)  # its number
    assert {*torch.cat([data.example(i)[1] for i in range(3)]).tolist()} == {0}


NUMBERED = {"token ids", "training examples", "own inputs", "training inputs", "own training examples"}
"""Facts of an identity that depend on the numbers of words."""


def test_what_ranks_compare(folder: Path) -> None:
    """Ranks that number words otherwise would train one model on two languages."""
    here = data_of(folder).identity()
    moved = shutil.copytree(folder, folder.with_name("moved"))
    assert data_of(moved).identity() == here
    for numbered in (f"{BAD}\n{BAD}\n{GOOD}\nhere and there\n", f"{GOOD}\n{BAD}\nhere and there\nelsewhere\n"):
        (moved / "words.txt").write_text(numbered)  # the second one adds a word that no test sentence has
        other = data_of(moved).identity()
        assert {name for name in here if here[name] != other[name]} == NUMBERED
    assert data_of(folder, vocabulary_size=30).identity() == here  # of the fewer words there are all have a number
    with pytest.warns(UserWarning, match="are not in the vocabulary, the 3 most frequent"):
        other = data_of(folder, vocabulary_size=5).identity()
    assert {name for name in here if here[name] != other[name]} == NUMBERED


@pytest.mark.slow
def test_on_two_machines(rffl: Callable[..., Ended], folder: Path, tmp_path: Path) -> None:
    """Each has the files of whom it hosts, in a folder of another name: the bits of all files in one."""
    assert rffl(*words(folder), "--run.root", tmp_path / "one").code == 0
    places = machines(folder, 3, 2)
    given = words(folder)
    each = [[word for name, value in options(place).items() for word in (f"--data.{name}", value)] for place in places]
    ended = forked(2, *given, each=each, root=tmp_path / "two")
    assert ended.code == 0, ended.err
    assert_same_bits(only_run(tmp_path / "one"), only_run(tmp_path / "two"))

    (places[1] / "words.txt").write_text(f"{BAD}\n")
    ended = forked(2, *given, each=each, root=tmp_path / "other")
    assert ended.code == 2
    assert ended.err.count("Error: Expected all ranks to start alike, but the data of rank 1 differs") == 1
    assert "have all nodes read the same files, but for each participant's own." in ended.err


def refused(folder: Path, **more: Any) -> str:
    with pytest.raises(UserError) as caught:
        data_of(folder, **more)
    return str(caught.value)


def test_what_is_missing(folder: Path) -> None:
    """A sentence that names the option, and the participant where it is one's."""
    said = (
        "Expected --data.train_file with {participant} in its name and --data.test_file with --data.split OWN, but got"
    )
    assert said in refused(folder, train_file=str(folder / "train_0.csv"))
    assert said in refused(folder, test_file=None)
    assert "Expected --data.vocabulary_file for TextFile with --data.split OWN, but got none" in refused(
        folder, vocabulary_file=None
    )
    said = refused(folder, validation=0.1, watch="validation")
    assert said.endswith("but there are none; give --data.validation 0 and --data.watch test.")
    (folder / "empty.txt").write_text("")
    said = f"a sentence per line in --data.vocabulary_file {folder / 'empty.txt'}, but it is empty"
    assert said in refused(folder, vocabulary_file=str(folder / "empty.txt"))
    said = "Expected --data.split OWN with {participant} in the name of a file, but got UNI and"
    assert said in refused(folder, split="UNI")
    write(folder / "train_1.csv", [("a film", "maybe")])
    said = (
        f"Expected the labels in --data.train_file {folder / 'train_1.csv'} among those of the test sentences, no, yes"
    )
    assert f"{said}, but maybe is not; name all labels there are by --data.classes, or correct it" in refused(folder)
    (folder / "train_1.csv").unlink()
    said = f"Expected a file at --data.train_file {folder / 'train_1.csv'}, but it cannot be read"
    assert said in refused(folder)


@pytest.mark.parametrize(
    ("test_file", "both"), [("train_{participant}.csv", 0), ("train_2.csv", 2), ("../files/train_{participant}.csv", 0)]
)
def test_one_file_for_training_and_test(folder: Path, test_file: str, both: int) -> None:
    """A participant is tested on what it, or another one, trained on."""
    said = refused(folder, test_file=str(folder / test_file), classes=["yes", "no"])
    expected = f"another file than --data.train_file, but both are {folder.resolve()}/train_{both}.csv; a model would"
    assert expected in said
    assert said.endswith("; give another.")


class Notes(TextDataModule):
    """A user's own, of whose participants one has nothing to read."""

    num_classes = 2

    def read(self) -> tuple[Callable[[int], Texts], Texts, Texts]:
        some = Texts(sentences=[GOOD, BAD], labels=[1, 0])
        return lambda participant: Texts(sentences=[GOOD] * participant, labels=[1] * participant), some, some


def test_a_module_of_ones_own(folder: Path) -> None:
    """Brings validation sentences, and reads from wherever it likes."""
    given: dict[str, Any] = {"split": "OWN", "vocabulary_file": str(folder / "words.txt")}
    with pytest.raises(UserError, match="Expected participant 0 of Notes to have training examples"):
        ready(Notes(Federation(participants=2), **given))
    with pytest.raises(UserError, match=r"Expected --data\.split OWN for Notes"):
        ready(Notes(Federation(participants=2), split="UNI", vocabulary_file=given["vocabulary_file"]))


def test_a_vocabulary_of_another_text(folder: Path) -> None:
    """Where sentences are cut from one file too: words that it lacks are unknown, and where these are most, said."""
    (folder / "words.txt").write_text("a film\n")
    with pytest.warns(
        UserWarning, match=r"\d\d% of the words of the \w+ sentences are not in the vocabulary, the 19998"
    ):
        data = data_of(folder, split="UNI", train_file=str(folder / "train_0.csv"))
    assert {*torch.cat([data.example(i)[0].flatten() for i in range(3)]).tolist()} == {1, 2, 3}
