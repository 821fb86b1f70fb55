"""The table of contrasts on test documents without overlap: what it says, and what the door holds back."""

import json
from dataclasses import replace

from paribus.report import markdown, page
from paribus.report.blocks import Absent, Section
from paribus.report.content import ReportContent
from paribus.report.door import due
from paribus.report.evidence import shown_rows
from paribus.report.overlap import TITLE, due_overlap, overlap_section, overlap_table
from paribus.report.sections import Page, assemble
from paribus.stats.rounding import MINUS, MISSING
from paribus.stats.rule import Word

NOTHING = {"curves": (), "measurements": (), "diagnostics": (), "interventions": (), "route_changes": ()}
COUNTS = ["3\u202f000", "900\u202f000, 73 %"]


def made(content: ReportContent) -> Page:
    told = due(content)
    return assemble(told, shown_rows(told))


def sentence_of(content: ReportContent) -> str:
    return next(absent.sentence for absent in made(content).absent if absent.title == TITLE)


def test_the_difference_without_overlap_stands_beside_that_of_all_documents(full_study: ReportContent) -> None:
    rows = shown_rows(full_study)
    section = overlap_section(due(full_study).overlap, rows)
    assert isinstance(section, Section)
    (table,) = (found.table for found in section.tables)
    (row,) = table.rows
    assert [column.heading for column in table.columns] == [
        "contrast",
        "all test documents",
        "free of overlap",
        "pairs",
        "free",
        "shared",
        "not checked",
    ], "the empty note is left out"
    name, whole, free, pairs, *parts = (cell.split("\n") for cell in row)
    primary = rows[0]
    assert name[0] == primary.name
    assert primary.interval is not None
    assert whole[1] == f"[{MINUS}{-primary.interval[0]:.4f}, {MINUS}{-primary.interval[1]:.4f}] 95 %"
    assert free == [f"{MINUS}0.0123", f"[{MINUS}0.0153, {MINUS}0.0093] 95 %"]
    assert pairs == ["5"]
    assert parts == [COUNTS, ["1\u202f000", "300\u202f000, 24 %"], ["96", "30\u202f000, 2 %"]]
    assert "decides nothing" in table.note


def test_the_table_stands_right_after_what_could_be_wrong_and_in_json_and_markdown(full_study: ReportContent) -> None:
    few = replace(full_study, **NOTHING)
    anchors = [section.anchor for section in made(few).sections]
    assert anchors.index("overlap") == anchors.index("caveats") + 1
    (row,) = json.loads(page.to_json(few))["overlap"]
    assert (row["mean"], row["free_documents"], row["unchecked_tokens"]) == (-0.012345678, 3000, 30_000)
    told = markdown.report(due(few), shown_rows(few))
    assert f"## {TITLE}" in told
    assert "| 3 000 (900 000, 73 %) |" in told, "Markdown has plain spaces"
    assert COUNTS[1] in page.render(few)


def test_nothing_leaves_while_the_contrast_waits(full_waiting_study: ReportContent) -> None:
    few = replace(full_waiting_study, **NOTHING)
    assert due(few).overlap == ()
    assert sentence_of(few).startswith("Withheld until the planned seeds")
    assert json.loads(page.to_json(few))["overlap"] == []
    told = due(few)
    texts = page.render(few) + markdown.report(told, shown_rows(told)) + page.to_json(few)
    assert COUNTS[1] not in texts
    assert "900 000" not in texts
    assert "0.012345" not in texts


def test_nothing_leaves_while_a_seed_lies_beyond_the_look(full_study: ReportContent) -> None:
    verdicts = tuple(replace(v, seeds=4, looks=(4, 8), look=1, uncounted_seeds=(4,)) for v in full_study.verdicts)
    assert due(replace(full_study, verdicts=verdicts)).overlap == ()


def test_beside_a_stop_for_futility_there_is_no_interval(full_study: ReportContent) -> None:
    first, *others = full_study.verdicts
    (row,) = due(replace(full_study, verdicts=(replace(first, word=Word.FUTILE), *others))).overlap
    assert (row.interval, row.standard_error, row.degrees_of_freedom) == (None, None, None)
    assert due_overlap(full_study.overlap, []) == (), "on a page without verdicts nobody knows what was planned"


def test_a_study_without_marks_has_one_line_that_says_so(full_study: ReportContent) -> None:
    without = replace(full_study, overlap=(), **NOTHING)
    said = sentence_of(without)
    assert "earlier versions carry no marks" in said
    assert "synthetic task" in said
    assert said in page.render(without)
    assert TITLE not in markdown.report(without, shown_rows(without))
    assert isinstance(overlap_section((), ()), Absent)


def test_a_row_without_a_mean_has_a_dash_and_says_why(full_study: ReportContent) -> None:
    (row,) = full_study.overlap
    counts = [f"{kind}_{what}" for kind in ("free", "shared", "unchecked") for what in ("documents", "tokens")]
    bare = replace(row, mean=None, interval=None, note="x", **dict.fromkeys(counts, 0))
    ((_, _, free, _, documents, *_, note),) = overlap_table([bare], shown_rows(full_study)).rows
    assert (free, note) == (MISSING, "x")
    assert documents == "0\n0", "no share of nothing"
