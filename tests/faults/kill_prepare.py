"""Kill a preparation at random moments, let the next one go on, and compare what comes out with an undisturbed one.

    python tests/faults/kill_prepare.py ../shared/data/pretrain/textmix --kills 20 --tokenizer tokenizer.json

A preparation is started, killed (SIGKILL) after a random time, started again, and so on; where one ends before it is
killed, the next begins from nothing. After the last kill one is left to end. The moments come from a named generator,
so that a failure can be repeated. Checked after every kill: no finished folder has appeared, and no worker lives on.
Checked at every end: the digests of all files are those of the undisturbed preparation, and nothing else lies about.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from paribus.data.frozen import FrozenCorpus, open_frozen
from paribus.seeds import generator

_CHILD = """
import json, sys
from pathlib import Path
from paribus.data.config import CorpusConfig, TokenizerConfig
from paribus.data.prepare import inventory
from paribus.data.prepare.pipeline import prepare

corpus, tokenizer, store, lot_bytes, workers = json.loads(sys.argv[1])
if lot_bytes:
    inventory.LOT_BYTES = lot_bytes
corpus["folder"] = Path(corpus["folder"])
if tokenizer["file"]:
    tokenizer["file"] = Path(tokenizer["file"])

def progress(advance):
    sys.stdout.write(f"{advance.phase}\\t{advance.done}\\t{advance.total}\\n")
    sys.stdout.flush()

declared = CorpusConfig(**corpus), TokenizerConfig(**tokenizer), Path(store)
prepare(*declared, name="killed", progress=progress, workers=workers)
"""


@dataclass(frozen=True)
class Setting:
    corpus: dict[str, Any]
    """keyword arguments of `CorpusConfig`, JSON types"""
    tokenizer: dict[str, Any]
    """of `TokenizerConfig`, `file` among them"""
    lot_bytes: int | None
    workers: int

    def start(self, store: Path) -> subprocess.Popen[str]:
        """Begin a preparation in a process of its own; it says on its output what it does."""
        argument = json.dumps([self.corpus, self.tokenizer, str(store), self.lot_bytes, self.workers])
        return subprocess.Popen([sys.executable, "-c", _CHILD, argument], stdout=subprocess.PIPE, text=True)


@dataclass(frozen=True)
class Killed:
    seconds: float
    """from the first sign of life"""
    phase: str
    """the last that was told before; `ended` where it was done first"""
    finished: int
    """pieces of work that were recorded by then"""


def undisturbed(setting: Setting, store: Path) -> tuple[FrozenCorpus, float]:
    """The corpus, and the seconds it took from the first sign of life."""
    with setting.start(store) as process:
        assert process.stdout is not None
        process.stdout.readline()
        started = time.monotonic()
        for _ in process.stdout:
            pass
    assert process.returncode == 0, f"exit status {process.returncode}"
    return only_corpus(store), time.monotonic() - started


def kill_at_random(
    setting: Setting,
    store: Path,
    expected: FrozenCorpus,
    seconds: float,
    kills: int,
    *,
    seed: int = 0,
    advance: Callable[[], None] = lambda: None,
) -> list[Killed]:
    """Kill as often as is asked, then complete. Raises AssertionError where something is not as it must be.

    `seconds`: an undisturbed preparation's; moments are uniform up to half of it, so most kills find work to do.
    `advance` is called after each kill.
    """
    draw = generator("faults", "kill prepare", kills, seed)
    found: list[Killed] = []
    while sum(kill.phase != "ended" for kill in found) < kills:
        found.append(_kill(setting, store, float(draw.uniform(0, seconds / 2))))
        if found[-1].phase == "ended":
            check_same(only_corpus(store), expected)
            shutil.rmtree(store)
        else:
            advance()
    with setting.start(store) as process:
        process.communicate()
    assert process.returncode == 0
    check_same(only_corpus(store), expected)
    return found


def check_same(received: FrozenCorpus, expected: FrozenCorpus) -> None:
    received.verify()
    assert received.digest == expected.digest
    assert dict(received.files) == dict(expected.files)
    assert (received.folder / "manifest.json").read_bytes() == (expected.folder / "manifest.json").read_bytes()
    assert sorted(path.name for path in received.folder.iterdir()) == sorted([*expected.files, "manifest.json"])


def only_corpus(store: Path) -> FrozenCorpus:
    """The one finished corpus of a store that holds nothing else but hidden files."""
    folders = [path for path in store.iterdir() if path.is_dir()]
    assert len(folders) == 1, folders
    return open_frozen(folders[0])


def _kill(setting: Setting, store: Path, seconds: float) -> Killed:
    lines: list[str] = []
    with setting.start(store) as process:
        assert process.stdout is not None
        lines.append(process.stdout.readline())
        reader = threading.Thread(target=lambda: lines.extend(process.stdout or ()))
        reader.start()
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            workers = children(process.pid)
            process.send_signal(signal.SIGKILL)
            process.wait()
            await_end(workers)
        reader.join()
    finished = sum(1 for _ in store.glob(".*.partial/*/*/*.json"))
    if process.returncode == 0:
        return Killed(seconds, "ended", 0)
    assert process.returncode == -signal.SIGKILL, f"exit status {process.returncode}"
    return Killed(seconds, lines[-1].split("\t")[0], finished)


def children(parent: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            after_name = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(after_name[1]) == parent:
            found.append(int(path.parent.name))
    return found


def await_end(pids: list[int]) -> None:
    deadline = time.monotonic() + 60
    while alive := [pid for pid in pids if _is_alive(pid)]:
        assert time.monotonic() < deadline, f"workers {alive} outlive their parent"
        time.sleep(0.01)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (OSError, ProcessLookupError):
        return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--tokenizer", type=Path, help="a tokenizer.json; without it one of 8,192 tokens is learnt")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--lot-bytes", type=int)
    arguments = parser.parse_args()
    corpus = {"kind": "folder", "folder": str(arguments.folder.resolve())}
    file = None if arguments.tokenizer is None else str(arguments.tokenizer.resolve())
    setting = Setting(corpus, {"file": file, "vocabulary_size": 8192}, arguments.lot_bytes, arguments.workers)
    console = Console()
    with tempfile.TemporaryDirectory(prefix="paribus-kill-") as scratch:
        expected, seconds = undisturbed(setting, Path(scratch) / "undisturbed")
        console.print(f"undisturbed: {seconds:.1f} s, digest {expected.digest}")
        kills = kill_at_random(setting, Path(scratch) / "killed", expected, seconds, arguments.kills)
    table = Table("kill", "after, s", "during", "finished pieces")
    for number, kill in enumerate(kills, start=1):
        values = asdict(kill)
        table.add_row(str(number), f"{values['seconds']:.1f}", values["phase"], str(values["finished"]))
    console.print(table)
    console.print(f"completed after every kill with digest {expected.digest}")


if __name__ == "__main__":
    main()
