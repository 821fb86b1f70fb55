"""Numbers and tables: digits that mean something, units that are said, rows that no name can break."""

import math
from dataclasses import replace

import pytest

from paribus.report import numbers, tables
from paribus.report.content import HeldEqual, Look, ReportContent
from paribus.report.differences import paired_differences
from paribus.report.evidence import shown, shown_rows
from paribus.stats import rounding
from paribus.stats.rule import Word

M = rounding.MINUS


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (rounding.fixed(-0.00001, 3, signed=True), "0.000"),
        (rounding.fixed(-0.0123, 4, signed=True), f"{M}0.0123"),
        (rounding.fixed(0.5, 2, signed=True), "+0.50"),
        (rounding.fixed(None, 2), rounding.MISSING),
        (rounding.fixed(math.nan, 2), "NaN"),
        (rounding.fixed(-math.inf, 2), f"{M}∞"),
        (numbers.significant(0.0), "0"),
        (numbers.significant(0.0012345), "0.00123"),
        (numbers.significant(9.999), "10.0"),
        (numbers.significant(6.61e8), "6.61 \N{MULTIPLICATION SIGN} 10⁸"),
        (numbers.significant(-2.5e-7, 2), f"{M}2.5 \N{MULTIPLICATION SIGN} 10⁻⁷"),
        (rounding.declared(0.003), "0.003"),
        (rounding.probability(0.0625), "0.0625"),
        (rounding.probability(1e-9), "< 0.001"),
        (rounding.probability(0.44), "0.44"),
        (rounding.percent(0.95), "95 %"),
        (rounding.percent(0.975), "97.5 %"),
        (numbers.count(110156544), "110\u202f156\u202f544"),
        (numbers.short_count(19_660_800), "19.7M"),
        (numbers.short_count(999_999), "1M"),
        (numbers.duration(7_805), "2 h 10 min"),
        (numbers.duration(185), "3 min 05 s"),
        (numbers.duration(59.7), "1 min 00 s"),
        (numbers.interval((-0.0186, 0.002), 3), f"[{M}0.019, +0.002]"),
    ],
)
def test_a_number_is_written_with_its_sign_and_no_digit_too_many(written: str, expected: str) -> None:
    assert written == expected


@pytest.mark.parametrize(("spread", "decimals"), [(0.0123, 3), (0.99, 2), (1.0, 1), (37.0, 0), (0.0, 4), (None, 4)])
def test_decimals_show_two_digits_of_the_spread(spread: float | None, decimals: int) -> None:
    assert rounding.decimals_for(spread) == decimals


def test_the_verdict_table_shows_difference_interval_level_p_wins_and_parameters(study: ReportContent) -> None:
    table = tables.verdict_table(shown_rows(study), study.parameters)
    row = dict(zip((column.heading for column in table.columns), table.rows[0], strict=True))
    assert row["verdict"] == "better by at least the smallest effect"
    assert row["difference"].endswith("95 %")
    assert row["wins"] == "5 of 5"
    assert row["sign-flip p"] == "0.0625"
    assert row["parameters"] == "110\u202f156\u202f544\n+36\u202f864, 0.033 %"
    assert table.rows[2][-1].endswith("equal")
    assert table.accents == ("primary", "", "", "")


def test_a_waiting_verdict_table_has_no_column_that_could_tell(waiting_study: ReportContent) -> None:
    table = tables.verdict_table(shown_rows(waiting_study), waiting_study.parameters)
    headings = [column.heading for column in tables.without_empty_columns(table, keep=2).columns]
    assert headings == ["contrast", "verdict", "smallest effect", "parameters"]


def test_an_interaction_names_its_four_arms_and_their_sizes(study: ReportContent) -> None:
    arms = ("rd", "parent", "exclusive", "rd-tied")
    of_differences = {"treatment": f"(rd {M} parent)", "baseline": f"(exclusive {M} rd-tied)", "arms": arms}
    told = replace(study, verdicts=(*study.verdicts[:-1], replace(study.verdicts[-1], **of_differences)))
    rows = shown_rows(told)
    table = tables.verdict_table(rows, study.parameters)
    assert table.rows[-1][0].endswith(f"\n(rd {M} parent) {M} (exclusive {M} rd-tied), scale\u00a0S")
    sizes = sorted(entry.total for entry in study.parameters if entry.arm in arms)
    assert table.rows[-1][-1] == f"{numbers.count(sizes[0])}\nto {numbers.count(sizes[-1])}"
    assert "An interaction subtracts two such differences" in table.note
    assert rows[-1].reference_arm == "rd-tied"
    assert all("interaction" not in note for note in (tables.verdict_table(rows[:-1], study.parameters).note,))
    waiting = shown(replace(study.verdicts[-1], **of_differences, word=Word.WAITING))
    assert waiting.interaction
    svg = paired_differences(rows[-1:]).svg
    assert f"first difference {M} second, nats per token" in svg


def test_the_seeds_table_has_a_row_for_every_planned_cell(waiting_study: ReportContent) -> None:
    table = tables.seeds_table(waiting_study.cells)
    assert len(table.rows) == 20
    assert [row[3] for row in table.rows].count("missing") == 8
    assert table.rows[-1][4] == rounding.MISSING


def test_parameters_have_a_column_for_each_role_of_any_arm(study: ReportContent) -> None:
    table = tables.parameters_table(study.parameters)
    headings = [column.heading for column in table.columns]
    assert "depth query" in headings
    assert table.rows[0][headings.index("depth query")] == "0"


def test_what_does_not_hold_stands_out() -> None:
    table = tables.held_equal_table([HeldEqual("order", "digest", True), HeldEqual("code", "commits", False)])
    assert table.accents == ("", "bad")
    assert table.rows[1][1] == "does not hold"


def test_a_rule_that_changed_between_looks_is_said() -> None:
    looks = [Look("t", "c", {}, {}, "one"), Look("t", "c", {"main": 5}, {"main": "better", "second": ""}, "two")]
    table = tables.looks_table(looks)
    assert table.note == "The rule changed between looks."
    assert [row[3] for row in table.rows] == ["none shown", "main: better"]
    assert tables.looks_table(looks[:1]).note == ""


def test_no_name_can_break_a_row_of_markdown_or_text() -> None:
    table = tables.facts_table("facts", {"a|b": "one\ntwo", "<img>": "back\\slash", "é\x00": "x"})
    lines = tables.to_markdown(table).splitlines()
    assert len(lines) == 5
    assert [line.replace("\\|", "").count("|") for line in lines] == [3] * 5
    assert "&lt;img>" in lines[2]
    assert "one (two)" in tables.to_markdown(table)
    assert "\x00" not in tables.to_text(table)


def test_text_rows_are_aligned_and_numbers_flush_right(study: ReportContent) -> None:
    lines = tables.to_text(tables.parameters_table(study.parameters)).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert lines[0].endswith("FLOPs")
    assert lines[1].endswith("per token")
    assert lines[3].endswith("10⁸")


def test_a_narrow_terminal_loses_columns_from_the_right_and_is_told_which(study: ReportContent) -> None:
    table = tables.verdict_table(shown_rows(study), study.parameters)
    wide, narrow = tables.to_text(table), tables.to_text(table, 80)
    assert max(len(line) for line in narrow.splitlines()) <= 80 < max(len(line) for line in wide.splitlines())
    assert narrow.splitlines()[-1] == "(left out here: sign-flip p, wins, smallest effect, parameters)"
    assert "left out" not in wide
    assert narrow.splitlines()[0] == wide.splitlines()[0][: len(narrow.splitlines()[0])]
