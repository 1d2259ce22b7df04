"""FLTrust: its step beside the paper's formula in plain Python, and what the server learns from its root examples."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from rffl_pl.adversaries import FreeRider, LabelFlip
from rffl_pl.errors import UserError
from rffl_pl.servers import Evidence, FLTrust, Verdict
from tests.functional.reference import close, uploads
from tests.runs import Recorded, federate, training_examples
from tests.servers.tasks import Compass, assert_refused, downloads, shards, task


class RecordedFLTrust(Recorded, FLTrust):
    """Trusts, and keeps whom."""

    def rule(self, evidence: Evidence) -> Verdict:
        verdict = super().rule(evidence)
        self.measured = verdict.measures
        return verdict


class Still(Compass):
    """Learns always the same."""

    def __init__(self, update: Tensor) -> None:
        super().__init__(len(update))
        self.direction = update


def reference(rows: list[list[float]], own: list[float]) -> tuple[list[float], list[float]]:
    """Trust scores and the step of Cao et al., Algorithm 2, in float64 loops."""

    def length(v: list[float]) -> float:
        return math.sqrt(math.fsum(x * x for x in v))

    trust = [
        max(0.0, math.fsum(x * y for x, y in zip(row, own, strict=True)) / (length(row) * length(own))) for row in rows
    ]
    total = math.fsum(trust)
    if total == 0:
        return trust, [0.0] * len(own)
    scaled = [[x * length(own) / length(row) for x in row] for row in rows]
    return trust, [math.fsum(t * row[k] for t, row in zip(trust, scaled, strict=True)) / total for k in range(len(own))]


def one_round(rows: Tensor, own: Tensor) -> Any:
    server = FLTrust()
    server.start(task(shards(len(rows)), [rows.shape[1]], root=Still(own)))
    return server.step(rows, range(len(rows)))


@pytest.mark.parametrize("scale", [1.0, 1e-6, 1e12])
@pytest.mark.parametrize(("m", "entries"), [(1, 5), (3, 7), (8, 53), (12, 300)])
def test_the_papers_step(m: int, entries: int, scale: float) -> None:
    """Trust, weights or the step are not the paper's, or a loud upload counts for more than the server's own length."""
    for seed in range(4):
        rows, own = uploads(m, entries, seed), uploads(1, entries, seed + 90)[0]
        rows[-1] *= scale
        trust, step = reference(rows.double().tolist(), own.double().tolist())
        verdict = one_round(rows, own)
        close(verdict.measures["trust"], trust)
        close(downloads(verdict)[0], step)
        close(verdict.weights.sum(), 1.0 if any(trust) else 0.0)
        assert float(downloads(verdict)[0].norm()) <= float(own.norm()) * (1 + 1e-6)


def test_whoever_goes_the_other_way_is_not_trusted() -> None:
    """The opposite of what the server learns moves the model, or all of them are divided by nothing."""
    own = uploads(1, 53, 1)[0]
    verdict = one_round(torch.stack([own, -own, -3 * own]), own)
    assert verdict.weights.tolist() == pytest.approx([1, 0, 0])
    close(downloads(verdict)[0], own)
    verdict = one_round(torch.stack([-own, -2 * own]), own)
    assert verdict.weights.tolist() == [0, 0]
    assert not downloads(verdict).any()


@pytest.mark.parametrize(("learnt", "why"), [(0.0, "teaches nothing"), (math.nan, "does not stay finite")])
def test_a_server_that_learns_nothing_trusts_nobody(learnt: float, why: str) -> None:
    """Its cosines are NaN, or nobody is told why the model stands still."""
    with pytest.warns(UserWarning, match=f"root examples {why}, so FLTrust trusts nobody"):
        verdict = one_round(uploads(4, 7, 1), torch.full((7,), learnt))
    assert verdict.weights.tolist() == [0] * 4
    assert not downloads(verdict).any()


def trained(network: nn.Module, x: Tensor, y: Tensor, batches: list[Tensor], rates: list[float]) -> Tensor:
    """What plain SGD makes of a network, as an update."""
    before = nn.utils.parameters_to_vector(network.parameters()).detach().clone()
    for batch, rate in zip(batches, rates, strict=True):
        network.zero_grad()
        cross_entropy(network(x[batch]), y[batch]).backward()
        with torch.no_grad():
            for parameter in network.parameters():
                assert parameter.grad is not None
                parameter.add_(parameter.grad, alpha=-rate)
    return nn.utils.parameters_to_vector(network.parameters()).detach() - before


def test_what_the_server_learns() -> None:
    """It is not the participants' local training on held-out examples, is the same in all rounds or moves a stream."""
    server = RecordedFLTrust(root_examples=40)
    module = federate(server, rounds=1)
    root, data = server.task.root, module.data
    assert root is not None
    assert len(root) == len(data.held_out) == 144
    assert not {*data.held_out.tolist()} & {i for shard in data.shards for i in shard.tolist()}
    x, y = training_examples(data)
    few = data.held_out[:40]
    for number in (0, 3):
        state = torch.random.get_rng_state()
        update = root.update(server.task.initial, 40, number)
        assert torch.equal(torch.random.get_rng_state(), state)
        assert torch.equal(update, root.update(server.task.initial, 40, number))
        torch.manual_seed(data.federation.seed_for("root training", number))
        batches, rates = [], []
        for epoch in range(3):
            mine = few[torch.randperm(40)].split(16)
            batches += mine
            rates += [0.1 * 0.977 ** (3 * number + epoch)] * len(mine)
            torch.empty((), dtype=torch.int64).random_()  # a loader's seed, one for each pass
        expected = trained(copy.deepcopy(module.network), x, y, batches, rates)
        close(update, expected, 1e-5)
    assert not torch.equal(root.update(server.task.initial, 40, 0), root.update(server.task.initial, 40, 1))


def test_a_run() -> None:
    """Free-riders move the model."""
    server = RecordedFLTrust()
    module = federate(server, [FreeRider(), LabelFlip()], rounds=8)
    assert server.round == 8
    assert server.measured["trust"][5] < 0.05
    scores = module.score(module.data.test_dataloader(), module.cohort, "evaluation")
    assert len(scores["accuracy"].unique()) == 1
    assert scores["accuracy"][0] > 0.85


def test_refusals() -> None:
    """Too few examples get through to the first round, or the message does not say which option mends it."""
    assert_refused(lambda: FLTrust(root_examples=1), "--server.root_examples", "got 1")
    with pytest.raises(
        UserError, match=r"at most the server's 144 validation examples, but got 145; give fewer, or a greater"
    ):
        federate(FLTrust(root_examples=145), rounds=1)
    with pytest.raises(UserError, match=r"--data holds none out; give --data\.validation 0\.1, under .* another"):
        federate(FLTrust(), rounds=1, validation=0, watch="test")
