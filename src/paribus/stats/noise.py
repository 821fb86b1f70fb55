"""What is known about noise before a study is planned: measured, assumed, and the floor below which no pairing goes.

The number that decides a design is the sd of the paired difference over seeds, in the unit of the metric. It is
measured on a study's pairs, or assumed, or put together from the sd of one cell and the correlation of a pair. Its
floor is the sd between perturbed twins: cells of one seed of which one starts with a tensor changed by 1e-6 relative,
since so small a change already diverges like a new seed (Summers and Dinneen, arXiv 2103.04514).
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from paribus.errors import ParibusError
from paribus.stats.paired import constant
from paribus.stats.rule import Comparison

Sd = tuple[float, int]
"""(standard deviation of the paired difference in the unit of the metric, pairs that it was estimated from)"""


@dataclass(frozen=True)
class Noise:
    """What is known, or assumed, about noise; in the unit of each contrast's metric."""

    measured: Mapping[str, Sd] = field(default_factory=dict)
    """by contrast, from a study's run folder: see `measured_sds`"""
    floors: Mapping[tuple[str, str], Sd] = field(default_factory=dict)
    """by (scale, metric): sd of the difference between perturbed twins of one arm"""
    assumed_sd: float | None = None
    """of a simple contrast's paired difference; takes the place of what the file assumes"""
    cell_sd: float | None = None
    """of one cell over seeds, unpaired; needs `correlation`"""
    correlation: float | None = None
    """over seeds, of two cells that share one"""
    of_study: bool = False
    """whether a run folder was read, though it may have given no sd"""

    def __post_init__(self) -> None:
        for name in ("assumed_sd", "cell_sd"):
            _check_sd(name, getattr(self, name))
        for of, (sd, pairs) in [*self.measured.items(), *self.floors.items()]:
            _check_sd(f"the sd of {of}", sd)
            if pairs < 2:
                raise ParibusError(
                    f"the sd of {of} is no estimate",
                    expected="at least 2 pairs",
                    received=str(pairs),
                    remedy="leave it out, or give it as an assumed sd",
                )
        if (self.cell_sd is None) != (self.correlation is None) or (self.cell_sd and self.assumed_sd):
            raise ParibusError(
                "an assumed sd is given in half or twice",
                expected="the sd of the paired difference, or the sd of one cell with the correlation of a pair",
                received=f"sd {self.assumed_sd}, cell sd {self.cell_sd}, correlation {self.correlation}",
                remedy="give --sd alone, or --cell-sd together with --correlation",
            )
        if self.correlation is not None and not -1 <= self.correlation < 1:
            raise ParibusError(
                "the correlation of a pair lies outside its range",
                expected="-1 <= correlation < 1",
                received=str(self.correlation),
                remedy="use 0 where nothing is known: pairing then buys nothing",
            )


def measured_sds(comparisons: Sequence[Comparison]) -> dict[str, Sd]:
    """sd of the paired differences and its pairs, by contrast, where at least 2 finite and different ones are there.

    An sd is no verdict: it may be looked at before the planned seeds.
    """
    found: dict[str, Sd] = {}
    for comparison in comparisons:
        differences = comparison.differences.differences
        largest = max((abs(value) for values in comparison.values for value in values), default=0.0)
        if len(differences) > 1 and not constant(differences, largest * len(comparison.values) / 2):
            mean = math.fsum(differences) / len(differences)
            squares = math.fsum((difference - mean) ** 2 for difference in differences)
            found[comparison.name] = (math.sqrt(squares / (len(differences) - 1)), len(differences))
    return found


def relative_sd(arms: Sequence[str]) -> float:
    """sd of a contrast's difference over that of a simple one: 1, sqrt 2 for four arms, sqrt 3 where one enters twice.

    `arms` are the two, or the four of an interaction in the order of its formula. For cells that vary alike and are
    equally correlated over seeds: the weights w of the arms add to 0, so the variance is
    cell_sd^2 (1 - correlation) sum w^2.
    """
    weights = Counter[str]()
    for arm, sign in zip(arms, (1, -1, -1, 1), strict=False):
        weights[arm] += sign
    return math.sqrt(sum(weight**2 for weight in weights.values()) / 2)


def sd_from_cells(cell_sd: float, correlation: float) -> float:
    """sd of the paired difference of two cells that vary alike: cell_sd sqrt(2 (1 - correlation)), unit of the metric.

    The correlation over seeds is what sharing a seed buys; public repeats are unpaired and do not give it.
    """
    return cell_sd * math.sqrt(2 * (1 - correlation))


def _check_sd(name: str, sd: float | None) -> None:
    if sd is not None and not (math.isfinite(sd) and sd > 0):
        raise ParibusError(
            f"{name} is no standard deviation",
            expected="a finite number above 0, in the unit of the metric",
            received=str(sd),
            remedy="give the sd of the paired difference; identical differences carry no information about it",
        )
