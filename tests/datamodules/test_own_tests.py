"""Test and validation examples of one's own under the split OWN: each is measured on those, where it is hosted."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset, TensorDataset

from rffl_pl.datamodules.reading import Joint, Reader
from rffl_pl.errors import UserError
from rffl_pl.federation import Federation
from rffl_pl.models import Perceptron
from rffl_pl.runs import RunFolder
from tests.conftest import QUICK, Ended, only_run
from tests.datamodules.apart import Groups, MeasuredApart
from tests.datamodules.small import ready
from tests.datamodules.test_own_shards import OWN, RUN, result
from tests.datamodules.test_reading import Noisy
from tests.own_data import Broken, Halves
from tests.ranks import forked
from tests.runs import kept_in

FedAvg = ("--server", "FedAvg")


def measured_apart(seen: Path, *more: object) -> tuple[object, ...]:
    """A run of three honest participants and an adversary who are measured on examples of their own."""
    seen.mkdir(exist_ok=True)
    data = ("--data", "tests.datamodules.apart.MeasuredApart", "--data.split", "OWN", "--data.seen", seen)
    return (*RUN, *data, *OWN, *more)


@pytest.fixture
def data(tmp_path: Path) -> MeasuredApart:
    """The same data, outside any run."""
    made = MeasuredApart(Federation(participants=3, adversaries=1, seed=1), split="OWN", seen=str(tmp_path))
    ready(made)
    return made


def scores_of(state: dict[str, torch.Tensor], examples: Any) -> tuple[float, float]:
    """Accuracy and mean loss of a network with these weights, in plain torch."""
    network = Perceptron(64, 64, 10)
    network.load_state_dict(state)
    x, y = (torch.stack([torch.as_tensor(e[k]) for e in examples]) for k in (0, 1))
    with torch.no_grad():
        logits = network(x).double()
    loss = -logits.log_softmax(1).gather(1, y[:, None]).mean()
    return (logits.argmax(1) == y).double().mean().item(), loss.item()


def states(folder: Path) -> list[dict[str, torch.Tensor]]:
    return [torch.load(path, weights_only=True) for path in sorted((folder / "weights").iterdir())]


@pytest.mark.parametrize("server", [(), FedAvg], ids=["RFFL", "FedAvg"])
def test_everybody_on_its_own(
    rffl: Callable[..., Ended], data: MeasuredApart, tmp_path: Path, server: tuple[str, ...]
) -> None:
    """Someone is measured on another's examples, on some of its own, or, where all have one model, on the first's."""
    assert rffl(*measured_apart(tmp_path / "seen"), *QUICK, *server, "--run.root", tmp_path / "runs").code == 0
    folder = only_run(tmp_path / "runs")
    assert data.sources is not None
    test, watched = data.sources.test, data.sources.validation
    assert callable(test)
    assert callable(watched)
    expected = [scores_of(state, test(i))[0] for i, state in enumerate(states(folder))]
    assert json.loads((folder / "summary.json").read_text())["final"] == pytest.approx(expected)
    assert len({*expected}) > 1
    last = list(csv.DictReader((folder / "metrics.csv").open()))[-1]
    for i, state in enumerate(states(folder)):
        accuracy, loss = scores_of(state, watched(i))
        assert float(last[f"accuracy/participant_{i}"]) == pytest.approx(accuracy)
        assert float(last[f"loss/participant_{i}"]) == pytest.approx(loss, rel=1e-5)


@pytest.mark.slow
def test_two_ranks_and_going_on(rffl: Callable[..., Ended], tmp_path: Path) -> None:
    """Other bits on two ranks, or scores of others than those a rank hosts; a limit cuts elsewhere on two ranks."""
    run = measured_apart(tmp_path / "seen", *QUICK)
    assert rffl(*run, "--run.root", tmp_path / "one").code == 0
    ended = forked(2, *run, root=tmp_path / "two")
    assert ended.code == 0, ended.err
    assert result(tmp_path / "one") == result(tmp_path / "two")
    one, two = (json.loads((only_run(tmp_path / name) / "summary.json").read_text()) for name in ("one", "two"))
    assert one["final"] == two["final"]
    last = only_run(tmp_path / "one") / "checkpoints" / "last.ckpt"
    few = ("--data.eval_batch_size", 8, "--trainer.limit_test_batches", 2, "--ckpt_path", last)
    lines = [
        [line for line in ended.out.splitlines() if line.strip()[:1].isdigit()]
        for ended in (
            rffl("test", *run[1:], *few, "--run.root", tmp_path / "tested"),
            forked(2, "test", *run[1:], *few, root=tmp_path / "tested on two"),
        )
    ]
    assert len(lines[0]) == 3
    assert lines[0] == lines[1]


def test_predictions(rffl: Callable[..., Ended], data: MeasuredApart, tmp_path: Path) -> None:
    """A participant's file has predictions of another's examples, or not all of its own, in their order."""
    run = measured_apart(tmp_path / "seen", *QUICK)
    assert rffl(*run, "--run.root", tmp_path / "runs").code == 0
    folder = only_run(tmp_path / "runs")
    last = folder / "checkpoints" / "last.ckpt"
    assert rffl("predict", *run[1:], "--ckpt_path", last, "--run.root", tmp_path / "predicted").code == 0
    assert data.sources is not None
    assert callable(data.sources.test)
    for i, state in enumerate(states(folder)):
        (path,) = (tmp_path / "predicted").rglob(f"participant_{i}.csv")
        found = [int(row["class"]) for row in csv.DictReader(path.open())]
        network = Perceptron(64, 64, 10)
        network.load_state_dict(state)
        own: Any = data.sources.test(i)
        assert found == network(own.tensors[0]).argmax(1).tolist()


def test_what_was_taken_is_over_each_ones_own_start(
    rffl: Callable[..., Ended], data: MeasuredApart, tmp_path: Path
) -> None:
    """A free-rider's gain is over what the initial network has on another's examples; or it is not kept."""
    reference = ("--standalone.enabled", "true", "--standalone.cache_dir", tmp_path / "kept")
    run = measured_apart(tmp_path / "seen", *QUICK, *reference)
    assert rffl(*run, "--run.root", tmp_path / "first").code == 0
    folder = RunFolder.open(only_run(tmp_path / "first"))
    summary = folder.summary()
    saved = kept_in(folder.checkpoints / "last.ckpt")["state_dict"]
    start = {name.removeprefix("network."): value for name, value in saved.items()}
    assert data.sources is not None
    assert callable(data.sources.test)
    initial = [scores_of(start, data.sources.test(i))[0] for i in range(4)]
    assert initial[3] != pytest.approx(sum(initial) / 4)
    assert summary.initial == pytest.approx(sum(initial) / 4)
    assert summary.final[3] is not None
    assert summary.adversary_over_initial == pytest.approx(summary.final[3] - initial[3], abs=1e-6)
    assert rffl(*run, "--run.root", tmp_path / "again").code == 0
    assert RunFolder.open(only_run(tmp_path / "again")).summary() == summary


@pytest.mark.slow
def test_a_reference_of_other_examples(rffl: Callable[..., Ended], tmp_path: Path) -> None:
    """Somebody's other examples are not seen, and a reference is that of others, or depends on the number of ranks."""
    reference = ("--standalone.enabled", "true", "--standalone.cache_dir", tmp_path / "kept")
    run = measured_apart(tmp_path / "seen", *QUICK, *reference, "--trainer.max_epochs", 1)
    assert rffl(*run, "--run.root", tmp_path / "one").code == 0
    ended = forked(2, *run, root=tmp_path / "two")
    assert ended.code == 0, ended.err
    assert len(list((tmp_path / "kept").iterdir())) == 1
    (tmp_path / "seen" / "turned").touch()
    assert rffl(*run, "--run.root", tmp_path / "other").code == 0
    assert len(list((tmp_path / "kept").iterdir())) == 2
    alone = [RunFolder.open(only_run(tmp_path / name)).summary().standalone for name in ("one", "two", "other")]
    assert alone[0] == alone[1]
    assert [a == b for a, b in zip(alone[0], alone[2], strict=True)] == [True, False, True, True]


def test_an_attacked_class_that_somebody_has_not(rffl: Callable[..., Ended], tmp_path: Path) -> None:
    """One who has no images of it leaves nobody's accuracy on them."""
    run = measured_apart(tmp_path / "seen", *QUICK, "--config", "configs/adversaries/label_flip.yaml")
    (tmp_path / "seen" / "few").touch()
    ended = rffl(*run, "--adversaries.source", 0, "--adversaries.target", 2, "--run.root", tmp_path / "runs")
    assert ended.code == 0, ended.err
    folder = only_run(tmp_path / "runs")
    last = list(csv.DictReader((folder / "metrics.csv").open()))[-1]
    assert last["target_accuracy/participant_1"] != ""
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["target_accuracy"] is not None
    assert summary["attack_success"] is not None


def test_images_of_another_size(rffl: Callable[..., Ended], tmp_path: Path) -> None:
    """They are met after all training, or it is not said whose they are."""
    run = measured_apart(tmp_path / "seen", *QUICK)
    (tmp_path / "seen" / "short").touch()
    ended = rffl(*run)
    assert ended.code == 2
    assert "inputs of shape [1, 60], the test set's of participant 1, but it fails" in ended.err, ended.err
    assert "Traceback" not in ended.err


def test_workers_stay_from_one_pass_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every pass starts its own, which takes longer than the pass; also for who asks for no more than there is."""
    started, begin = [], Reader._started

    def counting(reader: Reader) -> Any:
        started.append(reader)
        return begin(reader)

    monkeypatch.setattr(Reader, "_started", counting)
    loader = groups(own_test=own(9), num_workers=1, eval_batch_size=5).test_dataloader()
    for _ in range(3):
        items = iter(loader)
        assert [len(next(items)) for _ in range(len(loader))] == [3, 3, 1]
    assert len(started) == 3


def test_what_is_drawn_hangs_on_nobody_else() -> None:
    """Noise on somebody's images is another where others are hosted beside it, or takes other numbers from the run."""
    drawn = {}
    for readers in ((0, 1, 2), (1,)):
        own_noise = {i: Reader(Noisy(12)).batches(torch.arange(12), 5) for i in readers}
        torch.manual_seed(3)
        drawn[readers] = torch.cat([item[1][0] for item in Joint(own_noise, 3, 8)]), torch.rand(1)
    (here, after), (alone, then) = drawn.values()
    assert torch.equal(here, alone)
    assert torch.equal(after, then)
    assert len(here.unique()) > 20


def counted(loader: Any) -> dict[int, int]:
    """Examples of every participant in a loader, whose length is the number of its items."""
    assert isinstance(loader, Joint)
    items = [*loader]
    assert len(items) == len(loader)
    return {i: sum(len(item[i][1]) for item in items if i in item) for i in range(3)}


def own(first: int) -> Callable[[int], Halves]:
    """Participant i's: so many and i more."""
    return lambda i: Halves(first + i)


def groups(**options: Any) -> Groups:
    made = Groups(Federation(participants=3), split="OWN", **options)
    ready(made)
    return made


def test_how_many_are_measured() -> None:
    """More pairs than asked for are measured, somebody who has few is measured on none, or the run says otherwise."""
    both: dict[str, Any] = {"own_test": own(30), "own_validation": lambda i: Halves((50, 4, 9)[i])}
    everything = groups(**both, eval_batch_size=7)
    assert counted(everything.test_dataloader()) == {0: 30, 1: 31, 2: 32}
    assert counted(everything.val_dataloader()) == {0: 50, 1: 4, 2: 9}
    assert everything.test_sample == (32, 32)
    some = groups(**both, measurements=60, eval_batch_size=7)
    assert counted(some.test_dataloader()) == {0: 20, 1: 20, 2: 20}
    assert some.test_sample == (20, 32)
    assert counted(some.held_out_dataloader()) == {0: 20, 1: 4, 2: 9}
    assert counted(some.val_dataloader()) == {0: 10, 1: 4, 2: 9}
    assert counted(some.predict_dataloader()) == {0: 30, 1: 31, 2: 32}


def test_what_a_run_says_of_a_part(rffl: Callable[..., Ended], tmp_path: Path) -> None:
    """A part of the examples is measured and the run does not say so."""
    run = measured_apart(tmp_path / "seen", *QUICK, "--trainer.max_epochs", 1)
    ended = rffl(*run, "--data.measurements", 80)
    assert "measured on at most 20 of at most 45 test examples each; --data.measurements null takes all" in ended.out


def test_what_ranks_compare() -> None:
    """Other test or validation examples of somebody's own are taken for the same."""
    told = [
        groups(own_test=own(6)).identity()["shards"],
        groups(own_test=own(7)).identity()["shards"],
        groups(own_validation=own(6)).identity()["shards"],
        groups(own_validation=own(6), own_test=own(6)).identity()["shards"],
        groups().identity()["shards"],
        groups(own_validation=lambda i: Halves(20), own_test=own(6)).identity()["shards"],
        groups(own_validation=own(6), own_test=lambda i: Halves(20)).identity()["shards"],
    ]
    assert len({*told}) == len(told)
    assert groups(own_test=own(6)).identity()["shards"] == told[0]


def at_one(wrong: Dataset[Any]) -> Callable[[int], Dataset[Any]]:
    """Participant 1's is this."""
    return lambda i: wrong if i == 1 else Halves(9)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"common": True, "own_test": own(6)},
            "Expected Groups to have training examples of everybody's own, as its test examples are",
        ),
        (
            {"own_test": at_one(TensorDataset(torch.zeros(0, 2), torch.zeros(0)))},
            "Expected participant 1 of Groups to have test examples, but there is none",
        ),
        (
            {"own_test": at_one(TensorDataset(torch.zeros(3, 2), torch.tensor([0, 1, 2])))},
            "Expected labels of participant 1 of Groups to lie in 0 .. 1, but test example 2 has label 2",
        ),
        (
            {"own_validation": at_one(TensorDataset(torch.full((3, 2), torch.nan), torch.zeros(3)))},
            "Expected finite inputs of participant 1 of Groups, but validation example 0 has NaN",
        ),
        ({"own_test": {}.__getitem__}, "Expected Groups to read the test examples of participant 0, but"),
    ],
    ids=["common training", "empty", "label", "nan", "cannot be read"],
)
def test_what_nobody_can_be_measured_on(options: dict[str, Any], said: str) -> None:
    """It is measured all the same, or whose it is is not said."""
    with pytest.raises(UserError) as caught:
        groups(**options)
    assert said in str(caught.value)


def test_what_turns_out_while_it_is_read() -> None:
    """An example that is read one at a time and cannot be used is not named by its participant."""
    loader = groups(own_test=at_one(Broken(20)), eval_batch_size=5).test_dataloader()
    with pytest.raises(UserError, match="of participant 1 of Groups, but test example 17 has NaN"):
        list(loader)


def test_examples_that_some_have(tmp_path: Path) -> None:
    """A rank whose data have no validation examples of its participants' own trains beside one whose have."""
    run = measured_apart(tmp_path / "seen", *QUICK, "--data.watch", "test")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "common").touch()
    ended = forked(2, *run, root=tmp_path / "runs", each=[(), ("--data.seen", tmp_path / "other")], timeout=60)
    assert ended.code == 2
    assert "Expected validation examples of everybody's own or of nobody's, but there are none of" in ended.err
    assert "Traceback" not in ended.err


def test_a_server_that_validates_has_no_examples(rffl: Callable[..., Ended], tmp_path: Path) -> None:
    """CFFL scores uploads on somebody's own examples, which the server does not have."""
    ended = rffl(*measured_apart(tmp_path / "seen"), *QUICK, "--config", "configs/servers/cffl.yaml")
    assert ended.code == 2
    assert "under --data.split OWN data with a validation set in common, or another --server" in ended.err, ended.err
