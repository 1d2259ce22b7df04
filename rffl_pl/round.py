"""One communication round of any server, in the steps of Algorithm 1 (Xu & Lyu 2021, https://arxiv.org/abs/2011.10464)."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Container, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Protocol

import torch
from torch import Tensor

from rffl_pl.adversaries import Cast
from rffl_pl.cohort import Cohort, Examples
from rffl_pl.errors import GO_ON, UserError, is_packaged, ones_own
from rffl_pl.exchange import Exchange, Traffic
from rffl_pl.federation import Federation
from rffl_pl.fingerprints import close
from rffl_pl.functional.finite import all_finite
from rffl_pl.functional.streams import random_stream
from rffl_pl.restored import same_verdicts, warn_of_lost_state
from rffl_pl.running import RunningStatistics
from rffl_pl.schedule import Schedule
from rffl_pl.servers import Consensus, Server, Verdict
from rffl_pl.servers.around import innermost


class Precision(Protocol):
    """In which precision is computed, e.g. Lightning's precision plugin."""

    def train_step_context(self) -> AbstractContextManager[object]:
        """Surrounds local training."""

    def val_step_context(self) -> AbstractContextManager[object]:
        """Surrounds what is measured."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """All who sit at one rank's table: its participants, its side of the exchange, and its server.

    Attributes:
        federation: Who takes part.
        cohort: The participants that this rank hosts.
        cast: Who attacks, and how.
        exchange: The way to the server and back.
        server: The rule; on ranks that do not serve, their participants' half of it alone.
        schedule: Local training.
        precision: In which precision is computed.
        personal: The hosted participants' models of their own, beside the shared; None where they have none.
        pull: How strongly these are drawn to the shared ones.
        colluders: What every omniscient adversary remembers, by participant; filled on rank 0, and never by shards.
        restored: A server that is made anew and has taken the state of this one; None in rounds in which nobody asks
            whether it decides the same.
    """

    federation: Federation
    cohort: Cohort
    cast: Cast
    exchange: Exchange
    server: Server
    schedule: Schedule
    precision: Precision
    personal: Cohort | None = None
    pull: float = 0.0
    colluders: dict[int, dict[str, Tensor]] = field(default_factory=dict)
    restored: Server | None = None


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What is known of a round.

    Attributes:
        losses: Mean training loss of the last local epoch of every hosted participant that trained.
        personal_losses: Likewise of the models of their own; without the pull.
        verdict: The server's answer, on rank 0; None where nobody communicates.
        traffic: The bytes of the round; likewise.
    """

    losses: dict[int, float]
    personal_losses: dict[int, float] = field(default_factory=dict)
    verdict: Verdict | None = None
    traffic: Traffic | None = None


def play(table: Table, shards: Mapping[int, Examples], number: int) -> Outcome:
    """Play one communication round; every rank calls it with the participants that it hosts.

    Whoever has been removed trains on alone; a member that was not asked to take part does nothing.

    Args:
        table: This rank's side.
        shards: The training examples of the hosted participants.
        number: The round, counted from 0.
    """
    exchange, server = table.exchange, table.server
    server.round = number  # also where it only is a participant's half, which steps no round
    examples = {i: table.cast.examples(i, shard) for i, shard in shards.items()}
    if not server.communicates:
        return Outcome(losses=_train(table, examples, number))

    # 1. Ask who takes part, and bring those up to date who missed rounds.
    running = RunningStatistics(table.cohort, exchange, server, number)
    _ask(table, number, running.bytes)
    running.begin()
    # 2. Measure: what participants report before they train.
    reports = _measure(table, examples, number) if server.hears_losses else None
    # 3. Train, on one's own examples or on those that one's attack makes of them; models of one's own first.
    personal_losses = _train_personal(table, table.personal, examples, number) if table.personal is not None else {}
    losses = _train(table, examples, number)
    # 4. Forge: everybody keeps of its own update what is its to keep; adversaries send something else.
    _forge(table, losses, number)
    # 5. Upload; beside it what normalisation layers have measured, where all have one model.
    uploads = _upload(table, number)
    running.upload()
    heard = exchange.gather_reports(reports) if reports is not None else None
    # 6. Collude: omniscient adversaries see the honest uploads before the server does.
    _collude(table, uploads, number)
    running.screen(uploads)
    # 7. Judge: aggregate, similarities, reputations, removal, quotas.
    verdict = _judge(table, uploads, heard, number) if exchange.serves else None
    # 8. Download and integrate: the part of the aggregate that one's reputation has earned.
    _integrate(table, verdict)
    running.share(verdict)
    _hand_over(table)
    verdict = replace(verdict, download=_spent) if verdict is not None and exchange.rank == 0 else None
    return Outcome(losses=losses, personal_losses=personal_losses, verdict=verdict, traffic=exchange.traffic)


def _ask(table: Table, number: int, beside: int) -> None:
    exchange, cohort = table.exchange, table.cohort
    if table.federation.share == 1 and not table.server.hands_models:
        return exchange.ask_all()
    asked = table.federation.asked(exchange.members, number) if exchange.serves else ()

    checked: list[Tensor] = []  # the last: most servers give one to all

    def model_for(participant: int) -> Tensor | None:
        doing = "give a participant its model"
        with _drawing(table, "model", participant, number), _of(table.server, doing, number):
            before = table.server.drawn(exchange.device)
            model = table.server.model_for(participant)
            table.server.check_drawn(doing, before, exchange.device)
        if model is not None and not any(model is one for one in checked):
            checked[:] = [_checked_model(table.server, model, number)]
        return model

    for participant, model in exchange.ask(asked, model_for if exchange.serves else None, beside):
        cohort.weights[cohort.row[participant]] = model
    return None


def _checked_model(server: Server, model: object, number: int) -> Tensor:
    """A model that a participant can start from.

    Raises:
        UserError: If it has not every entry, is not float32, or cannot be computed with.
    """
    where = server.coordinates.where
    _check_shape("model_for", server, model, (where.stop - where.start,))
    assert isinstance(model, Tensor)
    if model.dtype != torch.float32:
        raise UserError(
            f"Expected model_for of --server {type(server).__name__} to give float32, but got {model.dtype}; give "
            "model.float()."
        )
    server.check_finite("the model_for a participant", model, number + 1)
    return model


def bring_up_to_date(table: Table) -> None:
    """Give whoever was not asked in the last round the model that it would start from, where all share one.

    It is to be measured, kept and exported, and no part of a round: who is asked again downloads it then, and that is
    counted. Every rank calls it, after a round.
    """
    server, exchange, cohort = table.server, table.exchange, table.cohort
    if not isinstance(server, Consensus) or type(server).model_for is not Consensus.model_for:
        return
    if table.federation.share == 1 or server.model is None:
        return
    model = exchange.everywhere(server.coordinates.gathered(server.model) if exchange.serves else None)
    for index, participant in _hosted(table):
        if exchange.active[participant] and participant not in exchange.asked:
            cohort.weights[index] = model
    _hand_over(table)


def _measure(table: Table, examples: Mapping[int, Examples], number: int) -> dict[int, float]:
    """The mean loss of everybody asked on its own examples, before training; what those draw is the participant's."""
    losses = {}
    for index, participant in _hosted(table):
        if participant in table.exchange.asked:
            seed = table.federation.seed_for("report", participant, number)
            with table.precision.val_step_context(), random_stream(seed, table.cohort.weights.device):
                losses[participant] = table.cohort.loss(index, examples[participant])
    return losses


def _train(table: Table, examples: Mapping[int, Examples], number: int) -> dict[int, float]:
    """Local training of everybody hosted who is up and whose attack does not spare it; their losses, by participant."""
    training = {index: i for index, i in _up(table) if table.cast.trains(i, number)}
    return _trained(table, table.cohort, table.schedule, training, examples, number)


def _train_personal(table: Table, personal: Cohort, examples: Mapping[int, Examples], number: int) -> dict[int, float]:
    """The honest likewise, models of their own, drawn to the shared ones as these are before they train."""
    training = {index: i for index, i in _up(table) if i not in table.cast.attacks}
    anchors = {index: table.cohort.weights[index] for index in training}
    schedule = replace(table.schedule, proximal=table.pull)
    return _trained(table, personal, schedule, training, examples, number, anchors)


def _trained(
    table: Table,
    cohort: Cohort,
    schedule: Schedule,
    training: Mapping[int, int],
    examples: Mapping[int, Examples],
    number: int,
    anchors: Mapping[int, Tensor] | None = None,
) -> dict[int, float]:
    """The losses, by participant, of those who train, given by row."""
    seeds = {index: table.federation.seed_for("training", i, number) for index, i in training.items()}
    theirs = {index: examples[i] for index, i in training.items()}
    with torch.enable_grad(), table.precision.train_step_context():
        losses = cohort.train_all(theirs, schedule, number, seeds, anchors)
    return {training[index]: loss for index, loss in losses.items()}


def _forge(table: Table, trained: Container[int], number: int) -> None:
    """Leave everybody with what it keeps of its update, and its row of `Cohort.updates` with what it sends."""
    cohort, server = table.cohort, table.server
    for index, participant in _up(table):
        update = cohort.withdraw(index) if participant in trained else cohort.idle(index)
        own = update
        if table.exchange.active[participant]:  # whoever has been removed keeps all of it
            keeping = _of(server, "keep what is a participant's own of its update", number)
            with _drawing_ones_own(table, "kept", participant, number), keeping:
                own = server.kept(update)
            _check_shape("kept", server, own, update.shape)
        sent = update
        if participant in table.exchange.asked:
            forged = _forged(table, index, update, number)
            sent = _sent(table, participant, forged, cohort.memories[index], cohort.weights[index], number)
        cohort.integrate(index, own)  # which may be the very update: before it makes room
        update.copy_(sent)


def _sent(
    table: Table, participant: int, upload: Tensor, memory: dict[str, Tensor], model: Tensor, number: int
) -> Tensor:
    """What a participant sends of an upload ``[D]``; noise that a rule adds is the participant's own.

    Raises:
        UserError: If the server's class has it send another number of entries, or remember what no checkpoint keeps.
    """
    server, seed = table.server, table.federation.seed_for("upload", participant, number)
    with random_stream(seed, upload.device), _of(server, "say what a participant sends", number):
        sent = server.outgoing(upload, memory, model)
    _check_shape("outgoing", server, sent, upload.shape)
    for key, value in memory.items():
        if not isinstance(value, Tensor):
            raise UserError(
                f"Expected outgoing of --server {type(server).__name__} to remember tensors, which a checkpoint keeps, "
                f"but its memory has {key} of type {type(value).__name__}; give torch.tensor(...)."
            )
    return sent


def _check_shape(method: str, server: Server, given: object, shape: Sequence[int]) -> None:
    """See that something has an entry for every entry of an update.

    Raises:
        UserError: If not.
    """
    if not isinstance(given, Tensor) or given.shape != torch.Size(shape):
        got = f"shape {list(given.shape)}" if isinstance(given, Tensor) else type(given).__name__
        raise UserError(
            f"Expected {method} of --server {type(server).__name__} to give shape {list(shape)}, but got {got}."
        )


def _drawing(table: Table, purpose: str, *coordinates: int) -> AbstractContextManager[None]:
    """Where a class that may be a user's own may draw at random: an interruption and other ranks change nothing."""
    return random_stream(table.federation.seed_for(purpose, *coordinates), table.exchange.device)


def _drawing_ones_own(table: Table, purpose: str, *coordinates: int) -> AbstractContextManager[None]:
    """Likewise where the package's own rules draw nothing, and a stream for each participant would take its time."""
    packaged = is_packaged(innermost(table.server))
    return nullcontext() if packaged else _drawing(table, purpose, *coordinates)


def _of(server: Server, doing: str, number: int) -> AbstractContextManager[None]:
    """Where a server that may be a user's own does its part in a round."""
    return ones_own(server, "--server", f"{doing} in round {number + 1}", GO_ON)


def _forged(table: Table, index: int, update: Tensor, number: int) -> Tensor:
    """What a participant wants to send: the honest their update, adversaries what their attack makes of it."""
    participant = table.cohort.participants[index]
    if participant not in table.cast.attacks:
        return update
    memory, model = table.cohort.attack_memories[index], table.cohort.weights[index].clone()
    return table.cast.forge(table.cast.situation(participant, number, memory=memory, update=update, model=model))


def _upload(table: Table, number: int) -> dict[int, Tensor]:
    """Bring what everybody asked sends to the ranks that serve: there the uploads ``[d]`` by participant, ascending."""
    cohort, server = table.cohort, table.server
    rows = {i: cohort.updates[k] for k, i in _hosted(table)}
    uploads: dict[int, Tensor] = {}

    def packed(participant: int, where: slice) -> Tensor:
        with _drawing_ones_own(table, "pack", participant, number, where.start):
            return _packed(server, rows[participant][where], number)

    def arrived(participant: int, payload: Tensor) -> None:
        where = server.coordinates.where
        with _drawing_ones_own(table, "unpack", participant, number, where.start):
            upload = _unpacked(server, payload, where.stop - where.start, number)
        # What comes back to where it was sent from takes no second place.
        uploads[participant] = rows[participant][where].copy_(upload) if participant in rows else upload

    table.exchange.gather_uploads(packed, arrived)
    return dict(sorted(uploads.items()))


def _packed(server: Server, upload: Tensor, number: int) -> Tensor:
    """The payload of an upload.

    Raises:
        UserError: If it is none that travels.
    """
    with _of(server, "pack an upload", number):
        payload: object = server.pack(upload)
    if not isinstance(payload, Tensor) or payload.dim() != 1 or payload.dtype != torch.uint8:
        got = (
            f"{payload.dtype} of shape {list(payload.shape)}" if isinstance(payload, Tensor) else type(payload).__name__
        )
        raise UserError(
            f"Expected pack of --server {type(server).__name__} to give bytes, a tensor [K] of uint8, but got {got}; a "
            "tensor of another type has them as flatten().view(torch.uint8)."
        )
    return payload


def _unpacked(server: Server, payload: Tensor, dimension: int, number: int) -> Tensor:
    """The upload ``[dimension]`` behind a payload; NaN, which is set aside, behind one that nobody packs so.

    Raises:
        UserError: If it is none.
    """
    with _of(server, "unpack an upload", number):
        try:
            upload = server.unpack(payload, dimension)
        except ValueError:
            return torch.full((dimension,), torch.nan, device=payload.device)
    _check_shape("unpack", server, upload, (dimension,))
    return upload


def _collude(table: Table, uploads: dict[int, Tensor], number: int) -> None:
    """Replace omniscient adversaries' uploads by what they make of the honest ones; they travel as everybody's."""
    colluding = [i for i in uploads if i in table.cast.omniscient]
    honest = [u for i, u in uploads.items() if colluding and table.federation.is_honest(i) and all_finite(u)]
    if not honest:
        return
    known, adversaries = torch.stack(honest), sum(not table.federation.is_honest(i) for i in uploads)
    for participant in colluding:
        sent, memory = uploads[participant], table.colluders.setdefault(participant, {})
        nowhere = torch.zeros_like(sent)
        situation = table.cast.situation(
            participant, number, memory=memory, update=sent, model=nowhere, honest=known, adversaries=adversaries
        )
        # The adversary has no way around the form in which uploads travel.
        outgoing = _sent(table, participant, table.cast.collude(situation), {}, nowhere, number)
        with _drawing_ones_own(table, "colluder's form", participant, number):
            uploads[participant] = _unpacked(table.server, _packed(table.server, outgoing, number), len(sent), number)


def _judge(table: Table, uploads: Mapping[int, Tensor], heard: Tensor | None, number: int) -> Verdict:
    """The server's verdict; where ranks share the server, they see that it is one and the same.

    Raises:
        UserError: On every rank, if one of them comes to another.
    """
    exchange = table.exchange
    heard_once = nullcontext() if exchange.rank == 0 else warnings.catch_warnings(action="ignore")  # rank 0 says it
    with heard_once:
        verdict = _judged(table, table.server, uploads, heard, number)
    if len(exchange.shards) > 1:
        _check_agreement(exchange, verdict)
    if table.restored is not None:
        with warnings.catch_warnings(action="ignore"):
            differs = not _decides_the_same(table, table.restored, verdict, uploads, heard, number)
        if len(exchange.shards) > 1:
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
    number: int,
) -> bool:
    """Whether another server comes to a verdict, and the models that it has everybody start from are the same."""
    try:
        again = _judged(table, restored, uploads, heard, number)
        return all([same_verdicts(table.exchange.asked, verdict, again), _same_models(table, restored, number)])
    except UserError:  # without what it lacks it may not be able to
        return False


def _judged(table: Table, server: Server, uploads: Mapping[int, Tensor], heard: Tensor | None, number: int) -> Verdict:
    """A server's verdict; what it draws is from streams of the round."""
    exchange = table.exchange
    with _drawing(table, "server", number), _of(server, "judge the uploads", number):
        verdict = server.step(list(uploads.values()), list(uploads), heard)

    def download(participant: int) -> Tensor:
        doing = "give a participant its download"
        with _drawing(table, "download", participant, number), _of(server, doing, number):
            before = server.drawn(exchange.device)
            step = verdict.download(participant)
            server.check_drawn(doing, before, exchange.device)
            return step

    return replace(verdict, download=download)


def _same_models(table: Table, restored: Server, number: int) -> bool:
    """Whether two servers would have everybody start from the same models, if they hand any out."""
    if table.federation.share == 1 and not table.server.hands_models:
        return True

    def model_for(server: Server, participant: int) -> Tensor:
        with _drawing(table, "model", participant, number), _of(server, "give a participant its model", number):
            model = server.model_for(participant)
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


def _integrate(table: Table, verdict: Verdict | None) -> None:
    """Bring everybody who was asked its download and add it to its model; adversaries may keep it.

    Raises:
        UserError: If somebody else is removed.
    """
    cohort = table.cohort
    download, removed = (verdict.download, verdict.removed) if verdict is not None else (None, ())
    if unasked := [i for i in removed if i not in table.exchange.asked]:
        raise UserError(
            f"Expected --server {type(table.server).__name__} to remove those that it asks in a round, but it removes "
            f"participant {unasked[0]}, whose rank hears of nothing in this one; have its rule go by evidence.asked."
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
    """Have adversaries' models of their own be the shared ones: those are what they take home."""
    for index, participant in _hosted(table):
        if table.personal is not None and participant in table.cast.attacks:
            table.personal.take_over(index, table.cohort)


def _hosted(table: Table) -> list[tuple[int, int]]:
    """Row and number of every hosted participant."""
    return list(enumerate(table.cohort.participants))


def _up(table: Table) -> list[tuple[int, int]]:
    """Row and number of every hosted participant but members that were not asked to take part."""
    exchange, meets = table.exchange, table.server.communicates
    return [(index, i) for index, i in _hosted(table) if i in exchange.asked or not (meets and exchange.active[i])]


def _spent(participant: int) -> Tensor:
    """Stands for a verdict's download after the round: to keep that would keep all uploads alive."""
    raise RuntimeError("The round is over and its uploads are gone; a verdict gives downloads during its round alone.")
