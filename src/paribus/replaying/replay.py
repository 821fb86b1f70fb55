"""One update of a cell made again from the nearest state that is kept, and held against what is on record of it."""

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from paribus.errors import ParibusError, StudyFolderError
from paribus.experiment.code import code_digest
from paribus.replaying.opening import OpenCell
from paribus.runs import trouble
from paribus.runs.environment import environment
from paribus.runs.metrics import of_holders
from paribus.runs.records import lines_of
from paribus.train.determinism import require_mode, set_deterministic
from paribus.train.loop import BrokenUpdateError, advance
from paribus.train.trouble import Watched, watch

CUBLAS_WORKSPACE = ":4096:8"
"""which torch asks for where products must be the same each time"""
COMPARED = {
    "batch_digest": "digest of the batch",
    "loss_nats_per_token": "loss, nats per token",
    "gradient_norm": "gradient norm before clipping",
    "learning_rate_multiplier": "learning rate multiplier",
}
"""fields of a line of metrics that an update determines, in words"""

OnStep = Callable[[int, int], None]
"""receives how many of how many updates are made"""


@dataclass(frozen=True)
class Compared:
    """One number of an update, on record and made again."""

    field: str
    recorded: float | str | None
    """None where it is not on record"""
    again: float | str | None

    @property
    def same(self) -> bool | None:
        """None where nothing is on record."""
        return None if self.recorded is None else self.recorded == self.again

    @property
    def difference(self) -> float | None:
        """Made again minus recorded; None where one of them is no finite number."""
        if isinstance(self.recorded, float | int) and isinstance(self.again, float | int):
            return self.again - self.recorded
        return None


@dataclass(frozen=True)
class Replayed:
    """What became of it."""

    cell: str
    step: int
    """the update, from 1"""
    start: str
    """where updates began to be made again, in words"""
    updates: int
    """made before this one"""
    compared: tuple[Compared, ...]
    """empty where nothing is on record of this update"""
    watched: Watched
    expected: Mapping[str, Any] | None
    """what trouble.json says of this very update"""
    notes: tuple[str, ...]
    """what is no longer as it was when the cell was trained"""

    @property
    def same(self) -> bool | None:
        """Whether every number on record came again bit for bit; None where none is."""
        known = [each.same for each in self.compared if each.same is not None]
        return all(known) if known else None

    @property
    def sentence(self) -> str:
        if self.same is None:
            return f"nothing is on record of update {self.step} to hold it against"
        if self.same:
            return "same, bit for bit"
        off = [each for each in self.compared if each.same is False]
        told = [
            f"{COMPARED[each.field]} {each.again} for {each.recorded}"
            + ("" if each.difference is None else f" ({each.difference:+.3g})")
            for each in off
        ]
        return "not the same: " + "; ".join(told)


def replay(path: Path, step: int | None, on_step: OnStep, *, inspect: bool = False) -> Replayed:
    """Make update `step` of the cell in folder `path` again; None means the one that ended it.

    `inspect` asks for the magnitudes of every tensor. ParibusError for a folder that is no cell's, a step that the cell
    does not have, code or a corpus that is not here. Nothing is written.
    """
    cell = OpenCell.read(path)
    chosen = _chosen(cell, step)
    cell.require_step(chosen)
    threads = cell.resolved["execution"]["threads"]
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", CUBLAS_WORKSPACE)
    before = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    torch.set_num_threads(threads)
    require_mode(cell.mode, cell.device.type)
    try:
        return _replay(cell, chosen, on_step, inspect)
    finally:
        torch.set_num_threads(before[0])
        set_deterministic(before[1])


def _chosen(cell: OpenCell, step: int | None) -> int:
    if step is not None:
        return step
    if cell.trouble is not None:
        return int(cell.trouble["step"])
    raise ParibusError(
        f"which update of {cell.name}?",
        expected=f"--step from 1 to {cell.length.steps}; it can be left out where a cell has diverged and kept why",
        received=f"none, and the cell is {cell.folder.state}",
    )


def _replay(cell: OpenCell, step: int, on_step: OnStep, inspect: bool) -> Replayed:
    course, start = cell.course, cell.nearest(step)
    state = cell.state(start)
    made = step - 1 - start.updates
    while state.step < step - 1:
        on_step(state.step - start.updates, made)
        try:
            advance(state, course)
        except BrokenUpdateError as error:
            raise ParibusError(
                f"update {step} cannot be reached: {error.what}",
                received=f"begun at {start.where}",
                remedy=f"replay that update: --step {state.step}",
            ) from error
    on_step(made, made)
    watched = watch(state, course, sizes=inspect)
    recorded, expected = _on_record(cell, step)
    event = asdict(watched.event)
    compared = [
        Compared(field, recorded.get(field), _plain(event[field]))
        for field in COMPARED
        if recorded.get(field) is not None
    ]
    notes = tuple(_notes(cell))
    return Replayed(cell.name, step, start.where, made, tuple(compared), watched, expected, notes)


def _on_record(cell: OpenCell, step: int) -> tuple[Mapping[str, Any], Mapping[str, Any] | None]:
    """(numbers of the update, what trouble.json says of it)."""
    kept = cell.trouble
    expected = kept if kept is not None and kept["step"] == step else None
    path = cell.folder.path / "metrics.jsonl"
    # Line by line: a cell in training may be in the middle of the last, and a damaged one elsewhere does not matter.
    lines = (
        of_holders([line.content for line in lines_of(path.read_bytes()) if not line.wrong]) if path.exists() else []
    )
    line = next((line for line in reversed(lines) if isinstance(line, dict) and line.get("step") == step), None)
    return line or expected or {}, expected


def _notes(cell: OpenCell) -> list[str]:
    now, then = environment(), cell.record["environment"]
    changed = [f"{what} {then[what]}, here {now[what]}" for what in now if what in then and then[what] != now[what]]
    found = [f"the cell began with {'; '.join(changed)}"] if changed else []
    other = [each for each in cell.record.get("resumed", []) if each.get("environment") != cell.record["environment"]]
    if other:
        found.append(f"it went on with other versions or on another machine at step {other[0]['step']}")
    trained_on = cell.resolved["execution"]["device"]
    if cell.device.type != trained_on:
        found.append(f"it was trained on {trained_on}, which is not here: the CPU rounds otherwise")
    if cell.mode == "fast":
        found.append("it was trained in fast mode, whose updates come again up to rounding and no closer")
    if _code(cell) not in (None, cell.resolved.get("code")):
        found.append("the code that determines its numbers has changed since")
    return found


def _code(cell: OpenCell) -> str | None:
    """Digest of the present code of the cell's arm; None where the plan no longer tells what it is made of."""
    try:
        arms = (cell.study.plan() or {}).get("arms", [])
        roots = next((a["code_roots"] for a in arms if (a["scale"], a["arm"]) == _place(cell)), None)
        return None if roots is None else code_digest(roots)
    except (StudyFolderError, KeyError, TypeError):
        return None


def _place(cell: OpenCell) -> tuple[str, str]:
    return cell.record["scale"], cell.record["arm"]


def _plain(value: Any) -> float | str | None:
    """As the record of trouble writes it; a line of metrics is finite."""
    return trouble.number(value) if isinstance(value, float) else value


def as_json(found: Replayed) -> dict[str, Any]:
    """Everything, as JSON types: what is not finite by its name."""
    watched = found.watched
    return {
        "cell": found.cell,
        "step": found.step,
        "begun_at": found.start,
        "updates_before": found.updates,
        "same": found.same,
        "sentence": found.sentence,
        "compared": [{**asdict(c), "same": c.same, "difference": c.difference} for c in found.compared],
        "broken": watched.broken,
        "findings": [{**asdict(each), "sentence": each.sentence} for each in watched.findings],
        "recorded_findings": None if found.expected is None else list(found.expected["findings"]),
        "notes": list(found.notes),
        "tensors": _sizes(watched.sizes, "activation"),
        "parameters": _sizes(watched.weights, "value"),
    }


def _sizes(sizes: Mapping[str, Any], what: str) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            **{
                f"{which}_{measure}": trouble.number(getattr(magnitude, measure)) if magnitude.count else None
                for which, magnitude in ((what, of.activation), ("gradient", of.gradient))
                for measure in ("largest", "rms")
            },
        }
        for name, of in sizes.items()
    ]
