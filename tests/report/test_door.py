"""The door: nothing about an outcome leaves before it is due, whichever record holds it and in whichever file.

A reader who may not see a difference may not be given its two sides either: files of a waiting study are searched for
every loss that a difference could be taken to, and the same search must find them in a finished one.
"""

import csv
import io
import json
import re
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import pytest

from paribus.report.content import EstimateRow, ReportContent
from paribus.report.door import due
from paribus.report.evidence import may_compare, shown_rows

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
RECORDS += ("robustness", "sensitivity", "overlap", "task_pairs", "core_differences", "core_shares")


def test_every_record_about_a_contrast_passes_the_door(full_waiting_study: ReportContent) -> None:
    about = {
        field.name
        for field in fields(ReportContent)
        if isinstance(records := getattr(full_waiting_study, field.name), tuple)
        and field.name != "retrieval"  # of a synthetic task, of single arms: see test_retrieval
        and hasattr(records[0], "contrast")
    }
    assert about == {"pairs", *RECORDS} - {"noise"}, "give a new record its place in door.due and in this file"


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
    assert [task.accuracy_baseline for task in early.tasks] == [0.41, 0.5, 0.5]
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


def test_the_door_may_be_passed_twice(full_study: ReportContent, full_waiting_study: ReportContent) -> None:
    assert due(due(full_study)) == due(full_study)
    once, twice = due(full_waiting_study), due(due(full_waiting_study))
    assert replace(once, trials=()) == replace(twice, trials=())


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


LOSSES = (
    "test_nats_per_token",
    "test_bits_per_byte",
    "validation_nats_per_token",
    "final_training_loss_nats_per_token",
)
REFERENCE = "parent"
TEXTS = (".html", ".json", ".md", ".csv", ".tex", ".svg")


def kept_back(content: ReportContent) -> list[float]:
    """Losses of every arm but the one that the others are measured from: by cell, by milestone, and their means."""
    found: dict[tuple[str, str, int], list[float]] = {}
    for cell in content.cells:
        for loss in LOSSES:
            if cell.arm != REFERENCE and (value := getattr(cell, loss)) is not None:
                found.setdefault((cell.arm, loss, 0), []).append(value)
    for m in content.measurements:
        if m.arm != REFERENCE:
            found.setdefault((m.arm, f"{m.split} nats", m.tokens_seen), []).append(m.nats_per_token)
            assert m.bits_per_byte is not None  # text
            found.setdefault((m.arm, f"{m.split} bits", m.tokens_seen), []).append(m.bits_per_byte)
    return [number for values in found.values() for number in (*values, sum(values) / len(values))]


def words_of(path: Path) -> str:
    """What a file says: all of it, but of a drawing only its words, since coordinates are digits too."""
    text = path.read_text(encoding="utf-8")
    text = re.sub(r"(?s)<style.*?</style>", "", text)
    return re.sub(r"<[^>]*>", " ", text) if path.suffix in (".html", ".svg") else text


def files_that_tell(folder: Path, numbers: list[float]) -> set[str]:
    """Names of files in which one of `numbers` stands, in full or rounded to four decimals or more."""
    told = set()
    for path in folder.rglob("*"):
        if path.suffix not in TEXTS:
            continue
        for token in set(re.findall(r"(?<![\d.])[1-9]\.\d{4,}", words_of(path))):
            decimals = len(token.partition(".")[2])
            if any(abs(number - float(token)) <= 0.5000001 * 10.0**-decimals for number in numbers):
                told.add(path.name)
    return told


def test_no_file_of_a_waiting_study_holds_a_loss_of_an_arm_that_a_difference_could_be_taken_to(
    full_waiting_study: ReportContent, waiting_written: Path, full_study: ReportContent, written: Path
) -> None:
    numbers = kept_back(full_waiting_study)
    assert len(numbers) > 200
    assert min(numbers) > 1.1, "so that no share or cosine among the readings can be taken for a loss"
    assert files_that_tell(waiting_written, numbers) == set()
    loud = {"report.html", "report.json", "cells.csv", "seeds.tex", "milestones.svg"}
    assert files_that_tell(written, kept_back(full_study)) >= loud, "the same reader finds them once they are due"


def losses_of(folder: Path) -> dict[str, set[str]]:
    """By column of losses, the arms of which `tables/cells.csv` gives one."""
    cells = list(csv.DictReader(io.StringIO((folder / "tables" / "cells.csv").read_text(encoding="utf-8"))))
    return {loss: {cell["arm"] for cell in cells if cell[loss]} for loss in LOSSES}


def test_no_column_of_a_waiting_study_can_be_subtracted_arm_from_arm(waiting_written: Path, written: Path) -> None:
    assert losses_of(waiting_written) == {loss: {REFERENCE} for loss in LOSSES}
    assert all(len(arms) == 4 for arms in losses_of(written).values())
    data = json.loads((waiting_written / "report.json").read_text(encoding="utf-8"))
    assert {cell["arm"] for cell in data["cells"] for loss in LOSSES if cell[loss] is not None} == {REFERENCE}
    place = data["measurements"]["columns"].index("arm")
    assert {row[place] for row in data["measurements"]["rows"]} == {REFERENCE}
    place = data["interventions"]["columns"].index("arm")
    assert {row[place] for row in data["interventions"]["rows"]} == {REFERENCE}
    page_text = (waiting_written / "report.html").read_text(encoding="utf-8")
    assert page_text.count("would be a difference that anyone can take") == 2, "said at the seeds and the interventions"
    assert "would be a difference" not in (written / "report.html").read_text(encoding="utf-8")
    assert data["budget_gaps"] == data["gap_forms"] == data["budget_summaries"] == []


def test_a_waiting_page_draws_and_tells_the_losses_of_one_arm(waiting_written: Path, written: Path) -> None:
    for name in ("loss", "milestones"):
        early, late = (
            ((folder / "report.html").read_text(encoding="utf-8").partition(f'id="{name}"')[2]).partition("</section>")[
                0
            ]
            for folder in (waiting_written, written)
        )
        # Ink is the arm that the others are measured from; every other arm has a colour.
        assert "var(--arm-" not in early
        assert "var(--arm-" in late
        for arm in ("rd", "rd-tied", "exclusive"):
            assert re.search(rf"(?<![\w-]){arm}(?![\w-])", re.sub(r"<[^>]*>", " ", late))
            assert not re.search(rf"(?<![\w-]){arm}(?![\w-])", re.sub(r"<[^>]*>", " ", early))


def test_a_waiting_study_has_no_interval_over_seeds_of_anything(waiting_written: Path, written: Path) -> None:
    for said in ("t interval over seeds", "two standard errors over documents"):
        assert said not in (waiting_written / "report.html").read_text(encoding="utf-8")
        assert said in (written / "report.html").read_text(encoding="utf-8")


def test_readings_of_what_happens_inside_stay_and_readings_of_quality_go(full_waiting_study: ReportContent) -> None:
    value = next(value for value in full_waiting_study.diagnostics if value.arm == "rd")
    assert value in due(full_waiting_study).diagnostics
    for unit, stays in (("nats", True), ("nats per token", False), ("bits per byte", False)):
        for arm, told in (("rd", stays), (REFERENCE, True)):
            read = replace(full_waiting_study, diagnostics=(replace(value, unit=unit, arm=arm),))
            assert bool(due(read).diagnostics) == told


def test_the_scores_of_two_baselines_are_a_comparison_too(full_waiting_study: ReportContent) -> None:
    """The baseline of one contrast is the treatment of another: its task score waits with that one."""
    (name, *_), task = ("rd against exclusive", "", ""), full_waiting_study.tasks[0]
    both = replace(full_waiting_study, tasks=(task, replace(task, contrast=name, accuracy_baseline=0.40)))
    assert [row.accuracy_baseline for row in due(both).tasks] == [0.41, None]


def test_deviations_of_two_arms_that_would_give_the_spread_of_their_difference_wait(
    full_study: ReportContent, full_waiting_study: ReportContent
) -> None:
    both = [
        replace(content, noise=(*content.noise, replace(content.noise[0], arm="rd")))
        for content in (full_study, full_waiting_study)
    ]
    late, early = ([row.differences for row in due(content).noise if row.kind == "other seed"] for content in both)
    assert late == [full_study.noise[0].differences] * 2
    assert early == [full_study.noise[0].differences, ()]


def test_what_is_said_of_the_machine_stays_where_nothing_was_made_of_an_outcome(
    full_waiting_study: ReportContent,
) -> None:
    (held,) = full_waiting_study.costs
    (hidden,) = due(full_waiting_study).costs
    assert (hidden.sentence, hidden.iso_time, hidden.backward_memory_ratio) == ("", None, 1.04)
    measured = replace(hidden, sentence="The time was measured under another file.")
    assert due(replace(full_waiting_study, costs=(measured,))).costs == (measured,)
    assert held.sentence != ""


def test_no_file_of_a_waiting_study_holds_an_outcome(waiting_written: Path) -> None:
    texts = [
        path for path in waiting_written.rglob("*") if path.suffix in (".html", ".json", ".md", ".csv", ".tex", ".svg")
    ]
    assert len(texts) > 10
    for path in texts:
        # Readings of single models are thousands of digits in which any may turn up.
        text = words_of(path).partition('"diagnostics": {"columns"')[0]
        for digits in ("12345678", "0.0123", "0.4223", "1.212", "replicated", "Fieller"):
            assert digits not in text, (path.name, digits)
    assert not {"budgets.svg", "cost.svg", "published.svg", "differences-by-seed.svg"} & {path.name for path in texts}


def test_what_lies_beyond_the_look_that_a_verdict_is_at_is_in_no_record(full_study: ReportContent) -> None:
    """Four pairs count at the look; the fifth is there, and nothing is drawn or told that includes it."""
    verdicts = tuple(replace(v, seeds=4, looks=(4, 8), look=1, uncounted_seeds=(4,)) for v in full_study.verdicts)
    early = due(replace(full_study, verdicts=verdicts))
    rows = shown_rows(early)
    assert [row.difference_seeds for row in rows] == [(0, 1, 2, 3)] * 4
    assert not any(row.waiting for row in rows)
    assert not may_compare(rows, "S")
    assert not tells([asdict(record) for record in early.estimates])
    assert early.budget_gaps == ()
    for records in (early.curves, early.measurements, early.diagnostics, early.interventions):
        assert {(record.arm, record.seed) for record in records if record.arm == "rd"} == {("rd", s) for s in range(4)}
        assert {record.seed for record in records} == {0, 1, 2, 3}
    assert {seed for change in early.route_changes for seed in change.seeds} == {0, 1, 2, 3}
    told = {cell.seed: [getattr(cell, loss) for loss in LOSSES] for cell in early.cells if cell.arm == "rd"}
    assert [None in told[seed] for seed in range(5)] == [False] * 4 + [True]
    assert told[4] == [None] * 4
