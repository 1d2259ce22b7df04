"""What a server learns itself from a few clean examples: local training, as the participants do it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from rffl_pl.datamodules.rounds import Shard
from rffl_pl.training.cohort import Cohort
from rffl_pl.training.schedule import Precision, Schedule


class Root:
    """Clean examples of the server's own, and the training on them.

    Args:
        made: Makes a cohort of one, with the participants' network, optimizer and loss.
        examples: All there are; the first of them are trained on.
        schedule: Local training.
        seed: Of what a round draws at random, by its number.
        precision: In which precision is computed.
    """

    def __init__(
        self,
        made: Callable[[], Cohort],
        examples: Shard,
        schedule: Schedule,
        seed: Callable[[int], int],
        precision: Precision,
    ) -> None:
        self.made, self.examples, self.schedule, self.seed, self.precision = made, examples, schedule, seed, precision

    def __len__(self) -> int:
        return len(self.examples)

    def update(self, weights: Tensor, count: int, round_index: int) -> Tensor:
        """The update ``[D]`` that local training makes of weights ``[D]``; NaN where it fails.

        Optimizer and buffers begin anew in every round: a checkpoint has nothing to keep.

        Args:
            weights: What it starts from.
            count: How many of the examples, from the first on.
            round_index: The round, counted from 0.
        """
        cohort, every = self.made(), self.examples
        cohort.weights[0] = weights
        few = Shard(every.reader, every.indices[:count], every.batch_size)
        with torch.enable_grad(), self.precision.train_step_context():
            cohort.train(0, few, self.schedule, round_index, self.seed(round_index))
        return cohort.take_update(0)
