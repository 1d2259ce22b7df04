"""GROUPS: examples that belong together stay together, whichever data says so."""

from __future__ import annotations

import csv
import random
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from rffl_pl.datamodules import GROUPS, FederatedDataModule, HFDataset, HFText, Pool, Sources, TableFile, TextFile
from rffl_pl.datamodules.splits import grouped
from rffl_pl.errors import UserError
from rffl_pl.federation import Federation
from rffl_pl.runs import RunFolder
from tests.cli.folders import assert_same_bits
from tests.conftest import QUICK, Ended, only_run
from tests.datamodules.small import ready
from tests.ranks import forked

FEW: dict[str, Any] = {"split": "GROUPS", "validation": 0, "watch": "test"}
CITIES = ("10", "9", "Bern", "Rome")


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def groups_of(seed: int, count: int = 200, least: int = 0) -> Tensor:
    """Numbers of eight groups of unlike sizes, of which one has no example; at least so many of the others."""
    weights = torch.tensor([9.0, 1, 4, 0, 2, 2, 7, 5])
    drawn = torch.multinomial(weights, count, replacement=True, generator=seeded(seed))
    return torch.cat([drawn, torch.tensor([0, 1, 2, 4, 5, 6, 7]).repeat(least)])


@pytest.mark.parametrize("seed", range(5))
def test_everybody_holds_a_whole_group(seed: int) -> None:
    """As many groups as participants: the examples of each, in the order of their numbers."""
    groups = groups_of(seed, least=1)
    shards = grouped(groups, 7, each=len(groups) // 7, least=1, generator=seeded(seed))
    for shard, group in zip(shards, (0, 1, 2, 4, 5, 6, 7), strict=True):
        assert shard.tolist() == [i for i, of in enumerate(groups.tolist()) if of == group]


@pytest.mark.parametrize("seed", range(5))
def test_of_more_groups_some_are_drawn(seed: int) -> None:
    """Other ones with another seed, none twice, none that is too small."""
    groups = groups_of(seed, least=1)
    drawn = []
    for draw in range(40):
        shards = grouped(groups, 3, each=len(groups), least=10, generator=seeded(draw))
        drawn.append(tuple(int(groups[shard].unique()) for shard in shards))
        assert all(len(shard) == int((groups == of).sum()) >= 10 for shard, of in zip(shards, drawn[-1], strict=True))
    assert all(len({*chosen}) == 3 and list(chosen) == sorted(chosen) for chosen in drawn)
    large = {group for group, count in Counter(groups.tolist()).items() if count >= 10}
    assert {group for chosen in drawn for group in chosen} == large
    assert len({*drawn}) > 1


@pytest.mark.parametrize("each", [1, 4, 20])
def test_a_share_of_every_group(each: int) -> None:
    """Where fewer are asked for than there are, groups shrink alike, and nobody has nothing."""
    groups = groups_of(1, least=1)
    shards = grouped(groups, 7, each, least=1, generator=seeded(2))
    sizes = Counter(groups.tolist())
    for shard, group in zip(shards, sorted(sizes), strict=True):
        assert {*groups[shard].tolist()} == {group}
        assert len({*shard.tolist()}) == len(shard) == max(1, sizes[group] * 7 * each // len(groups))


def test_too_few_groups() -> None:
    with pytest.raises(UserError, match=r"a group for each of 8 participants, but there are 7 among the"):
        grouped(groups_of(1, least=1), 8, 10, 1, seeded(1))
    with pytest.raises(UserError, match=r"a group of 999 examples or more .* there are 0 .*, --data\.split\.least"):
        GROUPS(least=999).cut(pool_of(groups_of(1)))
    with pytest.raises(UserError, match=r"--data\.split\.least to be at least 1, but got 0"):
        GROUPS(least=0)


def pool_of(groups: Tensor) -> Pool:
    return Pool(
        labels=torch.zeros(200, dtype=torch.int64), num_classes=2, participants=2, each=9, generator=seeded(1),
        groups=groups,
    )  # fmt: skip


class Grouped(FederatedDataModule):
    """Sixty examples, and what is said of their groups."""

    num_classes = 2

    def __init__(self, groups: Any, **options: Any) -> None:
        super().__init__(Federation(participants=3, adversaries=options.pop("adversaries", 0)), **{**FEW, **options})
        self.groups = groups

    def load(self) -> Sources:
        examples = TensorDataset(torch.arange(60.0).unsqueeze(1), torch.arange(60) % 2)
        return Sources(train=examples, test=examples, groups=self.groups)


THREE = torch.arange(60) % 3


@pytest.mark.parametrize(
    "groups",
    [
        THREE.tolist(), THREE.int(), 10**15 * THREE, THREE.numpy().astype(np.uint16), THREE.numpy().astype(np.uint64),
        THREE.numpy().astype(object),
    ],
)  # fmt: skip
def test_data_of_ones_own(groups: Any) -> None:
    """A list or a tensor of numbers, of any size; what is held out is of everybody."""
    data = ready(Grouped(groups))
    assert [sorted(shard.tolist()) for shard in data.shards] == [[*range(group, 60, 3)] for group in range(3)]
    assert data.shard_groups == []  # numbers have no names
    watched = ready(Grouped(groups, validation=0.2, watch="validation"))
    assert sum(watched.shard_sizes) == 48
    assert all({*(shard % 3).tolist()} == {i} for i, shard in enumerate(watched.shards))


@pytest.mark.parametrize("options", [{}, {"examples_per_participant": 4}])
def test_what_is_nobodys_is_the_adversaries(options: Mapping[str, Any]) -> None:
    """They draw from groups that no honest participant holds, while there are enough, of those that are cut too."""
    data = ready(Grouped(torch.arange(60) % 5, adversaries=2, adversary_examples=10, **options))
    assert [len(shard) for shard in data.shards[3:]] == [10, 10]
    honest, adversaries = torch.cat(data.shards[:3]) % 5, torch.cat(data.shards[3:]) % 5
    assert len(honest.unique()) == 3
    assert {*honest.tolist()}.isdisjoint(adversaries.tolist())


@pytest.mark.parametrize(
    ("groups", "told"),
    [
        ([0] * 59, r"got int64 of shape \[59\]"),
        ([-1, *[0] * 59], r"got -1; number"),
        ([0.5] * 60, r"got float64 of shape \[60\]"),
        (["a"] * 60, r"got <U1 of shape \[60\]"),
        ([], r"got float64 of shape \[0\]; number"),
        ([None] * 60, r"got object of shape \[60\]"),
        ([[0], [0, 1]], r"got list \(ValueError"),
        ((i for i in range(60)), r"got generator \(TypeError"),
        (torch.full((60,), 0.5), r"got float32 of shape \[60\]"),
    ],
)
def test_groups_that_are_none(groups: Any, told: str) -> None:
    with pytest.raises(UserError, match=r"Expected Sources\(groups=\.\.\.\) of Grouped to be a whole number .*" + told):
        ready(Grouped(groups))


def test_data_without_groups() -> None:
    with pytest.raises(UserError, match=r"--data\.split GROUPS, but got none; name .*--data\.group \(TableFile, Tex"):
        ready(Grouped(None))


def rows(count: int = 80) -> list[dict[str, str]]:
    """Of four cities, of which two are numbers, in no order."""
    draw = random.Random(3)
    return [
        {"age": str(draw.randint(20, 80)), "text": f"case {i}", "city": draw.choice(CITIES), "label": str(i % 2)}
        for i in range(count)
    ]


def write(path: Path, told: list[dict[str, str]]) -> str:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(told[0]))
        writer.writeheader()
        writer.writerows(told)
    return str(path)


def test_a_column_of_a_file(tmp_path: Path) -> None:
    """Participants are the cities, numbers before names and nine before ten; the city is no feature."""
    train = write(tmp_path / "a.csv", rows())
    test = write(tmp_path / "b.csv", [{**rows()[i], "label": str(i)} for i in range(2)])
    expected = [[i for i, row in enumerate(rows()) if row["city"] == city] for city in ("9", "10", "Bern", "Rome")]
    for data in (
        TableFile(Federation(participants=4), train_file=train, test_file=test, group="city", leave_out="text", **FEW),
        TextFile(Federation(participants=4), train_file=train, test_file=test, group="city", **FEW),
    ):
        assert [sorted(shard.tolist()) for shard in ready(data).shards] == expected
        assert data.shard_groups == ["9", "10", "Bern", "Rome"]
        if isinstance(data, TableFile):
            assert data.columns_read.entries == ["age"]


def test_a_column_of_a_hugging_face_data_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same, of texts and of named classes."""
    datasets: Any = pytest.importorskip("datasets", reason="datasets, an extra, is not installed")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    datasets.disable_progress_bars()
    columns = {name: [row[name] for row in rows()] for name in rows()[0]}
    columns["age"] = [float(age) for age in columns["age"]]  # type: ignore[misc]  # of numbers here
    train = datasets.Dataset.from_dict(columns)
    told = datasets.DatasetDict(train=train, test=train.select(range(20)).remove_columns("city"))
    told.save_to_disk(str(tmp_path / "texts"))
    named = datasets.ClassLabel(names=list(CITIES))
    told["train"] = train.cast_column("city", named)
    told.save_to_disk(str(tmp_path / "names"))
    expected = [[i for i, row in enumerate(rows()) if row["city"] == city] for city in ("9", "10", "Bern", "Rome")]
    for folder in ("texts", "names"):
        common: dict[str, Any] = {"path": str(tmp_path / folder), "group": "city", **FEW}
        for data in (
            HFDataset(Federation(participants=4), inputs=["age"], **common),
            HFText(Federation(participants=4), **common),
        ):
            assert [sorted(shard.tolist()) for shard in ready(data).shards] == expected
            assert data.shard_groups == ["9", "10", "Bern", "Rome"]
    with pytest.raises(UserError, match=r"--data\.group to be a column of split train .*, but got town"):
        ready(HFText(Federation(participants=4), path=str(tmp_path / "texts"), group="town", **FEW))
    columns["city"][7] = " "
    told["train"] = datasets.Dataset.from_dict(columns)
    told.save_to_disk(str(tmp_path / "gap"))
    with pytest.raises(UserError, match=r"Expected a group, .* in column city of every example .*, but 1 of 80 have"):
        ready(HFText(Federation(participants=4), path=str(tmp_path / "gap"), group="city", **FEW))
    columns["city"][7] = "9.0"
    told["train"] = datasets.Dataset.from_dict(columns)
    told.save_to_disk(str(tmp_path / "points"))
    with pytest.raises(UserError, match=r"in column city of --data\.train to be .*, but 9 and 9\.0 are one"):
        ready(HFText(Federation(participants=4), path=str(tmp_path / "points"), group="city", **FEW))
    for group in ("text", "label"):
        with pytest.raises(UserError, match=f"--data.group to be another column than .*, but got {group}"):
            ready(HFText(Federation(participants=4), path=str(tmp_path / "texts"), group=group, **FEW))


@pytest.mark.parametrize("gap", ["NA", "nan", "?", "None"])
def test_a_word_for_a_group_that_is_missing(tmp_path: Path, gap: str) -> None:
    """It was a participant, and nobody was told; among numbers it is none."""
    named, numbers = ([{**row, "city": row["city"] if i % 8 else gap} for i, row in enumerate(rows())] for _ in "ab")
    for row in numbers:
        row["city"] = row["city"].replace("Bern", "3").replace("Rome", "4")
    for kind in (TableFile, TextFile):
        more: dict[str, Any] = {"group": "city", **FEW, **({"leave_out": "text"} if kind is TableFile else {})}
        with pytest.warns(UserWarning, match="is a group of its own") as told:
            ready(kind(Federation(participants=2), train_file=write(tmp_path / "a.csv", named), **more))
        assert [str(warning.message) for warning in told] == [
            f"In column city of --data.train_file {tmp_path}/a.csv {gap!r} is a group of its own, which 10 of 80 have, "
            "and may be a participant's; take them out if they have no group, or name another column with --data.group."
        ]
        with pytest.raises(UserError, match=r"a number as group in column city of --data\.train_file .* 10 of 80 "):
            ready(kind(Federation(participants=2), train_file=write(tmp_path / "a.csv", numbers), **more))


def test_a_word_for_a_group_that_is_missing_in_a_hugging_face_data_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Likewise, and once where a share is held out for the test."""
    datasets: Any = pytest.importorskip("datasets", reason="datasets, an extra, is not installed")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    datasets.disable_progress_bars()
    common: dict[str, Any] = {"group": "city", "test_share": 0.1, **FEW}
    for name, city in (("names", "Bern"), ("numbers", "7")):
        columns = {key: [row[key] for row in rows()] for key in ("text", "label")}
        columns["city"] = [city if i % 8 else "NA" for i in range(80)]
        datasets.Dataset.from_dict(columns).save_to_disk(str(tmp_path / name))
    with pytest.warns(UserWarning, match="is a group of its own") as told:
        ready(HFText(Federation(participants=2), path=str(tmp_path / "names"), **common))
    assert len([1 for warning in told if "a group of its own, which 10 of 80 have" in str(warning.message)]) == 1
    with pytest.raises(UserError, match=r"a number as group in column city of --data\.train, .* have 'NA'; take"):
        ready(HFText(Federation(participants=2), path=str(tmp_path / "numbers"), **common))


@pytest.mark.parametrize(
    ("changes", "options", "told"),
    [
        (
            {},
            {"split": "UNI"},
            r"--data\.split GROUPS with --data\.group city, but got UNI, which does not go",
        ),
        ({}, {"group": "label"}, r"--data\.group and --data\.label to be two columns, but got label for both"),
        (
            {},
            {"group": "town"},
            r"a column town in .*its first line has age, text, city, label.*ame yours with",
        ),
        ({"city": ""}, {}, r"Expected a group in column city of --data\.train_file .*, but line 5 has none"),
        (
            {"city": "9.0"},
            {},
            r"every number in column city of --data\.train_file .*, but 9 and 9\.0 are one, and would be two groups;",
        ),
        ({}, {"features": ["age", "city"]}, r"--data\.features .* but got city, which is the group and no"),
    ],
)
def test_a_group_that_cannot_be(
    tmp_path: Path, changes: Mapping[str, str], options: Mapping[str, Any], told: str
) -> None:
    cases = rows()
    cases[3] = {**cases[3], **changes}
    given: dict[str, Any] = {"train_file": write(tmp_path / "a.csv", cases), "group": "city", **FEW, **options}
    if "features" not in options:
        given["leave_out"] = "text"
    with pytest.raises(UserError, match=told):
        ready(TableFile(Federation(participants=2), **given))


def test_a_group_that_is_read(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--data\.text and --data\.group to be two columns, but got text for both"):
        TextFile(Federation(participants=2), train_file=write(tmp_path / "a.csv", rows()), group="text", **FEW)


def words(tmp_path: Path) -> tuple[object, ...]:
    """The command of a federation with an adversary beside three of four cities."""
    return (
        "fit", "--data", "TableFile", "--data.train_file", write(tmp_path / "a.csv", rows(200)), "--data.group", "city",
        "--data.split", "GROUPS", "--data.split.least", 5, "--data.leave_out", "text", "--federation.participants", 3,
        "--federation.adversaries", 1, "--adversaries", "[FreeRider]", "--data.adversary_examples", 9,
        "--model.network", "Perceptron", "--model.network.inputs", 1, "--model.network.classes", 2,
        "--model.optimizer", "SGD", "--model.optimizer.lr", 0.1, "--trainer.max_epochs", 1, *QUICK,
    )  # fmt: skip


def test_whose_group_a_participant_holds(rffl: Callable[..., Ended], tmp_path: Path) -> None:
    """Nobody could tell which city participant 2 is that was removed; it was drawn, and numbered."""
    ended = rffl(*words(tmp_path))
    assert ended.code == 0, ended.err
    table = [line.split() for line in ended.out.splitlines()]
    (head,) = (i for i, row in enumerate(table) if row[:1] == ["participant"])
    groups = [row[-1] for row in table[head + 2 : head + 6]]
    assert table[head][-1] == "group"
    assert groups[3] == "-"
    assert groups[:3] == [city for city in ("9", "10", "Bern", "Rome") if city in groups]
    assert RunFolder(only_run(tmp_path / "runs")).summary().groups == [*groups[:3], None]


@pytest.mark.slow
def test_a_federation_of_groups(rffl: Callable[..., Ended], tmp_path: Path) -> None:
    """From the command line, with an adversary beside three of four cities; the same shards on two ranks."""
    ended = rffl(*words(tmp_path))
    assert ended.code == 0, ended.err
    ended = forked(2, *words(tmp_path), root=tmp_path / "two")
    assert ended.code == 0, ended.err
    assert_same_bits(only_run(tmp_path / "runs"), only_run(tmp_path / "two"))
