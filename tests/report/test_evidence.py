"""The door: nothing about an outcome leaves before it is due, whichever record holds it and in whichever file."""

import json
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import pytest

from paribus.report import page
from paribus.report.content import EstimateRow, ReportContent
from paribus.report.evidence import due, is_due, may_compare, shown, shown_rows
from paribus.stats.verdict import Word

OUTCOME = 0.012345678
"""what conftest writes into every record that tells an outcome"""


def numbers_in(value: Any) -> list[float]:
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return []
    if isinstance(value, int | float):
        return [float(value)]
    return [x for part in (value.values() if isinstance(value, dict) else value) for x in numbers_in(part)]


def tells(value: Any) -> bool:
    """Whether a record holds the outcome, by itself or as it was built in: scaled, or added to a round number."""
    text = json.dumps(value)
    shifts = (0.0, 0.41, 0.5, 1.2)
    numbers = numbers_in(json.loads(text))
    told = any(abs(abs(x) - shift - OUTCOME) < 1e-6 for x in numbers for shift in shifts)
    return told or any(abs(abs(x) - OUTCOME * by) < 1e-6 for x in numbers for by in (0.7, 100)) or "12345678" in text


RECORDS = ("estimates", "noise", "budget_gaps", "gap_forms", "budget_summaries", "costs", "published", "tasks")


def test_every_record_about_a_contrast_passes_the_door(full_waiting_study: ReportContent) -> None:
    about = {
        field.name
        for field in fields(ReportContent)
        if isinstance(records := getattr(full_waiting_study, field.name), tuple) and hasattr(records[0], "contrast")
    }
    assert about == {"pairs", *RECORDS} - {"noise"}, "give a new record its place in evidence.due and in this file"


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_tells_its_outcome_once_it_is_due_and_not_before(
    name: str, full_study: ReportContent, full_waiting_study: ReportContent
) -> None:
    held, early, late = (
        [asdict(record) for record in getattr(content, name)]
        for content in (full_waiting_study, due(full_waiting_study), due(full_study))
    )
    assert any(map(tells, held)), "the fixture must hold what is to be kept back"
    assert any(map(tells, late))
    assert not any(map(tells, early))


def test_what_says_nothing_about_the_outcome_stays(full_waiting_study: ReportContent) -> None:
    early = due(full_waiting_study)
    assert [cost.step_time_ratio for cost in early.costs] == [1.062]
    assert [task.baseline_mean for task in early.tasks] == [0.41, 0.5]
    assert [row.sd_of_difference for row in early.noise] == [0.021, 0.0021, 0.0]
    assert [row.published for row in early.published] == [-0.011]


def test_tuning_scores_of_two_arms_are_no_comparison_before_it_is_due(
    full_study: ReportContent, full_waiting_study: ReportContent
) -> None:
    best = {
        arm: min(trial.scores[0] or 0 for trial in due(full_waiting_study).trials if trial.arm == arm)
        for arm in ("parent", "rd")
    }
    assert best["parent"] == pytest.approx(best["rd"], abs=1e-12)  # a subtraction of numbers near 3.5
    assert due(full_study).trials == full_study.trials
    assert {row.sentence for row in due(full_waiting_study).tuning} == {""}


def test_no_file_of_a_waiting_study_holds_an_outcome(full_waiting_study: ReportContent, tmp_path: Path) -> None:
    # Readings of single models are thousands of digits in which any may turn up.
    page.write(replace(full_waiting_study, diagnostics=(), interventions=(), route_changes=()), tmp_path)
    texts = [path for path in tmp_path.rglob("*") if path.suffix in (".html", ".json", ".md", ".csv", ".tex", ".svg")]
    assert len(texts) > 10
    for path in texts:
        text = path.read_text(encoding="utf-8")
        for digits in ("12345678", "0.0123", "0.4223", "1.212", "replicated", "Fieller"):
            assert digits not in text, (path.name, digits)
    assert not {"budgets.svg", "cost.svg", "published.svg", "differences-by-seed.svg"} & {path.name for path in texts}


def test_the_door_may_be_passed_twice(full_study: ReportContent, full_waiting_study: ReportContent) -> None:
    assert due(due(full_study)) == due(full_study)
    once, twice = due(full_waiting_study), due(due(full_waiting_study))
    assert replace(once, trials=()) == replace(twice, trials=())


def test_a_record_that_no_verdict_answers_for_waits_for_its_scale_and_needs_a_page_of_verdicts(
    study: ReportContent, waiting_study: ReportContent
) -> None:
    done, early = shown_rows(study), shown_rows(waiting_study)
    assert is_due(done, "another contrast", "S")
    assert is_due(done, "separate value route", "L")
    assert not is_due(early, "another contrast", "S")
    assert not is_due([], "separate value route", "S")
    assert may_compare([], "S"), "curves of a study that compares nothing may be drawn"
    # One contrast waits: it is not due itself, and nothing that is not of its own contrast is at its scale.
    mixed = [early[0], *done[1:]]
    assert not is_due(mixed, early[0].name, "S")
    assert is_due(mixed, done[1].name, "S")
    assert not is_due(mixed, "another contrast", "S")


def test_a_study_without_verdicts_shows_no_estimate(study: ReportContent) -> None:
    row = EstimateRow("c", "S", "new documents", "nats", -OUTCOME, 0.1, 3.0, (-1.0, 1.0), 0.95, "said")
    (found,) = due(replace(study, verdicts=(), pairs=(), estimates=(row,))).estimates
    assert (found.mean, found.standard_error, found.degrees_of_freedom, found.interval, found.note) == (
        None,
        None,
        None,
        None,
        "",
    )


def test_pairs_beyond_the_look_that_a_verdict_is_at_are_not_shown(full_study: ReportContent) -> None:
    """Four pairs count at the look; the fifth is there, and nothing is drawn or told that includes it."""
    verdicts = tuple(replace(v, seeds=4, looks=(4, 8), look=1, uncounted_seeds=(4,)) for v in full_study.verdicts)
    early = replace(full_study, verdicts=verdicts)
    rows = shown_rows(early)
    assert [row.difference_seeds for row in rows] == [(0, 1, 2, 3)] * 4
    assert not any(row.waiting for row in rows)
    assert not may_compare(rows, "S")
    assert not tells([asdict(record) for record in due(early).estimates])
    assert due(early).budget_gaps == ()


def test_a_waiting_verdict_keeps_what_was_declared_and_nothing_else(study: ReportContent) -> None:
    told = replace(study.verdicts[0], word=Word.WAITING, seeds=3, looks=(5, 8), futile=True, look=1, extension=True)
    row = shown(told, study.pairs)
    assert (row.looks, row.extension) == ((5, 8), True)
    assert (row.futile, row.look, row.mean, row.differences) == (False, None, None, ())
    assert "stops are declared at 5 and 8" in row.sentence
