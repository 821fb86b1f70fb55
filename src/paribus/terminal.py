"""What the terminal shows while a study runs, and its tables afterwards."""

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from paribus.data.progress import Advance

Listener = Callable[[dict[str, Any]], None]
ESTIMATED_AFTER_SECONDS = 5.0
"""of updates, from which the time of a study is estimated"""


def cell_name(event: Mapping[str, Any]) -> str:
    variant = f" ({event['variant']})" if event["variant"] else ""
    return f"{event['scale']}/{event['arm']}/{event['seed']}{variant}"


@contextmanager
def steps_of_preparation(console: Console) -> Iterator[Callable[[Advance], None]]:
    """A bar for each phase of preparing a corpus."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        tasks: dict[str, TaskID] = {}

        def show(advance: Advance) -> None:
            if advance.phase not in tasks:
                tasks[advance.phase] = progress.add_task(advance.phase, total=advance.total or None)
            progress.update(tasks[advance.phase], completed=advance.done, total=advance.total or None)

        yield show


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
    return f"{cell_name(event)} stopped at step {event['step']}, resumable"


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
