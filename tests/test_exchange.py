"""What crosses the border between participants and server: rows, losses, downloads, and the bytes counted for them."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor

from rffl_pl.exchange import Exchange, Traffic
from rffl_pl.functional import wire

CPU = torch.device("cpu")
DIMENSION = 40
DTYPES = [torch.float32, torch.float64, torch.uint8, torch.int64]


def alone(participants: int = 4) -> Exchange:
    """The exchange of one process."""
    return Exchange([range(participants)], 0, CPU)


def payloads(rows: int, entries: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
    """Payloads of any type, no two rows alike."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (rows, entries), generator=generator).to(dtype)


def sparse(participant: int) -> Tensor:
    """A download with as many entries as the participant has predecessors."""
    vector = torch.zeros(DIMENSION)
    vector[: 3 * participant] = torch.arange(3 * participant) + 0.5
    return vector


def exchanged(
    exchange: Exchange, rows: Tensor, losses: Tensor | None = None, removed: tuple[int, ...] = ()
) -> tuple[Tensor, list[int], Tensor | None, dict[int, Tensor], Traffic | None]:
    """One round, as the callback does it."""
    uploads, senders = exchange.gather_uploads(rows)
    reported = None if losses is None else exchange.gather_losses(losses)
    download = sparse if exchange.rank == 0 else None
    downloads, traffic = exchange.scatter_downloads(download, removed if exchange.rank == 0 else (), DIMENSION)
    return uploads, senders, reported, downloads, traffic


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("entries", [1, 7, 40])
def test_bytes_up_are_those_of_the_payload(dtype: torch.dtype, entries: int) -> None:
    """Other bytes are counted than the payload has, whatever its type and length, or rounds add up."""
    exchange = alone()
    for seed in range(3):
        rows = payloads(4, entries, dtype, seed)
        uploads, senders, _, _, traffic = exchanged(exchange, rows)
        assert traffic is not None
        assert traffic.up == [len(row.numpy().tobytes()) for row in rows]
        assert torch.equal(uploads, rows)
        assert uploads.dtype == dtype
        assert senders == [0, 1, 2, 3]


@pytest.mark.parametrize("entries", [1, 40, 1000])
def test_bytes_up_of_sparse_float32(entries: int) -> None:
    """Of float32 blocks of zeros are neither sent nor counted where that is shorter, and it arrives as it was."""
    rows = torch.randn(5, entries, generator=torch.Generator().manual_seed(entries))
    for row, share in zip(rows, (0.0, 0.01, 0.3, 0.9, 1.0), strict=True):
        row[int(share * entries) :] = 0
    rows[3, 0] = torch.nan
    uploads, _, _, _, traffic = exchanged(alone(5), rows, torch.rand(5, dtype=torch.float64))
    assert traffic is not None
    blocks = entries // 32
    used = [sum(bool((row[32 * b : 32 * b + 32] != 0).any()) for b in range(blocks)) for row in rows]
    shortest = [min(128 * k + 4 * (entries % 32) + -(-blocks // 8), 4 * entries) for k in used]
    assert traffic.up == [size + 8 for size in shortest]
    assert torch.equal(uploads.nan_to_num(9), rows.nan_to_num(9))
    assert uploads[3, 0].isnan()


@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8], ids=str)
def test_a_reported_loss_is_eight_bytes(dtype: torch.dtype) -> None:
    """A loss is counted in the round in which it is sent, and in no other."""
    exchange, rows, losses = alone(), payloads(4, 9, dtype), torch.rand(4, dtype=torch.float64)
    size = 9 * rows.element_size()
    for reported, extra in [(losses, 8), (None, 0), (losses, 8)]:
        traffic = exchanged(exchange, rows, reported)[4]
        assert traffic is not None
        assert traffic.up == [size + extra] * 4


def test_losses_arrive_as_they_are() -> None:
    """One per participant, in float64, NaN where nobody measured."""
    losses = torch.tensor([0.1, torch.nan, 1e-300, torch.inf], dtype=torch.float64)
    reported = alone().gather_losses(losses)
    assert reported.shape == (4,)
    assert reported.dtype == torch.float64
    assert torch.equal(reported.nan_to_num(-1), losses.nan_to_num(-1))


def test_downloads_and_their_bytes() -> None:
    """Everybody gets its own vector; the bytes are those of the shortest form."""
    _, _, _, downloads, traffic = exchanged(alone(), payloads(4, 5, torch.float32))
    assert traffic is not None
    for i in range(4):
        assert torch.equal(downloads[i], sparse(i))
    assert traffic.down == [wire.payload_size(3 * i, DIMENSION) for i in range(4)]


def test_removed_participants_cost_nothing() -> None:
    """Whoever is removed has sent, receives nothing more, and from the next round on sends nothing."""
    exchange, rows = alone(), payloads(4, 5, torch.uint8)
    _, senders, _, downloads, traffic = exchanged(exchange, rows, removed=(1, 2))
    assert traffic is not None
    assert senders == [0, 1, 2, 3]
    assert sorted(downloads) == [0, 3]
    assert traffic.up == [5] * 4
    assert traffic.down[1] == traffic.down[2] == 0
    uploads, senders, _, downloads, traffic = exchanged(exchange, rows, torch.rand(4, dtype=torch.float64))
    assert traffic is not None
    assert senders == sorted(downloads) == [0, 3]
    assert torch.equal(uploads, rows[[0, 3]])
    assert traffic.up == [13, 0, 0, 13]


RANKS, BLOCKS = 2, [[0, 3, 4], [1, 2]]


def one_rank(rank: int, folder: str) -> None:
    """Two rounds of one of two ranks; what it received goes to a file."""
    store = dist.FileStore(f"{folder}/store", RANKS)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=RANKS, timeout=timedelta(seconds=60))
    torch.set_num_threads(1)
    exchange, mine, seen = Exchange(BLOCKS, rank, CPU), list(BLOCKS[rank]), []
    for seed, removed in enumerate([(2, 3), ()]):
        losses = torch.arange(5, dtype=torch.float64)[mine] + seed
        seen.append(exchanged(exchange, payloads(5, 7, torch.uint8, seed)[mine], losses, removed))
    whole = exchange.gather_rows(payloads(5, 7, torch.int64)[mine])
    results = [(*one[:4], one[4] and (one[4].up, one[4].down)) for one in seen]
    torch.save([*results, whole], f"{folder}/rank_{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


@pytest.mark.distributed
def test_ranks_exchange_what_one_process_does(tmp_path: Path) -> None:
    """Bytes of uint8 payloads, losses, rows, removals and downloads of two real ranks are those of one process."""
    mp.spawn(one_rank, (str(tmp_path),), nprocs=RANKS)
    ranks: list[list[Any]] = [torch.load(tmp_path / f"rank_{rank}.pt") for rank in range(RANKS)]
    exchange = alone(5)
    for index, removed in enumerate([(2, 3), ()]):
        losses = torch.arange(5, dtype=torch.float64) + index
        uploads, senders, reported, downloads, traffic = exchanged(
            exchange, payloads(5, 7, torch.uint8, index), losses, removed
        )
        assert traffic is not None
        assert traffic.up == ([15] * 5 if index == 0 else [15, 15, 0, 0, 15])
        server, *others = (rank[index] for rank in ranks)
        assert torch.equal(server[0], uploads)
        assert server[1] == senders
        torch.testing.assert_close(server[2], reported, rtol=0, atol=0, equal_nan=True)
        assert server[4] == (traffic.up, traffic.down)
        assert all(len(rows) == len(who) == len(heard) == 0 and not count for rows, who, heard, _, count in others)
        together = {i: vector for rank in ranks for i, vector in rank[index][3].items()}
        assert all(i in BLOCKS[r] for r, rank in enumerate(ranks) for i in rank[index][3])
        assert together.keys() == downloads.keys()
        assert all(torch.equal(together[i], vector) for i, vector in downloads.items())
    assert torch.equal(ranks[0][2], payloads(5, 7, torch.int64))
    assert len(ranks[1][2]) == 0
