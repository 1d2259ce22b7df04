"""The exchange between participants and server: one transfer up, one sparsified transfer down.

Rank 0 is the server. Uploads are gathered as flat rows, ``[m, D]``; every member's download comes back packed
(`rffl_pl.functional.wire`) to the rank that hosts it, and to no other. Both are one ``all_to_all_single`` with uneven
splits, which NCCL and gloo offer alike and in which a rank without members takes part with an empty payload: a
removed participant costs no byte and nobody waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from rffl_pl.functional import wire

_REMOVED = -1


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """Bytes that crossed the border between participants and server in one round, ``[P]`` each; rank 0 only.

    The payloads themselves: beside them a member is told the length of its download, 8 bytes.
    """

    up: list[int]
    down: list[int]


class Exchange:
    """The collective operations of one rank.

    Args:
        blocks: The participants that each rank hosts, ascending: one sequence per rank.
        rank: This process's rank.
        device: Where tensors live outside the exchange.

    With one process nothing is sent, but everything is packed, counted and unpacked just the same.
    """

    def __init__(self, blocks: Sequence[Sequence[int]], rank: int, device: torch.device) -> None:
        self.blocks = blocks
        self.rank = rank
        self.device = device
        self.wire_device = device if len(blocks) == 1 or dist.get_backend() != "gloo" else torch.device("cpu")
        # Rank 0 follows every participant's membership, the others only their own participants'.
        self.active = {i: True for block in (blocks if rank == 0 else [blocks[rank]]) for i in block}
        self._sent: dict[int, int] = {}  # bytes of every member's upload in this round; rank 0 only

    @property
    def hosted(self) -> Sequence[int]:
        """The participants of this rank."""
        return self.blocks[self.rank]

    def gather_uploads(self, payloads: Tensor) -> tuple[Tensor, list[int]]:
        """Bring the members' uploads to rank 0; float32 rows travel without blocks of zeros.

        Args:
            payloads: What the hosted participants send, ``[n, K]`` of any dtype; rows of the removed stay.

        Returns:
            On rank 0 the members' payloads ``[m, K]`` and their participants, ascending; elsewhere no rows, no one.
        """
        mine = [row for i, row in zip(self.hosted, payloads, strict=True) if self.active[i]]
        packed = [wire.pack_blocks(row) if row.dtype == torch.float32 else row.view(torch.uint8) for row in mine]
        sizes = torch.tensor([[part.numel()] for part in packed], dtype=torch.int64).view(-1, 1)
        counts = [self._members(block) for block in self.blocks]
        told = self._to_server(sizes, counts).flatten().tolist()
        entries = torch.cat(packed).unsqueeze(1) if packed else torch.empty((0, 1), dtype=torch.uint8)
        totals = [sum(part.tolist()) for part in torch.tensor(told).split(counts)] if self.rank == 0 else []
        received = self._to_server(entries, totals).flatten()
        if self.rank != 0:
            return payloads[:0], []
        arrived = [i for i, active in self.active.items() if active]
        self._sent = dict(zip(arrived, told, strict=True))
        parts = dict(zip(arrived, received.split(told), strict=True))
        senders = sorted(arrived)
        rows = payloads.new_empty((len(senders), payloads.shape[1]))
        for row, i in zip(rows, senders, strict=True):
            part = parts[i]
            row.copy_(
                wire.unpack_blocks(part, len(row)) if row.dtype == torch.float32 else part.clone().view(row.dtype)
            )
        return rows, senders

    def scatter_downloads(
        self, download: Callable[[int], Tensor] | None, removed: Sequence[int], dimension: int
    ) -> tuple[dict[int, Tensor], Traffic | None]:
        """Bring every member its download and tell the removed that they are.

        Args:
            download: On rank 0 the download ``[D]`` of a member; None elsewhere.
            removed: On rank 0 who was removed in this round; ignored elsewhere.
            dimension: D.

        Returns:
            The downloads of the hosted participants that are still members, and on rank 0 the traffic of the round.
        """
        addressees = [[i for i in block if self.active.get(i)] for block in self.blocks]
        up, self._sent = self._sent, {}
        packed: dict[int, Tensor] = {}
        if download is not None:
            members = [i for block in addressees for i in block if i not in removed]
            packed = {i: wire.pack(download(i)).to(self.wire_device) for i in members}

        told = [[packed[i].numel() if i in packed else _REMOVED for i in block] for block in addressees]
        sizes = self._from_server(
            torch.tensor([size for block in told for size in block], dtype=torch.int64),
            [len(block) for block in addressees],
        )
        mine = dict(zip(addressees[self.rank], sizes.tolist(), strict=True))
        payloads = torch.cat(list(packed.values())) if packed else torch.empty(0, dtype=torch.uint8)
        splits = [sum(max(size, 0) for size in block) for block in told]
        splits[self.rank] = sum(max(size, 0) for size in mine.values())
        payload = self._from_server(payloads, splits)

        for participant in removed if self.rank == 0 else [i for i, size in mine.items() if size == _REMOVED]:
            self.active[participant] = False
        received = payload.split([size for size in mine.values() if size != _REMOVED])
        members = [i for i, size in mine.items() if size != _REMOVED]
        downloads = {i: wire.unpack(part, dimension).to(self.device) for i, part in zip(members, received, strict=True)}
        if self.rank != 0:
            return downloads, None
        total = sum(map(len, self.blocks))
        down = {i: part.numel() for i, part in packed.items()}
        return downloads, Traffic(up=[up.get(i, 0) for i in range(total)], down=[down.get(i, 0) for i in range(total)])

    def gather_losses(self, losses: Tensor) -> Tensor:
        """Bring the members' reported losses, of the hosted ``[n]`` on the CPU, to rank 0.

        Returns:
            ``[P]`` there, NaN for the removed; empty elsewhere.
        """
        self._sent = {i: size + losses.element_size() for i, size in self._sent.items()}
        mine = torch.tensor([self.active[i] for i in self.hosted])
        told = self._to_server(losses[mine].unsqueeze(1), [self._members(block) for block in self.blocks]).flatten()
        if self.rank != 0:
            return told
        everybody = torch.full((len(self.active),), torch.nan, dtype=losses.dtype, device=told.device)
        everybody[[i for i, active in self.active.items() if active]] = told
        return everybody

    def gather_rows(self, rows: Tensor) -> Tensor:
        """Bring one row per hosted participant, ``[n, ...]``, to rank 0: ``[P, ...]`` there, no rows elsewhere."""
        flat = self._to_server(rows.flatten(1), [len(block) for block in self.blocks])
        if self.rank == 0:
            flat = flat[torch.tensor([i for block in self.blocks for i in block]).argsort()]
        return flat.view(-1, *rows.shape[1:]).to(self.device)

    def gather_objects(self, value: Any) -> list[Any]:
        """Bring one picklable object of every rank to rank 0; an empty list elsewhere."""
        if len(self.blocks) == 1:
            return [value]
        gathered: list[Any] | None = [None] * len(self.blocks) if self.rank == 0 else None
        dist.gather_object(value, gathered)
        return gathered or []

    def scatter_objects(self, values: list[Any]) -> Any:
        """Bring every rank its own of the picklable objects that rank 0 has, one per rank; empty elsewhere."""
        if len(self.blocks) == 1:
            return values[0]
        received: list[Any] = [None]
        dist.scatter_object_list(received, values or None)
        return received[0]

    def _members(self, block: Sequence[int]) -> int:
        return sum(self.active.get(i, False) for i in block)

    def _to_server(self, rows: Tensor, counts: Sequence[int]) -> Tensor:
        """Rows of every rank to rank 0; ``counts``: how many each rank sends, known on rank 0."""
        if len(self.blocks) == 1:
            return rows
        nothing = [0] * len(self.blocks)
        received = list(counts) if self.rank == 0 else nothing
        sent = [len(rows), *nothing[1:]]
        out = rows.new_empty((sum(received), rows.shape[1]), device=self.wire_device)
        dist.all_to_all_single(out, rows.to(self.wire_device).contiguous(), received, sent)
        return out

    def _from_server(self, entries: Tensor, counts: Sequence[int]) -> Tensor:
        """A vector's parts from rank 0 to every rank; ``counts``: lengths, all known on rank 0, one's own elsewhere."""
        if len(self.blocks) == 1:
            return entries
        nothing = [0] * len(self.blocks)
        sent = list(counts) if self.rank == 0 else nothing
        out = entries.new_empty(counts[self.rank], device=self.wire_device)
        source = entries.to(self.wire_device) if self.rank == 0 else out[:0]
        dist.all_to_all_single(out, source, [counts[self.rank], *nothing[1:]], sent)
        return out
