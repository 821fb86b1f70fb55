"""The part of the page about downstream tasks: what comes first, what is marked, and what waits until it is due."""

import re
from dataclasses import replace

import pytest

from paribus.report.answers_section import answers_section
from paribus.report.blocks import Absent, Section
from paribus.report.content import CoreShareRow, LettersRow, ReportContent
from paribus.report.core_shares import core_differences_table, core_table, shares_picture, shares_table
from paribus.report.door import due
from paribus.report.evidence import shown_rows
from paribus.report.letters import ONE_LETTER, letters_picture, letters_table, one_letter_sentences
from paribus.report.tables import Table
from paribus.report.tasks import counterfactual_table, milestones_table, pairs_table, tasks_table
from paribus.stats.rounding import MINUS, MISSING
from paribus.stats.rule import Word


def column(table: Table, heading: str, unit: str = "") -> list[str]:
    (place,) = (i for i, c in enumerate(table.columns) if c.heading == heading and unit in (c.unit, ""))
    return [row[place] for row in table.rows]


def test_bits_per_byte_of_the_right_answer_stand_before_accuracies(full_study: ReportContent) -> None:
    table = tasks_table(full_study.tasks)
    heads = [column.heading for column in table.columns]
    assert heads.index("bits per byte") < heads.index("accuracy") < heads.index("centred") < heads.index("margin")
    assert [row[0].split("\n")[0] for row in table.rows] == ["arc_easy", "winograd"], "the end of the schedule alone"
    assert column(table, "bits per byte", "difference")[0] == f"{MINUS}0.0123\n[{MINUS}0.0143, {MINUS}0.0103]"
    assert column(table, "admitted") == ["yes", "no\nat\u00a0chance"]
    assert "t interval over seeds, 95 %" in table.note
    (row,) = milestones_table(full_study.tasks).rows
    assert row[2] == "300"


def test_each_pair_of_checkpoints_has_its_own_counts_and_exact_p(full_study: ReportContent) -> None:
    table = pairs_table(full_study.task_pairs)
    assert len(table.rows) == 10
    assert column(table, "only treatment")[:5] == ["210", "211", "212", "213", "214"]
    assert set(column(table, "only baseline")) == {"180"}
    assert set(column(table, "McNemar")) == {"0.070"}
    assert set(column(table, "near ties")) == {"2\n3"}
    assert set(column(table, "problems")) == {"1\n0"}
    assert set(column(table, "cropped")) == {"6"}
    assert "never pooled" in table.note


def test_a_score_stands_by_seed_and_table_and_what_is_not_printed_says_why(full_study: ReportContent) -> None:
    table = core_table(full_study.core)
    assert column(table, "baselines") == ["v1", "v2", "v1", "v2", MISSING]
    assert column(table, "mean")[:4] == ["0.1000", "0.1100", "0.1123", "0.1223"]
    assert [table.rows[-1][0], table.rows[-1][-1]] == [
        "ChatCORE, six tasks, after chat: not printed",
        "not asked: humaneval",
    ]
    assert table.rows[-1][1] == "S/parent, seeds 0"
    (row,) = core_differences_table(full_study.core_differences).rows
    assert row[2] == "+0.0123\n[+0.0013, +0.0203] 95 %"


def test_shares_are_told_under_both_tables_and_tasks_that_add_nothing_have_no_bar(full_study: ReportContent) -> None:
    found = full_study.core_shares
    assert column(shares_table(found), "share", "v1") == ["66 %", "34 %"]
    assert column(shares_table(found), "share", "v2") == ["60 %", "40 %"]
    idle = replace(found[0], task="squad", accuracy_difference=0.0, v1_contribution=0.0, v2_contribution=0.0)
    picture = shares_picture((*found, idle), "x")
    assert picture is not None
    assert "squad" not in picture.svg
    words = re.sub(r"<[^>]*>", " ", picture.svg)
    assert "v1, sum +0.0022" in words
    assert "v2, sum +0.0019" in words
    assert shares_picture((idle,), "x") is None
    alone = tuple(replace(row, v2_contribution=None, v2_share=None) for row in found)
    picture = shares_picture(alone, "x")
    assert picture is not None
    assert "v2" not in re.sub(r"<[^>]*>", " ", picture.svg)
    assert set(column(shares_table(alone), "share", "v2")) == {MISSING}


def of_letters(arm: str, seed: int, predicted: tuple[int, ...], letters: tuple[str, ...] = ("A", "B")) -> LettersRow:
    gold = (50,) * len(letters)
    return LettersRow("S", arm, seed, "core", "copa", "", "", 9, letters, gold, predicted, 0)


def test_a_model_of_one_letter_is_said_seed_by_seed_even_where_the_mean_is_balanced() -> None:
    found = [of_letters("a", 0, (100, 0)), of_letters("a", 1, (0, 100)), of_letters("b", 0, (50, 50))]
    (said,) = one_letter_sentences(found)
    assert said.startswith("One letter nearly always in copa: a says A (seed 0); a says B (seed 1). ")
    table = letters_table(found)
    assert table.accents == ("", "bad", "bad", "")
    assert [row[1].split("\n")[0] for row in table.rows] == ["right answers", "a", "a", "b"]
    assert column(table, "A") == ["50 %", "100 %", "0 %", "50 %"]


@pytest.mark.parametrize(("hits", "said"), [(int(100 * ONE_LETTER), True), (int(100 * ONE_LETTER) - 1, False)])
def test_one_letter_is_said_from_its_bound_on(hits: int, said: bool) -> None:
    assert bool(one_letter_sentences([of_letters("a", 0, (hits, 100 - hits))])) == said


def test_models_without_a_prediction_break_neither_sentence_nor_figure() -> None:
    none = of_letters("a", 0, (0, 0))
    nothing = replace(none, letters=(), gold=(), predicted=(), unanswered=5)
    assert one_letter_sentences([none, nothing]) == ()
    assert "<svg" in letters_picture([none], ["a"], "a", "x").svg
    assert column(letters_table([none]), "A") == ["50 %", MISSING]


def test_every_task_is_a_panel_and_the_figure_says_its_numbers_to_those_who_hear_it(full_study: ReportContent) -> None:
    found = [*full_study.letters, *(replace(row, task="mmlu") for row in full_study.letters)]
    picture = letters_picture(found, ["parent", "rd", "rd-tied", "exclusive"], "parent", "x")
    assert {"arc_easy", "mmlu"} <= set(re.findall(r">([^<>]+)</text>", picture.svg))
    assert "arc_easy: right A 25 %, B 25 %, C 25 %, D 25 %" in picture.description
    assert "rd-tied says A 44 %" in picture.description, "four seeds of 29.5 % and one of 100 %"


def test_a_task_that_needs_no_question_is_marked(full_study: ReportContent) -> None:
    table = counterfactual_table(full_study.counterfactuals)
    assert table.accents == ("", "bad")
    assert column(table, "swapped") == ["at chance", "above chance"]


def test_the_section_holds_all_of_it_and_details_are_folded(full_study: ReportContent) -> None:
    content = due(full_study)
    section = answers_section(content, shown_rows(content))
    assert isinstance(section, Section)
    assert [figure.file for figure in section.figures] == ["gold-bits", "core-shares", "letters"]
    assert [table.table.caption.split(":")[0] for table in section.tables] == [
        "Tasks",
        "Scores over all tasks",
        "Scores",
        "With each question swapped for another item's",
    ]
    assert len(section.folded) == 4
    said = " ".join(section.sentences)
    assert "rd-tied says A (seed 3)" in said
    assert "arc_easy is still answered above chance by rd" in said
    anchors = [table.anchor for block in section.folded for table in block.tables] + [t.anchor for t in section.tables]
    assert len(set(anchors)) == len(anchors)


def test_a_study_without_answers_has_one_line(empty_study: ReportContent) -> None:
    assert isinstance(answers_section(empty_study, []), Absent)


def test_before_it_is_due_only_the_reference_arm_is_told(full_waiting_study: ReportContent) -> None:
    early = due(full_waiting_study)
    assert {row.arm for row in early.core} == {"parent"}
    assert {row.arm for row in early.letters} == {"parent"}
    assert {row.arm for row in early.counterfactuals} == {"parent"}
    assert {row.admission for row in early.tasks} == {""}
    section = answers_section(early, shown_rows(early))
    assert isinstance(section, Section)
    assert [figure.file for figure in section.figures] == ["letters"]
    for table in section.tables:
        for row in table.table.rows:
            assert not any("rd" in cell.split() for cell in row)


def test_beside_a_stop_for_futility_no_interval_or_test_of_answers_stands(full_study: ReportContent) -> None:
    first, *others = full_study.verdicts
    told = due(replace(full_study, verdicts=(replace(first, word=Word.FUTILE), *others)))
    assert told.task_pairs == ()
    assert told.core_differences == ()
    assert {row.accuracy_interval for row in told.tasks} == {None}
    assert {row.gold_bits_interval for row in told.tasks} == {None}


@pytest.mark.parametrize(
    "name", ["tasks", "task_pairs", "core", "core_differences", "core_shares", "letters", "counterfactuals"]
)
def test_each_kind_of_answers_may_be_missing_alone(name: str, full_study: ReportContent) -> None:
    content = due(replace(full_study, **{name: ()}))
    assert isinstance(answers_section(content, shown_rows(content)), Section)


def test_a_share_row_without_a_difference_has_no_share() -> None:
    row = CoreShareRow("c", "S", "core", "", "", 9, "copa", 0.1, 0.01, None, None, None)
    assert column(shares_table([row]), "share", "v1") == [MISSING]
