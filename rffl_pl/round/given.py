"""Checks of what a server's methods, perhaps user-written, return in a round."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from rffl_pl.errors import UserError, is_packaged
from rffl_pl.functional.fingerprints import described, left_alone
from rffl_pl.functional.kept import check_tensors, kept_apart
from rffl_pl.functional.streams import random_stream
from rffl_pl.round.table import Table, of_server
from rffl_pl.servers import Server


def checked_model(server: Server, model: object, round_index: int) -> Tensor:
    """A model that a participant can start from.

    Raises:
        UserError: If it has not every entry, is not float32, or cannot be computed with.
    """
    _check_shape("model_for", server, model, (server.coordinates.size,))
    assert isinstance(model, Tensor)
    if model.dtype != torch.float32:
        raise UserError(
            f"Expected model_for of {server.answerable.given_as} to give float32, but got {model.dtype}; give "
            "model.float()."
        )
    server.check_finite("the model_for a participant", model, round_index + 1)
    return model


def keeping(server: Server, round_index: int) -> AbstractContextManager[None]:
    """Context in which a server's ``kept`` is called, whose failure is one sentence."""
    return of_server(server, "keep what is a participant's own of its update", round_index)


def kept(table: Table, participant: int, update: Tensor, round_index: int) -> Tensor:
    """What a participant keeps of its update ``[D]``, with zeros for what it does not.

    Raises:
        UserError: If the server's class has it keep another number of entries, or changes the update in place.
    """
    server = table.server
    left = _left_alone(server, "kept", update)
    with table.drawing_ones_own("kept", participant, round_index), keeping(server, round_index), left:
        own = server.kept(update)
    _check_shape("kept", server, own, update.shape)
    return own


def sent(
    table: Table, participant: int, upload: Tensor, memory: dict[str, Tensor], model: Tensor, round_index: int
) -> Tensor:
    """What a participant sends of an upload ``[D]``; noise that a rule adds is the participant's own.

    Raises:
        UserError: If the server's class has it send another number of entries, remember what no checkpoint keeps, or
            changes what it is given in place.
    """
    server, seed = table.server, table.federation.seed_for("upload", participant, round_index)
    given = _left_alone(server, "outgoing", upload, model)
    with random_stream(seed, upload.device), of_server(server, "say what a participant sends", round_index), given:
        outgoing = server.outgoing(upload, memory, model)
    _check_shape("outgoing", server, outgoing, upload.shape)
    check_tensors(f"outgoing of {server.answerable.given_as}", memory)
    kept_apart(memory, upload, model)
    return outgoing.to(upload).contiguous()


def packed(server: Server, upload: Tensor, round_index: int) -> Tensor:
    """The payload of an upload.

    Raises:
        UserError: If it is none that travels.
    """
    with of_server(server, "pack an upload", round_index):
        payload: object = server.pack(upload)
    if not isinstance(payload, Tensor) or payload.dim() != 1 or payload.dtype != torch.uint8:
        raise UserError(
            f"Expected pack of {server.answerable.given_as} to give bytes, a tensor [K] of uint8, but got "
            f"{described(payload, dtype=True)}; a tensor of another type has them as flatten().view(torch.uint8)."
        )
    return payload


def unpacked(server: Server, payload: Tensor, dimension: int, round_index: int) -> Tensor:
    """The upload ``[dimension]`` behind a payload; NaN, which is set aside, behind one that nobody packs so.

    Raises:
        UserError: If it is none.
    """
    if not is_packaged(type(server.answerable)):
        payload = payload.clone()  # a slice of a longer buffer need not be aligned for what one views it as
    with of_server(server, "unpack an upload", round_index):
        try:
            upload = server.unpack(payload, dimension)
        except ValueError:
            return torch.full((dimension,), torch.nan, device=payload.device)
    _check_shape("unpack", server, upload, (dimension,))
    return upload.to(payload.device, torch.float32)


def _left_alone(server: Server, method: str, *tensors: Tensor) -> AbstractContextManager[None]:
    """Context that refuses a user's rule that changes updates in place; the package's are not checked: it is slow."""
    rule = server.answerable
    if is_packaged(type(rule)):
        return nullcontext()
    return left_alone(f"{method} of {rule.given_as} to leave updates as they are", *tensors)


def _check_shape(method: str, server: Server, given: object, shape: Sequence[int]) -> None:
    """See that something has an entry for every entry of an update.

    Raises:
        UserError: If not.
    """
    if not isinstance(given, Tensor) or given.shape != torch.Size(shape):
        raise UserError(
            f"Expected {method} of {server.answerable.given_as} to give shape {list(shape)}, but got "
            f"{described(given)}."
        )
