import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import time
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from paribus import errors
from paribus.experiment.spec import Execution
from paribus.launch import local
from paribus.launch.local import RESUMABLE, available_cores, interruptible, number_of_workers
from paribus.runs.claims import claim
from paribus.training import Stopping


@pytest.mark.parametrize(
    ("workers", "threads", "cells", "cores", "gpus", "expected"),
    [
        (0, 1, 20, 4, 0, 4),  # one for each core
        (0, 2, 20, 4, 0, 2),  # cores divided by threads
        (0, 8, 20, 4, 0, 1),  # never none
        (3, 1, 20, 4, 0, 3),  # as the file says
        (9, 1, 2, 4, 0, 2),  # never more than cells
        (0, 1, 20, 16, 2, 2),  # one for each GPU
        (3, 1, 20, 16, 2, 3),  # as the file says there too
    ],
)
def test_workers_are_as_many_as_the_file_says_or_the_cores_hold(
    monkeypatch: pytest.MonkeyPatch, workers: int, threads: int, cells: int, cores: int, gpus: int, expected: int
):
    monkeypatch.setattr(local, "available_cores", lambda: cores)
    assert number_of_workers(Execution(workers=workers, threads=threads), cells, gpus) == expected


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="processes are not bound to cores here")
def test_cores_are_those_that_this_process_may_use():
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert available_cores() == 1
    finally:
        os.sched_setaffinity(0, allowed)
    assert available_cores() == len(allowed)


def test_workers_start_with_fixed_cublas_workspaces_so_that_a_gpu_is_deterministic(
    tmp_path: Path, experiment_without_corpus, monkeypatch: pytest.MonkeyPatch
):
    seen: list[str | None] = []
    start = multiprocessing.get_context("spawn").Process.start

    def watched(process: multiprocessing.Process) -> None:
        seen.append(os.environ.get("CUBLAS_WORKSPACE_CONFIG"))
        start(process)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(multiprocessing.get_context("spawn").Process, "start", watched)
    with pytest.raises(errors.CorpusError):
        local.run_workers(1, experiment_without_corpus, tmp_path, tmp_path / "runs", lambda _: None)
    assert seen == [":4096:8"]


KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.ParibusError)]


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_crosses_the_process_border_whole(kind: type[errors.ParibusError]):
    error = kind("what", expected="a", received="b", remedy="c")
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is kind
    assert (back.what, back.expected, back.received, back.remedy) == ("what", "a", "b", "c")
    assert str(back) == str(error) == "what\n  expected: a\n  received: b\n  remedy: c"
    assert back.exit_code == kind.exit_code


def test_a_workers_error_reaches_the_parent_after_all_have_ended(tmp_path: Path, experiment_without_corpus):
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with pytest.raises(errors.CorpusError, match="the corpus folder does not exist"):
        local.run_workers(2, experiment_without_corpus, tmp_path, tmp_path / "runs", lambda _: None)
    assert multiprocessing.active_children() == []
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
    assert not {signal.SIGINT, signal.SIGTERM} & signal.pthread_sigmask(signal.SIG_BLOCK, [])
    assert "CUBLAS_WORKSPACE_CONFIG" not in os.environ
    assert "GLIBC_TUNABLES" not in os.environ or os.environ["GLIBC_TUNABLES"] != local.MALLOC_TUNABLES


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_nothing_is_claimed_ends_with_the_code_for_trying_again(number: signal.Signals):
    def interrupted() -> None:
        with interruptible():
            os.kill(os.getpid(), number)
            time.sleep(10)

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended:
        interrupted()
    assert ended.value.code == RESUMABLE == 75
    assert signal.getsignal(signal.SIGTERM) == before


def test_the_first_signal_to_a_crew_asks_and_the_second_one_kills():
    calls: list[str] = []
    before = signal.getsignal(signal.SIGINT)
    with local._two_step_interrupt(lambda: calls.append("ask"), lambda: calls.append("kill")) as signals:
        for number in (signal.SIGTERM, signal.SIGINT):
            os.kill(os.getpid(), number)
    assert calls == ["ask", "kill"]
    assert signals() == 2
    assert signal.getsignal(signal.SIGINT) == before


def test_how_long_a_stop_takes_is_the_longest_stretch_between_two_looks_and_the_longest_write():
    stopping = Stopping(lambda: False)
    assert stopping.seconds == 0.0
    assert "soon" in local.stopping_in_words(stopping.seconds)
    for pause in (0.0, 0.2, 0.05):
        time.sleep(pause)
        assert not stopping()
    stopping.wrote(0.5)
    stopping.wrote(0.1)
    assert 0.7 <= stopping.seconds < 5.0
    assert f"within about {stopping.seconds:.1f} s" in local.stopping_in_words(stopping.seconds)
    assert Stopping.of(stopping) is stopping


def test_parked_cells_are_named_with_their_reasons():
    error = local.parked_error({"tiny/b/1": "it broke", "tiny/a/0": "out of memory"})
    assert error.what == "2 cells are parked after too many failed attempts: tiny/a/0, tiny/b/1"
    assert error.received == "tiny/a/0: out of memory; tiny/b/1: it broke"
    assert error.exit_code == 1


def test_workers_that_were_killed_on_purpose_did_not_die_of_their_cells(tmp_path: Path):
    holding = "import sys\nfrom pathlib import Path\nfrom paribus.runs.claims import claim\n"
    holding += "with claim(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    crew = local._Crew()
    for name in ("first", "second"):
        command = [sys.executable, "-c", holding, str(tmp_path / name)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        process.kill()
        process.communicate()
        told = SimpleNamespace(pid=process.pid, exitcode=process.returncode)
        near, _ = multiprocessing.Pipe()
        crew.workers[near] = local._Worker(cast(BaseProcess, told), cell=tmp_path / name if name == "first" else None)
    crew.release_killed()
    for name, released in (("first", True), ("second", False)):
        with claim(tmp_path / name) as held:
            assert held is not None
            assert (held.after is None) == released
