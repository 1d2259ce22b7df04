"""Whether trainer, federation and memory fit a run, before it begins."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from lightning.pytorch import Trainer

from rffl_pl.errors import UserError
from rffl_pl.federation import Federation
from rffl_pl.models.sizes import memory


def check_trainer(trainer: Trainer, stage: str) -> None:
    """Check what the command line sets up and a Python program may forget.

    Args:
        trainer: Lightning's.
        stage: What it does, ``fit`` for instance.

    Raises:
        UserError: If it trains in another precision, nobody plays the rounds, or ranks would divide the examples.
    """
    check_precision(trainer.precision)
    callbacks = getattr(trainer, "callbacks")  # noqa: B009  # Lightning sets it where mypy cannot see
    if stage == "fit" and not any(getattr(callback, "plays", False) for callback in callbacks):
        raise UserError(
            "Expected a trainer with the callback that plays the rounds, but got "
            f"{', '.join(type(callback).__name__ for callback in callbacks) or 'none'}; give for instance "
            "Trainer(callbacks=[ReputationExchange(RFFL())])."
        )
    sampling = trainer._accelerator_connector.use_distributed_sampler
    if sampling and trainer.world_size > 1:
        raise UserError(
            "Expected Trainer(use_distributed_sampler=False) on several ranks, but got True: every rank evaluates "
            "its own participants on all examples."
        )


def check_precision(given: object) -> None:
    """See that what is trained is float32, as uploads are, whatever precision it is computed in.

    Raises:
        UserError: If it would be another, or float16, whose losses nobody scales.
    """
    if given not in (None, 32, "32", "32-true", "bf16", "bf16-mixed"):
        raise UserError(no_precision(given))


def no_precision(given: object) -> str:
    """The sentence on a precision that nobody trains in, whether Lightning knows it or not."""
    return f"Expected --trainer.precision to be 32-true or bf16-mixed, but got {given}: uploads are float32."


def check_same_federation(module: Federation, data: Federation) -> None:
    """See that module and data have the same members and seed.

    Raises:
        UserError: With what differs first.
    """
    for name in ("honest", "adversaries", "participation", "coalition", "seed"):
        there, here = getattr(module, name), getattr(data, name)
        if there != here:
            raise UserError(
                f"Expected the module and its data to be of one Federation, but {name} is {there} there and {here} "
                "here; give both the same."
            )


def check_memory(dimension: int, participants: int, device: torch.device, beside: Mapping[str, int]) -> None:
    """See that the participants of a rank have room: each has weights and an update.

    Args:
        dimension: D.
        participants: How many of them a rank hosts.
        device: Where they live.
        beside: How many more such vectors each has, by the option that asks for them.

    Raises:
        UserError: If not.
    """
    needed, there = 4 * (2 + sum(beside.values())) * dimension * participants, memory(device)
    if needed > there:
        without = "".join(f"leave {option} out, " for option, more in beside.items() if more)
        raise UserError(
            f"Expected the models of {participants} participants to fit into the memory of a rank, but they need "
            f"{needed / 1e9:.0f} GB and there are {there / 1e9:.0f}; {without}lower --federation.participants, take a "
            "smaller --model.network, or start more ranks on other machines."
        )
