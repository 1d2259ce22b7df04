"""Cells that train as one stack are the cells that they are alone."""

from __future__ import annotations

import copy
import gc
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from rffl_pl.adversaries.cast import Poisoned
from rffl_pl.cli.resolve import Resolver
from rffl_pl.datamodules.reading import Reader
from rffl_pl.datamodules.rounds import Shard
from rffl_pl.launch.stopping import STOP, Stopped
from rffl_pl.studies import Study
from rffl_pl.studies.cells import Cell, cells_of, packed
from rffl_pl.studies.pack import Clock, together
from rffl_pl.training.stack import Stack, Turn
from rffl_pl.training.stack.batches import Held
from rffl_pl.training.stack.networks import Draws, adapted, alike
from rffl_pl.training.stack.rows import Rows
from tests.cli.folders import Run, weights
from tests.conftest import ROOT
from tests.processes import group_lives
from tests.studies.files import DIGITS, rows, study

T = TypeVar("T")
STACKED = f"{DIGITS} --model.engine stacked"


@pytest.fixture(autouse=True)
def _hears_control_c() -> Iterator[None]:
    """Also where the tests run in a shell's background, which has what it starts ignore Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time in its one entry, which passes for packs when a test says so."""
    moment = [0.0]
    monkeypatch.setattr("rffl_pl.studies.pack.time", SimpleNamespace(monotonic=lambda: moment[0]))
    return moment


@pytest.fixture
def unions(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many participants each stack trains, as they are trained."""
    sizes: list[int] = []
    trained = Stack.trained

    def counted(stack: Stack, turns: Sequence[Turn], rates: Sequence[float]) -> Any:
        sizes.append(len(turns))
        return trained(stack, turns, rates)

    monkeypatch.setattr(Stack, "trained", counted)
    return sizes


def cells_in(root: Path) -> dict[str, Path]:
    """The folder of the run of every finished cell, by digest."""
    return {path.parent.parent.name: path.parent for path in (root / "cells").glob("*/*/summary.json")}


def assert_same_results(root: Path, other: Path) -> None:
    """The same cells with the same models, removals and measures."""
    ones, others = cells_in(root), cells_in(other)
    assert ones.keys() == others.keys()
    for digest, one in ones.items():
        for name, state in weights(one).items():
            torch.testing.assert_close(weights(others[digest])[name], state, rtol=1e-5, atol=1e-5)
        here, there = (
            [json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines()]
            for run in (one, others[digest])
        )
        assert [(a["number"], a["members"], a["removed"]) for a in here] == [
            (b["number"], b["members"], b["removed"]) for b in there
        ]
        for measured in ("accuracy", "loss"):
            for a, b in zip(here, there, strict=True):
                assert b["measures"][measured] == pytest.approx(
                    a["measures"][measured], rel=1e-4, abs=1e-5, nan_ok=True
                )


@pytest.mark.slow
def test_packed_cells_are_those_run_alone(
    rffl: Run, tmp_path: Path, unions: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Servers, attacks, seeds, unequal shards and batches; whoever is removed, ends earlier or fails is so alone.

    Those that another network, optimizer or engine keeps out run alone, and the study says so.
    """
    text = f"""\
base: {STACKED} --trainer.max_epochs 5
axes:
  server: {{RFFL: --server.preset guarded, FedAvg: --server FedAvg}}
  kind:
    pow: --standalone.enabled true
    uni: --data.split UNI --data.batch_size 8
    flip: --config adversaries/label_flip.yaml --federation.adversaries 2
    sign: --adversaries+=SignRandom --federation.adversaries 2
    short: --trainer.max_epochs 2
    broken: --trainer.callbacks+=tests.interruption.PowerCut
    hungry: --data.examples_per_participant 1000
    wide: --model.network.hidden 32
    loop: --model.engine loop
seeds: [3]
exclude:
  - {{server: FedAvg, kind: [sign, broken, hungry, wide, loop]}}
"""
    file = study(tmp_path, text, "kinds.yaml")
    ended = {}
    for most in (1, 99):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / f"cache {most}"))  # each trains references of its own
        ended[most] = rffl("study", file, "--root", tmp_path / str(most), "--pack", most)
    assert "11 cells train in 1 pack, 2 alone: cells train together that share network" in ended[99].out
    assert "train in" not in ended[1].out
    for each in ended.values():
        assert each.code == 1
        failed = sorted(line.split(": ")[1:] for line in each.err.splitlines() if line.startswith("Failed: "))
        assert [line[0] for line in failed] == ["server=RFFL kind=broken seed=3", "server=RFFL kind=hungry seed=3"]
        assert failed[0][1] == "RuntimeError"
        assert failed[1][1].startswith("Expected at least 5000 training examples")
    assert len(cells_in(tmp_path / "99")) == 11
    assert max(unions) > 21  # in the pack: alone a cell has seven at most
    assert_same_results(tmp_path / "1", tmp_path / "99")
    removed = [entry for run in cells_in(tmp_path / "99").values() for entry in (run / "rounds.jsonl").open()]
    assert any(json.loads(entry)["removed"] for entry in removed)
    one, other = (
        {
            (row["cell"], row["measure"], row["participant"]): float(row["value"])
            for row in rows(tmp_path / most / "kinds" / "results.csv")
        }
        for most in ("1", "99")
    )
    assert "fairness" in {measure for _, measure, _ in one}
    assert other == pytest.approx(one, abs=0.01)
    assert len(list((tmp_path / "cache 99").rglob("*.json"))) == 1  # two servers have a reference in common
    for run in cells_in(tmp_path / "99").values():  # each cell's words are in its own log
        assert (run.parent / "log.txt").read_text().count("run folder: ") == 1


@pytest.mark.slow
def test_an_interrupted_pack_goes_on(rffl: Run, tmp_path: Path) -> None:
    """Every cell where it was; and the process answers signals as before."""
    cells = "rffl: '', fedavg: --server FedAvg, median: --server Median"
    text = f"base: {STACKED} --trainer.max_epochs 3\naxes: {{what: {{{cells}}}}}\n"
    whole = study(tmp_path, text, "whole.yaml")
    assert rffl("study", whole, "--root", tmp_path / "alone").code == 0
    for number in (signal.SIGINT, signal.SIGTERM):
        cut = f"--trainer.callbacks+=tests.interruption.Signalled --trainer.callbacks.number {int(number)}"
        broken = study(tmp_path, text.replace("rffl:", f"cut: {cut}, rffl:"), "broken.yaml")
        before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
        packed = tmp_path / number.name
        ended = rffl("study", broken, "--root", packed, "--pack", 4)
        assert ended.code == 130
        assert ended.err.strip().splitlines()[-1] == "Interrupted; the same command goes on where every cell was."
        assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == before
        assert not cells_in(packed)
        logs = [path.read_text() for path in (packed / "cells").glob("*/log.txt")]
        assert len(logs) == 4
        how = "go on with it by running the study again"
        assert all(f"Stopped by {number.name} after round 2; {how}" in log for log in logs)
        assert rffl("study", whole, "--root", packed, "--pack", 3).code == 0
        for digest in cells_in(packed):
            cell = json.loads((packed / "cells" / digest / "cell.json").read_text())
            assert "null" not in cell["words"]  # each went on from a checkpoint
        assert_same_results(tmp_path / "alone", packed)


@pytest.mark.slow
@pytest.mark.distributed
def test_a_scheduler_ends_packs_in_workers(tmp_path: Path) -> None:
    """The study's processes end, and every cell after a round of which it has the checkpoint."""
    text = f"base: {STACKED} --trainer.max_epochs 10000\nseeds: [1, 2]\naxes: {{n: {{a: '', b: --server FedAvg}}}}\n"
    root = tmp_path / "studies"
    words = ["study", str(study(tmp_path, text, "long.yaml")), "--root", str(root), "--jobs", "2", "--pack", "2"]
    command = [sys.executable, "-m", "rffl_pl", *words]
    started = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        until = time.monotonic() + 120
        while len(list(root.glob("cells/*/*/checkpoints/last.ckpt/run.pt"))) < 4:
            assert time.monotonic() < until
            time.sleep(0.05)
        started.terminate()
        _, err = started.communicate(timeout=90)
        assert started.returncode == 130, err
        assert "Interrupted; the same command goes on where every cell was." in err
        until = time.monotonic() + 30
        while group_lives(started.pid):
            assert time.monotonic() < until
            time.sleep(0.1)
    finally:
        if group_lives(started.pid):
            os.killpg(started.pid, signal.SIGKILL)
    logs = [path.read_text() for path in root.glob("cells/*/log.txt")]
    assert sum("Stopped by SIGTERM after round" in log for log in logs) >= 2


@pytest.mark.slow
@pytest.mark.distributed
def test_a_pack_whose_worker_is_killed_goes_on_alone(rffl: Run, tmp_path: Path) -> None:
    """And whoever kills its worker then fails."""
    text = f"""\
base: {STACKED} --trainer.max_epochs 2
axes:
  what:
    killed: --trainer.callbacks+=tests.interruption.Killed
    fine: ""
    good: --server FedAvg
    well: --server Median
"""
    ended = rffl("study", study(tmp_path, text, "four.yaml"), "--root", tmp_path, "--jobs", 2, "--pack", 2)
    assert ended.code == 1
    (failed,) = (line for line in ended.err.splitlines() if line.startswith("Failed: "))
    assert failed.startswith("Failed: what=killed seed=1: Its worker ended by SIGKILL")
    assert {row["what"] for row in rows(tmp_path / "four" / "results.csv")} == {"fine", "good", "well"}


SIZES = (5, 37, 20, 1)


def ignoring(function: Callable[..., T], **options: Any) -> Callable[[Clock], T]:
    """A function that looks at no clock."""
    return lambda _: function(**options)


def perceptron() -> nn.Module:
    """In double precision, with dropout, so that what draws must draw the same."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Dropout(0.3), nn.Linear(16, 3)).double()


def trained(
    seed: int,
    *,
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
    data = TensorDataset(torch.randn(63, 6, generator=generator).double(), torch.arange(63) * 7 // 3 % 3)
    shards: list[Any] = [Shard(Reader(data), own, batch) for own in torch.arange(63).split(SIZES)]
    done = [0]

    def poison(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        if spoil == "data" and done[0] == 1:
            raise OSError("the disk is gone")
        return x, 2 - y

    if spoil:
        shards[1] = Poisoned(shards[1], poison)
    network = perceptron()
    row = torch.cat([p.detach().flatten() for p in network.parameters()]) + seed  # they begin elsewhere
    nets = [copy.deepcopy(network) for _ in SIZES]
    rows_ = [row.clone() for _ in SIZES]
    optimizers = [torch.optim.Adam(net.parameters()) for net in nets]
    stack = Stack(network, optimizers[0])
    drawn = []
    for number in range(rounds):
        seeds = [100 * seed + 10 * number + i for i in range(4)]
        anchor = row if anchored else None
        correction = 0.1 * row if corrected else None
        turns = [Turn(rows_[i], optimizers[i], shards[i], seeds[i], proximal, anchor, correction) for i in range(4)]
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
    return Stack(network, optimizer), Turn(row, optimizer, shard, 1)


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


class Scaled(nn.Module):
    """A network with a setting, a buffer, a frozen parameter and one that trains."""

    def __init__(self, factor: float = 1.0, buffer: float = 1.0, frozen: float = 1.0, width: int = 3) -> None:
        super().__init__()
        self.factor = factor
        self.register_buffer("buffer", torch.full((2,), buffer))
        self.frozen = nn.Parameter(torch.full((2,), frozen), requires_grad=False)
        self.layers = nn.Sequential(nn.Linear(2, width), nn.Dropout(0.5))
        self.circle = (self.layers,)


def test_which_networks_are_one_stack() -> None:
    """Those that differ in nothing but the values of what trains."""
    one, other = (adapted(copy.deepcopy(net), Draws()) for net in (Scaled(), Scaled()))
    assert alike(one, other)
    for different in (Scaled(factor=2.0), Scaled(buffer=2.0), Scaled(frozen=2.0), Scaled(width=4), nn.Linear(2, 3)):
        assert not alike(Scaled(), different)
    odd, looser, dropped = Scaled(), Scaled(), Scaled()
    vars(odd)["activation"] = lambda x: x
    looser.frozen.requires_grad_(True)
    vars(dropped.layers[1])["p"] = 0.4
    for different in (odd, looser, dropped):
        assert not alike(different, Scaled())
        assert alike(different, different)


def test_tied_weights_are_one_stack_with_tied_ones_alone() -> None:
    """What each layer holds is the same, the vector that trains is shorter."""
    tied, untied = (nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)) for _ in range(2))
    tied[1].weight = tied[0].weight
    networks = (tied, copy.deepcopy(tied), untied)
    one, same, other = (Stack(network, torch.optim.SGD(network.parameters(), lr=0.1)) for network in networks)
    assert one.serves(same)
    assert not one.serves(other)
    assert not other.serves(one)


def test_examples_lie_on_the_device_once() -> None:
    """However many copies there are; others lie behind them, and those of another shape are read as they are drawn."""
    data = [(torch.randn(9, 6, generator=torch.Generator().manual_seed(seed)), torch.arange(9)) for seed in (1, 1, 2)]
    held = Held(torch.device("cpu"), None)
    assert [held.first(each, None) for each in (*data, data[1])] == [0, 0, 9, 0]
    assert torch.equal(held.x, torch.cat([data[0][0], data[2][0]]))
    assert held.first((torch.randn(9, 5), torch.arange(9)), None) is None
    assert held.first((*data[0][:1], torch.arange(9) + 1), torch.sin) is None


def cell(mates: str, number: int) -> Cell:
    return Cell(place={}, seed=number, rounds=1, words=[], settings="", digest=str(number), mates=mates)


def test_packs_are_full_and_even() -> None:
    """Nobody waits for a worker while another has a whole pack before it; one at a time in the order that it was."""
    cells = [cell("abba"[k % 4], k) for k in range(12)] + [cell("", 12), cell("", 13)]
    sizes = [[len(pack) for pack in packed(cells, most, jobs)] for most, jobs in ((4, 1), (99, 1), (99, 2), (99, 5))]
    assert sizes == [[4, 2, 4, 2, 1, 1], [6, 6, 1, 1], [3, 3, 3, 3, 1, 1], [2, 2, 2, 2, 2, 2, 1, 1]]
    assert packed(cells, 1, 2) == [[each] for each in cells]
    for pack in packed(cells, 99):
        assert len({each.mates for each in pack}) == 1


def test_who_can_be_in_a_pack() -> None:
    """What rows of a stack have of their own may differ; what they share may not; loggers of one's own stand alone."""
    base, resolve = "--config digits.yaml --run.wandb false --model.engine stacked", Resolver()

    def mates(words: str) -> str:
        one = Study(name="one", base=[*base.split(), *words.split()], axes={"n": {"a": []}}, seeds=[1])
        return cells_of(one, [1], None, resolve)[0].mates

    same = [
        "",
        "--server Median --data.split UNI --data.batch_size 9 --federation.adversaries 2 --trainer.max_epochs 3",
        "--config adversaries/sybil.yaml --standalone.enabled false --federation.participation 0.5",
    ]
    others = [
        "--model.network.hidden 9",
        "--model.optimizer.lr 0.2",
        "--model.optimizer.momentum 0.9",
        "--model.local_epochs 2",
        "--model.lr_decay 1",
        "--trainer.precision bf16-mixed",
        "--data tests.callbacks.own.Turned --data.after 1",
        "--data tests.callbacks.own.Turned --data.after 2",
    ]
    alone = ["--run.wandb true", "--model.engine loop", "--trainer.logger CSVLogger --trainer.logger.save_dir x"]
    alone += [] if torch.cuda.is_available() else ["--model.engine auto"]
    assert len(set(map(mates, same))) == 1
    assert len(set(map(mates, ["", *others]))) == 1 + len(others)
    assert all(map(mates, others))
    assert not any(map(mates, alone))
