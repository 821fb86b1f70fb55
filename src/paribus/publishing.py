"""`paribus report`: from the run folder to the page and its companions, once or while the study runs."""

import sys
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from paribus.errors import StudyFolderError
from paribus.experiment.spec import Experiment
from paribus.reading.cell import UNUSED
from paribus.reading.evidence import record_look, verdicts_of
from paribus.reading.study import ReadStudy, read_study
from paribus.report import page
from paribus.report.content import ReportContent
from paribus.report.evidence import shown_rows
from paribus.report.tables import to_text, verdict_table
from paribus.report.task_section import expectation_lines
from paribus.reporting.assemble import report_content
from paribus.stats.rule import Word
from paribus.tuning.reading import ReadTuning, read_tuning

WATCHED = "report --watch"
UNFINISHED = ("missing", "started", "running", "stale", *UNUSED)


@dataclass(frozen=True)
class Asked:
    """The study that somebody asks about."""

    file: Path
    """of the experiment; published figures lie beside it"""
    experiment: Experiment
    """as the file declares it, before its tuning"""
    runs: Path
    arguments: str
    """what follows `paribus run` or `paribus status` to mean this study here, options included"""

    @property
    def begun(self) -> bool:
        """Whether the study's run folder holds anything but what is just being written aside."""
        folder = self.runs / self.experiment.study
        return folder.is_dir() and any(not entry.name.startswith(".") for entry in folder.iterdir())

    def read(self) -> tuple[ReadStudy, ReadTuning | None]:
        """The study at the values that its tuning chose, at the declared ones before that."""
        tuning = self.tuning
        chosen = None if tuning is None else tuning.tuned
        return read_study(self.experiment if chosen is None else chosen, self.runs), tuning

    @property
    def tuning(self) -> ReadTuning | None:
        """How far it is; None where the file asks for none."""
        return None if self.experiment.tuning is None else read_tuning(self.experiment, self.runs)


def publish(asked: Asked, command: str, console: Console, *, as_json: bool = False) -> ReadStudy:
    """Write the report and print the verdicts, or the report's JSON and nothing else. Recorded as a look."""
    study, tuning = asked.read()
    _keep_what_a_stale_study_showed(study, asked)
    content = _content(asked, study, tuning, command)
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
    for line in expectation_lines(content.task, rows):
        _say(console, line)
    for of, note in page.noted(rows):
        console.print(f"note, {of}: {note}", highlight=False, markup=False)
    for what in stale_cells(study):
        _say(console, what)
    left = unfinished(study)
    if left:
        _say(console, f"{left} cells are not complete; see `paribus status {asked.arguments}`")
    _say(console, f"report: {path}")
    return study


def stale_cells(study: ReadStudy) -> list[str]:
    """Which arms' finished cells are not used any more, and because of what."""
    because: dict[str, list[str]] = {}
    for scale, arm in dict.fromkeys(cell.key[:2] for cell in study.cells.values() if cell.state == "stale"):
        because.setdefault(study.stale_because.get((scale, arm), "the plan"), []).append(f"{scale}/{arm}")
    return [f"stale, because {what} has changed: {', '.join(arms)}" for what, arms in because.items()]


def _keep_what_a_stale_study_showed(study: ReadStudy, asked: Asked) -> None:
    """A report of nothing must not take the place of one that showed the finished study."""
    used = sum(study.count(state) for state in ("complete", "diverged"))
    page_there = study.folder.path / page.PAGE
    if used or not study.count("stale") or not page_there.exists():
        return
    raise StudyFolderError(
        f"every finished cell of '{study.experiment.study}' is stale, so there is nothing to report",
        expected="cells of the present file and code",
        received="; ".join(stale_cells(study)),
        remedy=f"the report of before is kept ({page_there}); undo the change, or `paribus run {asked.arguments}` "
        "trains anew and keeps the old cells",
    )


def watch(asked: Asked, every_seconds: int, console: Console) -> None:
    """Rewrite the page whenever the study has moved on, until nothing is left to train or Ctrl-C.

    Before the study has a run folder it waits for one. A page that shows no word yet is no look; one that shows words
    is recorded once for each state of evidence.
    """
    seen: object = None
    _say(
        console,
        f"watching {asked.experiment.study}; the page loads itself again every {every_seconds} s. Ctrl-C ends it.",
    )
    try:
        while True:
            if asked.begun:
                study, tuning = asked.read()
                done = unfinished(study) == 0 and (tuning is None or tuning.finished)
                told = "" if tuning is None or tuning.finished else f"{tuning.sentence}; "
                state = (told, tuple((key, cell.state) for key, cell in study.cells.items()))
                if state != seen or done:
                    content = _content(asked, study, tuning, WATCHED)
                    path = page.write(content, study.folder.path, refresh_seconds=None if done else every_seconds)
                    finished = len(study.cells) - unfinished(study)
                    _say(console, f"{told}{finished} of {len(study.cells)} cells; {path}")
                if done:
                    return
            else:
                state = _waits_for(asked)
                if state != seen:
                    _say(console, state)
            seen = state
            time.sleep(every_seconds)
    except KeyboardInterrupt:
        if not asked.begun:
            _say(console, "stopped watching; there is no page yet")
            return
        study, tuning = asked.read()
        page.write(_content(asked, study, tuning, WATCHED), study.folder.path)  # must not load itself again unwatched
        _say(console, "stopped watching; the page is as it stands")


def unfinished(study: ReadStudy) -> int:
    """Cells that are neither complete nor diverged."""
    return sum(study.count(state) for state in UNFINISHED)


def _waits_for(asked: Asked) -> str:
    tuning = asked.tuning
    told = "" if tuning is None else f"{tuning.sentence}; "
    folder = asked.runs / asked.experiment.study
    return f"{told}no page yet: {folder} is not there; `paribus run {asked.arguments}` starts the study"


def _content(asked: Asked, study: ReadStudy, tuning: ReadTuning | None, command: str) -> ReportContent:
    verdicts = verdicts_of(study)
    if command != WATCHED or any(verdict.word is not Word.WAITING for verdict in verdicts):
        record_look(study, verdicts, command)
    return report_content(study, verdicts, f"paribus run {asked.arguments}", asked.file.parent, tuning)


def _say(console: Console, line: str) -> None:
    # Names and paths come from files: what looks like markup in them is text.
    console.print(line, highlight=False, markup=False, soft_wrap=True)
