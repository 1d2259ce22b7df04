"""FLTrust (Cao, Fang, Liu & Gong, NDSS 2021, https://arxiv.org/abs/2012.13995)."""

from __future__ import annotations

import warnings
from typing import ClassVar

import torch
from torch import Tensor

from rffl_pl.errors import UserError
from rffl_pl.functional.blocks import squared_norm
from rffl_pl.functional.finite import empty, sound
from rffl_pl.functional.reputation import weighted_mean
from rffl_pl.servers.base import Root, Task, without_validation
from rffl_pl.servers.consensus import Consensus
from rffl_pl.servers.evidence import Evidence


class FLTrust(Consensus):
    r"""Trusts an upload as far as it points where the server's own training on a few clean examples does.

    With :math:`u_0` the update that the server makes of its model by the participants' local training on its root
    examples:

    .. math::
        t_i = \max(0, \cos(u_i, u_0)), \qquad
        w \leftarrow w + \frac{1}{\sum_j t_j} \sum_i t_i \frac{\|u_0\|}{\|u_i\|} u_i

    Nobody without trust counts, and no upload is longer than the server's. Algorithm 2 of the paper, with its global
    learning rate 1.

    Args:
        root_examples: How many of the server's validation examples are its root examples; the paper takes 100.

    Raises:
        UserError: If there are to be fewer than two; at the start if the server has no validation examples, or fewer.

    The server's optimizer begins anew in every round, its buffers with their initial values. Where its training teaches
    nothing, or nobody is trusted, the step is 0. Root examples are some of those on which accuracies are watched, so
    that watched ones are a little high; final ones are of test examples.
    """

    keeps_model: ClassVar[bool] = True

    def __init__(self, *, root_examples: int = 100) -> None:
        super().__init__()
        if root_examples < 2:  # of one, batch normalisation would have no variance
            raise UserError(f"Expected --server.root_examples to be at least 2, but got {root_examples}; try 100.")
        self.root_examples = root_examples
        self._root: Root | None = None
        self._trust, self._scales = torch.empty(0), torch.empty(0)

    def start(self, task: Task) -> None:
        super().start(task)
        if task.root is None:
            raise without_validation(self)
        if self.root_examples > len(task.root):
            raise UserError(
                f"Expected --server.root_examples to be at most the server's {len(task.root)} validation examples, but "
                f"got {self.root_examples}; give fewer, or a greater --data.validation if these are training examples "
                "that are held out."
            )
        self._root = task.root

    def weigh(self, evidence: Evidence) -> Tensor:
        assert self._root is not None
        assert self.model is not None
        own = self._root.update(self.model, self.root_examples, self.round)
        square = squared_norm(own).cpu()
        if empty(square) or not sound(square):
            why = "teaches nothing" if empty(square) else "does not stay finite"
            warnings.warn(
                f"Round {self.round + 1}: the server's own training on its root examples {why}, so FLTrust trusts "
                "nobody and the model stays as it is.",
                stacklevel=2,
            )
            self._trust = torch.zeros_like(evidence.squared_norms)
            return self._trust
        scales = (square / evidence.squared_norms).sqrt()
        self._trust = (evidence.products_with(own) / square * scales).clamp(0, 1)
        self._scales = scales[self._trust > 0]
        return self._trust / self._trust.sum() if len(self._scales) else self._trust

    def combine(self, block: Tensor, weights: Tensor) -> Tensor:
        return super().combine(block, weights * self._scales.to(weights))

    def pool(self, statistics: Tensor, weights: Tensor) -> Tensor:
        return weighted_mean(statistics, weights)

    def measures(self, evidence: Evidence, weights: Tensor) -> dict[str, Tensor]:
        return {"trust": self._trust}
