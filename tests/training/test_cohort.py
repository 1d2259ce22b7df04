"""Local training of hosted participants against what a newcomer would write in plain PyTorch."""

from __future__ import annotations

import copy
import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

from rffl_pl.adversaries.cast import Poisoned
from rffl_pl.datamodules.reading import Reader
from rffl_pl.datamodules.rounds import Shard
from rffl_pl.errors import UserError
from rffl_pl.federation import Federation
from rffl_pl.functional.streams import random_stream
from rffl_pl.models import MNISTCNN, Perceptron
from rffl_pl.training.cohort import Cohort
from rffl_pl.training.parameters import flat_parameters, layer_sizes
from rffl_pl.training.schedule import Examples, Schedule
from tests.cohorts import (
    CPU,
    FEDERATION,
    Shuffled,
    adam,
    batchnorm,
    dropout,
    examples,
    losses_of,
    mlp,
    momentum,
    seeded,
    sgd,
    train_round,
    trained,
)


def newcomer(
    network: nn.Module, participant: int, optimizer: Any, schedule: Schedule, rounds: int
) -> tuple[Tensor, float]:
    """The weights and the last epoch's mean loss of a plain training loop on one participant's examples."""
    network = copy.deepcopy(network).train()
    stepper = optimizer(network.parameters())
    rate, epochs_done, total, seen = stepper.param_groups[0]["lr"], 0, 0.0, 0
    for round_index in range(rounds):
        start = [p.detach().clone() for p in network.parameters()]
        torch.manual_seed(FEDERATION.seed_for("training", participant, round_index))
        for _ in range(schedule.epochs):
            exponent = epochs_done if schedule.decay_every == "epoch" else round_index
            stepper.param_groups[0]["lr"] = rate * schedule.decay**exponent
            total, seen = 0.0, 0
            for x, y in examples(participant).epoch():
                stepper.zero_grad()
                loss = cross_entropy(network(x), y)
                away = sum(((p - before) ** 2).sum() for p, before in zip(network.parameters(), start, strict=True))
                (loss + schedule.proximal / 2 * away).backward()
                stepper.step()
                total, seen = total + loss.item() * len(y), seen + len(y)
            epochs_done += 1
    return flat_parameters(network), total / seen


def test_a_batch_that_is_left_out_leaves_nothing() -> None:
    """Layers before the one that has no variance of it, and that one, have taken it in already."""
    cohort = Cohort(batchnorm(), [0], sgd, CPU)
    cohort.train(0, examples(0, n=17), Schedule(epochs=2), 0, seed=1)  # of 8, 8 and 1
    layers = [layer for layer in cohort.networks[0].modules() if isinstance(layer, nn.BatchNorm1d)]
    assert [int(layer.num_batches_tracked or 0) for layer in layers] == [4] * len(layers)
    assert layers


@pytest.mark.parametrize("network", [mlp, dropout, batchnorm])
@pytest.mark.parametrize("optimizer", [sgd, momentum, adam])
@pytest.mark.parametrize(("decay_every", "proximal"), [("epoch", 0.0), ("round", 0.0), ("epoch", 0.3)])
def test_training_is_what_a_newcomer_would_write(
    network: Any, optimizer: Any, decay_every: Any, proximal: float
) -> None:
    """Three rounds of two epochs give the weights and the loss of a plain loop on the same batches."""
    schedule = Schedule(epochs=2, decay=0.7, decay_every=decay_every, proximal=proximal)
    cohort = Cohort(network(), [1, 4], optimizer, CPU)
    for round_index in range(3):
        losses = train_round(cohort, {1: examples(1), 4: examples(4)}, schedule, FEDERATION, round_index)
    for index, participant in enumerate([1, 4]):
        weights, loss = newcomer(network(), participant, optimizer, schedule, rounds=3)
        assert torch.allclose(cohort.weights[index], weights, atol=1e-6)
        assert losses[participant] == pytest.approx(loss, abs=1e-6)
        assert not torch.allclose(weights, flat_parameters(network()), atol=1e-2)


@pytest.mark.parametrize("network", [mlp, dropout, batchnorm])
@pytest.mark.parametrize("hosted", [[2], [2, 3], [0, 2, 4], [4, 3, 2, 1, 0]])
def test_company_does_not_matter(network: Any, hosted: list[int]) -> None:
    """A participant's weights are bit by bit the same whoever else is hosted, in whatever order."""
    alone, together = trained(network(), [2], optimizer=momentum), trained(network(), hosted, optimizer=momentum)
    assert torch.equal(together.weights[hosted.index(2)], alone.weights[0])


def test_company_does_not_matter_to_convolutions() -> None:
    """The paper's network, whose D is no multiple of an aligned row, trains to the same bits in every row."""
    generator = torch.Generator().manual_seed(0)
    shard = Shuffled(torch.randn(12, 1, 32, 32, generator=generator), torch.arange(12) % 10, batch_size=5)
    network, weights = seeded(MNISTCNN), []
    for hosted in ([2], [0, 1, 2], [3, 2]):
        cohort = Cohort(network, hosted, sgd, CPU)
        train_round(cohort, {2: shard}, Schedule(epochs=1), FEDERATION, 0)
        weights.append(cohort.weights[hosted.index(2)])
    assert torch.equal(weights[0], weights[1])
    assert torch.equal(weights[0], weights[2])


@pytest.mark.parametrize("inputs", [1, 5, 6, 13])
def test_every_row_is_aligned_alike(inputs: int) -> None:
    """Rows start at multiples of 64 bytes, so that sums run in the same order whichever row a participant has."""
    cohort = Cohort(nn.Linear(inputs, 3), range(5), sgd, CPU)
    assert cohort.weights.shape == (5, 3 * inputs + 3)
    assert [row.data_ptr() % 64 for row in cohort.weights] == [0] * 5


def test_company_does_not_matter_to_real_shards() -> None:
    """The same with the shards of the data modules, whose loaders draw from the random stream themselves."""
    x = torch.randn(90, 6, generator=torch.Generator().manual_seed(0))
    dataset = torch.utils.data.TensorDataset(x, (x[:, 0] > 0).long())
    shards = {i: Shard(Reader(dataset), torch.arange(30 * i, 30 * i + 30), 8) for i in range(3)}
    weights = []
    for hosted in ([1], [0, 1, 2]):
        cohort = Cohort(dropout(), hosted, sgd, CPU)
        train_round(cohort, {i: shards[i] for i in hosted}, Schedule(), FEDERATION, 0)
        weights.append(cohort.weights[hosted.index(1)])
    assert torch.equal(*weights)


def test_training_leaves_the_surrounding_stream_alone() -> None:
    """Whatever is drawn after a round is the same as without it, and what was drawn before has no influence."""
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    cohort = Cohort(dropout(), [0], sgd, CPU)
    torch.manual_seed(1)
    train_round(cohort, {0: examples(0)}, Schedule(), FEDERATION, 0)
    assert torch.equal(torch.rand(3), expected)
    with random_stream(9, CPU):
        inside = torch.rand(1)
    torch.rand(7)
    with random_stream(9, CPU):
        assert torch.equal(torch.rand(1), inside)


class Gambling(nn.Sequential):
    """A network whose layers are left out by Python's dice, and whose inputs have NumPy's noise."""

    def forward(self, x: Tensor) -> Tensor:
        x = x + torch.tensor(np.random.normal(size=x.shape), dtype=x.dtype)
        for layer in self[:-1]:
            x = x + layer(x) if random.random() < 0.5 else x
        logits: Tensor = self[-1](x)
        return logits


def test_pythons_and_numpys_streams_are_a_participants_own() -> None:
    """Neither the company, nor what was drawn before, nor a fresh start after a round changes a weight."""
    network = seeded(lambda: Gambling(nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)))
    whole = trained(network, [1, 2])
    others = trained(network, [3, 2, 1])
    assert torch.equal(whole.weights, others.weights[[2, 1]])
    half, resumed = trained(network, [2], rounds=1), Cohort(network, [2], sgd, CPU)
    resumed.load_state_dict(0, half.state_dict(0))
    random.seed(8)
    np.random.seed(8)
    train_round(resumed, {2: examples(2)}, Schedule(), FEDERATION, 1)
    drawn = random.random(), np.random.rand()
    assert torch.equal(resumed.weights[0], whole.weights[1])
    random.seed(8)
    np.random.seed(8)
    assert (random.random(), np.random.rand()) == drawn


def test_rounds_have_streams_of_their_own() -> None:
    """Dropout and order differ from round to round and from participant to participant."""
    results = []
    for participant, round_index in [(0, 0), (0, 1), (1, 0)]:
        cohort = Cohort(dropout(), [participant], sgd, CPU)
        same = Schedule(decay=1.0)
        train_round(cohort, {participant: examples(0)}, same, FEDERATION, round_index)
        results.append(cohort.weights[0])
    assert not torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])


def test_only_those_with_examples_train() -> None:
    """Whoever has no examples this round stays as it is and reports no loss."""
    cohort = Cohort(mlp(), [0, 1, 2], sgd, CPU)
    losses = train_round(cohort, {0: examples(0), 2: examples(2)}, Schedule(), FEDERATION, 0)
    assert list(losses) == [0, 2]
    assert torch.equal(cohort.weights[1], flat_parameters(mlp()))
    assert [bool(cohort.take_update(index).any()) for index in (0, 2)] == [True, True]
    assert not cohort.zero_update(1).any()


def test_networks_are_views_of_the_weights() -> None:
    """Changing a row changes what that network computes, and no other; and the network it began from not at all."""
    network = mlp()
    cohort, x = Cohort(network, [0, 1], sgd, CPU), torch.randn(4, 6)
    before = cohort.logits(x, 0)
    assert torch.equal(before, network(x))
    cohort.weights[0] = 0
    assert torch.equal(cohort.logits(x, 0), torch.zeros(4, 3))
    assert torch.equal(cohort.logits(x, 1), before)
    assert torch.equal(network(x), before)
    with torch.no_grad():
        next(cohort.networks[1].parameters()).fill_(2)
    assert bool((cohort.weights[1, : 6 * 16] == 2).all())


def test_rows_are_in_the_order_of_the_parameters() -> None:
    """A row is `module.parameters()` flattened one after another."""
    network = mlp()
    assert layer_sizes(network) == [96, 16, 48, 3]
    assert torch.equal(flat_parameters(network), nn.utils.parameters_to_vector(network.parameters()))
    assert torch.equal(Cohort(network, [0], sgd, CPU).weights[0], flat_parameters(network))


def test_an_update_is_after_less_before() -> None:
    """It is what this round changed, not what all rounds did; the weights go back to before, nobody else's move."""
    cohort = trained(mlp(), [0, 1], rounds=1)
    before = cohort.weights.clone()
    train_round(cohort, {0: examples(0)}, Schedule(), FEDERATION, 1)
    after = cohort.weights.clone()
    update = cohort.take_update(0)
    assert torch.equal(update, after[0] - before[0])
    assert update.data_ptr() == cohort.updates[0].data_ptr()
    assert torch.equal(cohort.weights, before)


def test_integrate_adds_own_and_download_to_before() -> None:
    """before + own + download, in this order; of a step that is not finite, nothing."""
    cohort = Cohort(nn.Linear(1, 1), [3, 5], sgd, CPU)
    cohort.weights.copy_(torch.tensor([[1.0, 2.0], [5.0, 6.0]]))
    cohort.integrate(0, torch.tensor([0.5, -0.5]))
    cohort.integrate(0, torch.tensor([10.0, 0.0]))
    cohort.integrate(1, torch.tensor([torch.nan, 1.0]))
    cohort.integrate(1, torch.tensor([0.0, 20.0]))
    assert cohort.weights.tolist() == [[11.5, 1.5], [5.0, 26.0]]
    assert cohort.logits(torch.tensor([[1.0]]), 0).item() == 13


def test_gradients_do_not_outlive_training() -> None:
    """Those of all hosted participants would be another matrix of their models' size."""
    cohort = trained(mlp(), [0, 1])
    assert all(p.grad is None for network in cohort.networks for p in network.parameters())


def adapter() -> nn.Module:
    """A frozen layer, under one that trains."""
    body = nn.Linear(6, 16).requires_grad_(False)
    return seeded(lambda: nn.Sequential(body, nn.Tanh(), nn.Linear(16, 3)))


def test_frozen_parameters_neither_train_nor_travel() -> None:
    """D counts what trains; the frozen part is one memory for all, stays as it is, and is exported whole."""
    network = adapter()
    frozen = network.get_parameter("0.weight").clone()
    cohort = trained(network, [0, 1], optimizer=adam)
    assert cohort.weights.shape == (2, 16 * 3 + 3)
    assert len({net.get_parameter("0.weight").data_ptr() for net in cohort.networks}) == 1
    assert torch.equal(cohort.networks[1].get_parameter("0.weight"), frozen)
    assert cohort.take_update(0).any()
    assert cohort.network_state(0).keys() == network.state_dict().keys()
    state = cohort.state_dict(1)
    assert list(state["network"]) == ["2.weight", "2.bias"]
    resumed = Cohort(adapter(), [1], adam, CPU)
    resumed.load_state_dict(0, state)
    assert torch.equal(resumed.weights[0], cohort.weights[1])


def test_a_single_last_example_under_batch_normalisation() -> None:
    """It has no variance: it is left out, and the epoch is that of the others; with nobody left that is said."""
    cohort, x = Cohort(batchnorm(), [0], sgd, CPU), torch.randn(9, 6)
    y = (x[:, 0] > 0).long()
    loss = cohort.train(0, Shuffled(x, y, batch_size=8), Schedule(epochs=1), 0, seed=1)
    assert 0 < loss < 10
    assert cohort.take_update(0).any()
    for few in (Shuffled(x, y, batch_size=1), Shuffled(x[:1], y[:1])):
        with pytest.raises(
            UserError, match=r"participant 0 has none; give it a second example and --data\.batch_size of"
        ):
            cohort.train(0, few, Schedule(epochs=1), 0, seed=1)


def test_identical_models_are_found() -> None:
    """Every participant is told the first with its model; weights and buffers both count."""
    cohort = Cohort(batchnorm(), [0, 1, 2, 3, 4], sgd, CPU)
    assert cohort.distinct() == [0, 0, 0, 0, 0]
    cohort.weights[1] += 1
    cohort.weights[3] += 1
    assert cohort.distinct() == [0, 1, 0, 1, 0]
    next(cohort.networks[2].buffers()).add_(1)
    assert cohort.distinct() == [0, 1, 2, 1, 0]
    cohort.networks[4].get_buffer("1.num_batches_tracked").add_(1)  # by which nothing is measured
    assert cohort.distinct() == [0, 1, 2, 1, 0]


@pytest.mark.parametrize(
    "buffer",
    [
        torch.polar(torch.ones(4), torch.arange(4.0)),
        torch.full((2, 2), -torch.inf, dtype=torch.float64),
        torch.full((2,), torch.nan, dtype=torch.bfloat16),
        torch.ones(3, 2, dtype=torch.bool).t(),
        torch.empty(0),
    ],
    ids=["complex", "infinite", "NaN", "transposed", "empty"],
)
def test_buffers_of_any_type_are_compared(buffer: Tensor) -> None:
    """Rotary embeddings are complex, and attention masks infinite; what is NaN is equal to nothing."""
    network = mlp()
    network.register_buffer("constant", buffer)
    cohort = Cohort(network, [0, 1, 2], sgd, CPU)
    cohort.weights[2] += 1
    assert cohort.distinct() == ([0, 1, 2] if buffer.is_floating_point() and buffer.isnan().any() else [0, 0, 2])


@pytest.mark.parametrize("network", [dropout, batchnorm])
def test_evaluation_between_rounds_changes_nothing(network: Any) -> None:
    """Training after an evaluation uses dropout and batch statistics again."""
    cohort = trained(network(), [0], rounds=1)
    cohort.logits(torch.randn(5, 6), 0)
    train_round(cohort, {0: examples(0)}, Schedule(), FEDERATION, 1)
    assert torch.equal(cohort.weights, trained(network(), [0], rounds=2).weights)


def test_evaluation_uses_no_dropout() -> None:
    """Logits are the same twice, and those of the network in evaluation mode."""
    cohort, x = Cohort(dropout(), [0], sgd, CPU), torch.randn(5, 6)
    assert torch.equal(cohort.logits(x, 0), cohort.logits(x, 0))
    assert torch.equal(cohort.logits(x, 0), dropout().eval()(x))


def test_a_shard_under_other_labels() -> None:
    """Training on a shard whose labels are mapped to themselves is training on the shard, bit by bit."""
    x = torch.randn(50, 6, generator=torch.Generator().manual_seed(0))
    shard = Shard(Reader(TensorDataset(x, (x[:, 0] > 0).long())), torch.arange(5, 45), 8)
    cohorts = [Cohort(dropout(), [1], sgd, CPU) for _ in range(3)]
    taken: list[Examples] = [shard, Poisoned(shard, lambda x, y: (x, y)), Poisoned(shard, lambda x, y: (x, 1 - y))]
    for cohort, shards in zip(cohorts, taken, strict=True):
        for round_index in range(2):
            train_round(cohort, {1: shards}, Schedule(), FEDERATION, round_index)
    assert torch.equal(cohorts[0].weights, cohorts[1].weights)
    assert not torch.equal(cohorts[0].weights, cohorts[2].weights)
    losses = [losses_of(cohorts[0], {1: shards}) for shards in taken]
    assert losses[0] == losses[1] < losses[2]


def test_images_are_placed_with_channels_last() -> None:
    """The values stay; the strides are those of channels last even with one channel; other inputs are untouched."""
    cohort = Cohort(mlp(), [0], sgd, CPU)
    images = torch.randn(2, 1, 4, 5)
    placed = cohort.placed(images)
    assert torch.equal(placed, images)
    assert placed.stride() == (20, 1, 5, 1)
    assert cohort.placed(images.flatten(1)).stride() == (20, 1)


@pytest.mark.parametrize("network", [nn.ReLU(), nn.Linear(2, 2).double(), nn.Linear(2, 2).bfloat16()])
def test_network_that_cannot_be_hosted(network: nn.Module) -> None:
    """No parameters, or some that are not float32: the message names the option."""
    with pytest.raises(UserError, match=r"--model\.network"):
        Cohort(network, [0], sgd, CPU)


def test_optimizer_that_refuses_its_arguments() -> None:
    """What the optimizer objects to is told as a mistake in its option."""
    with pytest.raises(UserError, match=r"--model\.optimizer .*learning rate"):
        Cohort(mlp(), [0], lambda parameters: torch.optim.SGD(parameters, lr=-1.0), CPU)


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        ({"epochs": 0}, "--model.local_epochs"),
        ({"decay": 0.0}, "--model.lr_decay"),
        ({"decay": -1.0}, "lr_decay"),
        ({"proximal": -0.1}, "--model.proximal"),
        ({"proximal": float("nan")}, "--model.proximal"),
        ({"proximal": float("inf")}, "--model.proximal"),
    ],
)
def test_impossible_schedule(arguments: dict[str, Any], option: str) -> None:
    """The message names the option."""
    with pytest.raises(UserError, match=option):
        Schedule(**arguments)


def test_the_proximal_term_leaves_frozen_and_unused_parameters_alone() -> None:
    """A parameter without a gradient is a traceback, or moves."""
    network = adapter()
    network.register_parameter("unused", nn.Parameter(torch.ones(3)))
    cohort = trained(network, [0, 1], schedule=Schedule(epochs=2, proximal=0.5))
    for net in cohort.networks:
        assert torch.equal(net.get_parameter("unused"), torch.ones(3))
    plain = trained(network, [0, 1], schedule=Schedule(epochs=2))
    assert not torch.equal(cohort.weights, plain.weights)


def test_a_strong_proximal_term_keeps_everybody_near() -> None:
    """The further one goes, the stronger one is drawn back."""
    start = flat_parameters(mlp())
    moved = [
        float((trained(mlp(), [0], rounds=1, schedule=Schedule(proximal=mu)).weights[0] - start).norm())
        for mu in (0.0, 0.1, 1.0, 3.0)
    ]
    assert moved == sorted(moved, reverse=True)
    assert moved[-1] < 0.5 * moved[0]


def test_decay_of_the_learning_rate() -> None:
    """Per epoch it counts local epochs of all rounds, per round only rounds."""
    per_epoch = Schedule(epochs=3, decay=0.5, decay_every="epoch")
    per_round = Schedule(epochs=3, decay=0.5, decay_every="round")
    assert [per_epoch.rate(r, e) for r in (0, 1) for e in range(3)] == [1, 0.5, 0.25, 0.125, 0.0625, 0.03125]
    assert [per_round.rate(r, e) for r in (0, 1) for e in range(3)] == [1, 1, 1, 0.5, 0.5, 0.5]


def test_lower_precision_sees_every_step() -> None:
    """Autocast keeps cast weights; each optimizer step makes them stale, and the loss would stop falling."""
    torch.manual_seed(0)
    x = torch.randn(64, 1, 8, 8)
    data = TensorDataset(x, (x.flatten(1)[:, 0] > 0).long())
    cohort = Cohort(Perceptron(64, 16, 2), [0], lambda p: torch.optim.SGD(p, lr=0.5), CPU)
    shard, federation = Shard(Reader(data), torch.arange(64), 16), Federation(participants=1)
    with torch.autocast("cpu", torch.bfloat16, cache_enabled=True):
        losses = [train_round(cohort, {0: shard}, Schedule(), federation, r)[0] for r in range(5)]
    assert losses[-1] < 0.5 * losses[0]
