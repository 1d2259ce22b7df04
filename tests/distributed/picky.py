"""A backend for the card (`tests.distributed.card`) that refuses what NCCL refuses, and moves bytes with gloo.

``cpu:gloo,card:picky`` stands for ``cpu:gloo,cuda:nccl``: torch's own process group sends what lies on the CPU to gloo
and what lies on the card here. Messages are those of torch 2.14 (``ProcessGroupNCCL::check_gpu_single_tensor`` and
``alltoall_base``, ``c10d::checkSplitSizes``, ``to_nccl_data_type`` in ``torch/csrc/cuda/nccl.cpp``) and of NCCL 2.30.

Of NCCL's collectives there are those that the package needs. So object collectives in a group without gloo, whose
pickles would travel over the card as broadcasts, are refused, too.

Importing this changes torch for the whole process: only programs of ranks do.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from math import prod
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import Backend, PrefixStore, ProcessGroupGloo, Store

from tests.distributed.card import OnCard

# `c10d::ncclDataType` in NCCLUtils.hpp; no int16, no unsigned but uint8, no complex number.
DTYPES = [
    torch.int8, torch.uint8, torch.float32, torch.float64, torch.int32, torch.int64, torch.float16, torch.bool,
    torch.float8_e5m2, torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.bfloat16,
]  # fmt: skip
COLLECTIVES = ("all_to_all_single", "allreduce", "broadcast", "barrier")
BUS = "CARD_BUS_ID"
"""The environment variable that says which card of the machine a process sees; by default one of its own."""

calls: Counter[str] = Counter()
"""How often which collective of this process passed over its card."""


class Picky(Backend):
    """One rank's side."""

    def __init__(self, store: Store, rank: int, size: int, timeout: timedelta) -> None:
        super().__init__(rank, size)
        self._store = store
        self._gloo: Any = ProcessGroupGloo(PrefixStore("bytes", store), rank, size, timeout)
        self._connected = False

    def getBackendName(self) -> str:
        return "picky"

    @property
    def supports_splitting(self) -> bool:
        """As NCCL's; therefore it is connected as soon as the group is told its ``device_id``."""
        return True

    def eager_connect_single_device(self, device: torch.device | None = None) -> None:
        self._connect()

    def shutdown(self) -> None:
        self._gloo = None

    def all_to_all_single(
        self, output: Tensor, input: Tensor, output_splits: list[int], input_splits: list[int], opts: Any = None
    ) -> Any:
        self._connect()
        sent, received = (_splits(given, self.size()) for given in ((input, input_splits), (output, output_splits)))
        found = refusal(output) or refusal(input) or self._split_refusal(input, sent)
        found = found or self._split_refusal(output, received)
        self._agree("all_to_all_single", found, (output.dtype, prod(output.shape[1:])), sent, received)
        calls["all_to_all_single"] += 1
        rows = [prod(tensor.shape[1:]) * tensor.itemsize for tensor in (output, input)]
        scaled = [[size * row for size in part] for row, part in zip(rows, (received, sent), strict=True)]
        return self._gloo.all_to_all_single(_bytes(output), _bytes(input), *scaled)

    def allreduce(self, tensors: list[Tensor], opts: Any) -> Any:
        self._connect()
        (tensor,) = tensors
        found = refusal(tensor)
        for op in ("BAND", "BOR", "BXOR"):
            if opts.reduceOp == getattr(dist.ReduceOp, op):
                found = f"Cannot use ReduceOp.{op} with NCCL"
        self._agree("allreduce", found, (tensor.dtype, tensor.numel()))
        assert isinstance(tensor, OnCard)
        calls["allreduce"] += 1
        return self._gloo.allreduce([tensor.held], opts)

    def broadcast(self, tensors: list[Tensor], opts: Any) -> Any:
        self._connect()
        (tensor,) = tensors
        self._agree("broadcast", refusal(tensor), (tensor.dtype, tensor.numel()))
        assert isinstance(tensor, OnCard)
        calls["broadcast"] += 1
        return self._gloo.broadcast([_bytes(tensor)], opts)

    def barrier(self, opts: Any = None) -> Any:
        self._connect()
        self._agree("barrier", None, (torch.float32, 1))  # NCCL's is the sum of a number
        calls["barrier"] += 1
        return self._gloo.barrier()

    def _connect(self) -> None:
        """See that every rank has a card of its own."""
        if self._connected:
            return
        self._store.set(f"card of {self.rank()}", os.environ.get(BUS, f"card {self.rank()}"))
        cards = [self._store.get(f"card of {rank}").decode() for rank in range(self.size())]
        if len(set(cards)) < len(cards):
            raise RuntimeError(f"ncclInvalidUsage: Multiple Ranks are using the same GPU/Partition: {cards}")
        self._connected = True

    def _split_refusal(self, tensor: Tensor, sizes: list[int]) -> str | None:
        """Why a tensor cannot be split so; None if it can."""
        if len(sizes) != self.size():
            return "Number of tensor splits not equal to group size"
        if min(sizes) < 0:
            return "Split sizes must be non-negative"
        if sum(sizes) != tensor.shape[0]:
            return "Split sizes doesn't match total dim 0 size"
        return None

    def _agree(
        self,
        name: str,
        found: str | None,
        entries: tuple[torch.dtype, int],
        sent: Sequence[int] = (),
        received: Sequence[int] = (),
    ) -> None:
        """See that all ranks mean the same; otherwise all raise, where NCCL would hang or write other bytes.

        Args:
            name: The collective.
            found: Why this rank refuses its tensors.
            entries: Their type and their number, in a row where rows are counted.
            sent: Rows to every rank.
            received: Rows from every rank.
        """
        mine = torch.zeros(4 + 2 * self.size(), dtype=torch.int64)
        if found is None:
            splits = [*sent, *received] or [0] * (2 * self.size())
            mine[:] = torch.tensor([1, COLLECTIVES.index(name), DTYPES.index(entries[0]), entries[1], *splits])
        told = [torch.empty_like(mine) for _ in range(self.size())]
        self._gloo.allgather([told], [mine]).wait()
        everybody = torch.stack(told)
        if found is not None:
            raise ValueError(found)
        if not everybody[:, 0].all():
            raise RuntimeError("Another rank's tensors are refused")
        if len(everybody[:, 1:4].unique(dim=0)) > 1:
            raise RuntimeError("Ranks call different collectives, or with different types or numbers of entries")
        outgoing, incoming = everybody[:, 4:].view(-1, 2, self.size()).unbind(1)
        if not torch.equal(outgoing, incoming.T):
            raise RuntimeError(f"Message truncated: ranks send {outgoing.tolist()} and expect {incoming.T.tolist()}")


def refusal(tensor: Tensor) -> str | None:
    """Why NCCL would not take a tensor; None if it would."""
    if not isinstance(tensor, OnCard) or tensor.layout != torch.strided:
        return "Tensors must be CUDA and dense"
    if not tensor.is_contiguous():
        return "Tensors must be contiguous"
    if tensor.dtype not in DTYPES:
        return f"Unconvertible NCCL type {tensor.dtype}"
    return None


def _splits(given: tuple[Tensor, list[int]], ranks: int) -> list[int]:
    """Equal ones where there are none."""
    tensor, sizes = given
    return list(sizes) or [tensor.shape[0] // ranks] * ranks


def _bytes(tensor: Tensor) -> Tensor:
    """The bytes of what lies on the card, whose type gloo need not know."""
    assert isinstance(tensor, OnCard)
    return tensor.held.view(-1).view(torch.uint8)


dist.Backend.register_backend("picky", Picky, devices=["card"])
