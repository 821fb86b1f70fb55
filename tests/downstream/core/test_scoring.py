"""Centring, the mean of 22, when there is none, and what each task adds to a difference."""

import csv
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paribus.downstream.core.baselines import read_baselines
from paribus.downstream.core.official import CORE
from paribus.downstream.core.scoring import CoreScore, Incomplete, centre, core_score, shares

BUNDLE = Path(__file__).parents[4] / "shared" / "data" / "core_eval_bundle"
ITEMS = {label: official.rows for label, official in CORE.items()}
PERCENT = {label: Fraction(value) for label, value in zip(CORE, ["25", "0", "9.1", "62", "40.3"] * 5, strict=False)}
CHANCES = {label: float(percent / 100) for label, percent in PERCENT.items()}
COUNTS = st.fixed_dictionaries({label: st.integers(0, official.rows) for label, official in CORE.items()})
ROUNDING = 1e-13
"""a few operations on numbers below 3, summed over 22: 22 * 8 roundings of 2**-53 * 3"""


def accuracies(counts: dict[str, int]) -> dict[str, float]:
    return {label: count / ITEMS[label] for label, count in counts.items()}


def test_centring_puts_chance_at_0_and_perfection_at_1():
    assert centre(0.25, 0.25) == 0
    assert centre(1.0, 0.62) == 1
    assert centre(0.0, 0.5) == -1


@given(COUNTS)
def test_core_is_the_mean_of_centred_accuracies(counts: dict[str, int]):
    exact = [
        (Fraction(counts[label], ITEMS[label]) - PERCENT[label] / 100) / (1 - PERCENT[label] / 100) for label in CORE
    ]
    found = core_score(accuracies(counts), CHANCES, items=ITEMS)
    assert isinstance(found, CoreScore)
    assert found.core == pytest.approx(float(sum(exact) / 22), abs=ROUNDING)
    assert list(found.centred.values()) == pytest.approx([float(value) for value in exact], abs=ROUNDING)


@given(COUNTS, COUNTS)
def test_shares_sum_to_the_difference_of_two_cores(treatment: dict[str, int], baseline: dict[str, int]):
    first, second = (core_score(accuracies(counts), CHANCES, items=ITEMS) for counts in (treatment, baseline))
    assert isinstance(first, CoreScore)
    assert isinstance(second, CoreScore)
    found = shares(accuracies(treatment), accuracies(baseline), CHANCES)
    assert list(found) == list(CORE)
    assert sum(found.values()) == pytest.approx(first.core - second.core, abs=2 * ROUNDING)


def test_a_share_depends_on_the_table_by_its_weight_alone():
    treatment, baseline = dict.fromkeys(CORE, 0.5), dict.fromkeys(CORE, 0.3)
    found = shares(treatment, baseline, dict.fromkeys(CORE, 0.0) | {"boolq": 0.62, "copa": 0.5})
    assert found["squad"] == pytest.approx(0.2 / 22, rel=1e-12)
    assert found["boolq"] == pytest.approx(0.2 / 0.38 / 22, rel=1e-12)
    assert found["copa"] == pytest.approx(0.4 / 22, rel=1e-12)
    assert list(shares({"copa": 1.0, "own": 1.0}, {"copa": 0.0, "own": 0.0}, {"copa": 0.5, "own": 0.5})) == ["copa"]


@pytest.mark.parametrize("label", ["coqa", "copa"])
def test_no_core_without_every_item_of_every_task(label: str):
    full = dict.fromkeys(CORE, 0.5)
    assert isinstance(core_score(full, CHANCES, items=ITEMS), CoreScore)
    without = {name: value for name, value in full.items() if name != label}
    one_less = core_score(full, CHANCES, items=ITEMS | {label: ITEMS[label] - 1})
    for found, reason in (
        (core_score(without, CHANCES, items=ITEMS), "was not asked"),
        (one_less, f"{ITEMS[label] - 1:,} of {ITEMS[label]:,} items"),
        (core_score(full, CHANCES, items={}), f"0 of {ITEMS[label]:,} items"),
        (core_score(full, CHANCES, items=ITEMS, missing={label: "is asked otherwise"}), "is asked otherwise"),
        (core_score(full, {k: v for k, v in CHANCES.items() if k != label}, items=ITEMS), "has no random baseline"),
    ):
        assert isinstance(found, Incomplete)
        assert found.reasons[label] == reason
        assert not hasattr(found, "core")
    assert set(one_less.centred) == set(CORE)


def test_tasks_outside_core_change_nothing():
    full = dict.fromkeys(CORE, 0.5)
    plain = core_score(full, CHANCES, items=ITEMS)
    more = core_score(full | {"own": 1.0}, CHANCES | {"own": 0.1}, items=ITEMS, missing={"own": "is no task of CORE"})
    assert more == plain


def test_published_centred_accuracies_of_gpt2_follow_from_its_accuracies():
    """As nanochat prints them, with six decimals; accuracies are rounded too, and 1/(1 - 0.62) is below 3."""
    assert centre(0.256600, 0.091) == pytest.approx(0.182178, abs=2e-6)
    assert centre(0.552294, 0.62) == pytest.approx(-0.178175, abs=2e-6)


@pytest.mark.shared_data
@pytest.mark.parametrize(("size", "limit"), [("", None), ("-medium", 1000), ("-large", 1000), ("-xl", 1000)])
def test_the_four_tables_of_gpt2_in_the_bundle_are_reproduced_to_their_digits(size: str, limit: int | None):
    """The smallest model's accuracies are of all items; those of the others are of 1,000 items a task at most."""
    path = BUNDLE / f"openai-community-gpt2{size}.csv"
    if not path.exists():
        pytest.skip(f"real data is absent: expected ../shared/data/core_eval_bundle/{path.name}")
    table = [[cell.strip() for cell in row] for row in csv.reader(path.read_text().splitlines())][1:]
    printed = {row[0]: row for row in table}
    chances = read_baselines(BUNDLE / "eval_meta_data.csv").chance
    # Printed accuracies are rounded; what they are rounded from is a count of items.
    asked = {label: rows if limit is None else min(rows, limit) for label, rows in ITEMS.items()}
    exact = {label: round(float(printed[label][1]) * asked[label]) / asked[label] for label in CORE}
    assert {label: f"{value:.6f}" for label, value in exact.items()} == {label: printed[label][1] for label in CORE}
    assert isinstance(core_score(exact, chances, items=asked), CoreScore if limit is None else Incomplete)
    # The arithmetic is that of all items.
    found = core_score(exact, chances, items=ITEMS)
    assert isinstance(found, CoreScore)
    assert {label: f"{value:.6f}" for label, value in found.centred.items()} == {
        label: printed[label][2] for label in CORE
    }
    assert f"{found.core:.6f}" == printed["CORE"][2]
