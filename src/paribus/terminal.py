"""What the terminal shows while a corpus is prepared and a study runs, and its tables afterwards."""

import re
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Column, Table

from paribus.data.progress import Advance

Listener = Callable[[dict[str, Any]], None]
ESTIMATED_AFTER_SECONDS = 5.0
"""of updates, from which the time of a study is estimated"""
LINE_EVERY_SECONDS = 30.0
"""of a phase that takes long, where nobody watches a terminal"""
_WINDOW_SECONDS = 30.0
"""over which speed is measured: work that was finished before comes back at once, and says nothing of the rest"""
_MEASURABLE_SECONDS = 1.0
_WIDE_CHARACTERS = 110
"""of a terminal that holds every number of a preparation in full"""
_UNCOUNTED = ("tokenizer", "test documents")
"""phases that tell no more than that they have begun and ended"""


def cell_name(event: Mapping[str, Any]) -> str:
    variant = f" ({event['variant']})" if event["variant"] else ""
    return f"{event['scale']}/{event['arm']}/{event['seed']}{variant}"


@dataclass
class _Phase:
    name: str
    began: float
    latest: Advance
    points: deque[tuple[float, int, int]] = field(default_factory=deque)
    """(seconds, done, bytes) of the latest seconds"""

    def advance(self, advance: Advance, now: float) -> None:
        self.latest = advance
        self.points.append((now, advance.done, advance.bytes))
        while len(self.points) > 2 and now - self.points[0][0] > _WINDOW_SECONDS:
            self.points.popleft()

    @property
    def in_bytes(self) -> bool:
        """Whether `done` counts bytes; of updates that are timed it counts rounds, of questions items."""
        if self.name.startswith(("timing ", "ask ")):
            return False
        return self.name != "compare documents" and self.name not in _UNCOUNTED

    def told(self, *, briefly: bool = False) -> str:
        """Documents, bytes, speed and tokens so far; briefly, tokens stand for bytes and are rounded."""
        latest = self.latest
        parts = [f"{latest.documents:,} {'files' if self.name == 'fetch files' else 'documents'}"]
        parts = parts if latest.documents else []
        if self.in_bytes:
            parts += [] if briefly and latest.tokens else [bytes_in_words(latest.bytes or latest.done)]
            if speed := self._speed(of_text=latest.bytes > 0):
                parts.append(f"{speed / 1e6:,.1f} MB/s")
        if latest.tokens:
            parts.append(f"{latest.tokens / 1e6:,.1f}M tokens" if briefly else f"{latest.tokens:,} tokens")
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
def steps_of_preparation(console: Console) -> Iterator[Callable[[Advance], None]]:
    """Shows every step of preparing a corpus: a bar a phase, or where nobody watches a terminal a line now and then.

    Steps come from one process, or from several threads that take turns.
    """
    with _bars(console) if console.is_terminal else _lines(console) as show:
        yield show


@contextmanager
def _bars(console: Console) -> Iterator[Callable[[Advance], None]]:
    narrow = console.width < _WIDE_CHARACTERS
    # What grows comes last and is not padded: in 80 characters all of it has room.
    columns = (
        BarColumn(bar_width=8 if narrow else 24),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeRemainingColumn(elapsed_when_finished=True),
        TextColumn("{task.description}{task.fields[told]}", table_column=Column(no_wrap=True)),
    )
    phases: dict[str, tuple[_Phase, TaskID]] = {}
    with Progress(*columns, console=console, speed_estimate_period=_WINDOW_SECONDS) as progress:

        def show(advance: Advance) -> None:
            now = time.monotonic()
            if advance.phase not in phases:
                _settle()
                task = progress.add_task(advance.phase, total=advance.total or None, told="")
                phases[advance.phase] = _Phase(advance.phase, now, advance), task
            phase, task = phases[advance.phase]
            phase.advance(advance, now)
            told = f": {told}" if (told := phase.told(briefly=narrow)) else ""
            progress.update(task, completed=advance.done, total=advance.total or None, told=told)

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
            running.append(_Phase(advance.phase, now, advance))
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


class _FirstUpdates:
    """Says once how long all updates take, from those of the first seconds. What came before them (starting workers,
    building models) is left out."""

    def __init__(self, updates: int) -> None:
        self._updates, self._done, self._said = updates, 0, False
        self._first = 0.0

    def seconds_left(self) -> float | None:
        """To be called at every update: the estimate when it is due, and None before and after."""
        now = time.monotonic()
        self._done += 1
        if self._done == 1:
            self._first = now
        taken = now - self._first
        if self._said or taken < ESTIMATED_AFTER_SECONDS or self._done < 2:
            return None
        self._said = True
        return taken / (self._done - 1) * (self._updates - self._done)


@contextmanager
def live_study(console: Console, cells: int, steps: int) -> Iterator[Listener]:
    """The whole study as one bar, each running cell as a line below it: loss, tokens per second, time left.

    `steps` are the updates still to be done in `cells` cells. Where nobody watches a terminal, one line a finished
    cell is printed instead, and one with the time left as soon as some updates say how long they take.
    """
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[shown]}"),
        TimeRemainingColumn(),
    )
    started = time.monotonic()
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        total = progress.add_task("study", total=steps, shown=f"0 of {cells} cells")
        running: dict[str, TaskID] = {}
        finished = 0
        timed = _FirstUpdates(steps)

        def on_event(event: dict[str, Any]) -> None:
            nonlocal finished
            name = cell_name(event)
            if event["kind"] == "started":
                progress.update(total, advance=event["step"])
                running[name] = progress.add_task(
                    f"  {name}", total=event["steps"], completed=event["step"], shown="starting"
                )
            elif event["kind"] == "step":
                tokens = event["tokens_seen"] / event["step"] / event["wall_seconds"]
                shown = f"loss {event['loss_nats_per_token']:.3f}  {tokens:,.0f} tokens/s"
                progress.update(running[name], completed=event["step"], shown=shown)
                progress.update(total, advance=1)
                left = timed.seconds_left()
                if left is not None and not console.is_terminal:
                    console.print(
                        f"about {left / 60:.1f} min left if every update takes as long as the first ones",
                        highlight=False,
                    )
            else:
                progress.remove_task(running.pop(name))
                finished += event["kind"] in ("finished", "diverged")
                progress.update(total, shown=f"{finished} of {cells} cells")
                elapsed = time.monotonic() - started
                left = elapsed / finished * (cells - finished) if finished else 0.0
                times = f"{elapsed / 60:.1f} min so far"
                if event["kind"] in ("finished", "diverged"):
                    times += f", about {left / 60:.1f} min left"
                console.print(f"{finished:>3} of {cells}  {outcome(event)}  ({times})", highlight=False)

        yield on_event


@contextmanager
def live_trial(console: Console, steps: int, arms: tuple[str, str]) -> Iterator[Callable[[int, float, float], None]]:
    """One bar of updates with the latest loss of each of two arms: (finished updates, loss, loss of the baseline)."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[shown]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("steps", total=steps, shown="starting")

        def show(step: int, loss: float, baseline_loss: float) -> None:
            shown = f"loss {loss:.3f} {arms[0]}, {baseline_loss:.3f} {arms[1]}"
            progress.update(task, completed=step, shown=shown)

        yield show


def outcome(event: Mapping[str, Any]) -> str:
    """One cell's end in words. Held-out losses are not shown: a look before the planned seeds is a look."""
    if event["kind"] == "finished":
        return f"{cell_name(event)} trained in {event['seconds']:.0f} s"
    if event["kind"] == "diverged":
        return f"{cell_name(event)} DIVERGED: {event['reason']}"
    because = f": {event['reason']}" if event.get("reason") else ""
    return f"{cell_name(event)} stopped at step {event['step']}, resumable{because}"


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> Table:
    """A plain aligned table; columns named in `right` are set flush right."""
    found = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, header_style="dim")
    for index, column in enumerate(columns):
        # The first column names the row: it is never broken while another one can be.
        found.add_column(column, justify="right" if index in right else "left", overflow="fold", no_wrap=index == 0)
    for row in rows:
        found.add_row(*row)
    return found


def families(names: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, tuple[int, ...], str]]:
    """Tensors that differ only in a layer number, as one line: pattern -> (count, shape, a member's name)."""
    found: dict[str, tuple[int, tuple[int, ...], str]] = {}
    for name, shape in names.items():
        pattern = re.sub(r"\.\d+\.", ".*.", name)
        count = found[pattern][0] if pattern in found else 0
        found[pattern] = (count + 1, shape, name)
    return found


def bytes_in_words(size: float) -> str:
    """In powers of ten, one decimal."""
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= unit:
            return f"{size / unit:,.1f} {name}"
    return f"{size:.0f} B"
