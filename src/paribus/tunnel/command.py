"""`paribus tunnel` from end to end: which set, whose mechanism, the runs, the page."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from paribus.errors import DivergenceError
from paribus.experiment.spec import Experiment
from paribus.reading.study import read_study
from paribus.report.of_tasks import FULL
from paribus.report.tunnel_page import render_tunnel
from paribus.tunnel.reports import write_reports
from paribus.tunnel.rows import record_looks, tunnel_content
from paribus.tunnel.running import run_suite
from paribus.tunnel.session import seconds
from paribus.tunnel.showing import require_results, show
from paribus.tunnel.suites import Suite


def run_tunnel(suite: Suite, runs: Path, console: Console, repeat_command: str) -> bool:
    """Run the suite below `runs`, write its page and print its rows; False where Ctrl-C came first.

    Raises, after the page is written, what kept a task from a result, and DivergenceError where a cell diverged.
    """
    folder = runs / suite.folder_name
    outcome = run_suite(suite, folder, console)
    if not outcome.finished:
        return False
    page = ""
    if outcome.experiments:
        where = folder / suite.part
        record_looks(suite.name, outcome.experiments, folder)
        reports = write_reports(suite, outcome.experiments, folder, repeat_command)
        content = tunnel_content(
            suite.name,
            outcome.experiments,
            folder,
            failures=outcome.failures,
            # Of a part, nobody knows: its cells may have been trained with the rest of the set.
            seconds=None if suite.part else seconds(folder),
            repeat_command=repeat_command,
            reports=reports,
        )
        if suite.part:
            where.mkdir(exist_ok=True)
            content = replace(content, caveats=(_of_a_part(suite), *content.caveats))
        page = str(render_tunnel(content, where))
        show(content, console)
        console.print(f"page: {page}", highlight=False, markup=False, soft_wrap=True)
    require_results(outcome, page)
    _require_no_divergence(outcome.experiments, folder)
    return True


def _of_a_part(suite: Suite) -> str:
    tasks = ", ".join(study.task for study in suite.studies)
    words = " Its words are those of one family over these rows alone." if suite.name == FULL else ""
    return f"A part of the set: {tasks}, {len(suite.studies)} of its {suite.whole} tasks.{words}"


def _require_no_divergence(experiments: Mapping[str, Experiment], folder: Path) -> None:
    studies = {task: read_study(experiment, folder) for task, experiment in experiments.items()}
    diverged = {task: count for task, study in studies.items() if (count := study.count("diverged"))}
    if diverged:
        raise DivergenceError(
            f"{sum(diverged.values())} cells diverged",
            received=", ".join(f"{task}: {count}" for task, count in diverged.items()),
            remedy="no mean is shown for their contrasts; the other cells are complete",
        )
