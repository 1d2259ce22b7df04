"""What ranks of their own work out together, each on its coordinates, beside one server that has all of them."""

from __future__ import annotations

from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from rffl_pl.exchange import Exchange, Ranks
from rffl_pl.functional import blocks, wire
from rffl_pl.functional.order import coordinate_median
from rffl_pl.functional.reputation import weighted_sum
from rffl_pl.functional.sparsify import keep_largest, magnitude_ranks
from rffl_pl.servers.coordinates import Coordinates
from rffl_pl.sharded import Part
from rffl_pl.strategy import leave_process_group
from tests.ranks import called

CPU = torch.device("cpu")
ENTRIES, SPAN = 256, 32  # instead of 262,144 and 65,536
# Fewer spans than ranks; blocks of all coordinates, across several ranks and within one; a last span that is short.
SIZES = [(3, 7), (1, 1000), (9, 1000), (300, 130)]
PARTICIPANTS = 7


def uploads(m: int, entries: int) -> Tensor:
    """Rows with many ties: the magnitudes of small whole numbers, some of them far from 0."""
    drawn = torch.randn(m, entries, generator=torch.Generator().manual_seed(m))
    return torch.where(drawn.abs() < 0.7, drawn.mul(3).round(), drawn * 10)


def groups_of(entries: int) -> list[list[int]]:
    """All in one, and some of sizes that do not end where shards do."""
    return [[entries], [entries // 5, 1, entries - entries // 5 - 1]]


def counts_of(groups: list[int]) -> Tensor:
    """None, one, some and all of every group, for five participants."""
    return torch.tensor([[0 * n, min(n, 1), n // 3, n - n // 4, n][k] for k in range(5) for n in groups]).view(5, -1)


def worked_out(coordinates: Coordinates, m: int, entries: int) -> dict[str, Tensor]:
    """All that rules ask for of m uploads; what is of coordinates as a whole vector on rank 0."""
    everything = uploads(m, entries)
    rows, weights = [*everything[:, coordinates.where]], torch.linspace(-1, 2, m, dtype=torch.float64)
    centre = everything[0][coordinates.where] + 0.25
    of_four = weights[:4].float()

    found = {
        "squared norms": coordinates.squared_norms(rows),
        "gram": blocks.gram(rows, add_up=coordinates.add_up),
        "centred": blocks.gram(rows, centre, coordinates.add_up),
        "of squares": blocks.gram_of_squares(rows, coordinates.add_up),
        "times": blocks.gram_times(rows, weights, coordinates.add_up),
        "products": blocks.products_with(rows, centre, coordinates.add_up),
        "distances": blocks.squared_distances_to(rows, centre, coordinates.add_up),
    }
    vectors = {
        "sum": coordinates.combined(rows, lambda block: weighted_sum(block, weights)),
        "sum of four": coordinates.combined(rows[:4], lambda block: weighted_sum(block, of_four[: len(block)])),
        "median": coordinates.combined(rows, coordinate_median),
    }
    for number, groups in enumerate(groups_of(entries)):
        whole, sizes = vectors["median"], coordinates.sizes(groups)
        ranks, counts = magnitude_ranks(whole, sizes), counts_of(groups)
        here = coordinates.largest(whole, ranks, groups, counts)
        for k in range(len(counts)):
            vectors[f"largest {k} of {number}"] = keep_largest(whole, ranks, here[k].tolist(), sizes)
    return found | {name: coordinates.gathered(vector) for name, vector in vectors.items()}


def payload_of(participant: int, where: slice) -> Tensor:
    """An upload with blocks of zeros, of some coordinates."""
    row = torch.zeros(1000)
    row[100 * participant : 100 * participant + 150] = torch.arange(150.0) + 1
    return wire.pack_blocks(row[where])


def exchanged(exchange: Exchange) -> list[Any]:
    """A round in which one is not asked, one starts from another model and one is removed."""
    where = exchange.shards[exchange.rank]
    model = torch.arange(1000.0)
    asked = [i for i in range(PARTICIPANTS) if i != 3]
    started = dict(exchange.ask(asked, lambda i: model[where] if i == 5 else None, 0))
    arrived: dict[int, Tensor] = {}
    exchange.gather_uploads(
        payload_of, lambda i, payload: arrived.update({i: wire.unpack_blocks(payload, where.stop - where.start)})
    )
    heard = exchange.gather_reports({i: i / 4 for i in exchange.hosted})
    got = dict(exchange.scatter_downloads(lambda i: arrived[i] * 2, [2]))
    return [sorted(arrived), arrived, heard.tolist(), started, got, exchange.traffic, exchange.members]


def one_rank(rank: int, count: int, folder: str) -> None:
    """All of it on one of several ranks; what it found goes to a file."""
    store = dist.FileStore(f"{folder}/store", count)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=count, timeout=timedelta(seconds=60))
    torch.set_num_threads(1)
    blocks._ENTRIES, blocks.SPAN = ENTRIES, SPAN
    found = [worked_out(Part(entries, Ranks(rank, count, CPU)), m, entries) for m, entries in SIZES]
    hosting = [[*range(k, PARTICIPANTS, count)] for k in range(count)]
    round_ = exchanged(Exchange(hosting, rank, CPU, 1000, sharded=True))
    round_[5] = round_[5] and vars(round_[5])
    torch.save([found, round_], f"{folder}/rank_{rank}.pt")
    leave_process_group()


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.parametrize("count", [2, 4])
def test_shards_find_what_one_server_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """A statistic, a combination, a cut or the round of ranks that share the server differs by a bit from one's."""
    called(one_rank, count, str(tmp_path), ranks=count)
    ranks: list[list[Any]] = [torch.load(tmp_path / f"rank_{rank}.pt") for rank in range(count)]
    monkeypatch.setattr(blocks, "_ENTRIES", ENTRIES)
    monkeypatch.setattr(blocks, "SPAN", SPAN)
    for index, (m, entries) in enumerate(SIZES):
        for name, alone in worked_out(Coordinates(entries), m, entries).items():
            together = [found[index][name] for found, _ in ranks]
            assert torch.equal(alone, together[0]), (m, entries, name)
            if name in ("squared norms", "gram", "centred", "of squares", "times", "distances"):
                assert all(torch.equal(alone, other) for other in together), (m, entries, name)
    check_round([one for _, one in ranks], exchanged(Exchange([range(PARTICIPANTS)], 0, CPU, 1000)))


def check_round(together: list[list[Any]], alone: list[Any]) -> None:
    """Every rank knows what one server does, has its part of the uploads, and gives its own participants all parts."""
    senders, arrived, heard, started, got, traffic, members = alone
    shards = blocks.shards(1000, len(together))
    for rank, (theirs, parts, told, begun, received, _, left) in enumerate(together):
        assert (theirs, repr(told), left) == (senders, repr(heard), members)
        assert all(torch.equal(parts[i], arrived[i][shards[rank]]) for i in senders)
        hosted = range(rank, PARTICIPANTS, len(together))
        assert begun.keys() == started.keys() & {*hosted}
        assert received.keys() == got.keys() & {*hosted}
        assert all(torch.equal(vector, got[i]) for i, vector in received.items())
        assert all(torch.equal(vector, started[i]) for i, vector in begun.items())
    assert [one[5] is not None for one in together] == [True, *[False] * (len(together) - 1)]
    counted = together[0][5]
    pieces = [sum(len(payload_of(i, where)) for where in shards) + 8 if i != 3 else 0 for i in range(PARTICIPANTS)]
    assert counted["up"] == pieces
    assert all(0 < here <= there or here == there == 0 for here, there in zip(counted["up"], traffic.up, strict=True))
    assert counted["down"][2:4] == [0, 0]
    assert counted["down"][5] > 4000


def test_shards_are_whole_spans() -> None:
    """A coordinate is served twice or not at all, a squared norm is cut elsewhere, or ranks have unequal parts."""
    for dimension, ranks in product([1, blocks.SPAN, 1_000_000, 11_000_000], [1, 2, 4, 7]):
        found = blocks.shards(dimension, ranks)
        assert [where.start for where in found[1:]] == [where.stop for where in found[:-1]]
        assert (found[0].start, found[-1].stop, len(found)) == (0, dimension, ranks)
        assert all(where.start % blocks.SPAN == 0 or where.start == dimension for where in found)
        sizes = [where.stop - where.start for where in found]
        assert max(sizes) - min(sizes) <= 2 * blocks.SPAN
