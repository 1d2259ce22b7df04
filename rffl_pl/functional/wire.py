"""Wire formats: of a download, of signs, and of uploads with a fixed number of entries.

A download is a sparse vector. With D entries of which k are not zero, its payload is the shortest of

- *positions*: k float32 values and k int32 positions, 8k bytes,
- *mask*: k float32 values and a bitmask, 4k + 4 ceil(D/32) bytes,
- *dense*: all D values, 4D bytes.

The length tells which form it is, so the length is all a receiver must know, and it is a multiple of 4 bytes. Positions
beat the mask below D/32 entries.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

_BITS = 8
_BLOCK = 32


def payload_size(k: int, dimension: int) -> int:
    """Bytes of the payload of a vector with ``k`` of ``dimension`` entries."""
    mask = _mask_size(dimension)
    return min(8 * k if 4 * k < mask else 4 * k + mask, 4 * dimension)


def pack(vector: Tensor) -> Tensor:
    """The payload, uint8 ``[payload_size(k, D)]``, of a float32 vector ``[D]`` with k non-zero entries."""
    support = vector != 0
    dimension = vector.numel()
    values = vector[support].view(torch.uint8)
    if payload_size(values.numel() // 4, dimension) == 4 * dimension:
        return vector.contiguous().view(torch.uint8)
    if values.numel() < _mask_size(dimension):
        return torch.cat([values, support.nonzero().squeeze(1).to(torch.int32).view(torch.uint8)])
    bits = support.new_zeros(_mask_size(dimension) * _BITS)
    bits[:dimension] = support
    return torch.cat([values, (bits.view(-1, _BITS) * _powers(vector.device)).sum(1, dtype=torch.uint8)])


def unpack(payload: Tensor, dimension: int) -> Tensor:
    """The float32 vector ``[dimension]`` behind a payload."""
    size, mask = payload.numel(), _mask_size(dimension)
    payload = payload.clone()  # a slice of a longer buffer need not be aligned for float32
    if size == 4 * dimension:
        return payload.view(torch.float32)
    vector = torch.zeros(dimension, dtype=torch.float32, device=payload.device)
    if size < 2 * mask:
        vector[payload[size // 2 :].view(torch.int32).long()] = payload[: size // 2].view(torch.float32)
    else:
        where, values = payload[size - mask :], payload[: size - mask].view(torch.float32)
        vector[((where.unsqueeze(1) & _powers(payload.device)) != 0).view(-1)[:dimension]] = values
    return vector


def pack_blocks(vector: Tensor) -> Tensor:
    """A float32 vector ``[D]`` without the blocks of 32 entries that are all zero, uint8; the vector where none is.

    For uploads: a word that a participant does not have leaves its whole embedding untouched. Several times faster to
    pack than single entries. The last D mod 32 entries are always sent.
    """
    count = vector.numel() // _BLOCK
    blocks, rest = vector[: count * _BLOCK].view(count, _BLOCK), vector[count * _BLOCK :]
    used = (blocks != 0).view(torch.int64).any(1)  # eight entries at a time
    bits = pad(used, (0, -count % _BITS)).view(-1, _BITS)
    mask = (bits * _powers(vector.device)).sum(1, dtype=torch.uint8)
    packed = torch.cat([blocks[used].view(torch.uint8).flatten(), rest.view(torch.uint8), mask])
    return packed if packed.numel() < 4 * vector.numel() else vector.contiguous().view(torch.uint8)


def unpack_blocks(payload: Tensor, dimension: int) -> Tensor:
    """The float32 vector ``[dimension]`` behind `pack_blocks`."""
    payload = payload.clone()  # a slice of a longer buffer need not be aligned for float32
    if payload.numel() == 4 * dimension:
        return payload.view(torch.float32)
    count = dimension // _BLOCK
    size = payload.numel() - -(-count // _BITS)
    values, mask = payload[:size].view(torch.float32), payload[size:]
    used = ((mask.unsqueeze(1) & _powers(payload.device)) != 0).flatten()[:count]
    vector = torch.zeros(dimension, device=payload.device)
    entries = values.numel() - dimension % _BLOCK
    vector[: count * _BLOCK].view(count, _BLOCK)[used] = values[:entries].view(-1, _BLOCK)
    vector[count * _BLOCK :] = values[entries:]
    return vector


def pack_signs(rows: Tensor) -> Tensor:
    """One bit per entry: uint8 ``[n, 1 + ceil(D/8)]`` for rows ``[n, D]`` of -1 and 1.

    The first byte says whether the row is finite: what is not has no signs to send.
    """
    count, dimension = rows.shape
    size = -(-dimension // _BITS)
    bits = rows.new_zeros((count, size * _BITS), dtype=torch.bool)
    bits[:, :dimension] = rows > 0
    packed = (bits.view(count, size, _BITS) * _powers(rows.device)).sum(2, dtype=torch.uint8)
    return torch.cat([rows.isfinite().all(1, keepdim=True).to(torch.uint8), packed], dim=1)


def unpack_signs(payloads: Tensor, dimension: int) -> Tensor:
    """The rows ``[m, dimension]`` of -1 and 1 behind `pack_signs`; NaN where a row was not finite."""
    bits = (payloads[:, 1:].unsqueeze(2) & _powers(payloads.device)) != 0
    signs = bits.flatten(1)[:, :dimension].float().mul(2).sub(1)
    return torch.where(payloads[:, :1] != 0, signs, torch.nan)


def pack_entries(rows: Tensor, count: int) -> Tensor:
    """Values and positions, uint8 ``[n, 8 count]``, of the ``count`` largest entries of float32 rows ``[n, D]``."""
    positions = rows.abs().topk(count, dim=1, sorted=False).indices  # a NaN counts as the largest
    values = rows.gather(1, positions)
    return torch.cat([values.view(torch.uint8), positions.to(torch.int32).view(torch.uint8)], dim=1)


def unpack_entries(payloads: Tensor, dimension: int) -> Tensor:
    """The float32 rows ``[m, dimension]`` behind `pack_entries`."""
    values, positions = (half.contiguous() for half in payloads.chunk(2, dim=1))
    rows = torch.zeros(len(payloads), dimension, device=payloads.device)
    return rows.scatter_(1, positions.view(torch.int32).long(), values.view(torch.float32))


def _mask_size(dimension: int) -> int:
    return 4 * -(-dimension // 32)


def _powers(device: torch.device) -> Tensor:
    return torch.tensor([1, 2, 4, 8, 16, 32, 64, 128], dtype=torch.uint8, device=device)
