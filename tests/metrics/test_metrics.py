"""The metrics against what numpy, scikit-learn and scipy compute."""

from __future__ import annotations

import doctest
import importlib
import math
import warnings
from statistics import fmean
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, confusion_matrix, log_loss, precision_score, recall_score
from torchmetrics import Metric

from rffl_pl.metrics import CollaborationGain, Detection, Fairness, ParticipantScores, RankFairness, ReadAs, TakeHome

COMPARISONS: list[type[Any]] = [Fairness, RankFairness, CollaborationGain]
CORRELATIONS: list[type[Any]] = [Fairness, RankFairness]
NAN = float("nan")


def numbers(metric: Metric) -> list[float]:
    """What a metric computes, one value or several."""
    values = metric.compute()
    if isinstance(values, dict):
        values = tuple(values.values())
    return [float(value) for value in (values if isinstance(values, tuple) else [values])]


@pytest.mark.parametrize("name", ["fairness", "robustness", "scores"])
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


@pytest.mark.parametrize("levels", [2, 3, 1000])
@pytest.mark.parametrize("n", [2, 3, 10, 100])
@pytest.mark.parametrize("seed", range(5))
def test_rank_fairness_is_spearmans_correlation(n: int, seed: int, levels: int) -> None:
    """The same number as scipy's, with many ties, few or none, in however many updates."""
    generator = torch.Generator().manual_seed(seed)
    x, y = torch.randint(levels, (2, n), generator=generator) / levels
    y = ((y + (seed - 2) * x) * levels).round() / levels  # of one sign, of the other, or unrelated
    fairness = RankFairness()
    fairness.update(x[:1], y[:1])
    fairness.update(x[1:], y[1:])
    if len(x.unique()) == 1 or len(y.unique()) == 1:
        assert fairness.compute().isnan()
    else:
        expected = spearmanr(x.numpy(), y.numpy()).statistic
        assert float(fairness.compute()) == pytest.approx(float(expected), abs=1e-5)


def test_ranks_of_very_many() -> None:
    """A million participants need no memory for all of their pairs."""
    x = torch.arange(1_000_000) // 2
    fairness = RankFairness()
    fairness.update(x, x.square())
    assert fairness.compute() == 1


def test_ranks_alone_count() -> None:
    """Whatever keeps the order keeps the rank fairness, but not the fairness."""
    x = torch.rand(20, generator=torch.Generator().manual_seed(0))
    for metric, kept in [(RankFairness(), True), (Fairness(), False)]:
        metric.update(x, (9 * x).exp())
        assert (float(metric.compute()) == pytest.approx(1, abs=1e-6)) == kept


@pytest.mark.parametrize("n", [1, 2, 10, 100])
def test_collaboration_gain_is_numpys(n: int) -> None:
    """Mean and population deviation of the gains, in however many updates; gains may be losses."""
    x, y = torch.rand(2, n, generator=torch.Generator().manual_seed(n))
    gain = CollaborationGain()
    gain.update(x[:1], y[:1])
    gain.update(x[1:], y[1:])
    gains = y.double().numpy() - x.double().numpy()
    assert numbers(gain) == pytest.approx([gains.mean(), gains.std()], abs=1e-6)


@pytest.mark.parametrize("metric", CORRELATIONS)
@pytest.mark.parametrize(
    ("standalone", "final"),
    [([0.7, 0.7, 0.7], [0.8, 0.9, 1.0]), ([0.7, 0.8, 0.9], [0.8, 0.8, 0.8]), ([0.5, 0.5], [0.5, 0.5])],
)
def test_fairness_is_undefined_where_either_is_constant(
    metric: type[Any], standalone: list[float], final: list[float]
) -> None:
    """NaN, never a number."""
    fairness = metric()
    fairness.update(torch.tensor(standalone), torch.tensor(final))
    assert fairness.compute().isnan()


@pytest.mark.parametrize("metric", COMPARISONS)
@pytest.mark.parametrize(
    ("standalone", "final"),
    [
        ([NAN, 0.2, 0.3], [0.1, 0.2, 0.4]),
        ([0.1, 0.2, 0.3], [0.4, 0.2, NAN]),
        ([NAN, NAN], [0.1, 0.2]),
        ([0.1, 0.2], [NAN, NAN]),
    ],
)
def test_nothing_is_made_of_an_accuracy_that_is_none(
    metric: type[Any], standalone: list[float], final: list[float]
) -> None:
    """Where an accuracy is NaN, nothing measured of it is a number."""
    comparison = metric()
    comparison.update(torch.tensor(standalone), torch.tensor(final))
    assert all(np.isnan(numbers(comparison)))


@pytest.mark.parametrize("metric", CORRELATIONS)
@pytest.mark.parametrize("n", [0, 1])
def test_fairness_is_undefined_for_fewer_than_two(metric: type[Any], n: int) -> None:
    """One participant, or none, has no correlation."""
    fairness = metric()
    fairness.update(torch.rand(n), torch.rand(n))
    assert fairness.compute().isnan()


@pytest.mark.filterwarnings("ignore:The ``compute`` method")
@pytest.mark.parametrize("metric", [*COMPARISONS, Detection])
def test_metrics_of_nobody(metric: type[Any]) -> None:
    """No update at all is no participants: undefined, not a crash."""
    assert all(np.isnan(numbers(metric())))


@pytest.mark.parametrize("metric", [*COMPARISONS, Detection])
def test_empty_participants_are_quiet(metric: type[Any]) -> None:
    """An update of no participants is undefined without a warning, and adds nothing to others."""
    measured, twice = metric(), metric()
    removed = metric is Detection
    nobody = torch.empty(0), torch.empty(0, dtype=torch.bool if removed else torch.float32)
    some = torch.tensor([1.0, NAN] if removed else [0.1, 0.2]), torch.tensor([True, True] if removed else [0.3, 0.7])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        measured.update(*nobody)
        assert all(np.isnan(numbers(measured)))
        measured.reset()
        for pair in (nobody, some, nobody):
            measured.update(*pair)
        twice.update(*some)
        assert numbers(measured) == numbers(twice)
        assert not any(np.isnan(numbers(twice)))


def test_fairness_starts_anew_after_a_reset() -> None:
    """A reset forgets all participants."""
    fairness = Fairness()
    fairness.update(torch.tensor([0.1, 0.2, 0.9]), torch.tensor([0.3, 0.1, 0.2]))
    fairness.reset()
    fairness.update(torch.tensor([0.1, 0.2]), torch.tensor([0.2, 0.1]))
    assert float(fairness.compute()) == pytest.approx(-1)


@pytest.mark.parametrize("metric", COMPARISONS)
def test_comparisons_start_anew_after_a_reset(metric: type[Any]) -> None:
    """A reset forgets all participants."""
    used, fresh = metric(), metric()
    used.update(torch.tensor([0.1, 0.2, 0.9]), torch.tensor([0.3, 0.1, 0.2]))
    before = numbers(used)
    used.reset()
    for one in (used, fresh):
        one.update(torch.tensor([0.1, 0.2]), torch.tensor([0.2, 0.1]))
    assert numbers(used) == numbers(fresh) != before


@pytest.mark.parametrize(("source", "target"), [(1, 4), (4, 1), (0, 2)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_read_as_agrees_with_scikit_learns_confusion(source: int, target: int, dtype: torch.dtype) -> None:
    """The entries of the source's row, over batches of unequal size."""
    generator = torch.Generator().manual_seed(source)
    logits = torch.randn(3, 301, 5, generator=generator).to(dtype)
    labels = torch.randint(5, (301,), generator=generator)
    for row in logits:
        kept, success = ReadAs(source, source), ReadAs(source, target)
        for part in torch.arange(301).split(16):
            for metric in (success, kept):
                metric.update(row[part], labels[part])
        confusion = confusion_matrix(labels, row.argmax(1), labels=range(5), normalize="true")
        assert numbers(kept) == pytest.approx([confusion[source, source]], abs=1e-6)
        assert numbers(success) == pytest.approx([confusion[source, target]], abs=1e-6)


def test_read_as_without_the_source() -> None:
    """NaN, never 0, where a model saw no example of the class, and nothing warns."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        metric = ReadAs(source=1, target=0)
        metric.update(torch.eye(3), torch.tensor([0, 2, 2]))
        metric.update(torch.empty(0, 3), torch.empty(0, dtype=torch.int64))
        assert metric.compute().isnan()
        metric.update(torch.eye(3), torch.tensor([1, 1, 2]))
        assert numbers(metric) == [0.5]


def test_read_as_starts_anew_after_a_reset() -> None:
    """A reset forgets all examples."""
    metric = ReadAs(source=0, target=1)
    metric.update(torch.eye(2), torch.tensor([0, 0]))
    assert numbers(metric) == [0.5]
    metric.reset()
    metric.update(torch.eye(2), torch.tensor([1, 0]))
    assert numbers(metric) == [1.0]


@pytest.mark.parametrize("seed", range(10))
def test_detection_agrees_with_scikit_learn(seed: int) -> None:
    """Precision, recall and the last round in which an adversary went, in however many updates."""
    generator = np.random.default_rng(seed)
    adversary = generator.random(20) < 0.4
    removed = np.where(generator.random(20) < 0.2 + 0.5 * adversary, generator.integers(1, 50, 20), np.nan)
    detection = Detection()
    for part in (slice(0, 1), slice(1, 20)):
        detection.update(torch.tensor(removed[part]), torch.tensor(adversary[part]))
    gone = ~np.isnan(removed)
    precision = precision_score(adversary, gone, zero_division=np.nan)
    recall = recall_score(adversary, gone, zero_division=np.nan)
    hits = removed[gone & adversary]
    assert numbers(detection) == pytest.approx([precision, recall, hits.max() if len(hits) else np.nan], nan_ok=True)


@pytest.mark.parametrize(
    ("removed", "adversary", "expected"),
    [
        ([NAN, NAN, NAN], [False, False, True], [NAN, 0.0, NAN]),
        ([NAN, NAN, NAN], [False, False, False], [NAN, NAN, NAN]),
        ([11.0, NAN, NAN], [False, False, False], [0.0, NAN, NAN]),
        ([11.0, NAN, NAN], [False, False, True], [0.0, 0.0, NAN]),
        ([30.0, NAN, 12.0, 11.0], [False, False, True, True], [2 / 3, 1.0, 12.0]),
        ([NAN, NAN, NAN, 11.0], [False, False, True, True], [1.0, 0.5, 11.0]),
        ([1.0], [True], [1.0, 1.0, 1.0]),
    ],
    ids=["nobody removed", "no adversaries", "honest alone", "the wrong one", "one too many", "half", "in round 1"],
)
def test_detection_by_hand(removed: list[float], adversary: list[bool], expected: list[float]) -> None:
    """NaN where there is nothing to divide by; an honest one's round does not count as a find, and nothing warns."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        detection = Detection()
        detection.update(torch.tensor(removed), torch.tensor(adversary))
        assert numbers(detection) == pytest.approx(expected, nan_ok=True)


def test_detection_starts_anew_after_a_reset() -> None:
    """A reset forgets all participants."""
    detection = Detection()
    detection.update(torch.tensor([5.0, 7.0]), torch.tensor([False, True]))
    detection.reset()
    detection.update(torch.tensor([3.0]), torch.tensor([True]))
    assert numbers(detection) == [1.0, 1.0, 3.0]


def taken_home(
    final: list[float], alone: list[float], examples: list[int], who: str, initial: list[float]
) -> list[float]:
    """What `TakeHome` says, one participant after the other; ``who`` is h, t or i each: honest, trains, is idle."""
    every = list(zip(final, alone, examples, who, initial, strict=True))
    attack = [(y, x, start, x if role == "t" else start) for y, x, _, role, start in every if role != "h"]
    honest = [(count, y - x) for y, x, count, role, _ in every if role == "h"]
    small = [gain for count, gain in honest if count == min(count for count, _ in honest)]
    taken = [y - own for y, _, _, own in attack]
    above = [y - x for y, x, _, _ in attack], [y - start for y, _, start, _ in attack], taken
    means = [fmean(values) if values else NAN for values in above]
    most, smallest = max(taken, default=NAN), fmean(small) if small else NAN
    return [*means, most, smallest, most / smallest if smallest > 0 else NAN]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("n", [1, 2, 7, 30])
@pytest.mark.parametrize("common", [True, False])
def test_take_home_is_what_plain_python_computes(n: int, seed: int, common: bool) -> None:
    """Every number for any mixture of honest, training and idle, with ties of examples, in however many updates.

    The initial network has one accuracy, or one for each on examples of its own.
    """
    generator = np.random.default_rng((n, seed))
    final, alone, initial = generator.random(n), generator.random(n), generator.random(n)
    initial = initial[:1].repeat(n) if common else initial
    examples, roles = generator.integers(1, 9, n), generator.choice(list("hhti"), n)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))  # it is nothing
    home = TakeHome(initial[0] if common else torch.tensor(initial)[order])
    facts = [torch.tensor(fact) for fact in (final, alone, examples, roles != "h", roles != "i")]
    for part in order.split(3):
        home.update(*(fact[part] for fact in facts))
    expected = taken_home(final.tolist(), alone.tolist(), examples.tolist(), "".join(roles), initial.tolist())
    assert numbers(home) == pytest.approx(expected, abs=1e-6, rel=1e-5, nan_ok=True)


@pytest.mark.parametrize(
    ("final", "alone", "who", "expected"),
    [
        ([0.9, 0.8, 0.85], [0.8, 0.5, 0.6], "hhi", [0.25, 0.75, 0.75, 0.75, 0.3, 2.5]),
        ([0.9, 0.8, 0.85], [0.8, 0.5, 0.6], "hht", [0.25, 0.75, 0.25, 0.25, 0.3, 0.25 / 0.3]),
        ([0.9, 0.5, 0.85], [0.8, 0.5, 0.6], "hhi", [0.25, 0.75, 0.75, 0.75, 0.0, NAN]),
        ([0.9, 0.4, 0.85], [0.8, 0.5, 0.6], "hhi", [0.25, 0.75, 0.75, 0.75, -0.1, NAN]),
        ([0.9, 0.8, 0.1], [0.8, 0.5, 0.6], "hhi", [-0.5, 0.0, 0.0, 0.0, 0.3, 0.0]),
        ([0.9, 0.85, 0.7], [0.8, 0.5, 0.6], "hit", [0.225, 0.675, 0.425, 0.75, 0.1, 7.5]),
        ([0.9, 0.8], [NAN, NAN], "hi", [NAN, 0.7, 0.7, 0.7, NAN, NAN]),
        ([0.9, 0.8, NAN], [0.8, 0.5, 0.6], "hii", [NAN, NAN, NAN, NAN, 0.1, NAN]),
        ([0.9, 0.8], [0.8, 0.5], "hh", [NAN, NAN, NAN, NAN, 0.3, NAN]),
        ([0.9], [0.8], "t", [0.1, 0.8, 0.1, 0.1, NAN, NAN]),
    ],
    ids=[
        "a free-rider", "who trains", "no gain", "a loss", "nothing", "both", "no reference", "no accuracy",
        "all honest", "no honest",
    ],
)  # fmt: skip
def test_take_home_by_hand(final: list[float], alone: list[float], who: str, expected: list[float]) -> None:
    """What an idle one took counts from the initial network, and a share is of a gain alone; nothing warns."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        home = TakeHome(initial=0.1)
        examples = torch.tensor([30, 10, 20][: len(who)])
        roles = (torch.tensor([role != kind for role in who]) for kind in "hi")
        home.update(torch.tensor(final), torch.tensor(alone), examples, *roles)
        assert numbers(home) == pytest.approx(expected, abs=1e-6, rel=1e-5, nan_ok=True)


@pytest.mark.filterwarnings("ignore:The ``compute`` method")
def test_take_home_of_nobody() -> None:
    """No update, an empty one and a reset leave nothing but NaN."""
    home, nobody = TakeHome(initial=0.1), torch.empty(0)
    assert all(map(math.isnan, numbers(home)))
    home.update(nobody, nobody, nobody, nobody.bool(), nobody.bool())
    assert all(map(math.isnan, numbers(home)))
    one = torch.ones(1)
    home.update(one, one, one, one.bool(), one.bool())
    home.reset()
    assert all(map(math.isnan, numbers(home)))


@pytest.mark.parametrize(
    "metric",
    [ParticipantScores(2), ReadAs(1, 7), Detection(), TakeHome(0.1), *(kind() for kind in COMPARISONS)],
    ids=lambda metric: type(metric).__name__,
)
def test_metrics_do_not_merge_ranks(metric: Metric) -> None:
    """Merging would average different participants' models, or count the honest of rank 0 several times."""
    assert not metric.sync_on_compute
