"""Rounds in which only some members are asked: who is judged, what is kept, what is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from rffl_pl.servers import (
    ARC,
    CFFL,
    FLAME,
    NNM,
    RFFL,
    Bucketing,
    Bulyan,
    CenteredClipping,
    DnC,
    FedAvg,
    FedMGDA,
    FedOpt,
    FLTrust,
    FoolsGold,
    Median,
    MultiKrum,
    NormBound,
    Server,
    SignSGD,
    Standalone,
)
from tests.functional.reference import uploads
from tests.servers.tasks import assert_equal, assert_refused, shards, task, through_file

ENTRIES = 53
NAN = math.nan
presets = pytest.mark.parametrize("preset", ["released", "paper", "altruism", "guarded"])


def started(server: Any, participants: int = 6, participation: float = 0.5) -> Any:
    """A server before its first round."""
    server.start(
        task(shards(participants), [ENTRIES], participation=participation, initial=torch.linspace(-1, 1, ENTRIES))
    )
    return server


def asked(members: Tensor, now: int, count: int = 3) -> list[int]:
    """Some of the members, others in every round."""
    here = members.nonzero().flatten()
    order = torch.randperm(len(here), generator=torch.Generator().manual_seed(now))
    return sorted(here[order[:count]].tolist())


@pytest.mark.filterwarnings("ignore:Round .*no positive sum")  # of three, one against two, who leave themselves out
@presets
def test_who_is_not_asked_keeps_its_reputation_exactly(preset: Any) -> None:
    """A round moves the reputation of somebody who was not asked by one bit, removes it, or the sum is not 1."""
    server = started(RFFL(preset=preset, alpha=0.7, removal_from=2))
    removed = 0
    for now in range(40):
        before, members = server.reputations.clone(), server.members
        here = asked(members, now)
        rows = uploads(6, ENTRIES, now) + 0.5
        rows[0] = -rows[1:].mean(0)
        verdict = server.step(rows[here], here)
        elsewhere = [i for i in range(6) if i not in here]
        survivors = [i for i in here if verdict.members[i]]
        if survivors and before[elsewhere].sum() < 1:  # more where a member's is negative
            assert torch.equal(verdict.reputations[elsewhere], before[elsewhere])
        assert torch.equal(verdict.members[elsewhere], members[elsewhere])
        assert set(verdict.removed) <= set(here)
        assert verdict.similarities[elsewhere].isnan().all()
        assert verdict.reputations.sum().item() == pytest.approx(1)
        removed += len(verdict.removed)
    assert 0 < removed < 6


@presets
def test_first_reputations_are_the_first_weights(preset: Any) -> None:
    """Whoever is asked later starts behind, or the weights of a round do not add up to 1 over those who are asked."""
    server = started(RFFL(preset=preset))
    first = torch.full((6,), 1 / 6) if preset in ("paper", "guarded") else torch.tensor(shards(6)) / sum(shards(6))
    torch.testing.assert_close(server.reputations, first.double(), rtol=1e-6, atol=0)
    verdict = server.step(uploads(6, ENTRIES, 1)[[1, 4]], [1, 4])
    assert verdict.weights.nonzero().flatten().tolist() == [1, 4]
    expected = first.double()[[1, 4]] / first.double()[[1, 4]].sum()
    torch.testing.assert_close(verdict.weights[[1, 4]], expected, rtol=1e-6, atol=0)


def test_removal_counts_the_rounds_in_which_one_was_scored() -> None:
    """Somebody is removed before it was scored `removal_from` times, or in a round in which it was not asked."""
    server = started(RFFL(removal_from=3, alpha=0.0), participants=4)
    good = uploads(1, ENTRIES, 1)[0]
    rows = torch.stack([good, good, good, -good])
    gone = []
    for now in range(8):
        here = [0, 1, 3] if now % 2 else [0, 1, 2]  # participant 3 is asked in rounds 1, 3, 5 and 7
        here = [i for i in here if server.members[i]]
        gone.append(server.step(rows[here], here).removed)
    assert gone == [(), (), (), (), (), (), (), (3,)]


def test_with_everybody_asked_nothing_changes() -> None:
    """That members could miss rounds changes the bits of rounds in which none does."""
    plain, partial = RFFL(preset="paper"), RFFL(preset="paper")
    started(plain, participation=1.0)
    started(partial, participation=0.99)
    for now in range(8):
        here = plain.members.nonzero().flatten().tolist()
        rows = uploads(6, ENTRIES, now)[here]
        assert_equal(plain.step(rows, here), partial.step(rows, here))


RULES: dict[str, Callable[[], Server]] = {
    "fedavg": FedAvg,
    "fltrust": FLTrust,
    "fed_opt": lambda: FedOpt(rule=CenteredClipping()),
    "median": Median,
    "centered_clipping": CenteredClipping,
    "nnm": lambda: NNM(rule=CenteredClipping()),
    "arc": lambda: ARC(rule=NNM(rule=CenteredClipping())),
    "bucketing": lambda: Bucketing(rule=CenteredClipping()),
    "krum": lambda: MultiKrum(byzantine=0),
    "norm_bound": lambda: NormBound(noise=0.1),
    "flame": FLAME,
    "bulyan": Bulyan,
    "dnc": DnC,
    "fed_mgda": FedMGDA,
    "foolsgold": FoolsGold,
    "sign_sgd": SignSGD,
}


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_whoever_missed_rounds_gets_the_model_of_the_others(rule: Callable[[], Server]) -> None:
    """The server's model is not to the bit that of a participant that took part in every round, or is lost on disk."""
    server = started(rule())
    model = torch.linspace(-1, 1, ENTRIES)
    for now in range(6):
        if now == 3:
            state = through_file(server.state_dict())
            server = started(rule())
            server.load_state_dict(state)
        here = asked(server.members, now)
        verdict = server.step(uploads(6, ENTRIES, now)[here].sign(), here)
        model = model + torch.zeros(ENTRIES) + verdict.download(here[0])
        missed = next(i for i in range(6) if i not in here)
        handed = server.model_for(missed)
        assert handed is not None
        assert torch.equal(handed, model)
        assert all(server.model_for(i) is None for i in here)  # they took the step themselves
        assert verdict.weights.nonzero().flatten().tolist() == here or isinstance(server, FLAME | FoolsGold | FLTrust)
        assert verdict.download(0) is verdict.download(5)


def test_who_has_a_model_of_its_own_starts_from_it() -> None:
    """Somebody is handed another's model where everybody has its own, or where nobody ever misses a round."""
    assert started(RFFL()).model_for(0) is None
    assert started(FedAvg(variant="released")).model_for(0) is None
    assert started(NNM(rule=FedAvg(variant="released"))).model is None
    assert started(NNM(rule=FedAvg())).model is not None
    assert started(FedAvg(), participation=1.0).model_for(0) is None
    assert "model" not in started(FedAvg(), participation=1.0).state_dict()


def test_krums_f_is_of_those_who_are_asked() -> None:
    """The default f is a fifth of all, or one that the asked do not allow gets through."""
    server = started(MultiKrum(), participants=20)
    rows = uploads(20, ENTRIES, 1)[:10]
    assert server.step(rows, list(range(10))).weights.count_nonzero() == 8  # 10 asked: f = 2
    named = ("--server.byzantine", "by --federation.participation or --federation.coalition", "f = 2", "P = 5 of 20")
    assert_refused(lambda: started(MultiKrum(byzantine=2), 20, 0.25), *named)
    assert_refused(lambda: started(MultiKrum(), 20, 0.1), "Expected P = 3 uploads in a round or more", "P = 2 of 20")
    assert_refused(lambda: started(MultiKrum(selected=6), 10, 0.5), "--server.selected", "1 .. 5")


@pytest.mark.parametrize("rule", [CFFL, Standalone])
@pytest.mark.filterwarnings("ignore:--server.steepness")
def test_refused_where_it_has_no_meaning(rule: Callable[[], Server]) -> None:
    """CFFL, whose scores are shares over all members, or Standalone starts with members who miss rounds."""

    def attempt() -> None:
        rule().start(task(shards(6), [ENTRIES], participation=0.5, accuracy=lambda weights: 0.5))

    assert_refused(attempt, "--federation.participation", "got 0.5", rule.__name__)


@pytest.mark.filterwarnings("ignore:Round .*tells anything")
@presets
def test_resumes_to_the_same_bits(preset: Any) -> None:
    """Who was scored how often, or has told something, is lost in a checkpoint."""

    def play(server: RFFL, now: int) -> Any:
        here = asked(server.members, now)
        rows = uploads(6, ENTRIES, now)[here] * (0.0 if now % 5 == 4 else 1.0)
        return server.step(rows, here)

    whole = started(RFFL(preset=preset, alpha=0.7, removal_from=2))
    saved = [through_file(whole.state_dict())]
    verdicts = []
    for now in range(14):
        verdicts.append(play(whole, now))
        saved.append(through_file(whole.state_dict()))
    for done in (0, 3, 9):
        resumed = started(RFFL(preset=preset, alpha=0.7, removal_from=2))
        resumed.load_state_dict(saved[done])
        for now in range(done, 14):
            assert_equal(play(resumed, now), verdicts[now])


@pytest.mark.parametrize(("there", "here"), [(1.0, 0.5), (0.5, 1.0)])
def test_refuses_a_checkpoint_of_another_participation(there: float, here: float) -> None:
    """Whoever missed a round gets the initial model, or never the others', or the option is not named."""
    state = through_file(started(FedAvg(), participation=there).state_dict())
    assert_refused(
        lambda: started(FedAvg(), participation=here).load_state_dict(state),
        "--federation.participation",
        "config.yaml",
    )


def test_refuses_a_checkpoint_of_another_variant() -> None:
    """Models that differ stay apart under the variant that has one."""
    state = through_file(started(FedAvg(variant="released"), participation=1.0).state_dict())
    assert_refused(
        lambda: started(FedAvg(), participation=1.0).load_state_dict(state), "--server.variant", "released", "fedavg"
    )
