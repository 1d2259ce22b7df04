"""What is known of a round and of a run: the flat metrics for loggers, and what becomes JSON."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rffl_pl.runs.history import History
from rffl_pl.runs.records import Round, Summary

NAN = float("nan")
ROUND = Round(
    number=3,
    honest=2,
    members=[True, True, False],
    removed=[2],
    measures={"accuracy": [0.5, 0.7, 0.9], "loss": [1.0, 2.0, 3.0], "train_loss": [0.1, 0.2, NAN]},
)
SUMMARY = Summary(
    rounds=3,
    honest=2,
    examples=[10, 20],
    standalone=[None, None],
    final=[0.5, 0.75],
    reputation=[0.25, 0.75],
    quota=[0.5, 1.0],
    removed_in_round=[None, None],
    mean=0.625,
    maximum=0.75,
    fairness=None,
)
ATTACKED: dict[str, Any] = {
    "examples": [10, 20, 30],
    "standalone": [None] * 3,
    "final": [0.5, 0.75, 0.1],
    "reputation": [0.25, 0.75, 0.0],
    "quota": [0.5, 1.0, 0.0],
    "removed_in_round": [None, None, 2],
}


def test_a_summary_is_json_without_nan() -> None:
    """What is not measured is null, so that every reader of JSON takes it."""
    text = json.dumps(asdict(SUMMARY), allow_nan=False)
    names = {"rank_fairness", "gain", "gain_spread", "precision", "recall", "target_accuracy", "attack_success"}
    names |= {"initial", "adversary_final", "adversary_standalone", "adversary_gain", "adversary_over_initial"}
    names |= {"taken", "taken_most", "smallest_gain", "taken_share", "first_removal", "last_removal", "honest_removed"}
    names |= {"watched", "validation", "minimum", "worst_tenth", "best_tenth", "spread"}
    assert names == {name for name, value in json.loads(text).items() if value is None} - {"fairness"}


def measuring(**measures: list[float]) -> Round:
    """The round with more measures."""
    return replace(ROUND, measures={**ROUND.measures, **measures})


def test_metrics_of_a_label_flip() -> None:
    """Everybody's rates, and their means over the honest alone."""
    flat = measuring(target_accuracy=[0.9, 0.7, 0.1], attack_success=[0.0, 0.25, 0.9]).metrics()
    assert flat["target_accuracy/mean"] == pytest.approx(0.8)
    assert flat["attack_success/mean"] == pytest.approx(0.125)
    assert [flat[f"attack_success/participant_{i}"] for i in range(3)] == [0.0, 0.25, 0.9]
    assert [flat[f"target_accuracy/participant_{i}"] for i in range(3)] == [0.9, 0.7, 0.1]


def test_metrics_of_what_was_not_measured() -> None:
    """No key at all, rather than NaN or a crash; the other metrics are as they were."""
    flat = measuring(attack_success=[NAN, NAN, NAN]).metrics()
    assert not [name for name in flat if name.startswith(("target_accuracy", "attack_success"))]
    assert flat["accuracy/mean"] == pytest.approx(0.6)
    assert flat["accuracy/max"] == 0.7
    assert "train_loss/participant_2" not in flat


def test_metrics_of_somebody_elses_measure() -> None:
    """A measure that nobody here has heard of has everybody's value and the mean of the honest who have one."""
    flat = measuring(calibration=[0.5, NAN, 0.9]).metrics()
    assert {name: value for name, value in flat.items() if name.startswith("calibration")} == {
        "calibration/participant_0": 0.5, "calibration/participant_2": 0.9, "calibration/mean": 0.5,
    }  # fmt: skip


def test_metrics_of_the_exchange() -> None:
    """Bytes have a total; reputations and the like no mean, which would say nothing."""
    flat = measuring(bytes_up=[8, 8, 0], reputation=[0.5, 0.4, 0.1]).metrics()
    assert flat["reputation/honest_median"] == pytest.approx(0.45)
    assert flat["reputation/adversaries_mean"] == pytest.approx(0.1)
    assert (flat["honest_members"], flat["adversary_members"]) == (2, 0)
    assert flat["bytes_up/total"] == 16
    assert "bytes_up/mean" not in flat
    assert "reputation/mean" not in flat
    assert flat["member/participant_2"] == 0


def test_a_digest_is_of_all_and_of_nobody() -> None:
    """Quantiles of the honest who have a value, the adversaries' mean, and the metrics that are nobody's own."""
    five = [0.5, 0.1, 0.4, 0.2, 0.3]
    entry = Round(number=2, honest=5, members=[True] * 5 + [False], measures={"quota": [*five, 0.9], "own": [NAN] * 6})
    digest = entry.digest()
    words = ("lowest", "lower_quartile", "median", "upper_quartile", "highest")
    assert [digest[f"quota/honest_{word}"] for word in words] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5])
    assert digest["quota/adversaries_mean"] == 0.9
    assert digest["honest_members"] == 5
    assert not [name for name in digest if "participant" in name or name.startswith("own")]
    assert {name: digest[name] for name in ("round", "members", "removed")} == {"round": 2, "members": 5, "removed": 0}
    alone = Round(number=1, honest=1, members=[True], measures={"loss": [0.5]}).digest()
    assert {alone[f"loss/honest_{word}"] for word in words} == {0.5}


def test_a_digest_where_somebody_diverged() -> None:
    """The mean is infinite, and whoever diverged is above all others: a quartile beside it was NaN, of no bound."""
    infinite = math.inf
    entry = Round(number=2, honest=3, members=[True] * 3, measures={"loss": [infinite, 0.3, 0.2]})
    digest = entry.digest()
    found = [digest[f"loss/honest_{word}"] for word in ("lowest", "lower_quartile", "median", "upper_quartile")]
    assert found == [0.2, 0.25, 0.3, infinite]
    assert digest["loss/mean"] == digest["loss/honest_highest"] == infinite
    assert entry.metrics()["loss/mean"] == infinite


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 18, 101])
def test_quartiles_are_those_of_numpy(count: int) -> None:
    """Interpolated linearly."""
    values = np.random.default_rng(count).random(count).tolist()
    digest = Round(number=1, honest=count, members=[True] * count, measures={"loss": values}).digest()
    words = ("lowest", "lower_quartile", "median", "upper_quartile", "highest")
    expected = np.quantile(values, [0, 0.25, 0.5, 0.75, 1])
    assert [digest[f"loss/honest_{word}"] for word in words] == pytest.approx(expected.tolist())


def test_a_round_without_accuracy_has_a_headline() -> None:
    """Where nothing is watched the members are left to tell."""
    assert replace(ROUND, measures={"train_loss": [0.1] * 3}).headline() == "members 2/3"
    assert ROUND.headline() == "mean accuracy 60.0%, members 2/3"


def test_a_round_survives_a_checkpoint() -> None:
    """What a checkpoint keeps of a round makes the same round again."""
    full = replace(measuring(train_loss=[0.1, 0.2, 0.3], energy=[0.9, 0.7, 0.1]), silent=[1], set_aside=[0])
    assert Round(**asdict(full)) == full


def test_a_round_is_json(tmp_path: Path) -> None:
    """Programs that are not Python's refuse NaN and Infinity, and an earlier release wrote them."""
    values = [math.nan, math.inf, -math.inf, 0.25]
    entry = Round(number=1, honest=3, members=[True] * 4, measures={"a, Infinity, b": values, "loss": values[1:]})
    history = History(tmp_path / "rounds.jsonl", [entry])
    line = (tmp_path / "rounds.jsonl").read_text()

    def refused(constant: str) -> None:
        raise AssertionError(constant)

    assert json.loads(line, parse_constant=refused)["measures"]["loss"] == values[1:]
    (again,) = history
    assert str(again) == str(entry)
    (tmp_path / "rounds.jsonl").write_text(json.dumps(vars(entry)) + "\n")
    assert str(next(iter(history))) == str(entry)
