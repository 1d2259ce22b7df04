"""Servers under which everybody takes the same step, and so has the same model but where a rule says otherwise."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from rffl_pl.errors import UserError
from rffl_pl.functional.reputation import weighted_sum
from rffl_pl.servers.base import Server, Task, Verdict
from rffl_pl.servers.coordinates import moved
from rffl_pl.servers.evidence import Evidence, entries_of


class Consensus(Server):
    r"""Base of the servers under which all participants take the same step: :math:`w \leftarrow w + s`.

    The step s is what `combine` makes of every block of coordinates with the weights that `weigh` decides; by default
    the mean. Nobody is removed, and unless `own_models` nobody keeps its own update, so that all have the same model.
    Uploads that are not finite are set aside before, and those of zeros are no vote: the step is as if their senders
    had not been asked. Without any left it is 0.

    Where members miss rounds, the server keeps the model, and whoever missed one starts from it, again unless
    `own_models`.

    Attributes:
        model: The model ``[d]`` of everybody, of the coordinates that are here, where the server has to keep it; else
            None.
        current: Who has that model, ``[P]`` bool: everybody at first, then whoever was asked in the last round.
    """

    gives_all: bool = True

    _of_every_server: ClassVar[frozenset[str]] = Server._of_every_server | {"current", "model"}

    keeps_model: ClassVar[bool] = False
    """Whether the rule needs the model also where nobody misses a round."""

    own_models: bool = False
    """Whether every participant's model is its own, since all take one step and nobody is handed another."""

    whole: bool = False
    """Whether `combine` is given all coordinates of the uploads at once, as a rule on whole vectors needs them.

    It takes a second copy of the uploads, and all of them in one place, so ``--exchange sharded`` refuses it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.model: Tensor | None = None
        self.current = torch.empty(0, dtype=torch.bool)

    def start(self, task: Task) -> None:
        super().start(task)
        kept = self.keeps_model or (task.participation < 1 and not self.own_models)
        self.model = task.initial.clone() if kept else None
        self.current = torch.ones_like(self.members)

    def weigh(self, evidence: Evidence) -> Tensor:
        """The weights ``[m]`` float64 of the uploads, m at least 1; an upload of weight 0 is not combined."""
        return torch.full((len(evidence.senders),), 1 / len(evidence.senders), dtype=torch.float64)

    def combine(self, block: Tensor, weights: Tensor) -> Tensor:
        """What is made of some coordinates ``[m, c]`` of the uploads, ``[c]``; each coordinate is on its own.

        Unless the rule is a `whole` one, which has all D coordinates in one block.

        Args:
            block: ``[m, c]``, a copy; the uploads of weight 0 are not in it.
            weights: Their weights ``[m]``.
        """
        return weighted_sum(block, weights)

    def combines(self, weights: Tensor) -> Tensor:
        """Which uploads ``[m]`` are combined, bool, with the weights that `weigh` has decided: all but those of 0."""
        return weights != 0

    def pool(self, statistics: Tensor, weights: Tensor) -> Tensor:
        """What is made of the running statistics of a network with BatchNorm ``[m, S]``, ``[S]``.

        By default what `combine` makes of uploads, with weights that add up to 1: the mean, or what a rule has in its
        place that works entry by entry. A rule whose `combine` gives something else than the middle of what it is
        given, say a vote, overrides it. What leaves the range of the m values of an entry is taken back into it.

        Args:
            statistics: ``[m, S]``, a copy; those that came with the uploads whose weight is not 0.
            weights: The weights of these uploads, ``[m]`` float64.
        """
        return self.combine(statistics, weights / weights.sum())

    def stride(self, combined: Tensor) -> Tensor:
        """The step ``[d]`` made of all that was combined ``[d]``: by default just that; of the coordinates here.

        A length over all of them, under ``--exchange sharded`` too, is the root of
        ``self.coordinates.squared_norms([combined])``.
        """
        return combined

    def measures(self, evidence: Evidence, weights: Tensor) -> dict[str, Tensor]:
        """Diagnostics of the rule's own, by name: a value for each of the m uploads; they reach loggers and history."""
        return {}

    def kept(self, update: Tensor) -> Tensor:
        return torch.zeros_like(update)

    def rule(self, evidence: Evidence) -> Verdict:
        some = len(evidence.senders) > 0
        if some:
            weights = self.decided(evidence)
            used = self.combines(weights)
            step = self.checked_stride(evidence.combined(self.checked_combine, weights, used=used, whole=self.whole))
        else:
            weights, step = evidence.squared_norms, torch.zeros(self.coordinates.size)
        if self.model is not None:
            self.model = moved(self.model, step)
        self.current = torch.zeros_like(self.members).scatter(0, evidence.asked, True)
        measured = self.checked_measures(evidence, weights) if some else {}
        everyone = evidence.spread(weights, 0.0)
        return Verdict(
            weights=everyone,
            similarities=torch.full_like(everyone, torch.nan),
            reputations=everyone,
            quotas=self.members.double(),
            members=self.members,
            download=lambda participant: step,
            measures={name: evidence.spread(values.double(), torch.nan) for name, values in measured.items()},
        )

    def decided(self, evidence: Evidence) -> Tensor:
        """The weights that `weigh` decides, on the CPU.

        Raises:
            UserError: If they are none.
        """
        weights = self.weigh(evidence)
        self.check_entries("weights", weights, len(evidence.senders), "uploads")
        self.check_finite("weights", weights)
        return weights.cpu() if weights.is_floating_point() else weights.cpu().double()

    def checked_combine(self, block: Tensor, weights: Tensor) -> Tensor:
        """What `combine` makes of some coordinates ``[m, c]``, ``[c]``.

        Raises:
            UserError: If it has not every entry.
        """
        made = self.combine(block, weights.clone())  # other blocks, and the verdict, have the same weights
        return entries_of(block, made, f"combine of {self.given_as} to give")

    def checked_stride(self, combined: Tensor) -> Tensor:
        """The step that `stride` makes of what was combined ``[d]``.

        Raises:
            UserError: If it has not every entry, is of another type, or cannot be computed with.
        """
        step = self.stride(combined)
        self.check_entries("the step", step, self.coordinates.size, "coordinates")
        if step.dtype != combined.dtype:
            raise UserError(
                f"Expected the step of {self.given_as} to be of the uploads' {combined.dtype}, but got {step.dtype}."
            )
        self.check_finite("the step", step)
        return step

    def checked_measures(self, evidence: Evidence, weights: Tensor) -> dict[str, Tensor]:
        """What `measures` gives.

        Raises:
            UserError: If something has not a value for every upload.
        """
        measured = self.measures(evidence, weights)
        for name, values in measured.items():
            self.check_entries(name, values, len(weights), "uploads")
        return measured

    def model_for(self, participant: int) -> Tensor | None:
        return None if self.current[participant] else self.model

    def state_dict(self) -> dict[str, Any]:
        kept = {} if self.model is None else {"model": self.model.cpu(), "current": self.current}
        return super().state_dict() | kept

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave.

        Raises:
            UserError: If it was another's: the server has to keep the model here and did not there, or the other way.
        """
        super().load_state_dict(state)
        if ("model" in state) != (self.model is not None):
            has, lacks = ("there", "here") if "model" in state else ("here", "there")
            raise UserError(
                "Expected the checkpoint at --ckpt_path to be of a run with the same --federation.participation, "
                f"--federation.coalition and --server, but the server keeps everybody's model {has} and not {lacks}; "
                "give the config.yaml that lies beside it."
            )
        self.model, self.current = state.get("model"), state.get("current", self.current)
