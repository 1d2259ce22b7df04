"""Whether what a user's own classes give to a checkpoint can be read back from it."""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping
from typing import Any

import torch

from rffl_pl.errors import path_of
from rffl_pl.servers.base import unkept

_OTHERS = ("callbacks", "federation", "server", "state_dict", "loops", "optimizer_states", "lr_schedulers")
"""What in a checkpoint is looked at by itself, or tensors and Lightning's."""


def unreadable(checkpoint: Mapping[str, Any], *, optimizers: bool) -> str | None:
    """The first state, of a callback, an optimizer, data or whatever, that no checkpoint gives back, in a sentence.

    Args:
        checkpoint: What Lightning collected, with the states of hosted participants as functions.
        optimizers: Whether to look at these too, which may be large.
    """
    callbacks = (checkpoint.get("callbacks") or {}).items()
    states = {f"the state of --trainer.callbacks {key.partition('{')[0]}": state for key, state in callbacks}
    states |= {f"what is put into a checkpoint as {key}": checkpoint[key] for key in checkpoint if key not in _OTHERS}
    participants = checkpoint.get("federation", {}).get("participants", {})
    if optimizers and participants:
        make = next(iter(participants.values()))  # one: all are alike
        states["the state of --model.optimizer"] = make()["optimizer"]
    for owner, state in states.items():
        buffer = io.BytesIO()
        try:
            torch.save(state, buffer)
            buffer.seek(0)
            torch.load(buffer, map_location="cpu", weights_only=True)
        except (pickle.PickleError, RuntimeError, AttributeError, TypeError):  # functions and locks cannot be saved
            kind = type(next(unkept(state), state))
            return (
                f"Expected {owner} to hold tensors and Python's own numbers and texts, which a checkpoint "
                f"keeps, but it has {path_of(kind)}; give float(...) or torch.as_tensor(...)."
            )
    return None
