"""Real processes of the command line: two at once, interrupted, killed, out of space."""

import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from paribus.draining import train_missing
from paribus.experiment import loading
from paribus.launch.local import RESUMABLE, run_workers
from paribus.runs.checkpoints import MARKER
from paribus.runs.failures import failures
from paribus.runs.folder import CellFolder
from paribus.runs.holders import claimed, history
from paribus.study import open_study

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads which processes live from /proc")

Start = Callable[..., subprocess.Popen[str]]
PATIENCE = 120.0
LONG = {"batch_tokens": "64"}
"""157 updates a cell: long enough to be met on the way"""


def cells(folder: Path) -> dict[str, CellFolder]:
    """Cell folders by "arm/seed"."""
    found = sorted((folder / "runs" / "tiny" / "tiny").glob("*/*"))
    return {f"{path.parent.name}/{path.name.split('-')[0]}": CellFolder(path) for path in found}


def wait_for(
    what: Callable[[], bool], process: subprocess.Popen[str] | None = None, patience: float = PATIENCE
) -> None:
    """Wait until `what` holds. Fails where the process ends first, or when patience (in seconds) does."""
    end = time.monotonic() + patience
    while not what():
        if process is not None and process.poll() is not None:
            pytest.fail(f"ended early: {process.communicate(timeout=PATIENCE)}")
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.005)


def children(parent: int) -> dict[int, str]:
    """Living children of a process, with their command lines."""
    found = {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            state, above = (place / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[:2]
            if int(above) == parent and state != "Z":
                found[int(place.name)] = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def workers(process: subprocess.Popen[str]) -> list[int]:
    return [pid for pid, command in children(process.pid).items() if "spawn_main" in command]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def mapped(pid: int) -> str:
    """The files that a process has mapped into its memory."""
    try:
        return Path(f"/proc/{pid}/maps").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def lines(cell: CellFolder) -> int:
    path = cell.path / "metrics.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def under_way(folder: Path, updates: int = 3) -> Callable[[], bool]:
    """Whether some cell has finished a few updates and is not complete."""
    return lambda: any(lines(cell) >= updates and not cell.finished for cell in cells(folder).values())


def train_the_rest(folder: Path, should_stop: Callable[[], bool] = lambda: False) -> None:
    """Train what is missing inside this process."""
    train_missing(open_study(loading.load(folder / "study.toml"), folder, folder / "runs"), lambda _: None, should_stop)


def marked(cell: CellFolder) -> list[int]:
    return sorted(int(path.parent.name[5:]) for path in cell.path.glob(f"checkpoints/step-*/{MARKER}"))


@pytest.fixture
def write(fresh: Path, text: Callable[..., str]) -> Callable[..., Path]:
    """The working folder with an experiment file that differs as said."""

    def to(**changes: object) -> Path:
        (fresh / "study.toml").write_text(text(**changes), encoding="utf-8")
        return fresh

    return to


def test_two_runs_at_once_train_every_cell_exactly_once(
    tmp_path: Path, text: Callable[..., str], paribus: Start, trained, finished: Path
):
    # From nothing: they also meet while the run folder and the corpus are made.
    file = text(arms=("standard", "xsa"), seeds=2, execution="workers = 1")
    (tmp_path / "study.toml").write_text(file, encoding="utf-8")
    processes = [paribus(tmp_path, "run", "study.toml") for _ in range(2)]
    outputs = [process.communicate(timeout=PATIENCE) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    trainings = Counter(line.split()[3] for out, _ in outputs for line in out.splitlines() if " trained in " in line)
    assert trainings == dict.fromkeys([f"tiny/{arm}/{seed}" for arm in ("standard", "xsa") for seed in range(2)], 1)
    reference = cells(finished)
    for name, cell in cells(tmp_path).items():
        assert cell.state == "complete"
        assert [line["step"] for line in cell.metrics()] == list(range(1, 21))
        if name != "standard/0":  # has a repeat beside it in the reference
            assert trained(cell.path) == trained(reference[name].path)


def test_a_killed_parents_workers_end_and_sigterm_leaves_a_study_that_the_next_run_completes(
    write: Callable[..., Path], paribus: Start
):
    folder = write(arms=("standard", "xsa"), seeds=1, execution="workers = 1", **LONG)

    process = paribus(folder, "run", "study.toml")
    wait_for(under_way(folder), process)
    (worker,) = workers(process)
    process.kill()
    process.communicate(timeout=PATIENCE)
    wait_for(lambda: not alive(worker))
    (cell,) = cells(folder).values()
    assert not claimed(cell.path)
    # It ended by itself, at an update, with a checkpoint of that update.
    assert marked(cell)[-1] == lines(cell)
    reached = lines(cell)

    process = paribus(folder, "run", "study.toml")
    wait_for(lambda: lines(cell) > reached and not cell.finished, process)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == RESUMABLE == 75, err
    assert err == ""
    assert "tiny/standard/0 stopped at step" in out
    assert "a second signal ends it at once" in out
    assert "the same command continues from the last checkpoints" in out
    assert cell.state == "started"
    assert marked(cell)[-1] == lines(cell) > reached
    assert not (folder / "runs" / "tiny" / "looks.jsonl").exists(), "nobody has seen an outcome"

    train_the_rest(folder)
    assert len(cells(folder)) == 2
    for cell in cells(folder).values():
        assert cell.state == "complete"
        assert [line["step"] for line in cell.metrics()] == list(range(1, 158))


def test_a_killed_worker_is_reported_and_the_others_finish_its_cell_too(write: Callable[..., Path], paribus: Start):
    folder = write(arms=("standard", "xsa"), seeds=1, execution="workers = 2\ncost_rounds = 0", **LONG)
    process = paribus(folder, "run", "study.toml")
    wait_for(lambda: len(workers(process)) == 2 and len(cells(folder)) == 2, process)
    wait_for(lambda: all(lines(cell) for cell in cells(folder).values()), process)
    killed = workers(process)[0]
    os.kill(killed, signal.SIGKILL)
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err) == (0, "")
    assert "1 of 2 workers ended unexpectedly, exit codes -9" in out
    assert f"its worker ended without a word (process {killed} of " in out
    for cell in cells(folder).values():
        assert cell.state == "complete"
        assert [line["step"] for line in cell.metrics()] == list(range(1, 158))
    attempts = [failures(cell.path) for cell in cells(folder).values()]
    assert sorted(map(len, attempts)) == [0, 1], "one attempt was in vain, and is on record"
    assert sorted(len(history(cell.path)) for cell in cells(folder).values()) == [1, 2]


def test_a_full_disk_is_one_clear_error_and_nothing_finished_is_lost(
    write: Callable[..., Path], paribus: Start, trained, contents, finished: Path
):
    folder = write(arms=("standard", "xsa"), seeds=1)
    train_the_rest(folder)
    shutil.rmtree(cells(folder)["xsa/0"].path)
    # The kernel refuses to let any file grow beyond this: everything fits but a checkpoint.
    kept = contents(folder / "runs")
    process = paribus(
        folder, "run", "study.toml", first="resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))"
    )
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    assert err.startswith("error: could not write ")
    assert "step-00000005" in err
    assert "remedy: " in err
    assert "Traceback" not in err
    after = contents(folder / "runs")
    assert {name: after[name] for name in kept} == kept, "what was finished is untouched"
    assert [name for name, cell in cells(folder).items() if cell.state == "complete"] == ["standard/0"]
    train_the_rest(folder)
    assert trained(cells(folder)["xsa/0"].path) == trained(cells(finished)["xsa/0"].path)
    assert not list((folder / "runs").rglob("PARKED")), "the disk is no cell's fault"
    assert not any(failures(cell.path) for cell in cells(folder).values())


def test_an_interrupt_while_workers_start_prints_no_traceback(write: Callable[..., Path], paribus: Start):
    folder = write(arms=("standard", "xsa"), seeds=1, execution="workers = 2")
    process = paribus(folder, "run", "study.toml")
    # In the middle of their imports, where Ctrl-C would be an exception of theirs.
    wait_for(lambda: any("libtorch" in mapped(pid) for pid in workers(process)), process)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err) == (75, "")
    assert not any(cell.finished for cell in cells(folder).values())
    assert json.loads((folder / "runs" / "tiny" / "study.json").read_text(encoding="utf-8"))["study"] == "tiny"


def test_workers_end_when_their_parent_fails_while_it_listens(write: Callable[..., Path]):
    folder = write(arms=("standard", "xsa"), seeds=1, **LONG)

    def failing(event: dict) -> None:
        if event["kind"] == "step":
            raise RuntimeError("while listening")

    with pytest.raises(RuntimeError, match="while listening") as caught:
        run_workers(1, loading.load(folder / "study.toml"), folder, folder / "runs", failing)
    try:
        wait_for(lambda: not multiprocessing.active_children(), patience=30)
    finally:
        for worker in multiprocessing.active_children():
            worker.terminate()
    assert caught.tb is not None  # held until here: what its frames hold is not closed by being forgotten
    (cell,) = cells(folder).values()
    assert cell.state == "started", "it did not go on for nobody"
    assert marked(cell)[-1] == lines(cell)
