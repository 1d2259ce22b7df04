"""Real ranks under torchrun on gloo: the same bits as one process, nothing where it does not belong, no hang."""

from __future__ import annotations

import csv
import json
import os
import secrets
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from rffl_pl.models import Perceptron
from rffl_pl.runs import RunFolder
from tests.conftest import QUICK, Ended, only_run, torchrun
from tests.distributed.test_every_server import assert_same_bits
from tests.ranks import forked
from tests.runs import kept_in

pytestmark = pytest.mark.distributed
DIGITS = ("fit", "--config", "configs/digits.yaml", *QUICK, "--trainer.max_epochs", 8, "--server.removal_from", 4)


@pytest.fixture(scope="module")
def one_process(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run in one process."""
    root = tmp_path_factory.mktemp("one")
    ended = forked(1, *DIGITS, root=root)
    assert ended.code == 0, ended.err
    return only_run(root)


def test_ranks_give_the_bits_of_one_process(one_process: Path, tmp_path: Path) -> None:
    """Unequal shards, six participants on two ranks, a removal on the way: models and reputations equal."""
    ended = torchrun(2, *DIGITS, root=tmp_path)
    assert ended.code == 0, ended.err
    folder = only_run(tmp_path)
    alone, together = (kept_in(path / "checkpoints" / "last.ckpt") for path in (one_process, folder))
    assert torch.equal(alone["server"]["rule"]["reputations"], together["server"]["rule"]["reputations"])
    assert alone["server"]["rule"]["members"].tolist() == [True] * 5 + [False]
    assert repr(alone["server"]["history"]) == repr(together["server"]["history"])
    for i in range(6):
        for key, value in alone["federation"]["participants"][i]["network"].items():
            assert torch.equal(value, together["federation"]["participants"][i]["network"][key]), (i, key)
        exported = torch.load(folder / "weights" / f"participant_{i}.pt", weights_only=True)
        assert all(torch.equal(exported[key], value) for key, value in torch.load(
            one_process / "weights" / f"participant_{i}.pt", weights_only=True).items())  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_ranks_take_over_from_one_another(one_process: Path, tmp_path: Path) -> None:
    """4, then 1, 2, 3 and 4 again, a checkpoint between each: the bits of one process that was never interrupted."""
    for rounds, ranks in ((2, 4), (3, 1), (5, 2), (6, 3), (8, 4)):
        relay = ("--trainer.max_epochs", rounds, "--run.name", "relay", "--ckpt_path", "last")
        ended = forked(ranks, *DIGITS, *relay, root=tmp_path)
        assert ended.code == 0, ended.err
    (folder,) = (tmp_path / "relay").iterdir()
    alone, together = (kept_in(path / "checkpoints" / "last.ckpt") for path in (one_process, folder))
    assert_same_bits(alone, together, "relay")


def test_only_rank_0_holds_uploads_and_reputations(tmp_path: Path) -> None:
    """Elsewhere: no verdict, no traffic, no reputation, no membership of others, no vector of D beyond one's own."""
    ended = forked(
        3, *DIGITS, "--trainer.callbacks+=tests.distributed.probe.Witness",
        "--trainer.callbacks.folder", tmp_path, root=tmp_path / "runs",
    )  # fmt: skip
    assert ended.code == 0, ended.err
    server, *others = (json.loads((tmp_path / f"rank_{rank}.json").read_text()) for rank in range(3))
    for held in ("verdict", "traffic", "reputations"):
        assert server[held]
        assert not any(other[held] for other in others)
    assert server["known_members"] == list(range(6))
    logged = list(csv.DictReader((only_run(tmp_path / "runs") / "metrics.csv").open()))
    for rank in (server, *others):  # what callbacks watch is the same on all ranks
        assert rank["accuracy"] == pytest.approx(float(logged[-1]["accuracy/mean"]), abs=1e-6)
    for other in others:
        assert other["known_members"] == other["hosted"]
        assert len(other["hosted"]) == 2
        assert other["rows"] == 2 * 2  # what the two hosted participants have now and had before the round


@pytest.mark.slow
def test_evaluation_from_a_checkpoint_on_another_number_of_ranks(
    one_process: Path, rffl: Callable[..., Ended], tmp_path: Path
) -> None:
    """Two ranks test and predict every participant's own model of a run of one process."""
    given = ("--config", one_process / "config.yaml", "--ckpt_path", one_process / "checkpoints" / "last.ckpt")
    lines, root = tmp_path / "lines", tmp_path / "two"
    lines.write_text("\n".join(" ".join(map(str, (command, *given))) for command in ("test", "predict")))
    ended = forked(2, lines, root=root, module="tests.distributed.many")
    assert ended.code == 0, ended.err
    final = json.loads((one_process / "summary.json").read_text())["final"]
    for i in range(5):
        assert f"{i}  {final[i]:>8.1%}" in ended.out
    alone = rffl("predict", *given)
    assert alone.code == 0, alone.err
    files = [sorted(folder.glob("*/*/predictions/*.csv")) for folder in (tmp_path / "runs", root)]
    assert [path.name for path in files[0]] == [f"participant_{i}.csv" for i in range(6)]
    assert [path.read_text() for path in files[0]] == [path.read_text() for path in files[1]]


@pytest.mark.slow
def test_training_ends_in_one_round_on_any_number_of_ranks(rffl: Callable[..., Ended], tmp_path: Path) -> None:
    """Where as many are right as at best nothing is better, however ranks have added up; here so in round 6."""
    words = (
        *DIGITS[:-4], "--server.preset", "guarded", "--seed_everything", 3, "--trainer.max_epochs", 20,
        "--trainer.callbacks+=EarlyStopping", "--trainer.callbacks.monitor", "accuracy/mean",
        "--trainer.callbacks.mode", "max", "--trainer.callbacks.patience", 7,
    )  # fmt: skip
    ended = rffl(*words, "--run.root", tmp_path / "one"), forked(3, *words, root=tmp_path / "three")
    assert [one.code for one in ended] == [0, 0], ended
    assert len({RunFolder(only_run(tmp_path / name)).summary().rounds for name in ("one", "three")}) == 1


def test_more_ranks_than_participants_is_one_sentence(tmp_path: Path) -> None:
    """Said once, by rank 0, and every rank ends with exit code 2."""
    ended = forked(3, *DIGITS, "--federation.participants", 2, "--federation.adversaries", 0, root=tmp_path)
    assert ended.code == 2
    assert ended.err.count("Error: Expected at most one rank per participant, but got 3 ranks for 2 participants") == 1
    assert ended.err.count("Error: ") == 1
    assert "rffl_pl/module.py" not in ended.err


class Unseeded(Perceptron):
    """Draws its weights from what no seed decides."""

    def __init__(self) -> None:
        super().__init__()
        torch.nn.init.constant_(next(self.parameters()), secrets.randbelow(2**20))


def test_ranks_that_start_differently_are_refused(tmp_path: Path) -> None:
    """Every rank draws its own initial weights: one sentence instead of models that differ."""
    ended = forked(2, *DIGITS, "--model.network", "tests.distributed.test_ranks.Unseeded", root=tmp_path)
    assert ended.code != 0
    sentence = "Error: Expected all ranks to start alike, but the initial weights of rank 1 differ"
    assert ended.err.count(sentence) == 1
    assert "give --seed_everything a number" in ended.err
    assert "callbacks/agreement.py" not in ended.err


@pytest.mark.slow
def test_ranks_that_would_meet_at_other_times_are_refused(tmp_path: Path) -> None:
    """A rank with more rounds, or that measures more often, waits for ever for one that has none of them."""
    every = ("--trainer.callbacks+=ModelCheckpoint", "--trainer.callbacks.every_n_epochs")
    different: list[tuple[str, list[list[object]]]] = [
        ("--trainer.max_epochs", [[], ["--trainer.max_epochs", 5]]),
        ("--trainer.min_epochs", [[], ["--trainer.min_epochs", 2]]),
        ("--trainer.check_val_every_n_epoch", [[], ["--trainer.check_val_every_n_epoch", 3]]),
        ("--trainer.num_sanity_val_steps", [[], ["--trainer.num_sanity_val_steps", 2]]),
        ("the callbacks", [[*every, 1], [*every, 2]]),
        ("the callbacks", [[], ["--trainer.max_time", "00:01:00:00"]]),
    ]
    for number, (name, each) in enumerate(different):
        ended = forked(2, *DIGITS, each=each, root=tmp_path / f"{number}")
        assert ended.code == 2
        assert ended.err.count(f"Error: Expected all ranks to start alike, but {name} of rank 1 differ") == 1


@pytest.mark.slow
def test_ranks_that_would_measure_otherwise_are_refused(one_process: Path, tmp_path: Path) -> None:
    """A rank with other test examples, or another federation: a part of the table would be another run's."""
    given = ("--config", one_process / "config.yaml", "--ckpt_path", one_process / "checkpoints" / "last.ckpt")
    for command, option, value in (
        ("test", "--trainer.limit_test_batches", 1),
        ("validate", "--trainer.precision", "bf16-mixed"),
        ("predict", "--data.batch_size", 7),
    ):
        ended = forked(2, command, *given, each=[[], [option, value]], root=tmp_path)
        assert ended.code == 2
        assert ended.err.count(f"Error: Expected all ranks to start alike, but {option} of rank 1 differs") == 1


def test_a_mistake_in_the_data_ends_all_ranks(tmp_path: Path) -> None:
    """A missing data folder is seen by one rank and ends the others too."""
    environment = os.environ.get("RFFL_DATA_DIR")
    assert environment is None or Path(environment) != tmp_path
    ended = forked(
        2,
        "fit",
        "--config",
        "configs/mnist.yaml",
        *QUICK,
        "--data.data_dir",
        tmp_path / "none",
        root=tmp_path,
    )
    assert ended.code != 0
    assert ended.err.count("Error: Expected the files of MNIST in") == 1


@pytest.mark.slow  # beside those whose ranks are forked
def test_a_failing_rank_ends_the_run(tmp_path: Path) -> None:
    """No rank waits for one that is gone; what went wrong is shown. Both had drawn one seed."""
    crash = ("--seed_everything", "true", "--trainer.callbacks+=tests.distributed.probe.Crash")
    ended = torchrun(2, *DIGITS, *crash, root=tmp_path)
    assert ended.code != 0
    assert "rank 1 gave up" in ended.err
    assert RunFolder(only_run(tmp_path)).config()["seed_everything"] > 1


def test_one_participant_per_rank_is_the_default(tmp_path: Path) -> None:
    """Without a number of participants every rank hosts one; the saved configuration says how many there were."""
    ended = forked(2, *DIGITS, "--federation.participants", "null", root=tmp_path)
    assert ended.code == 0, ended.err
    assert "participants: 1\n" in (only_run(tmp_path) / "config.yaml").read_text()  # and one adversary


def test_a_mistake_that_one_rank_alone_sees_is_told(tmp_path: Path) -> None:
    """Whichever rank it is, the sentence is printed once and every rank ends."""
    ended = forked(2, *DIGITS, "--trainer.callbacks+=tests.distributed.probe.Mistaken", root=tmp_path, grace=2)
    assert ended.code != 0
    assert ended.err.count("Error: Expected this of rank 1 alone.") == 1
