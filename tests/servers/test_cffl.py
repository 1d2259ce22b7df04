"""CFFL against a float64 loop written from its definition, and what no round of it may break."""

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from rffl_pl.servers import CFFL, Verdict
from tests.functional.reference import close, permuted, uploads
from tests.servers.reference_cffl import (
    LAYERS,
    SETTINGS,
    Accuracy,
    D,
    Reference,
    classes,
    initial_weights,
    reference_top,
    waves,
)
from tests.servers.tasks import (
    assert_refused,
    downloads,
    finite_fraction,
    sent,
    shards,
    task,
)

pytestmark = pytest.mark.filterwarnings("ignore:--server.steepness")
# Uploads are updates: no two entries of the aggregate are equal, none is 0.
WIDE: dict[str, Any] = {"bound": 1e9, "upload_share": 1.0}


def started(
    participants: int,
    accuracy: Accuracy | None = None,
    *,
    examples: Sequence[int] | None = None,
    seed: int = 1,
    entries: int = D,
    **settings: Any,
) -> CFFL:
    """A server before its first round."""
    server = CFFL(**(SETTINGS | settings))
    server.start(
        task(
            examples or shards(participants),
            LAYERS if entries == D else [entries],
            classes=classes(participants),
            initial=initial_weights() if entries == D else torch.zeros(entries),
            accuracy=accuracy or waves(),
            seed=seed,
        )
    )
    return server


def members_of(server: CFFL) -> list[int]:
    """Who is still a member."""
    return server.members.nonzero().flatten().tolist()


def play(server: CFFL, updates: Tensor) -> Verdict:
    """One round in which all members send."""
    senders = members_of(server)
    return server.step(sent(server, updates)[senders], senders)


VARIANTS: list[dict[str, Any]] = [
    {},
    {"upload_share": 1.0},
    {"upload_share": 0.5, "bound": 0.3, "selection": "largest"},
    {"compounding": "none", "selection": "largest"},
    {"doubling_rounds": 3, "steepness": 2.0, "selection": "largest"},
    {"doubling_rounds": 3, "compounding": "none"},
    {"removal_share": 0.0, "steepness": 8.0},
    {"removal_share": 0.9, "compounding": "none", "selection": "largest"},
    {"contribution": "classes", "selection": "largest"},
    {"summation": "mean", "selection": "largest"},
    {"summation": "mean", "contribution": "classes"},
    {"steepness": 0.5, "removal_share": 1 / 6, "summation": "mean"},
]


@pytest.mark.parametrize("settings", VARIANTS, ids=str)
@pytest.mark.parametrize("participants", [1, 5, 12])
def test_rounds_are_the_reference(participants: int, settings: dict[str, Any]) -> None:
    """Uploads, scores, removals, aggregate or downloads of some round differ, with somebody missing in some."""
    server = started(participants, waves(participants), **settings)
    reference = Reference(shards(participants), waves(participants), initial_weights(), **settings)
    for now in range(7):
        updates = uploads(participants, D, 100 * participants + now)
        rows = sent(server, updates)
        close(rows, [reference.upload(row) for row in updates.tolist()], 1e-6)
        senders = [i for i in members_of(server) if i != now % 5 or now % 3 != 1]
        verdict = server.step(rows[senders], senders)
        uploaded = {i: rows[i].tolist() for i in senders}
        expected = reference.step(uploaded)
        assert verdict.members.tolist() == expected.members
        assert list(verdict.removed) == expected.removed
        close(verdict.weights, expected.weights, 1e-9)
        close(verdict.reputations, expected.reputations)
        close(verdict.quotas, expected.quotas, 3e-5)  # a share to the power of what the last bits of scores decide
        assert verdict.set_aside == ()
        assert verdict.similarities.isnan().all()
        for i, quota in enumerate(verdict.quotas.tolist()):
            # With the server's own quota: beside a whole number of entries it would depend on its last bit.
            count, whole = int(quota * D), expected.aggregate
            part = verdict.download(i).double().numpy() + reference.subtracted(i, expected, uploaded)
            if server.selection == "largest":
                top = reference_top(whole.astype(np.float32).tolist(), count)
                assert np.count_nonzero(np.abs(part) > 1e-6) <= count
                close(torch.from_numpy(np.sort(np.abs(part))), np.sort(np.abs(top)))
            np.testing.assert_allclose(part, np.where(np.abs(part) > 1e-6, whole, 0), atol=2e-6, rtol=1e-5)
            assert np.count_nonzero(np.abs(part) > 1e-6) <= count
        close(server.model, reference.model)


def test_comparison_includes_removals() -> None:
    """The comparisons above would be about rounds in which everybody stays, or in which one alone is left."""
    left = []
    for settings in VARIANTS:
        server = started(12, waves(0), **settings)
        for now in range(7):
            play(server, uploads(12, D, now))
        left.append(int(server.members.sum()))
    assert sum(1 < count < 12 for count in left) >= 3, left
    assert 12 in left


def constant(*accuracies: float) -> tuple[Accuracy, Tensor]:
    """Accuracies that stay the participants' own over the rounds, and the uploads by which they are told apart.

    Participant i moves entry i alone, so that the server's model with its upload is highest there.
    """
    return lambda weights: accuracies[int(np.argmax(np.asarray(weights)))], 0.01 * torch.eye(len(accuracies))


def removals(rounds: int, accuracies: Sequence[float], **settings: Any) -> dict[int, tuple[int, ...]]:
    """In which round, counted from 0, who is removed."""
    accuracy, rows = constant(*accuracies)
    server = started(len(accuracies), accuracy, entries=len(accuracies), upload_share=1.0, **settings)
    removed: dict[int, tuple[int, ...]] = {}
    for now in range(rounds):
        here = members_of(server)
        verdict = server.step(rows[here], here)
        if verdict.removed:
            removed[now] = verdict.removed
    return removed


def test_golden() -> None:
    """The worked example (servers.md 4.8): sinh before averaging, or a steepness that does not grow."""
    accuracy, rows = constant(0.6, 0.8, 0.9)
    server = started(3, accuracy, entries=3, upload_share=1.0, doubling_rounds=30)
    close(server.step(rows, [0, 1, 2]).reputations, [0.258643, 0.347894, 0.393463], 1e-6)
    close(server.step(rows, [0, 1, 2]).reputations, [0.210059, 0.347069, 0.442872], 1e-6)


@pytest.mark.parametrize(
    ("accuracies", "rounds", "expected"),
    [
        ((0.88, 0.89, 0.90, 0.91, 0.92), 30, {15: (0,), 16: (1, 2, 3)}),
        ((0.6, 0.8, 0.9), 30, {3: (0,), 4: (1,)}),
        (tuple(np.linspace(0.80, 0.94, 10)), 60, {47: (0, 1, 2, 3, 4), 48: (5, 6, 7, 8)}),
    ],
    ids=["N=5", "N=3", "N=10"],
)
def test_released_compounding_removes_the_honest(
    accuracies: Sequence[float], rounds: int, expected: dict[int, tuple[int, ...]]
) -> None:
    """Gaps of a few percent do not grow as in the released code (servers.md 4.2), or grow where nothing compounds."""
    assert removals(rounds, accuracies, doubling_rounds=rounds) == expected
    assert removals(rounds, accuracies, doubling_rounds=rounds, compounding="none") == {}


def test_without_compounding_reputations_settle() -> None:
    """What is stored is not the plain average, or reputations are not its sinh: they drift for equal scores."""
    scores = [0.6, 0.8, 0.9]
    accuracy, rows = constant(*scores)
    server = started(3, accuracy, entries=3, upload_share=1.0, compounding="none")
    for now in range(60):
        verdict = server.step(rows, [0, 1, 2])
        averaged = [(1 - 0.8 ** (now + 1)) * score / sum(scores) for score in scores]
        raised = np.sinh(5 * np.array(averaged))
        close(verdict.reputations, raised / raised.sum(), 1e-12)
    assert verdict.members.all()


def test_only_ratios_of_accuracies_count() -> None:
    """Reputations change if all accuracies are halved."""
    one, other = started(5, waves()), started(5, lambda weights: waves()(weights) / 2)
    for now in range(5):
        updates = uploads(5, D, now)
        a, b = play(one, updates), play(other, updates)
        close(a.reputations, b.reputations, 1e-9)
        assert torch.equal(a.members, b.members)


@pytest.mark.parametrize("selection", ["random", "largest"])
@pytest.mark.parametrize("summation", ["sum", "mean"])
def test_order_of_participants(summation: Any, selection: Any) -> None:
    """A participant's number decides something."""
    order = permuted(7, seed=1)
    sizes = torch.tensor(shards(7))
    settings: dict[str, Any] = {"summation": summation, "selection": selection, "steepness": 2.0} | WIDE
    one = started(7, waves(steepness=0.3), examples=sizes.tolist(), **settings)
    other = started(7, waves(steepness=0.3), examples=sizes[order].tolist(), **settings)
    for now in range(5):
        updates = uploads(7, D, now)
        a, b = play(one, updates), play(other, updates[order])
        assert torch.equal(a.members[order], b.members)
        for name in ("weights", "reputations", "quotas"):
            close(getattr(b, name), getattr(a, name)[order], 1e-5)
        close(downloads(b), downloads(a)[order])


@pytest.mark.parametrize("compounding", ["released", "none"])
def test_equal_accuracies_earn_everything(compounding: Any) -> None:
    """Of equal participants one lacks an entry of the aggregate, by a rounding of its reputation."""
    lacking: dict[int, list[int]] = {}
    for participants in range(1, 25):
        held = [10] * participants
        server = started(participants, lambda weights: 0.8, examples=held, compounding=compounding, **WIDE)
        for now in range(3):
            rows = uploads(participants, D, now)
            verdict = server.step(rows, range(participants))
            assert verdict.quotas.tolist() == pytest.approx([1.0] * participants)
            less = (downloads(verdict).double() + rows.double() - rows.double().sum(0)).abs().max(1).values
            if (less > 1e-3).any():
                lacking[participants] = (less > 1e-3).nonzero().flatten().tolist()
    assert lacking == {}


def test_equal_accuracies_remove_nobody() -> None:
    """At the highest threshold that is allowed, 1/|R|, a rounding decides who among equals is removed, or all are."""
    removed = {}
    for participants in range(1, 25):
        server = started(participants, lambda weights: 0.8, removal_share=1.0)
        for now in range(3):
            play(server, uploads(participants, D, now))
        if not server.members.all():
            removed[participants] = participants - len(members_of(server))
    assert removed == {}


@pytest.mark.parametrize("settings", [{"steepness": 2000.0}, {"doubling_rounds": 1}, {"steepness": 1e-200}], ids=str)
@pytest.mark.parametrize("participants", [1, 3])
def test_extreme_steepness(participants: int, settings: dict[str, Any]) -> None:
    """The sinh overflows or vanishes: reputations are no numbers, and everybody is removed."""
    server = started(participants, lambda weights: 0.8, examples=[10] * participants, **settings)
    rows = uploads(participants, D, seed=1)
    for _ in range(5):
        server.step(rows, range(participants))
    server.load_state_dict(server.state_dict() | {"round": 600})  # with doubling_rounds=1 a steepness of 3005
    verdict = server.step(rows, range(participants))
    assert finite_fraction(verdict) == 1
    assert verdict.members.all()
    close(verdict.reputations, [1 / participants] * participants)


def test_nobody_is_removed_at_0() -> None:
    """With a removal share of 0 the worst is removed; it may stay with a reputation of 0."""
    accuracy, rows = constant(0.0, 0.8, 0.9)
    server = started(3, accuracy, entries=3, upload_share=1.0, removal_share=0.0)
    for _ in range(10):
        verdict = server.step(rows, [0, 1, 2])
    assert verdict.members.all()
    assert verdict.reputations[0] == verdict.quotas[0] == 0


def test_removed_for_ever() -> None:
    """Somebody removed comes back, counts, downloads or is scored; or reputations do not add up to 1 without it."""
    asked: list[int] = []

    def accuracy(weights: Tensor) -> float:
        asked.append(1)
        return waves(steepness=100.0)(weights)

    for compounding in ("released", "none"):
        server = started(10, accuracy, compounding=compounding, removal_share=0.8)
        gone: set[int] = set()
        for now in range(12):
            asked.clear()
            verdict = play(server, uploads(10, D, now))
            assert len(asked) == 10 - len(gone)
            assert gone.isdisjoint(verdict.removed)
            gone |= set(verdict.removed)
            assert {i for i, member in enumerate(verdict.members.tolist()) if not member} == gone
            for i in gone:
                assert verdict.weights[i] == verdict.reputations[i] == verdict.quotas[i] == 0
                assert torch.equal(verdict.download(i), torch.zeros(D))
            assert verdict.reputations.sum().item() == pytest.approx(1)
        assert 2 < len(gone) < 10


def test_who_is_removed_does_not_count_at_once() -> None:
    """The upload that cost somebody its membership is still in the step or in the server's model."""
    accuracy, rows = constant(0.0, 0.8, 0.9)
    server = started(3, accuracy, entries=3, upload_share=1.0)
    verdict = server.step(rows, [0, 1, 2])
    assert verdict.removed == (0,)
    assert verdict.weights.tolist() == [0, 1, 1]
    close(server.model, [0, 0.01, 0.01], 1e-7)


def test_threshold_goes_by_the_members() -> None:
    """The threshold is not removal_share / |R| with R as it was before the round's removals."""
    # Of twelve, equal but for the first: c_0 is 0.5 / 12 against thresholds of 0.4 / 12 and 0.6 / 12.
    for share, expected in ((0.4, 12), (0.6, 11)):
        low = math.asinh(math.sinh(0.2 * 1e-3 / 12) / 2) / 0.2 * 12e3  # steepness 1e-3: sinh is as good as straight
        accuracy, rows = constant(low, *[1.0] * 11)
        server = started(12, accuracy, entries=12, upload_share=1.0, removal_share=share, steepness=1e-3)
        assert int(server.step(rows, range(12)).members.sum()) == expected


def scaled(level: Sequence[float]) -> Accuracy:
    """An accuracy that `level` scales from outside."""
    return lambda weights: level[0] * waves()(weights)


def test_scores_of_zero_leave_reputations() -> None:
    """Where no upload is of any use reputations change, somebody is removed, or the round is not a number."""
    for compounding in ("released", "none"):
        for earlier in (0, 2):
            level = [0.5]
            server = started(5, scaled(level), compounding=compounding)
            before = torch.zeros(5)
            for now in range(earlier):
                before = play(server, uploads(5, D, now)).reputations
            level[0] = 0.0
            verdict = play(server, uploads(5, D, seed=9))
            assert verdict.removed == ()
            assert finite_fraction(verdict) == 1
            close(verdict.reputations, before, 1e-12)


@pytest.mark.parametrize(
    ("participants", "settings", "warned"),
    [
        (5, {}, True),
        (6, {}, False),
        (10, {"steepness": 8.91}, True),
        (10, {"steepness": 8.89}, False),
        (1, {}, True),
        (5, {"compounding": "none"}, False),
    ],
    ids=str,
)
def test_warns_of_growing_gaps(participants: int, settings: dict[str, Any], warned: bool) -> None:
    """Above a steepness of 0.89 per participant nothing is said, or below it or without compounding something is."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        started(participants, **settings)
    assert [part in str(warning.message) for warning in caught for part in ("--server.steepness", "0.89")] == (
        [True, True] if warned else []
    )


def test_refuses_a_task_without_accuracy() -> None:
    """Without validation examples the run begins, or the message does not say where they come from."""
    assert_refused(lambda: CFFL().start(task(shards(5), LAYERS)), "--data.validation", "CFFL", "--server")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("upload_share", 0.0),
        ("upload_share", -0.1),
        ("upload_share", 1.1),
        ("upload_share", math.nan),
        ("bound", 0.0),
        ("bound", -0.01),
        ("bound", math.nan),
        ("steepness", 0.0),
        ("steepness", -5.0),
        ("steepness", math.nan),
        ("steepness", math.inf),
        ("doubling_rounds", 0),
        ("doubling_rounds", -3),
        ("removal_share", -0.1),
        ("removal_share", 1.1),
        ("removal_share", math.nan),
    ],
)
def test_refuses(option: str, value: float) -> None:
    """A value without a meaning gets through to the first round, or the message does not name the option."""
    settings: dict[str, Any] = {option: value}
    assert_refused(lambda: CFFL(**settings), f"--server.{option}", str(value))
