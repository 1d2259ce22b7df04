"""OWN: the examples come divided."""

from __future__ import annotations

from torch import Tensor

from rffl_pl.datamodules.splits.base import Pool, Split
from rffl_pl.errors import UserError


class OWN(Split):
    """Every participant holds what is its own: natural groups, or files that only the rank that hosts it can read.

    For data whose ``Sources.train`` is a function from a participant's number to its examples; nothing is cut.
    """

    def cut(self, pool: Pool) -> list[Tensor]:
        """Refuses: examples in one data set are nobody's own."""
        raise UserError(
            f"Expected data of which every participant has its own part for --data.split OWN, but got one data set of "
            f"{len(pool.labels)} examples; give UNI or another split, take TextFile, TableFile or "
            "ImageFolder, which read what is everybody's own, or have load() return Sources(train=...) with a function "
            "from a participant's number to its examples."
        )
