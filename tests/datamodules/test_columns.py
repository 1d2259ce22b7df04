"""Columns of a table as inputs: numbers standardised, categories one entry each, gaps."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch.utilities.rank_zero import rank_zero_only
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from torch import Tensor

from rffl_pl.datamodules import columns
from rffl_pl.datamodules.columns import Columns, Numbers, Row
from rffl_pl.errors import UserError
from tests.datamodules.made import Made
from tests.datamodules.tables import GAPS, Patient, data_of, inputs, numbered_rows, patients, write


def reference(train: Sequence[Patient], asked: Sequence[Patient]) -> Tensor:
    """Of scikit-learn: scaled by the numbers that there are, then gaps filled; categories that are unknown ignored."""

    def numbers(rows: Sequence[Patient], name: str) -> Any:
        return np.array([[np.nan if row[name] in GAPS else float(row[name])] for row in rows])

    def texts(rows: Sequence[Patient], name: str) -> Any:
        return np.array([[row[name]] for row in rows], dtype=object)

    columns = []
    for name in ("age", "pressure", "year"):
        scaled = StandardScaler().fit(numbers(train, name)).transform(numbers(asked, name))
        columns.append(np.nan_to_num(scaled, nan=0.0))
        if name == "pressure":
            columns.append(np.isnan(scaled))
    for name in ("sex", "clinic"):
        known = [row for row in train if row[name]]
        encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False).fit(texts(known, name))
        columns.append(encoder.transform(texts(asked, name)))
    return torch.tensor(np.concatenate(columns, axis=1), dtype=torch.float32)


@pytest.mark.parametrize("seed", range(5))
def test_against_scikit_learn(tmp_path: Path, seed: int) -> None:
    """Numbers, gaps and categories of training rows and of test rows, of which one has a text that no other has."""
    train, test = patients(60, seed), [*patients(20, seed + 100), {**patients(1)[0], "sex": "other", "clinic": "new"}]
    data = data_of(write(tmp_path / "a.csv", train), test_file=write(tmp_path / "b.csv", test))
    torch.testing.assert_close(inputs(data), reference(train, train), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(inputs(data, "test"), reference(train, test), rtol=1e-6, atol=1e-6)
    assert data.columns_read.entries == [
        "age", "pressure", "pressure missing", "year", "sex=f", "sex=m", "sex=x", "clinic=007",
        "clinic=North, by the sea", "clinic=south",
    ]  # fmt: skip
    assert inputs(data, "test")[-1, 4:].eq(0).all()
    assert data.class_names == ("ill", "well")


def test_the_test_rows_do_not_tell(tmp_path: Path) -> None:
    """Of one file a share is held out, by which nothing is scaled."""
    data = data_of(write(tmp_path / "a.csv", patients(80)), test_share=0.25)
    x = inputs(data)
    assert (len(x), len(inputs(data, "test"))) == (60, 20)
    torch.testing.assert_close(x[:, 0].mean(), torch.tensor(0.0), atol=1e-6, rtol=0)
    torch.testing.assert_close(x[:, 0].std(correction=0), torch.tensor(1.0))


def test_two_rows_that_say_mean_and_deviation(tmp_path: Path) -> None:
    """50 less and plus 15 scale as fifty and fifteen."""
    scale = write(tmp_path / "scale.csv", [{"age": "35"}, {"age": "65"}])
    train = write(tmp_path / "a.csv", [{"age": "80", "outcome": "ill"}, {"age": "50", "outcome": "well"}] * 20)
    data = data_of(train, columns_file=scale, categories=None)
    assert sorted({*inputs(data).flatten().tolist()}) == [0.0, 2.0]


def test_other_scales_are_another_data_set(tmp_path: Path) -> None:
    """A checkpoint must not be loaded over inputs of another scale, though rows and classes be the same."""
    train = write(tmp_path / "a.csv", patients(40))
    here = data_of(train, columns_file=write(tmp_path / "b.csv", patients(40, seed=2))).identity()
    again = data_of(train, columns_file=write(tmp_path / "c.csv", patients(40, seed=2))).identity()
    other = data_of(train, columns_file=write(tmp_path / "d.csv", patients(40, seed=3))).identity()
    assert here == again
    assert {name for name in here if here[name] != other[name]} == {"columns", "inputs", "training examples"}


def test_plain_fields_take_no_step_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of large tables each field was looked through for what ASCII has not, and parsed twice."""
    asked: list[str] = []
    for name in ("number_of", "normalize"):
        monkeypatch.setattr(columns, name, lambda *given: asked.append(given[-1]))
    data = data_of(write(tmp_path / "a.csv", numbered_rows(40)), categories=None)
    assert isinstance(data.columns_read.columns[0], Numbers)
    assert asked == []


@pytest.mark.parametrize("odd", ["", "NA", "nan", "1_0", "inf", "-1e999", "x", "\u0661", "1e3", " 2"])
def test_numbers_at_once_or_one_by_one(odd: str) -> None:
    """They are the same, whatever stands among them."""
    for texts in (["1", odd, "2.5", odd], ["1", "-2.5"], [odd], []):
        np.testing.assert_equal(columns.numbers_of(texts), [columns.number_of(text) for text in texts])


def test_whole_numbers_of_json_are_one_category(tmp_path: Path) -> None:
    """pandas writes them with a point where there are gaps."""
    rows = [{"code": code, "outcome": i % 2} for i, code in enumerate([1, 1.0, True, "1", 2, None, 2.0, "2"] * 5)]
    assert data_of(write(tmp_path / "a.jsonl", rows), categories="code").columns_read.entries == ["code=1", "code=2"]


def test_numbers_that_are_categories_in_another_spelling(tmp_path: Path) -> None:
    """A file with gaps has ``1.0`` where one without has ``1``; numbers that are written twice stay apart."""
    train = [{"grade": grade, "outcome": i % 2} for i, grade in enumerate(["1.0", "2.0", "", "3.5"] * 5)]
    test = write(tmp_path / "b.csv", [{"grade": grade, "outcome": 0} for grade in ("1", "2", "3.50", "4")])
    with pytest.warns(UserWarning, match=r"^1 of 4 rows have no category of column grade, .* has '4', which"):
        data = data_of(write(tmp_path / "a.csv", train), test_file=test, categories="grade")
    assert inputs(data, "test").tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0]]
    train = [{"grade": grade, "outcome": i % 2} for i, grade in enumerate(["1", "01", "2"] * 5)]
    with pytest.warns(UserWarning, match=r"^2 of 4 rows have no category of column grade, .* has '3\.50', which"):
        data = data_of(write(tmp_path / "c.csv", train), test_file=test, categories="grade")
    assert data.columns_read.entries == ["grade=01", "grade=1", "grade=2"]
    assert inputs(data, "test").tolist() == [[0, 1, 0], [0, 0, 1], [0, 0, 0], [0, 0, 0]]


def test_categories_that_no_row_has(tmp_path: Path) -> None:
    """It is told: a column whose texts another file spells otherwise would be zeros without a word."""
    train = write(tmp_path / "a.csv", [{"sex": sex, "outcome": i % 2} for i, sex in enumerate("fm" * 10)])
    test = write(tmp_path / "b.csv", [{"sex": sex, "outcome": 0} for sex in ("", "F", "M")])
    with pytest.warns(UserWarning, match=r"No row has a category of column sex, .* f, m: line 3 of .*b\.csv has 'F'"):
        data_of(train, test_file=test, categories=None)


def test_entries_of_categories_are_made_as_they_stay() -> None:
    """Whole numbers for each of them first took three times the memory of the inputs that they became."""
    rows = [Row(f"line {i}", [f"{i % 100}"]) for i in range(1000)]
    with Made() as made:
        x = Columns.of(["place"], rows, ["place"]).encode(rows, print)
    assert torch.equal(x, torch.eye(100).repeat(10, 1))
    assert max(made.bytes) < 1.1 * x.numel() * x.element_size()


@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
def test_numbers_of_any_size(tmp_path: Path, scale: float) -> None:
    """Squares vanish or overflow beyond 154 digits, and a column would be zeros, or NaN."""
    rows = [{"a": repr(scale * (i % 5)), "outcome": str(i % 2)} for i in range(50)]
    x = inputs(data_of(write(tmp_path / "a.csv", rows), test_file=write(tmp_path / "b.csv", rows[:2]), categories=None))
    torch.testing.assert_close(x[:5].flatten(), torch.tensor([-2.0, -1.0, 0.0, 1.0, 2.0]) / 2**0.5)


def test_numbers_beyond_single_precision(tmp_path: Path) -> None:
    """What is endlessly far away would be predicted as NaN."""
    train = write(tmp_path / "a.csv", patients(40))
    asked = write(tmp_path / "b.csv", [*patients(2), {**patients(1)[0], "age": "1e300"}])
    with pytest.raises(
        UserError, match=r"column age that are not endlessly far .*, but line 4 of --data\.predict_file"
    ):
        data_of(train, predict_file=asked).predict_dataloader()


@pytest.mark.slow
def test_scales_hang_on_no_number_of_threads(tmp_path: Path) -> None:
    """A checkpoint of two threads was refused with one, and ranks of unlike machines by one another."""
    rows = [{"a": repr(draw), "outcome": str(i % 2)} for i, draw in enumerate(torch.randn(70_000).double().tolist())]
    path, threads = write(tmp_path / "a.csv", rows), torch.get_num_threads()
    found = []
    try:
        for count in (1, 2, 4):
            torch.set_num_threads(count)
            found.append(data_of(path, categories=None).identity())
    finally:
        torch.set_num_threads(threads)
    assert found[0] == found[1] == found[2]


def sexes(texts: Sequence[str]) -> list[Patient]:
    return [{"sex": text, "outcome": str(i % 2)} for i, text in enumerate(texts)]


def test_categories_that_some_rows_lack(tmp_path: Path) -> None:
    """Twelve of forty patients were zeros without a word; a few that are new, and gaps, are nothing to tell."""
    train = write(tmp_path / "a.csv", sexes("fm" * 10))
    told: dict[str, Any] = {"categories": None}
    few = write(tmp_path / "b.csv", sexes([*"fm" * 9, "x", "", "NA", "?"]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data_of(train, test_file=few, **told)
    many = write(tmp_path / "c.csv", sexes([*"fm" * 14, *"FM" * 6, "", "NA"]))
    message = (
        r"^12 of 40 rows have no category of column sex, of which there are f, m: line 30 of --data\.{}_file .*c\.csv "
        r"has 'F', which counts as none\.$"
    )
    with pytest.warns(UserWarning, match=message.format("test")) as caught:
        data_of(train, test_file=many, **told)
    assert len(caught) == 1
    asked = data_of(train, predict_file=many, **told)
    with pytest.warns(UserWarning, match=message.format("predict")) as caught:
        asked.predict_dataloader()
    assert len(caught) == 1
    asked.predict_dataloader()  # which says it no more


@pytest.mark.parametrize("spelling", ["FM", "fF"])
def test_who_tells_of_other_categories(tmp_path: Path, spelling: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every rank told of a file that is everybody's; of a participant's own nobody else can."""
    monkeypatch.setattr(rank_zero_only, "rank", 1)
    train, test = write(tmp_path / "a.csv", sexes("fm" * 10)), write(tmp_path / "b.csv", sexes(spelling * 10))
    told: dict[str, Any] = {"categories": None, "test_file": test}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data_of(train, **told)
    for i in range(2):
        write(tmp_path / f"c_{i}.csv", sexes(spelling * (i + 5)))
    own_files = told | {"split": "OWN", "train_file": str(tmp_path / "c_{participant}.csv"), "columns_file": train}
    with pytest.warns(UserWarning, match="column sex, of which there are f, m: line . of --data.train_file") as caught:
        data_of(own_files.pop("train_file"), **own_files)
    assert len(caught) == 2
