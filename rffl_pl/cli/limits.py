"""One batch or all: a trainer's limits as they are typed."""

from __future__ import annotations

from typing import Any, Literal

from lightning.pytorch import Trainer

Limit = Literal[1] | float | None
"""``1`` stays a whole number, which the parser would make 1.0 of; other numbers mean the same as either."""


class LimitedTrainer(Trainer):
    """Lightning's trainer, whose parser tells one batch, ``1``, from all of them, ``1.0``.

    Args:
        limit_val_batches: How much of the validation examples is evaluated: a share of the batches, or their number;
            the first ones, so of sentences the shortest, and of images in folders by class those of the first classes.
            ``--data.measurements`` draws some of all.
        limit_test_batches: How much of the test examples is evaluated, as of the validation examples.
        limit_predict_batches: How much is predicted of what classes are asked for, as of the validation examples.
        kwargs: See Lightning's ``Trainer``.
    """

    def __init__(
        self,
        *,
        limit_val_batches: Limit = None,
        limit_test_batches: Limit = None,
        limit_predict_batches: Limit = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            limit_val_batches=limit_val_batches,
            limit_test_batches=limit_test_batches,
            limit_predict_batches=limit_predict_batches,
            **kwargs,
        )
