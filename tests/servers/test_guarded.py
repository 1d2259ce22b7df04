"""What the guards are for: adversaries take nothing, and nobody honest pays for them."""

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor

from rffl_pl.adversaries import Adversary, DeltaWeights, FreeRider, Replay, Sybil
from rffl_pl.errors import UserError
from rffl_pl.servers import RFFL
from tests.runs import federate
from tests.servers.tasks import task

ENTRIES = 4000


def updates(now: int, honest: int, noise: int, strength: float = 1.0) -> Tensor:
    """A round of updates with a common direction, which the last ones do not have."""
    generator = torch.Generator().manual_seed(now)
    common = strength * torch.randn(ENTRIES, generator=generator)
    own = torch.randn(honest + noise, ENTRIES, generator=generator)
    own[:honest] += common
    return own


def started(participants: int, **settings: Any) -> RFFL:
    """A guarded server before its first round; the first participant has a hundredth of the others' examples."""
    server = RFFL(preset="guarded", **settings)
    server.start(task([1] + [100] * (participants - 1), [ENTRIES]))
    return server


def step(server: RFFL, rows: Tensor) -> Any:
    """One round of all members."""
    senders = server.members.nonzero().flatten().tolist()
    return server.step(rows[senders], senders)


@pytest.mark.parametrize("length", [1e-3, 1.0, 1e3])
def test_noise_is_removed_and_takes_nothing(length: float) -> None:
    """Noise of some length downloads an entry, stays for long, or costs an honest member its place."""
    server = started(6)
    for now in range(25):
        rows = updates(now, 5, 1)
        rows[5] *= length
        verdict = step(server, rows)
        assert not verdict.download(5).any()
    assert server.members.tolist() == [True] * 5 + [False]


@pytest.mark.parametrize("clones", [2, 4, 9])
def test_clones_count_once(clones: int) -> None:
    """Free-riders who agree with each other download something, even where they are the majority."""
    server = started(5 + clones)
    for now in range(25):
        rows = updates(now, 5, clones)
        rows[6:] = rows[5] * torch.rand(clones - 1, 1)
        verdict = step(server, rows)
        assert not any(verdict.download(i).any() for i in range(5, 5 + clones))
    assert server.members.tolist() == [True] * 5 + [False] * clones


def test_nobody_is_removed_without_evidence() -> None:
    """Late rounds whose uploads have next to nothing in common remove nobody; by reputation alone they do."""
    plain, guarded = started(6, alpha=0.2, removal_confidence="off"), started(6, alpha=0.2)
    for now in range(60):
        rows = updates(now, 6, 0, strength=1.0 if now < 10 else 0.02)
        step(plain, rows)
        step(guarded, rows)
    assert not plain.members.all()
    assert guarded.members.all()


def test_reputation_of_long_ago_pays_for_nothing() -> None:
    """Whoever turns goes on downloading as before, while its reputation is still half of the highest."""
    plain, guarded = started(6, short_memory="off"), started(6)
    for now in range(17):
        rows = updates(now, 6 if now < 12 else 5, 0 if now < 12 else 1)
        without, with_it = step(plain, rows), step(guarded, rows)
    assert without.quotas[5] > 0.3
    assert with_it.quotas[5] < 0.05
    assert with_it.quotas[:5].min() > 0.5


@pytest.mark.parametrize("worked", [1, 3, 10])
def test_silence_is_paid_no_longer_than_work_was(worked: int) -> None:
    """Whoever sends zeros downloads for ever, or not as often as it told something, or is never paid again."""
    plain, guarded = started(6, short_memory="off"), started(6)
    told = 0
    for now in range(2 * worked + 6):
        tells = now < worked or now > 2 * worked + 1  # silent in two rounds too many, then at work again
        told += tells
        rows = updates(now, 6, 0)
        rows[5] *= tells
        without, with_it = step(plain, rows), step(guarded, rows)
        assert without.quotas[5] > 0.5
        assert (with_it.quotas[5] > 0) == (now + 1 - told <= told)
        assert (with_it.quotas[:5] > 0.5).all()
    assert with_it.quotas[5] > 0.5
    assert guarded.members.all()


@pytest.mark.filterwarnings("ignore:Round .*one upload at most tells anything")
def test_rounds_in_which_nobody_tells_anything_are_no_silence() -> None:
    """Where all have come to an end for a while, nobody is paid for going on."""
    server = started(6)
    for now in range(30):
        verdict = step(server, updates(now, 6, 0) * (now < 3 or now == 29))
    assert (verdict.quotas > 0.5).all()


@pytest.mark.filterwarnings("ignore:Round .*one upload at most tells anything")
@pytest.mark.parametrize("repeated", [False, True])
def test_who_alone_still_learns_loses_nothing(repeated: bool) -> None:
    """The largest shard, the last to be learnt by heart, is paid nothing in the end, or the others are for its sake."""
    server = started(6)
    for now in range(12):
        before = step(server, updates(now, 6, 0))
    for now in range(12, 40):
        rows = updates(now, 6, 0)
        rows[:4] = 0
        rows[4] = 2 * rows[5] if repeated else 0
        verdict = step(server, rows)
        assert verdict.similarities[5].isnan()
        torch.testing.assert_close(verdict.quotas, before.quotas, rtol=0, atol=0)
        torch.testing.assert_close(verdict.reputations, before.reputations, rtol=0, atol=0)
        assert verdict.download(0).any()
    assert server.members.all()


def test_whose_silence_has_ended_its_downloads_caps_nobody() -> None:
    """Everybody's quota is a share of what somebody once had who tells nothing any more."""
    server = started(6)
    for now in range(30):
        rows = updates(now, 6, 0, strength=1.0 if now < 4 else 0.2)
        rows[5] *= now < 4
        verdict = step(server, rows)
    assert verdict.quotas[5] == 0
    assert verdict.quotas.max() > 0.9


@pytest.mark.parametrize(
    ("share", "honest", "clones", "paid"),
    [(None, 6, 4, "both"), (0.5, 6, 4, "honest"), (0.5, 4, 7, "clones")],
)
def test_who_confirms_itself(share: float | None, honest: int, clones: int, paid: str) -> None:
    """Clones that differ download as the minority where half of the others have to agree, or the honest do not."""
    server = started(honest + clones, confirmed_by=share, removal_from="never", duplicates="each")
    generator = torch.Generator().manual_seed(1000)
    for now in range(12):
        shared = torch.randn(ENTRIES, generator=generator)  # of the clones, and new in every round
        rows = updates(now, honest, clones)
        rows[honest:] = 2 * shared + rows[honest:]
        verdict = step(server, rows)
    assert server.trust.confirmations is not None
    confirmed = server.trust.confirmations.confirmed.tolist()
    assert confirmed == [paid != "clones"] * honest + [paid != "honest"] * clones
    assert [bool(q > 0) for q in verdict.quotas.tolist()] == confirmed


@pytest.mark.parametrize(("participants", "share"), [(6, 0.34), (6, 0.17), (6, 0.5), (2, 1.0)])
def test_too_few_to_tell_a_free_rider_by(participants: int, share: float) -> None:
    """With one or two that are asked in a round nobody says that the guards see nothing."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        RFFL(preset="guarded").start(task([100] * participants, [ENTRIES], participation=share))
    assert ["ask three at least" in str(warning.message) for warning in caught] == [True] * (share < 0.4)


def test_whoever_was_confirmed_stays_and_can_come_back() -> None:
    """Somebody whose examples say nothing new any more is removed or goes on downloading, or never downloads again."""
    server = started(6)
    for now in range(90):
        silent = 12 <= now < 50
        verdict = step(server, updates(now, 5 if silent else 6, 1 if silent else 0))
        if 40 <= now < 50:
            assert verdict.quotas[5] == 0
    assert server.members.all()
    assert verdict.quotas[5] > 0.5


def test_whoever_works_against_the_others_is_removed() -> None:
    """A participant that was confirmed and then sends the opposite stays, or takes anybody with it."""
    server = started(6)
    reasons: dict[int, str] = {}
    for now in range(40):
        rows = updates(now, 6, 0)
        rows[5] *= 1 if now < 12 else -1
        reasons |= step(server, rows).reasons
    assert server.members.tolist() == [True] * 5 + [False]
    assert "less than -0.5 is too little" in reasons[5]


def test_probation_lasts_as_said_and_until_confirmed() -> None:
    """Somebody downloads before the rounds are over, or never after them; or once confirmed has to begin again."""
    server = started(4, probation=3)
    for now in range(5):
        verdict = step(server, updates(now, 4, 0))
        assert bool((verdict.quotas > 0).all()) == (now >= 2)


def test_one_ally_confirms_nobody() -> None:
    """Two of eight who agree with each other, though less than clones, download something."""
    server = started(8)
    for now in range(25):
        rows = updates(now, 6, 2)
        rows[7] = 0.8 * rows[6] + 0.6 * rows[7]
        verdict = step(server, rows)
        assert not verdict.quotas[6:].any()


def test_why_somebody_was_removed() -> None:
    """The reason does not name contribution, bound, confidence and limit."""
    server = started(6)
    reasons: dict[int, str] = {}
    for now in range(25):
        reasons |= step(server, updates(now, 5, 1)).reasons
    assert list(reasons) == [5]
    for words in (
        "it contributed ",
        "of what the mean member does",
        "confidence of 0.999",
        "less than 0.1 is too little",
    ):
        assert words in reasons[5]
    assert "orthogonal" not in reasons[5]


def test_a_right_removal_is_not_called_wrong() -> None:
    """Where the honest have little in common, squared similarities add up to less than 1 without one's own upload.

    The user is told to keep everybody, the free-rider too.
    """
    common, server = torch.randn(ENTRIES, generator=torch.Generator().manual_seed(9)), started(6)
    reasons: dict[int, str] = {}
    for now in range(25):
        apart = torch.randn(5, ENTRIES, generator=torch.Generator().manual_seed(now))
        noise = torch.rand(1, ENTRIES, generator=torch.Generator().manual_seed(100 + now)) * 2 - 1
        reasons |= server.step(torch.cat([0.5 * common + apart, noise]), range(6)).reasons
    assert list(reasons) == [5]
    assert "it contributed" in reasons[5]
    assert "never" not in reasons[5]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("probation", -1),
        ("confirmed_by", 0.0),
        ("confirmed_by", 1.5),
        ("removal_confidence", 0.5),
        ("removal_confidence", 1.0),
        ("removal_confidence", float("nan")),
        ("short_memory", 1.0),
        ("gamma", float("inf")),
    ],
)
def test_guards_out_of_range(option: str, value: Any) -> None:
    """A guard that cannot work is accepted, or the sentence does not name the option and the value."""
    with pytest.raises(UserError, match=f"Expected --server.{option} .*{value}"):
        RFFL(preset="guarded", **{option: value})


@pytest.mark.parametrize("settings", [{"preset": "released"}, {"preset": "guarded", "probation": 0}])
def test_a_share_that_confirms_nobody(settings: dict[str, Any]) -> None:
    """It is searched over in vain."""
    with pytest.raises(
        UserError, match=r"--server\.probation 1 with --server\.confirmed_by, but got 0, which has nobody"
    ):
        RFFL(confirmed_by=0.5, **settings)
    assert RFFL(confirmed_by=0.5, **settings | {"probation": 1}).switches.confirmed_by == 0.5


def test_a_past_that_weighs_all_where_there_is_none() -> None:
    """Reputations that are 0 for ever have a participant removed for the few examples it has."""
    for preset in ("released", "altruism"):
        with pytest.raises(
            UserError, match=r"--server\.alpha below 1 with --server\.first_weights examples, where rep"
        ):
            RFFL(preset=preset, alpha=1)
    for settings in ({"preset": "guarded"}, {"preset": "released", "first_weights": "uniform"}):
        RFFL(alpha=1, **settings)  # type: ignore[arg-type]  # names that it has


def test_released_falls_to_one_free_rider() -> None:
    """The measured takeover is not one any more: then the documentation has to say so."""
    released = RFFL(preset="released")
    federate(released, [FreeRider()], rounds=36, examples_per_participant=40)
    assert released.members.tolist() == [False] * 5 + [True]


@pytest.mark.parametrize(
    "attacks",
    [[FreeRider()], [FreeRider(scale=0.003), Replay()], [DeltaWeights(), DeltaWeights(noise=1.0)], [Sybil(), Sybil()]],
    ids=["noise", "small noise and replay", "delta weights", "clones"],
)
def test_guarded_pays_nobody_who_does_not_train(attacks: list[Adversary]) -> None:
    """An adversary that does nothing has another model in the end than in the beginning, or an honest member goes."""
    guarded = RFFL(preset="guarded")
    module = federate(guarded, attacks, rounds=16, examples_per_participant=40)
    assert guarded.members.tolist() == [True] * 5 + [False] * len(attacks)
    initial = module.initial_weights()
    assert all(torch.equal(weights, initial) for weights in module.cohort.weights[5:])
    assert not any(torch.equal(weights, initial) for weights in module.cohort.weights[:5])
