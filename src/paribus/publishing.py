"""`paribus report`: from the run folder to the page and its companions, once or while the study runs."""

import sys
import time
from pathlib import Path

from rich.console import Console

from paribus.experiment.spec import Experiment
from paribus.reading import ReadStudy, read_study, record_look, verdicts_of
from paribus.report import page
from paribus.report.content import ReportContent
from paribus.report.evidence import shown_rows
from paribus.report.tables import to_text, verdict_table
from paribus.reporting.assemble import report_content
from paribus.stats.rule import Word
from paribus.tuning.reading import read_tuning

WATCHED = "report --watch"
UNFINISHED = ("missing", "started", "running", "stale", "altered")


def publish(
    file: Path, experiment: Experiment, runs: Path, command: str, console: Console, *, as_json: bool = False
) -> ReadStudy:
    """Write the report and print the verdicts, or the report's JSON and nothing else. Recorded as a look."""
    study, content = _read(file, experiment, runs, command)
    path = page.write(content, study.folder.path)
    if as_json:
        sys.stdout.write(path.with_name(page.DATA).read_text(encoding="utf-8"))
        return study
    rows = shown_rows(content)
    console.print()
    console.print(study.experiment.question, style="bold", highlight=False, markup=False)
    console.print()
    width = console.width if console.is_terminal else None
    console.print(
        to_text(verdict_table(rows, content.parameters), width), highlight=False, markup=False, soft_wrap=True
    )
    for row in rows:
        console.print(f"{row.name}: {row.sentence}", highlight=False, markup=False)
    for of, note in page.noted(rows):
        console.print(f"note, {of}: {note}", highlight=False, markup=False)
    left = unfinished(study)
    if left:
        named = _named(file, experiment)
        console.print(f"{left} cells are not complete; see `paribus status {named}`", highlight=False)
    console.print(f"report: {path}", highlight=False, soft_wrap=True, markup=False)
    return study


def watch(file: Path, experiment: Experiment, runs: Path, every_seconds: int, console: Console) -> None:
    """Rewrite the page whenever the study has moved on, until nothing is left to train or Ctrl-C.

    A page that shows no word yet is no look; one that shows words is recorded once for each state of evidence.
    """
    seen: tuple[object, ...] = ()
    console.print(f"watching {experiment.study}; the page loads itself again every {every_seconds} s. Ctrl-C ends it.")
    try:
        while True:
            study = read_study(experiment, runs)
            state = tuple((key, cell.state) for key, cell in study.cells.items())
            done = unfinished(study) == 0
            if state != seen or done:
                study, content = _read(file, experiment, runs, WATCHED)
                path = page.write(content, study.folder.path, refresh_seconds=None if done else every_seconds)
                finished = len(study.cells) - unfinished(study)
                console.print(f"{finished} of {len(study.cells)} cells; {path}", highlight=False, markup=False)
                seen = state
            if done:
                return
            time.sleep(every_seconds)
    except KeyboardInterrupt:
        study, content = _read(file, experiment, runs, WATCHED)
        page.write(content, study.folder.path)  # a page that nobody rewrites must not load itself again
        console.print("stopped watching; the page is as it stands")


def unfinished(study: ReadStudy) -> int:
    """Cells that are neither complete nor diverged."""
    return sum(study.count(state) for state in UNFINISHED)


def _read(file: Path, experiment: Experiment, runs: Path, command: str) -> tuple[ReadStudy, ReportContent]:
    tuning = read_tuning(experiment, runs) if experiment.tuning is not None else None
    study = read_study(experiment if tuning is None or tuning.tuned is None else tuning.tuned, runs)
    verdicts = verdicts_of(study)
    if command != WATCHED or any(verdict.word is not Word.WAITING for verdict in verdicts):
        record_look(study, verdicts, command)
    repeat = f"paribus run {_named(file, experiment)}"
    return study, report_content(study, verdicts, repeat, file.parent, tuning)


def _named(file: Path, experiment: Experiment) -> str:
    return f"{file} {experiment.option}".rstrip()
