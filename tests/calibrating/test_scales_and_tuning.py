"""Calibration of files that hold several scales, or that tune: what is printed is what the file reads."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from paribus.calibrating import running
from paribus.calibrating.reading import Crossing, ReadCalibration, read_calibration
from paribus.calibrating.running import calibrate
from paribus.calibrating.saying import before_training
from paribus.calibrating.showing import show
from paribus.experiment import loading
from paribus.experiment.calibration import State, calibration_of
from paribus.experiment.tuning import with_values
from paribus.runs.folder import CellFolder

Workers = Callable[..., Callable[..., bool]]
Cli = Callable[..., tuple[int, str, str]]
RUNS = Path("runs")
QUIET = Console(quiet=True)
OTHER = "[scales.wider]\nlayers = 1\nwidth = 48\nmlp_width = 48\nbudget_tokens = 4_500\n"
KNOB = '"optimiser.matrix_learning_rate"'
TUNING = f"[tuning]\nknobs = {{ standard = {KNOB}, xsa = {KNOB} }}\n"


@pytest.fixture
def two_scales(file: Path) -> Path:
    text = file.read_text().replace("budget_tokens = 40_000\n", f"budget_tokens = 4_500\n{OTHER}")
    file.write_text(text)
    return file


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch, workers: Workers) -> None:
    """In this process, and without gates, which tests of their own cover."""
    monkeypatch.setattr(running, "run_workers", workers())
    monkeypatch.setattr(running, "run_gates", lambda *_: [])


def printed(file: Path, scale: str | None, at: int) -> str:
    """What is printed where every seed crossed after `at` of 100 updates."""
    crossings = tuple(Crossing("all", seed, 100, at) for seed in range(3))
    out = io.StringIO()
    show(ReadCalibration(loading.load(file, scale), 3, crossings), Console(file=out, width=200))
    return out.getvalue()


def lines_of(study: str, scale: str) -> list[list[dict[str, Any]]]:
    cells = sorted((RUNS / study / scale / "standard").iterdir())
    return [
        [
            {key: value for key, value in line.items() if key not in ("wall_seconds", "token")}
            for line in CellFolder(cell).metrics()
        ]
        for cell in cells
    ]


def test_the_tables_of_all_scales_stand_side_by_side_in_their_file(two_scales: Path) -> None:
    tables = []
    for scale, at in (("tiny", 50), ("wider", 60)):
        out = printed(two_scales, scale, at)
        assert f"[scales.{scale}.calibration]" in out
        assert "\n[calibration]" not in out
        tables.append(out[out.index("[scales.") :])
    two_scales.write_text(two_scales.read_text() + "".join(tables))
    for scale, share in (("tiny", 0.5), ("wider", 0.6)):
        found = calibration_of(loading.load(two_scales, scale))
        assert (found.state, found.shares) == (State.CALIBRATED, {"all": (share,) * 3})
        assert before_training(loading.load(two_scales, scale), RUNS) == ()


def test_a_scale_with_a_dot_in_its_name_is_quoted(two_scales: Path) -> None:
    two_scales.write_text(two_scales.read_text().replace("[scales.wider]", '[scales."w.1"]'))
    out = printed(two_scales, "w.1", 50)
    two_scales.write_text(two_scales.read_text() + out[out.index("[scales.") :])
    assert calibration_of(loading.load(two_scales, "w.1")).state is State.CALIBRATED


def test_each_scale_is_calibrated_alone_and_goes_on_after_a_stop(
    two_scales: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch, workers: Workers
) -> None:
    code, _, err = cli("calibrate", str(two_scales), "--seeds", "2")
    assert code == 2
    assert "say which one with --scale" in err
    whole = calibrate(loading.load(two_scales, "wider"), Path(), RUNS, QUIET, 2)
    assert [path.name for path in RUNS.iterdir()] == ["small@wider+calibration"]
    RUNS.rename("elsewhere")
    monkeypatch.setattr(running, "run_workers", workers(13))  # in the second cell
    code, out, _ = cli("calibrate", str(two_scales), "--scale", "wider", "--seeds", "2")
    assert code == 75
    assert "the same command continues" in out
    monkeypatch.setattr(running, "run_workers", workers())
    code, out, err = cli("calibrate", str(two_scales), "--scale", "wider", "--seeds", "2", "--json")
    assert json.loads(out)["scale"] == "wider", err
    assert read_calibration(loading.load(two_scales, "wider"), RUNS, 2) == whole.read
    ours = lines_of("small@wider+calibration", "wider")
    RUNS.rename("resumed")
    Path("elsewhere").rename(RUNS)
    assert ours == lines_of("small@wider+calibration", "wider")


def test_a_file_that_tunes_is_calibrated_as_declared_and_stays_calibrated_once_tuned(file: Path) -> None:
    file.write_text(file.read_text().replace("budget_tokens = 40_000", "budget_tokens = 4_500"))
    plain = calibrate(loading.load(file), Path(), RUNS, QUIET, 1)
    file.write_text(file.read_text() + TUNING)
    tuned_file = calibrate(loading.load(file), Path(), RUNS, QUIET, 1)
    assert (tuned_file.trained, tuned_file.read.crossings) == (0, plain.read.crossings)
    assert [path.name for path in RUNS.iterdir()] == ["small+calibration"]
    out = printed(file, None, 50)
    file.write_text(file.read_text() + out[out.index("[calibration]") :])
    declared = loading.load(file)
    moved = with_values(declared, {"standard": 0.08, "xsa": 0.005})
    for experiment in (declared, moved):
        found = calibration_of(experiment)
        assert found.state is State.CALIBRATED
        assert "at the declared value of optimiser.matrix_learning_rate" in found.sentence
