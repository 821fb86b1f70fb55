"""Cells on this machine: processes of a fixed number of threads that claim cells from the run folder.

Workers share nothing but the folder; two `run`s at once are two more sets of workers. The parent only listens.
"""

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from multiprocessing import connection, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, cast

from paribus.errors import ParibusError
from paribus.experiment.spec import Execution, Experiment

MALLOC_TUNABLES = "glibc.malloc.mmap_threshold=4294967296:glibc.malloc.trim_threshold=17179869184"
"""Keep large buffers in the heap between steps instead of returning them to the system (measured; see decisions)."""
CUBLAS_WORKSPACE = ":4096:8"
"""Fixed workspaces, without which matrix products on a GPU are not deterministic; read when CUDA starts."""


def available_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


def number_of_workers(execution: Execution, missing_cells: int, gpus: int = 0) -> int:
    """As many as the file says, or one for each GPU, or without any one for each `threads` cores; never more than
    cells."""
    return min(missing_cells, execution.workers or gpus or max(1, available_cores() // execution.threads))


def available_gpus(execution: Execution) -> int:
    """CUDA devices that cells of this experiment are trained on here; 0 where they are trained on the CPU."""
    import torch

    from paribus.experiment.plan import device_of

    return torch.cuda.device_count() if device_of(execution) == "cuda" else 0


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
    arguments = (experiment.model_dump_json(exclude_unset=True), experiment_folder, runs)
    context = multiprocessing.get_context("spawn")
    workers: dict[Connection, BaseProcess] = {}
    errors: list[ParibusError] = []
    with _two_step_interrupt(workers) as stopped:
        with (
            variable_set("GLIBC_TUNABLES", MALLOC_TUNABLES),
            variable_set("CUBLAS_WORKSPACE_CONFIG", CUBLAS_WORKSPACE),
            _interrupts_masked(),
        ):
            for index in range(count):
                # A link of its own for each: no lock that a killed worker could take along.
                link, far_end = context.Pipe()
                workers[link] = context.Process(target=_work, args=(*arguments, index, far_end))
                workers[link].start()
                far_end.close()
        if stopped():  # while they started
            _ask_to_stop(workers)
        try:
            for event in _events(list(workers)):
                if event["kind"] == "error":
                    errors.append(event["error"])
                else:
                    on_event(event)
        finally:
            for link in workers:
                link.close()  # should `on_event` fail, the workers stop as if the parent were gone
        for worker in workers.values():
            worker.join()
    killed = [worker.exitcode for worker in workers.values() if worker.exitcode]
    if errors:
        raise errors[0]
    if killed and not stopped():
        raise ParibusError(
            f"{len(killed)} of {count} workers ended unexpectedly",
            received=f"exit codes {', '.join(map(str, killed))} (negative: the signal that ended it)",
            remedy="run the same command again, perhaps with fewer workers: finished cells and checkpoints are kept",
        )
    return not stopped()


def _events(links: list[Connection]) -> Iterator[dict[str, Any]]:
    """What the workers say, until each has ended and closed its link."""
    while links:
        for ready in connection.wait(links):
            link = cast(Connection, ready)
            try:
                yield link.recv()
            except (EOFError, OSError):  # ended, perhaps in the middle of a message
                links.remove(link)


@contextlib.contextmanager
def variable_set(name: str, value: str) -> Iterator[None]:
    """Set a variable inside the block, and for processes started there, unless the user has set it."""
    if name in os.environ:
        yield
        return
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]


@contextlib.contextmanager
def _interrupts_masked() -> Iterator[None]:
    """Processes started inside never see Ctrl-C, which a terminal sends to all: the parent decides what it means."""
    resource_tracker.ensure_running()  # starting it inside would lift the mask
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def _ask_to_stop(workers: Mapping[Connection, BaseProcess]) -> None:
    for link in list(workers):
        with contextlib.suppress(OSError):  # it has ended
            link.send("stop")


@contextlib.contextmanager
def _two_step_interrupt(workers: Mapping[Connection, BaseProcess]) -> Iterator[Callable[[], bool]]:
    """Inside the block the first signal asks the workers to stop and the second ends them; yields whether one came."""
    signals = 0

    def on_signal(number: int, frame: object) -> None:
        nonlocal signals
        del number, frame
        signals += 1
        if signals == 1:
            _ask_to_stop(workers)
        for worker in list(workers.values()):
            if signals > 1 and worker.pid is not None:
                worker.terminate()

    previous = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: signals > 0
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _work(experiment_json: str, experiment_folder: Path, runs: Path, index: int, link: Connection) -> None:
    """Worker number `index`: on a machine with several GPUs it takes the next one."""
    import torch

    from paribus.study import open_study
    from paribus.training import train_missing

    def emit(event: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # the parent is gone; `should_stop` says so at the next update
            link.send(event)

    def should_stop() -> bool:
        return link.poll()  # a request to stop, or the end of the link: the parent is gone

    try:
        experiment = Experiment.model_validate_json(experiment_json)
        gpus = available_gpus(experiment.execution)
        if gpus:
            torch.cuda.set_device(index % gpus)
        study = open_study(experiment, experiment_folder, runs)
        train_missing(study, emit, should_stop)
    except ParibusError as error:
        emit({"kind": "error", "error": error})
