"""Brings what was measured to rank 0."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from rffl_pl.callbacks.reputation import ReputationExchange
from rffl_pl.errors import UserError
from rffl_pl.evaluation import TAKEN
from rffl_pl.module import FederatedModule
from rffl_pl.runs import Round


def gathered(module: FederatedModule, measures: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Every participant's values, ``[P]`` each, on rank 0; empty elsewhere. One transfer for all of them.

    Args:
        module: The hosted participants.
        measures: Their values, ``[n]`` each; the names are the same on every rank.
    """
    if not measures:
        return {}
    rows = torch.stack([values.float().cpu() for values in measures.values()], dim=1)
    columns = module.exchange.gather_rows(rows.to(module.exchange.device)).cpu().unbind(1)
    return dict(zip(measures, columns, strict=True))


def collected(module: FederatedModule, exchange: ReputationExchange) -> Round:
    """The round that has just ended; a transfer, so every rank asks, and rank 0 alone gets all of it.

    Raises:
        UserError: If a measure of the server's own has the name of another.
    """
    losses = {"train_loss": _of_hosted(module, module.losses)}
    if module.personal is not None:
        losses["personal_loss"] = _of_hosted(module, module.personal_losses)
    measured = gathered(module, {**module.watched, **losses})
    entry = Round(
        number=module.round,
        honest=module.federation.honest,
        members=exchange.server.members.tolist(),
        measures={name: values.tolist() for name, values in measured.items()},
    )
    if exchange.verdict is not None and exchange.traffic is not None:
        verdict, traffic = exchange.verdict, exchange.traffic
        entry.removed, entry.set_aside = list(verdict.removed), list(verdict.set_aside)
        entry.silent = list(verdict.silent)
        for name in verdict.measures.keys() & (TAKEN | measured.keys()):
            raise UserError(
                f"Expected the measures of --server to have names of their own, but {name} is taken; rename it in "
                f"{type(exchange.server).__name__}."
            )
        of_server = verdict.measures | {
            "weight": verdict.weights,
            "similarity": verdict.similarities,
            "reputation": verdict.reputations,
            "quota": verdict.quotas,
        }
        entry.measures |= {name: values.tolist() for name, values in of_server.items()}
        entry.measures |= {"bytes_up": [*traffic.up], "bytes_down": [*traffic.down]}
    return entry


def _of_hosted(module: FederatedModule, losses: Mapping[int, float]) -> Tensor:
    """Training losses ``[n]``: NaN stands for "did not train", so one that is not finite shows as infinite."""
    found = (
        losses.get(i, math.nan) if math.isfinite(losses.get(i, 0)) else math.inf for i in module.cohort.participants
    )
    return torch.tensor(list(found))
