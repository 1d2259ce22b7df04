"""Sentences of one's own in files of rows: how they are read, what is refused, and what is asked of them."""

from __future__ import annotations

import csv
import gzip
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from unicodedata import normalize

import pytest

from rffl_pl.datamodules import TextFile, Texts
from rffl_pl.datamodules.text import TextDataModule
from rffl_pl.errors import UserError
from rffl_pl.federation import Federation
from tests.conftest import QUICK, Ended, only_run
from tests.datamodules.test_text import SOME, Read, parts_of

ROWS = [(f"a {'good' if i % 2 else 'bad'} film number {i}", "yes" if i % 2 else "no") for i in range(60)]


def write(path: Path, rows: list[tuple[str, str]], names: tuple[str, str] = ("text", "label")) -> Path:
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows))
        return path
    with path.open("w", newline="") as file:
        writer = csv.writer(file, delimiter="\t" if path.suffix == ".tsv" else ",")
        writer.writerows([names, *rows])
    return path


def loaded(path: Path, **options: Any) -> TextDataModule:
    data = TextFile(Federation(participants=2), split="UNI", train_file=str(path), **options)
    data.setup("fit")
    return data


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl"])
def test_a_file_of_ones_own(tmp_path: Path, kind: str) -> None:
    """Two columns by name, labels as classes in order, a tenth for testing, commas and quotes as they are."""
    rows = [*ROWS, ('with, comma and "quotes"', "no")]
    data = loaded(write(tmp_path / f"reviews.{kind}", rows, ("review", "liked")), text="review", label="liked")
    assert [len(part) for part in parts_of(data)] == [55, 6]
    assert data.class_names == ("no", "yes")
    assert data.num_classes == 2


def test_numbers_as_labels_keep_their_order(tmp_path: Path) -> None:
    rows = [(f"film {i}", str(8 + i % 4)) for i in range(40)]
    assert loaded(write(tmp_path / "a.csv", rows)).class_names == ("8", "9", "10", "11")
    rows = [(f"film {i}", ("10", "-2", "odd", "1.5", "-1", "9")[i % 6]) for i in range(60)]
    assert loaded(write(tmp_path / "b.csv", rows)).class_names == ("-2", "-1", "1.5", "9", "10", "odd")
    lines = [{"text": f"film {i}", "label": (1, 1.0, 2, True)[i % 4]} for i in range(40)]
    (tmp_path / "c.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert loaded(tmp_path / "c.jsonl").class_names == ("1", "2", "True")


def test_quotation_marks_in_a_tsv_file_are_text(tmp_path: Path) -> None:
    """Such files are written without quoting: three sentences would become one."""
    rows = '"open quote film\tpos\nplain film\tneg\nanother" film\tneg\n' * 10
    (tmp_path / "a.tsv").write_text("text\tlabel\n" + rows)
    options: Any = {"train_file": tmp_path / "a.tsv"}  # programs give paths
    data = TextFile(Federation(participants=2), split="UNI", **options)
    train, _, test = data.read()
    assert isinstance(train, Texts)
    assert isinstance(test, Texts)
    assert {*train.sentences, *test.sentences} == {'"open quote film', "plain film", 'another" film'}
    assert len(train.sentences) + len(test.sentences) == 30


def test_a_test_file(tmp_path: Path) -> None:
    """It is the test set, whole, and must know no other label."""
    train, test = write(tmp_path / "a.csv", ROWS), write(tmp_path / "b.jsonl", ROWS[:7])
    data = loaded(train, test_file=str(test))
    assert [len(part) for part in parts_of(data)] == [60, 7]
    with pytest.raises(UserError, match=r"labels in --data\.test_file .* of the training .*maybe is not"):
        loaded(train, test_file=str(write(tmp_path / "c.csv", [("a film", "maybe")])))


@pytest.mark.parametrize("again", ["a.csv", "folder/../a.csv", "link.csv"])
def test_one_file_for_training_and_test(tmp_path: Path, again: str) -> None:
    """Accuracies of sentences that were trained on are taken for those of others."""
    train = write(tmp_path / "a.csv", ROWS)
    (tmp_path / "folder").mkdir()
    (tmp_path / "link.csv").symlink_to(train)
    with pytest.raises(UserError) as caught:
        loaded(train, test_file=str(tmp_path / again))
    assert str(caught.value) == (
        f"Expected --data.test_file to be another file than --data.train_file, but both are {train}; a model would be "
        "measured on what it was trained on; give another, or leave it out."
    )


def test_one_file_by_two_names(tmp_path: Path) -> None:
    """As a hard link is, which no path tells."""
    train = write(tmp_path / "a.csv", ROWS)
    (tmp_path / "b.csv").hardlink_to(train)
    with pytest.raises(UserError, match=r"another file than --data\.train_file, but both are .*/b\.csv; a model would"):
        loaded(train, test_file=str(tmp_path / "b.csv"))


def test_a_file_in_ones_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a configuration no shell says which folder ``~`` is."""
    monkeypatch.setenv("HOME", str(tmp_path))
    write(tmp_path / "a.csv", ROWS)
    data = TextFile(Federation(participants=2), split="UNI", train_file="~/a.csv", test_file=str(tmp_path / "a.csv"))
    with pytest.raises(UserError, match="to be another file"):
        data.read()
    (tmp_path / "words.txt").write_text("a good film\n")
    given: Any = {"train_file": "~/a.csv", "vocabulary_file": "~/words.txt"}
    data = TextFile(Federation(participants=2), split="UNI", **given)
    data.setup("fit")
    assert len(data.shards) == 2


@pytest.mark.parametrize("examples", [1, 2])
def test_a_rare_class_is_trained_on(tmp_path: Path, examples: int) -> None:
    """Whatever the seed, an example of every class stays for training, and as many are tested on."""
    path = write(tmp_path / "a.csv", [*ROWS, *[("an odd film", "other")] * examples])
    for seed in range(20):
        data = TextFile(Federation(participants=2, seed=seed), split="UNI", train_file=str(path))
        train, _, test = data.read()
        assert isinstance(train, Texts)
        assert isinstance(test, Texts)
        assert data.class_names == ("no", "other", "yes")
        assert 1 in train.labels
        assert len(test.sentences) == 6
        assert len(train.sentences) == 54 + examples


def test_three_rows_of_two_classes(tmp_path: Path) -> None:
    """The one that is tested on is of the class with two."""
    path = write(tmp_path / "a.csv", [("bad", "neg"), ("good", "pos"), ("worse", "neg")])
    for seed in range(10):
        data = TextFile(Federation(participants=2, seed=seed), train_file=str(path))
        train, _, test = data.read()
        assert isinstance(train, Texts)
        assert isinstance(test, Texts)
        assert (sorted(train.labels), test.labels) == ([0, 1], [0])


def test_a_test_file_without_rows_is_not_replaced_in_silence(tmp_path: Path) -> None:
    """A share of the training sentences would be tested on instead."""
    train, test = write(tmp_path / "a.csv", ROWS), write(tmp_path / "b.csv", [])
    with pytest.raises(UserError, match=r"test sentences in --data\.test_file .*b\.csv, but it has none"):
        loaded(train, test_file=str(test))


def test_other_words_are_another_data_set(tmp_path: Path) -> None:
    """The same labels with other text make other token ids, which a checkpoint must not be loaded over."""
    one = loaded(write(tmp_path / "a.csv", ROWS)).identity()
    same = loaded(write(tmp_path / "b.csv", ROWS)).identity()
    other = loaded(write(tmp_path / "c.csv", [(text + " indeed", label) for text, label in ROWS])).identity()
    assert one == same
    assert {key for key in one if one[key] != other[key]} == {"token ids", "training examples"}


def test_other_words_to_be_tested_on_are_another_data_set(tmp_path: Path) -> None:
    """With the same labels they were the same one: a reference of training alone was read back for other sentences."""
    train, asked = write(tmp_path / "a.csv", ROWS), [(f"{text} indeed", label) for text, label in ROWS[:8]]
    test = {name: str(write(tmp_path / f"{name}.csv", rows)) for name, rows in (("b", ROWS[:8]), ("c", asked))}
    one, other = (loaded(train, test_file=file).identity() for file in test.values())
    assert {key for key in one if one[key] != other[key]} == {"token ids"}
    apart = [[("a b", "yes"), ("c", "no")], [("a", "yes"), ("b c", "no")]]
    one, other = (loaded(write(tmp_path / f"{i}.csv", rows * 20)).identity() for i, rows in enumerate(apart))
    assert one["token ids"] != other["token ids"]


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl"])
def test_sentences_to_predict_in_a_column(tmp_path: Path, kind: str) -> None:
    """Its first line would be a sentence, and every label a word."""
    train, asked = write(tmp_path / "a.csv", ROWS), write(tmp_path / f"asked.{kind}", ROWS[:9])
    data = loaded(train, predict_file=str(asked))
    (batch,) = data.predict_dataloader()
    assert not isinstance(batch, dict)
    ids = data.encode([text for text, _ in ROWS[:9]])
    assert [[n for n in row if n] for row in batch[0].tolist()] == ids
    write(tmp_path / f"asked.{kind}", [])
    with pytest.raises(
        UserError, match=rf"Expected sentences in --data\.predict_file .*asked\.{kind}, but it has none"
    ):
        loaded(train, predict_file=str(asked)).predict_dataloader()
    other = Read((SOME, SOME, SOME))
    other.predict_file = str(asked)
    with pytest.raises(UserError, match=rf"a text file with a sentence per line, but got .*asked\.{kind}, whose lines"):
        other.setup("predict")


@pytest.mark.parametrize("between", ["", "\n"])
def test_files_that_are_put_together(tmp_path: Path, between: str) -> None:
    """The mark that each began with hides that names of columns come again."""
    one = "\ufefftext,label\n" + "a good film,yes\na bad film,no\n" * 10
    (tmp_path / "a.csv").write_text(one + between + one, encoding="utf-8")
    with pytest.raises(UserError, match=r"in the first line of .* alone, but line 2[23] has them again"):
        loaded(tmp_path / "a.csv")


def test_a_word_for_a_label_that_is_missing(tmp_path: Path) -> None:
    """Among words it may be meant, and is told; classes that are given say so."""
    rows = [(f"film {i}", ("good", "bad", "NA" if i < 20 else "bad")[i % 3]) for i in range(60)]
    train = write(tmp_path / "a.csv", rows)
    with pytest.warns(UserWarning, match="is a class of its own") as told:
        assert loaded(train).class_names == ("NA", "bad", "good")
    assert [str(warning.message) for warning in told] == [
        f"In column label of --data.train_file {train} 'NA' is a class of its own, of 6 sentences; take them out if "
        "they have no label, or say with --data.classes that it is a class."
    ]
    assert loaded(train, classes=["good", "bad", "NA"]).class_names == ("good", "bad", "NA")


def test_labels_that_are_written_in_two_ways(tmp_path: Path) -> None:
    """They look alike, and are one class."""
    rows = [(text, ("caf\xe9", "cafe\u0301", "bar")[i % 3]) for i, (text, _) in enumerate(ROWS)]
    assert loaded(write(tmp_path / "a.csv", rows)).class_names == ("bar", "caf\xe9")
    given = loaded(write(tmp_path / "a.csv", rows), classes=["cafe\u0301", "bar"])
    assert given.class_names == ("caf\xe9", "bar")


@pytest.mark.parametrize(
    ("labels", "named"),
    [
        (("1", "1.0", "0"), "1 and 1.0"),
        (("-3.00", "-3", "x"), "-3 and -3.00"),
        (("2.", "2.0", "3"), "2. and 2.0"),
        (("7.5", "7.50", "x"), "7.5 and 7.50"),
        (("-0", "0", "1"), "-0 and 0"),
        (("+1", "1", "0"), "+1 and 1"),
        (("1e1", "10", ".5"), "10 and 1e1"),
        (("7", "007", "x", "x.0", "00", "0", "1e", "1_0", "-7"), ""),
    ],
)
def test_numbers_in_several_spellings(tmp_path: Path, labels: Sequence[str], named: str) -> None:
    """``1`` and ``1.0`` became two classes without a word, as ``0`` and ``-0``; names that are no numbers are two."""
    train = write(tmp_path / "a.csv", [(f"film {i}", labels[i % len(labels)]) for i in range(80)])
    assert sorted(loaded(train, classes=[*labels]).class_names) == sorted(labels)
    if not named:
        assert sorted(loaded(train).class_names) == sorted(labels)
        return
    with pytest.raises(UserError) as caught:
        loaded(train)
    assert str(caught.value) == (
        f"Expected every number in column label of --data.train_file {train} to be written in one way, but {named} are "
        "one, and would be two classes; write them alike, or name both by --data.classes if they are two."
    )


@pytest.mark.parametrize("options", [{}, {"classes": [0, 1]}])
def test_a_test_file_with_zeros_behind_a_point(tmp_path: Path, options: Mapping[str, Any]) -> None:
    """That labels are to be corrected, or all to be named, misled: they are right, and only to be written alike."""
    train = write(tmp_path / "a.csv", [(f"film {i}", str(i % 2)) for i in range(20)])
    test = write(tmp_path / "b.csv", [(f"film {i}", f"{i % 2}.0") for i in range(20)])
    with pytest.raises(UserError, match=r"among .*, 0, 1, but 0\.0 is 0 written in another way; write them alike\.$"):
        loaded(train, test_file=str(test), **options)


def test_sentences_whose_words_are_unknown(tmp_path: Path) -> None:
    """Of another language, or without blanks: a model would be measured on nothing, and nobody say so."""
    train = write(tmp_path / "a.csv", ROWS)
    foreign = [(f"un film franc {i}" if i % 2 else "bon", label) for i, (_, label) in enumerate(ROWS[:10])]
    told = (
        r"^60% of the words of the test sentences are not in the vocabulary, the 19998 most frequent words of the tra"
    )
    with pytest.warns(UserWarning, match=told):
        loaded(train, test_file=str(write(tmp_path / "b.csv", foreign)))
    with pytest.warns(
        UserWarning, match=r"^\d+% of the words of the training .* the 2 most frequent words of the train"
    ):
        loaded(train, vocabulary_size=4)
    (tmp_path / "asked.txt").write_text("mot\n\n")
    data = loaded(train, predict_file=str(tmp_path / "asked.txt"))
    with pytest.warns(UserWarning, match="^100% of the words of the sentences of --data.predict_file are not in the"):
        data.predict_dataloader()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "a.csv",
            b"text,mark\nfine,1\n",
            r"a column label in --data\.train_file .* text, mark; name yours with --data\.label\.",
        ),
        ("a.csv", b"", r"at least two classes in column label of .*there is none"),
        ("a.jsonl", b'{"text": "fine"}\n', r"a column label in .*line 1 has text; name"),
        ("a.csv", b"text,label\nfine,1\n ,0\n", r"a sentence in column text, but line 3 of .* has none"),
        ("a.csv", b"text,label\nfine,1\npoor,\n", r"a label in column label .*line 3 has none"),
        ("a.csv", b"text,label\n" + b"fine,1\n" * 20, r"at least two classes .*there is 1 alone"),
        ("a.csv", b"text,label\nfine,1\npoor,0\n", r"a test sentence beside .* each of its 2 sentences has a class"),
        ("a.csv", b"text,label\nfine,1\ncaf\xe9,0\n", r"to be utf-8, but line 3 has the byte 0xe9"),
        ("a.jsonl", b'{"text": "fine", "label": 1}\nnonsense\n', r"JSON object in line 2 .*no JSON"),
        ("a.jsonl", b"[1, 2]\n", r"JSON object in line 1 .*got list"),
        (
            "a.csv",
            b"label,text\n1,Well, this film\n",
            r"2 fields in every line of .*line 2 has 3; put fields with commas",
        ),
        ("a.tsv", b"text\tlabel\nfine\t1\t0\n", r"2 fields in every line of .*line 2 has 3; take tabs out"),
        ("a.csv", b'text,label\n"fine" film,1\n', r"line 2 cannot be read .*quotation marks within a field in quotes"),
        ("a.csv", b'text,label\n"fine,1\npoor,0\n', r"cannot be read .*quotation marks within a field in quotes"),
        ("a.csv", b"text,label,label\nfine,1,2\n", r"a column label once in .*its first line has it 2 times"),
        ("a.csv", b"\n\ntext,mark\nfine,1\n", r"a column label in .*its first line has text, mark"),
        ("a.csv", b"\ntext,label\nfine,1\n ,0\n", r"a sentence in column text, but line 4 of .* has none"),
        (
            "a.csv",
            b"label,text\n1,fine\n0\n",
            r"2 fields in every line of .*line 3 has 1; have nothing stand between commas",
        ),
        ("a.jsonl", b'{"text": "fine", "label": ["a"]}\n', r'a label in column label .*line 1 has \["a"\]'),
        ("a.jsonl", b'{"text": "fine", "label": NaN}\n', r"a label in column label .*line 1 has NaN"),
        ("a.jsonl", b'{"text": 5, "label": 1}\n', r"a sentence in column text, but line 1 of .* has 5\."),
        ("a.tsv", b"text\tlabel\nfi\nne\t1\n", r"line 2 has 1; have nothing .* and take ends of lines out of fields\."),
        (
            "a.csv",
            b"text,label\n" + b"a" * 140_000 + b",1\n",
            r"line 2 cannot be read \(field larger .*; shorten it, or give a \.jsonl file",
        ),
        (
            "a.csv",
            gzip.compress(b"text,label\n", mtime=0),
            r"a\.csv to be a text, but it is packed by gzip; unpack it\.",
        ),
        ("a.txt", b"fine", r"to be a \.csv, \.tsv or \.jsonl file"),
    ],
)
def test_a_file_that_cannot_be_used(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    """One sentence with the option, the line and the remedy."""
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=message):
        loaded(tmp_path / name)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"Expected a file at --data\.train_file .*No such file"):
        loaded(tmp_path / "none.csv")


def test_latin_1_text(tmp_path: Path) -> None:
    rows = "".join(f"caf\xe9 {i},{i % 2}\n" for i in range(20))
    (tmp_path / "a.csv").write_bytes(("text,label\n" + rows).encode("latin-1"))
    assert loaded(tmp_path / "a.csv", encoding="latin-1").num_classes == 2


@pytest.mark.parametrize(("option", "value"), [("vocabulary_size", 2), ("tokenizer", "spacy"), ("test_share", 1.0)])
def test_options_out_of_range(tmp_path: Path, option: str, value: Any) -> None:
    with pytest.raises(UserError, match=rf"--data\.{option}"):
        loaded(write(tmp_path / "a.csv", ROWS), **{option: value})


def test_models_are_measured_on_other_sentences(rffl: Callable[..., Ended], tmp_path: Path) -> None:
    """Newly labelled ones say, by the words of training; a run goes on with its own alone, and training ones stay."""
    train, first = write(tmp_path / "train.csv", ROWS), write(tmp_path / "first.csv", ROWS[:10])
    new = write(tmp_path / "new.csv", [(text, "no") for text, _ in ROWS[20:36]])
    data = ("--data", "TextFile", "--data.train_file", train, "--data.test_file", first, "--data.split", "UNI")
    network = ("--model.network", "TextCNN", "--model.network.vocabulary", 100, "--model.network.width", 8)
    sgd = ("--model.optimizer", "SGD", "--model.optimizer.lr", 0.1, "--federation.participants", 2)
    assert rffl("fit", *data, *network, *sgd, *QUICK, "--trainer.max_epochs", 1).code == 0
    run = only_run(tmp_path / "runs")
    checkpoint = ("--config", run / "config.yaml", "--ckpt_path", run / "checkpoints" / "last.ckpt")
    told = "Warning: These are other examples than those that the checkpoint's run was measured on."
    same = rffl("test", *checkpoint, "--run.name", "same")
    assert same.code == 0, same.err
    assert told not in same.err
    ended = rffl("test", *checkpoint, "--data.test_file", new, "--run.name", "new")
    assert ended.code == 0, ended.err
    assert ended.err.count(told) == 1
    (found,) = (tmp_path / "runs" / "new").glob("*/scores.json")
    scores = json.loads(found.read_text())
    assert scores["examples"] == 16
    ended = rffl("predict", *checkpoint, "--data.predict_file", new, "--run.name", "asked")
    assert ended.code == 0, ended.err
    assert told not in ended.err
    for i in range(2):
        (found,) = (tmp_path / "runs" / "asked").glob(f"*/predictions/participant_{i}.csv")
        with found.open() as file:
            right = [row["label"] == "no" for row in csv.DictReader(file)]
        assert scores["scores"]["accuracy"][i] == pytest.approx(sum(right) / 16)
    ended = rffl("fit", *checkpoint, "--data.test_file", new, "--trainer.max_epochs", 2)
    assert ended.code == 2
    assert "data: shards is" in ended.err
    write(train, [*ROWS[:-1], ("another film", ROWS[-1][1])])
    ended = rffl("test", *checkpoint, "--data.test_file", new)
    assert ended.code == 2
    assert re.search("data: training examples is [^;]*; give the config.yaml .*, and data as it was then", ended.err)


def placed(data: TextDataModule) -> list[str]:
    """Where what is predicted stands."""
    return data.predicted_places(1, data.predict_dataloader())


def test_where_predicted_sentences_stand(tmp_path: Path) -> None:
    """Nobody could tell which sentence of the file a prediction was of."""
    rows = [(f"film {chr(97 + i)}", "yes" if i % 2 else "no") for i in range(20)]  # in line i + 2
    train, lines = write(tmp_path / "a.csv", rows), tmp_path / "b.txt"
    data = loaded(train, test_share=0.3)
    _, _, test = data.read()
    assert isinstance(test, Texts)
    assert placed(data) == [f"line {ord(sentence[-1]) - 95}" for sentence in test.sentences]
    lines.write_text("a good film\n\na bad film\n")
    assert placed(loaded(train, predict_file=str(lines))) == ["line 1", "line 2", "line 3"]
    assert placed(loaded(train, predict_file=str(train))) == [f"line {i + 2}" for i in range(20)]


@pytest.mark.slow
def test_a_text_federation_from_file_to_predictions(rffl: Callable[..., Ended], tmp_path: Path) -> None:
    """Training on a CSV file, small uploads for small shards, and labels with probabilities for a file of sentences."""
    train, questions = write(tmp_path / "reviews.csv", ROWS * 4), tmp_path / "questions.txt"
    questions.write_text("a good film\na bad film\n\n")
    options = ("--data", "TextFile", "--data.train_file", train, "--data.split", "POW", "--data.batch_size", 8)
    network = ("--model.network", "TextCNN", "--model.network.vocabulary", 20_000, "--model.network.width", 16)
    adam = ("--model.optimizer", "Adam", "--model.optimizer.lr", 0.003, "--federation.participants", 3)
    ended = rffl("fit", *options, *network, *adam, *QUICK, "--trainer.max_epochs", 3)
    assert ended.code == 0, ended.err
    folder = only_run(tmp_path / "runs")
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["maximum"] > 0.9
    with (folder / "metrics.csv").open() as file:
        row = next(csv.DictReader(file))
    assert float(row["bytes_up/participant_0"]) < 0.2 * 4 * 20_000 * 16  # no word outside its shard
    checkpoint = ("--config", folder / "config.yaml", "--ckpt_path", folder / "checkpoints" / "last.ckpt")
    ended = rffl("predict", *checkpoint, "--data.predict_file", questions)
    assert ended.code == 0, ended.err
    (path,) = (tmp_path / "runs").glob("*/*/predictions/participant_2.csv")
    with path.open() as file:
        rows = list(csv.DictReader(file))
    assert [row["label"] for row in rows[:2]] == ["yes", "no"]
    assert [row["source"] for row in rows] == ["line 1", "line 2", "line 3"]
    assert len(rows) == 3
    for row in rows:
        assert float(row["p_0"]) + float(row["p_1"]) == pytest.approx(1, abs=1e-5)
    missing = rffl("predict", *checkpoint, "--data.predict_file", tmp_path / "none.txt")
    assert missing.code == 2
    assert re.search(r"Expected a file at --data\.predict_file .*none\.txt", missing.err)


def test_names_of_columns_in_either_unicode_form(tmp_path: Path) -> None:
    """A file from macOS has letters and accents apart: its columns were said to be missing."""
    text, label, group = "Sätze", "Gefühl", "Männer"
    apart = [normalize("NFD", name) for name in (text, label, group)]
    lines = [",".join(apart), *(f"{words},{said},{i % 2}" for i, (words, said) in enumerate(ROWS))]
    (tmp_path / "a.csv").write_text("\n".join(lines) + "\n")
    for names in ((text, label, group), apart):
        given = dict(zip(("text", "label", "group"), names, strict=True))
        data = TextFile(
            Federation(participants=2), split="GROUPS", train_file=str(tmp_path / "a.csv"), test_share=0.2, **given
        )
        data.setup("fit")
        assert data.class_names == ("no", "yes")
