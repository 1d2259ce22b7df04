"""The sparse wire format: exact, and never longer than it has to be."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from rffl_pl.functional.wire import pack, payload_size, unpack

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
