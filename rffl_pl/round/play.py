"""One communication round of any server, in the steps of Algorithm 1 (Xu & Lyu 2021, https://arxiv.org/abs/2011.10464)."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from rffl_pl.errors import UserError
from rffl_pl.exchange import Traffic
from rffl_pl.functional.finite import all_finite
from rffl_pl.functional.streams import random_stream
from rffl_pl.round.given import checked_model, kept, packed, sent, unpacked
from rffl_pl.round.handing import own_entries, shares_model
from rffl_pl.round.judging import judge
from rffl_pl.round.running import RunningStatistics
from rffl_pl.round.table import Table
from rffl_pl.servers import Verdict
from rffl_pl.training.cohort import Cohort
from rffl_pl.training.schedule import Examples, Schedule


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What is known of a round.

    Attributes:
        losses: Mean training loss of the last local epoch of every hosted participant that trained.
        personal_losses: Mean training loss, without the pull, of the personal model of each that trains one.
        verdict: The server's answer, on rank 0; None where nobody communicates.
        traffic: The bytes of the round, on rank 0; None where nobody communicates.
    """

    losses: dict[int, float]
    personal_losses: dict[int, float] = field(default_factory=dict)
    verdict: Verdict | None = None
    traffic: Traffic | None = None


def play(table: Table, shards: Mapping[int, Examples], round_index: int) -> Outcome:
    """Play one communication round; every rank calls it with the participants that it hosts.

    Whoever has been removed trains on alone; a member that was not asked to take part does nothing.

    Args:
        table: This rank's side.
        shards: The training examples of the hosted participants.
        round_index: The round, counted from 0.
    """
    exchange, server = table.exchange, table.server
    server.round = round_index  # also where it only is a participant's half, which steps no round
    examples = {i: table.cast.examples(i, shard) for i, shard in shards.items()}
    if not server.communicates:
        return Outcome(losses=_train(table, examples, round_index))

    # 1. Ask who takes part, and bring those up to date who missed rounds.
    running = RunningStatistics(table.cohort, exchange, server, round_index)
    _ask(table, round_index, running.bytes)
    running.begin()
    # 2. Measure: what participants report before they train.
    reports = _measure(table, examples, round_index) if server.hears_losses else None
    # 3. Train, on one's own examples or on those that one's attack makes of them; models of one's own first.
    personal_losses = (
        _train_personal(table, table.personal, examples, round_index) if table.personal is not None else {}
    )
    losses = _train(table, examples, round_index)
    # 4. Forge: everybody keeps of its own update what is its to keep; adversaries send something else.
    _forge(table, losses, round_index)
    # 5. Upload; beside it what normalisation layers have measured, where all have one model.
    uploads = _upload(table, round_index)
    running.upload()
    heard = exchange.gather_reports(reports) if reports is not None else None
    # 6. Collude: omniscient adversaries see the honest uploads before the server does.
    _collude(table, uploads, round_index)
    running.screen(uploads)
    # 7. Judge: aggregate, similarities, reputations, removal, quotas.
    verdict = judge(table, uploads, heard, round_index) if exchange.serves else None
    # 8. Download and integrate: the part of the aggregate that one's reputation has earned.
    _integrate(table, verdict)
    running.share(verdict)
    _hand_over(table)
    verdict = replace(verdict, download=_spent) if verdict is not None and exchange.rank == 0 else None
    return Outcome(losses=losses, personal_losses=personal_losses, verdict=verdict, traffic=exchange.traffic)


def _ask(table: Table, round_index: int, beside: int) -> None:
    exchange = table.exchange
    if not table.hands_models:
        exchange.ask_all()
        return
    asked = table.federation.asked(exchange.members, round_index) if exchange.serves else ()

    checked: list[Tensor] = []  # the last: most servers give one to all

    def model_for(participant: int) -> Tensor | None:
        model = table.model_for(table.server, participant, round_index)
        if model is not None and not any(model is one for one in checked):
            checked[:] = [checked_model(table.server, model, round_index)]
        return model

    _hand_models(table, exchange.ask(asked, model_for if exchange.serves else None, beside))


def _hand_models(table: Table, models: Iterable[tuple[int, Tensor]]) -> None:
    """Have participants start from the server's model, but for what is theirs alone, which it has never been sent."""
    cohort, own = table.cohort, None
    for participant, model in models:
        row = cohort.weights[cohort.row[participant]]
        if own is None and shares_model(table.server):
            own = own_entries(table.server, row)
        row.copy_(model if own is None else torch.where(own, row, model))


def bring_up_to_date(table: Table) -> None:
    """Give whoever was not asked in the last round the model that it would start from, where all share one.

    It is to be measured, kept and exported, and no part of a round: who is asked again downloads it then, and that is
    counted. Every rank calls it, after a round.
    """
    server, exchange = table.server, table.exchange
    if not shares_model(server) or table.federation.asked_share == 1 or server.model is None:
        return
    model = exchange.everywhere(server.coordinates.gathered(server.model) if exchange.serves else None)
    behind = (i for _, i in table.rows() if exchange.active[i] and i not in exchange.asked)
    _hand_models(table, ((i, model) for i in behind))
    _hand_over(table)


def _measure(table: Table, examples: Mapping[int, Examples], round_index: int) -> dict[int, float]:
    """The mean loss of everybody asked on its own examples, before training; what those draw is the participant's."""
    losses = {}
    for index, participant in table.rows():
        if participant in table.exchange.asked:
            seed = table.federation.seed_for("report", participant, round_index)
            with table.precision.val_step_context(), random_stream(seed, table.cohort.weights.device):
                losses[participant] = table.cohort.loss(index, examples[participant])
    return losses


def _train(table: Table, examples: Mapping[int, Examples], round_index: int) -> dict[int, float]:
    """Local training of everybody hosted who is up and whose attack does not spare it; their losses, by participant."""
    training = {index: i for index, i in table.rows_in_round() if table.cast.trains(i, round_index)}
    return _trained(table, table.cohort, table.schedule, training, examples, round_index)


def _train_personal(
    table: Table, personal: Cohort, examples: Mapping[int, Examples], round_index: int
) -> dict[int, float]:
    """Train the honest's personal models, drawn to the shared ones as these are before they train; their losses."""
    training = {index: i for index, i in table.rows_in_round() if i not in table.cast.attacks}
    anchors = {index: table.cohort.weights[index] for index in training}
    schedule = replace(table.schedule, proximal=table.pull)
    return _trained(table, personal, schedule, training, examples, round_index, anchors)


def _trained(
    table: Table,
    cohort: Cohort,
    schedule: Schedule,
    training: Mapping[int, int],
    examples: Mapping[int, Examples],
    round_index: int,
    anchors: Mapping[int, Tensor] | None = None,
) -> dict[int, float]:
    """Train participants, given by row; their losses by participant."""
    seeds = {index: table.federation.seed_for("training", i, round_index) for index, i in training.items()}
    theirs = {index: examples[i] for index, i in training.items()}
    with torch.enable_grad(), table.precision.train_step_context():
        losses = cohort.train_all(theirs, schedule, round_index, seeds, anchors)
    return {training[index]: loss for index, loss in losses.items()}


def _forge(table: Table, trained: Container[int], round_index: int) -> None:
    """Leave everybody with what it keeps of its update, and its row of `Cohort.updates` with what it sends."""
    cohort = table.cohort
    for index, participant in table.rows_in_round():
        update = cohort.take_update(index) if participant in trained else cohort.zero_update(index)
        # Whoever has been removed keeps all of it.
        own = kept(table, participant, update, round_index) if table.exchange.active[participant] else update
        upload = update
        if participant in table.exchange.asked:
            forged = _forged(table, index, update, round_index)
            upload = sent(table, participant, forged, cohort.memories[index], cohort.weights[index], round_index)
        cohort.integrate(index, own)  # which may be the very update: before it makes room
        update.copy_(upload)


def _forged(table: Table, index: int, update: Tensor, round_index: int) -> Tensor:
    """What a participant wants to send: the honest their update, adversaries what their attack makes of it."""
    participant = table.cohort.participants[index]
    if participant not in table.cast.attacks:
        return update
    memory, model = table.cohort.attack_memories[index], table.cohort.weights[index].clone()
    return table.cast.forge(table.cast.situation(participant, round_index, memory=memory, update=update, model=model))


def _upload(table: Table, round_index: int) -> dict[int, Tensor]:
    """Bring what everybody asked sends to the ranks that serve: there the uploads ``[d]`` by participant, ascending."""
    cohort, server = table.cohort, table.server
    rows = {i: cohort.updates[k] for k, i in table.rows()}
    uploads: dict[int, Tensor] = {}

    def payload_of(participant: int, where: slice) -> Tensor:
        with table.drawing_ones_own("pack", participant, round_index, where.start):
            return packed(server, rows[participant][where], round_index)

    def arrived(participant: int, payload: Tensor) -> None:
        here = server.coordinates
        with table.drawing_ones_own("unpack", participant, round_index, here.where.start):
            upload = unpacked(server, payload, here.size, round_index)
        # What comes back to where it was sent from takes no second place.
        uploads[participant] = rows[participant][here.where].copy_(upload) if participant in rows else upload

    table.exchange.gather_uploads(payload_of, arrived)
    return dict(sorted(uploads.items()))


def _collude(table: Table, uploads: dict[int, Tensor], round_index: int) -> None:
    """Replace omniscient adversaries' uploads by what they make of the honest ones; they travel as everybody's."""
    colluding = [i for i in uploads if i in table.cast.omniscient]
    honest = [u for i, u in uploads.items() if colluding and table.federation.is_honest(i) and all_finite(u)]
    if not honest:
        return
    known, adversaries = torch.stack(honest), sum(not table.federation.is_honest(i) for i in uploads)
    for participant in colluding:
        upload, memory = uploads[participant], table.colluders.setdefault(participant, {})
        nowhere = torch.zeros_like(upload)
        situation = table.cast.situation(
            participant,
            round_index,
            memory=memory,
            update=upload,
            model=nowhere,
            honest=known.clone(),
            adversaries=adversaries,
        )
        # The adversary has no way around the form in which uploads travel.
        outgoing = sent(table, participant, table.cast.collude(situation), {}, nowhere, round_index)
        with table.drawing_ones_own("colluder's form", participant, round_index):
            uploads[participant] = unpacked(
                table.server, packed(table.server, outgoing, round_index), len(upload), round_index
            )


def _integrate(table: Table, verdict: Verdict | None) -> None:
    """Bring everybody who was asked its download and add it to its model; adversaries may keep it.

    Raises:
        UserError: If somebody else is removed.
    """
    cohort = table.cohort
    download, removed = (verdict.download, verdict.removed) if verdict is not None else (None, ())
    if unasked := [i for i in removed if i not in table.exchange.asked]:
        raise UserError(
            f"Expected {table.server.answerable.given_as} to remove those that it asks in a round, but it removes "
            f"participant {unasked[0]}, who was not asked; remove only those in evidence.asked."
        )
    for participant, step in table.exchange.scatter_downloads(download, removed):
        index = cohort.row[participant]
        cohort.download(index, step, whole=table.server.gives_all)
        table.cast.remember(participant, cohort.attack_memories[index], step)
    if cohort.corrections is not None:
        cohort.corrections.end_round()
    if verdict is not None:
        for participant, memory in table.colluders.items():
            if participant in table.exchange.asked and participant not in removed:
                table.cast.remember(participant, memory, verdict.download(participant))


def _hand_over(table: Table) -> None:
    """Set adversaries' personal models to the shared ones, which are what they take home."""
    for index, participant in table.rows():
        if table.personal is not None and participant in table.cast.attacks:
            table.personal.take_over(index, table.cohort)


def _spent(participant: int) -> Tensor:
    """Replaces a verdict's ``download`` after the round, since keeping that would keep all uploads alive."""
    raise RuntimeError("The round is over and its uploads are gone; a verdict gives downloads during its round alone.")
