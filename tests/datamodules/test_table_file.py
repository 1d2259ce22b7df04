"""Tables in every kind of file, as people write them, under OWN, and to predict with."""

from __future__ import annotations

import csv
import json
import tracemalloc
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unicodedata import normalize

import pytest
import torch

from rffl_pl.datamodules import TableFile
from rffl_pl.datamodules.columns import Numbers
from rffl_pl.datamodules.row_files import records
from rffl_pl.errors import UserError
from rffl_pl.federation import Federation
from tests.cli.folders import assert_same_bits
from tests.conftest import QUICK, Ended, only_run
from tests.datamodules.apart import machines
from tests.datamodules.tables import Patient, data_of, inputs, numbered_rows, patients, write
from tests.ranks import forked

SIZE = "Größe"


@pytest.mark.parametrize("kind", ["tsv", "jsonl"])
def test_kinds_of_files(tmp_path: Path, kind: str) -> None:
    """The same rows are the same inputs, to the bit, and the same classes."""
    rows = patients(40)
    one, other = data_of(write(tmp_path / "a.csv", rows)), data_of(write(tmp_path / f"a.{kind}", rows))
    assert torch.equal(inputs(one), inputs(other))
    assert one.identity() == other.identity()


def test_what_json_has_beside_texts(tmp_path: Path) -> None:
    """Numbers, truths and nothing, or no such key: as a CSV file says them."""
    rows: list[Patient] = [
        {"a": 1, "b": True, "c": "x", "label": 0},
        {"a": 2.5, "b": False, "label": 1},
        {"b": True, "c": "y", "label": 1},
        {"a": None, "b": None, "c": None, "label": 0},
    ]
    text = [
        {"a": "1", "b": "1", "c": "x", "label": "0"},
        {"a": "2.5", "b": "0", "c": "", "label": "1"},
        {"a": "", "b": "1", "c": "y", "label": "1"},
        {"a": "", "b": "", "c": "", "label": "0"},
    ]
    told = {"label": "label", "categories": None}
    one = data_of(write(tmp_path / "a.jsonl", rows * 5), **told)
    other = data_of(write(tmp_path / "a.csv", text * 5), **told)
    assert torch.equal(inputs(one), inputs(other))
    assert one.columns_read.entries == ["a", "a missing", "b", "b missing", "c=x", "c=y"]


@pytest.mark.parametrize(
    ("options", "entries"),
    [
        ({"features": ["sex", "age"]}, ["sex=f", "sex=m", "sex=x", "age"]),
        ({"features": "age"}, ["age"]),
        ({"leave_out": ["pressure", "clinic", "sex"], "categories": "year"}, ["age", "year=2020"]),
    ],
)
def test_which_columns_are_read(tmp_path: Path, options: Mapping[str, Any], entries: list[str]) -> None:
    """In the order in which they are named, or as the file has them."""
    data = data_of(write(tmp_path / "a.csv", patients(40)), **{"categories": None, **options})
    assert data.columns_read.entries == entries
    assert inputs(data).shape[1] == len(entries)


MISTAKES: dict[str, tuple[str, Mapping[str, Any], str]] = {
    "a number that is none": ("a,label\n1,0\n2,1\n4o,0\n", {}, r"numbers alone in column a, .* line 4 of .* has '4o'"),
    "an endless number": ("a,label\n1,0\n1e999,1\n" + "2,0\n1e999,1\n" * 9, {}, r"numbers alone in .* has '1e999'"),
    "names": (
        "a,label\n" + "".join(f"name {i},{i % 2}\n" for i in range(130)),
        {},
        r"at most 100 different texts, but there are 1\d\d?, 'name \d+' in line \d+ of .*--data\.leave_out '\[a\]', or",
    ),
    "nothing at all": ("a,label\n,0\n,1\n,1\n", {}, r"values in column a, but all \d rows lack one"),
    "an index": (",a,label\n0,1,0\n1,2,1\n", {}, r"to have a name, but number 1 has none; .*leave_out \"\[''\]"),
    "twice": ("a,a,label\n0,1,0\n", {}, r"a column a once in .*its first line has it 2 times"),
    "named twice": ("a,label\n1,0\n2,1\n", {"features": ["a", "a"]}, r"every column once, but got a twice"),
    "no category": ("a,label\n,0\n,1\n,1\n", {"categories": "a"}, r"values in column a, but all \d rows lack one"),
    "gaps alone": ("a,label\nNA,0\n?,1\n,1\n", {}, r"values in column a, but all \d rows lack one"),
    "a name of digits": (
        "2020,a,label\n,1,0\n,2,1\n,1,1\n",
        {},
        r"in column 2020, but .* --data\.leave_out \"\['2020'\]\"\.",
    ),
    "names that YAML reads": ("a,label\n1,0\n", {"leave_out": [True]}, r"YAML reads one as True; quote it"),
    "decimal commas": ('a,label\n"1,5",0\n"2,5",1\n"2,5",1\n', {}, r"in column a as 1234\.5, but .* has '[12],5'"),
    "per cent": ("a,label\n" + "NA,1\n7%,0\n8%,1\n" * 3, {}, r"in column a as 1234\.5, but .* has '[78]%'"),
    "many thousands": (
        "a,label\n" + "".join(f'"1,{i:03}",{i % 2}\n' for i in range(200)),
        {},
        r"in column a as 1234\.5, but .* has '1,\d+'; write them so",
    ),
    "a title": (
        "# of 2024\na,label\n1,0\n2,1\n",
        {},
        r"names of columns in the first line of .*, but it has '# of 2024' alone, and line 2 has 2 fields; take out",
    ),
    "semicolons": ("a;label\n1;0\n", {}, r"commas between the columns of .*, but its first line has semicolons"),
    "no rows": ("", {}, r"Expected rows in --data\.train_file .*, but it has none"),
    "labels alone": ("label\n0\n1\n", {}, r"a column beside the label in .*, but it has label alone"),
    "no label": ("a,mark\n1,0\n2,1\n", {}, r"a column label in .*its first line has a, mark; name yours with"),
    "a typing error": ("age,label\n1,0\n2,1\n", {"features": ["agee"]}, r"\.features .* got agee .*you mean age"),
    "the label out": ("a,label\n1,0\n2,1\n", {"leave_out": "label"}, r"\.leave_out .* but got label, which is the"),
    "the label in": ("a,label\n1,0\n2,1\n", {"features": ["a", "label"]}, r"in both; a model would be told"),
    "none in": ("a,label\n1,0\n2,1\n", {"features": []}, r"--data\.features to name at least one column"),
    "no feature": ("a,b,label\n1,2,0\n", {"features": "a", "categories": "b"}, r"got b, which is not among --data\.f"),
    "out and in": ("a,b,label\n1,2,0\n2,1,1\n", {"leave_out": "b", "categories": "b"}, r"got b, which is left out; l"),
    "in and out": ("a,label\n1,0\n", {"features": "a", "leave_out": "a"}, r"\.features or --data\.leave_out, but"),
    "thousands apart": ("a,label\n" + "1 234,0\n5 678,1\n" * 3, {}, r"in column a as 1234\.5, but .* has '\d \d{3}'"),
    "brackets": ("a,label\n" + "(12),0\n(7),1\n" * 3, {}, r"in column a as 1234\.5, but .* has '\(\d+\)'"),
    "labels that are missing": ("a,label\n1,0\n2,1\n3,NaN\n", {}, r"a number as label in .* some have 'NaN'; take"),
    "the header again": ("a,label\n1,0\n2,1\n" * 2, {}, r"first line of .* alone, but line 4 has them again"),
    "a field short": ("a,b,label\n1,2,0\n1,1\n", {}, r"3 fields in every line of .*line 3 has 2; have nothing"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_table_that_cannot_be_used(tmp_path: Path, mistake: str) -> None:
    """One sentence with the option or column, the line and the remedy."""
    content, options, message = MISTAKES[mistake]
    (tmp_path / "a.csv").write_text(content)
    with pytest.raises(UserError, match=message):
        data_of(str(tmp_path / "a.csv"), **{"label": "label", "categories": None, **options})


def test_another_file_that_cannot_be_used(tmp_path: Path) -> None:
    """A test file with other columns, or a text among numbers; a list in JSON."""
    rows = patients(40)
    train = write(tmp_path / "a.csv", rows)
    without = write(tmp_path / "b.csv", [{"age": row["age"], "outcome": row["outcome"]} for row in rows])
    with pytest.raises(
        UserError, match=r"column pressure in --data\.test_file .*add it, or leave it out with --data\.le"
    ):
        data_of(train, test_file=without)
    text = write(tmp_path / "c.csv", [rows[0], {**rows[1], "age": "old"}])
    with pytest.raises(
        UserError, match=r"a number in column age, .*line 3 of --data\.test_file .* has 'old'; correct it"
    ):
        data_of(train, test_file=text)
    nested = write(tmp_path / "d.jsonl", [{**row, "age": [1]} for row in rows])
    with pytest.raises(UserError, match=r"a number or a text in column age, but line 1 of .* has a list; leave it out"):
        data_of(nested)


def test_headers_as_people_write_them(tmp_path: Path) -> None:
    """Blanks around names and lines of blanks say nothing; columns that are not read may have any name, or none."""
    lines = "".join(f"{i},x,{i % 2},y,\n" for i in range(20))
    (tmp_path / "a.csv").write_text(" a , b,label ,b,\n   \n" + lines + "  \n")
    assert data_of(str(tmp_path / "a.csv"), label="label", categories=None, features="a").columns_read.entries == ["a"]


def test_blanks_behind_commas(tmp_path: Path) -> None:
    """Quotation marks behind them were part of the fields, and numbers became categories without a word."""
    rows = [(f"{i}", f"{i % 5}, or more", "xy"[i % 2]) for i in range(40)]
    for name, line in (("a", '"{}", "{}", "{}"\n'), ("b", '"{}","{}","{}"\n')):
        text = "".join(line.format(*fields) for fields in [("age", "place", "outcome"), *rows])
        (tmp_path / f"{name}.csv").write_text(text)
    blanks, plain = (data_of(str(tmp_path / f"{name}.csv"), categories=None) for name in "ab")
    assert blanks.columns_read == plain.columns_read
    assert isinstance(plain.columns_read.columns[0], Numbers)
    assert torch.equal(inputs(blanks), inputs(plain))


def test_rows_of_commas_alone(tmp_path: Path) -> None:
    """Excel leaves them below a table from which rows were deleted; they are no gaps, and no example."""
    train, asked = (Path(write(tmp_path / f"{name}.csv", numbered_rows(20))) for name in ("a", "b"))
    plain = data_of(str(train), predict_file=str(asked), categories=None)
    for file in (train, asked):
        file.write_text(file.read_text() + ", \n" + ",\n" * 3)
    blank = data_of(str(train), predict_file=str(asked), categories=None)
    assert torch.equal(inputs(blank), inputs(plain))
    places = blank.predicted_places(1, blank.predict_dataloader())
    assert places == plain.predicted_places(1, plain.predict_dataloader())
    assert len(places) == 20


def test_rows_of_json_are_read_one_by_one(tmp_path: Path) -> None:
    """All of them at once took several times the memory of their file."""
    rows = [{f"c{i}": i for i in range(20)}] * 1000
    path = Path(write(tmp_path / "a.jsonl", [*rows, {"last": "alone"}]))
    tracemalloc.start()
    try:
        found = sum(record["last"] is None for _, record in records(path, "--data.train_file", "utf-8", {}))
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found == 1000
    assert most < 5 * path.stat().st_size


def own(folder: Path) -> dict[str, str]:
    files = {"train_file": "train_{participant}.csv", "test_file": "test.csv", "columns_file": "columns.csv"}
    return {f"--data.{name}": str(folder / file) for name, file in files.items()}


def words(given: Mapping[str, object]) -> list[str]:
    return [str(word) for pair in given.items() for word in pair]


FIT = (
    "fit", "--data", "TableFile", "--data.label", "outcome", "--data.categories", "clinic", "--federation.participants",
    "3", "--model.network", "Perceptron", "--model.network.inputs", "10", "--model.network.classes", "2",
    "--model.optimizer", "SGD", "--model.optimizer.lr", "0.1", "--trainer.max_epochs", "2", *QUICK,
)  # fmt: skip


@pytest.mark.slow
def test_on_two_machines(rffl: Callable[..., Ended], tmp_path: Path) -> None:
    """Each has the rows of whom it hosts: the bits of all files in one; columns that are not the same are refused."""
    files = tmp_path / "files"
    files.mkdir()
    for i in range(3):
        write(files / f"train_{i}.csv", patients(20 + 4 * i, seed=i))
    write(files / "test.csv", patients(16, seed=10))
    write(files / "columns.csv", patients(30, seed=11))
    apart = ("--data.split", "OWN", "--data.validation", "0", "--data.watch", "test")
    ended = rffl(*FIT, *apart, *words(own(files)), "--run.root", tmp_path / "one")
    assert ended.code == 0, ended.err
    places = machines(files, 3, 2)
    each = [words(own(place)) for place in places]
    ended = forked(2, *FIT, *apart, *each[0], each=each, root=tmp_path / "two")
    assert ended.code == 0, ended.err
    assert_same_bits(only_run(tmp_path / "one"), only_run(tmp_path / "two"))

    write(places[1] / "columns.csv", patients(30, seed=12))
    ended = forked(2, *FIT, *apart, *each[0], each=each, root=tmp_path / "other")
    assert ended.code == 2
    assert ended.err.count("Error: Expected all ranks to start alike, but the data of rank 1 differs") == 1
    with pytest.raises(UserError, match=r"--data\.columns_file for TableFile with --data\.split OWN, but got none"):
        data_of(str(files / "train_{participant}.csv"), split="OWN", test_file=str(files / "test.csv"))


def test_from_file_to_predictions(rffl: Callable[..., Ended], tmp_path: Path) -> None:
    """Rows without labels get one each by the same scale, and a network of another width is told the right one."""
    rows = patients(80)
    told = [{**row, "outcome": "ill" if float(row["age"]) > 50 else "well"} for row in rows]
    train = write(tmp_path / "a.csv", told)
    ended = rffl(*FIT, "--data.train_file", train, "--model.network.inputs", 9)
    assert ended.code == 2
    assert "the test set's, but it fails: " in ended.err
    assert ended.err.strip().endswith("; give --model.network.inputs 10.")
    ended = rffl(*FIT, "--data.train_file", train, "--trainer.max_epochs", 8)
    assert ended.code == 0, ended.err
    folder = only_run(tmp_path / "runs")
    asked = [{**row, "age": age} for age, row in zip(("20", "90", "25"), rows, strict=False)]
    questions = write(tmp_path / "b.jsonl", [{key: row[key] for key in row if key != "outcome"} for row in asked])
    checkpoint = ("--config", folder / "config.yaml", "--ckpt_path", folder / "checkpoints" / "last.ckpt")
    ended = rffl("predict", *checkpoint, "--data.predict_file", questions)
    assert ended.code == 0, ended.err
    (path,) = (tmp_path / "runs").glob("*/*/predictions/participant_2.csv")
    with path.open() as file:
        found = [*csv.DictReader(file)]
    assert [row["label"] for row in found] == ["well", "ill", "well"]
    assert [row["source"] for row in found] == ["line 1", "line 2", "line 3"]


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_where_predicted_rows_stand(tmp_path: Path, kind: str) -> None:
    """Those that are held out of one file are in a random order, and nobody could tell which of the file's they are."""
    options: dict[str, Any] = {"categories": None, "eval_batch_size": 3}
    data = data_of(write(tmp_path / f"a.{kind}", numbered_rows(80)), **options)
    (age,) = data.columns_read.columns
    assert isinstance(age, Numbers)
    ages = (inputs(data, "test").double().flatten() * age.deviation + age.mean).round().int().tolist()
    assert ages != sorted(ages)
    first = 1 if kind == "jsonl" else 2
    assert (
        data.predicted_places(0, data.predict_dataloader())
        == data.predicted_places(1, data.predict_dataloader())
        == [f"line {i + first}" for i in ages]
    )
    write(tmp_path / f"b.{kind}", numbered_rows(4))
    asked = data_of(str(tmp_path / f"a.{kind}"), predict_file=str(tmp_path / f"b.{kind}"), **options)
    assert asked.predicted_places(1, asked.predict_dataloader()) == [f"line {i + first}" for i in range(4)]


def test_a_source_beside_each_prediction(rffl: Callable[..., Ended], tmp_path: Path) -> None:
    """On every rank, of whom it hosts, of test rows of its own, and of as many as are asked for."""
    for i in range(3):
        write(tmp_path / f"train_{i}.csv", numbered_rows(8))
        (tmp_path / f"test_{i}.csv").write_text("age,outcome\n" + i * "\n" + "1,0\n2,1\n" * (i + 2))
    write(tmp_path / "columns.csv", numbered_rows(8))
    files = own(tmp_path) | {"--data.test_file": str(tmp_path / "test_{participant}.csv")}
    apart = ("--data.split", "OWN", "--data.validation", 0, "--data.watch", "test", "--data.classes", "['0', '1']")
    one = ("--data.categories", "null", "--model.network.inputs", 1)
    assert rffl(*FIT, *apart, *one, *words(files)).code == 0
    folder = only_run(tmp_path / "runs")
    few = ("--data.eval_batch_size", 3, "--trainer.limit_predict_batches", 2)
    checkpoint = ("--config", folder / "config.yaml", "--ckpt_path", folder / "checkpoints" / "last.ckpt")
    ended = forked(2, "predict", *checkpoint, *few, root=tmp_path / "two")
    assert ended.code == 0, ended.err
    assert "predicted 2 batches at most: the first ones, as the trainer is told" in ended.out
    for i in range(3):
        (path,) = (tmp_path / "two").rglob(f"predictions/participant_{i}.csv")
        with path.open() as file:
            header, *found = csv.reader(file)
        assert header == ["example", "source", "class", "label", "p_0", "p_1"]
        assert [row[:2] for row in found] == [[str(n), f"line {n + i + 2}"] for n in range(min(6, 2 * i + 4))]


def test_texts_in_either_unicode_form(tmp_path: Path) -> None:
    """A file from macOS has letters and accents apart: its categories counted as none, and its columns were missing."""
    whole = [{"Größe": "1.5", "Stadt": city, "Fälle": str(i % 2)} for i, city in enumerate(["Zürich", "Bern"] * 10)]
    apart = [{normalize("NFD", name): normalize("NFD", text) for name, text in row.items()} for row in whole]
    assert apart != whole
    told: dict[str, Any] = {"label": "Fälle", "features": ["Stadt"], "categories": None}
    data = data_of(write(tmp_path / "a.csv", whole), test_file=write(tmp_path / "b.csv", apart[:2]), **told)
    assert inputs(data, "test").tolist() == [[0, 1], [1, 0]]
    sizes = told | {"features": normalize("NFD", "Größe"), "label": normalize("NFD", "Fälle")}
    for kind in ("csv", "jsonl"):
        for rows in (whole, apart):
            assert data_of(write(tmp_path / f"c.{kind}", rows), **sizes).columns_read.entries == ["Größe"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", f"{SIZE},{normalize('NFD', SIZE)},label\n1,2,0\n3,4,1\n"),
        ("a.jsonl", json.dumps({SIZE: 1, normalize("NFD", SIZE): 2, "label": 0}) + "\n"),
    ],
    ids=["csv", "jsonl"],
)
def test_one_name_in_two_unicode_forms(tmp_path: Path, name: str, content: str) -> None:
    """Nobody could say which of the two is meant."""
    (tmp_path / name).write_text(content)
    with pytest.raises(UserError, match=rf"a column {SIZE} once in --data\.train_file .*a\.{name[2:]}, but"):
        data_of(str(tmp_path / name), label="label", categories=None, features=SIZE)


@pytest.mark.parametrize("part", ["train", "test"])
def test_a_file_of_a_participant_that_is_not_there(tmp_path: Path, part: str) -> None:
    """A fourth hospital's rows were never used, and nobody said so."""
    for i in range(3):
        write(tmp_path / f"train_{i}.csv", numbered_rows(8))
        write(tmp_path / f"test_{i}.csv", numbered_rows(4))
    told: dict[str, Any] = {"split": "OWN", "test_file": str(tmp_path / "test_{participant}.csv"), "categories": None}
    told |= {"columns_file": str(tmp_path / "train_0.csv"), "classes": ["0", "1"]}
    federation, train = Federation(participants=2, adversaries=1), str(tmp_path / "train_{participant}.csv")
    data = TableFile(federation, label="outcome", validation=0, watch="test", train_file=train, **told)
    data.load()
    more = write(tmp_path / f"{part}_3.csv", numbered_rows(8))
    with pytest.warns(UserWarning, match="there is also") as caught:
        data.load()
    assert [str(one.message) for one in caught] == [
        f"--data.{part}_file is read of 3 participants, 0 to 2, but there is also {more}, which nobody reads; raise "
        "--federation.participants if it is to take part."
    ]


def test_rows_that_are_asked_for_later(tmp_path: Path) -> None:
    """Who asks for other rows in a notebook was given the test set's, or the first ones again."""
    data = data_of(write(tmp_path / "a.csv", patients(40)))
    tested = len(data.predict_dataloader())
    data.predict_file = write(tmp_path / "b.csv", patients(2))
    (batch,) = data.predict_dataloader()
    assert len(batch[0]) == 2
    data.predict_file = write(tmp_path / "c.csv", patients(3))
    (batch,) = data.predict_dataloader()
    assert len(batch[0]) == 3
    data.predict_file = None
    assert len(data.predict_dataloader()) == tested
