"""Sentences that go from one rank to others, with whose they are: a folder or a full disk is one machine's alone."""

from __future__ import annotations

import json
import socket
from typing import Any

from rffl_pl import launch

_DISCREET = "It cannot go on; its own machine says why."
_LONGEST = 2000  # characters of a sentence that somebody else says
_private = False


def keep_private(so: bool) -> None:
    """Whether what this process meets may name examples that are its own: other machines then hear that it ended."""
    global _private
    _private = so


def spoken(sentence: str) -> str:
    """A sentence of this rank's, for others to hear."""
    said = _DISCREET if _private and not launch.on_one_node() else sentence
    return json.dumps({"sentence": said, "rank": launch.rank(), "host": socket.gethostname(), "node": _node()})


def heard(said: str) -> str:
    """What a rank said, on this one: behind its name if it is of another node, or says no more than that it ends."""
    about = _about(said)
    sentence, rank, host = (_printable(about.get(name)) for name in ("sentence", "rank", "host"))
    return sentence if near(said) and sentence != _DISCREET else f"Rank {rank} on {host}: {sentence}"


def near(said: str) -> bool:
    """Whether a rank of this node said it."""
    return bool(_about(said).get("node") == _node())


def _about(said: str) -> dict[str, Any]:
    """The fields of a message that `spoken` made; none of anything else, as what a stranger's process may send."""
    try:
        return dict(json.loads(said))
    except (ValueError, TypeError):
        return {}


def _printable(said: object) -> str:
    """Without what moves a terminal's cursor, and no longer than one reads."""
    return "".join(character if character.isprintable() else " " for character in str(said)[:_LONGEST])


def _node() -> Any:
    """What tells this node from others: torchrun's folder, which its ranks share; without one the rank's number."""
    folder = launch.node_folder()
    return launch.rank() if folder is None else str(folder.parent)
