"""The exchange between participants and server: one transfer up, one sparsified transfer down.

Rank 0 is the server. Uploads travel to it as payloads of one participant each; every member's download comes back
packed (`rffl_pl.functional.wire`) to the rank that hosts it, and to no other. Each is one ``all_to_all_single`` with
uneven splits, which NCCL and gloo offer alike and in which a rank without members takes part with an empty payload: a
removed participant costs no byte and nobody waits for it. Where ranks host more participants than a buffer of 16 MiB
holds, they travel in several waves, so that beside the uploads themselves nobody ever holds more than a buffer of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from rffl_pl.errors import UserError
from rffl_pl.functional import wire

_NOTHING = -1
_BUFFER = 1 << 22  # entries of float32: 16 MiB
_MOST_BYTES = 8  # of an entry in a payload: a value and its position


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
        dimension: D, the number of entries of an upload and of a download.

    With one process nothing is sent, but everything is packed, counted and unpacked just the same.

    Attributes:
        active: Who is still a member: rank 0 follows everybody's membership, the others their own participants'.
        asked: Who takes part in this round, ascending: rank 0 knows of all, the others of their own.
    """

    def __init__(self, blocks: Sequence[Sequence[int]], rank: int, device: torch.device, dimension: int) -> None:
        self.blocks = blocks
        self.rank = rank
        self.device = device
        self.dimension = dimension
        self.wire_device = device if len(blocks) == 1 or dist.get_backend() != "gloo" else torch.device("cpu")
        self.active = {i: True for block in (blocks if rank == 0 else [blocks[rank]]) for i in block}
        self.asked: list[int] = []
        self._up: dict[int, int] = {}
        self._down: dict[int, int] = {}

    @property
    def hosted(self) -> Sequence[int]:
        """The participants of this rank."""
        return self.blocks[self.rank]

    @property
    def members(self) -> list[int]:
        """Who is a member, ascending, as far as this rank knows."""
        return sorted(i for i, active in self.active.items() if active)

    def ask_all(self) -> None:
        """Begin a round in which every member takes part; nobody needs to be told."""
        self.asked, self._up, self._down = self.members, {}, {}

    def ask(self, asked: Sequence[int], model: Callable[[int], Tensor | None] | None) -> Iterator[tuple[int, Tensor]]:
        """Begin a round in which some members take part, and bring those who need it the model they start from.

        Args:
            asked: On rank 0 the members that take part; ignored elsewhere.
            model: On rank 0 the model ``[D]`` that a participant starts from, or None for its own; None elsewhere.

        Yields:
            The hosted participants that start from another model than their own, with that model.
        """
        self.asked, self._up, self._down = sorted(asked) if self.rank == 0 else [], {}, {}

        def invitation(participant: int) -> Tensor | None:
            if participant not in self.asked:
                return None
            start = model(participant) if model is not None else None
            if start is None:
                return torch.empty(0, dtype=torch.uint8)
            self._down[participant] = start.numel() * start.element_size()
            return start.contiguous().view(torch.uint8)

        for participant, payload in self._deliver(invitation if self.rank == 0 else None):
            if payload is None:
                continue
            if self.rank != 0:
                self.asked.append(participant)
            if payload.numel():
                yield participant, payload.clone().view(torch.float32).to(self.device)

    def gather_uploads(self, payload: Callable[[int], Tensor], arrived: Callable[[int, Tensor], None]) -> list[int]:
        """Bring the uploads of whoever was asked to rank 0.

        Args:
            payload: What a hosted participant sends, uint8 ``[K]`` of any length; asked for when it is its turn.
            arrived: Called on rank 0 with every sender and its payload.

        Returns:
            On rank 0 the senders, ascending; elsewhere no one.

        Raises:
            UserError: If a rank announces a payload that nobody can mean, before memory is taken for it.
        """
        for wave in self._waves(self.asked):
            packed = [payload(i).to(self.wire_device) for i in wave[self.rank]]
            counts = [len(part) for part in wave]
            sizes = self._to_server(_column([part.numel() for part in packed]), counts).flatten()
            if self.rank == 0:
                self._check_sizes(sizes.split(counts))
            totals = [int(part.sum()) for part in sizes.split(counts)] if self.rank == 0 else []
            received = self._to_server(_joined(packed).unsqueeze(1), totals).flatten()
            if self.rank == 0:
                senders = [i for part in wave for i in part]
                for i, part in zip(senders, received.split(sizes.tolist()), strict=True):
                    self._up[i] = part.numel()
                    arrived(i, part.to(self.device))
        return list(self.asked) if self.rank == 0 else []

    def _check_sizes(self, sizes: Sequence[Tensor]) -> None:
        """See that the announced lengths of every rank's payloads are ones that can be received."""
        most = _MOST_BYTES * (self.dimension + _BUFFER)
        for rank, announced in enumerate(sizes):
            for size in announced.tolist():
                if not 0 <= size <= most:
                    raise UserError(
                        f"Expected rank {rank} to send uploads of {self.dimension} entries, but it announces {size} "
                        "bytes for one; see what runs there, and leave out whom you do not trust."
                    )

    def gather_reports(self, reports: dict[int, float]) -> Tensor:
        """Bring one number of everybody asked, of the hosted by participant, to rank 0.

        Returns:
            ``[P]`` float64 on the CPU there, NaN for who was not asked; empty elsewhere.
        """
        mine = [reports[i] for i in self.asked if i in self.hosted]
        rows = torch.tensor(mine, dtype=torch.float64).unsqueeze(1)
        asked = [[i for i in block if i in self.asked] for block in self.blocks]
        told = self._to_server(rows, [len(part) for part in asked]).flatten().cpu()
        if self.rank != 0:
            return told
        everybody = torch.full((len(self.active),), torch.nan, dtype=torch.float64)
        for i, value in zip((i for part in asked for i in part), told.tolist(), strict=True):
            self._up[i] += rows.element_size()
            everybody[i] = value
        return everybody

    def scatter_downloads(
        self, download: Callable[[int], Tensor] | None, removed: Sequence[int]
    ) -> Iterator[tuple[int, Tensor]]:
        """Bring everybody who was asked its download and tell the removed that they are.

        Args:
            download: On rank 0 the download ``[D]`` of a member; None elsewhere. A vector that several members get is
                packed once.
            removed: On rank 0 who was removed in this round; ignored elsewhere.

        Yields:
            The hosted participants that are still members, with their downloads.
        """
        last: tuple[Tensor, Tensor] | None = None

        def parcel(participant: int) -> Tensor | None:
            nonlocal last
            if participant in removed:
                return None
            assert download is not None
            vector = download(participant)
            if last is None or last[0] is not vector:
                last = vector, wire.pack(vector)
            self._down[participant] = self._down.get(participant, 0) + last[1].numel()
            return last[1]

        for participant, payload in self._deliver(parcel if self.rank == 0 else None, self.asked):
            if payload is None:
                self.active[participant] = False
            else:
                yield participant, wire.unpack(payload, self.dimension).to(self.device)
        for participant in removed if self.rank == 0 else ():
            self.active[participant] = False

    @property
    def traffic(self) -> Traffic | None:
        """The bytes of the last round, on rank 0."""
        if self.rank != 0:
            return None
        total = range(len(self.active))
        return Traffic(up=[self._up.get(i, 0) for i in total], down=[self._down.get(i, 0) for i in total])

    def gather_rows(self, rows: Tensor) -> Tensor:
        """Bring one row per hosted participant, ``[n, ...]``, to rank 0: ``[P, ...]`` there, no rows elsewhere."""
        flat = self._to_server(rows.flatten(1), [len(block) for block in self.blocks])
        if self.rank == 0:
            flat = flat[torch.tensor([i for block in self.blocks for i in block]).argsort()]
        return flat.view(-1, *rows.shape[1:]).to(self.device)

    def anybody(self, so: bool) -> bool:
        """Whether it is so on any rank; all ranks ask."""
        if len(self.blocks) == 1:
            return so
        found = torch.tensor(int(so))  # on the CPU, where gloo is beside NCCL
        dist.all_reduce(found, dist.ReduceOp.MAX)
        return bool(found)

    def first_difference(self, facts: dict[str, str]) -> tuple[int, str] | None:
        """The first rank that differs from rank 0 in a fact, and that fact's name; None, on all ranks, if none does."""
        theirs = [json.loads(text) for text in self._texts_to_server(json.dumps(facts))]
        found = ((rank, name) for rank, told in enumerate(theirs) for name in facts if told.get(name) != facts[name])
        first = json.loads(self._text_from_server(json.dumps(next(found, None))))
        return None if first is None else (first[0], first[1])

    def _texts_to_server(self, text: str) -> list[str]:
        """What every rank has to say, on rank 0; nothing elsewhere."""
        row = _encoded(text).unsqueeze(1)
        sizes = self._to_server(_column([len(row)]), [1] * len(self.blocks)).flatten().tolist()
        return [_decoded(part) for part in self._to_server(row, sizes).flatten().split(sizes)]

    def _text_from_server(self, text: str) -> str:
        """What rank 0 has to say, on every rank."""
        ranks = len(self.blocks)
        entries = _encoded(text)
        size = int(self._from_server(torch.tensor([len(entries)] * ranks), [1] * ranks))
        return _decoded(self._from_server(entries.repeat(ranks), [size] * ranks))

    def _waves(self, whom: Sequence[int]) -> Iterator[list[list[int]]]:
        """For each wave those of ``whom`` on every rank that take part in it; of other ranks' only rank 0 knows."""
        among = set(whom)
        size = max(1, _BUFFER // self.dimension)
        for start in range(0, max(map(len, self.blocks)), size):
            yield [[i for i in block[start : start + size] if i in among] for block in self.blocks]

    def _deliver(
        self, parcel: Callable[[int], Tensor | None] | None, whom: Sequence[int] | None = None
    ) -> Iterator[tuple[int, Tensor | None]]:
        """Parcels uint8 from rank 0 to their participants' ranks, wave after wave; None tells that there is nothing.

        Args:
            parcel: On rank 0 what a participant gets; None elsewhere.
            whom: Who gets one or is told that there is nothing; by default all members.
        """
        whom = self.members if whom is None else list(whom)
        for wave in self._waves(whom):
            packed = [[parcel(i) for i in part] for part in wave] if parcel is not None else []
            told = [[_NOTHING if p is None else p.numel() for p in part] for part in packed]
            sizes = self._from_server(_column([n for part in told for n in part]).flatten(), [len(p) for p in wave])
            mine = [max(size, 0) for size in sizes.tolist()]
            totals = [sum(max(size, 0) for size in part) for part in told] or [0] * len(wave)
            totals[self.rank] = sum(mine)
            sent = [p.to(self.wire_device) for part in packed for p in part if p is not None]
            received = self._from_server(_joined(sent), totals)
            parts = zip(wave[self.rank], sizes.tolist(), received.split(mine), strict=True)
            for participant, size, part in parts:
                yield participant, None if size == _NOTHING else part

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


def _encoded(text: str) -> Tensor:
    """A text as bytes, uint8."""
    return torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)


def _decoded(data: Tensor) -> str:
    return bytes(data.tolist()).decode()


def _column(sizes: Sequence[int]) -> Tensor:
    """Numbers as rows of one column, int64."""
    return torch.tensor(sizes, dtype=torch.int64).view(-1, 1)


def _joined(payloads: Sequence[Tensor]) -> Tensor:
    """Payloads one after the other; a single one as it is."""
    if len(payloads) == 1:
        return payloads[0]
    return torch.cat(list(payloads)) if payloads else torch.empty(0, dtype=torch.uint8)
