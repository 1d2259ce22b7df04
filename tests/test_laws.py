"""Laws that hold for any uploads, quotas, layouts and numbers: hypothesis looks for an example that breaks one.

The examples are the same in every run (``derandomize``). Vectors of many entries are drawn from a seed that is an
example's own; what is awkward about them (zeros, bits that are no number, sizes) is hypothesis's to choose.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from rffl_pl.federation import Federation
from rffl_pl.functional import aggregation, blocks, contribution, order, reputation, sparsify, wire
from rffl_pl.servers import AFL, CFFL, CGSV, RFFL, FoolsGold, Server
from tests.hostile import BLANK, KINDS, UNFIT, Kind, hostile
from tests.round.test_hostile_uploads import CONSENSUS, SERVERS
from tests.servers.tasks import downloads, shards, task

pytestmark = pytest.mark.filterwarnings("ignore:--server.steepness", "ignore:Round ")
law = settings(
    derandomize=True, database=None, deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow]
)
few = settings(law, max_examples=8)

seeds = st.integers(0, 2**32 - 1)
dimensions = st.integers(1, 200)
quotas = st.floats(-0.5, 1.0, allow_nan=False) | st.sampled_from([0.0, 1.0, 1e-12, 1 - 1e-12])
layers = st.lists(st.integers(1, 60), min_size=1, max_size=5)
any_bytes = st.binary(max_size=900)


def vector(dimension: int, seed: int, density: float = 1.0) -> Tensor:
    """A vector ``[D]`` of which about such a share is not zero."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(dimension, generator=generator) * (torch.rand(dimension, generator=generator) < density)


@st.composite
def awkward(draw: st.DrawFn) -> Tensor:
    """A vector of any bits: NaN, infinities, denormals, zeros of both signs."""
    row = vector(draw(dimensions), draw(seeds), draw(st.sampled_from([0.0, 0.02, 0.5, 1.0])))
    for bits in draw(st.lists(st.integers(-(2**31), 2**31 - 1), max_size=4)):
        row.view(torch.int32)[bits % len(row)] = bits
    return row


def assert_arrived(arrived: Tensor, row: Tensor) -> None:
    """Equal to the bit, but for the sign of a zero, which is not sent."""
    sent = row != 0
    assert torch.equal(arrived.view(torch.int32)[sent], row.view(torch.int32)[sent])
    assert not arrived[~sent].any()


@law
@given(awkward())
def test_what_is_packed_comes_back(row: Tensor) -> None:
    """A vector changes on its way, or takes another number of bytes than announced."""
    payload = wire.pack(row)
    assert len(payload) == wire.payload_size(int((row != 0).sum()), len(row)) <= 4 * len(row)
    assert_arrived(wire.unpack(payload, len(row)), row)
    packed = wire.pack_blocks(row)
    assert len(packed) <= 4 * len(row)
    assert_arrived(wire.unpack_blocks(packed, len(row)), row)


@law
@given(dimensions, seeds, st.floats(0.01, 1.0))
def test_signs_and_largest_entries_come_back(dimension: int, seed: int, share: float) -> None:
    """Signs, or the largest entries, are others on arrival."""
    row, count = vector(dimension, seed), max(1, int(share * dimension))
    signs = torch.where(row < 0, -1.0, 1.0)
    assert torch.equal(wire.unpack_signs(wire.pack_signs(signs), dimension), signs)
    kept = sparsify.largest_entries(row, count)
    assert int((kept != 0).sum()) == count
    payload = wire.pack_entries(kept, count)
    assert len(payload) == 8 * count
    assert torch.equal(wire.unpack_entries(payload, dimension, count), kept)


@settings(law, max_examples=100)
@given(any_bytes, dimensions, st.sampled_from(["downloads", "blocks", "signs", "entries"]))
def test_any_bytes_are_a_vector_or_refused(sent: bytes, dimension: int, form: str) -> None:
    """Bytes that nobody packed end the process, or make a vector of another length."""
    payload = torch.tensor(list(sent), dtype=torch.uint8)
    unpackers: dict[str, Callable[[], Tensor]] = {
        "downloads": lambda: wire.unpack(payload, dimension),
        "blocks": lambda: wire.unpack_blocks(payload, dimension),
        "signs": lambda: wire.unpack_signs(payload, dimension),
        "entries": lambda: wire.unpack_entries(payload, dimension, max(1, dimension // 10)),
    }
    with contextlib.suppress(ValueError):
        assert unpackers[form]().shape == (dimension,)


@law
@given(st.lists(st.integers(-3, 12), min_size=1, max_size=5), st.integers(1, 10))
def test_positions_are_different_ones_of_the_vector(positions: list[int], dimension: int) -> None:
    """A position outside the vector, or one that comes twice, is taken, or another one is not."""
    where = torch.tensor(positions, dtype=torch.int32).view(torch.uint8)
    payload = torch.cat([torch.ones(len(positions)).view(torch.uint8), where])
    fits = len({*positions}) == len(positions) and {*positions} <= {*range(dimension)}
    with contextlib.nullcontext() if fits else pytest.raises(ValueError, match="positions of their own"):
        arrived = wire.unpack_entries(payload, dimension, len(positions))
        assert arrived.nonzero().flatten().tolist() == sorted(positions)


@law
@given(layers, seeds, quotas, quotas, st.booleans())
def test_a_quota_is_so_many_of_the_largest(sizes: list[int], seed: int, one: float, other: float, up: bool) -> None:
    """A layer gives others than its largest entries, another number of them, or less to the higher quota."""
    aggregate = vector(sum(sizes), seed)
    ranks = sparsify.magnitude_ranks(aggregate, sizes)
    low, high = sorted((one, other))
    counts = {q: sparsify.group_counts(q, sizes, round_up=up) for q in (low, high)}
    kept = {q: sparsify.keep_largest(aggregate, ranks, counts[q], sizes) for q in (low, high)}
    for q in (low, high):
        for n, count in zip(sizes, counts[q], strict=True):
            exact = Fraction(max(q, 0.0)) * n
            whole_but_for_last_bits = count == round(exact) and abs(exact - count) < 1e-14 * n
            assert whole_but_for_last_bits or count == min(n, (math.ceil if up else math.floor)(exact))
        for part, whole, count in zip(kept[q].split(sizes), aggregate.split(sizes), counts[q], strict=True):
            assert int((part != 0).sum()) == count
            assert torch.equal(part[part != 0], whole[part != 0])
            if 0 < count < len(whole):
                assert part[part != 0].abs().min() >= whole[part == 0].abs().max()
    assert ((kept[low] == 0) | (kept[high] == kept[low])).all()


@law
@given(st.integers(1, 9), st.integers(1, 120), seeds, st.integers(1, 40))
def test_blocks_are_the_whole(m: int, dimension: int, seed: int, entries: int) -> None:
    """A sum over coordinates, or a rule on each, depends on how they are cut into blocks."""
    rows, weights = vector(m * dimension, seed).view(m, dimension), vector(m, seed + 1).double()
    whole, width = rows.double(), blocks._ENTRIES
    try:
        blocks._ENTRIES = entries
        torch.testing.assert_close(blocks.gram(rows), whole @ whole.T)
        torch.testing.assert_close(blocks.gram_times(rows, weights), whole @ whole.T @ weights)
        torch.testing.assert_close(blocks.products_with(rows, rows[0] + 1), whole @ (rows[0] + 1).double())
        torch.testing.assert_close(
            blocks.squared_distances_to(rows, rows[0] + 1), (whole - whole[0] - 1).square().sum(1), rtol=1e-6, atol=1e-6
        )
        torch.testing.assert_close(blocks.gram_of_squares(rows), whole**2 @ (whole**2).T)
        median = blocks.combined(list(rows), order.coordinate_median)
    finally:
        blocks._ENTRIES = width
    np.testing.assert_allclose(median, np.median(rows.numpy(), axis=0), rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(blocks.squared_norms(rows), whole.square().sum(1))


@law
@given(st.lists(st.floats(-1, 1), min_size=1, max_size=12), seeds)
def test_reputations_add_up_to_one(values: list[float], seed: int) -> None:
    """What is shared out does not add up, moves somebody who was not scored, or a quota lies outside 0 to 1."""
    reputations = torch.tensor(values, dtype=torch.float64)
    scored = torch.rand(len(values), generator=torch.Generator().manual_seed(seed)) < 0.6
    shared = reputation.share_out(reputations, scored)
    if shared is not None:
        assert torch.equal(shared[~scored], reputations[~scored])
        assert float(shared.sum()) == pytest.approx(1, rel=1e-6, abs=1e-6 * float(shared.abs().max()))
    for quota in (
        reputation.relative_quota(reputations),
        reputation.altruistic(reputation.relative_quota(reputations)),
    ):
        assert ((quota >= 0) & (quota <= 1)).all()
        assert not (reputations > 0).any() or quota.max() == 1


@law
@given(st.integers(1, 8), dimensions, seeds, st.floats(1e-18, 1e18))
def test_similarities_are_cosines(m: int, dimension: int, seed: int, scale: float) -> None:
    """A similarity lies outside -1 to 1, or is none, however long or alike uploads are."""
    rows = vector(m * dimension, seed, 0.7).view(m, dimension) * scale
    gram, weights = blocks.gram(rows), vector(m, seed + 1).double().abs()
    same = contribution.duplicates(gram)
    aggregate = reputation.cosines(gram.diagonal(), gram @ weights, weights)
    for values in (aggregate, contribution.leave_out(gram, weights, same), aggregation.pairwise_cosines(gram)):
        assert (values.abs() <= 1 + 1e-6).all()
    assert contribution.agreements(gram, blocks.gram_of_squares(rows)).isfinite().all()
    assert torch.equal(same, same.T)


@law
@given(
    st.lists(st.tuples(st.floats(0, 1e300), st.floats(1e-37, 1e38)), min_size=1, max_size=8),
    st.floats(0, 5),
    st.floats(1e-6, 1e6),
)
def test_weights_of_losses_are_numbers(reports: list[tuple[float, float]], q: float, lipschitz: float) -> None:
    """A loss or a norm of any size makes a weight of q-FFL NaN, negative or infinite."""
    losses, squares = torch.tensor(reports, dtype=torch.float64).unbind(1)
    weights = aggregation.q_fair_weights(losses, squares, torch.ones_like(losses), q, lipschitz)
    assert weights.isfinite().all()
    assert (weights >= 0).all()
    assert float(weights.sum()) <= 1 + 1e-9


@law
@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 9))
def test_everybody_is_hosted_once(participants: int, ranks: int, adversaries: int) -> None:
    """A participant is on no rank, on two, or a rank has two more than another."""
    federation = Federation(participants=participants, adversaries=adversaries)
    assume(ranks <= federation.total)
    hosted = [federation.hosted_by(rank, ranks) for rank in range(ranks)]
    assert sorted(i for block in hosted for i in block) == [*range(federation.total)]
    assert max(map(len, hosted)) - min(map(len, hosted)) <= 1
    assert all(block == sorted(block) for block in hosted)


def started(name: str, participants: int, sizes: list[int]) -> Server:
    """A server before its first round."""
    server = SERVERS[name]()
    server.start(task(shards(participants), sizes, accuracy=lambda weights: 0.5 + 0.4 * float(weights.sum().sin())))
    return server


def play(server: Server, rows: Tensor, order: Tensor | None = None) -> Any:
    """A round of all members; with an ``order``, of participants who are numbered so."""
    senders = server.members.nonzero().flatten().tolist()
    losses = torch.linspace(0.5, 2, len(server.members)).double()
    losses = losses if order is None else losses[order]
    return server.step(rows[senders], senders, losses if server.hears_losses else None)


kinds = st.lists(st.sampled_from([None, None, *KINDS]), min_size=3, max_size=7)
"""What each of some participants sends, None for its update."""
some_of_six = st.lists(st.sampled_from([None, None, *UNFIT, *BLANK]), min_size=6, max_size=6)


@pytest.mark.parametrize("name", SERVERS)
@few
@given(st.lists(kinds, min_size=1, max_size=3), layers, seeds)
def test_a_verdict_is_numbers(name: str, played: list[list[Kind | None]], sizes: list[int], seed: int) -> None:
    """Some uploads, in some rounds, by some or all: something is no number, or somebody is named who is not to be."""
    participants = max(map(len, played))
    server = started(name, participants, sizes)
    for now, who in enumerate(played):
        rows = vector(participants * sum(sizes), seed + now).view(participants, -1)
        rows = rows.sign() if name == "sign_sgd" else rows
        sent = who + [None] * (participants - len(who))
        rows = torch.stack([row if kind is None else hostile(kind, row) for row, kind in zip(rows, sent, strict=True)])
        here = server.members.tolist()
        verdict = play(server, rows)
        assert verdict.set_aside == tuple(
            i for i, kind in enumerate(sent) if here[i] and (kind in UNFIT or kind == "1e38")
        )
        assert verdict.silent == tuple(i for i, kind in enumerate(sent) if here[i] and kind in BLANK)
        for values in (verdict.weights, verdict.reputations, downloads(verdict)):
            assert values.isfinite().all()
        assert ((verdict.quotas >= 0) & (verdict.quotas <= 1)).all()
        assert not verdict.weights[[i for i, kind in enumerate(sent) if kind in BLANK]].any()
        if isinstance(server, RFFL):
            assert float(verdict.reputations.sum()) == pytest.approx(float(verdict.members.any()), abs=1e-6)
            counted(server, verdict)
        elif isinstance(server, CGSV):
            assert float(verdict.reputations.sum()) == pytest.approx(1)
        elif (
            name in CONSENSUS
            and verdict.weights.any()
            and not {"arc", "sum", "clipping", "bound", "ffl", "flame", "mgda"} & set(re.split("[-_]", name))
        ):
            assert float(verdict.weights.sum()) == pytest.approx(1)


def counted(server: RFFL, verdict: Any) -> None:
    """Every download has at most the entries that a quota is worth: exactly those, where the aggregate has them."""
    if server.switches.subtract_own:
        return
    groups = [*server.layers] if server.switches.quota == "layer" else [sum(server.layers)]
    for i, quota in enumerate(verdict.quotas.tolist()):
        worth = sparsify.group_counts(quota, groups, round_up=server.switches.quota == "layer")
        given_out = [int((part != 0).sum()) for part in verdict.download(i).split(groups)]
        assert all(given <= most for given, most in zip(given_out, worth, strict=True))
        assert given_out == worth or not verdict.weights.any()


# Whom a seed draws or deals, and which entries CFFL's order gives first, goes by the number.
@pytest.mark.parametrize(
    "name", [name for name in SERVERS if name not in ("bucketing", "iafl", "q_ffl-sampled", "cffl")]
)
@few
@given(
    st.permutations(range(6)), st.lists(st.sampled_from([None, None, *UNFIT, *BLANK]), min_size=6, max_size=6), seeds
)
def test_numbers_decide_nothing(name: str, order: list[int], sent: list[Kind | None], seed: int) -> None:
    """Numbering the participants otherwise changes more than the order of what they get."""
    servers = started(name, 6, [5, 30]), started(name, 6, [5, 30])
    servers[1].examples = servers[1].examples[order]
    if isinstance(servers[1], CFFL):
        servers[1]._shares = servers[1]._shares[order]
    if isinstance(servers[1], AFL):
        servers[1].mixture = servers[1].mixture[order]
    for now in range(2):
        rows = vector(6 * 35, seed + now).view(6, -1)
        rows = rows.sign() if name == "sign_sgd" else rows
        rows = torch.stack([row if kind is None else hostile(kind, row) for row, kind in zip(rows, sent, strict=True)])
        one, other = play(servers[0], rows), play(servers[1], rows[order], torch.tensor(order))
        for field in ("weights", "reputations", "quotas"):
            torch.testing.assert_close(getattr(other, field), getattr(one, field)[order], rtol=1e-6, atol=1e-9)
        for field in ("members", "silent", "set_aside", "removed"):
            values = getattr(one, field)
            expected = values[order] if isinstance(values, Tensor) else tuple(sorted(order.index(i) for i in values))
            assert str(getattr(other, field)) == str(expected)
        if not isinstance(servers[0], RFFL | CGSV | CFFL | FoolsGold):  # whose cuts and logits depend on last bits
            torch.testing.assert_close(other.download(0), one.download(0), rtol=1e-4, atol=1e-6)
