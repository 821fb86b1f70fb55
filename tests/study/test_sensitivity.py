"""A longer decay and a sweep from the file to the page, in a study that is trained for real."""

import json
import math
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from paribus.experiment.control import SCHEDULE_ARM
from paribus.runs.folder import CellFolder
from tests.shared import built_once

HALF = "xsa.strength-0.5"
ASKED = {
    'output_map = { name = "xsa" }': 'output_map = { name = "xsa", strength = 1.0 }\n'
    'sweep = { "output_map.strength" = [0.5, 1.0] }',
    "[noise]": "[robustness]\nschedule = true\n[noise]",
}


@pytest.fixture(scope="module")
def moved(
    tmp_path_factory: pytest.TempPathFactory, text: Callable[..., str], paribus: Callable[..., subprocess.Popen[str]]
) -> Path:
    """A folder with study.toml and the run folder that `paribus run` made of it; what it printed is in run.txt."""

    def build(folder: Path) -> None:
        written = text(arms=("standard", "xsa"), seeds=4, execution="cost_rounds = 0")
        for old, new in ASKED.items():
            assert old in written
            written = written.replace(old, new)
        (folder / "study.toml").write_text(written, encoding="utf-8")
        process = paribus(folder, "run", "study.toml")
        out, err = process.communicate(timeout=240)
        assert (process.returncode, err) == (0, ""), err
        (folder / "run.txt").write_text(out, encoding="utf-8")

    return built_once(tmp_path_factory, "moved", build)


def cell(folder: Path, arm: str, seed: int) -> CellFolder:
    (found,) = (folder / "runs" / "tiny" / "tiny" / arm).glob(f"{seed}-*")
    return CellFolder(found)


def loss(folder: Path, arm: str, seed: int) -> float:
    rows = cell(folder, arm, seed).rows("likelihood/test-00000020").to_pydict()
    return math.fsum(rows["nats"]) / sum(rows["tokens"])


def test_the_plan_names_what_is_trained_beside_the_study(
    moved: Path, monkeypatch: pytest.MonkeyPatch, cli: Callable[..., tuple[int, str, str]]
) -> None:
    monkeypatch.chdir(moved)
    _, printed, _ = cli("plan", "study.toml")
    assert "standard with schedule.decay 0.6 in place of 0.4: 3 cells, which no verdict uses" in printed
    assert "xsa with output_map.strength 0.5 in place of 1: 3 cells, which no verdict uses" in printed


def test_derived_arms_train_at_the_first_seeds_after_everything_that_a_verdict_needs(moved: Path) -> None:
    folders = {path.name: sorted(seed.name[0] for seed in path.iterdir()) for path in moved.glob("runs/tiny/tiny/*")}
    assert folders == {
        "standard": ["0", "1", "2", "3"],
        "xsa": ["0", "1", "2", "3"],
        SCHEDULE_ARM: ["0", "1", "2"],
        HALF: ["0", "1", "2"],
    }
    printed = (moved / "run.txt").read_text(encoding="utf-8")
    assert "training 14 of 14 cells" in printed
    assert printed.index("8 of 14") < printed.index(f"tiny/{SCHEDULE_ARM}/0")


def test_the_control_has_the_baselines_start_and_batches_and_a_longer_decay_alone(moved: Path) -> None:
    for seed in range(3):
        control, baseline = cell(moved, SCHEDULE_ARM, seed), cell(moved, "standard", seed)
        assert control.record()["initial_digests"] == baseline.record()["initial_digests"]
        assert control.summary()["batch_digest"] == baseline.summary()["batch_digest"]
        left, right = control.record()["resolved"], baseline.record()["resolved"]
        assert left["schedule"] == right["schedule"] | {"decay": 0.6}
        assert {key: left[key] for key in left if key != "schedule"} == {
            key: right[key] for key in right if key != "schedule"
        }
        rates = [[line["learning_rate_multiplier"] for line in of.metrics()] for of in (control, baseline)]
        assert [one == other for one, other in zip(*rates, strict=True)] == [True] * 8 + [False] * 12, (
            "the rate leaves the baseline's after 40 % of 20 updates"
        )


def test_the_report_shows_the_effect_the_control_and_the_value_from_the_rows_on_disk(moved: Path) -> None:
    data = json.loads((moved / "runs" / "tiny" / "report.json").read_text(encoding="utf-8"))
    assert [verdict["name"] for verdict in data["verdicts"]] == ["xsa"]
    shown = [(row["kind"], row["knob"], row["value"], row["pairs"]) for row in data["sensitivity"]]
    assert shown == [
        ("effect", "", None, 4),
        ("schedule", "schedule.decay", 0.6, 3),
        ("value", "output_map.strength", 1.0, 4),
        ("value", "output_map.strength", 0.5, 3),
    ]
    for row, arm in zip(data["sensitivity"], ("xsa", SCHEDULE_ARM, "xsa", HALF), strict=True):
        differences = [loss(moved, arm, seed) - loss(moved, "standard", seed) for seed in range(row["pairs"])]
        assert row["mean"] == pytest.approx(math.fsum(differences) / len(differences), rel=1e-9)
        assert row["interval"][0] < row["mean"] < row["interval"][1]
    assert data["sensitivity"][0]["mean"] == data["verdicts"][0]["mean"]
    gates = [entry["what"] for entry in data["held_equal"] if entry["what"].endswith(": pair check")]
    assert gates == [f"{name}: pair check" for name in ("xsa", SCHEDULE_ARM, HALF)]
    assert 'aria-labelledby="sensitivity"' in (moved / "runs" / "tiny" / "report.html").read_text(encoding="utf-8")
    assert (moved / "runs" / "tiny" / "figures" / "sensitivity.svg").exists()


def test_a_second_run_trains_nothing_and_a_further_value_trains_alone(
    moved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Callable[..., tuple[int, str, str]]
) -> None:
    folder = tmp_path / "study"
    shutil.copytree(moved, folder)
    monkeypatch.chdir(folder)
    _, out, _ = cli("status", "study.toml", "--json")
    assert {found["state"] for found in json.loads(out)["cells"]} == {"complete"}
    file = folder / "study.toml"
    file.write_text(file.read_text(encoding="utf-8").replace("[0.5, 1.0]", "[0.25, 0.5, 1.0]"), encoding="utf-8")
    _, out, _ = cli("status", "study.toml", "--json")
    missing = [found["arm"] for found in json.loads(out)["cells"] if found["state"] != "complete"]
    assert missing == ["xsa.strength-0.25"] * 3
