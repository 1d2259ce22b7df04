"""Participants that train at once, as one stack of models, train as they do one after another."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from rffl_pl.datamodules.reading import Reader
from rffl_pl.datamodules.rounds import Shard
from rffl_pl.functional.streams import python_numpy_state, python_numpy_unchanged, random_stream
from rffl_pl.models import CIFAR10CNN, MNISTCNN, Perceptron, TextCNN
from rffl_pl.runs import RunFolder
from rffl_pl.training.cohort import Cohort
from rffl_pl.training.objective import Loss
from rffl_pl.training.schedule import Examples, OptimizerFactory, Schedule
from rffl_pl.training.stack import Stack, Turn, refusal
from rffl_pl.training.stack.batches import Held
from tests.cli.folders import DIGITS, Run, weights
from tests.cohorts import CPU, Shuffled, mlp, seeded, sgd
from tests.conftest import only_run
from tests.own_data import Jittered
from tests.runs import kept_in

SIZES = (5, 37, 64, 20, 1)


def images(channels: int) -> Tensor:
    return torch.randn(sum(SIZES), channels, 32, 32, generator=torch.Generator().manual_seed(1))


def sentences() -> Tensor:
    """Token ids, of which the second half of some is padding."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(1, 60, (sum(SIZES), 12), generator=generator)
    ids[:, 6:] *= (torch.rand(sum(SIZES), 6, generator=generator) > 0.5).cumprod(1)
    return ids


NETWORKS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "Perceptron": (lambda: Perceptron(64, 16, 3), lambda: images(1)[:, 0, :8, :8]),
    "MNISTCNN": (lambda: MNISTCNN(classes=3), lambda: images(1)),
    "CIFAR10CNN": (lambda: CIFAR10CNN(classes=3), lambda: images(3)),
    "TextCNN": (lambda: TextCNN(vocabulary=60, classes=3, width=8, kernels=6), sentences),
}
IMAGES = ("MNISTCNN", "CIFAR10CNN")
OPTIMIZERS: dict[str, OptimizerFactory] = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.03),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.005, momentum=0.9, weight_decay=0.01),
    "Nesterov": lambda p: torch.optim.SGD(p, lr=0.005, momentum=0.9, nesterov=True),
    "Adam": lambda p: torch.optim.Adam(p, lr=1e-4, weight_decay=0.01),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=1e-4, weight_decay=0.1),
}


def shards(x: Tensor) -> dict[int, Examples]:
    """Everybody's, in mini-batches of eight: different numbers of batches, the last ones smaller."""
    y = torch.arange(len(x)) * 7 // 3 % 3
    dataset = TensorDataset(x, y)
    return {i: Shard(Reader(dataset), own, 8) for i, own in enumerate(torch.arange(len(x)).split(list(SIZES)))}


def trained(
    network: nn.Module,
    optimizer: OptimizerFactory,
    examples: dict[int, Examples],
    *,
    stacked: bool,
    rounds: int = 2,
    epochs: int = 2,
    proximal: float = 0.0,
    anchors: Mapping[int, torch.Tensor] | None = None,
) -> tuple[Cohort, dict[int, float]]:
    """A cohort after some rounds; whoever is the third sits out the second one."""
    cohort = Cohort(network, range(len(SIZES)), optimizer, CPU, stacked=stacked)
    for number in range(rounds):
        asked = {i: found for i, found in examples.items() if number != 1 or i != 2}
        seeds = {i: 100 * number + i for i in asked}
        losses = cohort.train_all(asked, Schedule(epochs=epochs, decay=0.9, proximal=proximal), number, seeds, anchors)
    return cohort, losses


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", NETWORKS)
def test_a_stack_trains_as_the_loop_does(name: str, optimizer: str) -> None:
    """Weights, losses and what optimizers remember, with unequal shards, dropout, and rounds missed.

    Networks with max-pooling for one epoch: where rounding turns a tie over, another entry gets the gradient. Adam
    moves an entry by its learning rate, 1e-4, even where the gradient is nothing but rounding.
    """
    make, inputs = NETWORKS[name]
    network, examples = seeded(make), shards(inputs())
    short: dict[str, Any] = {"rounds": 1, "epochs": 1} if "CNN" in name and name != "TextCNN" else {}
    (one, alone), (other, together) = (
        trained(network, OPTIMIZERS[optimizer], examples, stacked=stacked, **short) for stacked in (False, True)
    )
    if short and optimizer.startswith("Adam"):
        assert ((other.weights - one.weights).abs() < 1e-5).double().mean() > 0.999
        torch.testing.assert_close(other.weights, one.weights, rtol=1e-5, atol=1e-4)
    else:
        torch.testing.assert_close(other.weights, one.weights, rtol=1e-5, atol=1e-5)
    assert together == pytest.approx(alone, rel=1e-4, abs=1e-5)
    for i in range(len(SIZES)):
        mine, theirs = (cohort.state_dict(i)["optimizer"] for cohort in (one, other))
        for index, entry in mine["state"].items():
            for key, value in entry.items():
                if value is not None:
                    assert (theirs["state"][index][key] - value).norm() <= 1e-2 * value.norm(), (i, index, key)
        assert theirs["param_groups"][0].keys() == mine["param_groups"][0].keys()


def alone_in_double(
    network: nn.Module,
    optimizer: OptimizerFactory,
    examples: Examples,
    seed: int,
    loss: Loss = nn.functional.cross_entropy,
) -> tuple[Tensor, dict[str, Any]]:
    """Weights and what the optimizer remembers after two local epochs, written apart."""
    network = copy.deepcopy(network).train()
    step = optimizer(network.parameters())
    initial = step.param_groups[0]["lr"]
    with random_stream(seed, CPU):
        for share in (1, 0.5):
            step.param_groups[0]["lr"] = share * initial
            for x, y in examples.epoch():
                step.zero_grad()
                loss(network(x), y).backward()
                step.step()
    return torch.cat([p.detach().flatten() for p in network.parameters()]), step.state_dict()["state"]


@pytest.mark.parametrize(
    ("name", "optimizer"),
    # Networks for images take long: always with an optimizer that remembers nothing, and one that does.
    [
        pytest.param(name, kind, marks=[pytest.mark.slow] if name in IMAGES and kind not in ("SGD", "AdamW") else [])
        for name in NETWORKS
        for kind in OPTIMIZERS
    ],
)
def test_in_double_precision_to_twelve_digits(name: str, optimizer: str) -> None:
    """So that what is left in single precision is rounding."""
    make, inputs = NETWORKS[name]
    network, x = seeded(make).double(), inputs()
    examples = shards(x.double() if x.is_floating_point() else x)
    row = torch.cat([p.detach().flatten() for p in network.parameters()])
    own = [copy.deepcopy(network) for _ in SIZES]
    turns = [
        Turn(row.clone(), OPTIMIZERS[optimizer](net.parameters()), examples[i], i, row) for i, net in enumerate(own)
    ]
    rate = turns[0].optimizer.param_groups[0]["lr"]
    Stack(network, turns[0].optimizer).train(turns, [rate, 0.5 * rate])
    for i, turn in enumerate(turns):
        weights, remembered = alone_in_double(network, OPTIMIZERS[optimizer], examples[i], seed=i)
        torch.testing.assert_close(turn.weights, weights, rtol=1e-12, atol=1e-12)
        known = turn.optimizer.state_dict()["state"]
        for index, entry in remembered.items():
            for name, value in entry.items():
                if value is not None:  # SGD's buffer without momentum
                    theirs = known[index][name].double()
                    assert (theirs - value.double()).norm() <= 1e-9 * value.double().norm(), (i, index, name)


@pytest.mark.parametrize("optimizer", ["SGD", "momentum"])
def test_a_proximal_term_is_everybodys_own(optimizer: str) -> None:
    """A stack draws somebody back to another's weights, to those of an earlier round, or loses it for some rows."""
    make, inputs = NETWORKS["Perceptron"]
    network, examples = seeded(make), shards(inputs())
    (one, alone), (other, together), (plain, _) = (
        trained(network, OPTIMIZERS[optimizer], examples, stacked=stacked, epochs=3, proximal=proximal)
        for stacked, proximal in ((False, 0.7), (True, 0.7), (True, 0.0))
    )
    torch.testing.assert_close(other.weights, one.weights, rtol=1e-5, atol=1e-5)
    assert together == pytest.approx(alone, rel=1e-4, abs=1e-5)
    assert ((plain.weights - one.weights).norm(dim=1) > 10 * (other.weights - one.weights).norm(dim=1)).all()


@pytest.mark.parametrize("optimizer", ["SGD", "momentum"])
def test_an_anchor_is_everybodys_own(optimizer: str) -> None:
    """A stack draws somebody to another's anchor, or who has none to anything but its own start."""
    make, inputs = NETWORKS["Perceptron"]
    network, examples = seeded(make), shards(inputs())
    start = torch.cat([p.detach().flatten() for p in network.parameters()])
    anchors = {i: start + 0.3 * i for i in examples if i != 3}
    (one, _), (other, _), (plain, _) = (
        trained(network, OPTIMIZERS[optimizer], examples, stacked=stacked, proximal=0.7, anchors=given)
        for stacked, given in ((False, anchors), (True, anchors), (True, None))
    )
    torch.testing.assert_close(other.weights, one.weights, rtol=1e-5, atol=1e-5)
    moved = (plain.weights - other.weights).norm(dim=1)
    assert moved[3] == 0
    assert (moved[[1, 2, 4]] > 0.1).all()


def test_who_else_trains_moves_nothing_but_rounding() -> None:
    """Anybody's result in a stack of all is that in a stack of one."""
    examples = shards(NETWORKS["Perceptron"][1]())
    network = seeded(NETWORKS["Perceptron"][0])
    everybody, _ = trained(network, OPTIMIZERS["Adam"], examples, stacked=True, rounds=1)
    for i in (0, 2, 4):
        one, _ = trained(network, OPTIMIZERS["Adam"], {i: examples[i]}, stacked=True, rounds=1)
        torch.testing.assert_close(everybody.weights[i], one.weights[i], rtol=1e-5, atol=1e-6)


def test_examples_of_any_kind() -> None:
    """Those that do not lie in memory as tensors, and some that do beside some that do not."""
    make, inputs = NETWORKS["Perceptron"]
    in_memory = shards(inputs())
    drawn: dict[int, Examples] = {i: Shuffled(torch.randn(9 + i, 8, 8), torch.arange(9 + i) % 3) for i in range(5)}
    for examples in (drawn, {**drawn, 1: in_memory[1], 3: in_memory[3]}):
        one, other = (trained(seeded(make), sgd, examples, stacked=stacked)[0].weights for stacked in (False, True))
        torch.testing.assert_close(other, one, rtol=1e-5, atol=1e-5)


def test_whoever_diverges_does_so_alone() -> None:
    """It goes back to where the round began, and its optimizer with it; the others train on as if it were not there."""
    examples = shards(NETWORKS["Perceptron"][1]())
    good = examples[1]
    assert isinstance(good, Shard)
    x, y = good.reader.dataset[good.indices]
    bad = Shuffled(torch.full_like(x, torch.nan), y)
    results = []
    for stacked in (False, True):
        cohort, losses = trained(
            seeded(NETWORKS["Perceptron"][0]), OPTIMIZERS["momentum"], {**examples, 1: bad}, stacked=stacked
        )
        results.append(cohort.weights)
        assert losses[1] != losses[1]
        assert not cohort.optimizers[1].state
        assert cohort.take_update(1).isnan().all()
    torch.testing.assert_close(results[1], results[0], rtol=1e-5, atol=1e-5)


def test_frozen_parameters_are_shared_and_stay() -> None:
    """Only what requires a gradient is stacked."""
    network = mlp()
    next(network.parameters()).requires_grad_(False)
    examples: dict[int, Examples] = {i: Shuffled(torch.randn(20, 6), torch.arange(20) % 3) for i in range(5)}
    one, other = (trained(network, sgd, examples, stacked=stacked)[0] for stacked in (False, True))
    torch.testing.assert_close(other.weights, one.weights, rtol=1e-5, atol=1e-5)
    for net in other.networks:
        assert torch.equal(next(net.parameters()), next(network.parameters()))


def test_examples_that_draw_at_random() -> None:
    """Each draws from its participant's streams, Python's and NumPy's too, whoever trains beside it."""
    reader = Reader(Jittered(60), 0)
    examples: dict[int, Examples] = {i: Shard(reader, torch.arange(10 * i, 10 * i + 9), 4) for i in range(5)}
    before = python_numpy_state()
    network = seeded(lambda: Perceptron(2, 8, 2))
    one, other = (trained(network, sgd, examples, stacked=stacked)[0].weights for stacked in (False, True))
    torch.testing.assert_close(other, one, rtol=1e-5, atol=1e-5)
    assert python_numpy_unchanged(before)


@pytest.mark.parametrize("held", [True, False], ids=["in memory", "as they come"])
def test_what_fills_up_is_ones_own(held: bool) -> None:
    """Nobody's example has no gradient, nor one of somebody else: 0 times what is infinite is no number."""
    x, y = torch.randn(sum(SIZES), 6, generator=torch.Generator().manual_seed(1)), torch.arange(sum(SIZES)) % 3
    x[0] = 1.0  # the first participant's
    starts = [sum(SIZES[:i]) for i in range(len(SIZES))]

    def shard(first: int, count: int) -> Examples:
        if held:
            return Shard(Reader(TensorDataset(x, y)), torch.arange(first, first + count), 8)
        return Shuffled(x[first:][:count], y[first:][:count])

    examples = {i: shard(*part) for i, part in enumerate(zip(starts, SIZES, strict=True))}
    network = seeded(lambda: Standardised(6, 3))
    (one, alone), (other, together) = (trained(network, sgd, examples, stacked=stacked) for stacked in (False, True))
    torch.testing.assert_close(other.weights, one.weights, rtol=1e-5, atol=1e-5)
    assert together == pytest.approx(alone, rel=1e-4, nan_ok=True)
    assert [i for i, loss in alone.items() if loss != loss] == [0]


class Keeping(nn.Sequential):
    """Keeps its first layers in evaluation, as a backbone that is not trained."""

    def train(self, mode: bool = True) -> Keeping:
        super().train(mode)
        self[0].eval()
        return self


class Standardised(nn.Linear):
    """Has no finite gradient of an example whose entries are all alike."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward((x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True))


def idle() -> nn.Module:
    """Has a parameter that nothing uses."""
    network = nn.Sequential(nn.Linear(6, 3))
    network.register_parameter("idle", nn.Parameter(torch.ones(2)))
    return network


@pytest.mark.parametrize(
    "network",
    [
        Keeping(nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5)), nn.Linear(8, 3)),
        nn.Sequential(nn.Linear(6, 8), nn.Dropout(1.0), nn.Linear(8, 3)),
        nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.0), nn.Linear(8, 3)),
        idle(),
        nn.Sequential(
            nn.Unflatten(1, (1, 2, 3)), nn.Conv2d(1, 4, 2, padding=1), nn.Dropout(0.5), nn.Flatten(), nn.Linear(48, 3)
        ),
    ],
    ids=["dropout in evaluation", "all dropped", "none dropped", "idle parameter", "dropout of maps"],
)
def test_rare_networks(network: nn.Module) -> None:
    """Dropout that is switched off drops all the same, or one of everything gives NaN."""
    examples = shards(torch.randn(sum(SIZES), 6, generator=torch.Generator().manual_seed(1)))
    one, other = (trained(network, sgd, examples, stacked=stacked)[0] for stacked in (False, True))
    assert refusal(network, sgd(network.parameters()), torch.randn(4, 6)) is None
    torch.testing.assert_close(other.weights, one.weights, rtol=1e-5, atol=1e-5)


def test_dropout_of_maps_of_images() -> None:
    """They lie with channels last one after another, and are drawn in that order; a stack's masks would be others."""
    network = seeded(
        lambda: nn.Sequential(nn.Conv2d(1, 4, 3), nn.AvgPool2d(6), nn.Dropout(0.5), nn.Flatten(), nn.Linear(100, 3))
    )
    for channels_last in (True, False):
        cohorts = [
            Cohort(network, range(len(SIZES)), sgd, CPU, stacked=stacked, channels_last=channels_last)
            for stacked in (False, True)
        ]
        for cohort in cohorts:
            cohort.train_all(shards(images(1)), Schedule(epochs=2), 0, {i: i for i in range(len(SIZES))})
        torch.testing.assert_close(cohorts[1].weights, cohorts[0].weights, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_a_run_with_either_engine(rffl: Run, tmp_path: Path) -> None:
    """The same models to rounding, with an adversary whose examples are made up; a run goes on with the other one.

    What rounding decides differs on some processors, and is kept out: where a gradient is next to nothing, Adam steps
    by its sign unless epsilon is larger, and RFFL sends one entry or the next of nearly the same size.
    """
    args = (
        *DIGITS, "--server", "FedAvg", "--model.optimizer", "Adam", "--model.optimizer.lr", 0.003,
        "--model.optimizer.eps", 1e-3, "--config", "configs/adversaries/label_flip.yaml", "--trainer.max_epochs", 3,
    )  # fmt: skip
    for name in ("loop", "stacked"):
        assert rffl(*args, "--model.engine", name, "--run.root", tmp_path / name).code == 0
    one, other = (only_run(tmp_path / name) for name in ("loop", "stacked"))
    for name, state in weights(one).items():
        torch.testing.assert_close(weights(other)[name], state, rtol=1e-5, atol=1e-5)
    # Under RFFL an entry or the next: at most four of a tensor may be others, the reputations are the same.
    for name in ("loop", "stacked"):
        own = ("--server", "RFFL", "--model.engine", name, "--run.name", "own", "--run.root", tmp_path / name)
        assert rffl(*args, *own).code == 0
    first, second = (only_run(tmp_path / name, "own") for name in ("loop", "stacked"))
    for name, state in weights(first).items():
        for key, tensor in state.items():
            close = torch.isclose(weights(second)[name][key], tensor, rtol=1e-5, atol=1e-5)
            assert int((~close).sum()) <= 4, (name, key)
    last, again = (RunFolder(run).rounds()[-1].measures["reputation"] for run in (first, second))
    assert again == pytest.approx(last, abs=1e-5)
    on = ("--ckpt_path", other / "checkpoints" / "last.ckpt", "--trainer.max_epochs", 4, "--run.root", tmp_path / "on")
    ended = rffl(*args[:-2], *on)
    assert ended.code == 0, ended.err
    assert kept_in(only_run(tmp_path / "on") / "checkpoints" / "last.ckpt")["federation"]["round"] == 4


@pytest.mark.parametrize("name", NETWORKS)
def test_every_layer_of_a_stack_is_in_the_precision_of_autocast(name: str) -> None:
    """What `vmap` makes of convolutions and of products with a bias is not what autocast knows: all was float32."""
    make, inputs = NETWORKS[name]
    network, noted = seeded(make), []
    for module in network.modules():
        if isinstance(module, nn.Linear | nn.Conv1d | nn.Conv2d):
            module.register_forward_hook(lambda layer, given, found: noted.append((type(layer), found.dtype)))
    with torch.autocast("cpu", torch.bfloat16):
        cohort, losses = trained(network, OPTIMIZERS["SGD"], shards(inputs()), stacked=True, rounds=1, epochs=1)
    assert {dtype for _, dtype in noted} == {torch.bfloat16}
    assert cohort.weights.dtype == torch.float32
    assert all(0 < loss < 3 for loss in losses.values())


class Careful(nn.Linear):
    """Computes in single precision whatever surrounds it."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            return super().forward(x.float())


class Attentive(nn.Module):
    """Attends to six tokens of one number."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(1, 1, batch_first=True)
        self.linear = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.unsqueeze(2)
        logits: Tensor = self.linear(self.attention(tokens, tokens, tokens, need_weights=False)[0].flatten(1))
        return logits


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Sequential(Careful(6, 8), nn.ReLU(), nn.Linear(8, 3)),
        lambda: nn.Sequential(nn.Linear(6, 8), nn.PReLU(), Careful(8, 3)),
        lambda: nn.Sequential(nn.Unflatten(1, (1, 6)), nn.Conv1d(1, 4, 3), nn.PReLU(), nn.Flatten(), nn.Linear(16, 3)),
        Attentive,
    ],
)
def test_layers_under_autocast(make: Callable[[], nn.Module]) -> None:
    """In a stack each is in the precision that it has one after another, or meets weights that it does not take."""
    noted: dict[bool, list[torch.dtype]] = {False: [], True: []}
    weights = {}
    examples: dict[int, Examples] = {i: Shuffled(torch.randn(20, 6), torch.arange(20) % 3) for i in range(5)}
    for stacked, seen in noted.items():
        network = seeded(make)
        for module in network.children():
            module.register_forward_hook(
                lambda layer, given, found, seen=seen: seen.append(
                    (found if isinstance(found, Tensor) else found[0]).dtype
                )
            )
        with torch.autocast("cpu", torch.bfloat16):
            assert refusal(network, sgd(network.parameters()), torch.randn(4, 6)) is None
            seen.clear()
            weights[stacked] = trained(network, sgd, examples, stacked=stacked, rounds=1, epochs=1)[0].weights
    layers = len(list(network.children()))
    assert len(noted[False]) >= layers > 0
    assert noted[True][:layers] == noted[False][:layers]
    torch.testing.assert_close(weights[True], weights[False], rtol=0.05, atol=0.01)


def test_a_card_without_room_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """It trains as many at once as it has room for, and says so once; one that has room for none says so too."""
    examples = shards(NETWORKS["Perceptron"][1]())
    whole, room, tried = Stack.trained, [2], []

    def short(self: Stack, turns: Any, rates: Any) -> Any:
        tried.append(len(turns))
        if len(turns) > room[0]:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.")
        return whole(self, turns, rates)

    network = seeded(NETWORKS["Perceptron"][0])
    one, alone = trained(network, OPTIMIZERS["Adam"], examples, stacked=False)
    monkeypatch.setattr(Stack, "trained", short)
    with pytest.warns(UserWarning, match="room for more than 2 participants at once") as told:
        other, together = trained(network, OPTIMIZERS["Adam"], examples, stacked=True)
    assert (len(told), tried) == (1, [5, 2, 2, 1, 2, 2])
    torch.testing.assert_close(other.weights, one.weights, rtol=1e-5, atol=1e-5)
    assert together == pytest.approx(alone, rel=1e-4, abs=1e-5)
    room[0] = 0
    with pytest.warns(match="more than 1 participants at once"), pytest.raises(torch.cuda.OutOfMemoryError):
        trained(network, OPTIMIZERS["Adam"], examples, stacked=True)


def test_a_card_without_room_for_all_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    """They come a batch at a time then, which costs no participant its place in the stack."""
    examples, tried = shards(NETWORKS["Perceptron"][1]()), []

    def full(self: Held, tensors: tuple[Tensor, ...], prepare: Any) -> Any:
        tried.append(tensors)
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.")

    network = seeded(NETWORKS["Perceptron"][0])
    one, alone = trained(network, OPTIMIZERS["Adam"], examples, stacked=True)
    monkeypatch.setattr(Held, "first", full)
    other, together = trained(network, OPTIMIZERS["Adam"], examples, stacked=True)
    assert len(tried) == len({*map(id, tried)}) > 0
    assert torch.equal(other.weights, one.weights)
    assert together == alone


class Noting(Perceptron):
    """Notes in which precision it computes, in training and in evaluation."""

    noted: ClassVar[Counter[tuple[bool, torch.dtype]]] = Counter()

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = super().forward(x)  # type: ignore[no-untyped-call]
        self.noted[self.training, logits.dtype] += 1
        return logits


def test_in_bfloat16(rffl: Run, tmp_path: Path) -> None:
    """Mixed precision computes in it what is trained and what is measured, of a stack near what one by one gives."""
    for name in ("loop", "stacked"):
        Noting.noted.clear()
        args = ("--trainer.max_epochs", 2, "--trainer.precision", "bf16-mixed", "--model.engine", name)
        network = ("--model.network", "tests.training.test_stack.Noting")
        assert rffl(*DIGITS, *args, *network, "--run.root", tmp_path / name).code == 0
        # A step, its gradients twice, an export and a batch of each kind are tried before, in single precision.
        for training in (True, False):
            assert Noting.noted[training, torch.float32] <= 7 < Noting.noted[training, torch.bfloat16]
    one, other = (weights(only_run(tmp_path / name)) for name in ("loop", "stacked"))
    for name, state in one.items():
        torch.testing.assert_close(other[name], state, rtol=0.05, atol=0.01)
