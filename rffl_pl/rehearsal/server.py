"""Whether a server fits what is asked for beside it: how ranks serve, what participants train with, who takes part.

And whether one of a user's own keeps nothing of participants where they are.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping
from contextlib import suppress

import torch
from torch import Tensor

from rffl_pl.adversaries import Cast
from rffl_pl.errors import UserError, is_packaged
from rffl_pl.functional.fingerprints import stays
from rffl_pl.functional.streams import random_stream
from rffl_pl.round.handing import own_entries
from rffl_pl.servers import FLAME, RFFL, Consensus, FedAvg, FoolsGold, NormBound, Server, Task
from rffl_pl.servers.around import innermost, surrounded

_STEPPING: dict[type[Server], str] = {
    FLAME: "noise_factor 0",
    FoolsGold: "scale mean",
    NormBound: "noise 0",
    RFFL: "subtract_own false",
}
"""With which option of theirs the steps of a rule are means of updates."""

_ON_A_PARTICIPANTS_SIDE = ("kept", "outgoing", "pack")


def check_shardable(server: Server, cast: Cast) -> None:
    """See that nobody needs whole uploads on one rank.

    Args:
        server: The rule.
        cast: Who attacks.

    Raises:
        UserError: If somebody does.
    """
    rule = innermost(server)
    whole = isinstance(rule, Consensus) and rule.whole
    if server.communicates and (rule.by_coordinate is None or whole):
        raise UserError(
            f"Expected {rule.given_by} to be one that works on a part of the coordinates under --exchange sharded, but "
            f"got {type(rule).__name__}, whose {'whole is True' if whole else 'by_coordinate is None'}; give "
            "--exchange central."
        )
    if cast.omniscient:
        names = ", ".join(sorted({type(attack).__name__ for attack in cast.omniscient.values()}))
        raise UserError(
            f"Expected --adversaries to go by what they have themselves under --exchange sharded, but got {names}, "
            "shown whole honest uploads on the server; give --exchange central."
        )


def check_sharing(server: Server, asked: Mapping[str, bool]) -> None:
    """See that participants are given something to share, where they train with it.

    Args:
        server: The rule.
        asked: By option that goes by what is shared, whether somebody asks for it.

    Raises:
        UserError: If they are not.
    """
    option = next((option for option, so in asked.items() if so), None)
    if option is not None and not server.communicates:
        raise UserError(
            f"Expected a --server that gives participants something to share with {option}, but got "
            f"{type(server).__name__}, where everybody's model is its own; leave one."
        )


def check_corrections(server: Server) -> None:
    """See that what participants download tells where their updates went.

    Raises:
        UserError: If it does not.
    """
    for rule in surrounded(server):
        if not rule.steps_by_updates:
            mends = [f"give {rule.given_by}.{mend}, or " for kind, mend in _STEPPING.items() if isinstance(rule, kind)]
            raise UserError(
                "Expected a --server whose steps are means of updates with --model.scaffold, which reads the mean "
                f"gradient off them, but got {type(rule).__name__}, with whose steps models get worse or diverge; "
                f"{''.join(mends)}leave one."
            )


def check_coalition(server: Server, pull: float) -> None:
    """See that a coalition's model is what everybody is measured with.

    Where models are each one's own, and reputations those of all, it would be no federation without the others.

    Args:
        server: The rule.
        pull: How strongly models of their own are drawn to the shared one; 0 where there are none.

    Raises:
        UserError: If it is not.
    """
    rule = innermost(server)
    own = isinstance(rule, Consensus) and rule.own_models
    if own or not isinstance(server, Consensus):
        got = f"{rule.given_by}.variant released" if isinstance(rule, FedAvg) else type(rule).__name__
        each = ", under which everybody's model is its own" if own else ""
        raise UserError(
            f"Expected a --server with one shared model, such as FedAvg, with --federation.coalition, but got "
            f"{got}{each}; leave {'that out' if isinstance(rule, FedAvg) else 'one'}."
        )
    if pull:
        raise UserError(
            f"Expected --model.personal to be 0 with --federation.coalition, but got {pull:g}; the others would "
            "be measured with models of their own."
        )


def check_shared(server: Server, initial: Tensor) -> None:
    """See that those outside of a coalition would not be measured with layers of their own, which they never train.

    Args:
        server: The rule; started.
        initial: The weights ``[D]`` that everybody starts from.

    Raises:
        UserError: If they would.
    """
    if own_entries(server, initial).any():
        raise UserError(
            "Expected a --server with one shared model with --federation.coalition, but "
            f"{type(innermost(server)).__name__} has participants keep entries that they do not send; leave one."
        )


def check_side(unstarted: Server, task: Task) -> None:
    """See that a rule of one's own stays as it is where participants are: one object serves all of a process.

    A copy keeps, sends and packs a made update for two participants. The first time it may prepare something for good.

    Args:
        unstarted: The server before it was told its task; it is left as it is, and so are streams of random numbers.
        task: What it is told.

    Raises:
        UserError: If it changes itself: results would depend on who shares a process, and on interruptions.
    """
    tried = copy.deepcopy(unstarted)
    rule, memories = tried.answerable, (dict[str, Tensor](), dict[str, Tensor]())
    if all(is_packaged(_definer(type(rule), method)) for method in _ON_A_PARTICIPANTS_SIDE):
        return
    remedy = "keep what is of a participant in the memory of outgoing, and send what unpack needs within the payload"
    with random_stream(1, torch.device("cpu")), warnings.catch_warnings(action="ignore"):
        tried.start(task)
        with suppress(Exception):  # what it cannot do at all is told when the run does it
            _send(tried, memories[0])
        with stays(rule.given_as, rule, remedy), suppress(Exception):
            for memory in memories:
                _send(tried, memory)


def _definer(kind: type, method: str) -> type:
    """The class whose method it is."""
    return next(one for one in kind.__mro__ if method in vars(one))


def _send(server: Server, memory: dict[str, Tensor]) -> None:
    """Do what is done on a participant's side in a round, with an update at random."""
    size = sum(server.layers)
    server.kept(0.01 * torch.randn(size))
    upload = server.outgoing(0.01 * torch.randn(size), memory, torch.randn(size))
    server.pack(upload[server.coordinates.where].contiguous())
