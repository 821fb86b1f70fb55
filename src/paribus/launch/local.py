"""Cells on this machine: processes of a fixed number of threads that claim cells from the run folder.

Workers share nothing but the folder; two `run`s at once are two more sets of workers, and so are workers that something
else has started on another machine (`train_here`). The parent only listens.

Preemption: the first SIGTERM or SIGINT, to the parent or to one worker, asks for a checkpoint, the second one ends at
once. The exit code is then RESUMABLE: the same command goes on from the last checkpoints.
"""

import contextlib
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from multiprocessing import connection, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from paribus.errors import ParibusError
from paribus.experiment.spec import Execution, Experiment
from paribus.runs.claims import release_for
from paribus.runs.failures import ParkedError

if TYPE_CHECKING:
    from paribus.study import Study

MALLOC_TUNABLES = "glibc.malloc.mmap_threshold=4294967296:glibc.malloc.trim_threshold=17179869184"
"""Keep large buffers in the heap between steps instead of returning them to the system (measured; see decisions)."""
CUBLAS_WORKSPACE = ":4096:8"
"""Fixed workspaces, without which matrix products on a GPU are not deterministic; read when CUDA starts."""
RESUMABLE = 75
"""exit code of what was stopped and can go on: EX_TEMPFAIL of sysexits.h, which schedulers take as "try again" """
LOOK_SECONDS = 0.2
"""between two looks of the parent at whether a signal came"""
STOPS = (signal.SIGTERM, signal.SIGINT)

Listener = Callable[[dict[str, Any]], None]
Say = Callable[[str], None]


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


@dataclass
class _Worker:
    """A process, and what it has said of itself."""

    process: BaseProcess
    cell: Path | None = None
    """folder of the cell that it trains"""
    stops_in: float = 0.0
    """seconds it needs at most to follow a wish to stop, as measured so far"""
    drained: bool = False
    """whether it ended because nothing is left to train"""


@dataclass
class _Crew:
    """The workers of one call, by the link to each."""

    workers: dict[Connection, _Worker] = field(default_factory=dict)
    errors: list[ParibusError] = field(default_factory=list)
    parked: dict[str, str] = field(default_factory=dict)

    def start(self, count: int, arguments: tuple[str, Path, Path]) -> None:
        context = multiprocessing.get_context("spawn")
        with (
            variable_set("GLIBC_TUNABLES", MALLOC_TUNABLES),
            variable_set("CUBLAS_WORKSPACE_CONFIG", CUBLAS_WORKSPACE),
            _stops_masked(),
        ):
            for index in range(count):
                # A link of its own for each: no lock that a killed worker could take along.
                link, far_end = context.Pipe()
                self.workers[link] = _Worker(context.Process(target=_work, args=(*arguments, index, far_end)))
                self.workers[link].process.start()
                far_end.close()

    def ask_to_stop(self) -> None:
        for link in list(self.workers):
            with contextlib.suppress(OSError):  # it has ended
                link.send("stop")

    def kill(self) -> None:
        for worker in list(self.workers.values()):
            if worker.process.pid is not None:
                worker.process.kill()

    def listen(self, signals: Callable[[], int], on_event: Listener, say: Say) -> None:
        """Until each has ended."""
        announced = 0.0
        try:
            for link, event in _events(list(self.workers)):
                if signals() and not announced:
                    announced = time.monotonic()
                    say(stopping_in_words(max(worker.stops_in for worker in self.workers.values())))
                if link is not None:
                    self._hear(self.workers[link], event, on_event, say)
        finally:
            for link in self.workers:
                link.close()  # should `on_event` fail, the workers stop as if the parent were gone
        for worker in self.workers.values():
            worker.process.join()
        if announced:
            say(f"stopped {time.monotonic() - announced:.1f} s after the signal")

    def _hear(self, worker: _Worker, event: dict[str, Any], on_event: Listener, say: Say) -> None:
        match event["kind"]:
            case "error":
                self.errors.append(event["error"])
            case "said":
                say(event["line"])
            case "ended":
                worker.drained = event["drained"]
                self.parked |= event["parked"]
            case _:
                if event["kind"] == "started":
                    worker.cell = Path(event["folder"])
                worker.stops_in = event.get("stops_in", worker.stops_in)
                on_event(event)

    def release_killed(self) -> None:
        """Release the cells of workers that were ended on purpose: it was not the cell that they died of."""
        for worker in self.workers.values():
            if worker.process.exitcode and worker.process.pid is not None and worker.cell is not None:
                release_for(worker.cell, worker.process.pid)

    def conclude(self, say: Say) -> bool:
        """What `run_workers` answers where nobody stopped all of them."""
        codes = [worker.process.exitcode for worker in self.workers.values()]
        killed = [str(code) for code in codes if code not in (0, RESUMABLE)]
        drained = any(worker.drained for worker in self.workers.values())
        what = f"{len(killed)} of {len(codes)} workers ended unexpectedly"
        received = f"exit codes {', '.join(killed)} (negative: the signal that ended it)"
        if killed and not drained:
            raise ParibusError(
                what,
                received=received,
                remedy="run the same command again, perhaps with fewer workers: finished cells and checkpoints are "
                "kept",
            )
        if killed:
            say(f"{what}, {received}; the others have done their cells")
        if self.parked:
            raise parked_error(self.parked)
        return drained


def run_workers(
    count: int,
    experiment: Experiment,
    experiment_folder: Path,
    runs: Path,
    on_event: Listener,
    say: Say = lambda _: None,
) -> bool:
    """Let `count` workers train what is missing; hand every event to `on_event`. False where a signal stopped them.

    The first Ctrl-C (or SIGTERM) asks workers to write a checkpoint and end; the second ends them at once. A worker
    that gets such a signal itself ends alone, and the others go on with its cell.
    Raises the first worker's error after all have ended, and ParkedError where cells were set aside: what the others
    finished is kept. A worker that was killed is an error only where nobody did its work.
    """
    crew = _Crew()
    with _two_step_interrupt(crew.ask_to_stop, crew.kill) as signals:
        crew.start(count, (experiment.model_dump_json(exclude_unset=True), experiment_folder, runs))
        if signals():  # while they started
            crew.ask_to_stop()
        crew.listen(signals, on_event, say)
    if crew.errors:
        raise crew.errors[0]
    if signals():
        crew.release_killed()
        return False
    return crew.conclude(say)


def stopping_in_words(seconds: float) -> str:
    """What is said when a signal comes. 0 where nothing was measured yet."""
    bound = f"within about {seconds:.1f} s (longest update and longest checkpoint so far)" if seconds else "soon"
    return f"stopping: each worker ends {bound}, with a checkpoint; a second signal ends it at once"


def parked_error(parked: Mapping[str, str]) -> ParkedError:
    """`parked`: why, by the cell's name."""
    return ParkedError(
        f"{len(parked)} cell{'s are' if len(parked) > 1 else ' is'} parked after too many failed attempts: "
        + ", ".join(sorted(parked)),
        expected="every cell to end",
        received="; ".join(f"{name}: {reason}" for name, reason in sorted(parked.items())),
        remedy="see why in the cell's folder (PARKED), mend it, and run again with --retry-parked; every other cell "
        "is kept",
    )


def train_here(study: "Study", on_event: Listener, say: Say) -> bool:
    """Be one more worker, in this process and without a parent; False where a signal stopped it.

    Raises what training raises, and ParkedError where cells were set aside.
    """
    from paribus.draining import parked_cells, train_missing
    from paribus.training import Stopping

    with _asked_to_stop() as asked:
        stopping = Stopping(asked)
        drained = train_missing(study, on_event, stopping, say)
        if not drained:
            say(f"stopped; the longest stretch up to a checkpoint took {stopping.seconds:.1f} s")
    if drained and (parked := parked_cells(study)):
        raise parked_error(parked)
    return drained


def _events(links: list[Connection]) -> Iterator[tuple[Connection | None, dict[str, Any]]]:
    """What the workers say, with the link that it came over, until each has ended and closed its own; and nothing, over
    no link, from time to time."""
    while links:
        found = connection.wait(links, LOOK_SECONDS)
        if not found:
            yield None, {}
        for ready in found:
            link = cast(Connection, ready)
            try:
                yield link, link.recv()
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
def _stops_masked() -> Iterator[None]:
    """Processes started inside see no signal to stop until they unmask it, when they can follow it."""
    resource_tracker.ensure_running()  # starting it inside would lift the mask
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)


@contextlib.contextmanager
def _two_step_interrupt(at_first: Callable[[], None], then: Callable[[], None]) -> Iterator[Callable[[], int]]:
    """Inside the block the first signal asks the workers to stop and the second kills them; yields how many came."""
    signals = 0

    def on_signal(number: int, frame: object) -> None:
        nonlocal signals
        del number, frame
        signals += 1
        (at_first if signals == 1 else then)()

    with _handled(on_signal):
        yield lambda: signals


@contextlib.contextmanager
def _asked_to_stop() -> Iterator[Callable[[], bool]]:
    """Inside the block the first signal is a wish, which the yielded function tells, and the second ends the process,
    also where that is deep inside a computation."""
    asked = False

    def on_signal(number: int, frame: object) -> None:
        nonlocal asked
        del number, frame
        asked = True
        for each in STOPS:
            signal.signal(each, signal.SIG_DFL)

    with _handled(on_signal):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)  # a worker starts with them masked
        yield lambda: asked


@contextlib.contextmanager
def _handled(on_signal: Callable[[int, object], None]) -> Iterator[None]:
    previous = {number: signal.signal(number, on_signal) for number in STOPS}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Around everything that keeps no claim (gates, preparing, the report): SIGTERM ends it as Ctrl-C does, and either
    is a SystemExit with the code RESUMABLE. What was prepared by then is found by the next command."""

    def on_signal(number: int, frame: object) -> None:
        del number, frame
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, on_signal)
    try:
        yield
    except KeyboardInterrupt:
        raise SystemExit(RESUMABLE) from None
    finally:
        signal.signal(signal.SIGTERM, previous)


def _work(experiment_json: str, experiment_folder: Path, runs: Path, index: int, link: Connection) -> None:
    """Worker number `index`: on a machine with several GPUs it takes the next one. Ends with RESUMABLE where it was
    stopped."""
    import torch

    from paribus.draining import parked_cells, train_missing
    from paribus.study import open_study

    def emit(event: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # the parent is gone; `should_stop` says so at the next update
            link.send(event)

    with _asked_to_stop() as asked:

        def should_stop() -> bool:
            return asked() or link.poll()  # a request to stop, or the end of the link: the parent is gone

        try:
            experiment = Experiment.model_validate_json(experiment_json)
            gpus = available_gpus(experiment.execution)
            if gpus:
                torch.cuda.set_device(index % gpus)
            study = open_study(experiment, experiment_folder, runs)
            drained = train_missing(study, emit, should_stop, lambda line: emit({"kind": "said", "line": line}))
            emit({"kind": "ended", "drained": drained, "parked": parked_cells(study) if drained else {}})
        except ParibusError as error:
            emit({"kind": "error", "error": error})
            return
    if not drained:
        sys.exit(RESUMABLE)
