"""Rules and pages that cannot be: refused with what was expected, what came and what to do."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from paribus.errors import ParibusError
from paribus.stats.verdict import Comparison, Rule, decide

Compare = Callable[..., Comparison]
GAINS = (1.0, 1.2, 1.3, 0.9, 1.1)


@pytest.mark.parametrize(
    "change",
    [
        {"design_effect": 1.0},
        {"design_effect": 0.5},
        {"design_effect": math.nan},
        {"design_effect": math.inf},
        {"smallest_effect": 0.0},
        {"smallest_effect": -1.0},
        {"smallest_effect": math.nan},
        {"confidence": 95.0},
        {"confidence": 0.5},
        {"planned_seeds": 0},
    ],
)
def test_a_rule_that_cannot_decide_is_refused(change: dict[str, Any]) -> None:
    valid: dict[str, Any] = {"smallest_effect": 1.0, "design_effect": 2.0, "planned_seeds": 5}
    Rule(**valid)
    _refused(next(iter(change)), lambda: Rule(**{**valid, **change}))


def test_a_page_without_one_primary_is_refused(compare: Compare) -> None:
    _refused("exactly one primary", lambda: decide([]))
    _refused("exactly one primary", lambda: decide([compare(GAINS, primary=False)]))
    _refused("exactly one primary", lambda: decide([compare(GAINS), compare(GAINS, name="other")]))


def test_a_page_with_one_name_twice_or_two_confidences_is_refused(compare: Compare) -> None:
    _refused("one name", lambda: decide([compare(GAINS), compare(GAINS, primary=False)]))
    other = compare(GAINS, name="other", primary=False, confidence=0.9)
    _refused("differ in confidence", lambda: decide([compare(GAINS), other]))


def test_values_that_do_not_give_the_differences_are_refused(compare: Compare) -> None:
    valid = compare(GAINS)
    _refused("one value for each", lambda: replace(valid, treatment_values=GAINS[:4]))
    _refused("not treatment minus baseline", lambda: replace(valid, baseline_values=GAINS, treatment_values=(0.0,) * 5))
    _refused("not treatment minus baseline", lambda: replace(valid, treatment_values=(math.nan, *GAINS[1:])))


def _refused(what: str, build: Callable[[], object]) -> None:
    with pytest.raises(ParibusError, match=what) as error:
        build()
    assert error.value.expected
    assert error.value.received
    assert error.value.remedy
