"""A disk that fills up in the middle of a write: what was there stays, nothing half written is left, and it is said.

The disk is full for a process of its own, by the largest file that it may write (any user can set that) and, where
mounts are allowed, by a file system of a few hundred kilobytes.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from paribus.runs.folder import CellFolder
from paribus.runs.study_folder import StudyFolder
from paribus.runs.verifying import verify

# Makes a study, fills the disk, and tries every write that training and a report make; each must be refused.
WRITER = """
import os, resource, sys
from pathlib import Path
from paribus.errors import StorageError
from paribus.runs.folder import CellFolder
from paribus.runs.study_folder import StudyFolder

where, how = Path(sys.argv[1]), sys.argv[2]
study = StudyFolder(where / "runs" / "tiny")
study.claim_for("tiny")
study.write_plan({"cells": [], "arms": [], "gates": [], "diagnostics": [], "environment": {}})
study.append_look("report", {"main": 1}, {}, "r")
cell = study.cell("S", "standard", 1, "abc")
record = {"scale": "S", "arm": "standard", "seed": 1, "digest": "abc", "initial_digests": {"a": "0"}}
cell.write_record({**record, "environment": {}, "code_version": "x"})
line = {"tokens_seen": 1, "loss_nats_per_token": 1.0}
files = {"state.safetensors": os.urandom(30_000)}
for step in (1, 2):
    cell.append_metrics({**line, "step": step, "note": "n" * 100})
    cell.write_rows(f"likelihood/test-{step:08d}", {"nats": [1.5, 2.5]})
    cell.write_checkpoint(step, files)
print("kept", sum(path.is_file() for path in where.rglob("*")), flush=True)

if how == "limit":  # nothing may grow beyond what the smallest of these writes needs
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
else:
    with (where / "filler").open("wb", buffering=0) as filler:
        for size in (4096, 1):
            try:
                while filler.write(b"f" * size):
                    pass
            except OSError:
                pass
long = "x" * 9000
for name, write in {
    "record": lambda: cell.write_record({**record, "note": long}),
    "metrics": lambda: cell.append_metrics({**line, "step": 3, "note": long}),
    "kept metrics": lambda: cell.keep_metrics_until(2),
    "end": lambda: cell.finish({"steps": 2, "note": long}),
    "rows": lambda: cell.write_rows("likelihood/test-00000003", {"nats": [float(n) ** 0.5 for n in range(2000)]}),
    "a new checkpoint": lambda: cell.write_checkpoint(3, files),
    "the same checkpoint": lambda: cell.write_checkpoint(2, files),
    "plan": lambda: study.write_plan({"note": long}),
    "look": lambda: study.append_look("report " + long, {"main": 1}, {}, "r"),
    "cost": lambda: study.write_cost("S", {"note": long}),
}.items():
    try:
        write()
    except StorageError as error:
        assert "finished cells and checkpoints are kept" in error.remedy, error.remedy
        print("refused", name)
    else:
        print("written", name)
"""
CELL = ["record", "metrics", "kept metrics", "end", "rows", "a new checkpoint", "the same checkpoint"]
REFUSED = [f"refused {name}" for name in [*CELL, "plan", "look", "cost"]]


def all_is_as_it_was(where: Path) -> None:
    study = StudyFolder(where / "runs" / "tiny")
    cell = CellFolder(study.path / "S" / "standard" / "1-abc")
    assert list(verify(study.path)) == []
    assert not list(where.rglob("*.partial"))
    assert [line["step"] for line in cell.metrics()] == [1, 2]
    assert cell.checkpoint_steps() == [1, 2]
    latest = cell.latest_checkpoint()
    assert latest is not None
    assert latest[0] == 2
    assert not cell.finished
    assert len(study.looks()) == 1
    assert study.plan() is not None
    cell.keep_metrics_until(2)  # and with room again, training goes on
    cell.write_rows("likelihood/test-00000003", {"nats": [1.0]})
    cell.append_metrics({"step": 3, "tokens_seen": 1, "loss_nats_per_token": 1.0})
    cell.write_checkpoint(3, {"state.safetensors": b"s"})
    assert list(verify(study.path)) == []


def test_a_process_that_may_write_no_more_leaves_everything_as_it_was(tmp_path: Path):
    command = [sys.executable, "-c", WRITER, str(tmp_path), "limit"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    kept, *said = done.stdout.splitlines()
    assert said == REFUSED
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) - int(kept.split()[1]) in (0, 1)
    all_is_as_it_was(tmp_path)


def _may_mount() -> bool:
    command = ["unshare", "--mount", "--map-root-user", "mount", "-t", "tmpfs", "none", "/mnt"]
    if shutil.which("unshare") is None:
        return False
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_a_file_system_that_fills_up_leaves_everything_as_it_was(tmp_path: Path):
    if not _may_mount():
        pytest.skip("this user may not mount a file system, not even in a name space of its own")
    small, copy = tmp_path / "small", tmp_path / "copy"
    small.mkdir()
    # The mount ends with the process: what it holds is copied out, without the filler.
    script = 'mount -t tmpfs -o size=400k none "$1" && "$2" -c "$4" "$1" full && rm "$1/filler" && cp -a "$1" "$3"'
    command = ["unshare", "--mount", "--map-root-user", "sh", "-c", script, "sh", small, sys.executable, copy, WRITER]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    _, *said = done.stdout.splitlines()
    assert set(said) >= {f"refused {name}" for name in ("record", "metrics", "rows", "a new checkpoint", "end", "look")}
    all_is_as_it_was(copy)
