"""Writing a study's report once or while it runs: what is waited for, what is said, and how to come back to it."""

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from paribus import publishing
from paribus.errors import StudyFolderError
from paribus.experiment import loading
from paribus.experiment.loading import RESERVED_SCALE_NAMES
from paribus.experiment.spec import Experiment, Key
from paribus.publishing import Asked, publish, watch
from paribus.reading.cell import ReadCell
from paribus.reading.study import ReadStudy, read_study
from paribus.runs.study_folder import StudyFolder
from paribus.tuning.reading import ReadTuning, Trial

EXPERIMENT = """
study = "tiny"
question = "Does it help?"
[base]
context_length = 32
batch_tokens = 256
[scales.small]
layers = 2
width = 32
mlp_width = 48
budget_tokens = 10_000
[arms.plain]
[arms.trick]
output_map = { name = "xsa" }
[contrasts.main]
treatment = "trick"
baseline = "plain"
primary = true
smallest_effect = 0.01
design_effect = 0.03
[seeds]
count = 3
"""
KNOB = "optimiser.matrix_learning_rate"
TUNING = f'[tuning]\nknobs = {{ plain = "{KNOB}", trick = "{KNOB}" }}\n'
PAGE = Path("runs/tiny/report.html")
RELOADS = 'http-equiv="refresh"'


class AsleepError(Exception):
    """The watch went to sleep once more than the test has events for."""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def naps(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """What happens during each nap of the watch, in order; KeyboardInterrupt is Ctrl-C."""

    def set_up(*events: Callable[[], object]) -> None:
        left = list(events)

        def sleep(_: float) -> None:
            if not left:
                raise AsleepError
            left.pop(0)()

        monkeypatch.setattr(publishing.time, "sleep", sleep)

    return set_up


def asked(text: str = EXPERIMENT) -> Asked:
    Path("study.toml").write_text(text, encoding="utf-8")
    return Asked(Path("study.toml"), loading.load(Path("study.toml")), Path("runs"), "study.toml --scale large")


def ctrl_c() -> None:
    raise KeyboardInterrupt


def begin() -> None:
    StudyFolder(Path("runs/tiny")).claim_for("tiny")


def said_by(act: Callable[[Console], object]) -> str:
    console = Console(file=io.StringIO(), width=60)
    act(console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_watching_waits_for_a_study_that_has_not_begun_and_says_so_once(naps: Callable[..., None]) -> None:
    naps(lambda: None, begin, ctrl_c)
    said = said_by(lambda console: watch(asked(), 5, console))
    told = "no page yet: runs/tiny is not there; `paribus run study.toml --scale large` starts the study\n"
    assert said.count(told) == 1
    assert f"0 of 6 cells; {PAGE}\n" in said
    assert RELOADS not in PAGE.read_text(encoding="utf-8"), "nobody rewrites it any more"


def test_a_folder_that_is_just_being_made_is_waited_for_and_one_of_somebody_else_is_refused(
    naps: Callable[..., None],
) -> None:
    folder = Path("runs/tiny")
    folder.mkdir(parents=True)
    (folder / ".study.json.7.partial").write_text("{", encoding="utf-8")
    naps((folder / "thesis.tex").touch)
    with pytest.raises(StudyFolderError):
        said_by(lambda console: watch(asked(), 5, console))
    assert (folder / "thesis.tex").exists(), "the first look was no reason to end"


def test_ctrl_c_before_the_study_has_begun_leaves_nothing_behind(naps: Callable[..., None]) -> None:
    naps(ctrl_c)
    assert "stopped watching; there is no page yet" in said_by(lambda console: watch(asked(), 5, console))
    assert not Path("runs").exists()


def test_while_it_tunes_the_watch_says_how_far_the_search_is(naps: Callable[..., None]) -> None:
    seen: list[str] = []
    naps(begin, lambda: seen.append(PAGE.read_text(encoding="utf-8")), ctrl_c)
    said = said_by(lambda console: watch(asked(EXPERIMENT + TUNING), 5, console))
    far = "tuning: 0 of 3 to 9 values for each of 2 arms are trained"
    assert f"{far}; no page yet" in said
    assert f"{far}; 0 of 6 cells; {PAGE}\n" in said
    assert RELOADS in seen[0]


def tuned(experiment: Experiment, *, finished: bool = True) -> ReadTuning:
    """A search whose best value lies one step above the declared one for each arm."""
    declared = experiment.arm("plain").optimiser.matrix_learning_rate
    trials = {
        arm: {step: Trial(arm, step, declared * 4.0**step, (score,)) for step, score in ((0, 3.2), (1, 3.1), (2, 3.3))}
        for arm in experiment.arms
    }
    return ReadTuning(experiment, trials, {} if finished else dict.fromkeys(experiment.arms, (3,)))


@pytest.mark.parametrize("finished", [True, False])
def test_a_tuned_study_is_read_at_the_values_that_its_tuning_chose(
    monkeypatch: pytest.MonkeyPatch, finished: bool
) -> None:
    begin()
    of = asked(EXPERIMENT + TUNING)
    monkeypatch.setattr(publishing, "read_tuning", lambda experiment, _: tuned(experiment, finished=finished))
    study, _ = of.read()
    declared = of.experiment.arm("trick").optimiser.matrix_learning_rate
    assert study.experiment.arm("trick").optimiser.matrix_learning_rate == declared * (4.0 if finished else 1.0)


@pytest.mark.parametrize("finished", [True, False])
def test_watching_ends_with_the_last_cell_but_not_before_the_tuning(
    monkeypatch: pytest.MonkeyPatch, naps: Callable[..., None], finished: bool
) -> None:
    begin()
    of = asked(EXPERIMENT + TUNING)
    rate = of.experiment.arm("plain").optimiser.matrix_learning_rate

    def every_cell_complete(experiment: Experiment, runs: Path) -> ReadStudy:
        """At the chosen values; at the declared ones they are stale once others were chosen."""
        current = not finished or experiment.arm("plain").optimiser.matrix_learning_rate != rate
        study = read_study(experiment, runs)
        cells: dict[Key, ReadCell] = {
            key: replace(cell, state="complete" if current else "stale") for key, cell in study.cells.items()
        }
        return replace(study, cells=cells)

    monkeypatch.setattr(publishing, "read_tuning", lambda experiment, _: tuned(experiment, finished=finished))
    monkeypatch.setattr(publishing, "read_study", every_cell_complete)
    monkeypatch.setattr(publishing, "_content", lambda *_: None)
    monkeypatch.setattr(publishing.page, "write", lambda *_, **__: PAGE)
    naps()
    if finished:
        assert f"6 of 6 cells; {PAGE}\n" in said_by(lambda console: watch(of, 5, console))
    else:
        with pytest.raises(AsleepError):
            said_by(lambda console: watch(of, 5, console))


def test_everything_that_lies_beside_the_scales_is_a_name_that_no_scale_can_have() -> None:
    begin()
    folder = StudyFolder(Path("runs/tiny"))
    publish(asked(), "report", Console(file=io.StringIO()))
    folder.write_plan({})
    folder.write_cost("small", {})
    folder.write_corpus({})
    beside = {path.name for path in folder.path.iterdir()}
    assert {"cost", "report.html", "looks.jsonl", "tables"} <= beside
    assert beside <= RESERVED_SCALE_NAMES


@pytest.mark.parametrize(
    ("runs", "file", "named"),
    [
        ("runs", "study.toml", "study.toml"),
        ("elsewhere", "study.toml", "study.toml --runs elsewhere"),
        ("my runs", "the study.toml", "'the study.toml' --runs 'my runs'"),
    ],
)
def test_the_commands_that_a_reader_is_told_name_the_runs_folder_where_it_is_not_the_default(
    cli: Callable[..., tuple[int, str, str]], runs: str, file: str, named: str
) -> None:
    Path(file).write_text(EXPERIMENT, encoding="utf-8")
    StudyFolder(Path(runs, "tiny")).claim_for("tiny")
    code, out, _ = cli("report", file, "--runs", runs)
    assert code == 0
    assert f"6 cells are not complete; see `paribus status {named}`\n" in out
    page = Path(runs, "tiny", "report.html").read_text(encoding="utf-8").replace("&#39;", "'")
    assert f"paribus run {named}<" in page
