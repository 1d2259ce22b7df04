"""A trigger in the corner of an image (Gu, Dolan-Gavitt & Garg 2017, https://arxiv.org/abs/1708.06733)."""

from __future__ import annotations

import torch
from torch import Tensor
from torchmetrics import Metric

from rffl_pl.adversaries.base import Adversary, Situation
from rffl_pl.errors import UserError, check_positive, check_share
from rffl_pl.metrics import ReadAs


class Backdoor(Adversary):
    """Trains its models to read every image with a trigger as one class, and all others as what they are.

    The trigger is a bright patch in the lower right corner, as in BadNets; in federated learning it is the backdoor of
    Bagdasaryan et al. 2020, https://arxiv.org/abs/1807.00459, with `scale` their model replacement. The first ``share *
    B`` images, rounded but at least one, of every batch of B have it and the label `target`; batches are drawn anew in
    every epoch.

    Args:
        target: The class.
        share: The share of its images that are poisoned.
        size: Side of the patch in pixels.
        value: What the patch's pixels are set to, in every channel. Standardised images are white at about 2: the
            digits at 1.8, CIFAR-10 at 2.1, MNIST at 2.8.
        scale: The update is uploaded times this. By n / f, for f adversaries of n participants, the mean of all has the
            model replaced by theirs, once honest uploads are small.

    Raises:
        UserError: If `target` is negative, `share` does not lie in (0, 1], `size` is below 1, `value` is not finite, or
            `scale` is not positive and finite; before the first round if `target` is no class of the data set, or its
            examples are no images that large.
    """

    def __init__(
        self, *, target: int = 0, share: float = 0.5, size: int = 2, value: float = 2.0, scale: float = 1.0
    ) -> None:
        if target < 0:
            raise UserError(f"Expected {self._option('target')} to be a class, 0 or more, but got {target}.")
        check_share(self._option("share"), share, "1 is all of its images", within="(0, 1]")
        if size < 1:
            raise UserError(f"Expected {self._option('size')} to be 1 or more pixels, but got {size}.")
        if not abs(value) <= torch.finfo(torch.float32).max:
            raise UserError(
                f"Expected {self._option('value')} to be finite in single precision, but got {value}; white is about 2."
            )
        check_positive(self._option("scale"), scale, "1 leaves it")
        self.target, self.share, self.size, self.value, self.scale = target, share, size, value, scale

    def prepare(self, num_classes: int) -> None:
        if self.target >= num_classes:
            raise UserError(
                f"Expected {self._option('target')} to lie in 0 .. {num_classes - 1}, but got {self.target}; give a "
                "class of this data set."
            )

    def poison(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        count = max(1, int(self.share * len(y) + 0.5))  # with none it would be honest
        triggered, target = self._triggered(x[:count]), torch.full_like(y[:count], self.target)
        return torch.cat([triggered, x[count:]]), torch.cat([target, y[count:]])

    def upload(self, situation: Situation) -> Tensor:
        return self.scale * situation.update

    def measures(self, num_classes: int) -> dict[str, Metric]:
        """Backdoor success: how many triggered images of the other classes are read as `target`."""
        return {"backdoor_success": ReadAs(self.target, self.target)}  # which is what `probe` calls them all

    def probe(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """All images that are not of class `target`, with the trigger, called `target`."""
        others = y != self.target
        return self._triggered(x[others]), torch.full_like(y[others], self.target)

    def _triggered(self, x: Tensor) -> Tensor:
        """A copy of images ``[B, C, H, W]`` with the patch."""
        if x.dim() != 4 or not x.is_floating_point() or min(x.shape[2:]) < self.size:
            kind, shape = str(x.dtype).removeprefix("torch."), ", ".join(["B", *map(str, x.shape[1:])])
            raise UserError(
                f"Expected Backdoor to be given images [B, C, H, W] of floats, {self.size} x {self.size} pixels at "
                f"least, but got {kind} of shape [{shape}]; take another attack, or for small images a smaller "
                "--adversaries.size."
            )
        x = x.clone()
        x[..., -self.size :, -self.size :] = self.value
        return x
