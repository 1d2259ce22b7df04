"""Whether a rule of one's own makes each coordinate of that coordinate alone, as it is given some of them at a time."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from rffl_pl.errors import UserError, is_packaged
from rffl_pl.functional import blocks
from rffl_pl.functional.fingerprints import close
from rffl_pl.functional.streams import drawn_so_far, random_stream
from rffl_pl.servers import Consensus, Server, Task
from rffl_pl.servers.around import surrounded
from rffl_pl.servers.coordinates import Coordinates

_ENTRIES = 512
"""Coordinates of the uploads that a rule is tried with, or one of each layer where these are more."""
_PIECES = 8
"""So many pieces: a rule that picks one of m uploads picks the same in all by chance once in m ** 7 times."""
_SCALES = (0.01, 1.0, 100.0)
"""Scales of the entries of these uploads, a round each, to see also what a rule does to long uploads alone."""
_CPU = torch.device("cpu")


class _Drew(Exception):
    """A rule drew at random while it combined."""


class Pieces(Coordinates):
    """All coordinates, which are combined in some pieces.

    Args:
        dimension: D.
        count: Of how many, or of one for each coordinate where these are fewer.
    """

    def __init__(self, dimension: int, count: int) -> None:
        super().__init__(dimension)
        self.count = min(count, dimension)

    def combined(self, rows: blocks.Rows, rule: Callable[[Tensor], Tensor]) -> Tensor:
        before = drawn_so_far(_CPU)
        pieces = torch.stack([*rows]).tensor_split(self.count, dim=1)
        made = torch.cat([rule(piece.contiguous()) for piece in pieces])
        if drawn_so_far(_CPU) != before:
            raise _Drew
        return made


def check_pieces(unstarted: Server, task: Task) -> None:
    """See that it does not matter into which blocks the coordinates are cut that a rule of one's own combines.

    Copies of the rule judge some rounds of made uploads, in one piece and in several; of one that others are around, by
    itself: mixed uploads are too alike. Of a rule that draws while it combines, that does not come to the same twice,
    or that cannot work on made uploads, nothing is said.

    Args:
        unstarted: The server before it was told its task; it is left as it is, and so are streams of random numbers.
        task: What it is told.

    Raises:
        UserError: If a rule combines coordinates by what stands beside them, as one of whole vectors does.
    """
    rule = next(filter(_combines_its_own_way, surrounded(unstarted)), None)
    if not isinstance(rule, Consensus) or rule.whole:
        return
    try:
        once, twice, cut = (_steps(rule, task, pieces) for pieces in (1, 1, _PIECES))
    except Exception:  # whatever it misses here; what it cannot do at all is told when the run does it
        return
    if _alike(once, twice) and not _alike(once, cut):
        raise UserError(
            f"Expected combine of {rule.given_as} to make every coordinate of what uploads have there "
            "alone, since it is given some coordinates at a time, but a block comes out otherwise than its pieces do; "
            "choose among whole uploads in weigh, by evidence.squared_distances say, or give the class whole = True, "
            "with which combine is given all coordinates at once."
        )


def _combines_its_own_way(rule: Server) -> bool:
    """Whether `combine` is not the package's."""
    definer = next((kind for kind in type(rule).__mro__ if "combine" in vars(kind)), Server)
    return not is_packaged(definer)


def _steps(rule: Server, task: Task, pieces: int) -> list[Tensor]:
    """What everybody downloads, round after round, under a copy of a rule."""
    layers = [min(size, max(1, _ENTRIES // len(task.layers))) for size in task.layers]
    coordinates = Pieces(sum(layers), pieces)
    initial = torch.zeros(coordinates.size, dtype=task.initial.dtype)
    server, generator = copy.deepcopy(rule), torch.Generator().manual_seed(1)
    steps: list[Tensor] = []
    with random_stream(1, _CPU), warnings.catch_warnings(action="ignore"):
        server.start(replace(task, layers=layers, initial=initial, coordinates=coordinates))
        for scale in _SCALES:
            senders = server.members.nonzero().flatten()[: task.asked].tolist()
            uploads = scale * torch.randn(len(senders), coordinates.size, generator=generator)
            losses = torch.rand(len(server.members), generator=generator) if server.hears_losses else None
            verdict = server.step(uploads, senders, losses)
            steps += [verdict.download(i) for i in senders if verdict.members[i]]
    return steps


def _alike(some: list[Tensor], others: list[Tensor]) -> bool:
    return len(some) == len(others) and all(map(close, some, others))
