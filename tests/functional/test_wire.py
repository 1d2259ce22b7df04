"""The wire formats of downloads, signs and largest entries: exact, and as long as announced."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from rffl_pl.functional import wire
from rffl_pl.functional.wire import pack, pack_blocks, payload_size, unpack, unpack_blocks

DIMENSIONS = [1, 2, 31, 32, 33, 100, 1000, 104242]


def counts(dimension: int) -> list[int]:
    """Numbers of kept entries: none, one, all, and around the two borders between the three forms."""
    borders = (dimension // 32, dimension - dimension // 32)
    near = [border + step for border in borders for step in (-2, -1, 0, 1, 2)]
    return sorted({min(max(k, 0), dimension) for k in [0, 1, *near, dimension]})


def sparse(k: int, dimension: int) -> Tensor:
    """A random vector with exactly k entries that are not zero."""
    generator = torch.Generator().manual_seed(1000 * dimension + k)
    vector = torch.zeros(dimension)
    where = torch.randperm(dimension, generator=generator)[:k]
    sign = torch.randint(0, 2, (k,), generator=generator) * 2 - 1
    vector[where] = sign * (torch.rand(k, generator=generator) + 1e-3)
    return vector


CASES = [(k, dimension) for dimension in DIMENSIONS for k in counts(dimension)]


@pytest.mark.parametrize(("k", "dimension"), CASES)
def test_round_trip_is_exact(k: int, dimension: int) -> None:
    """What was packed comes back to the last bit, in as many bytes as announced."""
    vector = sparse(k, dimension)
    payload = pack(vector)
    assert payload.dtype == torch.uint8
    assert payload.shape == (payload_size(k, dimension),)
    assert torch.equal(unpack(payload, dimension), vector)


@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_payload_is_the_shortest_of_the_three_forms(dimension: int) -> None:
    """The size is the least of positions, mask and dense, a multiple of 4 bytes, and nothing for nothing."""
    for k in counts(dimension):
        forms = (8 * k, 4 * k + 4 * -(-dimension // 32), 4 * dimension)
        assert payload_size(k, dimension) == min(forms)
        assert payload_size(k, dimension) % 4 == 0
    assert payload_size(0, dimension) == 0


@pytest.mark.parametrize("offset", [1, 3, 5])
@pytest.mark.parametrize("k", [0, 1, 20, 500, 1000])
def test_a_slice_at_an_odd_offset_unpacks(k: int, offset: int) -> None:
    """A payload need not start at an address that suits float32, and what lies around it does not matter."""
    vector = sparse(k, 1000)
    payload = pack(vector)
    buffer = torch.full((offset + len(payload) + 9,), 255, dtype=torch.uint8)
    buffer[offset : offset + len(payload)] = payload
    assert torch.equal(unpack(buffer[offset : offset + len(payload)], 1000), vector)
    assert torch.equal(pack(vector), payload)


def test_consecutive_payloads_of_one_buffer_unpack() -> None:
    """Payloads of all three forms behind one another, as one transfer carries them, are told apart by length."""
    vectors = [sparse(k, 1000) for k in (3, 0, 400, 1000, 31, 32)]
    payloads = [pack(vector) for vector in vectors]
    parts = torch.cat(payloads).split([len(payload) for payload in payloads])
    assert all(torch.equal(unpack(part, 1000), vector) for part, vector in zip(parts, vectors, strict=True))


@pytest.mark.parametrize("k", [6, 40, 100])
def test_unusual_values_survive(k: int) -> None:
    """Infinities, NaN, the smallest and the largest numbers keep their bits in every form."""
    vector = sparse(k, 100)
    limits = torch.finfo(torch.float32)
    unusual = torch.tensor([torch.inf, -torch.inf, torch.nan, 1e-45, limits.tiny, limits.max])
    vector[vector.nonzero().flatten()[:6]] = unusual
    assert torch.equal(unpack(pack(vector), 100).view(torch.int32), vector.view(torch.int32))


def test_unpacking_leaves_the_payload_alone() -> None:
    """The vector has its own memory: changing it does not change the payload it came from."""
    payload = pack(sparse(100, 100))
    kept = payload.clone()
    unpack(payload, 100).fill_(7)
    assert torch.equal(payload, kept)


def pack_signs(rows: Tensor) -> Tensor:
    """The payloads of rows of signs."""
    return torch.stack([wire.pack_signs(row) for row in rows])


def unpack_signs(payloads: Tensor, dimension: int) -> Tensor:
    """The rows behind them."""
    return torch.stack([wire.unpack_signs(payload, dimension) for payload in payloads])


def pack_entries(rows: Tensor, count: int) -> Tensor:
    """The payloads of rows of entries."""
    return torch.stack([wire.pack_entries(row, count) for row in rows])


def unpack_entries(payloads: Tensor, dimension: int) -> Tensor:
    """The rows behind them."""
    return torch.stack([wire.unpack_entries(payload, dimension, len(payload) // 8) for payload in payloads])


def signs(rows: int, dimension: int, seed: int = 0) -> Tensor:
    """Random rows of -1 and 1."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 2, (rows, dimension), generator=generator).float() * 2 - 1


@pytest.mark.parametrize("rows", [1, 2, 12])
@pytest.mark.parametrize("dimension", [1, 7, 8, 9, *DIMENSIONS[1:]])
def test_signs_take_one_bit_each(dimension: int, rows: int) -> None:
    """A row of D signs takes more than D bits and one byte, or another one comes back."""
    sent = signs(rows, dimension)
    payloads = pack_signs(sent)
    assert payloads.dtype == torch.uint8
    assert payloads.shape == (rows, 1 + -(-dimension // 8))
    assert torch.equal(unpack_signs(payloads, dimension), sent)


@pytest.mark.parametrize("dimension", [1, 8, 33])
def test_signs_at_the_extremes(dimension: int) -> None:
    """Rows of 1 alone or of -1 alone, which are bytes of 255 and 0, are taken for something else."""
    for value in (-1.0, 1.0):
        row = torch.full((1, dimension), value)
        assert torch.equal(unpack_signs(pack_signs(row), dimension), row)


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("where", [slice(None), slice(5, 6)], ids=["all", "one"])
def test_rows_without_signs_come_back_as_nan(where: slice, value: float) -> None:
    """A row that is not finite votes, or takes another one with it."""
    sent = signs(4, 33)
    sent[1, where] = value
    received = unpack_signs(pack_signs(sent), 33)
    assert received[1].isnan().all()
    assert torch.equal(received[[0, 2, 3]], sent[[0, 2, 3]])


def entries(rows: int, dimension: int, count: int, *, ties: bool = False) -> Tensor:
    """Random rows with at most ``count`` entries that are not zero, in places of their own."""
    generator = torch.Generator().manual_seed(1000 * dimension + count)
    values = torch.randn(rows, dimension, generator=generator)
    values = values.sign() if ties else values
    return torch.stack([row * (torch.randperm(dimension, generator=generator) < count) for row in values])


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize(
    ("dimension", "count"), [(1, 1), (2, 1), (33, 1), (33, 3), (33, 32), (33, 33), (104242, 10424)]
)
def test_entries_come_back(dimension: int, count: int, ties: bool) -> None:
    """Rows of fixed numbers of entries do not come back to the last bit, or take more than 8 bytes per entry."""
    sent = entries(5, dimension, count, ties=ties)
    payloads = pack_entries(sent, count)
    assert payloads.dtype == torch.uint8
    assert payloads.shape == (5, 8 * count)
    assert torch.equal(unpack_entries(payloads, dimension), sent)


def test_fewer_entries_than_announced_come_back() -> None:
    """A row with zeros among its largest entries, or of zeros alone, gets a value or loses one."""
    sent = entries(5, 33, 3)
    sent[2] = 0
    assert torch.equal(unpack_entries(pack_entries(sent, 20), 33), sent)


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("count", [1, 5, 33])
def test_entries_that_are_not_finite_arrive(count: int, value: float) -> None:
    """A dense row with one NaN or infinity arrives without it, and so as fit to compute with."""
    sent = entries(4, 33, count)
    sent[1] = torch.linspace(-1, 1, 33)
    sent[1, 7] = value
    received = unpack_entries(pack_entries(sent, count), 33)
    assert not received[1].isfinite().all()
    assert torch.equal(received[[0, 2, 3]], sent[[0, 2, 3]])


def test_rows_of_slices_pack() -> None:
    """Rows that do not lie behind one another in memory are packed wrongly."""
    wide = torch.cat([signs(6, 33), entries(6, 33, 33)], dim=1)
    for rows in (slice(None, None, 2), [4, 1]):
        assert torch.equal(unpack_signs(pack_signs(wide[rows, :33]), 33), wide[rows, :33])
        assert torch.equal(unpack_entries(pack_entries(wide[rows, 33:], 33), 33), wide[rows, 33:])
    payloads = pack_entries(wide[:, 33:], 33)
    assert torch.equal(unpack_entries(payloads[::2], 33), wide[::2, 33:])
    assert torch.equal(unpack_signs(pack_signs(wide[:, :33])[::2], 33), wide[::2, :33])
    beside = torch.cat([torch.zeros(3, dtype=torch.uint8), payloads[0]])[3:]  # not aligned
    assert torch.equal(wire.unpack_entries(beside, 33, 33), wide[0, 33:])


@pytest.mark.parametrize("dimension", [1, 31, 32, 33, 64, 257, 1000])
@pytest.mark.parametrize("density", [0.0, 0.05, 0.5, 1.0])
def test_blocks_come_back_as_they_were(dimension: int, density: float) -> None:
    """Every bit of every entry, NaN and infinity too, in no more bytes than the vector has."""
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        vector = torch.randn(dimension, generator=generator)
        keep = torch.rand(-(-dimension // 40), generator=generator) < density
        vector *= keep.repeat_interleave(40)[:dimension]
        vector[dimension // 2] = (torch.nan, torch.inf, 0.0)[seed]
        payload = pack_blocks(vector)
        assert payload.dtype == torch.uint8
        assert payload.numel() <= 4 * dimension
        beside = torch.cat([torch.zeros(3, dtype=torch.uint8), payload])[3:]  # not aligned
        torch.testing.assert_close(unpack_blocks(beside, dimension), vector, rtol=0, atol=0, equal_nan=True)


def test_blocks_of_zeros_are_not_sent() -> None:
    """One word of a thousand costs its blocks and a bit per block."""
    vector = torch.zeros(320_000)
    vector[3200:3500] = 1.0
    assert pack_blocks(vector).numel() == 4 * 32 * 10 + 10_000 // 8
