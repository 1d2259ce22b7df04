"""The exchange between participants and server: one transfer up, one sparsified transfer down.

Rank 0 is the server, or every rank is for a part of the coordinates. Uploads travel there as payloads of one
participant each; every member's download comes back packed (`rffl_pl.functional.wire`) to the rank that hosts it, and
to no other. Each is one ``all_to_all_single`` with uneven splits, which NCCL and gloo offer alike and in which a rank
without members takes part with an empty payload: a removed participant costs no byte and nobody waits for it. Where
ranks host more participants than a buffer of 16 MiB holds, they travel in several waves, so that beside the uploads
themselves nobody ever holds more than a buffer of them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from rffl_pl.errors import UserError
from rffl_pl.functional import wire
from rffl_pl.functional.blocks import shards

_NOTHING = -1
_UP, _DOWN = range(2)
_BUFFER = 1 << 22  # entries of float32: 16 MiB
MOST_SAID = 1 << 26
"""Bytes of what a rank may say to others: how many examples a million participants have."""
_MOST_BYTES = 8  # of an entry in a payload: a value and its position


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """Bytes that crossed the border between participants and server in one round, ``[P]`` each; rank 0 only.

    The payloads themselves: beside them a member is told the length of its download, 8 bytes. What ranks that serve
    tell each other is not among them.
    """

    up: list[int]
    down: list[int]


class Difference(NamedTuple):
    """A fact in which a rank differs from rank 0: its name, and what it is there and here; None where it is none."""

    rank: int
    name: str
    there: str | None
    here: str


class Ranks:
    """Collective operations: every rank calls them, in the same order.

    Args:
        rank: This process's rank.
        count: W, the number of ranks.
        device: Where tensors live outside of them.
    """

    def __init__(self, rank: int, count: int, device: torch.device) -> None:
        self.rank, self.count, self.device = rank, count, device
        self.wire_device = device if count == 1 or dist.get_backend() != "gloo" else torch.device("cpu")

    def all_to_all(self, rows: Tensor, sent: Sequence[int], received: Sequence[int]) -> Tensor:
        """Rows ``[n, ...]`` to every rank and from every rank, in the order of ranks.

        Args:
            rows: Those for rank 0 first.
            sent: How many are for each rank, W numbers.
            received: How many come from each rank, W numbers.
        """
        if self.count == 1:
            return rows
        # Zeros, since gloo takes less than was announced, and what lay in memory is nobody's upload.
        out = rows.new_zeros((sum(received), *rows.shape[1:]), device=self.wire_device)
        dist.all_to_all_single(out, rows.to(self.wire_device).contiguous(), list(received), list(sent))
        return out

    def all_reduce_sum(self, numbers: Tensor) -> Tensor:
        """The sum of every rank's, where they lie, of whole numbers: for others the order would matter."""
        if self.count == 1:
            return numbers
        sums = numbers.to(self.wire_device, copy=True)
        dist.all_reduce(sums, dist.ReduceOp.SUM)
        return sums.to(numbers.device)

    def in_turn(self, value: Tensor, step: Callable[[Tensor], Tensor]) -> Tensor:
        """Pass a value through every rank's step in rank order; all get the result."""
        for rank in range(self.count):
            if rank == self.rank:
                value = step(value)
            value = self.broadcast(value, rank)
        return value

    def broadcast(self, value: Tensor, source: int = 0) -> Tensor:
        """A rank's value on all of them; the others give one of the same shape."""
        if self.count == 1:
            return value
        sent = value.to(self.wire_device).contiguous()
        dist.broadcast(sent, source)
        return sent.to(self.device)

    def broadcast_json(self, value: Any, source: int = 0) -> Any:
        """A rank's value on all of them; what others give does not count. As JSON: what is unpickled can run code.

        Raises:
            UserError: If it is none, or too long.
        """
        if self.count == 1:
            return value
        # On the CPU, where gloo is beside NCCL.
        sent = json.dumps(value, default=os.fspath).encode() if self.rank == source else b""
        size = torch.tensor(len(sent))
        dist.broadcast(size, source)
        _check_said(source, int(size))
        data = torch.frombuffer(bytearray(sent or bytes(int(size))), dtype=torch.uint8)
        dist.broadcast(data, source)
        try:
            return json.loads(bytes(data.tolist()))
        except ValueError as error:
            raise UserError(f"Expected rank {source} to send JSON, but what arrived is not.") from error

    def first_given(self, value: Any) -> tuple[int, Any] | None:
        """The first rank whose value is not None, and that, on all of them; None where there is none.

        Raises:
            UserError: As `broadcast_json`.
        """
        speaker = self.count if value is None else self.rank
        if self.count > 1:
            found = torch.tensor(speaker)
            dist.all_reduce(found, dist.ReduceOp.MIN)
            speaker = int(found)
        return None if speaker == self.count else (speaker, self.broadcast_json(value, speaker))


class Exchange:
    """What passes between participants and server, on one rank.

    Args:
        blocks: The participants that each rank hosts, ascending: one sequence per rank.
        rank: This process's rank.
        device: Where tensors live outside the exchange.
        dimension: D, the number of entries of an upload and of a download.
        sharded: Whether every rank serves a part of the coordinates, instead of rank 0 all of them.

    With one process nothing is sent, but everything is packed, counted and unpacked just the same.

    Attributes:
        ranks: The collective operations.
        shards: The coordinates that every serving rank serves; the ranks behind them serve none.
        active: Who is still a member: serving ranks follow everybody's membership, the others their own participants'.
        asked: Who takes part in this round, the keys, ascending: serving ranks know of all, the others of their own.
    """

    _bytes: Tensor
    """Of this round so far, up and down, ``[2, P]``; nothing where a rank does not serve."""

    def __init__(
        self,
        blocks: Sequence[Sequence[int]],
        rank: int,
        device: torch.device,
        dimension: int,
        *,
        sharded: bool = False,
    ) -> None:
        self.blocks = blocks
        self.rank = rank
        self.device = device
        self.dimension = dimension
        self.ranks = Ranks(rank, len(blocks), device)
        self.shards = shards(dimension, len(blocks)) if sharded else [slice(0, dimension)]
        self.active = {i: True for block in (blocks if self.serves else [blocks[rank]]) for i in block}
        self._begin([])

    @property
    def serves(self) -> bool:
        """Whether this rank is the server, or a part of it."""
        return self.rank < len(self.shards)

    @property
    def sharded(self) -> bool:
        """Whether several ranks serve."""
        return len(self.shards) > 1

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
        self._begin(self.members)

    def ask(
        self, asked: Sequence[int], model: Callable[[int], Tensor | None] | None, beside: int
    ) -> Iterator[tuple[int, Tensor]]:
        """Begin a round in which some members take part, and bring those who need it the model they start from.

        Args:
            asked: On serving ranks the members that take part; ignored elsewhere.
            model: On serving ranks their part ``[d]`` of the model that a participant starts from, or None for its own;
                None elsewhere.
            beside: Bytes that belong to a model and are where its participant is, to be counted: running statistics.

        Yields:
            The hosted participants that start from another model than their own, with that model ``[D]``.

        Raises:
            UserError: If a rank announces one that nobody can mean, before memory is taken for it.
        """
        self._begin(sorted(asked) if self.serves else [])

        def invitation(participant: int) -> Tensor | None:
            if participant not in self.asked:
                return None
            start = model(participant) if model is not None else None
            if start is None:
                return torch.empty(0, dtype=torch.uint8)
            self._count(_DOWN, participant, start.numel() * start.element_size() + (beside if self.rank == 0 else 0))
            return start.contiguous().view(torch.uint8)

        for participant, parts in self._deliver(invitation if self.serves else None):
            if parts is None:
                continue
            if not self.serves:
                self.asked[participant] = None
            payload = torch.cat(parts)
            if payload.numel():
                yield participant, payload.view(torch.float32).to(self.device)

    def gather_uploads(self, payload: Callable[[int, slice], Tensor], arrived: Callable[[int, Tensor], None]) -> None:
        """Bring the uploads of whoever was asked to the ranks that serve, each the coordinates that are its own.

        Args:
            payload: What a hosted participant sends of some coordinates, uint8 ``[K]`` of any length; asked for when
                it is its turn.
            arrived: Called on serving ranks with every sender and its payload.

        Raises:
            UserError: If a rank announces a payload that nobody can mean, before memory is taken for it.
        """
        for wave in self._waves(self.asked):
            for i, part in self._gathered(wave, payload):
                self._count(_UP, i, part.numel())
                arrived(i, part.to(self.device))
                del part  # and its wave before the next one is packed

    def _gathered(
        self, wave: Sequence[Sequence[int]], payload: Callable[[int, slice], Tensor]
    ) -> Iterator[tuple[int, Tensor]]:
        """The senders of a wave and what has arrived of each."""
        packed = [[payload(i, where).to(self.ranks.wire_device) for i in wave[self.rank]] for where in self.shards]
        counts = [len(part) if self.serves else 0 for part in wave]
        lengths = _column([part.numel() for parts in packed for part in parts])
        sizes = self._to_servers(lengths, [len(parts) for parts in packed], counts).flatten()
        self._check_sizes("uploads", sizes.split(counts), least=0)
        totals = [int(part.sum()) for part in sizes.split(counts)]
        sent = [sum(part.numel() for part in parts) for parts in packed]
        joined = _joined([part for parts in packed for part in parts])
        received = self._to_servers(joined.unsqueeze(1), sent, totals).flatten()
        senders = [i for part in wave for i in part] if self.serves else []
        return zip(senders, received.split(sizes.tolist()), strict=True)

    def _check_sizes(self, what: str, sizes: Sequence[Tensor], least: int) -> None:
        """See that the announced lengths of every rank's payloads are ones that can be received."""
        most = _MOST_BYTES * (self.dimension + _BUFFER)
        for rank, announced in enumerate(sizes):
            for size in announced.tolist():
                if not least <= size <= most:
                    raise UserError(
                        f"Expected rank {rank} to send {what} of {self.dimension} entries, but it announces {size} "
                        "bytes for one; see what runs there, and leave out whom you do not trust."
                    )

    def gather_reports(self, reports: dict[int, float]) -> Tensor:
        """Bring one number of everybody asked, of the hosted by participant, to the ranks that serve.

        Returns:
            ``[P]`` float64 on the CPU there, NaN for who was not asked; empty elsewhere.
        """
        mine = [reports[i] for i in self.hosted if i in self.asked]
        senders, told = self._from_asked(torch.tensor(mine, dtype=torch.float64).unsqueeze(1))
        if not self.serves:
            return told.flatten().cpu()
        everybody = torch.full((len(self.active),), torch.nan, dtype=torch.float64)
        everybody[senders] = told.flatten().cpu()
        return everybody

    def gather_statistics(self, statistics: Mapping[int, Tensor], size: int) -> dict[int, Tensor]:
        """Bring the running statistics ``[S]`` of everybody asked, of the hosted by participant, to those who serve.

        Args:
            statistics: Those of the hosted.
            size: S.

        Returns:
            Everybody's there, by participant, ascending; nothing elsewhere.
        """
        mine = [statistics[i] for i in self.hosted if i in self.asked]
        senders, rows = self._from_asked(torch.stack(mine) if mine else torch.empty(0, size, device=self.device))
        everybodys = dict(zip(senders, rows.to(self.device), strict=True)) if self.serves else {}
        return dict(sorted(everybodys.items()))

    def spread_statistics(self, statistics: Tensor | None, size: int) -> Tensor:
        """Rank 0's running statistics ``[S]`` on all ranks; what others give does not count.

        They are counted for whoever was asked: whoever was not gets them with the model, when it is.
        """
        if self.rank == 0:
            for i in self.asked:
                self._count(_DOWN, i, 4 * size)
        return self.everywhere(statistics, size)

    def _from_asked(self, rows: Tensor) -> tuple[list[int], Tensor]:
        """One row of everybody asked, of the hosted ``[n, k]``, and whose they are, on the ranks that serve."""
        asked = [[i for i in block if i in self.asked] for block in self.blocks]
        told = self._to_server(rows, [len(part) for part in asked])
        senders = [i for part in asked for i in part]
        if self.rank == 0:
            for i in senders:
                self._count(_UP, i, rows.shape[1] * rows.element_size())
        if not self.sharded:
            return senders, told
        theirs = told if self.rank == 0 else rows.new_empty(len(senders), rows.shape[1])
        return senders, self.ranks.broadcast(theirs)

    def scatter_downloads(
        self, download: Callable[[int], Tensor] | None, removed: Sequence[int]
    ) -> Iterator[tuple[int, Tensor]]:
        """Bring everybody who was asked its download and tell the removed that they are.

        Args:
            download: On serving ranks their part ``[d]`` of a member's download; None elsewhere. A vector that several
                members get is packed once.
            removed: On serving ranks who was removed in this round; ignored elsewhere.

        Yields:
            The hosted participants that are still members, with their downloads ``[D]``.

        Raises:
            UserError: If a rank announces one that nobody can mean, before memory is taken for it.
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
            self._count(_DOWN, participant, last[1].numel())
            return last[1]

        for participant, parts in self._deliver(parcel if self.serves else None, self.asked):
            if parts is None:
                self.active[participant] = False
            else:
                yield participant, self._unpacked(parts)
        for participant in removed if self.serves else ():
            self.active[participant] = False
        if self.sharded:
            self._bytes = self.ranks.all_reduce_sum(self._bytes).cpu()

    def _unpacked(self, parts: list[Tensor]) -> Tensor:
        """The vector ``[D]`` behind the parts of a parcel, which are let go of."""
        if not self.sharded:
            return wire.unpack(parts.pop(), self.dimension).to(self.device)
        vector = torch.empty(self.dimension, device=self.device)
        for where in self.shards:
            vector[where] = wire.unpack(parts.pop(0), where.stop - where.start)
        return vector

    @property
    def traffic(self) -> Traffic | None:
        """The bytes of the last round, on rank 0."""
        if self.rank != 0:
            return None
        up, down = self._bytes.tolist()
        return Traffic(up=up, down=down)

    def _begin(self, asked: Iterable[int]) -> None:
        """Note who takes part in a round of which nothing has been sent yet."""
        self.asked = dict.fromkeys(asked)
        self._bytes = torch.zeros(2, len(self.active) if self.serves else 0, dtype=torch.int64)

    def _count(self, direction: int, participant: int, size: int) -> None:
        """Add up what a participant and this rank, which serves, have sent each other."""
        self._bytes[direction, participant] += size

    def gather_rows(self, rows: Tensor) -> Tensor:
        """Bring one row per hosted participant, ``[n, ...]``, to rank 0: ``[P, ...]`` there, no rows elsewhere."""
        flat = self._to_server(rows.flatten(1), [len(block) for block in self.blocks])
        if self.rank == 0:
            flat = flat[torch.tensor([i for block in self.blocks for i in block]).argsort()]
        return flat.view(-1, *rows.shape[1:]).to(self.device)

    def everywhere(self, vector: Tensor | None, size: int | None = None) -> Tensor:
        """Rank 0's vector, ``[D]`` or of another size, on all ranks; what others give does not count."""
        mine = vector if self.rank == 0 and vector is not None else torch.empty(size or self.dimension)
        return self.ranks.broadcast(mine).to(self.device)

    def anybody(self, so: bool) -> bool:
        """Whether it is so on any rank; all ranks ask."""
        if len(self.blocks) == 1:
            return so
        found = torch.tensor(int(so))  # on the CPU, where gloo is beside NCCL
        dist.all_reduce(found, dist.ReduceOp.MAX)
        return bool(found)

    def first_difference(self, facts: dict[str, str]) -> Difference | None:
        """The first fact in which a rank differs from rank 0; None, on all ranks, if none does."""
        theirs = [_facts(text) for text in self._texts_to_server(json.dumps(facts))]
        found = (
            (rank, name, told.get(name), facts[name])
            for rank, told in enumerate(theirs)
            for name in facts
            if told.get(name) != facts[name]
        )
        first = self.ranks.broadcast_json(next(found, None))
        return None if first is None else Difference(*first)

    def _texts_to_server(self, text: str) -> list[bytes]:
        """What every rank has to say, on rank 0; nothing elsewhere."""
        row = torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8).unsqueeze(1)
        sizes = self._to_server(_column([len(row)]), [1] * len(self.blocks)).flatten().tolist()
        for rank, size in enumerate(sizes):
            _check_said(rank, size)
        return [bytes(part.tolist()) for part in self._to_server(row, sizes).flatten().split(sizes)]

    def _waves(self, whom: Iterable[int]) -> Iterator[list[list[int]]]:
        """For each wave those of ``whom`` on all ranks that take part in it; of other ranks' those know that serve."""
        among = set(whom)
        size = max(1, _BUFFER // self.dimension)
        for start in range(0, max(map(len, self.blocks)), size):
            yield [[i for i in block[start : start + size] if i in among] for block in self.blocks]

    def _deliver(
        self, parcel: Callable[[int], Tensor | None] | None, whom: Iterable[int] | None = None
    ) -> Iterator[tuple[int, list[Tensor] | None]]:
        """Parcels uint8 from those who serve to their participants' ranks, wave after wave.

        Args:
            parcel: On serving ranks what a participant gets; None elsewhere.
            whom: Who gets one or is told that there is nothing; by default all members.

        Yields:
            A hosted participant and what each serving rank has for it; None tells that there is nothing.
        """
        for wave in self._waves(self.members if whom is None else whom):
            yield from zip(wave[self.rank], self._delivered(wave, parcel), strict=True)

    def _delivered(
        self, wave: Sequence[Sequence[int]], parcel: Callable[[int], Tensor | None] | None
    ) -> Iterator[list[Tensor] | None]:
        """What each serving rank has for the hosted participants of a wave, one after another."""
        packed = [[parcel(i) for i in part] for part in wave] if parcel is not None else []
        told = [[_NOTHING if p is None else p.numel() for p in part] for part in packed]
        mine = len(wave[self.rank])
        counts = [mine] * len(self.shards)
        lengths = _column([n for part in told for n in part]).flatten()
        sizes = self._from_servers(lengths, [len(part) for part in told], counts).view(len(counts), mine).cpu()
        self._check_sizes("downloads", sizes.unbind(), least=_NOTHING)
        lengths = sizes.clamp_min(0)
        totals = [sum(max(size, 0) for size in part) for part in told]
        sent = _joined([p.to(self.ranks.wire_device) for part in packed for p in part if p is not None])
        received = self._from_servers(sent, totals, lengths.sum(1).tolist())
        parts = received.split(lengths.flatten().tolist())
        return iter([None if sizes[0, k] == _NOTHING else [*parts[k::mine]] for k in range(mine)])

    def _to_server(self, rows: Tensor, counts: Sequence[int]) -> Tensor:
        """Rows of every rank to rank 0; ``counts``: how many each rank sends, known on rank 0."""
        nothing = [0] * len(self.blocks)
        return self.ranks.all_to_all(rows, [len(rows), *nothing[1:]], counts if self.rank == 0 else nothing)

    def _to_servers(self, rows: Tensor, sent: Sequence[int], received: Sequence[int]) -> Tensor:
        """Rows of every rank to all that serve.

        Args:
            rows: Those for the first one first.
            sent: How many are for each of them.
            received: How many come from every rank.
        """
        return self.ranks.all_to_all(rows, [*sent, *self._behind], received)

    def _from_servers(self, entries: Tensor, sent: Sequence[int], received: Sequence[int]) -> Tensor:
        """A vector's parts from all that serve to every rank.

        Args:
            entries: Those for rank 0 first.
            sent: How many are for every rank; nothing where the rank does not serve.
            received: How many come from each that serves.
        """
        return self.ranks.all_to_all(entries, sent or [0] * len(self.blocks), [*received, *self._behind])

    @property
    def _behind(self) -> list[int]:
        """A 0 for every rank that does not serve."""
        return [0] * (len(self.blocks) - len(self.shards))


def _check_said(rank: int, size: int) -> None:
    """See that so many bytes, which a rank announces, are not more than it may say."""
    if not 0 <= size <= MOST_SAID:
        raise UserError(f"Expected rank {rank} to say no more than {MOST_SAID} bytes, but it announces {size}.")


def _column(sizes: Sequence[int]) -> Tensor:
    """Numbers as rows of one column, int64."""
    return torch.tensor(sizes, dtype=torch.int64).view(-1, 1)


def _joined(payloads: Sequence[Tensor]) -> Tensor:
    """Payloads one after the other; a single one as it is."""
    if len(payloads) == 1:
        return payloads[0]
    return torch.cat(list(payloads)) if payloads else torch.empty(0, dtype=torch.uint8)


def _facts(text: bytes) -> dict[str, str]:
    """What a rank tells of itself; nothing, which differs, where it is none."""
    try:
        return dict(json.loads(text))
    except (ValueError, TypeError):
        return {}
