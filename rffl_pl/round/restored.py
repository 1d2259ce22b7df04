"""Whether a server's state_dict holds all that it decides by: a server that is restored from it must decide alike."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable

from rffl_pl.functional.fingerprints import close, fingerprints
from rffl_pl.servers import Server, Verdict
from rffl_pl.servers.base import FACTS

_ADDRESS = re.compile(" at 0x[0-9a-f]+")


def same_verdicts(asked: Iterable[int], one: Verdict, other: Verdict) -> bool:
    """Whether two verdicts agree for everybody; all downloads are computed, which may need all ranks.

    Args:
        asked: Who took part in the round.
        one: A verdict.
        other: Another one on the same uploads.
    """
    alike = [close(getattr(one, name), getattr(other, name)) for name in FACTS]
    alike += [name in other.measures and close(values, other.measures[name]) for name, values in one.measures.items()]
    return all([*alike, *[close(one.download(i), other.download(i)) for i in asked if one.members[i]]])


def warn_of_lost_state(server: Server, restored: Server) -> None:
    """Say what a server decides by that its state does not have.

    Args:
        server: The server.
        restored: One that is made anew and has taken its state, and decides otherwise.
    """
    here, there = (fingerprints(one.answerable) for one in (server, restored))
    # What the package's own classes keep differs since something else does; where an object lies says nothing of it.
    own = (name for name in here if name not in server.answerable._of_every_server)
    differs = (name for name in own if _ADDRESS.sub("", here[name]) != _ADDRESS.sub("", there.get(name, "")))
    warnings.warn(
        f"{server.answerable.given_as} decides otherwise where it goes on from its state_dict, as after an "
        f"interruption, since its {next(differs, 'state')} is another; have state_dict and load_state_dict keep it.",
        stacklevel=2,
    )
