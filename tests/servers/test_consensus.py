"""The servers with one model: FedAvg's and the median's steps, the laws of each, bad uploads and resuming.

What is one server's alone stands in files of their names, such as ``test_q_ffl.py`` and ``test_sign_sgd.py``.
"""

import inspect
import itertools
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.optim import SGD, Adam

import rffl_pl.servers
from rffl_pl.servers import (
    AFL,
    ARC,
    FLAME,
    NNM,
    QFFL,
    TERM,
    Bucketing,
    Bulyan,
    CenteredClipping,
    DnC,
    FedAvg,
    FedMGDA,
    FedOpt,
    FLTrust,
    FoolsGold,
    GeometricMedian,
    Median,
    MultiKrum,
    NormBound,
    Server,
    SignSGD,
    TrimmedMean,
    Verdict,
)
from tests.functional.reference import close, permuted, reference_fedavg, reference_median, uploads
from tests.servers.tasks import assert_equal, every_kind, finite_fraction, sent, shards, spoil, task, through_file

RULES: dict[str, Callable[[], Server]] = {
    "fedavg": FedAvg,
    "fedavg-released": lambda: FedAvg(variant="released"),
    "fltrust": FLTrust,
    "fed_opt": lambda: FedOpt(optimizer=partial(SGD, lr=1.0)),
    "fed_opt-momentum-nnm": lambda: FedOpt(rule=NNM()),
    "fed_opt-adam": lambda: FedOpt(rule=Median(), optimizer=partial(Adam, lr=0.1, eps=1e-3)),
    "median": Median,
    "trimmed_mean": TrimmedMean,
    "geometric_median": GeometricMedian,
    "centered_clipping": CenteredClipping,
    "centered_clipping-0.5": lambda: CenteredClipping(radius=0.5),
    "norm_bound": NormBound,
    "norm_bound-0.5": lambda: NormBound(max_norm=0.5),
    "flame": lambda: FLAME(noise_factor=0),
    "flame-uploads": lambda: FLAME(compare="uploads", noise_factor=0),
    "dnc": DnC,
    "fed_mgda": FedMGDA,
    "fed_mgda-1-0.5": lambda: FedMGDA(slack=1, length=0.5),
    "dnc-1-1.5": lambda: DnC(byzantine=1, filtering=1.5),
    "nnm-median": NNM,
    "nnm-krum": lambda: NNM(rule=MultiKrum()),
    "arc-median": ARC,
    "arc-nnm-trimmed_mean": lambda: ARC(rule=NNM(rule=TrimmedMean())),
    "bucketing-median": Bucketing,
    "krum": lambda: MultiKrum(selected=1),
    "multi_krum": MultiKrum,
    "bulyan": Bulyan,
    "foolsgold": FoolsGold,
    "foolsgold-sum": lambda: FoolsGold(scale="sum"),
    "afl": AFL,
    "afl-5": lambda: AFL(rate=5),
    "term": TERM,
    "term-3-away": lambda: TERM(tilt=-3),
    "q_ffl-0": lambda: QFFL(q=0),
    "q_ffl-0.1": lambda: QFFL(q=0.1),
    "q_ffl-1": lambda: QFFL(q=1),
    "q_ffl-0.1-sampled": lambda: QFFL(q=0.1, weights="sampled"),
    "q_ffl-1-sampled": lambda: QFFL(q=1, weights="sampled"),
    "q_ffl-1-sampled-all": lambda: QFFL(q=1, weights="sampled", sampling_ratio=1),
    "sign_sgd": SignSGD,
    "sign_sgd-literal": lambda: SignSGD(setting="literal"),
}


def rules(*left_out: str) -> pytest.MarkDecorator:
    """All rules but those for which a law does not hold, by the beginning of their names."""
    assert all(any(name.startswith(prefix) for name in RULES) for prefix in left_out)
    names = [name for name in RULES if not name.startswith(left_out)]
    return pytest.mark.parametrize("rule", [RULES[name] for name in names], ids=names)


every_rule = rules()
every_size = pytest.mark.parametrize(
    ("m", "entries", "seed"), [(m, d, 100 * m + d) for m in range(3, 13) for d in (1, 7, 53)]
)
cannot_tell_apart = pytest.mark.filterwarnings("ignore:Round .*FoolsGold cannot tell uploads apart")
PARTICIPANTS_AT_MOST = 12


def started(server: Server, examples: Sequence[int], entries: int) -> Server:
    """The server before its first round."""
    server.start(task(examples, [entries]))
    return server


def reported(server: Server, participants: int, now: int = 0) -> Tensor | None:
    """Losses between 0.05 and 4 in the order of participants, if the server hears them."""
    generator = torch.Generator().manual_seed(now)
    losses = 0.05 + 4 * torch.rand(PARTICIPANTS_AT_MOST, generator=generator, dtype=torch.float64) ** 2
    return losses[:participants] if server.hears_losses else None


def play(server: Server, rows: Tensor, senders: Sequence[int], now: int = 0) -> Verdict:
    """One round of a server; whoever is missing reports a loss all the same, which counts for nothing."""
    return server.step(rows, senders, reported(server, len(server.members), now))


def one_round(
    server: Server, rows: Tensor, examples: Sequence[int] | None = None, order: Sequence[int] | None = None
) -> Verdict:
    """The first round, in which all send; ``order`` says whose loss each of them reports."""
    started(server, examples or shards(len(rows)), rows.shape[1])
    losses = reported(server, len(rows))
    losses = losses[list(order)] if losses is not None and order is not None else losses
    return server.step(rows, list(range(len(rows))), losses)


def step_of(verdict: Verdict) -> Tensor:
    """The step, after a look at whether it is everybody's."""
    step = verdict.download(0)
    assert all(torch.equal(verdict.download(i), step) for i in range(len(verdict.members)))
    return step


def rounds(participants: int, entries: int, count: int, seed: int) -> Iterable[tuple[Tensor, list[int]]]:
    """Uploads and senders of some rounds; from the second on somebody else is missing in every round.

    Everybody has a direction of its own that lasts, all the more alike the more they share the common one.
    """
    lasting = uploads(participants, entries, 1000 * seed)
    for now in range(count):
        rows = lasting + 0.3 * uploads(participants, entries, 1000 * seed + now + 1)
        yield rows, [i for i in range(participants) if now == 0 or i != (now + seed) % participants]


@every_size
def test_fedavg(m: int, entries: int, seed: int) -> None:
    """The step is not the mean weighted by shard sizes."""
    rows = uploads(m, entries, seed)
    verdict = one_round(FedAvg(), rows)
    close(step_of(verdict), reference_fedavg(rows.tolist(), shards(m)))
    close(verdict.weights, np.array(shards(m)) / sum(shards(m)), 1e-12)


def test_fedavg_weighs_the_senders_alone() -> None:
    """With somebody missing the others' weights do not add up to 1."""
    rows, senders = uploads(5, 7, seed=1), [0, 2, 3]
    verdict = started(FedAvg(), [10, 20, 30, 60, 80], 7).step(rows[senders], senders)
    close(verdict.weights, [0.1, 0, 0.3, 0.6, 0], 1e-12)
    close(step_of(verdict), reference_fedavg(rows[senders].tolist(), [10, 30, 60]))


@every_rule
def test_who_keeps_its_own_update(rule: Callable[[], Server]) -> None:
    """Others than the released FedAvg keep own updates, that one does not, or the step changes with it."""
    rows = uploads(5, 7, seed=1)
    server = started(rule(), shards(5), 7)
    released = isinstance(server, FedAvg) and server.variant == "released"
    assert torch.equal(server.kept(rows[0]), rows[0] if released else torch.zeros(7))
    if released:
        assert torch.equal(step_of(one_round(server, rows)), step_of(one_round(FedAvg(), rows)))


@rules("sign_sgd")  # whose uploads are signs: test_sign_sgd.py
def test_uploads_are_the_updates(rule: Callable[[], Server]) -> None:
    """A participant sends something else than its update, the way there changes it, or something is remembered."""
    server, rows = started(rule(), shards(5), 7), uploads(5, 7, seed=1)
    memories: list[dict[str, Tensor]] = [{} for _ in rows]
    assert torch.equal(sent(server, rows, memories), rows)
    assert memories == [{}] * 5


@every_size
def test_median(m: int, entries: int, seed: int) -> None:
    """The step is not the coordinates' median, or depends on shard sizes."""
    rows = uploads(m, entries, seed)
    verdict = one_round(Median(), rows)
    close(step_of(verdict), reference_median(rows.tolist()))
    assert torch.equal(step_of(one_round(Median(), rows, [1] * m)), step_of(verdict))


# Whom a seed draws goes by the number; with all drawn: next test.
@rules("bucketing", "q_ffl-0.1-sampled", "q_ffl-1-sampled")
def test_order_of_participants(rule: Callable[[], Server]) -> None:
    """Numbering the participants otherwise changes the step, or the weights do not follow them."""
    for seed, m in enumerate((5, 8, 12)):
        rows, order = uploads(m, 53, seed), permuted(m, seed)
        verdict = one_round(rule(), rows)
        other = one_round(rule(), rows[order], [shards(m)[i] for i in order.tolist()], order.tolist())
        close(step_of(other), step_of(verdict))
        close(other.weights, verdict.weights[order], 1e-9)


def test_order_of_participants_who_are_all_drawn() -> None:
    """With a sampling ratio of 1 q-FFL's step depends on the numbering, or on shard sizes."""
    for seed, m in enumerate((5, 8, 12)):
        rows, order = uploads(m, 53, seed), permuted(m, seed)
        verdict = one_round(QFFL(q=1, weights="sampled", sampling_ratio=1), rows)
        other = one_round(QFFL(q=1, weights="sampled", sampling_ratio=1), rows[order], [7] * m, order.tolist())
        close(step_of(other), step_of(verdict))
        close(other.weights, verdict.weights[order], 1e-9)


# FLAME, FoolsGold, FedMGDA and FLTrust weigh directions, which move with a shift; Adam's steps have lengths of their
# own; q-FFL with q > 0 divides by lengths; signs are signs; clipping is to lengths, or begins at a centre of 0.
@rules(
    "arc",
    "centered_clipping",
    "norm_bound",
    "fed_mgda",
    "fed_opt-adam",
    "flame",
    "fltrust",
    "foolsgold",
    "q_ffl-0.1",
    "q_ffl-1",
    "sign_sgd",
)
def test_translation_and_scale(rule: Callable[[], Server]) -> None:
    """The step does not move with a common shift of all uploads, or does not scale with them."""
    for seed, m in enumerate((5, 8, 12)):
        rows, shift = uploads(m, 53, seed), uploads(1, 53, seed + 50)[0]
        step = step_of(one_round(rule(), rows))
        close(step_of(one_round(rule(), rows + shift)), step + shift)
        close(step_of(one_round(rule(), rows * -4)), step * -4)


# Medians, Krum, DnC, FLAME, FedMGDA and FoolsGold choose among rows; clipping and q-FFL with q > 0 go by lengths.
@rules(
    "fed_mgda",
    "median",
    "trimmed_mean",
    "geometric_median",
    "centered_clipping",
    "norm_bound",
    "fed_opt-adam",
    "fed_opt-momentum-nnm",
    "flame",
    "fltrust",
    "krum",
    "dnc",
    "nnm",
    "arc",
    "bucketing",
    "multi_krum",
    "foolsgold",
    "q_ffl-0.1",
    "q_ffl-1",
    "sign_sgd",
)
def test_linear(rule: Callable[[], Server]) -> None:
    """The step of a combination of uploads is not the combination of the steps."""
    a, b = uploads(6, 53, seed=1), uploads(6, 53, seed=2)
    steps = [step_of(one_round(rule(), rows)) for rows in (a, b, 3 * a - 2 * b)]
    close(steps[2], 3 * steps[0] - 2 * steps[1])


@rules("fltrust")  # which trusts whoever goes its own way
def test_opposite_uploads(rule: Callable[[], Server]) -> None:
    """From weights of zero the opposite of all uploads does not make the opposite step."""
    for seed, m in enumerate((4, 5, 12)):
        rows = uploads(m, 53, seed)
        verdict, opposite = one_round(rule(), rows), one_round(rule(), -rows)
        assert torch.equal(step_of(opposite), -step_of(verdict))
        assert torch.equal(opposite.weights, verdict.weights)


# q-FFL with q > 0 makes shorter steps than any upload; others steps of a length of their own.
@cannot_tell_apart
@rules("centered_clipping-0.5", "fed_mgda-1-0.5", "fed_opt-adam", "fltrust", "q_ffl-0.1", "q_ffl-1", "sign_sgd")
def test_equal_uploads(rule: Callable[[], Server]) -> None:
    """Everybody sends the same and the step is another; a sum over P of them is P times as long."""
    server = rule()
    row = uploads(1, 53, seed=1)
    step = step_of(one_round(server, row.repeat(7, 1)))
    close(step, row[0] * (7 if isinstance(server, FoolsGold) and server.scale == "sum" else 1))


@every_rule
def test_verdict(rule: Callable[[], Server]) -> None:
    """A member is removed, gets less than everything, or a clean round sets somebody aside."""
    rows = uploads(6, 7, seed=1)
    verdict = one_round(rule(), rows)
    assert torch.equal(rows, uploads(6, 7, seed=1))
    assert verdict.members.all()
    assert (verdict.removed, verdict.set_aside) == ((), ())
    assert verdict.quotas.tolist() == [1] * 6
    assert torch.equal(verdict.reputations, verdict.weights)
    assert step_of(verdict).dtype == rows.dtype


@every_kind
@every_rule
@pytest.mark.parametrize("bad", [[2], [0, 9], [0, 1, 2, 3, 4, 5], [*range(8)], [*range(1, 10)]], ids=str)
def test_bad_uploads_do_not_count(rule: Callable[[], Server], kind: str, bad: list[int]) -> None:
    """A bad upload gets into the step, is not named, or makes another step than if it had not been sent."""
    rows, good = uploads(10, 53, seed=1), [i for i in range(10) if i not in bad]
    verdict = one_round(rule(), spoil(rows, bad, kind))
    assert verdict.set_aside == tuple(bad)
    assert (verdict.weights[bad] == 0).all()
    assert finite_fraction(verdict) == 1
    assert_equal(verdict, play(started(rule(), shards(10), 53), rows[good], good))


@every_kind
@every_rule
def test_nothing_but_bad_uploads(rule: Callable[[], Server], kind: str) -> None:
    """With every upload bad there is a step, or the next round is another than if nobody had sent."""
    rows = uploads(5, 7, seed=1)
    server, silent = (started(rule(), shards(5), 7) for _ in range(2))
    verdict = play(server, spoil(rows, range(5), kind), list(range(5)))
    assert torch.equal(step_of(verdict), torch.zeros(7))
    assert verdict.weights.tolist() == [0] * 5
    assert verdict.set_aside == (0, 1, 2, 3, 4)
    assert verdict.members.all()
    assert verdict.removed == ()
    play(silent, torch.empty(0, 7), [])
    assert_equal(play(server, rows, list(range(5))), play(silent, rows, list(range(5))))


@rules("bucketing", "sign_sgd", "q_ffl-0.1-sampled", "q_ffl-1-sampled")  # whose rate and draws go by the round
def test_round_of_bad_uploads_leaves_no_trace(rule: Callable[[], Server]) -> None:
    """After a round of bad uploads alone the next one does not begin as if that one had not been."""
    rows, server = uploads(5, 7, seed=1), started(rule(), shards(5), 7)
    play(server, spoil(rows, range(5), "NaN"), list(range(5)))
    assert_equal(play(server, rows, list(range(5))), one_round(rule(), rows))


@every_rule
def test_nobody_sends(rule: Callable[[], Server]) -> None:
    """A round without senders stops the run or makes a step."""
    verdict = play(started(rule(), shards(5), 7), torch.empty(0, 7), [])
    assert torch.equal(step_of(verdict), torch.zeros(7))
    assert verdict.set_aside == ()


@cannot_tell_apart
@every_rule
def test_resumes_to_the_same_bits(rule: Callable[[], Server]) -> None:
    """A run that was interrupted after any round goes on otherwise than one that was not, or a saved state moves on."""
    played = list(rounds(6, 53, 6, seed=1))
    whole = started(rule(), shards(6), 53)
    saved, verdicts = [whole.state_dict()], []
    for now, (rows, senders) in enumerate(played):
        verdicts.append(play(whole, rows[senders], senders, now))
        saved.append(whole.state_dict())
    for done in (0, 2, 4):
        resumed = started(rule(), shards(6), 53)
        resumed.load_state_dict(through_file(saved[done]))
        for now, (rows, senders) in enumerate(played[done:], done):
            assert_equal(play(resumed, rows[senders], senders, now), verdicts[now])
        assert resumed.round == whole.round == 6


@cannot_tell_apart
@every_rule
def test_starts_afresh(rule: Callable[[], Server]) -> None:
    """A second run of the same server goes on with the first one's memory."""
    server = rule()
    runs = []
    for _ in range(2):
        started(server, shards(6), 53)
        runs.append([step_of(play(server, rows[senders], senders)) for rows, senders in rounds(6, 53, 3, seed=1)])
    assert all(torch.equal(*steps) for steps in zip(*runs, strict=True))


def test_options_of_servers_are_their_own() -> None:
    """Two servers share an option: a later configuration with another class would silently take over its value.

    CGSV's are to be: the length of uploads is the data set's, and both papers take the same. So are those of all that
    mixes before a rule: the rule, and how many uploads may be bad; and that is the same number of two rules.
    """
    classes = [getattr(rffl_pl.servers, name) for name in rffl_pl.servers.__all__]
    options = {
        # Not of the class: until Python 3.11.3 one without a constructor of its own was said to take anything.
        kind.__name__: set(inspect.signature(kind.__init__).parameters) - {"self"}
        for kind in classes
        if inspect.isclass(kind) and issubclass(kind, Server) and not inspect.isabstract(kind)
    }
    assert len(options) >= 9
    shared = {(a, b): options[a] & options[b] for a, b in itertools.combinations(options, 2)}
    assert {pair: names for pair, names in shared.items() if names} == {
        ("CGSV", "RFFL"): {"alpha", "gamma"},
        ("ARC", "NNM"): {"rule", "tolerated"},
        ("ARC", "Bucketing"): {"rule"},
        ("NNM", "Bucketing"): {"rule"},
        ("ARC", "FedOpt"): {"rule"},
        ("NNM", "FedOpt"): {"rule"},
        ("Bucketing", "FedOpt"): {"rule"},
        ("Bulyan", "DnC"): {"byzantine"},
        ("Bulyan", "MultiKrum"): {"byzantine"},
        ("DnC", "MultiKrum"): {"byzantine"},
    }


class Renamed(FedAvg):
    """Takes its variant after all."""

    def __init__(self) -> None:
        super().__init__()
        self.variant = "released"


def test_a_variant_that_is_set_later() -> None:
    """What participants keep and what a checkpoint says are of one variant."""
    ones = torch.ones(3)
    assert torch.equal(Renamed().kept(ones), ones)
    assert not FedAvg().kept(ones).any()
