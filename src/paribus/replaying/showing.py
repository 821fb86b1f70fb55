"""A replayed update in the terminal."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from paribus.replaying.replay import COMPARED, OnStep, Replayed
from paribus.terminal import table
from paribus.train.trouble import Magnitude, Sizes


@contextmanager
def progress(console: Console) -> Iterator[OnStep]:
    """A bar of the updates that are made again before the one that is asked for; nothing where there are none."""
    columns = (TextColumn("updates made again"), BarColumn(24), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        task = None

        def on_step(done: int, of: int) -> None:
            nonlocal task
            if of == 0:
                return
            if task is None:
                task = bars.add_task("", total=of)
            bars.update(task, completed=done)

        yield on_step


def show(found: Replayed, console: Console) -> None:
    """What is on record beside what came again; what was not finite; and magnitudes, where they were asked for."""

    def say(line: str) -> None:
        console.print(line, highlight=False, markup=False, soft_wrap=True)

    before = f" and {found.updates:,} updates before it" if found.updates else ""
    say(f"{found.cell}: update {found.step}{before}, made again from {found.start}")
    for note in found.notes:
        say(f"note: {note}")
    if found.compared:
        rows = [(COMPARED[c.field], str(c.recorded), str(c.again), "yes" if c.same else "NO") for c in found.compared]
        console.print(table("", ("", "on record", "made again", "same"), rows, right=(1, 2)))
    say(found.sentence)
    watched = found.watched
    if watched.findings:
        say(f"first tensor that is not finite: {watched.findings[0].sentence}")
        for then in watched.findings[1:]:
            say(f"  then: {then.sentence}")
    elif found.expected is not None or watched.broken:
        say("no tensor of this update is other than finite")
    if found.expected is not None and found.expected["findings"]:
        recorded = found.expected["findings"][0].get("tensor")
        again = watched.findings[0].tensor if watched.findings else "none"
        say("as on record" if recorded == again else f"on record the first was: {recorded}")
    for title, what, sizes in (
        ("Tensors of the forward pass, in its order", "activation", watched.sizes),
        ("Parameters before the update", "value", watched.weights),
    ):
        if sizes:
            console.print(_sizes(title, what, sizes))


def _sizes(title: str, what: str, sizes: Mapping[str, Sizes]) -> Table:
    columns = ("", f"{what} largest", "rms", "gradient largest", "rms")
    rows = [(name, *_cells(of.activation), *_cells(of.gradient)) for name, of in sizes.items()]
    found = table(title, columns, rows, right=(1, 2, 3, 4))
    for index, column in enumerate(found.columns):
        column.no_wrap = index > 0  # a name can be read over two lines, a number cannot
    return found


def _cells(of: Magnitude) -> tuple[str, str]:
    return (f"{of.largest:.3g}", f"{of.rms:.3g}") if of.count else ("", "")
