"""SCAFFOLD: steps that go where the round went, not where a participant's own examples alone would lead."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from rffl_pl.functional.finite import all_finite


class Corrections:
    r"""What is added to every gradient of the hosted participants' local training.

    Let participant i move by :math:`\Delta_i` in steps of plain SGD whose learning rates add up to :math:`W_i`, with
    :math:`g_i` added to every gradient, and then download the step :math:`s_i`. In its next round it adds

    .. math::
        g_i \leftarrow -\frac{s_i}{W_i} - c_i, \qquad c_i = -\frac{\Delta_i}{W_i} - g_i

    with :math:`c_i` the mean gradient that it met: SCAFFOLD (Karimireddy et al. 2020, https://arxiv.org/abs/1910.06378,
    Algorithm 1 with option II). There the server sends the mean :math:`c` of all :math:`c_i` beside the model; here
    :math:`-s_i / W_i` stands for it, so that not a byte more travels. Both are the same where everybody takes part in
    every round with as many steps and downloads the mean. Entries that were not downloaded are not corrected, nor is
    whoever trained and downloaded nothing, in its next round; whoever was not asked keeps its correction. Where a
    server gives all entries, one that is 0 is downloaded too: near the optimum most steps are, and without :math:`c_i`
    local training would leave it again.

    Shapes: D = parameters that train; everything here is by row of the cohort.
    """

    def __init__(self) -> None:
        self._added: dict[int, Tensor] = {}  # g_i
        self._met: dict[int, tuple[Tensor, float]] = {}  # c_i and W_i, from training to download

    def of(self, index: int) -> Tensor | None:
        """What a participant adds to its gradients, ``[D]``; None for nothing."""
        return self._added.get(index)

    def trained(self, index: int, update: Tensor, rate_sum: float) -> None:
        """Take note of the gradients that a participant met.

        Args:
            index: Its row.
            update: How far it moved, ``[D]``.
            rate_sum: The sum of the learning rates of its steps.
        """
        met = update / -rate_sum
        added = self._added.pop(index, None)
        self._met[index] = (met if added is None else met.sub_(added), rate_sum)

    def downloaded(self, index: int, step: Tensor, *, whole: bool) -> None:
        """Correct a participant that has trained by the step that it downloads, if all of it is finite.

        Args:
            index: Its row.
            step: ``[D]``.
            whole: Whether all entries are downloaded; otherwise those that are 0 were not.
        """
        if index not in self._met:
            return
        met, rate_sum = self._met.pop(index)
        added = step / -rate_sum - met
        if not whole:
            added = torch.where(step != 0, added, 0.0)
        if all_finite(added):
            self._added[index] = added

    def end_round(self) -> None:
        """Whoever has trained and downloaded nothing is not corrected."""
        self._met.clear()

    def state_dict(self, index: int) -> dict[str, Tensor]:
        """What a checkpoint keeps of a participant between rounds."""
        return {"added": self._added[index]} if index in self._added else {}

    def load_state_dict(self, index: int, state: Mapping[str, Tensor]) -> None:
        """Take what `state_dict` gave; nothing of a run without corrections."""
        self._added.pop(index, None)
        if "added" in state:
            self._added[index] = state["added"]
