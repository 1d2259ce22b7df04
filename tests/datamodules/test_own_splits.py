"""A split is a class: by name, by class path, with options of its own, from any configuration."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import Tensor

from rffl_pl.datamodules import CLA, DIR, MIX, POW, SHARDS, UNI, Digits, Pool, Split
from rffl_pl.errors import UserError
from rffl_pl.federation import Federation
from tests.conftest import QUICK, Ended, only_run
from tests.datamodules.small import InMemory, ready
from tests.ranks import forked

ROUND = ("fit", "--config", "configs/digits.yaml", *QUICK, "--trainer.max_epochs", 1)


class Shifted(Split):
    """Participant i holds the classes from i on, ``width`` of them."""

    def __init__(self, *, width: int = 2) -> None:
        self.width = width

    def cut(self, pool: Pool) -> list[Tensor]:
        return [
            ((pool.labels - i) % pool.num_classes < self.width).nonzero().flatten()[: pool.each]
            for i in range(pool.participants)
        ]


def parts(folder: Path) -> dict[str, Any]:
    """What a saved configuration says of the data."""
    said: dict[str, Any] = yaml.safe_load((folder / "config.yaml").read_text())["data"]["init_args"]
    return said


def weights(folder: Path) -> list[bytes]:
    """Digests of all participants' final weights."""
    states = [torch.load(path, weights_only=True) for path in sorted((folder / "weights").iterdir())]
    return [hashlib.sha256(b"".join(v.numpy().tobytes() for v in state.values())).digest() for state in states]


@pytest.mark.parametrize(
    ("name", "kind"), [("UNI", UNI), ("POW", POW), ("CLA", CLA), ("DIR", DIR), ("SHARDS", SHARDS), ("MIX", MIX)]
)
def test_by_name_and_as_an_object(name: str, kind: type[Split]) -> None:
    """In Python a name stands for the split with its defaults."""
    options: dict[str, Any] = {"examples_per_participant": 20}
    named, given = (ready(InMemory(Federation(participants=3), split=split, **options)) for split in (name, kind()))
    assert type(named.split) is type(given.split) is kind
    assert all(torch.equal(a, b) for a, b in zip(named.shards, given.shards, strict=True))
    assert named.identity() == given.identity()
    assert named.identity()["split"] == name


def test_the_older_name_of_dirichlets_concentration() -> None:
    """`dirichlet_alpha` is DIR's alpha unless it has one of its own; other splits have no use for it."""

    def shards(**options: Any) -> list[list[int]]:
        data = ready(InMemory(Federation(participants=3), examples_per_participant=40, **options))
        return [shard.tolist() for shard in data.shards]

    assert shards(split="DIR") == shards(split=DIR(alpha=0.5)) == shards(split=DIR())
    assert shards(split="DIR", dirichlet_alpha=0.2) == shards(split=DIR(alpha=0.2)) != shards(split="DIR")
    assert shards(split=DIR(alpha=0.2), dirichlet_alpha=9.0) == shards(split=DIR(alpha=0.2))
    assert shards(split="POW", dirichlet_alpha=0.2) == shards(split="POW")
    with pytest.raises(UserError, match=r"--data\.split\.alpha to be positive and at most 1e\+300, but got 0"):
        DIR(alpha=0)


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (DIR, {"alpha": "0.5"}, r"Expected --data\.split\.alpha to be a number, but got '0\.5'\."),
        (CLA, {"draw": "relesed"}, r"--data\.split\.draw to be one of auto, disjoint, .*; did you mean released\?"),
    ],
)
def test_options_of_a_split_are_looked_at_in_python_too(
    kind: type[Split], options: dict[str, Any], message: str
) -> None:
    """As the command line does, and as every other object of a run."""
    with pytest.raises(UserError, match=message):
        kind(**options)


class Wrong(Split):
    """Whatever it is told to cut."""

    def __init__(self, shards: list[Tensor]) -> None:
        self.shards = shards

    def cut(self, pool: Pool) -> list[Tensor]:
        return self.shards


@pytest.mark.parametrize(
    ("shards", "message"),
    [
        ([torch.arange(3)], "split Wrong to cut 2 shards, but got 1"),
        ([torch.arange(3), torch.tensor([180])], r"int64 in 0 \.\. 179, but that of participant 1 is .*int64 from 180"),
        ([torch.tensor([-1]), torch.arange(3)], r"that of participant 0 is .*from -1 to -1"),
        ([torch.arange(3), torch.ones(3)], "participant 1 is torch.float32"),
        ([torch.arange(3), torch.arange(0)], "split Wrong of 3 examples leaves participant 1 of 2 without any"),
    ],
)
def test_a_split_that_cuts_what_cannot_be(shards: list[Tensor], message: str) -> None:
    """Who writes a split is told what is wrong with its shards."""
    with pytest.raises(UserError, match=message):
        InMemory(Federation(participants=2), split=Wrong(shards)).setup("fit")


OPTIONS: dict[str, tuple[tuple[object, ...], dict[str, Any]]] = {
    "a name": (("--data.split", "UNI"), {"class_path": "UNI"}),
    "a name with an option": (
        ("--data.split", "CLA", "--data.split.draw", "released"),
        {"class_path": "CLA", "init_args": {"draw": "released"}},
    ),
    "an older option": (
        ("--data.split", "DIR", "--data.dirichlet_alpha", 0.3),
        {"class_path": "DIR", "init_args": {"alpha": None, "least": None}},
    ),
    "a least shard": (
        ("--data.split", "DIR", "--data.split.alpha", 0.05, "--data.split.least", 10),
        {"class_path": "DIR", "init_args": {"alpha": 0.05, "least": 10}},
    ),
    "pieces": (
        ("--data.split", "SHARDS", "--data.split.shards", 3),
        {"class_path": "SHARDS", "init_args": {"shards": 3}},
    ),
    "a share alike": (
        ("--data.split", "MIX", "--data.split.alike", 0.2),
        {"class_path": "MIX", "init_args": {"alike": 0.2}},
    ),
    "a class of one's own": (
        ("--data.split", "tests.datamodules.test_own_splits.Shifted", "--data.split.width", 3),
        {"class_path": "Shifted", "init_args": {"width": 3}},
    ),
}


@pytest.mark.parametrize("case", OPTIONS)
def test_on_the_command_line_and_from_the_saved_configuration(
    rffl: Callable[..., Ended], tmp_path: Path, case: str
) -> None:
    """The configuration that a run leaves says the split and its options, and gives the same run again."""
    args, expected = OPTIONS[case]
    ended = rffl(*ROUND, *args, "--run.name", "first")
    assert ended.code == 0, ended.err
    (first,) = (tmp_path / "runs" / "first").iterdir()
    saved = parts(first)["split"]
    assert saved.pop("class_path").rpartition(".")[2] == expected["class_path"]
    assert saved.get("init_args", {}) == expected.get("init_args", {})
    ended = rffl("fit", "--config", first / "config.yaml", "--run.name", "again")
    assert ended.code == 0, ended.err
    (again,) = (tmp_path / "runs" / "again").iterdir()
    assert parts(again) == parts(first)
    assert weights(again) == weights(first)


def test_an_older_configuration(rffl: Callable[..., Ended], tmp_path: Path) -> None:
    """`split: POW` and a number for DIR's alpha, as every config.yaml used to have them, mean what they meant."""
    assert rffl(*ROUND, "--run.name", "now").code == 0
    (now,) = (tmp_path / "runs" / "now").iterdir()
    config = yaml.safe_load((now / "config.yaml").read_text())
    config["data"]["init_args"] |= {"split": "POW", "dirichlet_alpha": 0.5}
    (tmp_path / "old.yaml").write_text(yaml.safe_dump(config))
    ended = rffl("fit", "--config", tmp_path / "old.yaml", "--run.name", "old")
    assert ended.code == 0, ended.err
    (old,) = (tmp_path / "runs" / "old").iterdir()
    assert weights(old) == weights(now)


@pytest.mark.distributed
@pytest.mark.parametrize(
    ("ranks", "case"),
    [
        (2, "a class of one's own"),
        *(
            pytest.param(ranks, case, marks=pytest.mark.slow)
            for ranks, case in ((2, "a least shard"), (2, "pieces"), (4, "a share alike"))
        ),
    ],
)
def test_on_several_ranks(rffl: Callable[..., Ended], tmp_path: Path, ranks: int, case: str) -> None:
    """One's own, by class path alone, and those that draw: with options, to the same bits as in one process."""
    words = tuple(map(str, OPTIONS[case][0]))
    assert rffl(*ROUND, *words).code == 0
    ended = forked(ranks, *ROUND, *words, root=tmp_path / "several")
    assert ended.code == 0, ended.err
    assert weights(only_run(tmp_path / "runs")) == weights(only_run(tmp_path / "several"))


def test_an_unknown_split(rffl: Callable[..., Ended]) -> None:
    """One sentence with the known ones and how to name one's own."""
    ended = rffl(*ROUND, "--data.split", "XYZ")
    assert ended.code == 2
    (error,) = (line for line in ended.err.splitlines() if line.startswith("Error: "))
    assert re.search(
        r"one of UNI, POW, CLA, DIR, SHARDS, MIX, GROUPS, OWN, or .* as my_package\.MySplit .*, but got XYZ",
        error,
    )


@pytest.mark.filterwarnings("ignore:No honest participant")
def test_digits_take_a_split_of_ones_own() -> None:
    """In Python an object does."""
    data = Digits(Federation(participants=4), split=Shifted(width=1), examples_per_participant=30)
    data.setup("fit")
    assert data.classes == [1, 1, 1, 1]
    assert data.identity()["split"] == "Shifted"


class Mirrored(DIR):
    """Deals its shards out from the last participant on."""

    def cut(self, pool: Pool) -> list[Tensor]:
        return super().cut(pool)[::-1]


def test_a_split_that_is_nearly_ours() -> None:
    """One derived from DIR was replaced by DIR where its alpha is the data module's."""
    options: dict[str, Any] = {"examples_per_participant": 20, "dirichlet_alpha": 0.3}
    plain, own = (ready(InMemory(Federation(participants=3), split=split, **options)) for split in (DIR(), Mirrored()))
    assert all(torch.equal(a, b) for a, b in zip(plain.shards, own.shards[::-1], strict=True))
    told = {"": "DIR", ".alpha": "0.3", ".least": "None"}
    assert [data.split.settings() for data in (plain, own)] == [told, told | {"": "Mirrored"}]
