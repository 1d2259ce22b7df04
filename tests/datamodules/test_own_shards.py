"""The split OWN: examples that only the rank that hosts their participant reads."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset, TensorDataset

from rffl_pl.datamodules import UNI
from rffl_pl.errors import UserError
from rffl_pl.federation import Federation
from tests.conftest import QUICK, Ended, only_run
from tests.datamodules.apart import Groups
from tests.datamodules.small import common, ready
from tests.own_data import Broken, Halves
from tests.ranks import forked

RUN = (
    "fit", "--config", "configs/digits.yaml", "--federation.participants", 3, "--federation.adversaries", 1,
    "--trainer.max_epochs", 3, "--server.removal_from", 2,
)  # fmt: skip
OWN = ("--data.examples_per_participant", "null")
CUT = (*RUN, "--data.split", "POW", "--data.examples_per_participant", 40, "--data.adversary_examples", 40)


def apart(seen: Path, *more: object) -> tuple[object, ...]:
    """The same run of participants who have examples of their own."""
    seen.mkdir(exist_ok=True)
    return (*RUN, "--data", "tests.datamodules.apart.Apart", "--data.split", "OWN", "--data.seen", seen, *OWN, *more)


def result(root: Path) -> tuple[list[dict[str, str]], list[bytes]]:
    """Every round, and digests of all participants' weights, of the one run below ``root``."""
    folder = only_run(root)
    rows = list(csv.DictReader((folder / "metrics.csv").open()))
    states = [torch.load(path, weights_only=True) for path in sorted((folder / "weights").iterdir())]
    digests = [hashlib.sha256(b"".join(v.numpy().tobytes() for v in state.values())).digest() for state in states]
    return [{name: value for name, value in row.items() if "seconds" not in name} for row in rows], digests


@pytest.mark.parametrize("engine", ["loop", "stacked"])
def test_as_if_cut_from_one_data_set(rffl: Callable[..., Ended], tmp_path: Path, engine: str) -> None:
    """Another round, another model or another reference comes of the same shards when they lie apart."""
    words = (*QUICK[:4], "--model.engine", engine)
    summaries = []
    for name, run in {"cut": CUT, "apart": apart(tmp_path / "seen")}.items():
        ended = rffl(*run, *words, "--run.root", tmp_path / name, "--standalone.cache_dir", tmp_path / name)
        assert ended.code == 0, ended.err
        summaries.append([line for line in ended.out.splitlines() if line.startswith(("mean", "taken", "  "))])
    assert result(tmp_path / "cut") == result(tmp_path / "apart")
    assert len(summaries[0]) > 2
    assert summaries[0] == summaries[1]


@pytest.mark.slow
@pytest.mark.parametrize("exchange", ["central", "sharded"])
def test_on_two_ranks(rffl: Callable[..., Ended], tmp_path: Path, exchange: str) -> None:
    """Two ranks give other bits than one, or one of them reads what belongs to a participant that it does not host."""
    assert rffl(*apart(tmp_path / "one's"), *QUICK, "--run.root", tmp_path / "one").code == 0
    ended = forked(2, *apart(tmp_path / "two's"), *QUICK, "--exchange", exchange, root=tmp_path / "two")
    assert ended.code == 0, ended.err
    assert result(tmp_path / "one") == result(tmp_path / "two")
    assert {path.name for path in (tmp_path / "one's").iterdir()} == {f"{i} by 0" for i in range(4)}
    federation = Federation(participants=3, adversaries=1)
    hosts = {f"{i} by {rank}" for rank in range(2) for i in federation.hosted_by(rank, 2)}
    assert {path.name for path in (tmp_path / "two's").iterdir()} == hosts


@pytest.mark.slow
def test_goes_on(rffl: Callable[..., Ended], tmp_path: Path) -> None:
    """A run goes on to other bits, or with other examples than it began with."""
    begun = apart(tmp_path / "seen", *QUICK)
    assert rffl(*begun, "--run.root", tmp_path / "whole").code == 0
    assert rffl(*begun, "--trainer.max_epochs", 1, "--run.root", tmp_path / "parts").code == 0
    checkpoint = only_run(tmp_path / "parts") / "checkpoints" / "last.ckpt"
    ended = forked(2, *begun, "--ckpt_path", checkpoint, root=tmp_path / "on")
    assert ended.code == 0, ended.err
    assert result(tmp_path / "on") == result(tmp_path / "whole")
    ended = rffl(*begun, "--seed_everything", 5, "--ckpt_path", checkpoint)
    assert ended.code == 2
    assert "shards" in ended.err, ended.err


def test_a_mistake_of_one_rank_ends_all(tmp_path: Path) -> None:
    """A rank whose participants' examples are there waits for the one that has lost its own."""
    ended = forked(2, *apart(tmp_path / "seen"), *QUICK, "--data.missing", 1, root=tmp_path / "runs", timeout=60)
    assert ended.code == 2
    assert "Expected Apart to read the examples of participant 1, but" in ended.err, ended.err
    assert "the disk is away" in ended.err
    assert "Traceback" not in ended.err


def test_what_all_ranks_are_told() -> None:
    """Sizes, classes or the readable participants are others than those of the examples; nothing is held out."""
    data = ready(Groups(Federation(participants=3), split="OWN"))
    assert data.shard_sizes == [10, 11, 12]
    assert data.classes == [2, 2, 2]
    assert [*data._own["training"].readers] == data.hosted == [0, 1, 2]
    assert len(data.held_out) == 0
    held_out = data.held_out_dataloader()
    assert held_out is not None
    assert sum(len(y) for _, y in common(held_out)) == 8
    assert data.example(2)[0].shape == (1, 2)


def test_what_ranks_compare() -> None:
    """Other validation examples, classes by other names or another participant's examples are taken for the same."""

    def told(named: tuple[str, ...] = ("left", "right"), **options: Any) -> str:
        data = Groups(Federation(participants=3), split="OWN", **options)
        data.class_names = named
        return ready(data).identity()["shards"]

    unwatched: dict[str, Any] = {"validated": False, "validation": 0, "watch": "test"}
    others = [told(), told(("right", "left")), told(**unwatched), told(wrong=Halves(12))]
    assert told() == others[0]
    assert len({*others}) == 4


def refused(**options: Any) -> str:
    """What is said of it."""
    with pytest.raises(UserError) as caught:
        ready(Groups(Federation(participants=3), **({"split": "OWN"} | options)))
    return str(caught.value)


def test_split_and_data_disagree() -> None:
    """Shards are cut of what is somebody's own, or one data set is everybody's own."""
    assert refused(split=UNI()) == (
        "Expected --data.split OWN for Groups, whose participants have examples of their own, but got UNI."
    )
    said = refused(common=True)
    assert said.startswith(
        "Expected data of which every participant has its own part for --data.split OWN, but got one data set of "
    )
    assert "take TextFile, TableFile or ImageFolder" in said  # no load() is a user's own in HFText


def test_options_that_cut() -> None:
    """An average size is asked for where nothing is cut, or examples are to be held out of somebody's own."""
    assert "--data.examples_per_participant" in refused(examples_per_participant=5)
    said = refused(validated=False)
    assert "Sources(validation=...)" in said
    assert "--data.validation 0 and --data.watch test" in said
    options: dict[str, Any] = {"validated": False, "validation": 0, "watch": "test"}
    assert ready(Groups(Federation(participants=3), split="OWN", **options)).shard_sizes == [10, 11, 12]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (
            TensorDataset(torch.zeros(0, 2), torch.zeros(0)),
            "Expected participant 1 of Groups to have training examples, but there is none",
        ),
        (
            TensorDataset(torch.zeros(3, 2), torch.tensor([0, 1, 2])),
            "Expected labels of participant 1 of Groups to lie in 0 .. 1, but training example 2 has label 2",
        ),
        (
            TensorDataset(torch.full((3, 2), torch.nan), torch.zeros(3)),
            "Expected finite inputs of participant 1 of Groups, but training example 0 has NaN",
        ),
        ("none at all", "Expected every training example of participant 1 of Groups to be a pair (x, y)"),
    ],
    ids=["empty", "label", "nan", "no data"],
)
def test_what_cannot_be_trained_on(wrong: Any, said: str) -> None:
    """Somebody's own examples are taken though nothing can be trained on them."""
    assert said in refused(wrong=wrong)


def test_what_turns_out_while_it_is_read() -> None:
    """An example that is read one at a time and cannot be used is not named by its participant."""
    wrong: Dataset[Any] = Broken(30)
    data = ready(Groups(Federation(participants=2), split="OWN", wrong=wrong))
    with pytest.raises(UserError, match="of participant 1 of Groups, but training example 17 has NaN"):
        data._reader_of(1).batch(torch.arange(30))
