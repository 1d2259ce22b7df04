"""The wire format of a sparse vector.

With D entries of which k are not zero, a payload is the shortest of

- *positions*: k float32 values and k int32 positions, 8k bytes,
- *mask*: k float32 values and a bitmask, 4k + 4 ceil(D/32) bytes,
- *dense*: all D values, 4D bytes.

The length tells which form it is, so the length is all a receiver must know, and it is a multiple of 4 bytes. Positions
beat the mask below D/32 entries.
"""

from __future__ import annotations

import torch
from torch import Tensor

_BITS = 8


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


def _mask_size(dimension: int) -> int:
    return 4 * -(-dimension // 32)


def _powers(device: torch.device) -> Tensor:
    return torch.tensor([1, 2, 4, 8, 16, 32, 64, 128], dtype=torch.uint8, device=device)
