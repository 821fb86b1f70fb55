"""Tables of single arms on a task: seeds one by one, the leak detector, and what was learnt in the task's own unit."""

import json
from dataclasses import asdict, replace

import pytest

from paribus.report import latex, markdown
from paribus.report.blocks import Section
from paribus.report.content import ReportContent
from paribus.report.evidence import shown_rows
from paribus.report.of_robustness import RateRow
from paribus.report.of_tasks import AcquisitionRow, CalibrationText, ChanceRow, LearntRow, TaskContent
from paribus.report.sections import assemble
from paribus.report.task_arm_tables import acquired_by_seed_table, chance_table, leak_sentences, learnt_table
from paribus.report.task_section import calibration_sentence, due_task
from paribus.report.task_tables import acquisition_table
from paribus.stats.chance import AgainstChance
from tests.report.test_task_section import SEEDS, a_task, section_of

MINUS = "\N{MINUS SIGN}"


def chance_row(arm: str, mean: float, name: str = "same", scale: str = "S") -> ChanceRow:
    losses = tuple(mean + shift for shift in (-0.02, 0.02, 0.0, -0.01, 0.01))
    return ChanceRow(scale, arm, name, SEEDS, losses, (128,) * 5, AgainstChance(2.0794, mean, 0.001))


def with_chance(*rows: ChanceRow) -> TaskContent:
    return replace(a_task(), at_chance=rows)


def test_every_seed_has_a_column_with_its_update_the_budget_it_did_not_keep_or_that_it_diverged() -> None:
    task = a_task()
    row = AcquisitionRow("S", "rd", "same", (0, 2), 0.8, 0.1, (1090, None), "", diverged=(1,))
    hopeless = replace(row, slice="different", acquired_at_updates=(), diverged=())
    table = acquired_by_seed_table(replace(task, acquisitions=(hopeless, row)))
    assert [column.heading for column in table.columns] == ["slice", "arm", "seed 0", "seed 1", "seed 2"]
    assert table.rows == (("same", "rd", "1\u202f090", "diverged", "> 300"),)
    whole = acquired_by_seed_table(task)
    assert [row[:2] for row in whole.rows[:2]] == [("same", "parent"), ("same", "rd")]
    assert whole.rows[0][2:] == ("90", "150", "> 300", "110", "130")
    twice = acquired_by_seed_table(replace(task, acquisitions=(row, replace(row, scale="M"))))
    assert [cells[2] for cells in twice.rows] == ["S", "M"]


def test_a_cell_that_diverged_counts_as_later_than_the_budget() -> None:
    row = replace(a_task().acquisitions[0], acquired_at_updates=(90, 100, 110), seeds=(0, 1, 2), diverged=(3, 4))
    told = acquisition_table(replace(a_task(), acquisitions=(row,))).rows[0][3]
    assert told == "110\n3 of 5 seeds"


def test_an_arm_is_at_chance_below_it_or_above_with_loss_chance_and_error() -> None:
    table = chance_table(with_chance(chance_row("a", 2.0784), chance_row("b", 2.07), chance_row("c", 2.09)))
    assert [row[-1].partition(":")[0] for row in table.rows] == ["yes", "no", "no"]
    assert "BELOW chance, a leak" in table.rows[1][-1]
    assert "above" in table.rows[2][-1]
    assert table.accents == ("", "bad", "")
    assert table.rows[1][2:6] == (
        "2.0700\nseeds 2.0500 to 2.0900",
        "2.0794",
        f"{MINUS}0.0094\n± 0.0010",
        f"{MINUS}9.4",
    )
    assert "128 held-out inputs" in table.note
    assert "the root of the sum of their squares, over the number of seeds" in table.note


def test_a_leak_is_the_first_sentence_of_the_section_and_names_every_arm_that_has_it(study: ReportContent) -> None:
    task = with_chance(chance_row("parent", 2.0795), chance_row("rd", 2.05), chance_row("exclusive", 2.0))
    section = section_of(task, study)
    first = section.sentences[0]
    assert first.startswith("LEAK on same: below chance where nothing can be learned: rd (loss 2.0500, chance 2.0794, ")
    assert "exclusive (loss 2.0000" in first
    assert "parent (" not in first
    assert section.tables[0].table == chance_table(task)


@pytest.mark.parametrize("mean", [2.0794, 2.5])
def test_an_arm_at_chance_or_above_it_is_no_leak(mean: float, study: ReportContent) -> None:
    task = with_chance(chance_row("rd", mean))
    assert leak_sentences(task.at_chance) == []
    assert not section_of(task, study).sentences[0].startswith("LEAK")


def test_scales_and_slices_leak_on_their_own() -> None:
    rows = [chance_row("rd", 2.0), chance_row("rd", 2.0, "different"), chance_row("rd", 2.0, scale="M")]
    told = leak_sentences(rows)
    assert [sentence.partition(":")[0] for sentence in told] == [
        "LEAK on same at scale S",
        "LEAK on different at scale S",
        "LEAK on same at scale M",
    ]


def learnt_row(arm: str, *amounts: float) -> LearntRow:
    return LearntRow("S", arm, "same", SEEDS[: len(amounts)], "bits of the table", 5120.0, amounts)


def test_what_was_learnt_is_told_in_the_tasks_unit_with_mean_and_range() -> None:
    table = learnt_table(replace(a_task(), learnt=(learnt_row("parent", 2000, 3000), learnt_row("rd", -20, -40))))
    assert table.columns[2].unit == "bits of the table"
    assert table.rows[0][2:] == ("2\u202f500", "48.8 %\nof 5\u202f120", "2\u202f000 to 3\u202f000", "2")
    assert table.rows[1][2] == f"{MINUS}30"
    assert table.rows[1][4] == f"{MINUS}40 to {MINUS}20"


def test_before_it_is_due_neither_chance_nor_what_was_learnt_is_told_of_any_but_the_baseline(
    waiting_study: ReportContent,
) -> None:
    there = SEEDS[:3]
    task = replace(
        a_task(),
        at_chance=tuple(replace(chance_row(arm, 1.98765), seeds=there) for arm in ("parent", "rd")),
        learnt=tuple(replace(learnt_row(arm, 1234.5, 1.0, 2.0), seeds=there) for arm in ("parent", "rd")),
    )
    found = due_task(task, shown_rows(waiting_study))
    assert [row.arm for row in found.at_chance] == [row.arm for row in found.learnt] == ["parent"]
    assert "rd (" not in "".join(leak_sentences(found.at_chance))
    assert json.dumps(asdict(found)).count("1234.5") == 1


def test_the_shares_of_a_calibration_are_said_once() -> None:
    definition = a_task().definition
    text = CalibrationText(True, 3, (0.16, 0.35), "too easy: on QD the baseline got half-way at 16 % and 35 %")
    told = calibration_sentence(replace(definition, calibration=text))
    assert told.count("16 %") == 1
    assert told == (
        "Difficulty was set on the baseline alone, on 3 calibration seeds. Too easy: on QD the baseline got half-way "
        "at 16 % and 35 %."
    )
    none = CalibrationText(False, 0, (), "not calibrated, as the file declares: chance is the floor")
    assert calibration_sentence(replace(definition, calibration=none)) == (
        "Not calibrated, as the file declares: chance is the floor."
    )


def test_the_text_for_a_pull_request_holds_every_table_of_single_arms_and_of_other_rates(
    study: ReportContent,
) -> None:
    interval = (0.05, 0.15)
    rates = tuple(
        RateRow("separate value route", "rd", "S", "train.area", "nats per target", factor, sign * 0.1, bounds, 5, 0)
        for factor, sign, bounds in ((1.0, 1, interval), (2.0, -1, (-0.15, -0.05)))
    )
    task = replace(with_chance(chance_row("rd", 2.05)), learnt=(learnt_row("rd", 2000, 3000),), rates=rates)
    content = replace(study, task=task)
    rows = shown_rows(content)
    text = markdown.report(replace(content, task=due_task(task, rows)), rows)
    shows = text.partition("## What the task shows")[2].partition("\n## ")[0]
    tables = (chance_table(task), learnt_table(task), acquisition_table(task), acquired_by_seed_table(task))
    places = [shows.index(f"{table.caption}:\n") for table in tables]
    assert places == sorted(places)
    beside = text.partition("## The same contrasts at other learning rates")[2].partition("\n## ")[0]
    assert "The sign depends on the learning rate: +0.100 at 1 times, \N{MINUS SIGN}0.100 at 2 times." in beside
    assert beside.count("| separate value route") == len(rates)


def test_of_a_task_every_loss_is_per_target_and_of_a_text_per_token(few_records: ReportContent) -> None:
    def told(content: ReportContent) -> str:
        shown = shown_rows(content)
        tex = latex.tex_files(content, shown)
        parts = [tex["cost.tex"], tex["seeds.tex"]]
        for section in assemble(content, shown).sections:
            if isinstance(section, Section) and section.anchor in ("budgets", "cost"):
                parts += [repr(table) for table in section.tables]
                parts += [f"{figure.svg}" for figure in section.figures]
        return " ".join([*parts, markdown.report(content, shown).partition("## Beyond")[2].partition("## Tuning")[0]])

    of_text, of_task = told(few_records), told(replace(few_records, task=a_task()))
    assert ("nats per token" in of_text, "nats per target" in of_text) == (True, False)
    assert ("nats per token" in of_task, "nats per target" in of_task) == (False, True)
    assert "Nats per token" not in of_task
    assert of_text.count("nats per token") == of_task.count("nats per target")
