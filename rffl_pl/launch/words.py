"""Sentences that go from one rank to others, with whose they are: a folder or a full disk is one machine's alone."""

from __future__ import annotations

import json
import socket
from typing import Any

from rffl_pl import launch


def spoken(sentence: str) -> str:
    """A sentence of this rank's, for others to hear."""
    return json.dumps({"sentence": sentence, "rank": launch.rank(), "host": socket.gethostname(), "node": _node()})


def heard(said: str) -> str:
    """What a rank said, on this one: behind its name if it is of another node."""
    about = json.loads(said)
    return about["sentence"] if near(said) else f"Rank {about['rank']} on {about['host']}: {about['sentence']}"


def near(said: str) -> bool:
    """Whether a rank of this node said it."""
    return bool(json.loads(said)["node"] == _node())


def _node() -> Any:
    """The same for all ranks of a node: they share torchrun's folder; without one each rank is by itself."""
    folder = launch.node_folder()
    return launch.rank() if folder is None else str(folder.parent)
