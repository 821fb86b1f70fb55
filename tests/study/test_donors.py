"""Cells that start from another cell's trained tensors: alone, in two processes, resumed, and with a lost donor.

The mechanism is a package of somebody else, found through its entry point as a user's would be.
"""

import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load

from paribus import mechanisms
from paribus.draining import train_missing
from paribus.experiment import loading
from paribus.reading.evidence import verdicts_of
from paribus.reading.study import read_study
from paribus.runs.claims import claim
from paribus.runs.failures import parked
from paribus.runs.folder import CellFolder
from paribus.stats.rule import Word
from paribus.study import Study, open_study, write_plan

GRAFT = '''
"""An output map with a factor per feature: learned, or kept as another arm has learned it."""

from paribus.mechanisms.contract import MechanismConfig, Seam
from paribus.roles import ONES, DeclaredModule, Role


class Graft(DeclaredModule):
    def __init__(self, width, role):
        super().__init__()
        self.declare("factor", (width,), role, ONES)

    def forward(self, y, values, document):
        return y * self.get_parameter("factor")


class GraftConfig(MechanismConfig):
    name = "graft"
    seam = Seam.OUTPUT_MAP

    source: str | None = None

    def build(self, geometry, layer):
        return Graft(geometry.head_width, Role.GAIN if self.source is None else Role.FIXED)

    def donor(self):
        return self.source

    def adopt(self, module, tensors):
        module.get_parameter("factor").copy_(tensors["factor"])
'''
ARMS = """
[arms.kept]
output_map = { name = "graft", source = "learned" }
[arms.learned]
output_map = { name = "graft" }
[contrasts.kept]
primary = true
treatment = "kept"
baseline = "standard"
smallest_effect = 0.01
design_effect = 0.03
"""
Text = Callable[..., str]
Cli = Callable[..., tuple[int, str, str]]
PATIENCE = 120.0


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the path, here and in every process started from here, with an installed package."""
    folder = tmp_path / "site"
    (folder / "graft-1.0.dist-info").mkdir(parents=True)
    (folder / "graft_of_somebody.py").write_text(GRAFT, encoding="utf-8")
    metadata, points = "Metadata-Version: 2.1\nName: graft\nVersion: 1.0\n", "graft = graft_of_somebody\n"
    (folder / "graft-1.0.dist-info" / "METADATA").write_text(metadata, encoding="utf-8")
    entry_points = folder / "graft-1.0.dist-info" / "entry_points.txt"
    entry_points.write_text(f"[paribus.mechanisms]\n{points}", encoding="utf-8")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]))

    def forget() -> None:
        mechanisms.modules.cache_clear()
        mechanisms.mechanisms.cache_clear()

    forget()
    yield folder
    monkeypatch.undo()
    forget()


@pytest.fixture
def folder(package: Path, fresh: Path, text: Text) -> Path:
    """The working folder, with a study of a plain arm, one that learns a factor, and one that keeps it."""
    del package
    parts = text(arms=("standard",), seeds=1, execution="workers = 1").split("[seeds]")
    (fresh / "study.toml").write_text(f"{parts[0]}{ARMS}[seeds]{parts[1]}", encoding="utf-8")
    return fresh


def opened(folder: Path) -> Study:
    return open_study(loading.load(folder / "study.toml"), folder, folder / "runs")


def cell(folder: Path, arm: str) -> CellFolder:
    return CellFolder(next((folder / "runs" / "tiny" / "tiny" / arm).glob("0-*")))


def train(folder: Path, should_stop: Callable[[], bool] = lambda: False) -> list[tuple[str, str]]:
    """Train what is missing inside this process; (arm, kind) of what happened, without the updates."""
    events: list[dict] = []
    study = opened(folder)
    write_plan(study, None)
    train_missing(study, events.append, should_stop)
    return [(event["arm"], event["kind"]) for event in events if event["kind"] != "step"]


def final(folder: Path, arm: str) -> dict[str, torch.Tensor]:
    checkpoint = cell(folder, arm).latest_checkpoint()
    assert checkpoint is not None
    assert checkpoint[0] == cell(folder, arm).summary()["steps"], "the state at the last update is kept"
    tensors = load(checkpoint[1]["state.safetensors"])
    return {name.removeprefix("model/"): t for name, t in tensors.items() if name.startswith("model/")}


def test_a_cell_starts_from_its_donors_last_tensors_and_never_trains_them(folder: Path):
    # 23 updates: the end of the run is no multiple of the interval between checkpoints.
    file = (
        (folder / "study.toml").read_text(encoding="utf-8").replace("budget_tokens = 10_000", "budget_tokens = 11_500")
    )
    (folder / "study.toml").write_text(file, encoding="utf-8")
    kinds = train(folder)
    order = ("standard", "learned", "kept")
    assert kinds == [(arm, kind) for arm in order for kind in ("started", "finished")], "the donor before its taker"
    learned, kept = final(folder, "learned"), final(folder, "kept")
    for layer in range(2):
        name = f"layers.{layer}.attention.output_map.factor"
        assert torch.equal(learned[name], kept[name]), "bit for bit, after all of the taker's updates"
        assert not torch.equal(learned[name], torch.ones_like(learned[name])), "and it had been learned"
    assert not torch.equal(learned["embedding"], kept["embedding"]), "nothing else is inherited"
    donor, taker = cell(folder, "learned"), cell(folder, "kept").record()
    assert taker["donors"] == {
        "output_map": {
            "cell": "tiny/learned/0",
            "digest": donor.path.name.split("-")[1],
            "final_tensors_digest": donor.summary()["final_tensors_digest"],
        }
    }
    shared = {n: d for n, d in taker["initial_digests"].items() if "output_map" not in n}
    assert shared == cell(folder, "standard").record()["initial_digests"], "it starts from the values of its own arm"
    assert train(folder) == [], "nothing is trained twice"


def test_a_taker_that_was_stopped_resumes_bit_identical(folder: Path, trained):
    train(folder)
    expected = trained(cell(folder, "kept").path)
    shutil.rmtree(cell(folder, "kept").path)
    looks = iter([False] * 8 + [True] * 2)
    assert train(folder, lambda: next(looks, True)) == [("kept", "started"), ("kept", "stopped")]
    assert cell(folder, "kept").state == "started"
    assert train(folder) == [("kept", "started"), ("kept", "finished")]
    assert trained(cell(folder, "kept").path) == expected


def test_two_runs_at_once_train_the_donor_once_and_then_its_taker_once(
    folder: Path, paribus: Callable[..., subprocess.Popen[str]]
):
    processes = [paribus(folder, "run", "study.toml") for _ in range(2)]
    outputs = [process.communicate(timeout=PATIENCE) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    lines = [line.split()[3] for out, _ in outputs for line in out.splitlines() if " trained in " in line]
    assert sorted(lines) == [f"tiny/{arm}/0" for arm in ("kept", "learned", "standard")]
    assert torch.equal(*(final(folder, arm)["layers.0.attention.output_map.factor"] for arm in ("learned", "kept")))


def test_a_worker_waits_for_a_donor_held_elsewhere_and_takes_it_over_when_its_trainer_is_gone(folder: Path):
    study = opened(folder)
    donor = next(c for c in study.cells if c.arm == "learned")
    kinds: list[tuple[str, str]] = []
    with claim(study.cell_folder(donor).path) as held:
        assert held
        worker = threading.Thread(target=lambda: kinds.extend(train(folder)))
        worker.start()
        end = time.monotonic() + PATIENCE
        while not any(CellFolder(path).finished for path in (folder / "runs" / "tiny" / "tiny").glob("standard/0-*")):
            assert time.monotonic() < end
            time.sleep(0.02)
        time.sleep(1.2)  # several times what it waits between two looks
        assert worker.is_alive(), "it waits"
        assert not study.cell_folder(donor).finished
        assert not list((folder / "runs" / "tiny" / "tiny").glob("kept/*")), "a cell is not begun without its donor"
    worker.join(PATIENCE)
    assert not worker.is_alive()
    assert [kind for kind in kinds if kind[0] != "standard"] == [
        (arm, kind) for arm in ("learned", "kept") for kind in ("started", "finished")
    ]


def test_a_waiting_worker_can_be_stopped(folder: Path):
    study = opened(folder)
    donor = next(c for c in study.cells if c.arm == "learned")
    with claim(study.cell_folder(donor).path) as held:
        assert held
        started = time.monotonic()
        assert train(folder, lambda: time.monotonic() > started + 4.0)[:1] == [("standard", "started")]
    assert not cell(folder, "learned").finished


def test_a_lost_donor_loses_its_taker_which_says_so(folder: Path, cli: Cli):
    file = (folder / "study.toml").read_text(encoding="utf-8")
    exploding = "[arms.learned]\noptimiser = { matrix_learning_rate = 1e30 }"
    (folder / "study.toml").write_text(file.replace("[arms.learned]", exploding), encoding="utf-8")
    assert train(folder) == [
        ("standard", "started"),
        ("standard", "finished"),
        ("learned", "started"),
        ("learned", "diverged"),
        ("kept", "started"),
        ("kept", "diverged"),
    ]
    taker = cell(folder, "kept")
    assert taker.state == "diverged"
    assert {key: taker.summary()[key] for key in ("reason", "step")} == {
        "reason": "the donor tiny/learned/0 diverged, so there is nothing to start from",
        "step": 0,
    }
    assert taker.metrics() == []
    assert train(folder) == [], "and it stays so"
    verdicts = verdicts_of(read_study(loading.load(folder / "study.toml"), folder / "runs"))
    assert verdicts[0].word in (Word.DIVERGENCE, Word.EXPLORATORY), "one seed is exploratory whatever happens"
    assert verdicts[0].treatment_diverged == 1
    code, _, err = cli("report", "study.toml")
    assert (code, err) == (0, "")
    data = json.loads((folder / "runs" / "tiny" / "report.json").read_text(encoding="utf-8"))
    assert {c["arm"]: c["state"] for c in data["cells"]} == {
        "standard": "complete",
        "learned": "diverged",
        "kept": "diverged",
    }


def test_a_donor_whose_last_state_is_gone_is_named_with_its_remedy(folder: Path):
    train(folder)
    shutil.rmtree(cell(folder, "kept").path)
    shutil.rmtree(cell(folder, "learned").path / "checkpoints" / "step-00000020")
    train(folder)
    reason = parked(cell(folder, "kept").path)
    assert reason is not None
    assert "does not hold the state at its last update" in str(reason)
    assert "delete this cell's folder" in str(reason)
