"""How far the cells of a study are that have begun and not ended, and who is at them: what `paribus status` shows.

Read from claims and the last lines of metrics alone. No loss is looked at, so that it is no look.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paribus.data.updates import updates_of
from paribus.errors import StudyFolderError
from paribus.experiment.spec import Key, variant_budget
from paribus.keeping.leases import Lease, lease_of
from paribus.reading.study import ReadStudy
from paribus.runs import metrics
from paribus.runs.failures import parked
from paribus.runs.folder import FINETUNED, METRICS, CellFolder
from paribus.runs.records import lines_of, read_json
from paribus.runs.verifying import trained_folders

TAIL_BYTES = 65_536
"""of metrics that are read, whatever their length"""
LATEST = 20
"""updates over which the speed is measured"""


@dataclass(frozen=True)
class Work:
    """One cell, or fine-tuned one, that has begun and not ended."""

    name: str
    """such as "S/standard/0" """
    folder: Path
    lease: Lease | None
    """of whoever holds it, or has died holding it"""
    parked: str | None
    """the last reason; None where it is not parked"""
    step: int
    """finished updates that are on record"""
    steps: int | None
    """of the whole run; None where the record of the cell cannot be read"""
    tokens_seen: int
    tokens_per_second: float | None
    """of the latest updates, measurements and checkpoints left out; None before the first"""

    @property
    def running(self) -> bool:
        return self.lease is not None and self.lease.state != "stale"

    @property
    def seconds_left(self) -> float | None:
        """Of updates, at this speed."""
        if not (self.steps and self.step and self.tokens_per_second):
            return None
        return (self.steps - self.step) * self.tokens_seen / self.step / self.tokens_per_second


def begun(study: Path, only: Iterable[Path] | None = None) -> list[Work]:
    """Everything in a study's folder that has begun and not ended. `only`: cells of the present plan; another one
    is told where somebody is at it just now."""
    planned = None if only is None else set(only)
    found = []
    for folder in trained_folders(study):
        cell = CellFolder(folder)
        if cell.finished or not ((folder / "cell.json").exists() or (folder / ".claims").exists()):
            continue
        work = _work(study, cell)
        own = folder.parents[1] if folder.parent.name == FINETUNED else folder
        if planned is None or own in planned or work.running:
            found.append(work)
    return found


def seconds_left(study: ReadStudy, works: Sequence[Work]) -> float | None:
    """Until the study's cells have ended, if as many workers go on as are at work now (or one, where none is), and
    every update takes as long as others of its arm at its scale did, or of its scale. None where no speed is known."""
    speeds = _speeds(study, works)
    at = {work.folder: work for work in works}
    total = 0.0
    for key, cell in study.cells.items():
        if cell.state in ("complete", "diverged", "altered", "unusable") or cell.folder is None:
            continue
        work = at.get(cell.folder.path)
        if work is not None and work.parked is not None:
            continue
        own = work.tokens_per_second if work is not None else None
        speed = own or speeds.get(key[:2]) or speeds.get((key[0], ""))
        if not speed:
            return None
        done = work.tokens_seen if work is not None and cell.state != "stale" else 0  # a stale one is trained anew
        total += max(_budget(study, key) - done, 0) / speed
    return total / max(sum(work.running for work in works), 1)


def _speeds(study: ReadStudy, works: Sequence[Work]) -> dict[tuple[str, str], float]:
    """Tokens per second by (scale, arm), and by (scale, "") over all arms: a mean over cells."""
    found: dict[tuple[str, str], list[float]] = {}

    def add(scale: str, arm: str, speed: float | None) -> None:
        for key in ((scale, arm), (scale, "")) if speed else ():
            found.setdefault(key, []).append(speed or 0.0)

    for key, cell in study.cells.items():
        if cell.state == "complete" and cell.summary.get("train_seconds"):
            add(key[0], key[1], cell.summary["tokens_seen"] / cell.summary["train_seconds"])
    for work in works:
        scale, arm, *_ = work.name.split("/")
        add(scale, arm, work.tokens_per_second)
    return {key: sum(speeds) / len(speeds) for key, speeds in found.items()}


def _budget(study: ReadStudy, key: Key) -> int:
    """Tokens that a cell is trained for."""
    smaller = variant_budget(key[3])
    return study.experiment.scales[key[0]].budget_tokens if smaller is None else smaller


def _work(study: Path, cell: CellFolder) -> Work:
    lines = _latest(cell.path / METRICS)
    reasons = parked(cell.path)
    last = lines[-1] if lines else {}
    # A line's tokens are all that were seen until then, and batches are of one size.
    tokens = [line["tokens_seen"] / line["step"] for line in lines]
    seconds = sum(line["wall_seconds"] for line in lines)
    return Work(
        name=_name(study, cell.path),
        folder=cell.path,
        lease=lease_of(cell.path),
        parked=None if reasons is None else _last_reason([each.reason for each in reasons]),
        step=last.get("step", 0),
        steps=_steps(cell),
        tokens_seen=last.get("tokens_seen", 0),
        tokens_per_second=sum(tokens) / seconds if seconds > 0 else None,
    )


def _last_reason(reasons: Sequence[str]) -> str:
    return reasons[-1].partition("\n")[0] if reasons else "the reasons are not readable"


def _latest(path: Path) -> list[dict[str, Any]]:
    """The last lines of metrics that are whole and of the newest holder."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - TAIL_BYTES, 0))
            tail = file.read()
    except OSError:
        return []
    if size > TAIL_BYTES:
        tail = tail.partition(b"\n")[2]
    whole = [line.content for line in lines_of(tail) if not line.wrong and isinstance(line.content, dict)]
    needed = ("step", "tokens_seen", "wall_seconds")
    usable = [line for line in whole if all(type(line.get(name)) in (int, float) for name in needed) and line["step"]]
    return metrics.of_holders(usable)[-LATEST:]


def _steps(cell: CellFolder) -> int | None:
    """Updates of the whole run, as its record has them."""
    try:
        if (cell.path / "finetune.json").exists():
            return int(read_json(cell.path / "finetune.json")["settings"]["recipe"]["steps"])
        resolved = cell.record()["resolved"]
        return updates_of(resolved["budget_tokens"], resolved["batch_tokens"])
    except (StudyFolderError, KeyError, TypeError, ValueError):
        return None


def _name(study: Path, folder: Path) -> str:
    scale, arm, cell, *tuned = folder.relative_to(study).parts
    seed, _, variant = cell.partition("-")
    variant = variant.partition("-")[2]
    name = f"{scale}/{arm}/{seed}" + (f" ({variant})" if variant else "")
    return f"{name}, fine-tuned as {tuned[-1]}" if tuned else name
