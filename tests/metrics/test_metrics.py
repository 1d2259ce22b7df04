"""The metrics against what numpy, scikit-learn and scipy compute."""

from __future__ import annotations

import doctest
import importlib

import numpy as np
import pytest
import torch
from scipy.stats import pearsonr
from sklearn.metrics import accuracy_score, log_loss

from rffl_pl.metrics import Fairness, ParticipantScores


@pytest.mark.parametrize("name", ["fairness", "scores"])
def test_examples_in_the_docstrings_hold(name: str) -> None:
    """The examples that a reader sees are what comes out."""
    result = doctest.testmod(importlib.import_module(f"rffl_pl.metrics.{name}"))
    assert result.attempted > 0
    assert result.failed == 0


def test_scores_agree_with_scikit_learn() -> None:
    """Accuracy and mean cross-entropy per model, over batches of unequal size and in any order of models."""
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(3, 101, 5, generator=generator)
    labels = torch.randint(5, (101,), generator=generator)
    scores = ParticipantScores(3)
    for part in torch.arange(101).split(16):
        for model in (2, 0, 1):
            scores.update(model, logits[model, part], labels[part])
    accuracies, losses = scores.compute()
    for model in range(3):
        probabilities = np.exp(logits[model].double().numpy())
        probabilities /= probabilities.sum(1, keepdims=True)
        assert float(accuracies[model]) == pytest.approx(accuracy_score(labels, logits[model].argmax(1)), rel=1e-6)
        assert float(losses[model]) == pytest.approx(log_loss(labels, probabilities, labels=range(5)), rel=1e-5)


def test_a_model_that_saw_nothing_has_no_score() -> None:
    """NaN, never 0, stands for what was not measured; the others are unaffected."""
    scores = ParticipantScores(2)
    scores.update(1, torch.eye(4), torch.tensor([0, 1, 2, 0]))
    accuracies, losses = scores.compute()
    assert accuracies[0].isnan()
    assert losses[0].isnan()
    assert float(accuracies[1]) == 0.75


def test_scores_start_anew_after_a_reset() -> None:
    """A reset forgets all examples."""
    scores = ParticipantScores(1)
    scores.update(0, torch.eye(3), torch.tensor([1, 2, 0]))
    assert float(scores.compute()[0]) == 0
    scores.reset()
    scores.update(0, torch.eye(3), torch.tensor([0, 1, 2]))
    assert float(scores.compute()[0]) == 1


def test_half_precision_logits_lose_no_examples() -> None:
    """Sums over many bfloat16 batches count every example."""
    scores = ParticipantScores(1)
    for _ in range(50):
        scores.update(0, torch.tensor([[4.0, 0.0]] * 100, dtype=torch.bfloat16), torch.tensor([0] * 99 + [1]))
    accuracies, losses = scores.compute()
    low, high = np.log1p(np.exp(-4.0)), 4 + np.log1p(np.exp(-4.0))
    assert float(accuracies) == pytest.approx(0.99)
    assert float(losses) == pytest.approx(0.99 * low + 0.01 * high, rel=1e-4)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("n", [2, 3, 10, 100])
def test_fairness_is_pearsons_correlation(n: int, seed: int) -> None:
    """The same number as scipy's, in however many updates."""
    x, y = torch.rand(2, n, generator=torch.Generator().manual_seed(seed))
    y = y + (seed - 2) * x
    fairness = Fairness()
    fairness.update(x[:1], y[:1])
    fairness.update(x[1:], y[1:])
    expected = pearsonr(x.double().numpy(), y.double().numpy()).statistic
    assert float(fairness.compute()) == pytest.approx(float(expected), abs=1e-6)


def test_fairness_of_nearly_equal_accuracies() -> None:
    """Accuracies that differ in one test image of 10,000 still have a correlation."""
    x, y = torch.tensor([0.9500, 0.9501, 0.9502, 0.9500]), torch.tensor([0.96, 0.9601, 0.9601, 0.96])
    fairness = Fairness()
    fairness.update(x, y)
    expected = pearsonr(x.double().numpy(), y.double().numpy()).statistic
    assert float(fairness.compute()) == pytest.approx(float(expected), abs=1e-6)


@pytest.mark.parametrize(
    ("standalone", "final"),
    [([0.7, 0.7, 0.7], [0.8, 0.9, 1.0]), ([0.7, 0.8, 0.9], [0.8, 0.8, 0.8]), ([0.5, 0.5], [0.5, 0.5])],
)
def test_fairness_is_undefined_where_either_is_constant(standalone: list[float], final: list[float]) -> None:
    """NaN, never a number."""
    fairness = Fairness()
    fairness.update(torch.tensor(standalone), torch.tensor(final))
    assert fairness.compute().isnan()


@pytest.mark.parametrize("n", [0, 1])
def test_fairness_is_undefined_for_fewer_than_two(n: int) -> None:
    """One participant, or none, has no correlation."""
    fairness = Fairness()
    fairness.update(torch.rand(n), torch.rand(n))
    assert fairness.compute().isnan()


@pytest.mark.filterwarnings("ignore:The ``compute`` method")
def test_fairness_of_nobody() -> None:
    """No update at all is no participants: undefined, not a crash."""
    assert Fairness().compute().isnan()


def test_fairness_starts_anew_after_a_reset() -> None:
    """A reset forgets all participants."""
    fairness = Fairness()
    fairness.update(torch.tensor([0.1, 0.2, 0.9]), torch.tensor([0.3, 0.1, 0.2]))
    fairness.reset()
    fairness.update(torch.tensor([0.1, 0.2]), torch.tensor([0.2, 0.1]))
    assert float(fairness.compute()) == pytest.approx(-1)


def test_metrics_do_not_merge_ranks() -> None:
    """Merging would average different participants' models."""
    assert not ParticipantScores(2).sync_on_compute
    assert not Fairness().sync_on_compute
