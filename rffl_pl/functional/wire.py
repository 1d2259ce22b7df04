"""Wire formats: of a download, of signs, and of uploads with a fixed number of entries.

A download is a sparse vector. With D entries of which k are not zero, its payload is the shortest of

- *positions*: k float32 values and k int32 positions, 8k bytes,
- *mask*: k float32 values and a bitmask, 4k + 4 ceil(D/32) bytes,
- *dense*: all D values, 4D bytes.

The length tells which form it is, so the length is all a receiver must know, and it is a multiple of 4 bytes. Positions
beat the mask below D/32 entries.

A payload comes from somebody who may send anything: what no packing makes is a ``ValueError`` before any of it is used
as a position, since one out of range would end the process on a GPU.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from rffl_pl.functional.finite import all_finite

_BITS = 8
_BLOCK = 32
_NOT_FINITE, _SIGNS, _NO_VOTE = range(3)


def payload_size(k: int, dimension: int) -> int:
    """Bytes of the payload of a vector with ``k`` of ``dimension`` entries."""
    mask = _mask_size(dimension)
    return min(8 * k if 4 * k < mask else 4 * k + mask, 4 * dimension)


def pack(vector: Tensor) -> Tensor:
    """The payload, uint8 ``[payload_size(k, D)]``, of a float32 vector ``[D]`` with k non-zero entries."""
    support, dimension = vector != 0, vector.numel()
    if payload_size(int(support.count_nonzero()), dimension) == 4 * dimension:
        return vector.contiguous().view(torch.uint8)
    values = vector[support].view(torch.uint8)
    if values.numel() < _mask_size(dimension):
        return torch.cat([values, support.nonzero().squeeze(1).to(torch.int32).view(torch.uint8)])
    return torch.cat([values, _bytes_of_bits(support, _mask_size(dimension))])


def unpack(payload: Tensor, dimension: int) -> Tensor:
    """The float32 vector ``[dimension]`` behind a payload.

    Raises:
        ValueError: If the payload is none of the three forms.
    """
    size, mask = payload.numel(), _mask_size(dimension)
    if size < min(2 * mask, 4 * dimension):
        return unpack_entries(payload, dimension, size // 8)
    payload = payload.clone()  # a slice of a longer buffer need not be aligned for float32
    if size == 4 * dimension:
        return payload.view(torch.float32)
    where = _bits(payload[size - mask :])[:dimension]
    if size != 4 * int(where.sum()) + mask:
        raise ValueError(f"{size} bytes are no payload of {dimension} entries")
    vector = torch.zeros(dimension, dtype=torch.float32, device=payload.device)
    return vector.masked_scatter_(where, payload[: size - mask].view(torch.float32))


def pack_blocks(vector: Tensor) -> Tensor:
    """A float32 vector ``[D]`` without the blocks of 32 entries that are all zero, uint8; the vector where none is.

    For uploads: a word that a participant does not have leaves its whole embedding untouched. Several times faster to
    pack than single entries. The last D mod 32 entries are always sent.
    """
    count = vector.numel() // _BLOCK
    blocks, rest = vector[: count * _BLOCK].view(count, _BLOCK), vector[count * _BLOCK :]
    used = (blocks != 0).view(torch.int64).any(1)  # eight entries at a time
    mask = _bytes_of_bits(used, -(-count // _BITS))
    packed = torch.cat([blocks[used].view(torch.uint8).flatten(), rest.view(torch.uint8), mask])
    return packed if packed.numel() < 4 * vector.numel() else vector.contiguous().view(torch.uint8)


def unpack_blocks(payload: Tensor, dimension: int) -> Tensor:
    """The float32 vector ``[dimension]`` behind `pack_blocks`.

    Raises:
        ValueError: If the payload is of no length that its mask allows.
    """
    payload = payload.clone()  # a slice of a longer buffer need not be aligned for float32
    if payload.numel() == 4 * dimension:
        return payload.view(torch.float32)
    count = dimension // _BLOCK
    size = payload.numel() - -(-count // _BITS)
    used = _bits(payload[max(size, 0) :])[:count]
    entries = _BLOCK * int(used.sum())
    if size != 4 * (entries + dimension % _BLOCK) or payload.numel() > 4 * dimension:
        raise ValueError(f"{payload.numel()} bytes are no payload of {dimension} entries in blocks")
    values = payload[:size].view(torch.float32)
    vector = torch.zeros(dimension, device=payload.device)
    vector[: count * _BLOCK].view(count, _BLOCK)[used] = values[:entries].view(-1, _BLOCK)
    vector[count * _BLOCK :] = values[entries:]
    return vector


def pack_signs(row: Tensor) -> Tensor:
    """One bit per entry, uint8 ``[1 + ceil(D/8)]``, of a vector ``[D]`` of -1 and 1.

    The first byte says whether the vector has signs to send: 1, or 0 for one that is not finite and 2 for zeros.
    """
    packed = _bytes_of_bits(row > 0, -(-row.numel() // _BITS))
    kind = _SIGNS if row.any() else _NO_VOTE
    return torch.cat([packed.new_tensor([kind if all_finite(row) else _NOT_FINITE]), packed])


def unpack_signs(payload: Tensor, dimension: int) -> Tensor:
    """The vector ``[dimension]`` of -1 and 1 behind `pack_signs`; zeros, or NaN where it was not finite.

    Raises:
        ValueError: If the payload is of another length or kind.
    """
    kind = int(payload[0]) if payload.numel() == 1 + -(-dimension // _BITS) else None
    if kind not in (_NOT_FINITE, _SIGNS, _NO_VOTE):
        raise ValueError(f"{payload.numel()} bytes are no payload of {dimension} signs")
    if kind != _SIGNS:
        return torch.full((dimension,), torch.nan if kind == _NOT_FINITE else 0.0, device=payload.device)
    return _bits(payload[1:])[:dimension].float().mul_(2).sub_(1)


def pack_entries(row: Tensor, count: int) -> Tensor:
    """Values and positions, uint8 ``[8 count]``, of the ``count`` largest entries of a float32 vector ``[D]``."""
    positions = row.abs().topk(count, sorted=False).indices  # a NaN counts as the largest
    return torch.cat([row[positions].view(torch.uint8), positions.to(torch.int32).view(torch.uint8)])


def unpack_entries(payload: Tensor, dimension: int, count: int) -> Tensor:
    """The float32 vector ``[dimension]`` behind `pack_entries`.

    Raises:
        ValueError: If the payload does not hold ``count`` entries of different positions in the vector.
    """
    if payload.numel() != 8 * count:
        raise ValueError(f"{payload.numel()} bytes are no payload of {count} entries")
    payload = payload.clone()  # a part of a longer buffer need not be aligned for float32
    values, positions = payload[: 4 * count].view(torch.float32), payload[4 * count :].view(torch.int32).long()
    within = (positions >= 0) & (positions < dimension)
    if not within.all() or positions.unique().numel() != count:
        raise ValueError(f"{count} entries are not all at positions of their own among {dimension}")
    vector = torch.zeros(dimension, device=payload.device)
    vector[positions] = values
    return vector


def _mask_size(dimension: int) -> int:
    return 4 * -(-dimension // 32)


def _bytes_of_bits(flags: Tensor, count: int) -> Tensor:
    """Flags, bool ``[n]``, as the bits of ``count`` bytes, the lowest of each first; those beyond are 0."""
    bits = pad(flags, (0, count * _BITS - flags.numel())).view(-1, _BITS)
    return (bits * _powers(flags.device)).sum(1, dtype=torch.uint8)


def _bits(mask: Tensor) -> Tensor:
    """The bits of bytes ``[n]``, bool ``[8 n]``, the lowest of each first."""
    return ((mask.unsqueeze(1) & _powers(mask.device)) != 0).flatten()


def _powers(device: torch.device) -> Tensor:
    return torch.tensor([1, 2, 4, 8, 16, 32, 64, 128], dtype=torch.uint8, device=device)
