"""What is kept of participants: whoever is restored goes on bit by bit, and saved states are copies."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest
import torch
from torch import nn

from rffl_pl.models import Perceptron
from rffl_pl.training.cohort import Cohort
from rffl_pl.training.parameters import flat_parameters
from rffl_pl.training.schedule import Schedule
from tests.cohorts import CPU, FEDERATION, adam, batchnorm, examples, mlp, momentum, sgd, train_round, trained


@pytest.mark.parametrize("optimizer", [sgd, momentum, adam])
def test_a_restored_participant_goes_on_bit_by_bit(optimizer: Any) -> None:
    """Weights, buffers and optimizer state suffice to continue as if nothing had happened, in another row too."""
    uninterrupted = trained(batchnorm(), [0, 2], rounds=2, optimizer=optimizer)
    state = copy.deepcopy(trained(batchnorm(), [0, 2], rounds=1, optimizer=optimizer).state_dict(1))
    resumed = Cohort(batchnorm(), [2, 4], optimizer, CPU)
    resumed.load_state_dict(0, state)
    train_round(resumed, {2: examples(2)}, Schedule(), FEDERATION, 1)
    assert torch.equal(resumed.weights[0], uninterrupted.weights[1])
    for mine, theirs in zip(resumed.networks[0].buffers(), uninterrupted.networks[1].buffers(), strict=True):
        assert torch.equal(mine, theirs)


def test_network_state_owns_its_memory() -> None:
    """A saved state does not follow the participant's training, and a plain network takes it."""
    cohort = Cohort(mlp(), [0], sgd, CPU)
    state = cohort.network_state(0)
    cohort.weights.zero_()
    plain = Perceptron(6, 16, 3)
    plain.load_state_dict(state)
    assert torch.equal(flat_parameters(plain), flat_parameters(mlp()))


def test_memories_survive_a_checkpoint() -> None:
    """What a participant keeps comes back, bit by bit and of its type, in another row, through a file."""
    cohort = Cohort(mlp(), [0, 2], sgd, CPU)
    assert cohort.memories == [{}, {}]
    kept = {"momentum": torch.randn(163), "rounds": torch.tensor(7), "seen": torch.tensor([True, False])}
    cohort.memories[1].update(kept)
    file = io.BytesIO()
    torch.save([cohort.state_dict(index) for index in range(2)], file)
    cohort.memories[1]["momentum"].zero_()
    file.seek(0)
    states = torch.load(file, weights_only=True)
    resumed = Cohort(mlp(), [2, 0], sgd, CPU)
    resumed.memories[1]["stale"] = torch.ones(3)
    for index, state in enumerate(reversed(states)):
        resumed.load_state_dict(index, state)
    assert resumed.memories[1] == {}
    assert resumed.memories[0].keys() == kept.keys()
    assert resumed.memories[0]["momentum"].any()
    for name in ("rounds", "seen"):
        assert torch.equal(resumed.memories[0][name], kept[name])
        assert resumed.memories[0][name].dtype == kept[name].dtype


def test_a_saved_memory_is_a_copy() -> None:
    """A state that was taken does not follow the participant, nor the participant the state it was given."""
    cohort, resumed = (Cohort(mlp(), [0], sgd, CPU) for _ in range(2))
    cohort.memories[0]["momentum"] = torch.ones(4)
    state = cohort.state_dict(0)
    cohort.memories[0]["momentum"].zero_()
    assert state["memory"]["momentum"].tolist() == [1.0] * 4
    resumed.load_state_dict(0, state)
    resumed.memories[0]["another"] = torch.zeros(1)
    assert list(state["memory"]) == ["momentum"]


class LowMomentum(torch.optim.Optimizer):
    """Keeps its momentum in bfloat16, and which entries have moved."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.3})

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for p in group["params"]:
                kept = self.state[p]
                momentum = kept.setdefault("momentum", torch.zeros_like(p, dtype=torch.bfloat16))
                moved = kept.setdefault("moved", torch.zeros_like(p, dtype=torch.bool))
                p.sub_(momentum.mul_(0.9).add_(p.grad), alpha=group["lr"])
                moved |= p.grad != 0


def test_an_optimizer_that_keeps_other_types() -> None:
    """Restored in the parameters' type, it goes on otherwise, or not at all."""
    uninterrupted = trained(mlp(), [0], rounds=2, optimizer=LowMomentum)
    resumed = Cohort(mlp(), [0], LowMomentum, CPU)
    resumed.load_state_dict(0, copy.deepcopy(trained(mlp(), [0], rounds=1, optimizer=LowMomentum).state_dict(0)))
    train_round(resumed, {0: examples(0)}, Schedule(), FEDERATION, 1)
    assert torch.equal(resumed.weights, uninterrupted.weights)


def test_frozen_parameters_that_layers_share() -> None:
    """Every participant's part of every checkpoint has them by their second name."""
    network = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3))
    network[1].weight = network[0].weight
    for layer in network[:2]:
        layer.requires_grad_(False)
    assert list(Cohort(network, [0], sgd, CPU).state_dict(0)["network"]) == ["2.weight", "2.bias"]


def some(parameters: Any) -> torch.optim.Optimizer:
    """Steps the last two parameters."""
    return torch.optim.SGD([*parameters][-2:], lr=0.1)


def test_gradients_that_no_optimizer_takes() -> None:
    """They add up over steps and rounds, and take as much memory as the weights of all participants."""
    cohort = trained(mlp(), [0], optimizer=some)
    assert all(parameter.grad is None for parameter in cohort.networks[0].parameters())
