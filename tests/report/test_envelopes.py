"""The envelope in numbers: the span of all forms, against formulas, and silent where the rules say nothing."""

import math
from dataclasses import replace

import pytest

from paribus.report import budgets, envelopes
from paribus.report.content import GapForm, ReportContent
from paribus.report.evidence import shown_rows
from paribus.report.sections import assemble
from paribus.stats.rounding import MINUS

LARGEST = 1e9


def form(name: str, slope: float, half: float, grid: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0)) -> GapForm:
    """A gap that is a straight line in the logarithm of the budget, so that interpolation is exact."""
    mean = tuple(-0.01 + slope * math.log(x) for x in grid)
    low, high = (tuple(m + sign * half for m in mean) for sign in (-1, 1))
    return GapForm("c", "S", name, tuple(x * LARGEST for x in grid), mean, low, high)


def test_an_envelope_is_the_lowest_and_the_highest_bound_of_all_forms() -> None:
    forms = [form("a", 0.001, 0.002), form("b", -0.002, 0.0005), form("c", 0.0, 0.004)]
    for times in (1.0, 2.0, 3.0, 4.0):
        found = envelopes.envelope_at(forms, times * LARGEST)
        assert found is not None
        means = [-0.01 + slope * math.log(times) for slope in (0.001, -0.002, 0.0)]
        bounds = [m + sign * half for m, half in zip(means, (0.002, 0.0005, 0.004), strict=True) for sign in (-1, 1)]
        told = (found.low, found.high, found.lowest_mean, found.highest_mean)
        # A handful of roundings of numbers near 0.01.
        assert told == pytest.approx((min(bounds), max(bounds), min(means), max(means)), abs=1e-15)
        assert found.forms == ("a", "b", "c")


def test_a_form_that_ends_earlier_or_has_no_bound_leaves_no_narrower_envelope() -> None:
    wide, short = form("a", 0.0, 0.002), form("b", 0.0, 0.004, (0.5, 1.0, 2.0))
    assert envelopes.envelope_at([wide, short], 2 * LARGEST) is not None
    assert envelopes.envelope_at([wide, short], 4 * LARGEST) is None
    broken = replace(wide, high=(*wide.high[:-1], math.nan))
    assert envelopes.envelope_at([wide, broken], 4 * LARGEST) is None
    assert envelopes.envelope_at([wide, form("none", 0.0, 0.1, ())], 4 * LARGEST) is not None
    assert envelopes.envelope_at([], LARGEST) is None


@pytest.mark.parametrize(("furthest", "expected"), [(1.5, []), (2.0, [2.0]), (3.9, [2.0]), (4.0, [2, 4]), (40, [2, 4])])
def test_nothing_is_told_beyond_the_limit_of_the_contrast(furthest: float, expected: list[float]) -> None:
    told = envelopes.beyond([form("a", 0.0, 0.002, (0.5, 1.0, 8.0))], LARGEST, furthest * LARGEST)
    assert [times for times, _ in told] == expected


def test_the_table_and_the_text_alternative_give_the_same_envelope(few_records: ReportContent) -> None:
    table = envelopes.envelopes_table(few_records.budget_gaps, few_records.gap_forms, few_records.budget_summaries)
    assert table is not None
    assert [row[3] for row in table.rows] == ["2", "4"]
    # Three forms of conftest: the gap at the largest budget times x^-slope, and 0.002 + 0.001 |ln x| to either side.
    means = [-0.012345678 * 4.0**-slope for slope in (0.30, 0.22, 0.38)]
    half = 0.002 + 0.001 * math.log(4)
    expected = f"[{min(means) - half:.4f}, {max(means) + half:.4f}]".replace("-", MINUS)
    assert table.rows[1][4] == expected
    (figure,) = budgets.gap_figures(few_records)
    assert f"at 19.7B tokens (4 times the largest budget) {expected}" in figure.svg
    assert f"{table.rows[0][4]};" in figure.svg


def test_the_envelope_stands_on_the_page_and_no_form_means_no_table(
    few_records: ReportContent, bare_study: ReportContent
) -> None:
    rows = shown_rows(bare_study)
    few = replace(bare_study, budget_gaps=few_records.budget_gaps, gap_forms=few_records.gap_forms)
    captions = [
        [of.table.caption for section in assemble(content, rows).sections for of in section.tables]
        for content in (few, replace(few, gap_forms=()))
    ]
    assert ["Extrapolated difference" in told for told in captions] == [True, False]
