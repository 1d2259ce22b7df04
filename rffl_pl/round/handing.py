"""What of a model is the server's to hand to whoever missed a round, and what stays with its owner."""

from __future__ import annotations

from typing import TypeGuard

import torch
from torch import Tensor

from rffl_pl.functional.streams import random_stream
from rffl_pl.servers import Consensus, Server
from rffl_pl.servers.base import at_work


def shares_model(server: Server) -> TypeGuard[Consensus]:
    """Whether whoever missed a round is handed the server's model, the same for all, where the server keeps one."""
    return isinstance(server, Consensus) and type(server).model_for is Consensus.model_for


def own_entries(server: Server, like: Tensor) -> Tensor:
    """Which entries of a model ``[D]`` stay with their owner, bool: those of an update that it keeps and does not send.

    As the rule has them in the first round: where they changed on the way, a model that is handed to be measured would
    change what a run ends with.

    Args:
        server: The rule, or its participants' half; started.
        like: A vector ``[D]`` where models are.

    Raises:
        UserError: If a rule of one's own cannot say.
    """
    ones, played = torch.ones_like(like), server.round
    server.round = 0
    try:
        with random_stream(0, like.device), at_work(server, "keep what is a participant's own"):
            kept = server.kept(ones) != 0
            if not kept.any():
                return kept
            return kept & (server.outgoing(ones, {}, torch.zeros_like(like)) == 0)
    finally:
        server.round = played
