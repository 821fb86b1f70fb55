"""What happens to a cell that is held: built, trained from its last checkpoint, measured, finished.

Everything is drawn and digested on the CPU; the model moves to its device afterwards, so that initial values and
batches are the same numbers wherever a cell runs. The state at the last update is kept: a cell may be the donor of
another one, which waits for it.

Each write of a cell goes through the fence of its claim. Who takes which cell, and what is tried again, is
`paribus.draining`'s; what a claim is, `paribus.runs.claims`'s.
"""

import hashlib
import json
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import torch
from safetensors.torch import load
from torch import nn

from paribus import mechanisms
from paribus.disk import require_no_links, require_space
from paribus.diverging import explain
from paribus.errors import DivergenceError, StudyFolderError
from paribus.experiment.donors import adopt
from paribus.experiment.plan import ArmAtScale, Cell, device_of
from paribus.experiment.space import cell_space, kept_steps, scored_units
from paribus.experiment.spec import REPEAT, STUDY, TWIN
from paribus.experiment.twins import perturb
from paribus.measuring import measure
from paribus.model.backbone import Backbone
from paribus.model.build import build_model
from paribus.runs import layout
from paribus.runs.checkpoints import KEPT
from paribus.runs.claims import Claim
from paribus.runs.environment import code_version, environment
from paribus.runs.folder import CellFolder
from paribus.runs.trouble import in_words
from paribus.study import Study, held_out_for, order_of, study_interventions
from paribus.train.determinism import require_mode
from paribus.train.loop import Course, MilestoneReached, StepFinished, train
from paribus.train.state import TENSORS, TrainState
from paribus.train.trouble import AFTER, first_not_finite

Emit = Callable[[dict[str, Any]], None]
"""receives what happened, as JSON types: {"kind": "started" | "step" | "finished" | "diverged" | "stopped", ...}; a
cell that was "stopped" by anything but a wish carries the "reason" """
Say = Callable[[str], None]
"""receives what a person should read, one line at a time"""


class Stopping:
    """A wish to stop, and how long it takes to follow one: measured, since it depends on the model and the disk."""

    def __init__(self, should_stop: Callable[[], bool]) -> None:
        self._should_stop = should_stop
        self._looked: float | None = None
        self._longest_stretch = 0.0
        self._longest_write = 0.0

    @classmethod
    def of(cls, should_stop: Callable[[], bool]) -> "Stopping":
        return should_stop if isinstance(should_stop, cls) else cls(should_stop)

    def __call__(self) -> bool:
        now = time.monotonic()
        if self._looked is not None:
            self._longest_stretch = max(self._longest_stretch, now - self._looked)
        self._looked = now
        return self._should_stop()

    def wrote(self, seconds: float) -> None:
        """A checkpoint took so long to write."""
        self._longest_write = max(self._longest_write, seconds)

    @property
    def seconds(self) -> float:
        """The longest stretch between two looks so far (an update; a batch that was scored) and the longest write."""
        return self._longest_stretch + self._longest_write


class _StopAsked(Exception):  # noqa: N818 - nothing has failed
    """Raised out of a measurement, which the next worker begins anew."""


def context_of(cell: Cell) -> dict[str, Any]:
    return {"scale": cell.scale, "arm": cell.arm, "seed": cell.seed, "variant": cell.variant}


def train_cell(
    study: Study, cell: Cell, emit: Emit, should_stop: Callable[[], bool], held: Claim | None = None
) -> None:
    """Train one claimed cell from its last checkpoint to its end, or to a checkpoint where `should_stop` says so.

    `held` is its claim, without which nobody else may train it. ClaimLostError at the first write after it was lost.
    """
    folder = study.cell_folder(cell)
    if held is not None:
        folder = replace(folder, fence=held.require)
    context, stopping = context_of(cell), Stopping.of(should_stop)
    lost = [donor for donor in cell.donors.values() if study.cell_folder(donor).state == "diverged"]
    require_no_links(folder.path)
    require_mode(cell.resolved["execution"]["mode"], device_of(study.experiment.execution))
    if not lost:
        _require_room(study, cell, folder)
    state, damaged = _state_on_disk(study, cell, folder, held, adopting=not lost)
    started = {"kind": "started", **context, "step": state.step, "steps": cell.length.steps, "folder": str(folder.path)}
    emit(started | ({"damaged_checkpoints": {str(k): why for k, why in damaged.items()}} if damaged else {}))
    if lost:
        reason = f"the donor {lost[0].name} diverged, so there is nothing to start from"
        folder.finish({"reason": reason, "step": 0}, diverged=True)
        emit({"kind": "diverged", **context, "reason": reason})
        return
    measured: list[dict[str, Any]] = []
    try:
        stopped = _train_on(study, cell, folder, state, held, emit, stopping, measured)
    except _StopAsked:
        # One that is not finite is not kept: the next worker comes to the same from an earlier checkpoint.
        if state.step not in folder.checkpoint_steps() and first_not_finite(state) is None:
            _write_checkpoint(folder, kept_steps(study.experiment, cell), state, stopping)
        stopped = True
    except DivergenceError as error:
        failed = state.step
        del state  # nobody needs its values any more, and what explains them needs the room
        error.with_traceback(None)
        try:
            told = _explained(study, cell, folder, error, failed, held, stopping)
        except _StopAsked:  # the next worker comes here again
            emit({"kind": "stopped", **context, "step": failed})
            return
        folder.finish(told, diverged=True)
        emit({"kind": "diverged", **context, "reason": in_words(told)})
        return
    if stopped:
        emit({"kind": "stopped", **context, "step": state.step})
        return
    seconds = sum(line["wall_seconds"] for line in folder.metrics())
    folder.finish(
        {
            "steps": state.step,
            "tokens_seen": state.step * cell.length.batch_tokens,
            "train_seconds": seconds,
            "batch_digest": state.digest_hex(),
            "final_tensors_digest": _digest_of_all(state.model),
        }
    )
    emit({"kind": "finished", **context, "seconds": seconds, "measured": measured})


def _explained(
    study: Study,
    cell: Cell,
    folder: CellFolder,
    error: DivergenceError,
    failed: int,
    held: Claim | None,
    stopping: Stopping,
) -> dict[str, Any]:
    """What DIVERGED says of the update number `failed`, and what is kept of it. Nothing else on disk is touched."""
    record = folder.record()
    fields = ("scale", "arm", "seed", "variant", "digest", "environment", "code_version")
    of = {"study": study.experiment.study, **{name: record[name] for name in fields}}

    def start() -> TrainState:
        arm = study.arms[cell.scale, cell.arm]
        model = _initial_model(study, cell, arm, adopting=True).to(device_of(study.experiment.execution))
        state = TrainState.fresh(model, cell.optimiser)
        steps = [step for step in folder.checkpoint_steps() if step < failed]
        files = folder.checkpoint_at(steps[-1]) if steps else _trunk_state(study, cell)
        if files is not None:
            state.restore(files)
        return state

    return explain(folder, start, _course(study, cell), error, failed, of, lambda _: _look_up(held, stopping))


def _look_up(held: Claim | None, stopping: Stopping) -> None:
    """In the middle of what takes long: say that the worker lives, and hear whether it should stop."""
    if held is not None:
        held.alive()
    if stopping():
        raise _StopAsked


def _require_room(study: Study, cell: Cell, folder: CellFolder) -> None:
    """StorageError where the disk has no room for what the cell is still going to write. Cells beside it count for
    nothing: each asks for itself, and again before each checkpoint."""
    arm, there = study.arms[cell.scale, cell.arm], folder.checkpoint_steps()
    units = scored_units(arm.base, study.corpus.counts)
    space = cell_space(study.experiment, cell, arm, KEPT, units)
    to_write = 0 if there and there[-1] == cell.length.steps else max(space.at_once - len(there), 1)
    require_space(folder.path, space.checkpoint * to_write + space.rows, f"the checkpoints and the rows of {cell.name}")


def _state_on_disk(
    study: Study, cell: Cell, folder: CellFolder, held: Claim | None, adopting: bool
) -> tuple[TrainState, dict[int, str]]:
    """Where the cell stands: at its newest checkpoint that can be used, on its trunk, or at its beginning (with its
    donors' tensors where it is `adopting`). Everything on disk is brought to that update.

    With what is wrong with newer checkpoints, by step.
    """
    arm = study.arms[cell.scale, cell.arm]
    device = torch.device(device_of(study.experiment.execution))
    model = _initial_model(study, cell, arm, adopting)
    record = _record(study, cell, arm, model, device)
    state = TrainState.fresh(model.to(device), cell.optimiser)
    damaged: dict[int, str] = {}
    checkpoint = folder.latest_checkpoint(on_damage=damaged.__setitem__)
    if checkpoint is not None:
        state.restore(checkpoint[1])
    elif (left := _trunk_state(study, cell)) is not None:
        state.restore(left)
    folder.keep_metrics_until(state.step)
    folder.write_record(_resumed(folder, record, None if checkpoint is None else state.step, held, damaged))
    return state, damaged


def _train_on(
    study: Study,
    cell: Cell,
    folder: CellFolder,
    state: TrainState,
    held: Claim | None,
    emit: Emit,
    stopping: Stopping,
    measured: list[dict[str, Any]],
) -> bool:
    """Updates, checkpoints and measurements (added to `measured`) up to the end; True where `stopping` came first."""
    arm, execution = study.arms[cell.scale, cell.arm], study.experiment.execution
    course = _course(study, cell)
    before_batch = partial(_look_up, held, stopping)  # scoring can take long
    held_out = held_out_for(study.corpus, arm, study.experiment.study, cell.scale, cell.seed, before_batch)
    own = cell.variant in (STUDY, REPEAT)  # nobody looks at mechanisms in twins, other rates and smaller budgets
    looks = (mechanisms.all_diagnostics() if own else (), study_interventions(study) if own else ())
    kept = kept_steps(study.experiment, cell)
    for event in train(state, course.order, course.length, course.schedule, course.micro_batch_rows):
        if isinstance(event, MilestoneReached):
            measured.extend(measure(held_out, arm.base.evaluation, folder, state.model, event, *looks))
            continue
        line = _metrics_line(event)
        folder.append_metrics(line if held is None else {**line, "token": held.token})
        last = event.step == cell.length.steps
        told = {"steps": cell.length.steps, "stops_in": stopping.seconds}
        emit({"kind": "step", **context_of(cell), **line, **told})
        stop = stopping() and not last
        if stop or last or event.step % execution.checkpoint_steps == 0 or event.step in kept:
            _require_finite(state)
            _write_checkpoint(folder, kept, state, stopping)
        if stop:
            return True
    return False


def _require_finite(state: TrainState) -> None:
    """DivergenceError where an update left a value that is not finite, which later losses need not show: a row of the
    embedding that no batch reads, a second moment that overflowed and stops its parameter. So every checkpoint is
    finite, and what goes wrong goes wrong after it."""
    if (found := first_not_finite(state, AFTER)) is not None:
        raise DivergenceError(f"{found.tensor} is not finite after step {state.step}, while the loss was")


def _write_checkpoint(folder: CellFolder, kept: frozenset[int], state: TrainState, stopping: Stopping) -> None:
    began = time.monotonic()
    files = state.to_files()
    # The ones before it stay until it is whole.
    require_space(folder.path, sum(map(len, files.values())), f"the checkpoint of step {state.step} in {folder.path}")
    folder.write_checkpoint(state.step, files, kept=kept)
    stopping.wrote(time.monotonic() - began)


def _resumed(
    folder: CellFolder, record: dict[str, Any], step: int | None, held: Claim | None, damaged: Mapping[int, str]
) -> dict[str, Any]:
    """The cell's `record` as it goes on disk: where training goes on at `step` that of its beginning, and one line more
    about where and on what it goes on; None where it begins now. Checkpoints found `damaged` are named for good."""
    earlier = _earlier_record(folder)
    token = {} if held is None else {"token": held.token}
    found = dict(record)
    lost = [{"step": at, "reason": why, **token} for at, why in damaged.items()]
    if known := [*earlier.get("damaged_checkpoints", []), *lost]:
        found["damaged_checkpoints"] = known
    if step is None:
        return found
    now = {"step": step, "environment": record["environment"], "host": socket.gethostname(), **token}
    if not earlier:
        now["earlier_record"] = "not readable: on what the updates before were made is not known"
    resumed = [*earlier.get("resumed", []), now]
    return {**found, **earlier, "resumed": resumed} | ({"damaged_checkpoints": known} if known else {})


def _earlier_record(folder: CellFolder) -> dict[str, Any]:
    """What is on record of the cell's beginning; nothing where that cannot be used."""
    try:
        found = folder.record()
    except StudyFolderError:
        return {}
    return {} if layout.fault(layout.CellRecord, found) else found


def _course(study: Study, cell: Cell) -> Course:
    arm = study.arms[cell.scale, cell.arm]
    order = order_of(study, arm, cell.scale, cell.seed)
    return Course(order, cell.length, arm.base.schedule, study.micro_batch_rows or order.rows_per_batch)


def _initial_model(study: Study, cell: Cell, arm: ArmAtScale, adopting: bool) -> Backbone:
    """The cell's initial values, with its donors' tensors where it is `adopting`; a perturbed twin's
    differ from them by a millionth."""
    key = (study.experiment.study, cell.scale, cell.seed)
    model = build_model(arm.model, arm.seam_configs, key)
    if cell.variant == TWIN:
        perturb(model, key)
    if adopting:
        adopt(model, arm.mechanisms, {s: _final_tensors(study.cell_folder(d)) for s, d in cell.donors.items()})
    model.recompute = study.experiment.execution.activation_checkpointing
    model.compiled = cell.resolved["execution"]["mode"] == "fast"
    return model


def _metrics_line(event: StepFinished) -> dict[str, Any]:
    """What is kept of an update; only a task has slices, and only a clipped gradient a norm."""
    line = asdict(event)
    absent = {"slices"} if not line["slices"] else set()
    absent |= {"gradient_norm"} if line["gradient_norm"] is None else set()
    return {key: value for key, value in line.items() if key not in absent}


def _trunk_state(study: Study, cell: Cell) -> dict[str, bytes] | None:
    """The state at which the cell leaves its trunk. None where there is no trunk, or where it ran before anybody meant
    to leave it there: then the cell trains the shared updates itself, under the trunk's schedule."""
    if cell.trunk is None or cell.length.leaves_after == 0:
        return None
    return study.cell_folder(cell.trunk).checkpoint_at(cell.length.leaves_after)


def _record(study: Study, cell: Cell, arm: ArmAtScale, model: nn.Module, device: torch.device) -> dict[str, Any]:
    """What goes on record before the first update."""
    device_name = torch.cuda.get_device_name() if device.type == "cuda" else device.type
    return {
        "scale": cell.scale,
        "arm": cell.arm,
        "seed": cell.seed,
        "variant": cell.variant,
        "digest": cell.digest,
        "resolved": dict(cell.resolved),
        "donors": {str(seam): _origin(study, donor) for seam, donor in cell.donors.items()},
        "source_lists": list(arm.source_lists),
        "initial_digests": {name: _tensor_digest(p) for name, p in model.named_parameters()},
        "environment": {**environment(), "device": device_name},
        "code_version": code_version(),
    }


def _origin(study: Study, donor: Cell) -> dict[str, Any]:
    final = study.cell_folder(donor).summary().get("final_tensors_digest")
    return {"cell": donor.name, "digest": donor.digest, "final_tensors_digest": final}


def _final_tensors(donor: CellFolder) -> Mapping[str, torch.Tensor]:
    """Parameters of a complete cell at its last update, by qualified name."""
    checkpoint, steps = donor.latest_checkpoint(), donor.summary()["steps"]
    if checkpoint is None or checkpoint[0] != steps:
        raise StudyFolderError(
            f"{donor.path} does not hold the state at its last update, from which another cell starts",
            expected=f"a checkpoint of step {steps}",
            received=f"step {checkpoint[0]}" if checkpoint is not None else "no checkpoint",
            remedy="delete this cell's folder to train it again; it will come out the same",
        )
    tensors = load(checkpoint[1][TENSORS])
    return {name.removeprefix("model/"): t for name, t in tensors.items() if name.startswith("model/")}


def _tensor_digest(tensor: torch.Tensor) -> str:
    # By its bytes: NumPy has no bfloat16.
    content = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return hashlib.blake2b(f"{tuple(tensor.shape)} {tensor.dtype}".encode() + content, digest_size=8).hexdigest()


def _digest_of_all(model: nn.Module) -> str:
    digests = {name: _tensor_digest(parameter) for name, parameter in model.named_parameters()}
    return hashlib.blake2b(json.dumps(digests, sort_keys=True).encode(), digest_size=16).hexdigest()
