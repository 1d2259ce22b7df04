"""Means over seeds, and their intervals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from rffl_pl.errors import UserError
from rffl_pl.studies.results import Row


@dataclass(frozen=True)
class Estimate:
    r"""A mean over seeds.

    Attributes:
        mean: The mean; infinite if one value is, NaN if some are in either direction.
        half: Half the width of its 95 % interval; None of one seed, or without a bound.
        seeds: How many.
        rounds: How many each run had.
        effect: Of differences :math:`d_k`: Cohen's :math:`d_z = \bar d / s_d`, their mean over their standard deviation
            (with n - 1); None where all are the same, as of one seed, or one is infinite.
        infinite: How many values are.
    """

    mean: float
    half: float | None
    seeds: int
    rounds: int
    effect: float | None = None
    infinite: int = 0

    def text(self, factor: float, digits: int, sign: str = "") -> str:
        """For people: ``89.1 ± 0.3``, ``∞ in 2 of 3``; ``sign`` is ``+`` where a plus is to be seen."""
        if self.infinite:
            often = f" in {self.infinite} of {self.seeds}" if self.infinite < self.seeds else ""
            return f"{'±' if math.isnan(self.mean) else '-' if self.mean < 0 else sign}∞{often}"
        # z: no minus before zeros.
        half = "" if self.half is None else f" ± {factor * self.half:.{digits}f}"
        effect = "" if self.effect is None else f", d_z = {self.effect:z.1f}"
        return f"{factor * self.mean:{sign}z.{digits}f}{half}{effect}"


def interval(values: Sequence[float]) -> float | None:
    r"""Half the width of the mean's 95 % interval by Student's t: :math:`t_{0.975, n-1} s / \sqrt n`.

    Args:
        values: One per seed.

    Returns:
        None of one value, or if one is infinite.
    """
    if len(values) < 2 or not all(map(math.isfinite, values)):
        return None
    return student_t(len(values)) * stdev(values) / math.sqrt(len(values))


def student_t(count: int) -> float:
    """How many standard errors a 95 % interval of the mean of so many values reaches to either side."""
    from scipy.special import stdtrit  # imported by what needs it alone, and not scipy.stats, which takes a second

    return float(stdtrit(count - 1, 0.975))


def mean_difference(first: Mapping[str, Sequence[Row]], second: Mapping[str, Sequence[Row]]) -> Estimate:
    r"""The mean over seeds k of differences :math:`d_k = x_k - y_k`, with its interval and :math:`d_z = \bar d / s_d`.

    Args:
        first: A measure's rows by seed, :math:`x`.
        second: Another's of the same seeds, :math:`y`; of no seed may both be infinite.

    Raises:
        UserError: If runs differ in length.
    """
    rounds = _rounds([*first.values(), *second.values()])
    differences = [value_of(first[seed]) - value_of(second[seed]) for seed in first]
    infinite = _infinite(differences)
    spread = stdev(differences) if len(differences) > 1 and not infinite else 0.0
    # What is kept of a result has nine digits: less apart are all the same.
    effect = fmean(differences) / spread if spread > 1e-8 * max(1.0, *map(abs, differences)) else None
    mean = math.nan if {math.inf, -math.inf} <= {*differences} else fmean(differences)
    return Estimate(mean, interval(differences), len(differences), rounds, effect, infinite)


def mean_of(by_seed: Mapping[str, Sequence[Row]]) -> Estimate:
    """The mean over seeds of a measure.

    Args:
        by_seed: Its rows.

    Raises:
        UserError: If runs differ in length.
    """
    values = [value_of(rows) for rows in by_seed.values()]
    return Estimate(fmean(values), interval(values), len(values), _rounds(by_seed.values()), None, _infinite(values))


def value_of(rows: Sequence[Row]) -> float:
    """A seed's value: of a measure that participants have, the mean over them."""
    return fmean(float(row["value"]) for row in rows)


def _infinite(values: Iterable[float]) -> int:
    return sum(map(math.isinf, values))


def _rounds(several: Iterable[Sequence[Row]]) -> int:
    rounds = {int(row["rounds"]) for rows in several for row in rows}
    if len(rounds) > 1:
        there = " and ".join(map(str, sorted(rounds)))
        raise UserError(
            f"Expected results of one number of rounds, but there are some of {there}; choose with --rounds."
        )
    return rounds.pop()
