"""A suite small enough to be run for real: two tasks, one layer of width 16, twelve updates, three seeds."""

import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from paribus import mechanisms
from paribus.draining import train_missing
from paribus.experiment.gate import Gate
from paribus.experiment.spec import Experiment
from paribus.report.content import ReportContent
from paribus.report.page import PAGE
from paribus.study import open_study
from paribus.tunnel import reports, running, suites
from tests.shared import built_once, process_as_it_was

FILE = """\
study = "micro-{task}"
question = "Does it hold?"

[base]
context_length = 16
batch_tokens = 128
corpus = {{ task = "{task}", {knobs} }}
model = {{ head_width = 8 }}
evaluation = {{ probe_tokens = 32, test_tokens = 50, validation_tokens = 50 }}

[scales.{task}]
layers = 1
width = 16
mlp_width = 16
budget_tokens = 1_536

[arms.standard]

[arms.xsa]
output_map = {{ name = "xsa" }}

[contrasts.xsa]
primary = true
treatment = "xsa"
baseline = "standard"
metric = "{metric}"
smallest_effect = 0.02
design_effect = 0.05
expected = "+"

[seeds]
count = 3

[execution]
cost_rounds = 0
checkpoint_steps = 2
"""
PACKAGE = "mypackage"
"""the user's own, which every test writes anew"""
TASKS = {
    "twin": ("ids = 4, colours = 2", "train.area.same-different"),
    "tally": ("symbols = 4", "train.area"),
}


def write_suite(folder: Path, name: str = "smoke") -> Path:
    """The two tasks as a suite of this name below `folder`."""
    (folder / name).mkdir(parents=True)
    for task, (knobs, metric) in TASKS.items():
        (folder / name / f"{task}.toml").write_text(FILE.format(task=task, knobs=knobs, metric=metric), "utf-8")
    return folder


@pytest.fixture(autouse=True)
def _this_process_as_it_was() -> Iterator[None]:
    """Imports inside the tests' own process leave nothing behind."""
    registry: Any = mechanisms
    path = list(sys.path)
    yield
    sys.path[:] = path
    registry._named.clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
        del sys.modules[name]
    registry.modules.cache_clear()
    registry.mechanisms.cache_clear()


@pytest.fixture
def micro(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The micro suite in the place of the shipped ones, and an empty working folder."""
    monkeypatch.setattr(suites, "SUITES", write_suite(tmp_path / "suites"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


@dataclass
class Here:
    """Cells trained in this process instead of workers, gates that say what a test wants."""

    updates_left: int | None = None
    """after so many updates somebody presses Ctrl-C; None: nobody"""
    failing: tuple[str, ...] = ()
    """studies whose gates fail"""
    updates: list[tuple[str, str, int]] = field(default_factory=list)
    """every update that was made: (scale, arm, seed)"""

    def run_workers(
        self, count: int, experiment: Experiment, folder: Path, runs: Path, on_event: Callable[[dict[str, Any]], None]
    ) -> bool:
        assert count >= 1
        stopped = False

        def emit(event: dict[str, Any]) -> None:
            nonlocal stopped
            on_event(event)
            if event["kind"] == "step":
                self.updates.append((event["scale"], event["arm"], event["seed"]))
                if self.updates_left is not None:
                    self.updates_left -= 1
                    stopped = self.updates_left <= 0

        train_missing(open_study(experiment, folder, runs), emit, lambda: stopped)
        return not stopped

    def run_gates(self, experiment: Experiment, arms: object, console: object) -> list[Gate]:
        del arms, console
        return [Gate("a law", next(iter(experiment.scales)), experiment.study not in self.failing, "found 1, bound 0")]


def quick_report(content: ReportContent, folder: Path) -> Path:
    """In the place of a task's own report, whose figures take seconds: what of it the page of the set relies on."""
    path = folder / PAGE
    path.write_text(f"{content.study}: {content.repeat_command}", encoding="utf-8")
    return path


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Here:
    found = Here()
    monkeypatch.setattr(reports, "write", quick_report)
    monkeypatch.setattr(running, "run_workers", found.run_workers)
    monkeypatch.setattr(running, "run_gates", found.run_gates)
    return found


@pytest.fixture(scope="session")
def _flown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the suite and what a whole run of it leaves, made once for all processes of the test run."""
    from rich.console import Console

    from paribus.tunnel.command import run_tunnel

    def build(folder: Path) -> None:
        with process_as_it_was(), pytest.MonkeyPatch.context() as patch:
            patch.setattr(suites, "SUITES", write_suite(folder / "suites"))
            inside = Here()
            patch.setattr(running, "run_workers", inside.run_workers)
            patch.setattr(running, "run_gates", inside.run_gates)
            patch.setattr(reports, "write", quick_report)
            with (folder / "printed.txt").open("w", encoding="utf-8") as printed:
                run_tunnel(
                    suites.load_suite("smoke"), folder / "work" / "runs", Console(file=printed, width=200), "again"
                )

    return built_once(tmp_path_factory, "flown", build)


@pytest.fixture
def flown(_flown: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of that folder; `work` in it is the working folder."""
    folder = tmp_path / "flown"
    shutil.copytree(_flown, folder)
    monkeypatch.setattr(suites, "SUITES", folder / "suites")
    monkeypatch.chdir(folder / "work")
    return folder
