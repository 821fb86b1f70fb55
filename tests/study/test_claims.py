"""Several workers on one study: killed, stopped, frozen and thawed, and a cell that fails whoever tries it.

A driver imports the program once and forks a process for each worker, which then runs as `paribus work` does.
"""

import errno
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from paribus import draining, training
from paribus.draining import train_missing
from paribus.errors import ParibusError, StorageError
from paribus.experiment import loading
from paribus.runs.claims import claim
from paribus.runs.environment import environment
from paribus.runs.failures import failures, is_parked, parked, retry
from paribus.runs.folder import CellFolder
from paribus.runs.holders import claimed, history
from paribus.study import open_study

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads from /proc which processes live")

DRIVER = """
import json, os, sys, time, traceback
from pathlib import Path

import torch

from paribus.errors import ParibusError
from paribus.experiment import loading
from paribus.launch.local import RESUMABLE, train_here
from paribus.runs.folder import CellFolder
from paribus.study import open_study


def never_ending(self, step, files, kept=()):
    Path("writing").touch()
    time.sleep(60)


def work(folder, log, stuck):
    os.chdir(folder)
    sys.path.insert(0, folder)
    if stuck:
        CellFolder.write_checkpoint = never_ending
    with open(log, "a", buffering=1) as file:
        emit = lambda event: file.write(json.dumps(event) + "\\n") and None
        study = open_study(loading.load(Path("study.toml")), Path.cwd(), Path.cwd() / "runs")
        try:
            done = train_here(study, emit, lambda line: emit({"kind": "said", "line": line}))
        except ParibusError as error:
            emit({"kind": "error", "what": error.what, "received": error.received})
            return 1
        return 0 if done else RESUMABLE


torch.set_num_threads(1)
print("ready", flush=True)
for line in sys.stdin:
    command, *arguments = json.loads(line)
    if command == "fork":
        child = os.fork()
        if child == 0:
            code = 99
            try:
                code = work(*arguments)
            except BaseException:
                traceback.print_exc()
            os._exit(code)
        print(child, flush=True)
    else:
        print(os.waitstatus_to_exitcode(os.waitpid(arguments[0], 0)[1]), flush=True)
"""
FRAGILE = '''
"""A map that changes nothing, and fails while it is trained as long as a file says so."""

import os
import signal
from pathlib import Path

from torch import nn

from paribus.mechanisms.contract import MechanismConfig, Seam


class Fragile(nn.Module):
    def forward(self, y, values, document):
        if self.training and y.device.type != "meta":
            if Path("raising").exists():
                raise RuntimeError("on purpose")
            if Path("deadly").exists():
                os.kill(os.getpid(), signal.SIGKILL)
        return y


class FragileConfig(MechanismConfig):
    name = "fragile"
    seam = Seam.OUTPUT_MAP

    def build(self, geometry, layer):
        return Fragile()
'''
BROKEN = '[arms.broken]\noutput_map = { name = "fragile:fragile" }'
ALONE = """[contrasts.broken]
treatment = "broken"
baseline = "standard"
primary = true
smallest_effect = 0.01
design_effect = 0.03"""
ARMS = ("standard", "xsa")
LONG = {"batch_tokens": "128"}
"""79 updates a cell: long enough to be met on the way"""
PATIENCE = 90.0


@dataclass
class Worker:
    """A process of the driver."""

    pid: int
    log: Path

    def events(self, kind: str = "") -> list[dict[str, Any]]:
        lines = self.log.read_text(encoding="utf-8").split("\n")[:-1] if self.log.exists() else []
        found = [json.loads(line) for line in lines]
        return [event for event in found if kind in ("", event["kind"])]

    def said(self) -> str:
        return "\n".join(event["line"] for event in self.events("said"))

    def cells(self, kind: str) -> list[str]:
        return [f"{event['arm']}/{event['seed']}" for event in self.events(kind)]

    def send(self, number: int) -> None:
        os.kill(self.pid, number)


class Driver:
    """See DRIVER."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._living: set[int] = set()

    def _ask(self, *command: object) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def fork(self, folder: Path, *, stuck: bool = False) -> Worker:
        log = folder / f"worker-{len(list(folder.glob('worker-*')))}.jsonl"
        log.touch()
        worker = Worker(self._ask("fork", str(folder), str(log), stuck), log)
        self._living.add(worker.pid)
        return worker

    def wait(self, *workers: Worker) -> list[int]:
        """Their exit codes."""
        codes = [self._ask("wait", worker.pid) for worker in workers]
        self._living -= {worker.pid for worker in workers}
        return codes

    def end(self) -> None:
        for pid in self._living:  # where a test has failed
            os.kill(pid, signal.SIGKILL)
        self._process.kill()
        self._process.communicate()


@pytest.fixture(scope="module")
def driver() -> Iterator[Driver]:
    command = [sys.executable, "-c", DRIVER]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    found = Driver(process)
    yield found
    found.end()


@pytest.fixture(scope="module")
def make(prepared: Path, text: Callable[..., str], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A folder of its own with a study that differs as said, and `more` arms."""

    def to(more: str = "", **changes: Any) -> Path:
        folder = tmp_path_factory.mktemp("study")
        shutil.copytree(prepared / "runs", folder / "runs")
        file = text(**{"arms": ARMS, "seeds": 1, **changes}).replace("[seeds]", f"{more}\n[seeds]")
        (folder / "study.toml").write_text(file, encoding="utf-8")
        (folder / "fragile.py").write_text(FRAGILE, encoding="utf-8")
        return folder

    return to


def cells(folder: Path) -> dict[str, CellFolder]:
    """Cell folders by "arm/seed"."""
    found = sorted((folder / "runs" / "tiny" / "tiny").glob("*/*"))
    return {f"{path.parent.name}/{path.name.split('-')[0]}": CellFolder(path) for path in found}


def wait_for(what: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.01)


def lines(cell: CellFolder) -> int:
    path = cell.path / "metrics.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def meet(folder: Path, worker: Worker, updates: int = 7) -> CellFolder:
    """The cell that the worker trains, which is some updates on."""
    wait_for(lambda: len(worker.events("step")) >= updates)
    event = worker.events("started")[-1]
    return cells(folder)[f"{event['arm']}/{event['seed']}"]


@pytest.fixture(scope="module")
def undisturbed(driver: Driver, make: Callable[..., Path]) -> tuple[Path, list[Worker], list[int]]:
    """Six cells that four workers have trained, and what the workers said and ended with."""
    folder = make(seeds=3, **LONG)
    workers = [driver.fork(folder) for _ in range(4)]
    return folder, workers, driver.wait(*workers)


def test_four_workers_train_every_cell_exactly_once_and_pairs_complete_first(
    undisturbed: tuple[Path, list[Worker], list[int]],
):
    folder, workers, codes = undisturbed
    assert codes == [0, 0, 0, 0]
    finished = [name for worker in workers for name in worker.cells("finished")]
    assert sorted(finished) == sorted(cells(folder)) == [f"{arm}/{seed}" for arm in ARMS for seed in range(3)]
    taken: list[tuple[datetime, int]] = []
    for name, cell in cells(folder).items():
        assert cell.state == "complete"
        assert [line["step"] for line in cell.metrics()] == list(range(1, 80))
        (held,) = history(cell.path)
        assert held.released is not None
        assert {line["token"] for line in cell.metrics()} == {1}
        assert failures(cell.path) == []
        taken.append((datetime.fromisoformat(held.taken), int(name[-1])))
    assert [seed for _, seed in sorted(taken)] == [0, 0, 1, 1, 2, 2], "arms of a seed together, early seeds first"


def test_a_killed_workers_cell_is_taken_over_at_once_and_ends_as_if_nothing_had_happened(
    driver: Driver, make: Callable[..., Path], undisturbed: tuple[Path, list[Worker], list[int]], trained
):
    folder = make(execution="lease_seconds = 600", **LONG)
    first = driver.fork(folder)
    cell = meet(folder, first)
    first.send(signal.SIGKILL)
    second = driver.fork(folder)  # also before anybody has reaped the first
    assert driver.wait(first, second) == [-9, 0]
    assert second.cells("finished") == ["standard/0", "xsa/0"], "the pair that is older is completed first"
    (attempt,) = failures(cell.path)
    assert attempt.token == 1
    assert attempt.checkpoint_step in (5, 10)
    assert f"ended without a word (process {first.pid} of {socket.gethostname()}" in attempt.reason
    for name, each in cells(folder).items():
        assert trained(each.path) == trained(cells(undisturbed[0])[name].path)
    tokens = [line["token"] for line in cell.metrics()]
    assert tokens == sorted(tokens)
    assert set(tokens) == {1, 2}


def test_a_worker_that_was_frozen_finds_its_writes_refused_and_goes_on_with_the_next_cell(
    driver: Driver, make: Callable[..., Path], undisturbed: tuple[Path, list[Worker], list[int]], trained
):
    # So many cells that the other worker is far from done with them when the lease has run out.
    folder = make(seeds=6, execution="lease_seconds = 1.5", **LONG)
    frozen = driver.fork(folder)
    cell = meet(folder, frozen)
    frozen.send(signal.SIGSTOP)
    other = driver.fork(folder)
    wait_for(lambda: "standard/0" in other.cells("started"))
    frozen.send(signal.SIGCONT)
    assert driver.wait(frozen, other) == [0, 0]
    (left,) = frozen.events("stopped")
    assert (left["arm"], left["seed"]) == ("standard", 0)
    assert left["reason"] == "claim 2 was made by another worker"
    assert "tiny/standard/0 was left to another worker" in frozen.said()
    assert "standard/0" not in frozen.cells("finished")
    assert frozen.cells("finished"), "it went on"
    finished = [*frozen.cells("finished"), *other.cells("finished")]
    assert sorted(finished) == sorted(cells(folder)), "each by one of them"
    assert "gave no sign of life any more" in failures(cell.path)[0].reason
    for name, each in cells(undisturbed[0]).items():
        assert trained(cells(folder)[name].path) == trained(each.path)
    owners = [each.owner.pid for each in history(cell.path) if each.owner is not None]
    assert owners == [frozen.pid, other.pid]
    (resume,) = cell.record()["resumed"]
    assert (resume["host"], resume["token"]) == (socket.gethostname(), 2)
    assert resume["environment"] == cell.record()["environment"]


def test_a_cell_that_always_fails_is_parked_and_the_others_finish(driver: Driver, make: Callable[..., Path]):
    folder = make(BROKEN, seeds=2)
    (folder / "raising").touch()
    workers = [driver.fork(folder) for _ in range(2)]
    assert driver.wait(*workers) == [1, 1]
    for worker in workers:
        (error,) = worker.events("error")
        assert error["what"] == "2 cells are parked after too many failed attempts: tiny/broken/0, tiny/broken/1"
        assert "tiny/broken/0: RuntimeError: on purpose" in error["received"]
    found = cells(folder)
    assert [name for name, cell in found.items() if cell.state == "complete"] == [
        f"{arm}/{seed}" for arm in ARMS for seed in range(2)
    ]
    for seed in range(2):
        reasons = parked(found[f"broken/{seed}"].path)
        assert reasons is not None
        assert [reason.token for reason in reasons] == [1, 2, 3]
        assert all("fragile.py" in reason.reason for reason in reasons), "where it failed"
    assert driver.wait(driver.fork(folder)) == [1], "it stays parked"
    assert len(history(found["broken/0"].path)) == 3, "nobody tried it again"
    (folder / "raising").unlink()
    assert len(retry(folder / "runs" / "tiny")) == 2
    assert driver.wait(driver.fork(folder)) == [0]
    assert all(cell.state == "complete" for cell in found.values())


def test_a_cell_that_kills_its_workers_is_parked_by_one_that_does_not_try_it(driver: Driver, make: Callable[..., Path]):
    folder = make(f"{BROKEN}\n{ALONE}", arms=("standard",))
    (folder / "deadly").touch()
    assert [driver.wait(driver.fork(folder))[0] for _ in range(4)] == [-9, -9, -9, 1]
    found = cells(folder)
    assert found["standard/0"].state == "complete"
    assert is_parked(found["broken/0"].path)
    assert not claimed(found["broken/0"].path)
    assert all("ended without a word" in failure.reason for failure in failures(found["broken/0"].path))


def test_sigterm_leaves_a_checkpoint_and_the_code_for_trying_again(
    driver: Driver, make: Callable[..., Path], undisturbed: tuple[Path, list[Worker], list[int]], trained
):
    folder = make(**LONG)
    worker = driver.fork(folder)
    cell = meet(folder, worker)
    worker.send(signal.SIGTERM)
    assert driver.wait(worker) == [75]
    reached = lines(cell)
    assert reached < 79
    assert cell.checkpoint_steps()[-1] == reached, "nothing was lost"
    assert worker.events("stopped")[0]["step"] == reached
    assert "the longest stretch up to a checkpoint took" in worker.said()
    assert not claimed(cell.path)
    assert driver.wait(driver.fork(folder)) == [0]
    assert failures(cell.path) == [], "a wish to stop is no failure"
    assert [entry["step"] for entry in cell.record()["resumed"]] == [reached]
    for name, each in cells(folder).items():
        assert trained(each.path) == trained(cells(undisturbed[0])[name].path)


def test_a_second_signal_ends_a_worker_at_once_and_loses_nothing_older_than_the_last_checkpoint(
    driver: Driver, make: Callable[..., Path], undisturbed: tuple[Path, list[Worker], list[int]], trained
):
    folder = make(**LONG)
    worker = driver.fork(folder)
    cell = meet(folder, worker, 6)
    worker.send(signal.SIGTERM)
    assert driver.wait(worker) == [75]
    kept = cell.checkpoint_steps()[-1]
    stuck = driver.fork(folder, stuck=True)
    wait_for((folder / "writing").exists)  # its next checkpoint never ends
    stuck.send(signal.SIGINT)
    time.sleep(0.3)
    assert Path(f"/proc/{stuck.pid}").exists(), "one is a wish"
    stuck.send(signal.SIGINT)
    assert driver.wait(stuck) == [-2]
    assert cell.checkpoint_steps()[-1] == kept
    assert driver.wait(driver.fork(folder)) == [0]
    for name, each in cells(folder).items():
        assert trained(each.path) == trained(cells(undisturbed[0])[name].path)


def test_a_wish_to_stop_interrupts_a_measurement_which_is_then_made_anew(
    make: Callable[..., Path], trained, monkeypatch: pytest.MonkeyPatch
):
    folder, other = make(), make()

    def train(where: Path, should_stop: Callable[[], bool] = lambda: False) -> list[dict[str, Any]]:
        events: list[dict[str, Any]] = []
        study = open_study(loading.load(where / "study.toml"), where, where / "runs")
        train_missing(replace(study, cells=study.cells[:1]), events.append, should_stop)
        return [event for event in events if event["kind"] != "step"]

    measuring = False

    def watched(*arguments: Any) -> Iterator[dict[str, Any]]:
        nonlocal measuring
        for number, measured in enumerate(measure(*arguments)):
            yield measured
            measuring = number == 0  # after the first of two splits

    measure = training.measure
    monkeypatch.setattr(training, "measure", watched)
    assert [(e["kind"], e["step"]) for e in train(folder, lambda: measuring)] == [("started", 0), ("stopped", 10)]
    (cell,) = cells(folder).values()
    assert cell.checkpoint_steps() == [5, 10]
    assert cell.row_files("likelihood") == ["likelihood/test-00000010"]
    monkeypatch.undo()
    # And meanwhile somebody has upgraded torch.
    with monkeypatch.context() as upgraded:
        upgraded.setattr(training, "environment", lambda: {**environment(), "torch": "99.0"})
        assert [event["kind"] for event in train(folder)] == ["started", "finished"]
    record = cell.record()
    assert record["environment"]["torch"] == environment()["torch"], "that of its beginning"
    (resume,) = record["resumed"]
    assert (resume["step"], resume["token"], resume["environment"]["torch"]) == (10, 2, "99.0")
    assert resume["environment"]["device"] == record["environment"]["device"]
    train(other)
    assert trained(cell.path) == trained(cells(other)["standard/0"].path)


def test_a_cell_that_becomes_free_again_is_taken_before_those_of_later_seeds(make: Callable[..., Path]):
    folder = make(seeds=2)
    study = open_study(loading.load(folder / "study.toml"), folder, folder / "runs")
    finished: list[str] = []
    with ExitStack() as elsewhere:
        assert elsewhere.enter_context(claim(study.cell_folder(study.cells[0]).path)) is not None

        def listen(event: dict[str, Any]) -> None:
            if event["kind"] == "finished":
                finished.append(f"{event['arm']}/{event['seed']}")
                elsewhere.close()

        assert train_missing(study, listen, lambda: False)
    assert finished == ["xsa/0", "standard/0", "standard/1", "xsa/1"], "the older pair is completed first"


def test_a_damaged_checkpoint_and_a_lost_record_are_named_where_training_goes_on(make: Callable[..., Path], trained):
    folder, other = make(), make()

    def train(where: Path, until: int | None = None) -> list[dict[str, Any]]:
        events: list[dict[str, Any]] = []
        study = open_study(loading.load(where / "study.toml"), where, where / "runs")
        only = replace(study, cells=study.cells[:1])
        train_missing(only, events.append, lambda: bool(events) and events[-1].get("step") == until)
        return [event for event in events if event["kind"] != "step"]

    train(folder, 12)
    (cell,) = cells(folder).values()
    assert cell.checkpoint_steps() == [10, 12]
    tensors = cell.path / "checkpoints" / "step-00000012" / "state.safetensors"
    content = bytearray(tensors.read_bytes())
    content[len(content) // 2] ^= 1
    tensors.write_bytes(content)
    (cell.path / "cell.json").write_text("{}", encoding="utf-8")
    started, finished = train(folder)
    assert (started["step"], finished["kind"]) == (10, "finished")
    assert started["damaged_checkpoints"] == {"12": "state.safetensors was changed after it was written"}
    record = cell.record()
    (damaged,) = record["damaged_checkpoints"]
    assert (damaged["step"], damaged["token"]) == (12, 2)
    assert record["resumed"][0]["earlier_record"].startswith("not readable")
    train(other)
    assert trained(cell.path) == trained(cells(other)["standard/0"].path)


def test_an_error_of_the_disk_ends_the_worker_and_parks_nothing(
    make: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
):
    folder = make()
    study = open_study(loading.load(folder / "study.toml"), folder, folder / "runs")

    def refuses(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(training, "order_of", refuses)
    for _ in range(4):
        with pytest.raises(StorageError, match=r"tiny/standard/0 was trained(?s:.*)Input/output error"):
            train_missing(study, lambda _: None, lambda: False)
    assert not any(is_parked(cell.path) or failures(cell.path) for cell in cells(folder).values())
    assert len(cells(folder)) == 1, "it did not try the next one"


def test_a_device_that_no_longer_works_ends_the_worker_before_it_parks_every_cell(
    make: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
):
    folder = make()
    study = open_study(loading.load(folder / "study.toml"), folder, folder / "runs")

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(training, "order_of", broken)
    monkeypatch.setattr(draining.torch, "ones", broken)
    with pytest.raises(ParibusError, match="no longer works in this process"):
        train_missing(study, lambda _: None, lambda: False)
    assert [len(failures(cell.path)) for cell in cells(folder).values()] == [1]
