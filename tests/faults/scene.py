"""The tiny study that everything is done to, the processes that work on it, and what must come out in the end."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from paribus.runs.checkpoints import KEPT
from paribus.runs.faults import Kind
from paribus.runs.folder import CellFolder
from paribus.runs.verifying import verify
from paribus.seeds import generator

STUDY = "tiny"
STUDY_FILE = """
study = "tiny"
question = "Is anything lost?"
[base]
context_length = 32
batch_tokens = 512
corpus = { path = "CORPUS", test_fraction = 0.1, validation_fraction = 0.1 }
tokenizer = { vocabulary_size = 300 }
model = { head_width = 8 }
evaluation = { test_tokens = 600, validation_tokens = 400, probe_tokens = 200 }
[scales.tiny]
layers = 1
width = 16
mlp_width = 32
budget_tokens = UPDATES
milestones_tokens = [5_120]
[arms.standard]
[arms.xsa]
output_map = { name = "xsa" }
[contrasts.xsa]
treatment = "xsa"
baseline = "standard"
primary = true
smallest_effect = 0.01
design_effect = 0.03
[seeds]
count = SEEDS
[noise]
repeats = 0
[execution]
checkpoint_steps = 4
attempts = 1000
cost_rounds = 2
EXECUTION
"""
"""Two arms, proof mode on the CPU, about 14,000 parameters. A cell would be parked after three deaths between two
checkpoints; here dying is the normal case, so that a thousand are allowed."""
ENOUGH_BYTES = 2**30
COLORS = ("red", "blue", "green", "black", "white", "brown", "pink", "grey")
TASKS = {"arc_easy": ("multiple_choice", 1, "\nAnswer: "), "lambada_openai": ("language_modeling", 0, " ")}


class LostError(AssertionError):
    """Something is not as an undisturbed run leaves it."""


@dataclass
class Row:
    """One line of the table."""

    fault: str
    where: str
    unit: str = ""
    """what `tried` counts"""
    tried: int = 0
    survived: int = 0
    seconds: float = 0.0
    notes: dict[str, int] = field(default_factory=dict)
    """what else was counted"""
    lost: list[str] = field(default_factory=list)
    """what was not survived, in words"""
    skipped: str = ""
    """why nothing was tried"""

    def note(self, what: str, more: int = 1) -> None:
        self.notes[what] = self.notes.get(what, 0) + more


Advance = Callable[[Row], None]
"""one more has been tried, which the row will count"""


@contextmanager
def timed(row: Row) -> Iterator[Row]:
    began = time.monotonic()
    try:
        yield row
    finally:
        row.seconds += time.monotonic() - began


class Server:
    """See `server.py`. `first` is put before the command, such as `unshare`."""

    def __init__(self, first: tuple[str, ...] = ()) -> None:
        command = [*first, sys.executable, str(Path(__file__).with_name("server.py"))]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self._living: set[int] = set()
        assert self.process.stdout is not None
        if self.process.stdout.readline() != "ready\n":
            self.end()
            raise RuntimeError(f"the fork server did not start: {' '.join(command)}")

    def _ask(self, *command: object) -> int:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def fork(self, folder: Path, *arguments: str, hook: dict[str, Any] | None = None, said: Path | None = None) -> int:
        """Start `paribus <arguments>` in the folder; its pid. It prints to `said`, or to `said.txt` there."""
        pid = self._ask("fork", str(folder), str(said or folder / "said.txt"), arguments, hook)
        self._living.add(pid)
        return pid

    def wait(self, pid: int) -> int:
        """Its exit code; negative: the signal that ended it."""
        code = self._ask("wait", pid)
        self._living.discard(pid)
        return code

    def run(self, folder: Path, *arguments: str, hook: dict[str, Any] | None = None, said: Path | None = None) -> int:
        return self.wait(self.fork(folder, *arguments, hook=hook, said=said))

    def kill(self, pid: int, after_seconds: float) -> int:
        """Its exit code: -9, or another one where it ended before."""
        time.sleep(after_seconds)
        os.kill(pid, signal.SIGKILL)  # also of one that has ended and was not waited for: then nothing happens
        return self.wait(pid)

    def end(self) -> None:
        for pid in self._living:
            os.kill(pid, signal.SIGKILL)
        self.process.kill()
        self.process.communicate()


def hooked(folder: Path, number: int, part: str = "", late_seconds: float | None = None) -> dict[str, Any]:
    """See `server.py`."""
    return {"below": str(folder / "runs"), "part": part, "number": number, "late_seconds": late_seconds, "count": ""}


@dataclass(frozen=True)
class Scene:
    """A study whose corpus is prepared and whose gates were passed, and what it comes to undisturbed."""

    home: Path
    server: Server
    template: Path
    """study.toml and a run folder without cells"""
    finished: Path
    """the same with every cell, trained by one process that nothing happened to"""
    seconds: float
    """that this took"""
    state: dict[str, str]
    """see `state_of`"""

    def fresh(self, at: Path | None = None) -> Path:
        """A copy of the template as a folder of its own."""
        return self._copy(self.template, at)

    def trained(self, at: Path | None = None) -> Path:
        return self._copy(self.finished, at)

    def _copy(self, source: Path, at: Path | None) -> Path:
        target = at or self.home / f"copy-{time.monotonic_ns()}"
        shutil.copytree(source, target, dirs_exist_ok=at is not None)
        return target

    def require_same(self, folder: Path) -> None:
        """LostError where the folder's cells are not as in the undisturbed study."""
        require_same(folder, self.state)


def scratch(otherwise: Path | None = None) -> Path:
    """A new folder in memory, where there is a file system for that: fsync costs nothing there, and a killed process
    leaves the same behind on any file system."""
    memory = Path("/dev/shm")
    place = memory if os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > ENOUGH_BYTES else otherwise
    return Path(tempfile.mkdtemp(prefix="paribus-faults-", dir=place))


def build(home: Path, server: Server, *, seeds: int = 1, updates: int = 20, execution: str = "") -> Scene:
    """Prepare, train undisturbed, and keep both."""
    home.mkdir(parents=True)
    template, finished = home / "template", home / "finished"
    write_corpus(home / "corpus")
    finished.mkdir()
    text = STUDY_FILE.replace("CORPUS", str(home / "corpus"))
    text = text.replace("UPDATES", str(512 * updates)).replace("SEEDS", str(seeds)).replace("EXECUTION", execution)
    (finished / "study.toml").write_text(text, encoding="utf-8")
    write_bundle(finished / "bundle")
    require_ended(server.run(finished, "work", "study.toml"), finished)
    shutil.copytree(finished, template)
    shutil.rmtree(template / "runs" / STUDY / "tiny")
    shutil.rmtree(finished / "runs")
    shutil.copytree(template / "runs", finished / "runs")
    began = time.monotonic()  # without what the first run does once
    require_ended(server.run(finished, "work", "study.toml"), finished)
    return Scene(home, server, template, finished, time.monotonic() - began, state_of(finished))


def require_same(folder: Path, expected: Mapping[str, str]) -> None:
    """LostError where what the folder's cells hold is not `expected`, or `verify` finds damage there. Half-written
    files that were left behind are the doctor's: nobody reads them."""
    received = state_of(folder)
    if differing := [name for name in sorted({*received, *expected}) if received.get(name) != expected.get(name)]:
        how = "too much" if differing[0] not in expected else "another" if differing[0] in received else "missing"
        raise LostError(f"{len(differing)} differences, first {differing[0]} ({how}), in {folder}")
    if damaged := [fault for fault in verify(folder / "runs" / STUDY) if fault.kind is Kind.DAMAGED]:
        raise LostError(f"{damaged[0].path}: {damaged[0].what}")


def require_ended(code: int, folder: Path, said: Path | None = None) -> None:
    """LostError where a process that nobody disturbed did not end well. `said`: what it printed, see `Server.fork`."""
    if code != 0:
        text = (said or folder / "said.txt").read_text(encoding="utf-8")[-2000:]
        raise LostError(f"an undisturbed process ended with {code} in {folder}: {text}")


def cells(folder: Path) -> dict[str, CellFolder]:
    """Cell folders by "arm/seed"."""
    found = sorted((folder / "runs" / STUDY / "tiny").glob("*/*"))
    return {f"{path.parent.name}/{path.name.split('-')[0]}": CellFolder(path) for path in found}


def state_of(folder: Path) -> dict[str, str]:
    """Everything that training and evaluation determine, by what it is: a digest of files, JSON of records.

    Weights and optimiser state lie in state.safetensors. Left out are times, claims, tokens of claims, and where a
    cell was resumed.
    """
    found = {}
    for name, cell in cells(folder).items():
        if cell.state != "complete":
            found[f"{name}: state"] = cell.state
            continue
        summary, record = cell.summary(), cell.record()
        del summary["train_seconds"], summary["row_digests"]["metrics.jsonl"]  # metrics hold times as well
        found[f"{name}: DONE"] = json.dumps(summary, sort_keys=True)
        kept = {key: value for key, value in record.items() if key not in ("resumed", "damaged_checkpoints")}
        found[f"{name}: cell.json"] = json.dumps(kept, sort_keys=True)
        for number, line in enumerate(cell.metrics(), 1):
            same = {key: value for key, value in line.items() if key not in ("wall_seconds", "token")}
            found[f"{name}: metrics {number}"] = json.dumps(same, sort_keys=True)
        files = [*cell.path.glob("[!.]*/*.parquet"), *cell.path.glob("tasks/*")]
        for step in cell.checkpoint_steps()[-KEPT:]:  # a killed writer may leave one more, which nobody needs
            files += (cell.path / "checkpoints" / f"step-{step:08d}").iterdir()
        for path in files:
            if not path.name.startswith("."):
                digest = hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()
                found[f"{name}: {path.relative_to(cell.path)}"] = digest
    return found


def write_corpus(folder: Path, documents: int = 160) -> None:
    """Parquet with texts of 20 to 120 words from a vocabulary of 200."""
    draw = generator("faults", "corpus")
    syllables = ["ka", "lo", "mi", "ne", "ru", "so", "ti", "vu", "the", "er", "ing", "an"]
    words = ["".join(draw.choice(syllables, size=draw.integers(1, 4))) for _ in range(200)]
    folder.mkdir(parents=True)
    texts = [" ".join(draw.choice(words, size=draw.integers(20, 120))) + "." for _ in range(documents)]
    for number in range(2):
        pq.write_table(pa.table({"text": texts[number::2]}), folder / f"texts-{number}.parquet")


def write_bundle(folder: Path) -> None:
    """A CORE bundle of two tasks of ten items."""
    (folder / "eval_data").mkdir(parents=True)
    listed = [
        {
            "label": label,
            "dataset_uri": f"{label}.jsonl",
            "num_fewshot": [shots],
            "icl_task_type": kind,
            "continuation_delimiter": delimiter,
        }
        for label, (kind, shots, delimiter) in TASKS.items()
    ]
    (folder / "core.yaml").write_text(json.dumps({"icl_tasks": listed}), encoding="utf-8")  # JSON is YAML
    for label, (kind, _, _) in TASKS.items():
        lines = [json.dumps(_item(kind, generator("faults", "bundle", kind, number), number)) for number in range(10)]
        (folder / "eval_data" / f"{label}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    table = "Eval Task,Random baseline\narc_easy,25\nlambada_openai,0\n"
    (folder / "eval_meta_data.csv").write_text(table, encoding="utf-8")


def _item(kind: str, draw: np.random.Generator, number: int) -> dict[str, Any]:
    a, b, c = (COLORS[index] for index in draw.permutation(len(COLORS))[:3])
    if kind == "multiple_choice":
        return {"query": f"The {a} thing", "choices": [a, b, c], "gold": number % 3}
    return {"context": f"First {a}, then {b}, then", "continuation": c}
