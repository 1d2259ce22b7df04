"""What groups are called, which a column names."""

from __future__ import annotations

from collections.abc import Sequence

from lightning.pytorch.utilities.rank_zero import rank_zero_warn

from rffl_pl.datamodules.columns import gaps_among
from rffl_pl.datamodules.labelled import check_alike
from rffl_pl.errors import UserError


def check_groups(called: Sequence[str], where: str) -> None:
    """See that no group is two, and tell of a word for one that is missing, which would be a participant.

    Among names it may be one, as None of an unknown writer; where others are numbers it is refused.

    Args:
        called: What the group of each row is called.
        where: The words for the column that says it.

    Raises:
        UserError: If one is two, in several spellings, or missing among numbers.
    """
    check_alike({*called}, "groups", where)
    gaps, among_numbers = gaps_among(sorted({*called}))
    for gap in gaps:
        having = f"{called.count(gap)} of {len(called)}"
        if among_numbers:
            raise UserError(
                f"Expected a number as group in {where}, as others have, but {having} have {gap!r}; take those out, "
                "write it otherwise if it is a group, or name another column with --data.group."
            )
        rank_zero_warn(
            f"In {where} {gap!r} is a group of its own, which {having} have, and may be a participant's; take them out "
            "if they have no group, or name another column with --data.group."
        )
