"""Collaborative fairness by validation accuracy (Lyu, Xu, Wang & Yu 2020, https://arxiv.org/abs/2008.12161)."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from rffl_pl.errors import UserError, check_positive, check_share
from rffl_pl.functional import reputation, sparsify, wire
from rffl_pl.functional.aggregation import clamp_entries
from rffl_pl.servers.base import Server, Task, Verdict, without_validation
from rffl_pl.servers.evidence import Evidence

_FADE = 0.8  # share of the old reputation
_GROWS = 0.89  # sharpness above which differences grow from round to round


class CFFL(Server):
    r"""The server scores every upload on validation examples of its own and rewards by the score.

    With :math:`w_g` the server's model, :math:`\bar u_j` the update with every entry clamped to
    :math:`[-\lambda, \lambda]` and :math:`\tilde u_j` its :math:`\theta D` largest entries, which are the upload:

    .. math::
        \hat c_j = \frac{\mathrm{acc}(w_g + \tilde u_j)}{\sum_{i \in R} \mathrm{acc}(w_g + \tilde u_i)}, \quad
        c_j \leftarrow \frac{\sinh(a_t (0.8 c_j + 0.2 \hat c_j))}{\sum_i \sinh(a_t (0.8 c_i + 0.2 \hat c_i))}

    Whoever has :math:`c_j < \kappa / |R|` is removed for ever. The aggregate is :math:`\Delta = \sum_j \omega_j
    \tilde u_j`, :math:`w_g \leftarrow w_g + \Delta`, and j receives :math:`\lfloor D \frac{c_j}{\max c} s_j \rfloor`
    entries of it less :math:`\omega'_j \tilde u_j`, where :math:`s_j` is its number of examples, or classes, over the
    highest: :math:`w_j \leftarrow w_j + \bar u_j + \mathrm{download}_j`.

    Args:
        upload_share: :math:`\theta` in (0, 1].
        bound: :math:`\lambda`; 0.01 for MNIST, 0.001 for the other sets.
        steepness: :math:`a` of the sinh; the paper takes 5.
        doubling_rounds: T of :math:`a_t = a (1 + t/T)`; by default a stays.
        compounding: ``released``, what comes out of the sinh is what the next round averages; ``none``, the average
            itself is kept, and the sinh is for threshold and quotas alone. With ``released`` gaps grow by
            :math:`0.8 x \coth x` per round, :math:`x = a_t / |R|`: above x = 0.89 honest participants are removed.
        removal_share: :math:`\kappa`; the released code takes 1/3, and 1/6 for CLA.
        contribution: What :math:`s_j` counts: ``examples``, or ``classes`` for CLA.
        summation: :math:`\omega_j`: ``mean``, :math:`s_j / \sum_i s_i` over the members that sent something (and
            :math:`\omega'_j = s_j`); ``sum``, 1 (and 1), the released code's default, which with ten participants
            takes steps that are too long.
        selection: Which entries are downloaded: ``random``, the first ones of an order that all share; ``largest``.

    Raises:
        UserError: If an argument is out of range; at the start if there are no validation examples, or if members are
            to miss rounds: reputations are shares of one round's accuracies over all members.

    Other than in the released code, a quota of 0 entries is nothing (there: everything), exactly k entries are uploaded
    also where some are equal, the whole model is cut at once, a mean's weights add up to 1 (there: over all that there
    ever were, free-riders as having no example; by classes: classes / 10), and the upload is what is scored also for
    :math:`\theta = 1`: the server never sees a participant's model. Buffers of the network keep their initial values in
    the server's model. An upload that is set aside scores 0; where all score 0 reputations stay. One of zeros scores
    what the server's model does without it, which late in a run is all that anybody's can, and is no part of the mean.
    """

    steps_by_updates = False

    def __init__(
        self,
        *,
        upload_share: float = 0.1,
        bound: float = 0.01,
        steepness: float = 5.0,
        doubling_rounds: int | None = None,
        compounding: Literal["released", "none"] = "released",
        removal_share: float = 1 / 3,
        contribution: Literal["examples", "classes"] = "examples",
        summation: Literal["mean", "sum"] = "mean",
        selection: Literal["random", "largest"] = "random",
    ) -> None:
        super().__init__()
        check_share("--server.upload_share", upload_share, "1 is everything", within="(0, 1]")
        check_share("--server.removal_share", removal_share, "0 is nobody")
        for name, value in (("bound", bound), ("steepness", steepness), ("doubling_rounds", doubling_rounds)):
            if value is not None:
                check_positive(f"--server.{name}", value)
        self.upload_share, self.bound = upload_share, bound
        self.steepness, self.doubling_rounds, self.compounding = steepness, doubling_rounds, compounding
        self.removal_share, self.contribution = removal_share, contribution
        self.summation, self.selection = summation, selection
        self.reputations = torch.empty(0)
        self.model = torch.empty(0)
        self._shares = torch.empty(0)
        self._accuracy: Callable[[Tensor], float] = lambda weights: 0.0

    def start(self, task: Task) -> None:
        super().start(task)
        if task.accuracy is None:
            raise without_validation(self)
        if task.participation < 1:
            raise UserError(
                f"Expected --federation.participation to be 1 under CFFL, but got {task.participation}; reputations "
                "are shares of one round's accuracies over all members, so take another --server."
            )
        self._accuracy = task.accuracy
        held = self.examples if self.contribution == "examples" else torch.tensor(task.classes, dtype=torch.float64)
        self._shares = held / held.max()
        self.reputations = torch.zeros_like(held)
        self.model = task.initial.clone()
        sharpness = self.steepness * (2 if self.doubling_rounds else 1) / len(held)
        if self.compounding == "released" and sharpness > _GROWS:
            warnings.warn(
                f"--server.steepness over the {len(held)} participants comes to {sharpness:.2f}, above {_GROWS}: with"
                " --server.compounding released small differences grow until honest participants are removed.",
                stacklevel=2,
            )

    def outgoing(self, update: Tensor, memory: dict[str, Tensor], model: Tensor) -> Tensor:
        return sparsify.largest_entries(self.kept(update), self._upload_size)

    def kept(self, update: Tensor) -> Tensor:
        return clamp_entries(update, self.bound)

    def pack(self, upload: Tensor) -> Tensor:
        return wire.pack_entries(upload, self._upload_size)

    def unpack(self, payload: Tensor, dimension: int) -> Tensor:
        return clamp_entries(wire.unpack_entries(payload, dimension, self._upload_size), self.bound)

    def rule(self, evidence: Evidence) -> Verdict:
        senders = evidence.senders
        members, used, reasons = self._scored(self._accuracies(evidence))
        weights = self._weights(senders[members[senders]])
        step = evidence.combined(reputation.weighted_sum, weights[senders])
        self.model = self.model.to(step.device) + step
        # Equal reputations differ by the rounding of sums; that must not cost an entry, nor a membership below.
        quotas = reputation.settled(reputation.relative_quota(used)) * self._shares
        order = self._order(step)
        own = {i: row for i, row in zip(senders.tolist(), evidence.uploads, strict=True) if members[i]}

        def download(participant: int) -> Tensor:
            (count,) = sparsify.group_counts(float(quotas[participant]), [step.numel()], round_up=False)
            received = sparsify.keep_largest(step, order, [count], [step.numel()])
            if participant in own:
                received -= own[participant] * (float(self._shares[participant]) if self.summation == "mean" else 1.0)
            return received

        return Verdict(
            weights=weights,
            similarities=torch.full_like(weights, torch.nan),
            reputations=used,
            quotas=quotas,
            members=members,
            download=download,
            reasons=reasons,
        )

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"reputations": self.reputations, "model": self.model.cpu()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.reputations, self.model = state["reputations"], state["model"]

    def _accuracies(self, evidence: Evidence) -> Tensor:
        """What the model scores with everybody's upload, ``[P]``; with one of zeros, what it scores as it is."""
        scores = [self._accuracy(self.model.to(upload.device) + upload) for upload in evidence.uploads]
        everybody = evidence.spread(torch.tensor(scores, dtype=torch.float64), 0.0)
        if len(evidence.silent):
            everybody[evidence.silent] = self._accuracy(self.model)
        return everybody

    @property
    def _upload_size(self) -> int:
        return max(1, int(self.upload_share * sum(self.layers)))

    def _scored(self, accuracies: Tensor) -> tuple[Tensor, Tensor, dict[int, str]]:
        """Take a round's accuracies ``[P]`` into the reputations.

        Returns:
            Members and what quotas go by, ``[P]``, after it, and why whoever was removed was.
        """
        total, compounds = accuracies.sum(), self.compounding == "released"
        if not total > 0:
            return self.members, self.reputations if compounds else self._sharpened(self.reputations), {}
        averaged = (_FADE * self.reputations + (1 - _FADE) * accuracies / total) * self.members
        used = self._sharpened(averaged)
        size = int(self.members.sum())
        members = self.members & (used * size >= self.removal_share - 1e-9)
        reasons = {
            i: f"its reputation {used[i]:.4f} fell below the threshold {self.removal_share / size:.4f} (validation "
            f"accuracy with its upload {accuracies[i]:.3f}).{self._hint(size)}"
            for i in (self.members & ~members).nonzero().flatten().tolist()
        }
        if not torch.equal(members, self.members):
            left = reputation.normalise(used * members)
            used, averaged = used * members if left is None else left, averaged * members
        self.reputations = used if compounds else averaged
        return members, used, reasons

    def _hint(self, size: int) -> str:
        """What keeps members, or what stops gaps that grow by themselves."""
        if self.compounding == "none" or self._steepness_now() / size <= _GROWS:
            return " --server.removal_share 0 keeps everybody."
        return (
            " Small differences grow in every round: --server.compounding none or less --server.steepness stops that."
        )

    def _sharpened(self, averaged: Tensor) -> Tensor:
        exponents = self._steepness_now() * averaged
        # Beyond what sinh can express the smaller exponential does not matter.
        raised = exponents.sinh() if exponents.max() < 700 else (exponents - exponents.max()).exp() * self.members
        return raised / raised.sum() if raised.sum() > 0 else raised

    def _steepness_now(self) -> float:
        return self.steepness * (1 + self.round / self.doubling_rounds if self.doubling_rounds else 1.0)

    def _weights(self, senders: Tensor) -> Tensor:
        """Weights of the uploads in the aggregate, ``[P]``."""
        shares = torch.zeros(len(self.members), dtype=torch.float64)
        shares[senders] = 1.0 if self.summation == "sum" else self._shares[senders] / self._shares[senders].sum()
        return shares

    def _order(self, step: Tensor) -> Tensor:
        """Position ``[D]`` of every entry in the order in which downloads are cut."""
        if self.selection == "largest":
            return sparsify.magnitude_ranks(step, [step.numel()])
        return torch.randperm(step.numel(), generator=self._stream_of_round(self.round)).to(step.device)
