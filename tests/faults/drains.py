"""Many workers on one queue, some of them killed again and again, and workers that are stopped beyond their lease.

A worker is a process that runs `paribus work`. What happened is read from the claims' history, not from what workers
say: who held a cell, from when on, and when a killed one was surely dead.
"""

import itertools
import os
import shutil
import signal
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from paribus.runs.folder import CellFolder
from paribus.runs.holders import PastClaim, history
from paribus.runs.records import lines_of
from paribus.seeds import generator
from tests.faults.scene import Advance, LostError, Row, Scene, cells, timed

WORKERS, KILLED = 8, 3
COMMAND = ("work", "study.toml")
LEASE_SECONDS = 2.5
PATIENCE_SECONDS = 300.0


def drain(scene: Scene, queues: int, seed: int, advance: Advance, *, workers: int = WORKERS) -> Row:
    """`workers` start together; the first three are killed at random moments and started again until all is done."""
    draw = generator("faults", "queues", seed)
    row = Row("kill -9 of 3 of the workers, repeatedly", f"{workers} workers, one queue", "cells")
    with timed(row):
        for _ in range(queues):
            folder, server = scene.fresh(), scene.server
            living = [server.fork(folder, *COMMAND) for _ in range(workers)]
            died: dict[int, float] = {}
            while not _all_ended(folder, scene):
                time.sleep(float(draw.uniform(0.05, 0.8)))
                busy = [slot for slot in range(KILLED) if _works(folder, living[slot])]
                slot = int(draw.choice(busy)) if busy and draw.random() < 0.75 else int(draw.integers(KILLED))
                row.note("kills", server.kill(living[slot], 0.0) < 0)
                died[living[slot]] = time.time()
                living[slot] = server.fork(folder, *COMMAND)
            codes = [server.wait(pid) for pid in living]
            row.tried += len(scene_cells := cells(folder))
            try:
                if set(codes) != {0}:
                    raise LostError(f"the workers that nobody killed ended with {codes}")
                scene.require_same(folder)
                for cell in scene_cells.values():
                    _require_one_at_a_time(cell, died)
                    row.note("claims", len(history(cell.path)))
                row.survived += len(scene_cells)
                shutil.rmtree(folder)
            except LostError as error:
                row.lost.append(f"queue: {error}")
            advance(row)
    return row


def _require_one_at_a_time(cell: CellFolder, died: dict[int, float]) -> None:
    """LostError where two claims of a cell overlap, an update is missing or twice, or an earlier holder wrote late.

    A claim ends when it is released or its process is dead; clocks are those of this machine.
    """
    claims = history(cell.path)
    for earlier, later in itertools.pairwise(claims):
        ended = earlier.released if earlier.released is not None else died.get(_pid(earlier))
        # Whoever takes over may see the end before it is noted here, and the record counts in milliseconds.
        if ended is None or _taken(later) < ended - 1.0 or _taken(later) < earlier.last_heartbeat - 0.002:
            raise LostError(f"{cell.path}: claim {later.token} was made while {earlier.token} was held")
    if claims[-1].released is None:
        raise LostError(f"{cell.path}: the holder that finished it did not release it")
    lines = [line.content for line in lines_of((cell.path / "metrics.jsonl").read_bytes())]
    if [line["step"] for line in lines] != list(range(1, cell.summary()["steps"] + 1)):
        raise LostError(f"{cell.path}: not every update is there exactly once")
    if (tokens := [line["token"] for line in lines]) != sorted(tokens):
        raise LostError(f"{cell.path}: an earlier holder wrote after a later one: {tokens}")


def _pid(claim: PastClaim) -> int:
    return claim.owner.pid if claim.owner is not None else -1


def _taken(claim: PastClaim) -> float:
    return datetime.fromisoformat(claim.taken).timestamp()


def freeze(scene: Scene, stops: int, seed: int, advance: Advance) -> Row:
    """A worker is stopped at a random moment for longer than its lease, another one goes on, the first one wakes up.

    The scene's lease must be LEASE_SECONDS. Survived where nothing of the first one's comes after the second one's
    claim, and the cells end as undisturbed ones.
    """
    draw = generator("faults", "freeze", seed)
    row = Row("SIGSTOP beyond the lease, SIGCONT", "training", "stops")
    server = scene.server
    with timed(row):
        while row.tried < stops:
            folder = scene.fresh()
            frozen = server.fork(folder, *COMMAND)
            _await_holder(folder, frozen)
            time.sleep(float(draw.uniform(0, scene.seconds / 2)))
            os.kill(frozen, signal.SIGSTOP)
            held = [cell for cell in cells(folder).values() if not cell.finished and _holds(cell, frozen)]
            if not held:  # between two cells, or done with both
                os.kill(frozen, signal.SIGCONT)
                server.wait(frozen)
                shutil.rmtree(folder)
                row.note("stopped while it held nothing, not counted")
                continue
            other = server.fork(folder, *COMMAND)
            _await_taken_over(held[0], frozen)
            time.sleep(float(draw.uniform(0, 1.0)))
            os.kill(frozen, signal.SIGCONT)
            codes = [server.wait(pid) for pid in (frozen, other)]
            row.tried += 1
            try:
                if codes != [0, 0]:
                    raise LostError(f"the two workers ended with {codes}, see {folder / 'said.txt'}")
                scene.require_same(folder)
                _require_refused(held[0])
                said = (folder / "said.txt").read_text(encoding="utf-8")
                row.note("said that it was refused", "was left to another worker" in said)
                row.survived += 1
                shutil.rmtree(folder)
            except LostError as error:
                row.lost.append(f"frozen: {error}")
            advance(row)
    return row


def _holds(cell: CellFolder, pid: int) -> bool:
    claims = history(cell.path)
    return bool(claims) and _pid(claims[-1]) == pid and claims[-1].released is None


def _works(folder: Path, pid: int) -> bool:
    """Whether the worker holds a cell."""
    return any(_holds(cell, pid) for cell in cells(folder).values() if not cell.finished)


def _all_ended(folder: Path, scene: Scene) -> bool:
    found = cells(folder)
    return len(found) == len(cells(scene.finished)) and all(cell.finished for cell in found.values())


def _await_holder(folder: Path, pid: int) -> None:
    _wait_until(lambda: _works(folder, pid), f"{pid} took no cell in {folder}")


def _await_taken_over(cell: CellFolder, pid: int) -> None:
    _wait_until(lambda: not _holds(cell, pid), f"nobody took {cell.path} over from {pid}")


def _wait_until(what: Callable[[], bool], otherwise: str) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not what():
        if time.monotonic() > end:
            raise LostError(otherwise)
        time.sleep(0.01)


def _require_refused(cell: CellFolder) -> None:
    """LostError where the first holder's lines come after the second one's, or an update is missing or twice."""
    lines = [line.content for line in lines_of((cell.path / "metrics.jsonl").read_bytes())]
    tokens = [line["token"] for line in lines]
    if tokens != sorted(tokens) or [line["step"] for line in lines] != list(range(1, len(lines) + 1)):
        raise LostError(f"{cell.path}: lines of metrics carry the tokens {tokens}")
    claims = history(cell.path)
    if claims[0].released is not None or claims[0].last_heartbeat > _taken(claims[1]):
        raise LostError(f"{cell.path}: the holder that was stopped showed signs of life after it was taken over")
