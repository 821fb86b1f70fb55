"""How a preparation is shown: a bar a phase, or where nobody watches a terminal a line now and then; then one table."""

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from paribus.data.frozen import FrozenCorpus
from paribus.data.progress import Advance
from paribus.data.split import SPLITS
from paribus.preparing.sizes import in_words
from paribus.terminal import table

LINE_EVERY_SECONDS = 30.0
"""of a phase that takes long, where nobody watches a terminal"""
_WINDOW_SECONDS = 30.0
"""over which speed is measured: work that was finished before comes back at once, and says nothing of the rest"""
_MEASURABLE_SECONDS = 1.0
_UNCOUNTED = ("tokenizer", "test documents")
"""phases that tell no more than that they have begun and ended"""


@dataclass
class _Phase:
    name: str
    began: float
    latest: Advance
    first_done: int
    points: deque[tuple[float, int, int]] = field(default_factory=deque)
    """(seconds, done, bytes) of the latest seconds"""

    def advance(self, advance: Advance, now: float) -> None:
        self.latest = advance
        self.points.append((now, advance.done, advance.bytes))
        while len(self.points) > 2 and now - self.points[0][0] > _WINDOW_SECONDS:
            self.points.popleft()

    @property
    def in_bytes(self) -> bool:
        """Whether `done` counts bytes."""
        return self.name != "compare documents" and self.name not in _UNCOUNTED

    def told(self) -> str:
        """Documents, speed and tokens so far."""
        latest = self.latest
        parts = [f"{latest.documents:,} {'files' if self.name == 'fetch files' else 'documents'}"]
        parts = parts if latest.documents else []
        if self.in_bytes:
            parts.append(in_words(latest.bytes or latest.done))
            if speed := self._speed(of_text=latest.bytes > 0):
                parts.append(f"{speed / 1e6:,.1f} MB/s")
        parts += [f"{latest.tokens:,} tokens"] if latest.tokens else []
        return ", ".join(parts)

    def left(self) -> float | None:
        """Seconds until the phase ends, at the speed of the latest ones; None where nobody can know."""
        speed = self._speed(of_text=False)
        return (self.latest.total - self.latest.done) / speed if self.latest.total and speed else None

    def _speed(self, *, of_text: bool) -> float:
        """Units of `done` per second, or bytes of text per second."""
        first, last = self.points[0], self.points[-1]
        column = 2 if of_text else 1
        elapsed = last[0] - first[0]
        return max(last[column] - first[column], 0) / elapsed if elapsed >= _MEASURABLE_SECONDS else 0.0


@contextmanager
def live_preparation(console: Console) -> Iterator[Callable[[Advance], None]]:
    """Shows every `Advance`, from one process or several threads that take turns."""
    with _bars(console) if console.is_terminal else _lines(console) as show:
        yield show


@contextmanager
def _bars(console: Console) -> Iterator[Callable[[Advance], None]]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.percentage:>3.0f} %"),
        TextColumn("{task.fields[told]}"),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    phases: dict[str, tuple[_Phase, TaskID]] = {}
    with Progress(*columns, console=console, speed_estimate_period=_WINDOW_SECONDS) as progress:

        def show(advance: Advance) -> None:
            now = time.monotonic()
            if advance.phase not in phases:
                _settle()
                task = progress.add_task(advance.phase, total=advance.total or None, told="")
                phases[advance.phase] = _Phase(advance.phase, now, advance, advance.done), task
            phase, task = phases[advance.phase]
            phase.advance(advance, now)
            progress.update(task, completed=advance.done, total=advance.total or None, told=phase.told())

        def _settle() -> None:
            """The phase before has ended, also where nobody knew how long it would take."""
            for phase, task in list(phases.values())[-1:]:
                if not phase.latest.total:
                    progress.update(task, total=max(phase.latest.done, 1), completed=max(phase.latest.done, 1))

        yield show
        _settle()


@contextmanager
def _lines(console: Console) -> Iterator[Callable[[Advance], None]]:
    """A line when a phase ends, and every half minute of one that has not."""
    running: list[_Phase] = []
    said_at = time.monotonic()

    def say(line: str) -> None:
        console.print(line, highlight=False, markup=False, soft_wrap=True)

    def ended() -> None:
        for phase in running:
            told = phase.told()
            say(f"{phase.name}: {f'{told}, ' if told else ''}{time.monotonic() - phase.began:.1f} s")
        running.clear()

    def show(advance: Advance) -> None:
        nonlocal said_at
        now = time.monotonic()
        if not running or running[0].name != advance.phase:
            ended()
            running.append(_Phase(advance.phase, now, advance, advance.done))
            said_at = now
        phase = running[0]
        phase.advance(advance, now)
        if now - said_at >= LINE_EVERY_SECONDS and advance.done != advance.total:
            said_at = now
            left = phase.left()
            parts = [f"{100 * advance.done / advance.total:.0f} %"] if advance.total else []
            parts += [phase.told()] if phase.told() else []
            parts += [] if left is None else [f"about {left / 60:.1f} min left"]
            say(f"  {phase.name}: {', '.join(parts)}")

    yield show
    ended()


def show_prepared(frozen: FrozenCorpus, console: Console, *, new: bool) -> None:
    """Splits, what was left out and why, where the corpus lies and its digest."""
    rows = []
    for split in SPLITS:
        counts = frozen.counts[split]
        rows.append((split, f"{counts.documents:,}", f"{counts.bytes:,}", f"{counts.tokens:,}", _ratio(counts)))
    title = f"{frozen.name}, {'prepared' if new else 'prepared before'}"
    columns = ("split", "documents", "bytes", "tokens", "bytes per token")
    console.print(table(title, columns, rows, right=(1, 2, 3, 4)))
    left_out = {reason.replace("_", " "): count for reason, count in frozen.dropped.items() if count}
    lines = ["left out: " + (", ".join(f"{count:,} {reason}" for reason, count in left_out.items()) or "nothing")]
    lines += [f"tokenizer: {frozen.vocabulary_size:,} token ids, beginning of a document {frozen.bos_id}"]
    lines += [f"folder: {frozen.folder}", f"digest: {frozen.digest}"]
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def as_json(frozen: FrozenCorpus) -> dict[str, Any]:
    """The same as JSON types."""
    return {
        "name": frozen.name,
        "folder": str(frozen.folder),
        "digest": frozen.digest,
        "vocabulary_size": frozen.vocabulary_size,
        "bos_id": frozen.bos_id,
        "splits": {
            split: {"documents": counts.documents, "bytes": counts.bytes, "tokens": counts.tokens}
            for split, counts in frozen.counts.items()
        },
        "left_out": dict(frozen.dropped),
    }


def _ratio(counts: Any) -> str:
    return f"{counts.bytes / counts.tokens:.3f}" if counts.tokens else "-"
