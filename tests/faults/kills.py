"""kill -9 while cells are trained, checkpoints written, tasks asked and a corpus prepared; then the same command again.

Which process is killed: of training, checkpointing and evaluation, the one that runs `paribus work` or `paribus
evaluate`; of a preparation, the parent of two workers; of `paribus run`, the parent, its worker, or both at once.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from paribus.seeds import generator
from tests.faults import kill_prepare
from tests.faults.scene import Advance, LostError, Row, Scene, hooked, require_ended, require_same, state_of, timed

MOST_KILLS = 6
"""before a completion"""
PATIENCE_SECONDS = 300.0

Fork = Callable[[Path, dict[str, Any] | None], int]


def kill_training(scene: Scene, kills: int, seed: int, advance: Advance) -> Row:
    """At moments uniform over the time that an undisturbed worker takes."""
    draw = generator("faults", "kill training", seed)

    def once(folder: Path) -> int:
        pid = scene.server.fork(folder, "work", "study.toml")
        return scene.server.kill(pid, float(draw.uniform(0, scene.seconds)))

    row = Row("kill -9 of the worker", "training", "kills")
    return _in_rounds(row, scene.fresh, once, ("work", "study.toml"), scene, scene.state, kills, draw, advance)


def kill_writing(scene: Scene, kills: int, seed: int, advance: Advance, part: str, where: str) -> Row:
    """At operations on files whose path contains `part`: just before one, or up to 3 ms after it began."""
    draw = generator("faults", "kill writing", part, seed)
    folder = scene.fresh()
    operations = _operations(scene, folder, part, "work", "study.toml")

    def once(folder: Path) -> int:
        late = None if draw.random() < 0.5 else float(draw.uniform(0, 0.003))
        hook = hooked(folder, int(draw.integers(1, operations + 1)), part, late)
        return scene.server.run(folder, "work", "study.toml", hook=hook)

    row = Row("kill -9 of the worker", where, "kills")
    row.note("operations on files", operations)
    return _in_rounds(row, scene.fresh, once, ("work", "study.toml"), scene, scene.state, kills, draw, advance)


def kill_evaluation(scene: Scene, kills: int, seed: int, advance: Advance) -> Row:
    """Half at uniform moments, half at operations on the files of answers."""
    draw = generator("faults", "kill evaluation", seed)
    command = ("evaluate", "study.toml", "--core", "bundle")
    reference = scene.trained()
    began = time.monotonic()
    operations = _operations(scene, reference, "tasks", *command)
    seconds = time.monotonic() - began
    expected = state_of(reference)

    def once(folder: Path) -> int:
        if draw.random() < 0.5:
            return scene.server.kill(scene.server.fork(folder, *command), float(draw.uniform(0, seconds)))
        late = None if draw.random() < 0.5 else float(draw.uniform(0, 0.003))
        hook = hooked(folder, int(draw.integers(1, operations + 1)), "tasks", late)
        return scene.server.run(folder, *command, hook=hook)

    row = Row("kill -9 of paribus evaluate", "evaluation", "kills")
    return _in_rounds(row, scene.trained, once, command, scene, expected, kills, draw, advance)


def _operations(scene: Scene, folder: Path, part: str, *command: str) -> int:
    """On files whose path contains `part`, in an undisturbed run."""
    hook = hooked(folder, -1, part) | {"count": str(folder / "operations.txt")}
    require_ended(scene.server.run(folder, *command, hook=hook), folder)
    return int((folder / "operations.txt").read_text(encoding="ascii"))


def _in_rounds(
    row: Row,
    begin: Callable[[], Path],
    once: Callable[[Path], int],
    command: tuple[str, ...],
    scene: Scene,
    expected: dict[str, str],
    kills: int,
    draw: np.random.Generator,
    advance: Advance,
) -> Row:
    """From a beginning, some kills and then an end that must be as `expected`; and again, until there are so many."""
    with timed(row):
        while row.tried < kills:
            folder, in_this = begin(), 0
            wanted = min(int(draw.integers(1, MOST_KILLS + 1)), kills - row.tried)
            try:
                while in_this < wanted:
                    code = once(folder)
                    if code == 0:  # it had ended before
                        break
                    if code != -signal.SIGKILL:
                        require_ended(code, folder)
                    in_this += 1
                    advance(row)
                require_ended(scene.server.run(folder, *command), folder)
                require_same(folder, expected)
                row.survived += in_this
            except LostError as error:
                row.lost.append(f"{row.where}: {error}")
            row.tried += in_this
            row.note("completions")
            if not row.lost:
                shutil.rmtree(folder)
    return row


def kill_preparation(home: Path, corpus: Path, kills: int, seed: int, advance: Advance) -> Row:
    """See `kill_prepare`, with lots so small that there are many."""
    row = Row("kill -9 of the parent", "data preparation", "kills", seconds=0.0)
    declared = {"kind": "folder", "folder": str(corpus), "test_fraction": 0.1, "validation_fraction": 0.1}
    setting = kill_prepare.Setting(declared, {"file": None, "vocabulary_size": 300}, 3000, 2)
    with timed(row):
        expected, seconds = kill_prepare.undisturbed(setting, home / "undisturbed")
        try:
            found = kill_prepare.kill_at_random(
                setting, home / "killed", expected, seconds, kills, seed=seed, advance=lambda: advance(row)
            )
            ended = sum(kill.phase == "ended" for kill in found)
            row.tried = row.survived = len(found) - ended
            row.note("completions", ended + 1)
        except AssertionError as error:
            row.tried = kills
            row.lost.append(f"data preparation: {error}")
    return row


def kill_run(scene: Scene, kills: int, seed: int, advance: Advance) -> Row:
    """`paribus run` from its start to its report: the parent, its worker, or both, at uniform moments."""
    draw = generator("faults", "kill run", seed)
    row = Row("kill -9 of parent, worker, or both", "paribus run", "kills")

    def start(folder: Path) -> subprocess.Popen[bytes]:
        with (folder / "said.txt").open("ab") as said:
            command = [sys.executable, "-c", "from paribus.cli import main\nmain()", "run", "study.toml"]
            return subprocess.Popen(command, cwd=folder, stdout=said, stderr=said, start_new_session=True)

    with timed(row):
        folder = scene.fresh()
        began = time.monotonic()
        require_ended(start(folder).wait(PATIENCE_SECONDS), folder)
        seconds = time.monotonic() - began
        while row.tried < kills:
            folder = scene.fresh()
            for _ in range(min(int(draw.integers(1, 4)), kills - row.tried)):
                process = start(folder)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(float(draw.uniform(0.2 * seconds, seconds)))
                if process.poll() is not None:
                    break
                _kill_some(process, str(draw.choice(["parent", "worker", "both"])), row)
                row.tried += 1
                advance(row)
            try:
                require_ended(start(folder).wait(PATIENCE_SECONDS), folder)
                require_same(folder, scene.state)
            except LostError as error:
                row.lost.append(f"paribus run: {error}")
            row.note("completions")
    row.survived = row.tried if not row.lost else 0
    return row


def _kill_some(process: subprocess.Popen[bytes], victim: str, row: Row) -> None:
    """One SIGKILL, or one for each; then wait until none of them lives."""
    workers = kill_prepare.children(process.pid)
    if victim == "worker" and not workers:
        victim = "parent"
    row.note(victim)
    if victim in ("parent", "both"):
        process.kill()
    for pid in workers if victim != "parent" else ():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait(PATIENCE_SECONDS)
    kill_prepare.await_end(workers)
