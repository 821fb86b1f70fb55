"""A comparison from its differences, for every test of the verdict."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from paribus.stats.paired import PairedDifferences
from paribus.stats.rule import Comparison, Rule


def comparison(
    differences: Sequence[float],
    *,
    name: str = "main",
    primary: bool = True,
    diverged: tuple[tuple[int, ...], tuple[int, ...]] = ((), ()),
    seen: tuple[int, ...] = (),
    **rule: Any,
) -> Comparison:
    """Treatment minus baseline at seeds 0, 1, ...; d defaults to 1, planned seeds to the pairs there are."""
    seeds = tuple(range(len(differences)))
    # A baseline of 0 keeps the differences exact in floating point.
    baseline = (0.0,) * len(seeds)
    values = tuple(float(difference) for difference in differences)
    pairs = PairedDifferences(seeds, values, *diverged)
    fixed = {"smallest_effect": 1.0, "design_effect": 2.0, "planned_seeds": pairs.pairs, **rule}
    return Comparison(
        name=name,
        treatment="rd",
        baseline="parent",
        scale="S",
        metric="test.nll",
        unit="nats",
        primary=primary,
        rule=Rule(**fixed),
        differences=pairs,
        treatment_values=values,
        baseline_values=baseline,
        verdict_seen_at=seen,
    )


@pytest.fixture(scope="session")
def compare() -> Callable[..., Comparison]:
    return comparison
