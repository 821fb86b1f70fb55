"""Processes that share the work: one task at a time each, and none outlives the process that started them.

They are started as programs, not forked and not spawned by `multiprocessing`, for three reasons: the user's main
module (which may import torch) is not imported again; variables that libraries read once, when they start, can be set
(one thread each, so that the cores are not oversubscribed); and the end of their standard input tells them of the
parent's death, however it dies.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection, Pipe, wait
from types import TracebackType
from typing import Any, Self, TypeVar

from paribus.errors import CorpusError

Item = TypeVar("Item")
Result = TypeVar("Result")

_START = "import sys; sys.path[:] = {path!r}; from paribus.data.prepare.workers import serve; serve({descriptor})"


class Workers:
    """A context that runs module-level functions `function(shared, item)` in `count` processes.

    With a count of 1, in this process, unless it is to be `apart`: where there is nothing to share, starting a process
    takes longer than a small corpus. `threads`: of the tokenizers library in each process.
    """

    def __init__(self, shared: object, count: int, *, threads: int = 1, apart: bool = False) -> None:
        self._shared = shared
        self._count = count
        self._inside = count == 1 and not apart
        self._threads = threads
        self._processes: dict[Connection, subprocess.Popen[bytes]] = {}

    def run(self, function: Callable[[Any, Item], Result], items: Iterable[Item]) -> Iterator[tuple[int, Result]]:
        """(index of the item, result), as they are finished.

        The first error of any task is raised here. Raises CorpusError where a process dies.
        """
        if self._inside:
            for index, item in enumerate(items):
                yield index, function(self._shared, item)
            return
        waiting = enumerate(items)
        busy: dict[Connection, int] = {}
        for connection in list(self._started()):
            self._give(connection, function, waiting, busy)
        while busy:
            for ready in wait(list(busy)):
                assert isinstance(ready, Connection)
                index = busy.pop(ready)
                result, error = self._answer(ready)
                if error is not None:
                    raise error
                yield index, result
                self._give(ready, function, waiting, busy)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection, process in self._processes.items():
            assert process.stdin is not None
            process.stdin.close()
            connection.close()
        for process in self._processes.values():
            process.wait()
        self._processes = {}

    def _started(self) -> Iterable[Connection]:
        while len(self._processes) < self._count:
            ours, theirs = Pipe()
            with theirs:
                process = subprocess.Popen(
                    [sys.executable, "-c", _START.format(path=sys.path, descriptor=theirs.fileno())],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    env=os.environ | _environment(self._threads),
                    # Ctrl-C is for the parent, which ends them.
                    process_group=0,
                )
            self._processes[ours] = process
            ours.send(self._shared)
        return self._processes

    def _give(
        self,
        connection: Connection,
        function: Callable[[Any, Item], Result],
        waiting: Iterator[tuple[int, Item]],
        busy: dict[Connection, int],
    ) -> None:
        for index, item in waiting:
            # Where it died, what it died of is found when its answer is read.
            with contextlib.suppress(OSError):
                connection.send((function, item))
            busy[connection] = index
            return

    def _answer(self, connection: Connection) -> tuple[Any, BaseException | None]:
        try:
            return connection.recv()
        except (EOFError, OSError) as error:
            ended = self._processes[connection].wait()
            raise CorpusError(
                "a process that prepares the corpus died",
                expected="processes that run until the work is done",
                received=f"exit status {ended}" if ended >= 0 else f"signal {signal.Signals(-ended).name}",
                remedy="where memory ran out, use fewer workers; run the same command again: what is finished is kept",
            ) from error


def serve(descriptor: int) -> None:
    """The life of a worker: receive the shared object, then tasks, until the parent is gone."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with Connection(descriptor) as connection:
        try:
            shared = connection.recv()
            while True:
                function, item = connection.recv()
                connection.send(_outcome(function, shared, item))
        except (EOFError, OSError):
            # The parent has gone or no longer listens.
            return


def _outcome(function: Callable[[Any, Any], Any], shared: Any, item: Any) -> tuple[Any, BaseException | None]:
    try:
        return function(shared, item), None
    except Exception as error:  # every error is the parent's to raise
        error.add_note(f"in a worker process:\n{traceback.format_exc()}")
        return None, error


def _end_with_parent() -> None:
    while os.read(0, 1):
        pass
    # Nothing is worth finishing: whatever is not yet renamed is done again.
    os._exit(1)


def _environment(threads: int) -> dict[str, str]:
    return {
        "TOKENIZERS_PARALLELISM": "true" if threads > 1 else "false",
        "RAYON_NUM_THREADS": str(threads),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        # Freed memory goes back to the system: the large buffers of one document would stay for good otherwise.
        "MALLOC_ARENA_MAX": "2",
        "MALLOC_TRIM_THRESHOLD_": "16777216",
        "MALLOC_MMAP_THRESHOLD_": "1048576",
        "ARROW_DEFAULT_MEMORY_POOL": "system",
    }
