"""The server's judgement of a round's uploads, and whether all ranks and a restored server come to the same."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import torch
from torch import Tensor

from rffl_pl.errors import UserError
from rffl_pl.exchange import Exchange
from rffl_pl.functional.fingerprints import close, left_alone
from rffl_pl.functional.kept import kept_apart
from rffl_pl.round.restored import same_verdicts, warn_of_lost_state
from rffl_pl.round.table import Table, of_server
from rffl_pl.servers import Server, Verdict
from rffl_pl.servers.around import surrounded


def judge(table: Table, uploads: Mapping[int, Tensor], heard: Tensor | None, round_index: int) -> Verdict:
    """The server's verdict; where ranks share the server, they see that it is one and the same.

    Raises:
        UserError: On every rank, if one of them comes to another. Or if one of a user's own changes the uploads, where
            another one is to judge them too.
    """
    exchange = table.exchange
    heard_once = nullcontext() if exchange.rank == 0 else warnings.catch_warnings(action="ignore")  # rank 0 says it
    left: AbstractContextManager[None] = nullcontext()
    if table.restored is not None:
        own = table.server.answerable.given_as
        left = left_alone(f"{own} to leave uploads as they are where it judges them", *uploads.values())
    with heard_once, left:
        verdict = _judged(table, table.server, uploads, heard, round_index)
    for rule in surrounded(table.server):  # uploads of who is hosted here are written over in the next round
        kept_apart(vars(rule), *uploads.values())
    if exchange.sharded:
        _check_agreement(exchange, verdict)
    if table.restored is not None:
        with warnings.catch_warnings(action="ignore"):
            differs = not _decides_the_same(table, table.restored, verdict, uploads, heard, round_index)
        if exchange.sharded:
            differs = exchange.anybody(differs)
        if differs and exchange.rank == 0:
            warn_of_lost_state(table.server, table.restored)
    return verdict


def _decides_the_same(
    table: Table,
    restored: Server,
    verdict: Verdict,
    uploads: Mapping[int, Tensor],
    heard: Tensor | None,
    round_index: int,
) -> bool:
    """Whether a restored server gives the same verdict and has everybody start from the same models."""
    try:
        again = _judged(table, restored, uploads, heard, round_index)
        return all([same_verdicts(table.exchange.asked, verdict, again), _same_models(table, restored, round_index)])
    except UserError:  # without what it lacks it may not be able to
        return False


def _judged(
    table: Table, server: Server, uploads: Mapping[int, Tensor], heard: Tensor | None, round_index: int
) -> Verdict:
    """A server's verdict; what it draws is from streams of the round."""
    with table.drawing("server", round_index), of_server(server, "judge the uploads", round_index):
        verdict = server.step(list(uploads.values()), list(uploads), heard)

    def download(participant: int) -> Tensor:
        with table.giving(server, "download", participant, round_index):
            return verdict.download(participant)

    return replace(verdict, download=download)


def _same_models(table: Table, restored: Server, round_index: int) -> bool:
    """Whether two servers would have everybody start from the same models, if they hand any out."""
    if not table.hands_models:
        return True

    def model_for(server: Server, participant: int) -> Tensor:
        model = table.model_for(server, participant, round_index)
        return torch.empty(0) if model is None else model

    return all(close(model_for(table.server, i), model_for(restored, i)) for i in table.exchange.asked)


def _check_agreement(exchange: Exchange, verdict: Verdict) -> None:
    """See that all ranks that share the server decide alike.

    Raises:
        UserError: On every rank, if one of them comes to another verdict.
    """
    decided = (verdict.weights, verdict.reputations, verdict.quotas, verdict.members)
    digest = hashlib.sha256(b"".join(values.cpu().numpy().tobytes() for values in decided)).hexdigest()
    found = exchange.first_difference({"verdict": digest})
    if found is not None:
        raise UserError(
            f"Expected all ranks to decide alike under --exchange sharded, but rank {found.rank} comes to another "
            "verdict than rank 0, as on another processor or with other threads; give --exchange central."
        )
