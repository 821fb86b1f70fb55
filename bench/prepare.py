"""What preparing a corpus costs: seconds of each step, MB/s of text, tokens/s, peak memory of all processes together.

    python bench/prepare.py ../shared/data/pretrain/textmix --vocabulary 8192 --workers 2

Three preparations, each in a process of its own: with a tokenizer that is learnt (a 32,768 vocabulary stated by itself
with --vocabulary 32768), with that tokenizer loaded, and loaded without near duplicates. Memory is the sum of the
resident pages of the process and its workers, read from /proc twenty times a second; pages that processes share count
for each. Seconds depend on what else runs; processor seconds less so.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from paribus.data.frozen import FrozenCorpus, open_frozen
from paribus.terminal import table

_CHILD = """
import json, sys, time
from pathlib import Path
from paribus.data.config import CorpusConfig, TokenizerConfig
from paribus.data.prepare.pipeline import prepare

folder, similarity, vocabulary, pre_tokenizer, file, store, workers = json.loads(sys.argv[1])

def progress(advance):
    sys.stdout.write(f"{time.monotonic()}\\t{advance.phase}\\n")
    sys.stdout.flush()

corpus = CorpusConfig(kind="folder", folder=Path(folder), near_duplicate_similarity=similarity)
tokenizer = TokenizerConfig(
    vocabulary_size=vocabulary, pre_tokenizer=pre_tokenizer, file=Path(file) if file else None
)
prepare(corpus, tokenizer, Path(store), name="bench", progress=progress, workers=workers)
"""
_PAGE_BYTES = resource.getpagesize()


@dataclass
class Run:
    frozen: FrozenCorpus
    seconds: float
    processor_seconds: float
    peak_bytes: int
    steps: dict[str, tuple[float, int]] = field(default_factory=dict)
    """seconds from the first word of a step to the first of the next, and the peak memory in them"""


def run(arguments: list[object], store: Path) -> Run:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.monotonic()
    process = subprocess.Popen([sys.executable, "-c", _CHILD, json.dumps(arguments)], stdout=subprocess.PIPE, text=True)
    peak = _Peak(process.pid)
    assert process.stdout is not None
    begins: dict[str, float] = {}
    peaks: list[int] = []
    for line in process.stdout:
        moment, phase = line.rstrip("\n").split("\t")
        if phase not in begins:
            begins[phase] = float(moment)
            peaks.append(peak.since_last())
    peak.stop()
    peaks.append(peak.since_last())
    if process.wait() != 0:
        raise SystemExit(f"the preparation failed with exit status {process.returncode}")
    seconds = time.monotonic() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    moments = [*begins.values(), started + seconds]
    steps = {
        phase: (end - begin, most)
        for (phase, begin), end, most in zip(begins.items(), moments[1:], peaks[1:], strict=True)
    }
    (folder,) = [path for path in store.iterdir() if path.is_dir()]
    return Run(open_frozen(folder), seconds, used, max(peaks), steps)


class _Peak:
    """The largest sum of resident pages of a process and its descendants."""

    def __init__(self, pid: int) -> None:
        self._bytes = 0
        self._pid = pid
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def since_last(self) -> int:
        """The peak since the last call, in bytes."""
        found, self._bytes = self._bytes, 0
        return found

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(0.05):
            self._bytes = max(self._bytes, sum(map(_resident_bytes, _family(self._pid))))


def _family(pid: int) -> list[int]:
    found = [pid]
    for member in found:
        for children in Path(f"/proc/{member}/task").glob("*/children"):
            try:
                found += map(int, children.read_text().split())
            except OSError:
                continue
    return found


def _resident_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError):
        return 0


def show(console: Console, title: str, found: Run) -> None:
    documents, size, tokens = (
        sum(getattr(counts, name) for counts in found.frozen.counts.values())
        for name in ("documents", "bytes", "tokens")
    )
    rows = [(phase, f"{seconds:.1f}", f"{most / 1e6:,.0f}") for phase, (seconds, most) in found.steps.items()]
    rows += [
        ("all, with the start of the process", f"{found.seconds:.1f}", f"{found.peak_bytes / 1e6:,.0f}"),
        ("processor seconds of all processes", f"{found.processor_seconds:.1f}", ""),
        ("MB of text a second", f"{size / found.seconds / 1e6:.2f}", ""),
        ("tokens a second", f"{tokens / found.seconds:,.0f}", ""),
    ]
    title = f"{title}: {documents:,} documents, {tokens:,} tokens"
    console.print(table(title, ("", "s", "peak MB, all processes"), rows, right=(1, 2)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--vocabulary", type=int, default=8192)
    parser.add_argument("--pre-tokenizer", choices=("gpt2", "nanochat"), default="gpt2")
    parser.add_argument("--tokenizer", type=Path, help="a tokenizer.json, instead of learning one")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    console = Console()
    with tempfile.TemporaryDirectory(prefix="paribus-bench-") as scratch:

        def of(name: str, similarity: float | None, file: Path | None) -> Run:
            store = Path(scratch) / name
            path = None if file is None else str(file.resolve())
            found = run(
                [
                    str(arguments.folder.resolve()),
                    similarity,
                    arguments.vocabulary,
                    arguments.pre_tokenizer,
                    path,
                    str(store),
                    arguments.workers,
                ],
                store,
            )
            show(console, name, found)
            return found

        file = arguments.tokenizer
        if file is None:
            file = of(f"vocabulary of {arguments.vocabulary:,} learnt", 0.8, None).frozen.folder / "tokenizer.json"
        of("tokenizer loaded", 0.8, file)
        of("tokenizer loaded, near duplicates kept", None, file)


if __name__ == "__main__":
    main()
