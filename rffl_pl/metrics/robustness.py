"""What adversaries achieve, and whether they are found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric


class ReadAs(Metric):
    """Share of the examples of a class that a model reads as a certain class; NaN without such examples.

    Read as what they are, it is the target accuracy of a label-flipping attack, read as what adversaries call them, its
    success rate (Xu & Lyu 2021, Section 4).

    Args:
        source: The class whose examples count, or several.
        target: The class that is looked for among the answers; of several one for each.
        kwargs: See `torchmetrics.Metric`.

    Example:
        >>> success = ReadAs(source=0, target=2)
        >>> success.update(torch.eye(3)[[0, 2, 2, 1]], torch.tensor([0, 0, 2, 0]))
        >>> round(success.compute().item(), 4)
        0.3333
    """

    full_state_update: bool = False
    found: Tensor
    count: Tensor

    def __init__(self, source: int | Sequence[int], target: int | Sequence[int], **kwargs: Any) -> None:
        # Merging across ranks would average different participants' models.
        super().__init__(sync_on_compute=False, **kwargs)
        sources, targets = ([one] if isinstance(one, int) else one for one in (source, target))
        self.pairs = list(zip(sources, targets, strict=True))
        for name in ("found", "count"):
            self.add_state(name, torch.zeros((), dtype=torch.float64), dist_reduce_fx=None)

    def update(self, logits: Tensor, y: Tensor) -> None:
        """Add examples: logits ``[B, C]`` and classes ``[B]``."""
        for source, target in self.pairs:
            answers = logits[y == source].argmax(1)
            self.found += (answers == target).sum()
            self.count += len(answers)

    def compute(self) -> Tensor:
        """The share, a scalar."""
        return (self.found / self.count).float()


class Detection(Metric):
    """Whether those who were removed are those who attack, and when.

    Precision is the share of adversaries among the removed, recall the share of removed among the adversaries, and the
    round is the last in which an adversary was removed. Each is NaN where it is undefined.

    Example:
        >>> detection = Detection()
        >>> detection.update(torch.tensor([11.0, torch.nan, 11.0, 12.0]), torch.tensor([False, False, True, True]))
        >>> [round(value.item(), 4) for value in detection.compute()]
        [0.6667, 1.0, 12.0]
    """

    full_state_update: bool = False
    removed: list[Tensor]
    adversary: list[Tensor]

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(sync_on_compute=False, **kwargs)
        self.add_state("removed", [], dist_reduce_fx=None)
        self.add_state("adversary", [], dist_reduce_fx=None)

    def update(self, removed: Tensor, adversary: Tensor) -> None:
        """Add participants: the round in which each was removed, NaN if it was not, and who attacks, ``[n]`` each."""
        self.removed.append(removed)
        self.adversary.append(adversary)

    def compute(self) -> tuple[Tensor, Tensor, Tensor]:
        """Precision, recall and last round, three scalars."""
        rounds = torch.cat(self.removed or [torch.empty(0)])
        adversary = torch.cat(self.adversary or [torch.empty(0)]).bool()
        found = rounds[adversary & rounds.isfinite()]
        hits = torch.tensor(float(len(found)))
        last = found.max() if len(found) else torch.tensor(torch.nan)
        return hits / rounds.isfinite().sum(), hits / adversary.sum(), last


class TakeHome(Metric):
    r"""What adversaries take home above what their own work gives, beside what the smallest honest participant gains.

    With :math:`y_i` the final accuracy of participant i, :math:`x_i` what it reaches alone and :math:`x_0` the accuracy
    of the network that everybody starts from, adversary i took

    .. math::
        t_i = y_i - w_i

    where its own work gives :math:`w_i = x_i` if its attack trains, and :math:`w_i = x_0` if not. All are in shares of
    the test set, NaN where they are undefined:

    - ``adversary_gain``: the mean of :math:`y_i - x_i` over the adversaries;
    - ``adversary_over_initial``: that of :math:`y_i - x_0`;
    - ``taken`` and ``taken_most``: mean and maximum of :math:`t_i`;
    - ``smallest_gain``: :math:`y_h - x_h` of the honest participant h with the fewest examples, the mean of several;
    - ``taken_share``: ``taken_most`` over ``smallest_gain``; NaN where there is no such gain, or a loss.

    Args:
        initial: :math:`x_0`; where everybody is measured on examples of its own, of each one, ``[P]`` in the order in
            which participants are added.
        kwargs: See `torchmetrics.Metric`.

    Example:
        >>> home = TakeHome(initial=0.1)
        >>> final, alone = torch.tensor([0.9, 0.8, 0.3]), torch.tensor([0.7, 0.4, 0.6])
        >>> rides_free = torch.tensor([False, False, True])
        >>> home.update(final, alone, torch.tensor([9, 5, 9]), adversary=rides_free, trains=~rides_free)
        >>> {name: round(value.item(), 4) for name, value in home.compute().items() if name.startswith("taken")}
        {'taken': 0.2, 'taken_most': 0.2, 'taken_share': 0.5}
    """

    full_state_update: bool = False
    rows: list[Tensor]

    def __init__(self, initial: float | Tensor, **kwargs: Any) -> None:
        super().__init__(sync_on_compute=False, **kwargs)
        self.initial = initial
        self.add_state("rows", [], dist_reduce_fx=None)

    def update(self, final: Tensor, alone: Tensor, examples: Tensor, adversary: Tensor, trains: Tensor) -> None:
        """Add participants, ``[n]`` each.

        Args:
            final: Final accuracies.
            alone: Accuracies that they reach alone, honestly.
            examples: Numbers of training examples.
            adversary: Who attacks.
            trains: Whose attack trains; of the honest it does not matter.
        """
        self.rows.append(torch.stack([facts.double() for facts in (final, alone, examples, adversary, trains)]))

    def compute(self) -> dict[str, Tensor]:
        """A scalar under each name."""
        final, alone, examples, adversary, trains = torch.cat(self.rows or [torch.empty(5, 0)], 1)
        attacks, gains = adversary.bool(), final - alone
        initial = torch.as_tensor(self.initial, dtype=final.dtype, device=final.device).expand(len(final))
        taken = (final - torch.where(trains.bool(), alone, initial))[attacks]
        most = taken.max() if len(taken) else torch.tensor(torch.nan)
        fewest = examples[~attacks].sort().values[:1]
        smallest = gains[~attacks & torch.isin(examples, fewest)].mean()
        found = {
            "adversary_gain": gains[attacks].mean(),
            "adversary_over_initial": (final - initial)[attacks].mean(),
            "taken": taken.mean(),
            "taken_most": most,
            "smallest_gain": smallest,
            "taken_share": torch.where(smallest > 0, most / smallest, torch.nan),
        }
        return {name: value.float() for name, value in found.items()}
