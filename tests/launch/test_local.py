import multiprocessing
import os
import pickle
import signal
from pathlib import Path

import pytest

from paribus import errors
from paribus.experiment.spec import Execution
from paribus.launch import local
from paribus.launch.local import available_cores, number_of_workers


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
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
    assert "CUBLAS_WORKSPACE_CONFIG" not in os.environ
    assert "GLIBC_TUNABLES" not in os.environ or os.environ["GLIBC_TUNABLES"] != local.MALLOC_TUNABLES
