"""What `plan` and `run` say of the difficulty before any compute: what the file knows, and what was found."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paribus.calibrating import running
from paribus.calibrating.saying import before_training
from paribus.experiment import loading

Cli = Callable[..., tuple[int, str, str]]
Workers = Callable[..., Callable[..., bool]]
RUNS = Path("runs")


def test_a_file_without_calibration_is_told_so_and_a_text_is_told_nothing(file: Path) -> None:
    (said,) = before_training(loading.load(file), RUNS)
    assert said.startswith("the task's difficulty was not calibrated on the baseline (`paribus calibrate`)")
    text = file.read_text().replace('{ task = "tally", symbols = 2, classes = 3 }', '{ name = "local-docs" }')
    file.write_text(text.replace("train.area", "test.nll"))
    assert before_training(loading.load(file), RUNS) == ()
    assert not RUNS.exists()


def test_a_declared_reason_is_no_doubt(file: Path) -> None:
    file.write_text(file.read_text() + '[calibration]\nnot_applicable = "a negative control"\n')
    assert before_training(loading.load(file), RUNS) == ()


def test_a_failed_calibration_is_said_again_by_plan_and_by_run_before_anything_is_trained(
    file: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch, workers: Workers
) -> None:
    monkeypatch.setattr(running, "run_workers", workers())
    file.write_text(file.read_text().replace("budget_tokens = 40_000", "budget_tokens = 4_608"))
    assert cli("calibrate", str(file), "--seeds", "2")[0] == 1
    missing, found = before_training(loading.load(file), RUNS)
    assert "was not calibrated" in missing
    assert found.startswith("`paribus calibrate` found it too hard: the baseline got below every shortcut")
    assert found.endswith("at none of 2 seeds within the budget"), "of as many seeds as were trained"
    code, out, _ = cli("plan", str(file))
    assert code == 0
    assert f"note: {found}" in out

    def stop(*_: Any) -> bool:
        return False

    monkeypatch.setattr("paribus.running.finish", stop)
    code, out, _ = cli("run", str(file))
    assert code == 75
    assert out.index(f"note: {found}") < out.index("stopped")

    file.write_text(file.read_text().replace("classes = 3", "classes = 4"))
    _, found = before_training(loading.load(file), RUNS)
    assert "holds a calibration that is not finished for the present file and code (stale)" in found


def test_a_calibration_that_cannot_be_read_blocks_nothing(file: Path) -> None:
    folder = RUNS / "small+calibration"
    folder.mkdir(parents=True)
    (folder / "study.json").write_text("{}", encoding="utf-8")
    _, found = before_training(loading.load(file), RUNS)
    assert "holds a calibration that cannot be used" in found
