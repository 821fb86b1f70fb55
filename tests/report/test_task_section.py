"""The section of a task: in its order, marks and all, and nothing before it is due."""

import json
import re
from dataclasses import asdict, replace
from typing import Any

import pytest

from paribus.errors import ParibusError
from paribus.report import page
from paribus.report.blocks import Absent, Section
from paribus.report.content import ReportContent
from paribus.report.evidence import shown_rows
from paribus.report.of_robustness import RateRow
from paribus.report.of_tasks import (
    CAUTION,
    MARKS,
    AcquisitionRow,
    CalibrationText,
    LearningCurve,
    MilestoneDifference,
    SliceDifference,
    SliceLevels,
    TaskContent,
    TaskDefinition,
    TaskText,
    asked,
)
from paribus.report.robustness import robustness_table
from paribus.report.task_section import (
    budget_sentence,
    calibration_sentence,
    due_task,
    expectation_lines,
    task_section,
)
from paribus.report.task_tables import (
    acquired,
    acquisition_table,
    declared_cell,
    difference_cell,
    differences_table,
    judged_sentence,
    readings_table,
)
from paribus.stats.rounding import MISSING
from paribus.stats.verdict import Word

MINUS = "\N{MINUS SIGN}"
SEEDS = (0, 1, 2, 3, 4)
MEANS = ((100, 0.25), (200, -0.02), (300, 0.5))
TOLD = 1.23456
"""the area difference of every row: a number that may not leave early"""


def difference(contrast: str, treatment: str, name: str = "same-different") -> SliceDifference:
    return SliceDifference(
        contrast=contrast,
        compared=f"{treatment} {MINUS} parent",
        scale="S",
        slice=name,
        area_difference=TOLD,
        interval=(1.1, 1.4),
        interval_confidence=0.95,
        seeds=SEEDS,
        differences=(1.2, 1.3, 1.2, 1.3, TOLD),
        milestones=tuple(MilestoneDifference(u, m, (m - 0.1, m + 0.1)) for u, m in MEANS),
        log2_updates_difference=-0.86,
        log2_updates_interval=(-1.2, -0.4),
        censored=(0, 2),
        ratio_sentence="0.55 of the updates, [0.44, 0.76].",
        informative=True,
        informative_sentence="One arm leaves the plateau.",
        expected="+",
        agreement="agrees",
        rate_sentence="",
    )


def a_task() -> TaskContent:
    levels = tuple(SliceLevels(name, 2.079, 0.0, 1.04, {"own colour": 2.2}) for name in ("same", "different"))
    text = TaskText("pairs", "fetch the colour", "asked is a colour", {"ids": 16}, "same-different", 300, 1536.0, 64)
    arms = ("parent", "rd", "rd-tied", "exclusive")
    return TaskContent(
        TaskDefinition(text, levels, CalibrationText(True, 3, (0.5, 0.62, None), "Frozen.")),
        tuple(
            LearningCurve("S", arm, seed, name, (100, 200, 300), (2.0, 1.0, 0.1 * place), (0.0, 0.0, 0.0))
            for place, arm in enumerate(arms)
            for seed in SEEDS
            for name in ("same", "different")
        ),
        tuple(
            AcquisitionRow("S", arm, name, SEEDS, 0.8, 0.1, (90, 150, None, 110, 130), "sits on the floor (0.00 nats)")
            for name in ("different", "same")
            for arm in arms
        ),
        (difference("separate value route", "rd"), replace(difference("tied control", "rd-tied"), slice="same")),
    )


def section_of(task: TaskContent, content: ReportContent) -> Section:
    rows = shown_rows(content)
    found = task_section(due_task(task, rows), rows)
    assert isinstance(found, Section)
    return found


def test_first_the_figure_then_what_was_acquired_then_differences_then_the_caution(study: ReportContent) -> None:
    found = section_of(a_task(), study)
    assert found.title == "What the task shows"
    assert [figure.file for figure in found.figures] == ["task"]
    captions = [item.table.caption for item in found.tables]
    assert captions == [
        "What each arm acquired",
        "When each seed acquired what",
        "Treatment minus baseline: descriptive, no verdict",
        "What each difference can say",
    ]
    assert [CAUTION in item.table.note for item in found.tables] == [False, False, False, True]
    assert not any(CAUTION in sentence for sentence in found.sentences), "once is enough"


def test_the_caution_denies_a_prediction_of_bits_per_byte() -> None:
    assert "does not predict bits per byte" in CAUTION


def test_slices_stand_in_the_tasks_order_with_the_median_and_the_seeds_that_solved() -> None:
    table = acquisition_table(a_task())
    assert [row[0] for row in table.rows] == ["same"] * 4 + ["different"] * 4
    assert table.rows[0][3] == "130\n4 of 5 seeds"


@pytest.mark.parametrize(
    ("updates", "told"),
    [
        ((100,), "100\n1 of 1 seed"),
        ((100, 200), "150\n2 of 2 seeds"),
        ((100, None), "> 300\n1 of 2 seeds"),
        ((None, None, 120), "> 300\n1 of 3 seeds"),
        ((250, None, 120), "250\n2 of 3 seeds"),
        ((), "\N{EN DASH}"),
    ],
)
def test_a_seed_that_never_acquires_counts_as_later_than_the_budget(updates: tuple[int | None, ...], told: str) -> None:
    assert acquired(updates, 300) == told


def test_three_milestones_are_always_told_with_their_updates() -> None:
    row = differences_table(a_task()).rows[0]
    assert row[4:7] == (
        "+0.25\n[+0.15, +0.35]\nat 100",
        f"{MINUS}0.02\n[{MINUS}0.12, +0.08]\nat 200",
        "+0.50\n[+0.40, +0.60]\nat 300",
    )
    bare = replace(a_task().differences[0], milestones=())
    assert differences_table(replace(a_task(), differences=(bare,))).rows[0][4:7] == ("\N{EN DASH}",) * 3


@pytest.mark.parametrize("agreement", [key for key in MARKS if key])
def test_every_mark_appears(agreement: str) -> None:
    task = replace(a_task(), differences=(replace(difference("c", "rd"), agreement=agreement),))
    assert differences_table(task).rows[0][2] == f"expected +\n{MARKS[agreement]}"
    assert MARKS[agreement] in differences_table(task).note


@pytest.mark.parametrize(("field", "value"), [("agreement", "better"), ("expected", "-1")])
def test_a_mark_or_sign_that_does_not_exist_is_refused(field: str, value: str) -> None:
    task = replace(a_task(), differences=(replace(difference("c", "rd"), **{field: value}),))
    with pytest.raises(ParibusError, match="there is no such"):
        differences_table(task)


def test_no_verdict_word_is_part_of_the_section(study: ReportContent) -> None:
    found = section_of(a_task(), study)
    told = " ".join(cell for item in found.tables for row in item.table.rows for cell in (*row, item.table.note))
    told += " ".join((*found.sentences, *(figure.caption for figure in found.figures)))
    words = {word.value for word in Word if word.settled}
    assert not [word for word in words if re.search(rf"\b{word}\b", told)]


def _at_three(row: AcquisitionRow) -> AcquisitionRow:
    return replace(row, seeds=(0, 1, 2), acquired_at_updates=row.acquired_at_updates[:3])


def test_before_it_is_due_only_the_baseline_is_told(waiting_study: ReportContent) -> None:
    rows = shown_rows(waiting_study)
    early = replace(a_task(), curves=tuple(c for c in a_task().curves if c.seed < 3))
    early = replace(early, acquisitions=tuple(_at_three(row) for row in early.acquisitions))
    found = due_task(early, rows)
    assert {c.arm for c in found.curves} == {row.arm for row in found.acquisitions} == {"parent"}
    assert found.differences == ()
    assert str(TOLD) not in json.dumps(asdict(found))
    section = section_of(early, waiting_study)
    assert [CAUTION in item.table.note for item in section.tables] == [False, True]
    assert "new ends" not in "".join(figure.svg for figure in section.figures)


def test_once_it_is_due_everything_is_told(study: ReportContent) -> None:
    assert due_task(a_task(), shown_rows(study)) == a_task()


def test_beside_a_stop_for_futility_no_interval_stands(study: ReportContent) -> None:
    stopped = replace(study, verdicts=tuple(replace(v, word=Word.FUTILE) for v in study.verdicts))
    found = due_task(a_task(), shown_rows(stopped)).differences
    assert len(found) == 2
    for row in found:
        assert row.interval is row.log2_updates_interval is None
        assert [one.interval for one in row.milestones] == [None] * 3
        assert row.ratio_sentence == row.agreement == ""


def test_a_study_on_text_and_one_without_a_run_are_lines_of_the_list_at_the_end(study: ReportContent) -> None:
    rows = shown_rows(study)
    text = task_section(None, rows)
    bare = task_section(TaskContent(a_task().definition), rows)
    assert isinstance(text, Absent)
    assert "is text" in text.sentence
    assert isinstance(bare, Absent)
    assert "No cell has trained" in bare.sentence


def test_calibration_is_told_and_so_is_its_absence() -> None:
    told = calibration_sentence(a_task().definition)
    assert "on the baseline alone, on 3 calibration seeds" in told
    assert told.endswith(" Frozen.")
    definition = a_task().definition
    assert definition.calibration is not None
    bare = replace(definition, calibration=replace(definition.calibration, sentence=""))
    assert "crossed the threshold: 50 %, 62 %, never" in calibration_sentence(bare)
    assert calibration_sentence(replace(a_task().definition, calibration=None)).endswith("was not calibrated.")


def test_scales_are_told_apart_where_there_are_several() -> None:
    task = a_task()
    both = replace(task, acquisitions=(*task.acquisitions, *(replace(r, scale="M") for r in task.acquisitions)))
    assert "scale" not in [column.heading for column in acquisition_table(task).columns]
    assert [column.heading for column in acquisition_table(both).columns][2] == "scale"
    assert {row[2] for row in acquisition_table(both).rows} == {"S", "M"}


def test_cells_show_two_digits_of_the_error_and_a_missing_one_is_a_dash() -> None:
    assert difference_cell(-1.38, (-1.61, -1.15)) == f"{MINUS}1.38\n[{MINUS}1.61, {MINUS}1.15]"
    assert difference_cell(0.0461, (0.0401, 0.0521)) == "+0.0461\n[+0.0401, +0.0521]"
    assert difference_cell(0.0461, (0.0401, 0.0521), coarser=1) == "+0.046\n[+0.040, +0.052]"
    assert difference_cell(None, None) == "\N{EN DASH}"
    assert asked("same-different") == f"same {MINUS} different"


def test_the_section_stands_in_the_page_with_its_definition_folded(
    bare_study: ReportContent, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = shown_rows(bare_study)
    task = a_task()
    own = due_task(replace(task, differences=task.differences[:1]), rows)
    assemble = page.assemble

    def with_task(content: ReportContent, shown: list) -> object:
        made = assemble(content, shown)
        section = task_section(own, shown)
        assert isinstance(section, Section)
        return replace(made, sections=(made.sections[0], section, *made.sections[1:]))

    monkeypatch.setattr(page, "assemble", with_task)
    html = page.render(bare_study)
    assert html.count(CAUTION) == 1
    assert "<summary><h3>pairs: fetch the colour</h3></summary>" in html
    order = [html.index(part) for part in ('id="figure-task-0"', "What each arm acquired", "descriptive, no verdict")]
    assert order == sorted(order)
    assert html.index("descriptive, no verdict") < html.index(CAUTION)
    assert "own colour: 2.200" in html


@pytest.mark.parametrize(
    ("expected", "told"), [("-", f"expected {MINUS}"), ("+", "expected +"), ("0", "expected 0"), ("", "none")]
)
def test_a_declared_minus_is_no_dash(expected: str, told: str) -> None:
    task = replace(a_task(), differences=(replace(difference("c", "rd"), expected=expected, agreement=""),))
    assert differences_table(task).rows[0][2] == told


def test_a_terminal_has_a_line_for_each_declared_sign(study: ReportContent) -> None:
    rows = shown_rows(study)
    first, second = a_task().differences

    def lines(**changes: Any) -> list[str]:
        return expectation_lines(replace(a_task(), differences=(replace(first, **changes),)), rows)

    assert lines() == ["separate value route: expected +, came out + (agrees)"]
    assert lines(expected="-", agreement="against") == [f"separate value route: expected {MINUS}, came out + (against)"]
    assert lines(area_difference=-1.0, agreement="open") == [
        f"separate value route: expected +, came out {MINUS} (open)"
    ]
    assert lines(expected="", agreement="") == []
    assert lines(agreement="not informative") == [
        "separate value route: expected +, the task could not tell (not informative)"
    ]
    assert lines(area_difference=None, agreement="open") == [
        "separate value route: expected +, no mean difference (open)"
    ]
    assert expectation_lines(None, rows) == []
    assert len(expectation_lines(a_task(), rows)) == len((first, second))


def test_before_it_is_due_a_terminal_says_nothing_of_a_declared_sign(waiting_study: ReportContent) -> None:
    assert expectation_lines(a_task(), shown_rows(waiting_study)) == []


def test_updates_that_nobody_needed_are_no_difference_of_zero() -> None:
    row = replace(a_task().differences[0], log2_updates_difference=None, log2_updates_interval=None, censored=(5, 5))
    cells = differences_table(replace(a_task(), differences=(row,))).rows[0]
    assert cells[7] == "\N{EN DASH}\nnone within 300"
    bare = replace(row, censored=(0, 0))
    assert differences_table(replace(a_task(), differences=(bare,))).rows[0][7] == "\N{EN DASH}"
    one = replace(row, log2_updates_difference=None, censored=(5, 2))
    assert differences_table(replace(a_task(), differences=(one,))).rows[0][7] == "\N{EN DASH}\nlacking 5 / 2"
    assert differences_table(a_task()).rows[0][7].endswith("\nlacking 0 / 2")


def test_the_claim_is_about_the_primary_contrasts_slices() -> None:
    task = a_task()
    assert budget_sentence(task.definition).endswith(f"the claim is about same {MINUS} different.")
    whole = replace(task.definition, text=replace(task.definition.text, primary="all"))
    assert budget_sentence(whole).endswith("the claim is about all targets.")
    table = differences_table(task)
    assert table.accents == ("primary", "")
    assert f"Bold: same {MINUS} different, which the primary is about." in table.note


def test_marks_are_explained_where_there_are_any() -> None:
    assert "✓ agrees: the difference" in differences_table(a_task()).note
    bare = tuple(replace(row, expected="", agreement="") for row in a_task().differences)
    assert "✓" not in differences_table(replace(a_task(), differences=bare)).note


def test_a_mark_that_is_about_another_metric_says_which_and_by_what_it_was_judged() -> None:
    about = {"metric": "test.nll.same", "metric_unit": "nats per target", "metric_difference": -0.25}
    row = replace(difference("deep", "rd"), **about, metric_interval=(-0.3, -0.2))
    told = f"The declared sign was judged on test.nll.same: {MINUS}0.250 [{MINUS}0.300, {MINUS}0.200] nats per target."
    assert judged_sentence(row) == told
    assert told in readings_table([row]).rows[0][2]
    assert declared_cell(row) == "expected +\n✓ agrees\nby its own metric"
    assert declared_cell(difference("deep", "rd")) == "expected +\n✓ agrees"
    assert declared_cell(replace(row, expected="", agreement="")) == "none"
    assert judged_sentence(difference("deep", "rd")) == judged_sentence(replace(row, agreement="")) == ""


def test_every_scale_is_told_with_its_own_budget() -> None:
    task = a_task()
    text = replace(task.definition.text, budget_updates_by_scale={"S": 300, "L": 600})
    assert (text.updates_at("S"), text.updates_at("L"), text.updates_at("M")) == (300, 600, 300)
    definition = replace(task.definition, text=text)
    assert budget_sentence(definition).startswith("Training lasts 300 at S, 600 at L updates")
    never = replace(task.acquisitions[0], scale="L", acquired_at_updates=(None, None, None))
    both = replace(task, definition=definition, acquisitions=(task.acquisitions[0], never))
    told = str(acquisition_table(both).rows)
    assert "> 600" in told
    assert "> 300" not in str(acquisition_table(replace(both, acquisitions=(never,))).rows)


def test_every_rate_is_in_the_table_with_the_cells_that_diverged_there() -> None:
    def at(factor: float, mean: float | None, diverged: int) -> RateRow:
        bounds = None if mean is None else (mean - 0.1, mean + 0.1)
        return RateRow(
            "deep", f"rd {MINUS} parent", "S", "train.area", "nats per target", factor, mean, bounds, 3, diverged
        )

    table = robustness_table((at(1.0, 0.5, 0), at(0.5, -0.2, 0), at(2.0, None, 1)))
    assert [(row[3], row[5], row[6]) for row in table.rows] == [("1", "3", "0"), ("0.5", "3", "0"), ("2", "3", "1")]
    assert [row[4].partition("\n")[0] for row in table.rows] == ["+0.500", f"{MINUS}0.200", MISSING]
    assert "no mean is taken of the others" in table.note
