"""`paribus status`: a study at a glance, for whoever starts workers on several machines. Shows no outcome."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from paribus.errors import StudyFolderError
from paribus.keeping.leases import lease_as_json
from paribus.keeping.progress import Work, begun, seconds_left
from paribus.reading.cell import UNUSED
from paribus.reading.environments import environment_sentences
from paribus.reading.study import ReadStudy
from paribus.terminal import table

_STATES = ("complete", "diverged", "running", "started", "parked", "missing", "stale", *UNUSED)
_NAMED = 12
"""cells of a kind that are named; --json has all"""


@dataclass(frozen=True)
class Status:
    """What is known of a study now."""

    study: str
    tuning: str
    """how far its tuning is, in words; empty where nothing is tuned"""
    read: ReadStudy | None
    """None while the tuning is not finished"""
    works: tuple[Work, ...]
    """cells that have begun and not ended, of the study itself or else of its tuning"""
    stale_because: tuple[str, ...] = ()

    @property
    def environments(self) -> list[str]:
        """Whether cells were trained under different environments, or gone on with under another one."""
        return [] if self.read is None else environment_sentences(dict(_records(self.read)))

    @property
    def seconds_left(self) -> float | None:
        return None if self.read is None else seconds_left(self.read, self.works)


def status_of(read: ReadStudy, tuning: str, stale_because: Sequence[str]) -> Status:
    """Of a study that is not being tuned, or no more."""
    planned = [cell.folder.path for cell in read.cells.values() if cell.folder is not None]
    works = begun(read.folder.path, planned)
    return Status(read.experiment.study, tuning, read, tuple(works), tuple(stale_because))


def status_of_tuning(study: str, tuning: str, folder: Path) -> Status:
    """Of a study whose tuning goes on in `folder`."""
    return Status(study, tuning, None, tuple(begun(folder)) if folder.is_dir() else ())


def show(status: Status, console: Console, *, every_cell: bool = False) -> None:
    """Print everything once."""
    for part in _parts(status, console.width, every_cell):
        console.print(part, soft_wrap=isinstance(part, Text))


def _parts(status: Status, width: int, every_cell: bool) -> list[RenderableType]:
    parts: list[RenderableType] = [_line(status.tuning)] if status.tuning else []
    read = status.read
    if read is not None:
        title = f"Study {read.experiment.study}"
        parts.append(_cells(read, title) if every_cell else _arms(read, status.works, title))
    running = [work for work in status.works if work.running]
    if running:
        parts += [Text(), _running(running, width)]
    left = status.seconds_left
    if left:
        parts.append(
            _line(
                f"about {_duration(left)} of training left with {len(running)} at work"
                if running
                else f"nobody is at work; about {_duration(left)} of training left for one worker"
            )
        )
    if read is not None:
        counts = {state: read.count(state) for state in sorted({cell.state for cell in read.cells.values()})}
        parts.append(_line(", ".join(f"{count} {state}" for state, count in counts.items())))
    parts += [_line(text) for text in _told(status)]
    return parts


def as_json(status: Status) -> dict[str, Any]:
    """Everything, as JSON types."""
    read = status.read
    cells = [] if read is None else read.cells.values()
    return {
        "study": status.study,
        "tuning": status.tuning,
        "cells": [
            dict(zip(("scale", "arm", "seed", "variant"), c.key, strict=True)) | {"state": c.state, "digest": c.digest}
            for c in cells
        ],
        "stale_folders": [] if read is None else [str(path) for path in read.stale_folders()],
        "begun": [_work_as_json(work) for work in status.works],
        "seconds_left": status.seconds_left,
        "not_used": {_named(c.key): [*c.alterations, *c.faults] for c in cells if c.state in UNUSED},
        "diverged": {_named(c.key): c.summary.get("reason", "") for c in cells if c.state == "diverged"},
        "environments": status.environments,
        "doubts": [] if read is None else list(read.doubts),
    }


def watch(look: Callable[[], Status], every_seconds: float, console: Console, *, every_cell: bool = False) -> None:
    """Look again and again until Ctrl-C; on a terminal in one place, elsewhere one look below the other."""
    with Live(console=console, auto_refresh=False) if console.is_terminal else nullcontext() as live:
        try:
            while True:
                found = look()
                at = _line(f"{time.strftime('%Y-%m-%d %H:%M:%S')}, every {every_seconds:g} s; Ctrl-C ends it")
                if live is not None:
                    live.update(Group(*_parts(found, console.width, every_cell), at), refresh=True)
                else:
                    show(found, console, every_cell=every_cell)
                    console.print(at, Text())
                time.sleep(every_seconds)
        except KeyboardInterrupt:
            return


def _arms(read: ReadStudy, works: Sequence[Work], title: str) -> RenderableType:
    """A line an arm: how many of its cells are in which state."""
    parked = {work.folder for work in works if work.parked is not None and not work.running}
    counts: dict[tuple[str, str, str], dict[str, int]] = {}
    for (scale, arm, _, variant), cell in read.cells.items():
        state = "parked" if cell.folder is not None and cell.folder.path in parked else cell.state
        of = counts.setdefault((scale, arm, variant), {})
        of[state] = of.get(state, 0) + 1
    states = [state for state in _STATES if any(state in of for of in counts.values())]
    rows = [(*key, *(str(of.get(state, "")) for state in states)) for key, of in counts.items()]
    with_variants = any(variant for _, _, variant in counts)
    rows = rows if with_variants else [(scale, arm, *rest) for scale, arm, _, *rest in rows]
    columns = ("scale", "arm", *(("variant",) if with_variants else ()), *states)
    return table(title, columns, rows, right=range(len(columns) - len(states), len(columns)))


def _cells(read: ReadStudy, title: str) -> RenderableType:
    rows = [(c.key[0], c.key[1], f"{c.key[2]}", c.key[3], c.state, c.digest) for c in read.cells.values()]
    return table(title, ("scale", "arm", "seed", "variant", "state", "digest"), rows, right=(2,))


def _running(works: Sequence[Work], width: int) -> RenderableType:
    """Who trains what, on which machine, since when."""
    rows = []
    for work in works:
        assert work.lease is not None
        holder = work.lease.holder
        age = f"{_duration(holder.heartbeat_age_seconds)} ago"
        rows.append(
            (
                work.name,
                f"{holder.host}, {holder.pid}" if holder.pid else holder.host,
                _since(holder.taken),
                age if work.lease.state == "held" else f"{age} (silent)",
                f"{work.step} of {work.steps}" if work.steps else f"{work.step}",
                f"{work.tokens_per_second:,.0f}" if work.tokens_per_second else "",
                _duration(work.seconds_left) if work.seconds_left is not None else "",
            )
        )
    columns = ("running", "machine", "since (UTC)", "heartbeat", "update", "tokens/s", "left")
    if width >= sum(max(len(row[i]) for row in [columns, *rows]) + 2 for i in range(len(columns))):
        return table("", columns, rows, right=(3, 4, 5, 6))
    told = [", ".join(f"{column} {value}" for column, value in zip(columns, row, strict=True) if value) for row in rows]
    return Group(*map(_line, told))


def _told(status: Status) -> Iterator[str]:
    """What deserves a sentence."""
    for work in status.works:
        if work.parked is not None and not work.running:
            yield f"parked  {work.name}: {work.parked} (`paribus run --retry-parked` tries it again)"
    idle = [work for work in status.works if not work.running and work.parked is None]
    yield from _some([_idle(work) for work in idle])
    read = status.read
    if read is not None:
        ended = [cell for cell in read.cells.values() if cell.state == "diverged"]
        yield from _some(
            [f"diverged  {_named(cell.key)}: {cell.summary.get('reason', 'no reason is on record')}" for cell in ended]
        )
        for cell in read.cells.values():
            if cell.state in UNUSED:
                why = "; ".join((*cell.alterations, *cell.faults)[:3])
                yield f"{cell.state}  {_named(cell.key)}: {why}; `paribus doctor` says more"
        yield from (f"note  {doubt}" for doubt in read.doubts)
    yield from _some([f"environment  {text}" for text in status.environments])
    yield from status.stale_because
    if read is not None:
        yield from (f"stale, kept: {path}" for path in read.stale_folders())


def _idle(work: Work) -> str:
    at = f"update {work.step} of {work.steps}" if work.steps else f"update {work.step}"
    if work.lease is None:
        return f"stopped  {work.name} at {at}: resumable"
    holder = work.lease.holder
    return f"left  {work.name} at {at}: process {holder.pid} of {holder.host} is gone; the next worker takes it over"


def _some(lines: Sequence[str]) -> Iterator[str]:
    yield from lines[:_NAMED]
    if len(lines) > _NAMED:
        yield f"and {len(lines) - _NAMED} more like this; --json names them"


def _records(read: ReadStudy) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for key, cell in read.cells.items():
        if cell.folder is None or cell.state == "missing":
            continue
        try:
            found = cell.folder.record()
        except StudyFolderError:  # told as a cell that is not used, or by the doctor
            continue
        if isinstance(found, dict):
            yield _named(key), found


def _work_as_json(work: Work) -> dict[str, Any]:
    return {
        "cell": work.name,
        "folder": str(work.folder),
        "running": work.running,
        "parked": work.parked,
        "claim": None if work.lease is None else lease_as_json(work.lease),
        "step": work.step,
        "steps": work.steps,
        "tokens_per_second": work.tokens_per_second,
        "seconds_left": work.seconds_left,
    }


def _named(key: tuple[str, str, int, str]) -> str:
    scale, arm, seed, variant = key
    return f"{scale}/{arm}/{seed}" + (f" ({variant})" if variant else "")


def _since(taken: str) -> str:
    """ "2026-03-01T09:12:33.123+00:00" -> "2026-03-01 09:12"."""
    return taken[:16].replace("T", " ")


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 360_000 else f"{seconds / 86_400:.1f} days"


def _line(text: str) -> Text:
    # Names and paths come from files: what looks like markup in them is text.
    return Text(text, overflow="fold")
