"""What crosses the border between participants and server: payloads, reports, downloads, and the bytes counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

import rffl_pl.exchange
from rffl_pl.errors import UserError
from rffl_pl.exchange import MOST_SAID, Exchange, _facts
from rffl_pl.functional import wire
from rffl_pl.strategy import leave_process_group
from tests.ranks import called

CPU = torch.device("cpu")
DIMENSION = 40


def alone(participants: int = 4) -> Exchange:
    """The exchange of one process."""
    return Exchange([range(participants)], 0, CPU, DIMENSION)


def payload_of(participant: int) -> Tensor:
    """A payload of a length of its own."""
    generator = torch.Generator().manual_seed(participant)
    return torch.randint(0, 256, (5 + 3 * participant,), generator=generator, dtype=torch.uint8)


def whole(participant: int, where: slice) -> Tensor:
    """The same, where rank 0 serves all coordinates."""
    assert where == slice(0, DIMENSION)
    return payload_of(participant)


def sparse(participant: int) -> Tensor:
    """A download with as many entries as the participant has predecessors."""
    vector = torch.zeros(DIMENSION)
    vector[: 3 * participant] = torch.arange(3 * participant) + 0.5
    return vector


def model_of(participant: int) -> Tensor | None:
    """Odd participants start from another model than their own."""
    return torch.full((DIMENSION,), float(participant)) if participant % 2 else None


@dataclass
class Seen:
    """What one rank has of a round."""

    models: dict[int, Tensor]
    uploads: dict[int, Tensor]
    senders: list[int]
    reported: list[float]
    downloads: dict[int, Tensor]
    up: list[int]
    down: list[int]


def exchanged(
    exchange: Exchange,
    *,
    asked: Sequence[int] | None = None,
    reports: dict[int, float] | None = None,
    removed: Sequence[int] = (),
) -> Seen:
    """One round, in the order of `rffl_pl.round.play`."""
    server, models = exchange.rank == 0, {}
    if asked is None:
        exchange.ask_all()
    else:
        models = dict(exchange.ask(asked if server else (), model_of if server else None, 0))
    uploads: dict[int, Tensor] = {}
    exchange.gather_uploads(whole, uploads.__setitem__)
    senders = sorted(uploads)
    mine = {i: value for i, value in (reports or {}).items() if i in exchange.hosted}
    reported = [] if reports is None else exchange.gather_reports(mine).tolist()
    downloads = dict(exchange.scatter_downloads(sparse if server else None, removed if server else ()))
    traffic = exchange.traffic
    up, down = (traffic.up, traffic.down) if traffic else ([], [])
    return Seen(models, uploads, senders, reported, downloads, up, down)


def test_payloads_arrive_as_they_were_sent() -> None:
    """Whatever their lengths; the bytes counted are theirs, round after round."""
    exchange = alone()
    for _ in range(3):
        seen = exchanged(exchange)
        assert seen.senders == [0, 1, 2, 3]
        assert all(torch.equal(seen.uploads[i], payload_of(i)) for i in range(4))
        assert seen.up == [5, 8, 11, 14]


def test_a_length_that_nobody_can_mean_is_refused() -> None:
    """Before memory is taken for it: a rank can announce anything."""
    exchange, endless = alone(), torch.zeros(1, dtype=torch.uint8).expand(1 << 40)
    exchange.ask_all()
    with pytest.raises(
        UserError, match=r"^Expected rank 0 to send uploads of \d+ entries, but it announces 1099511627776"
    ):
        exchange.gather_uploads(lambda i, where: endless, lambda i, payload: None)


def test_a_download_that_nobody_can_mean_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Likewise: a message from the server may be damaged on the way."""
    endless = torch.zeros(1, dtype=torch.uint8).expand(1 << 40)
    monkeypatch.setattr(rffl_pl.exchange.wire, "pack", lambda vector: endless)
    exchange = alone()
    exchange.ask_all()
    with pytest.raises(UserError, match=r"^Expected rank 0 to send downloads of 40 entries, but it announces 1099511"):
        next(exchange.scatter_downloads(sparse, ()))


def test_a_report_is_eight_bytes() -> None:
    """It is counted in the round in which it is sent, and in no other; it arrives in float64."""
    exchange, values = alone(), {0: 0.1, 1: float("nan"), 2: 1e-300, 3: float("inf")}
    assert exchanged(exchange, reports=values).up == [13, 16, 19, 22]
    assert exchanged(exchange).up == [5, 8, 11, 14]
    reported = exchanged(exchange, reports=values).reported
    assert reported[0] == 0.1
    assert reported[1] != reported[1]
    assert reported[2:] == [1e-300, float("inf")]


def test_downloads_and_their_bytes() -> None:
    """Everybody gets its own vector; the bytes are those of the shortest form."""
    seen = exchanged(alone())
    assert all(torch.equal(seen.downloads[i], sparse(i)) for i in range(4))
    assert seen.down == [wire.payload_size(3 * i, DIMENSION) for i in range(4)]


def test_a_common_download_is_packed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that everybody gets costs one packing, however many get it."""
    packed, pack = [], wire.pack

    def counted(vector: Tensor) -> Tensor:
        packed.append(vector)
        return pack(vector)

    monkeypatch.setattr(rffl_pl.exchange.wire, "pack", counted)
    exchange, step = alone(), torch.arange(DIMENSION, dtype=torch.float32)
    exchange.ask_all()
    exchange.gather_uploads(whole, lambda i, payload: None)
    downloads = dict(exchange.scatter_downloads(lambda i: step, ()))
    assert len(packed) == 1
    assert all(torch.equal(downloads[i], step) for i in range(4))


def test_removed_participants_cost_nothing() -> None:
    """Whoever is removed has sent, receives nothing more, and from the next round on sends nothing."""
    exchange = alone()
    seen = exchanged(exchange, removed=(1, 2))
    assert seen.senders == [0, 1, 2, 3]
    assert sorted(seen.downloads) == [0, 3]
    assert seen.down[1] == seen.down[2] == 0
    seen = exchanged(exchange, reports=dict.fromkeys(range(4), 1.0))
    assert seen.senders == sorted(seen.downloads) == exchange.members == [0, 3]
    assert seen.up == [13, 0, 0, 22]


def test_who_is_not_asked_costs_nothing() -> None:
    """It sends and receives nothing and stays a member; who starts from another model gets it, counted as download."""
    exchange = alone()
    seen = exchanged(exchange, asked=[1, 2], reports={1: 0.5, 2: 0.25})
    assert seen.senders == sorted(seen.downloads) == [1, 2]
    assert list(seen.models) == [1]
    assert seen.models[1].tolist() == [1.0] * DIMENSION
    assert seen.up == [0, 16, 19, 0]
    assert seen.down == [0, 4 * DIMENSION + wire.payload_size(3, DIMENSION), wire.payload_size(6, DIMENSION), 0]
    assert [value == value for value in seen.reported] == [False, True, True, False]
    assert exchange.members == [0, 1, 2, 3]
    assert exchanged(exchange).senders == [0, 1, 2, 3]


def announcing(rank: int, folder: str) -> None:
    """Rank 0 asks for facts, and rank 1 announces ever other lengths of them; then it hears such of rank 0."""
    store = dist.FileStore(f"{folder}/store", RANKS)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=RANKS, timeout=timedelta(seconds=60))
    exchange = Exchange(BLOCKS, rank, CPU, DIMENSION)
    for size in (1 << 40, -1):
        if rank == 1:
            exchange._to_server(torch.tensor([[size]]), [1, 1])
            continue
        with pytest.raises(UserError, match=f"rank 1 to say no more than {MOST_SAID} bytes, but it announces {size}"):
            exchange.first_difference({"a": "same"})
    for size in (1 << 40, -1):
        if rank == 0:
            dist.broadcast(torch.tensor(size), 0)
            continue
        with pytest.raises(UserError, match=f"rank 0 to say no more than {MOST_SAID} bytes, but it announces {size}"):
            exchange.ranks.broadcast_json(None)
    exchange.ask_all()
    for size in (1 << 40, -2):
        if rank == 0:
            exchange._from_servers(torch.tensor([0, 0, 0, 0, size]), [3, 2], [3])
            continue
        with pytest.raises(UserError, match=f"rank 0 to send downloads of {DIMENSION} entries, but .* {size} bytes"):
            next(exchange.scatter_downloads(None, ()))
    leave_process_group()


@pytest.mark.slow
@pytest.mark.distributed
def test_a_rank_that_announces_too_much(tmp_path: Path) -> None:
    """The other reserves nothing for it, and says whose it is."""
    called(announcing, str(tmp_path), ranks=RANKS)


def test_what_is_no_text_differs() -> None:
    """Bytes that are no UTF-8, and JSON that is no object, tell nothing of a rank."""
    assert [_facts(said) for said in (b"\xff", b"[1]", b"{", b'{"a": "b"}')] == [{}, {}, {}, {"a": "b"}]


RANKS, BLOCKS = 2, [[0, 3, 4], [1, 2]]
ROUNDS: list[dict[str, Any]] = [
    {"removed": (2, 3), "reports": dict.fromkeys(range(5), 1.5)},
    {"asked": [1, 4], "reports": {0: 1.0, 1: 2.0, 4: 3.0}},
    {},
    {"asked": [0], "removed": (0,)},
]


def one_rank(rank: int, folder: str, buffer: int) -> None:
    """Some rounds of one of two ranks; what it received goes to a file."""
    store = dist.FileStore(f"{folder}/store", RANKS)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=RANKS, timeout=timedelta(seconds=60))
    torch.set_num_threads(1)
    rffl_pl.exchange._BUFFER = buffer
    exchange = Exchange(BLOCKS, rank, CPU, DIMENSION)
    seen = [vars(exchanged(exchange, **one)) for one in ROUNDS]
    rows = torch.arange(10).view(5, 2)[list(BLOCKS[rank])]
    asked = ({"a": "same", "b": str(rank)}, {"a": "same"})
    facts = [None if (found := exchange.first_difference(one)) is None else tuple(found) for one in asked]
    torch.save([*seen, exchange.gather_rows(rows), facts], f"{folder}/rank_{rank}.pt")
    leave_process_group()


@pytest.mark.distributed
@pytest.mark.parametrize("buffer", [1 << 24, DIMENSION], ids=["one wave", "a wave for every participant"])
def test_ranks_exchange_what_one_process_does(tmp_path: Path, buffer: int) -> None:
    """Payloads, reports, models, downloads, removals and bytes of two real ranks are those of one process."""
    called(one_rank, str(tmp_path), buffer, ranks=RANKS)
    ranks: list[list[Any]] = [torch.load(tmp_path / f"rank_{rank}.pt") for rank in range(RANKS)]
    exchange = alone(5)
    for index, one in enumerate(ROUNDS):
        whole, (server, other) = exchanged(exchange, **one), (rank[index] for rank in ranks)
        assert server["senders"] == whole.senders
        assert repr(server["reported"]) == repr(whole.reported)
        assert (server["up"], server["down"]) == (whole.up, whole.down)
        assert server["uploads"].keys() == whole.uploads.keys()
        assert all(torch.equal(server["uploads"][i], payload) for i, payload in whole.uploads.items())
        assert not any(other[name] for name in ("senders", "uploads", "reported", "up", "down"))
        for name in ("models", "downloads"):
            together = {
                i: (rank, vector) for rank, seen in enumerate((server, other)) for i, vector in seen[name].items()
            }
            expected = getattr(whole, name)
            assert together.keys() == expected.keys()
            assert all(i in BLOCKS[rank] and torch.equal(v, expected[i]) for i, (rank, v) in together.items())
    assert torch.equal(ranks[0][-2], torch.arange(10).view(5, 2))
    assert len(ranks[1][-2]) == 0
    assert [rank[-1] for rank in ranks] == [[(1, "b", "1", "0"), None]] * 2
