"""One cell, killed again and again at chosen moments by real signals, must end as if nothing had happened.

A driver imports the program once and forks a process for each attempt; an attempt kills itself at its moment.
"""

import json
import shutil
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from paribus.runs.folder import CellFolder
from paribus.runs.holders import history

DRIVER = """
import json, os, shutil, signal, sys
from pathlib import Path

import torch

from paribus import study as house, training
from paribus.experiment import loading
from paribus.runs import checkpoints, records
from paribus.runs import folder as runs
from paribus.runs.claims import claim

file, folder, arm, moments = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], json.loads(sys.argv[4])


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def half(path, content):
    path.write_bytes(content[: len(content) // 2])
    die()


def arrange(moment):
    # Replaces one function of this process, so that it dies where the moment says. Returns (emit, should_stop).
    kind, _, step = moment.partition(" ")
    stepped = [0]

    def emit(event):
        stepped[0] = event.get("step", 0)
        if kind == "update" and event["kind"] == "step" and event["step"] == int(step):
            die()

    write_flushed, append_line, rmtree, write_json = (
        checkpoints.write_flushed, runs.append_line, shutil.rmtree, runs.write_json
    )

    def dying_write(path, content):
        if step and f"step-{int(step):08d}" in path.parent.name:
            if path.name == kind:
                half(path, content)
            if path.name == checkpoints.MARKER and kind == "marker":
                die()
        write_flushed(path, content)

    def torn_line(path, value, fence=None, **options):
        if kind == "metrics" and path.name == "metrics.jsonl" and value["step"] == int(step):
            with path.open("ab") as file:
                file.write(records.json_line(value)[:20])
                file.flush()
                die()
        append_line(path, value, fence, **options)

    def dying_removal(path, **options):
        if kind == "removal" and Path(path).name.startswith(f".step-{int(step):08d}."):
            die()
        rmtree(path, **options)

    def dying_rows(self, name, columns):
        if kind == "rows" and name == f"likelihood/test-{int(step):08d}":
            die()
        write_rows(self, name, columns)

    def dying_json(path, value, fence=None):
        if kind == "end" and path.name == "DONE":
            die()
        write_json(path, value, fence)

    write_rows = runs.CellFolder.write_rows
    checkpoints.write_flushed, runs.append_line, runs.write_json = dying_write, torn_line, dying_json
    runs.CellFolder.write_rows, shutil.rmtree = dying_rows, dying_removal
    return emit, lambda: kind == "stop" and stepped[0] >= int(step)


def attempt(moment):
    emit, should_stop = arrange(moment)
    experiment = loading.load(file)
    study = house.open_study(experiment, file.parent, folder)
    cell = next(cell for cell in study.cells if (cell.arm, cell.seed, cell.variant) == (arm, 0, ""))
    house.prepare_process(experiment.execution)
    with claim(study.cell_folder(cell).path) as held:
        assert held
        training.train_cell(study, cell, emit, should_stop, held)


torch.set_num_threads(1)
for moment in moments:
    child = os.fork()
    if child == 0:
        attempt(moment)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    (cell,) = (folder / "tiny" / "tiny" / arm).iterdir()
    complete = sorted(int(m.parent.name[5:]) for m in cell.glob(f"checkpoints/step-*/{checkpoints.MARKER}"))
    print(json.dumps([moment, os.waitstatus_to_exitcode(status), complete, runs.CellFolder(cell).state]), flush=True)
"""

ARM = "rd"
KILLED = -int(signal.SIGKILL)
HISTORY: list[tuple[str, int, list[int], str]] = [
    ("update 3", KILLED, [], "started"),  # before the first checkpoint
    ("state.safetensors 5", KILLED, [], "started"),  # inside a checkpoint's first file
    ("state.json 5", KILLED, [], "started"),  # between its files
    ("marker 5", KILLED, [], "started"),  # all its files are there, but nothing vouches for them
    ("metrics 8", KILLED, [5], "started"),  # inside a line of the metrics
    ("rows 10", KILLED, [5, 10], "started"),  # while the milestone is measured
    ("removal 5", KILLED, [10, 15], "started"),  # while the oldest checkpoint is removed
    ("stop 17", 0, [15, 17], "started"),  # stopped as by Ctrl-C
    ("state.safetensors 20", KILLED, [15, 17], "started"),  # inside the last checkpoint
    ("rows 20", KILLED, [17, 20], "started"),  # while the end is measured
    ("end 20", KILLED, [17, 20], "started"),  # everything is there but DONE
    ("never", 0, [17, 20], "complete"),
]
RESUMED_AT = [5, 10, 15, 17, 17, 20, 20]
"""updates of the checkpoints that attempts began with; the first five began at nothing"""


@dataclass(frozen=True)
class Resumed:
    """What the driver reported, and the cell's folders with and without interruptions."""

    reported: list[Any]
    interrupted: Path
    uninterrupted: Path


@pytest.fixture(scope="module")
def resumed(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Resumed:
    folder = tmp_path_factory.mktemp("resume")
    reports = []
    for name, moments in (("interrupted", [moment for moment, *_ in HISTORY]), ("uninterrupted", ["never"])):
        shutil.copytree(prepared / "runs", folder / name)
        command = [sys.executable, "-c", DRIVER, str(prepared / "study.toml"), str(folder / name), ARM]
        done = subprocess.run([*command, json.dumps(moments)], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        reports.append([json.loads(line) for line in done.stdout.splitlines()])
    places = (folder / name / "tiny" / "tiny" / ARM for name in ("interrupted", "uninterrupted"))
    return Resumed(reports[0], *(next(place.iterdir()) for place in places))


def test_a_kill_leaves_the_last_marked_checkpoint(resumed: Resumed):
    assert [tuple(line) for line in resumed.reported] == HISTORY


def test_a_cell_killed_at_any_moment_ends_bit_identical_to_an_uninterrupted_one(resumed: Resumed, trained):
    interrupted, uninterrupted = trained(resumed.interrupted), trained(resumed.uninterrupted)
    for key in ("final_tensors_digest", "batch_digest", "steps", "tokens_seen"):
        assert interrupted["summary"][key] == uninterrupted["summary"][key]
    assert interrupted["metrics"] == uninterrupted["metrics"]
    assert [line["step"] for line in interrupted["metrics"]] == list(range(1, 21))
    assert interrupted["rows"] == uninterrupted["rows"]
    assert len(interrupted["rows"]) == 7, "two splits at two milestones, diagnostics, interventions and routes"
    assert interrupted == uninterrupted


def test_the_checkpoints_themselves_are_the_same_bytes(resumed: Resumed):
    last = [cell / "checkpoints" / "step-00000020" for cell in (resumed.interrupted, resumed.uninterrupted)]
    for name in ("state.safetensors", "state.json"):
        assert (last[0] / name).read_bytes() == (last[1] / name).read_bytes()


def test_the_time_on_record_is_the_sum_of_the_updates_that_count(resumed: Resumed):
    metrics = (resumed.interrupted / "metrics.jsonl").read_text(encoding="utf-8")
    lines = [json.loads(line) for line in metrics.splitlines()]
    summary = json.loads((resumed.interrupted / "DONE").read_text(encoding="utf-8"))
    assert summary["train_seconds"] == pytest.approx(sum(line["wall_seconds"] for line in lines))


def test_each_line_names_its_holder_and_each_resume_is_on_record(resumed: Resumed):
    cell = CellFolder(resumed.interrupted)
    tokens = [line["token"] for line in cell.metrics()]
    assert tokens == sorted(tokens), "a later holder has a higher token"
    assert len(history(cell.path)) == len(HISTORY), "one claim an attempt"
    record = cell.record()
    assert [entry["step"] for entry in record["resumed"]] == RESUMED_AT
    assert [entry["token"] for entry in record["resumed"]] == list(range(6, 13))
    for entry in record["resumed"]:
        assert entry["host"] == socket.gethostname()
        assert entry["environment"] == record["environment"]
    assert "resumed" not in CellFolder(resumed.uninterrupted).record()
    assert cell.record()["initial_digests"] == CellFolder(resumed.uninterrupted).record()["initial_digests"]
