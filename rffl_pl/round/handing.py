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
    """Which entries of a model ``[D]`` never leave their owner, bool: those of an update that it keeps and never sends.

    Always as in the rule's first round: otherwise handing models out to measure them could change the run's result.

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
