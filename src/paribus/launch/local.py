"""Cells on this machine: processes of a fixed number of threads that claim cells from the run folder.

Workers share nothing but the folder; two `run`s at once are two more sets of workers. The parent only listens.
"""

import contextlib
import multiprocessing
import os
import queue
import signal
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from paribus.errors import ParibusError
from paribus.experiment.spec import Execution, Experiment

POLL_SECONDS = 0.2
MALLOC_TUNABLES = "glibc.malloc.mmap_threshold=4294967296:glibc.malloc.trim_threshold=17179869184"
"""Keep large buffers in the heap between steps instead of returning them to the system (measured; see decisions)."""


def available_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


def number_of_workers(execution: Execution, missing_cells: int) -> int:
    """As many as the file says, or one for each `threads` cores; never more than cells."""
    return min(missing_cells, execution.workers or max(1, available_cores() // execution.threads))


def run_workers(
    count: int,
    experiment: Experiment,
    experiment_folder: Path,
    runs: Path,
    on_event: Callable[[dict[str, Any]], None],
) -> bool:
    """Let `count` workers train what is missing; hand every event to `on_event`. False where Ctrl-C stopped them.

    The first Ctrl-C (or SIGTERM) asks workers to write a checkpoint and end; the second ends them at once.
    Raises the first worker's error after all have ended: what the others finished is kept.
    """
    context = multiprocessing.get_context("spawn")
    events: Any = context.Queue()
    stop = context.Event()
    arguments = (experiment.model_dump_json(exclude_unset=True), experiment_folder, runs, events, stop, os.getpid())
    with _environment("GLIBC_TUNABLES", MALLOC_TUNABLES):
        workers: list[BaseProcess] = [context.Process(target=_work, args=arguments) for _ in range(count)]
        for worker in workers:
            worker.start()
    errors: list[ParibusError] = []
    with _two_step_interrupt(stop, workers):
        while any(worker.is_alive() for worker in workers):
            _drain(events, on_event, errors)
        _drain(events, on_event, errors)
    killed = [worker.exitcode for worker in workers if worker.exitcode]
    if errors:
        raise errors[0]
    if killed and not stop.is_set():
        raise ParibusError(
            f"{len(killed)} of {count} workers ended unexpectedly",
            received=f"exit codes {', '.join(map(str, killed))} (negative: the signal that ended it)",
            remedy="run the same command again: what is finished is kept; fewer workers need less memory",
        )
    return not stop.is_set()


def _drain(events: Any, on_event: Callable[[dict[str, Any]], None], errors: list[ParibusError]) -> None:
    with contextlib.suppress(queue.Empty):
        while True:
            event = events.get(timeout=POLL_SECONDS)
            if event["kind"] == "error":
                errors.append(event["error"])
            else:
                on_event(event)


@contextlib.contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    """Set a variable for processes started inside the block, unless the user has set it."""
    if name in os.environ:
        yield
        return
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]


@contextlib.contextmanager
def _two_step_interrupt(stop: Any, workers: list[BaseProcess]) -> Iterator[None]:
    def on_signal(number: int, frame: object) -> None:
        del number, frame
        if stop.is_set():
            for worker in workers:
                worker.terminate()
        stop.set()

    previous = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _work(experiment_json: str, experiment_folder: Path, runs: Path, events: Any, stop: Any, parent: int) -> None:
    # The terminal sends Ctrl-C to the whole process group; the parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    from paribus.study import open_study, train_missing

    def should_stop() -> bool:
        return stop.is_set() or os.getppid() != parent

    try:
        study = open_study(Experiment.model_validate_json(experiment_json), experiment_folder, runs)
        train_missing(study, events.put, should_stop)
    except ParibusError as error:
        events.put({"kind": "error", "error": error})
    if os.getppid() != parent:
        events.cancel_join_thread()  # nobody will read what is left
