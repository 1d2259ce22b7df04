"""Rules on mixed uploads beside the same rules on uploads that are mixed by hand; what they withstand, and refusals."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.optim import SGD

from rffl_pl.functional.aggregation import nearest_mixing, squared_distances
from rffl_pl.servers import (
    ARC,
    CFFL,
    NNM,
    QFFL,
    Bucketing,
    Bulyan,
    CenteredClipping,
    Consensus,
    DnC,
    Evidence,
    FedAvg,
    FedMGDA,
    FedOpt,
    FoolsGold,
    GeometricMedian,
    Median,
    MultiKrum,
    NormBound,
    SignSGD,
    TrimmedMean,
    Verdict,
)
from rffl_pl.servers.mixing import Mixing
from tests.functional.reference import close, uploads
from tests.servers.tasks import assert_refused, shards, task, through_file
from tests.servers.test_consensus import one_round, play, started, step_of

INNER: dict[str, Callable[[], Consensus]] = {
    "median": Median,
    "trimmed_mean": TrimmedMean,
    "multi_krum": lambda: MultiKrum(byzantine=0),
    "krum": lambda: MultiKrum(byzantine=0, selected=1),
    "geometric_median": GeometricMedian,
    "centered_clipping": lambda: CenteredClipping(radius=0.5),
    "norm_bound": lambda: NormBound(max_norm=0.5),
    "bulyan": lambda: Bulyan(byzantine=0),
    "dnc": lambda: DnC(byzantine=1),
    "fedavg": FedAvg,
    "fed_mgda": lambda: FedMGDA(slack=0.2),
}
some_sizes = pytest.mark.parametrize(
    ("m", "entries", "seed"), [(3, 53, 353), (6, 1, 601), (6, 53, 653), (12, 53, 1253)]
)
every_inner = pytest.mark.parametrize("inner", INNER.values(), ids=INNER)
MIXED: dict[str, Callable[[Tensor, int, int], Tensor]] = {
    "NNM": lambda rows, f, now: neighbours(rows, len(rows) - f),
    "ARC": lambda rows, f, now: clipped(rows, f),
    "Bucketing": lambda rows, f, now: bucketed(rows, now),
    "ARC, NNM": lambda rows, f, now: neighbours(clipped(rows, f), len(rows) - f),
    "Bucketing, ARC": lambda rows, f, now: clipped(bucketed(rows, now), min(f, (len(rows) - 1) // 4)),
    "NNM, Bucketing": lambda rows, f, now: bucketed(neighbours(rows, len(rows) - f), now),
}
every_mixing = pytest.mark.parametrize("kind", MIXED)


def mixing(kind: str, inner: Consensus, f: int, m: int) -> Consensus:
    """A rule on uploads that are mixed in one or two ways, the first of them first."""
    first, _, second = kind.partition(", ")
    if second:
        inner = mixing(second, inner, min(f, (m - 1) // 4) if first == "Bucketing" else f, m)
    if first == "Bucketing":
        return Bucketing(rule=inner)
    return (NNM if first == "NNM" else ARC)(rule=inner, tolerated=f)


def clipped(rows: Tensor, f: int) -> Tensor:
    """The longest rows clipped to the length of the one after them."""
    points = rows.double().numpy().copy()
    lengths = np.linalg.norm(points, axis=1)
    longest = sorted(range(len(points)), key=lambda i: -lengths[i])
    many = int(2 * f / len(points) * (len(points) - f))
    for i in longest[:many]:
        points[i] *= lengths[longest[many]] / lengths[i]
    return torch.tensor(points, dtype=torch.float32)


def bucketed(rows: Tensor, now: int) -> Tensor:
    """Means of two rows each, of a last one alone where they are odd; drawn by the round and the task's seed."""
    return torch.stack([rows[pair].double().mean(0) for pair in buckets(len(rows), now)]).float()


def buckets(m: int, now: int) -> list[list[int]]:
    """Who is in each bucket of two."""
    order = torch.randperm(m, generator=torch.Generator().manual_seed(task([1], [1]).seed + now)).tolist()
    return sorted(sorted(order[start : start + 2]) for start in range(0, m, 2))


def neighbours(rows: Tensor, count: int) -> Tensor:
    """Every row replaced by the mean of the nearest ones, in loops."""
    points = rows.double().numpy()
    means = []
    for i, point in enumerate(points):
        far = [-1.0 if j == i else float(((point - other) ** 2).sum()) for j, other in enumerate(points)]
        means.append(points[sorted(range(len(points)), key=lambda j: (far[j], j))[:count]].mean(0))
    return torch.tensor(np.array(means), dtype=torch.float32)


@some_sizes
@every_inner
@every_mixing
def test_is_the_rule_on_mixed_uploads(
    kind: str, inner: Callable[[], Consensus], m: int, entries: int, seed: int
) -> None:
    """Mixing in blocks and statistics is not mixing the uploads, over rounds and a state that travels."""
    few = "Bucketing" in kind and m == 3
    if few and isinstance(inner(), MultiKrum | DnC):
        pytest.skip("it needs three")
    for f in {0, 1, (m - 1) // 2}:
        server = started(mixing(kind, inner(), f, m), shards(m), entries)
        for now in range(2):
            rows = uploads(m, entries, seed + now)
            by_hand = MIXED[kind](rows, f, now)
            if now == 0:
                plain = started(inner(), shards(len(by_hand)), entries)
            if "Bucketing" in kind:
                plain.examples = torch.tensor([sum(shards(m)[i] for i in pair) for pair in buckets(m, now)]).double()
            verdict, expected = play(server, rows, range(m)), play(plain, by_hand, range(len(by_hand)))
            close(step_of(verdict), step_of(expected), 1e-4)
            # What every upload really weighs, which is what mixed ones weigh spread over those they are made of.
            if "ARC" not in kind:
                assert float(verdict.weights.sum()) == pytest.approx(float(expected.weights.sum()))
            again = started(mixing(kind, inner(), f, m), shards(m), entries)
            again.load_state_dict(through_file(server.state_dict()))
            server = again


@some_sizes
@every_mixing
def test_weights_are_those_of_the_uploads(kind: str, m: int, entries: int, seed: int) -> None:
    """The weights of a rule that combines by weights are not those that make its step."""
    rows = uploads(m, entries, seed)
    verdict = one_round(mixing(kind, GeometricMedian(), 1, m), rows)
    close(step_of(verdict), verdict.weights @ rows.double(), 1e-4)


def test_mixing_brings_a_median_to_where_honest_uploads_differ() -> None:
    """Of participants with different data a median alone is nearer to their mean than one that mixes before."""
    honest = torch.eye(8).repeat_interleave(4, 1)  # nobody shares a coordinate with anybody: the median is 0
    bad = torch.full((2, 32), -50.0)
    rows = torch.cat([honest, bad])
    far = [
        float((step_of(one_round(server, rows)) - honest.mean(0)).norm())
        for server in (Median(), NNM(rule=Median(), tolerated=2))
    ]
    assert far[1] < 0.5 * far[0]


def test_nearest_mixing_golden() -> None:
    """An upload is not among its own nearest, ties do not go to the smaller index, or rows do not add up to 1."""
    rows = torch.tensor([[0.0], [1.0], [2.0], [10.0]]).double()
    mixing = nearest_mixing(squared_distances(rows @ rows.T), 2)
    close(mixing, [[0.5, 0.5, 0, 0], [0.5, 0.5, 0, 0], [0, 0.5, 0.5, 0], [0, 0, 0.5, 0.5]])
    alike = nearest_mixing(squared_distances(torch.ones(3, 3).double()), 1)
    assert torch.equal(alike, torch.eye(3).double())


class Lengths(Consensus):
    """Goes by lengths, as a rule of one's own may, and reports them."""

    by_coordinate: ClassVar[Sequence[str]] = ("model",)

    def weigh(self, evidence: Evidence) -> Tensor:
        return evidence.squared_norms / evidence.squared_norms.sum()

    def measures(self, evidence: Evidence, weights: Tensor) -> dict[str, Tensor]:
        return {
            "length": evidence.squared_norms,
            "product": evidence.gram[0],
            "squares": evidence.gram_of_squares[0],
            "along": evidence.gram_times(weights),
            "beside": evidence.products_with(evidence.uploads[0]),
        }


@every_mixing
def test_the_rule_knows_the_round_on_every_rank(kind: str) -> None:
    """Its participants' side goes by it, and on ranks that do not serve nobody takes its steps."""
    rule = Lengths()
    server = mixing(kind, rule, 2, 9)
    for number in (0, 3, 4):
        server.round = number
        assert server.round == rule.round == number
    verdict = one_round(server, uploads(9, 53, 1))
    assert verdict.members.all()
    assert server.round == rule.round == 1
    state = server.state_dict()
    assert state["round"] == state["rule"]["round"] == 1
    state["rule"]["round"] = 0  # as earlier releases kept it
    again = mixing(kind, Lengths(), 2, 9)
    again.load_state_dict(state)
    assert again.round == 1


@every_mixing
def test_every_statistic_is_of_the_mixed_uploads(kind: str) -> None:
    """A rule of one's own is told a statistic of the uploads as they came, or its diagnostics are lost."""
    rows = uploads(9, 53, 1)
    by_hand = MIXED[kind](rows, 2, 0).double()
    verdict = one_round(mixing(kind, Lengths(), 2, 9), rows)
    squares = by_hand.square().sum(1)
    found = {name: values[values.isfinite()] for name, values in verdict.measures.items()}
    close(found["length"], squares, 1e-5)
    close(found["product"], by_hand @ by_hand[0], 1e-5)
    close(found["squares"], by_hand.square() @ by_hand[0].square(), 1e-5)
    close(found["along"], by_hand @ by_hand.T @ (squares / squares.sum()), 1e-5)
    close(found["beside"], by_hand @ rows[0].double(), 1e-5)
    close(step_of(verdict), (squares / squares.sum()) @ by_hand, 1e-5)


def test_what_is_measured_of_a_bucket_is_its_first_members() -> None:
    """Of nine uploads five buckets are measured, each at the smallest number in it."""
    verdict = one_round(Bucketing(rule=Lengths()), uploads(9, 53, 1))
    firsts = [pair[0] for pair in buckets(9, 0)]
    assert verdict.measures["length"].isfinite().nonzero().flatten().tolist() == firsts


def test_buckets_are_dealt_anew_in_every_round() -> None:
    """All rounds have the same buckets, or the last bucket, of one, weighs less than the others."""
    server = started(Bucketing(rule=TrimmedMean(trim=0), bucket=3), shards(10), 4)
    rows = torch.eye(10)[:, :4].contiguous() + 1
    weights = [play(server, rows, range(10), now).weights for now in range(3)]
    for now in weights:
        assert sorted(set(now.tolist())) == pytest.approx([1 / 12, 1 / 4])
    assert len({tuple(now.tolist()) for now in weights}) > 1


def test_clipping_golden() -> None:
    """Other uploads are clipped, to another length, or what is short enough is changed."""
    rows = torch.tensor([[3.0], [-1.0], [2.0], [1000.0], [4.0]])
    verdict = one_round(ARC(rule=FedAvg(), tolerated=1), rows, [1] * 5)
    close(step_of(verdict), [(3 - 1 + 2 + 4 + 4) / 5])  # floor(2 * 4 / 5) = 1
    verdict = one_round(ARC(rule=FedAvg(), tolerated=2), rows, [1] * 5)
    close(step_of(verdict), [(3 - 1 + 2 + 3 + 3) / 5])  # floor(2 * 2 * 3 / 5)


class Removing(FedAvg):
    """Removes by lengths."""

    def rule(self, evidence: Evidence) -> Verdict:
        return super().rule(evidence)


class Handing(FedAvg):
    """Has somebody start from another model."""

    hands_models = True

    def model_for(self, participant: int) -> Tensor | None:
        return super().model_for(participant)


@pytest.mark.parametrize("kind", [NNM, Bucketing, FedOpt])
def test_what_nobody_asks_for(kind: Callable[..., Consensus]) -> None:
    """Whom a rule of one's own removes within another stays, and everybody starts from the model of all, in silence."""
    for rule, method in ((Removing(), "rule"), (Handing(), "model_for")):
        refused = partial(kind(rule=rule).start, task(shards(6), [4]))
        told = f"but {type(rule).__name__} overrides {method}; remove that"
        assert_refused(refused, "--server.rule to decide by", told)
    refused = partial(kind(rule=ARC(rule=Handing())).start, task(shards(6), [4]))
    assert_refused(refused, "--server.rule.rule to decide by", "Handing overrides model_for")
    rule = Handing()
    rule.hands_models = False
    kind(rule=rule).start(task(shards(6), [4]))  # where nobody ever starts from a server's model
    some = partial(kind(rule=rule).start, task(shards(6), [4], participation=0.5))
    assert_refused(some, "but Handing overrides model_for")


class Answering(Mixing):
    """Mixes by what it is given."""

    def __init__(self, made: object) -> None:
        super().__init__()
        self.made = made

    def mixing(self, evidence: Evidence) -> Tensor:
        return self.made  # type: ignore[return-value]  # which is what it is tried for


@pytest.mark.parametrize(
    ("made", "expected", "got"),
    [
        (torch.ones(6), "mixing of --server Answering to be a matrix with a column for each of 6 uploads", "shape [6]"),
        (torch.ones(6, 5), "a column for each of 6 uploads", "shape [6, 5]"),
        (torch.ones(0, 6), "a row for each that is made of them", "shape [0, 6]"),
        (np.ones((6, 6)), "a column for each of 6 uploads", "got ndarray"),
        (torch.eye(6) / 0, "mixing of --server Answering to be finite", "round 1 has NaN or infinity there"),
        (torch.ones(3, 6), "senders_of of --server Answering to be a tensor with an entry for each of 3", "shape [6]"),
    ],
    ids=["vector", "columns", "rows", "numpy", "infinite", "senders"],
)
def test_a_mixing_of_ones_own_that_is_none(made: object, expected: str, got: str) -> None:
    """What fits nothing ends in torch's words on shapes, or NaN is blamed on the weights of the rule within."""
    assert_refused(lambda: one_round(started(Answering(made), shards(6), 53), uploads(6, 53, 1)), expected, got)


def test_a_mixing_whose_shares_cancel() -> None:
    """What an upload has in several mixed ones adds up to 0, and is left out of a median of them."""
    rows, centred = uploads(4, 53, 1), torch.eye(4) - 0.25
    expected = step_of(one_round(Median(), rows - rows.mean(0)))
    for server in (
        Answering(centred),
        FedOpt(rule=Answering(centred), optimizer=partial(SGD, lr=1.0)),
        Bucketing(rule=Answering(centred), bucket=1),
    ):
        verdict = one_round(server, rows)
        close(step_of(verdict), expected, 1e-5)
        assert verdict.weights.tolist() == [0.0] * 4


@pytest.mark.parametrize("around", [False, True])
def test_running_statistics_where_shares_cancel(around: bool) -> None:
    """They come with the uploads that count alone, or are divided by 0."""
    signed = Answering(torch.tensor([[2.0, -1.0], [2.0, 1.0]]))
    server = Bucketing(rule=signed, bucket=1) if around else signed
    rows = uploads(2, 53, 1)
    verdict = one_round(server, rows)
    assert verdict.weights.tolist() == [2.0, 0.0]
    close(step_of(verdict), 2 * rows[0].double(), 1e-5)
    assert server.pool(torch.tensor([[3.0, 5.0]]), verdict.weights[:1]).tolist() == [3.0, 5.0]
    nothing = Answering(torch.tensor([[1.0, -1.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 1.0]]))
    verdict = one_round(nothing, uploads(3, 53, 1))
    assert_refused(
        lambda: nothing.pool(torch.ones(3, 2), verdict.weights),
        "rows of mixing of --server Answering to have sums other than 0, which BatchNorm's running statistics are",
        "but got 0;",
    )


def test_single_precision_does_for_a_mixing() -> None:
    """A matrix of 32 bits, or of whole numbers, ends in torch's words on types."""
    rows = uploads(6, 53, 1)
    steps = [
        step_of(one_round(started(Answering(torch.eye(6, dtype=kind)), shards(6), 53), rows))
        for kind in (torch.float64, torch.float32, torch.int64)
    ]
    assert all(torch.equal(step, steps[0]) for step in steps)


class Single(Consensus):
    """Goes by inner products with the mean, in single precision."""

    def weigh(self, evidence: Evidence) -> Tensor:
        alike = evidence.gram_times(torch.full((len(evidence.senders),), 1 / len(evidence.senders))).float()
        return alike.clamp_min(0) / alike.clamp_min(0).sum()


@pytest.mark.parametrize("kind", ["NNM", "ARC", "Bucketing", "NNM, Bucketing"])
def test_a_rule_in_single_precision(kind: str) -> None:
    """What stands alone ends in torch's words on types where uploads are mixed for it."""
    rows = 1 + uploads(6, 53, 1)
    by_hand = MIXED[kind](rows, 1, 0)
    alone = started(Single(), shards(len(by_hand)), 53)
    close(
        step_of(one_round(started(mixing(kind, Single(), 1, 6), shards(6), 53), rows)),
        step_of(one_round(alone, by_hand)),
        1e-5,
    )


def test_refused() -> None:
    """A rule that goes by more than mixed uploads is taken, or an f that is too large; a rule's own words are lost."""
    kinds: tuple[type[ARC | NNM | Bucketing], ...] = (ARC, NNM, Bucketing)
    for kind in kinds:
        for rule in (FoolsGold(), QFFL(), SignSGD(), kind()):
            refused = partial(kind(rule=rule).start, task(shards(6), [4]))
            assert_refused(refused, "--server.rule to be one of", f"but got {type(rule).__name__}")
    buried = ARC(rule=NNM(rule=FoolsGold()))
    assert_refused(lambda: buried.start(task(shards(6), [4])), "--server.rule.rule to be one of ARC, Buck", "FoolsGold")
    for server in (NNM(tolerated=-1), NNM(tolerated=3), ARC(tolerated=-1), ARC(tolerated=3)):
        told = partial(server.start, task(shards(6), [4]))
        assert_refused(told, "--server.tolerated", f"f = {server.tolerated}")
    assert_refused(lambda: Bucketing(bucket=0), "--server.bucket", "got 0")
    deep = Bucketing(rule=NNM(rule=MultiKrum(byzantine=2)))
    assert_refused(
        lambda: deep.start(task(shards(6), [4])), "--server.rule.rule.byzantine", "f = 2 and P = 3 mixed uploads"
    )
    assert_refused(
        lambda: NNM(rule=MultiKrum(byzantine=3)).start(task(shards(6), [4])), "--server.rule.byzantine", "f = 3"
    )


@pytest.mark.parametrize("times", [1e6, 1e12, 1e18])
@pytest.mark.parametrize("kind", ["along the shortest", "apart"])
@every_inner
def test_however_long_an_upload_is(inner: Callable[[], Consensus], kind: str, times: float) -> None:
    """Clipped by hand it makes another step, or rounding of its length leaves nothing of its direction, or NaN."""
    honest = uploads(8, 70_000, 5)
    shortest = honest[honest.norm(dim=1).argmin()]
    long = times * (shortest if kind == "along the shortest" else uploads(1, 70_000, 6)[0])
    rows = torch.cat([honest, long.unsqueeze(0), -2 * long.unsqueeze(0)])
    found = step_of(one_round(ARC(rule=inner(), tolerated=2), rows))
    lengths = rows.double().norm(dim=1)
    bound = lengths.sort(descending=True).values[3]
    by_hand = (rows.double() * (bound / lengths).clamp_max(1).unsqueeze(1)).float()
    expected = step_of(one_round(inner(), by_hand))
    assert float((found - expected).norm() / expected.norm()) < 1e-4


def test_going_on_with_another_rule() -> None:
    """What the rule within has kept is dropped, or the option that has changed is not named."""
    before = started(Bucketing(rule=NNM(rule=CenteredClipping())), shards(6), 4)
    state = through_file(before.state_dict())
    for other, said in (
        (Bucketing(), "--server.rule NNM, as"),
        (Bucketing(rule=NNM()), "--server.rule.rule CenteredC"),
    ):
        assert_refused(partial(started(other, shards(6), 4).load_state_dict, state), said)


def test_how_many_may_be_bad_of_what_is_left() -> None:
    """Half of a few uploads or more are taken for bad."""
    server = NNM(tolerated=2)
    server.start(task(shards(6), [7]))
    assert [server.bad_among(count) for count in (6, 5, 4, 3, 2, 1)] == [2, 2, 1, 1, 0, 0]


def test_one_bucket_of_all() -> None:
    """A rule that takes what lies in the middle took the mean, and one long upload went through, without a word."""
    sent = uploads(10, 53, 1)
    sent[3] = 1e6
    with pytest.warns(
        UserWarning, match=r"^--server\.bucket 10 puts all 10 uploads of a round into one bucket: the step"
    ):
        server = started(Bucketing(rule=Median(), bucket=10), shards(10), 53)
    verdict = server.step(sent, range(10))
    torch.testing.assert_close(verdict.download(0), sent.mean(0))
    started(Bucketing(rule=Median(), bucket=2), shards(2), 53)  # of two uploads a median is their mean, too


def test_no_majority_of_good_buckets() -> None:
    """A median of five means of which three may be spoiled began without a word."""
    words = r"^--federation\.tolerated 3 bad uploads may spoil as many of the 5 buckets of --server\.bucket 2, which"
    with pytest.warns(UserWarning, match=words):
        Bucketing(rule=Median()).start(task(shards(10), [53], tolerated=3))
    with warnings.catch_warnings(action="error"):
        Bucketing(rule=Median()).start(task(shards(10), [53], tolerated=2))


def test_a_warning_names_the_option_as_it_was_typed() -> None:
    """Behind another rule its bucket is that rule's option, and the one that is named would be refused."""
    around: tuple[Callable[..., Consensus], ...] = (FedOpt, ARC)
    for made in around:
        with pytest.warns(UserWarning, match=r"^--server\.rule\.bucket 10 puts all 10 uploads"):
            made(rule=Bucketing(bucket=10)).start(task(shards(10), [53]))
        with pytest.warns(UserWarning, match=r"5 buckets of --server\.rule\.bucket 2, which leaves no"):
            made(rule=Bucketing()).start(task(shards(10), [53], tolerated=3))


@pytest.mark.parametrize("made", [NNM, ARC, Bucketing, FedOpt])
@pytest.mark.parametrize("rule", ["Median", Median, CFFL()])
def test_what_is_no_rule(made: Callable[..., object], rule: object) -> None:
    """A name, a class in place of an instance, or a server that decides more than a step."""
    name = "CFFL" if isinstance(rule, CFFL) else "Median"
    assert_refused(lambda: made(rule=rule), "to be an instance of Consensus, such as Median(), but got", name)
