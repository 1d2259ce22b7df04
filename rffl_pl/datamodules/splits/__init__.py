"""How training examples are divided among the honest participants: one small class per split.

Its mathematics is a function of labels, numbers and a generator to N index vectors, one per participant.
"""

from rffl_pl.datamodules.splits.base import Pool, Split
from rffl_pl.datamodules.splits.by_class import CLA, by_class
from rffl_pl.datamodules.splits.dirichlet import DIR, dirichlet
from rffl_pl.datamodules.splits.groups import GROUPS, check_group, grouped
from rffl_pl.datamodules.splits.mixed import MIX, mixed
from rffl_pl.datamodules.splits.own import OWN
from rffl_pl.datamodules.splits.power_law import POW, power_law
from rffl_pl.datamodules.splits.sorted_shards import SHARDS, sorted_shards
from rffl_pl.datamodules.splits.uniform import UNI, uniform
from rffl_pl.errors import UserError

__all__ = [
    "CLA", "DIR", "GROUPS", "MIX", "OWN", "POW", "SHARDS", "UNI", "Pool", "Split", "by_class", "check_group",
    "dirichlet", "grouped", "mixed", "named", "power_law", "sorted_shards", "uniform",
]  # fmt: skip

_SPLITS: tuple[type[Split], ...] = (UNI, POW, CLA, DIR, SHARDS, MIX, GROUPS, OWN)


def named(split: Split | str) -> Split:
    """The split that is meant, by its name if it is one of this package's.

    Raises:
        UserError: If there is none of that name.
    """
    if isinstance(split, Split):
        return split
    known = {kind.__name__: kind for kind in _SPLITS}
    if split not in known:
        raise UserError(
            f"Expected --data.split to be one of {', '.join(known)}, or a class of your own as my_package.MySplit "
            f"(in Python an instance, MySplit()), but got {split}."
        )
    made: Split = known[split]()
    return made
