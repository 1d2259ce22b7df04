"""q-FFL against the paper's quotient in float64, round by round, and whom it draws."""

import math
import warnings
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from rffl_pl.servers import QFFL, Verdict
from tests.functional.reference import (
    Q_AFTER,
    Q_BEFORE,
    Q_LOSSES,
    close,
    random_losses,
    reference_fedavg,
    reference_q_fedavg,
    uploads,
)
from tests.servers.tasks import (
    assert_equal,
    assert_refused,
    downloads,
    every_kind,
    finite_fraction,
    shards,
    spoil,
    task,
    through_file,
)

RATE = 0.15
every_q = pytest.mark.parametrize("q", [0, 0.1, 1, 5])


def started(examples: Sequence[int], entries: int, *, seed: int = 1, rate: float = RATE, **settings: Any) -> QFFL:
    """A server before its first round."""
    server = QFFL(**settings)
    server.start(task(examples, [entries], learning_rate=rate, seed=seed))
    return server


def rounds(participants: int, entries: int, count: int, seed: int) -> list[tuple[Tensor, list[int], Tensor]]:
    """Uploads, senders and losses of some rounds; in some, somebody is missing."""
    return [
        (
            uploads(participants, entries, 1000 * seed + now),
            [i for i in range(participants) if now == 0 or i != (now + seed) % participants],
            random_losses(participants, 1000 * seed + now),
        )
        for now in range(count)
    ]


def drawn(verdict: Verdict) -> list[int]:
    """Whoever weighs something."""
    return verdict.weights.nonzero().flatten().tolist()


@every_q
@pytest.mark.parametrize("step_rate", [None, 0.02])
@pytest.mark.parametrize(("participants", "entries"), [(2, 7), (5, 53), (12, 53)])
def test_full(participants: int, entries: int, step_rate: float | None, q: float) -> None:
    """The step of some round is not the quotient with p_i in both sums, over those who sent, at L = 1 / rate."""
    sizes = shards(participants)
    for seed in range(3):
        server = started(sizes, entries, q=q, step_rate=step_rate)
        for rows, senders, losses in rounds(participants, entries, 5, seed):
            verdict = server.step(rows[senders], senders, losses)
            here, shares = rows[senders].tolist(), [sizes[i] / sum(sizes) for i in senders]
            lipschitz = 1 / (step_rate or RATE)
            h, expected = reference_q_fedavg(here, losses[senders].tolist(), q, lipschitz, shares)
            close(verdict.download(0), expected)
            weights = torch.tensor(shares).double() * lipschitz * (losses[senders] + 1e-10) ** q / h.sum()
            close(verdict.weights[senders], weights)
            assert drawn(verdict) == senders


@every_q
@pytest.mark.parametrize("ratio", [0.01, 0.5, 0.8, 1])
def test_sampled(ratio: float, q: float) -> None:
    """Of those who sent too many or too few are drawn, they do not all count the same, or the others count."""
    for participants in (2, 5, 12):
        server = started(shards(participants), 53, q=q, weights="sampled", sampling_ratio=ratio)
        for rows, senders, losses in rounds(participants, 53, 5, seed=1):
            verdict = server.step(rows[senders], senders, losses)
            chosen = drawn(verdict)
            assert set(chosen) <= set(senders)
            assert len(chosen) == max(1, round(ratio * len(senders)))
            expected = reference_q_fedavg(rows[chosen].tolist(), losses[chosen].tolist(), q, 1 / RATE)[1]
            close(verdict.download(0), expected)


def test_q_0_is_the_mean() -> None:
    """With q = 0 the losses count: it is not FedAvg's mean (full), nor the plain one (all drawn)."""
    for participants in (2, 5, 12):
        for rows, senders, losses in rounds(participants, 53, 3, seed=2):
            weighted = started(shards(participants), 53, q=0).step(rows[senders], senders, losses)
            close(
                weighted.download(0),
                reference_fedavg(rows[senders].tolist(), [shards(participants)[i] for i in senders]),
            )
            plain = started(shards(participants), 53, q=0, weights="sampled", sampling_ratio=1)
            close(plain.step(rows[senders], senders, losses).download(0), rows[senders].double().mean(0))


@pytest.mark.parametrize(
    ("q", "shares", "after"),
    [
        (0, None, (1.000000, 1.866667)),
        (1, None, (1.053333, 1.873333)),
        (0.1, None, (1.010615, 1.865489)),
        (1, [2, 3, 5], (1.046414, 1.877637)),
    ],
)
def test_golden(q: float, shares: list[int] | None, after: tuple[float, float]) -> None:
    """The worked example (servers.md 4.8): q - 1 has another sign, h lacks the square, or p_k is in one sum only."""
    before, losses = torch.tensor(Q_BEFORE), torch.tensor(Q_LOSSES)
    settings = {"weights": "full"} if shares else {"weights": "sampled", "sampling_ratio": 1}
    server = started(shares or [1, 1, 1], 2, rate=0.1, q=q, **settings)
    step = server.step(torch.tensor(Q_AFTER) - before, [0, 1, 2], losses).download(0)
    close(before + step, after, 6e-7)


@every_q
def test_twice_is_double(q: float) -> None:
    """A participant that is there twice does not count as one with twice the examples, or twice without weights."""
    rows, losses, twice = uploads(5, 53, seed=3), random_losses(5, seed=3), [0, 1, 2, 3, 4, 4]
    one = started([10, 20, 30, 40, 100], 53, q=q).step(rows, range(5), losses)
    two = started([10, 20, 30, 40, 50, 50], 53, q=q).step(rows[twice], range(6), losses[twice])
    close(two.download(0), one.download(0))
    close(two.weights[4:].sum(), one.weights[4])
    sampled = started(shards(6), 53, q=q, weights="sampled", sampling_ratio=1)
    h, _ = reference_q_fedavg(rows.tolist(), losses.tolist(), q, 1 / RATE, [1, 1, 1, 1, 2])
    weights = torch.tensor([1, 1, 1, 1, 2]).double() * (losses + 1e-10) ** q / RATE / h.sum()
    close(sampled.step(rows[twice], range(6), losses[twice]).download(0), weights @ rows.double())


@pytest.mark.parametrize("q", [0.1, 1, 5])
def test_units(q: float) -> None:
    """The step depends on the unit of losses, with the learning rate in it, or on that of weights."""
    rows, losses = uploads(5, 53, seed=4), random_losses(5, seed=4)
    step = started(shards(5), 53, q=q).step(rows, range(5), losses).download(0)
    rescaled = started(shards(5), 53, q=q, rate=RATE / 16).step(rows, range(5), 16 * losses)
    close(rescaled.download(0), step)
    longer = started(shards(5), 53, q=q, rate=RATE * 16).step(4 * rows, range(5), losses)
    close(longer.download(0), 4 * step)


def test_higher_losses_weigh_more() -> None:
    """Of equally long uploads of equal shards, whoever has the higher loss does not weigh more."""
    rows = torch.nn.functional.normalize(uploads(7, 53, seed=5))
    losses = random_losses(7, seed=5, low=-1)
    for q in (0.1, 1, 5):
        weights = started([10] * 7, 53, q=q).step(rows, range(7), losses).weights
        assert (weights[losses.argsort()].diff() > 0).all()
        assert weights.sum() < 1


def test_draws_by_shard_sizes() -> None:
    """Who is drawn does not go by the number of examples."""
    sizes, count = [1, 2, 3, 4], 800
    server = started(sizes, 1, q=0, weights="sampled", sampling_ratio=0.25)
    rows, losses = torch.ones(4, 1), torch.ones(4)
    hits = torch.zeros(4)
    for _ in range(count):
        hits[drawn(server.step(rows, range(4), losses))] += 1
    shares = torch.tensor(sizes) / sum(sizes)
    deviations = (hits - count * shares) / (count * shares * (1 - shares)).sqrt()
    assert deviations.abs().max() < 4.5, hits


def test_draws_go_by_seed_and_round() -> None:
    """The same participants are drawn in every round, or others in a second run of the same seed."""

    def draws(seed: int) -> list[list[int]]:
        server = started(shards(10), 7, seed=seed, weights="sampled", sampling_ratio=0.5)
        return [drawn(server.step(rows, range(10), losses)) for rows, _, losses in rounds(10, 7, 12, seed=6)]

    assert draws(1) == draws(1)
    assert draws(1) != draws(2)
    assert len({tuple(chosen) for chosen in draws(1)}) > 6
    assert len(draws(2**63 - 1)) == 12  # the largest seed there is does not overflow in later rounds


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("bad", [[2], [0, 4, 5, 6], [*range(7)]], ids=str)
@pytest.mark.parametrize("settings", [{}, {"weights": "sampled"}], ids=str)
def test_bad_losses_set_uploads_aside(settings: dict[str, Any], bad: list[int], value: float) -> None:
    """An upload whose loss is no number counts, is not named, or makes another step than if it had not been sent."""
    rows, losses, good = uploads(7, 53, seed=7), random_losses(7, seed=7), [i for i in range(7) if i not in bad]
    spoiled = losses.clone()
    spoiled[bad] = value
    verdict = started(shards(7), 53, **settings).step(rows, range(7), spoiled)
    assert verdict.set_aside == tuple(bad)
    assert finite_fraction(verdict) == 1
    assert verdict.members.all()
    assert_equal(verdict, started(shards(7), 53, **settings).step(rows[good], good, losses))
    if not good:
        assert not downloads(verdict).any()


def test_losses_of_the_missing_do_not_count() -> None:
    """Somebody who did not send is set aside for its loss, or changes the step by it."""
    rows, losses, senders = uploads(5, 53, seed=8), random_losses(5, seed=8), [0, 2, 3]
    expected = started(shards(5), 53).step(rows[senders], senders, losses)
    for value in (math.nan, math.inf, 0.0, 1e30):
        losses[[1, 4]] = value
        verdict = started(shards(5), 53).step(rows[senders], senders, losses)
        assert verdict.set_aside == ()
        assert_equal(verdict, expected)


@every_kind
@pytest.mark.parametrize("q", [0.1, 1])
def test_bad_uploads_beside_bad_losses(q: float, kind: str) -> None:
    """Who has both or either is named twice, out of order, or not at all."""
    rows, losses = spoil(uploads(7, 53, seed=9), [1, 4], kind), random_losses(7, seed=9)
    losses[[1, 6]] = math.nan
    verdict = started(shards(7), 53, q=q).step(rows, range(7), losses)
    assert verdict.set_aside == (1, 4, 6)
    assert finite_fraction(verdict) == 1
    good = [0, 2, 3, 5]
    assert_equal(verdict, started(shards(7), 53, q=q).step(rows[good], good, losses))


@pytest.mark.parametrize("q", [0, 0.1, 1, 5, 100])
@pytest.mark.parametrize("losses", [[0.0] * 4, [0, 1e-30, 1, 5], [1e300] * 4, [1e300, 1, 2, 3], [-0.5, -1e-9, 0, 1]])
def test_steps_are_finite_for_any_loss(losses: list[float], q: float) -> None:
    """A loss of 0, below it or near overflow makes a step that is no number."""
    server = started(shards(4), 53, q=q)
    for now in range(3):
        rows = uploads(4, 53, seed=now) * (0 if now == 2 else 1)
        verdict = server.step(rows, range(4), torch.tensor(losses, dtype=torch.float64))
        assert finite_fraction(verdict) == 1
        assert verdict.set_aside == ()


@pytest.mark.parametrize("weights", ["full", "sampled"])
def test_resumes_to_the_same_bits(weights: Any) -> None:
    """A run that was interrupted after any round goes on otherwise than one that was not, e.g. draws others."""
    played = rounds(8, 53, 6, seed=10)
    whole = started(shards(8), 53, weights=weights)
    saved, verdicts = [whole.state_dict()], []
    for rows, senders, losses in played:
        verdicts.append(whole.step(rows[senders], senders, losses))
        saved.append(whole.state_dict())
    for done in range(6):
        resumed = started(shards(8), 53, weights=weights)
        resumed.load_state_dict(through_file(saved[done]))
        for (rows, senders, losses), verdict in zip(played[done:], verdicts[done:], strict=True):
            assert_equal(resumed.step(rows[senders], senders, losses), verdict)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("q", -0.1),
        ("q", math.nan),
        ("sampling_ratio", 0.0),
        ("sampling_ratio", -0.5),
        ("sampling_ratio", 1.01),
        ("sampling_ratio", math.nan),
        ("step_rate", 0.0),
        ("step_rate", -0.1),
        ("step_rate", math.nan),
        ("step_rate", math.inf),
    ],
)
def test_refuses(option: str, value: float) -> None:
    """A value without a meaning gets through to the first round, or the message does not name the option."""
    settings: dict[str, Any] = {option: value}
    assert_refused(lambda: QFFL(**settings), f"--server.{option}", str(value))


@pytest.mark.parametrize("rate", [0.0, -0.1])
def test_refuses_a_task_without_a_learning_rate(rate: float) -> None:
    """L is the inverse of nothing, or the way out is not named; with a rate of its own it need not refuse."""
    assert_refused(lambda: started([1, 1], 3, rate=rate), "--server.step_rate", str(rate))
    assert started([1, 1], 3, rate=rate, step_rate=0.1).round == 0


def test_asks_for_losses() -> None:
    """Participants do not measure what the rule goes by."""
    assert QFFL.hears_losses


def test_a_learning_rate_that_is_no_gradients_is_told() -> None:
    """Under Adam, whose rate is a length per entry, a run would train next to nothing and say nothing."""
    adam = task(shards(5), [53], learning_rate=1e-4, optimizer="Adam")
    with pytest.warns(UserWarning, match=r"L is 1/0\.0001 of Adam's learning rate.* --server\.step_rate 0\.1"):
        QFFL().start(adam)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        QFFL(q=0).start(adam)
        QFFL(step_rate=0.1).start(adam)
        QFFL().start(task(shards(5), [53], learning_rate=1e-4))
