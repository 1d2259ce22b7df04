"""What trains in packs takes the steps it takes alone, whoever fails; signals, time and surroundings are its own."""

from __future__ import annotations

import copy
import gc
import os
import random
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from rffl_pl.adversaries.cast import Poisoned
from rffl_pl.datamodules.reading import Reader
from rffl_pl.datamodules.rounds import Shard
from rffl_pl.launch.stopping import STOP, Stopped
from rffl_pl.models import MNISTCNN, TextCNN
from rffl_pl.studies.pack import Clock, together
from rffl_pl.training.cohort import Cohort
from rffl_pl.training.schedule import Schedule
from rffl_pl.training.stack import Stack, Turn
from rffl_pl.training.stack.rows import Rows

pytestmark = pytest.mark.usefixtures("hears_control_c")
T = TypeVar("T")


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time in its one entry, which passes for packs when a test says so."""
    moment = [0.0]
    monkeypatch.setattr("rffl_pl.studies.pack.time", SimpleNamespace(monotonic=lambda: moment[0]))
    return moment


SIZES = (5, 37, 20, 1)


def ignoring(function: Callable[..., T], **options: Any) -> Callable[[Clock], T]:
    """A function that looks at no clock."""
    return lambda _: function(**options)


def perceptron() -> nn.Module:
    """In double precision, with dropout, so that what draws must draw the same."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Dropout(0.3), nn.Linear(16, 3)).double()


def convolutions() -> nn.Module:
    """MNIST's in double precision."""
    torch.manual_seed(0)
    return MNISTCNN(classes=3).double()


def words() -> nn.Module:
    """That for sentences, with dropout."""
    torch.manual_seed(0)
    return TextCNN(vocabulary=500, classes=3).double()


NETWORKS: dict[str, tuple[Callable[[], nn.Module], Callable[[torch.Generator], Tensor]]] = {
    "perceptron": (perceptron, lambda generator: torch.randn(63, 6, generator=generator).double()),
    "MNISTCNN": (convolutions, lambda generator: torch.randn(63, 1, 32, 32, generator=generator).double()),
    "TextCNN": (words, lambda generator: torch.randint(1, 500, (63, 12), generator=generator)),
}


def trained(
    seed: int,
    *,
    name: str = "perceptron",
    batch: int = 8,
    rate: float = 0.1,
    rounds: int = 3,
    spoil: str = "",
    examples: int = 1,
    proximal: float = 0.0,
    anchored: bool = False,
    corrected: bool = False,
) -> Tensor:
    """Weights ``[4, D]`` of a federation after some rounds of Adam, and what it draws beside, of one more column.

    Args:
        seed: Of examples' order and dropout.
        name: Of the network.
        batch: Examples of a mini-batch.
        rate: The learning rate.
        rounds: How many.
        examples: Which data set.
        spoil: ``labels`` poisons the second participant's, ``data`` breaks its examples in the second round.
        proximal: Weight of the proximal term.
        anchored: Whether it draws to where everybody began.
        corrected: Whether something is added to gradients.
    """
    random.seed(seed), np.random.seed(seed), torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(examples)
    make, inputs = NETWORKS[name]
    data = TensorDataset(inputs(generator), torch.arange(63) * 7 // 3 % 3)
    shards: list[Any] = [Shard(Reader(data), own, batch) for own in torch.arange(63).split(SIZES)]
    done = [0]

    def poison(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        if spoil == "data" and done[0] == 1:
            raise OSError("the disk is gone")
        return x, 2 - y

    if spoil:
        shards[1] = Poisoned(shards[1], poison)
    network = make()
    row = torch.cat([p.detach().flatten() for p in network.parameters()]) + seed  # they begin elsewhere
    nets = [copy.deepcopy(network) for _ in SIZES]
    rows_ = [row.clone() for _ in SIZES]
    optimizers = [torch.optim.Adam(net.parameters()) for net in nets]
    stack = Stack(network, optimizers[0])
    drawn = []
    for number in range(rounds):
        seeds = [100 * seed + 10 * number + i for i in range(4)]
        anchors = [row] * len(SIZES) if anchored else rows_
        correction = 0.1 * row if corrected else None
        turns = [Turn(rows_[i], optimizers[i], shards[i], seeds[i], anchors[i], proximal, correction) for i in range(4)]
        losses = stack.train(turns, [rate, rate / 2])
        drawn += [random.random() + np.random.rand() + float(torch.rand(())), float(losses.sum())]
        done[0] += 1
    return torch.cat([*rows_, torch.tensor(drawn).double()])


def test_in_double_precision_to_twelve_digits(unions: list[int]) -> None:
    """Also where learning rates part them into two stacks; what runs draw beside training is their own."""
    kinds: list[dict[str, Any]] = [
        {"seed": 1},
        {"seed": 2, "batch": 3},
        {"seed": 3, "rounds": 1},
        {"seed": 4, "spoil": "labels"},
        {"seed": 5, "rate": 0.02},
        {"seed": 6, "examples": 2, "proximal": 0.5},
        {"seed": 6, "examples": 2, "proximal": 0.5, "anchored": True},
        {"seed": 6, "examples": 2, "proximal": 0.5, "corrected": True},
    ]
    alone = [trained(**kind) for kind in kinds]
    unions.clear()
    found = dict(together([ignoring(trained, **kind) for kind in kinds]))
    assert unions == [24, 4, 24, 4, 24, 4]  # in the first round the two before the last are the same
    for number, expected in enumerate(alone):
        torch.testing.assert_close(found[number], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["MNISTCNN", "TextCNN"])
def test_larger_networks_to_twelve_digits(name: str, unions: list[int]) -> None:
    """Convolutions of all models as groups of one, and embeddings whose rows are looked up for all at once."""
    kinds: list[dict[str, Any]] = [{"seed": 0}, {"seed": 0, "batch": 3}, {"seed": 0, "spoil": "labels"}]
    alone = [trained(name=name, rounds=1, rate=1e-3, **kind) for kind in kinds]
    unions.clear()
    found = dict(together([ignoring(trained, name=name, rounds=1, rate=1e-3, **kind) for kind in kinds]))
    assert unions == [12]
    for number, expected in enumerate(alone):
        torch.testing.assert_close(found[number], expected, rtol=1e-12, atol=1e-12)


def test_whoever_fails_while_all_train_fails_alone() -> None:
    """The others' round is trained again without it, once, as if it had not been there."""
    kinds: list[dict[str, Any]] = [{"seed": 1}, {"seed": 2, "spoil": "data"}, {"seed": 3, "spoil": "labels"}]
    alone = [None if kind.get("spoil") == "data" else trained(**kind) for kind in kinds]

    def attempted(**kind: Any) -> Any:
        try:
            return trained(**kind)
        except OSError as error:
            return str(error)

    with pytest.warns(UserWarning, match="3 cells of a pack train one after another, since: OSError: the disk is gone"):
        found = dict(together([ignoring(attempted, **kind) for kind in kinds]))
    assert found[1] == "the disk is gone"
    for number in (0, 2):
        torch.testing.assert_close(found[number], alone[number], rtol=1e-12, atol=1e-12)


def test_nobody_goes_on_half_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    """What breaks while models are put back ends all: some would be trained twice."""
    reached: list[int] = []

    def body(number: int) -> None:
        trained(number)
        reached.append(number)

    def broken(rows: Rows) -> None:
        raise MemoryError("at the worst moment")

    monkeypatch.setattr(Rows, "put_back", broken)
    with pytest.raises(MemoryError, match="at the worst moment"):
        dict(together([ignoring(body, number=number) for number in (1, 2)]))
    assert not reached


def test_everybody_has_surroundings_of_its_own(now: list[float]) -> None:
    """Environment, streams, warnings' filters and precision; and time is counted for whom it passes."""
    waited: list[float] = []
    stack, turn = small_turn()

    def body(name: str, clock: Callable[[], float]) -> tuple[str, str, float]:
        os.environ["RFFL_TEST"] = name
        warnings.simplefilter("error" if name == "a" else "ignore")
        with torch.autocast("cpu", torch.bfloat16, enabled=name == "b"):
            if name == "b":
                now[0] += 2
            stack.train([turn], [0.1])
            precise = str((torch.ones(2, 2) @ torch.ones(2, 2)).dtype)
        try:
            warnings.warn("heard", stacklevel=1)
        except UserWarning:
            precise += " raised"
        waited.append(clock())
        return os.environ["RFFL_TEST"], precise, clock()

    before = dict(os.environ), list(warnings.filters), sys.stdout
    found = dict(together([partial(body, name) for name in "ab"]))
    assert (dict(os.environ), list(warnings.filters), sys.stdout) == before
    assert found[0][:2] == ("a", "torch.float32 raised")
    assert found[1][:2] == ("b", "torch.bfloat16")
    assert (found[0][2], found[1][2]) == (0, 2)


def test_what_is_trained_for_several_takes_everybody_its_share(
    monkeypatch: pytest.MonkeyPatch, now: list[float]
) -> None:
    """By the number of its participants, whoever's thread does it."""
    train = Stack.trained

    def slow(stack: Stack, turns: Sequence[Turn], rates: Sequence[float]) -> Any:
        now[0] += 8
        return train(stack, turns, rates)

    def body(count: int, clock: Clock) -> float:
        stack, turn = small_turn()
        stack.train([replace(turn, weights=turn.weights.clone(), seed=k) for k in range(count)], [0.1])
        return clock()

    monkeypatch.setattr(Stack, "trained", slow)
    found = dict(together([partial(body, 1), partial(body, 3)]))
    assert found == {0: 2, 1: 6}


def small_turn() -> tuple[Stack, Turn]:
    """A participant with a small network."""
    network = nn.Linear(6, 3)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    row = torch.cat([p.detach().flatten() for p in network.parameters()])
    shard = Shard(Reader(TensorDataset(torch.randn(9, 6), torch.arange(9) % 3)), torch.arange(9), 4)
    return Stack(network, optimizer), Turn(row, optimizer, shard, 1, row)


def test_sigterm_is_told_to_whom_no_round_ends() -> None:
    """Who plays a round ends after it by itself; the reference that others train after their rounds ends at once."""

    def body(in_round: bool) -> str:
        stack, turn = small_turn()
        STOP.deferred = in_round
        try:
            stack.train([turn], [0.1])
            if not in_round:
                os.kill(os.getpid(), signal.SIGTERM)
            stack.train([turn], [0.1])
        except Stopped as stopped:
            return stopped.signal
        return "trained, told" if STOP.heard is not None else "trained"

    found = dict(together([ignoring(body, in_round=in_round) for in_round in (True, False)]))
    assert found == {0: "trained, told", 1: "SIGTERM"}
    assert STOP.heard is None
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_control_c_is_never_lost() -> None:
    """Nobody begins after it; it counts where nobody trains any more; a second one waits for nobody."""
    begun: list[int] = []
    free = threading.Event()

    def body(number: int, times: int, rounds: int) -> str:
        begun.append(number)
        stack, turn = small_turn()
        for _ in range(times):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.3)  # until it has been heard
        if times == 2:
            free.wait(60)
        for _ in range(rounds):
            stack.train([turn], [0.1])
        return "trained"

    with pytest.raises(KeyboardInterrupt):
        dict(together([ignoring(body, number=1, times=1, rounds=0), ignoring(body, number=2, times=0, rounds=1)]))
    with pytest.raises(KeyboardInterrupt):
        dict(together([ignoring(body, number=number, times=int(number == 4), rounds=0) for number in (3, 4)]))
    with pytest.raises(KeyboardInterrupt):
        dict(together([ignoring(body, number=5, times=2, rounds=0)]))
    free.set()
    assert begun == [1, 3, 4, 5]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_same_work_is_done_once(unions: list[int]) -> None:
    """As the reference that several cells have in common; whoever differs in anything is trained apart."""
    different: list[dict[str, Any]] = [
        {"seed": 1},
        {"seed": 1, "spoil": "labels"},
        {"seed": 1, "batch": 3},
        {"seed": 2},
    ]
    kinds = [*different, {"seed": 1}, {"seed": 2}]
    alone = [trained(**kind) for kind in kinds]
    unions.clear()
    found = dict(together([ignoring(trained, **kind) for kind in kinds]))
    assert unions == [16] * 3
    for number, expected in enumerate(alone):
        torch.testing.assert_close(found[number], expected, rtol=1e-12, atol=1e-12)


def test_a_reference_in_common_is_trained_once_in_the_stacks_of_runs_that_parted(unions: list[int]) -> None:
    """Each trains its reference where its participants trained, which another server moved in every round."""
    data = TensorDataset(torch.randn(30, 6, generator=torch.Generator().manual_seed(0)), torch.arange(30) % 3)

    def body(server: int) -> Tensor:
        shards = {i: Shard(Reader(data), own, 5) for i, own in enumerate(torch.arange(30).split(10))}
        network, schedule = perceptron().float(), Schedule(epochs=1)
        ours, reference = (
            Cohort(network, [*shards], partial(torch.optim.SGD, lr=0.1), torch.device("cpu"), stacked=True)
            for _ in "ab"
        )
        for number in range(3):
            ours.train_all(shards, schedule, number, dict.fromkeys(shards, number))
            ours.weights += 0.01 * server
        reference.train_in_stack_of(ours)
        for number in range(3):
            reference.train_all(shards, schedule, number, dict.fromkeys(shards, number))
        return reference.weights.clone()

    found = dict(together([ignoring(body, server=server) for server in range(4)]))
    assert unions == [3, 12, 12, 3, 3, 3]  # in the first round of all, nobody has been moved yet
    for reference in found.values():
        assert torch.equal(reference, found[0])


def test_who_is_left_ends_with_whom_iterates() -> None:
    """Nobody waits for ever for losses that nobody trains."""
    ended: list[str] = []
    stack, turn = small_turn()

    def body(rounds: int) -> int:
        try:
            for _ in range(rounds):
                stack.train([turn], [0.1])
        except Stopped as stopped:
            ended.append(stopped.signal)
        return rounds

    gc.collect()
    files, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
    results = together([ignoring(body, rounds=rounds) for rounds in (3, 1, 3)])
    assert next(results) == (1, 1)
    results.close()
    assert ended == ["SIGTERM", "SIGTERM"]
    assert len(os.listdir("/proc/self/fd")) <= files  # what others left open may be closed meanwhile
    assert threading.active_count() <= threads
