"""A study's cells, one by one: claimed, built, trained from the last checkpoint, measured, finished.

Everything is drawn and digested on the CPU; the model moves to its device afterwards, so that initial values and
batches are the same numbers wherever a cell runs. The state at the last update is kept: a cell may be the donor of
another one, which waits for it.
"""

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import torch
from safetensors.torch import load
from torch import nn

from paribus import mechanisms
from paribus.errors import DivergenceError, StudyFolderError
from paribus.experiment.donors import adopt
from paribus.experiment.plan import ArmAtScale, Cell, device_of
from paribus.experiment.spec import REPEAT, STUDY, TWIN
from paribus.experiment.twins import perturb
from paribus.measuring import measure
from paribus.model.backbone import Backbone
from paribus.model.build import build_model
from paribus.runs.claims import claim
from paribus.runs.environment import code_version, environment
from paribus.runs.folder import CellFolder
from paribus.study import Study, held_out_for, order_of, prepare_process, study_interventions
from paribus.train.loop import MilestoneReached, StepFinished, train
from paribus.train.state import TENSORS, TrainState

Emit = Callable[[dict[str, Any]], None]
"""receives what happened, as JSON types: {"kind": "started" | "step" | "finished" | ..., ...}"""
WAIT_SECONDS = 0.5
"""between two looks at a donor that another process trains"""


def train_missing(study: Study, emit: Emit, should_stop: Callable[[], bool]) -> None:
    """Train every cell that is neither finished nor held by another process, in the plan's order.

    A cell whose donor is being trained elsewhere is come back to. Where the donor's trainer has ended without
    finishing it, the donor is trained here: its claim went with its holder.
    """
    prepare_process(study.experiment.execution)
    pending = list(study.cells)
    while pending:
        waiting: list[Cell] = []
        trained = False
        for cell in pending:
            if should_stop():
                return
            folder = study.cell_folder(cell)
            if folder.finished:
                continue
            if _unfinished_before(study, cell):
                waiting.append(cell)
                continue
            with claim(folder.path) as held:
                if held and not folder.finished:
                    train_cell(study, cell, emit, should_stop)
                    trained = True
        needed = {cell.name for cell in waiting} | {d.name for cell in waiting for d in _unfinished_before(study, cell)}
        pending = [cell for cell in study.cells if cell.name in needed]
        if pending and not trained:
            time.sleep(WAIT_SECONDS)


def _unfinished_before(study: Study, cell: Cell) -> list[Cell]:
    """Cells that this one starts from (donors, the trunk that it leaves), and theirs, that have not ended."""
    before = [*cell.donors.values(), *([cell.trunk] if cell.trunk is not None else [])]
    found = [d for d in before if not study.cell_folder(d).finished]
    return [below for d in found for below in _unfinished_before(study, d)] + found


def train_cell(study: Study, cell: Cell, emit: Emit, should_stop: Callable[[], bool]) -> None:
    """Train one claimed cell from its last checkpoint to its end, or to a checkpoint where `should_stop` says so."""
    folder, arm = study.cell_folder(cell), study.arms[cell.scale, cell.arm]
    device = torch.device(device_of(study.experiment.execution))
    context = {"scale": cell.scale, "arm": cell.arm, "seed": cell.seed, "variant": cell.variant}
    model = _fresh_model(study, cell, arm)
    lost = [donor for donor in cell.donors.values() if study.cell_folder(donor).state == "diverged"]
    if not lost:
        adopt(model, arm.mechanisms, {s: _final_tensors(study.cell_folder(d)) for s, d in cell.donors.items()})
    model.recompute = study.experiment.execution.activation_checkpointing
    record = _record(study, cell, arm, model, device)
    state = TrainState.fresh(model.to(device), cell.optimiser)
    checkpoint = folder.latest_checkpoint()
    if checkpoint is not None:
        state.restore(checkpoint[1])
    elif (left := _trunk_state(study, cell)) is not None:
        state.restore(left)
    folder.keep_metrics_until(state.step)
    folder.write_record(record)
    emit({"kind": "started", **context, "step": state.step, "steps": cell.length.steps})
    if lost:
        reason = f"the donor {lost[0].name} diverged, so there is nothing to start from"
        folder.finish({"reason": reason, "step": 0}, diverged=True)
        emit({"kind": "diverged", **context, "reason": reason})
        return
    order = order_of(study, arm, cell.scale, cell.seed)
    held_out = held_out_for(study.corpus, arm, study.experiment.study, cell.scale, cell.seed)
    execution = study.experiment.execution
    rows = study.micro_batch_rows or order.rows_per_batch
    own = cell.variant in (STUDY, REPEAT)  # nobody looks at mechanisms in twins, other rates and smaller budgets
    looks = (mechanisms.all_diagnostics() if own else (), study_interventions(study) if own else ())
    kept = {*cell.branches_at, *_asked_at(study, cell)}
    measured: list[dict[str, Any]] = []
    try:
        for event in train(state, order, cell.length, arm.base.schedule, rows):
            if isinstance(event, MilestoneReached):
                measured.extend(measure(held_out, arm.base.evaluation, folder, state.model, event, *looks))
                continue
            line = _metrics_line(event)
            folder.append_metrics(line)
            emit({"kind": "step", **context, **line, "steps": cell.length.steps})
            last = event.step == cell.length.steps
            stop = should_stop() and not last
            if stop or last or event.step % execution.checkpoint_steps == 0 or event.step in kept:
                folder.write_checkpoint(event.step, state.to_files(), kept=kept)
            if stop:
                emit({"kind": "stopped", **context, "step": event.step})
                return
    except DivergenceError as error:
        folder.finish({"reason": error.what, "step": state.step}, diverged=True)
        emit({"kind": "diverged", **context, "reason": error.what})
        return
    seconds = sum(line["wall_seconds"] for line in folder.metrics())
    folder.finish(
        {
            "steps": state.step,
            "tokens_seen": state.step * cell.length.batch_tokens,
            "train_seconds": seconds,
            "batch_digest": state.digest_hex(),
            "final_tensors_digest": _digest_of_all(model),
        }
    )
    emit({"kind": "finished", **context, "seconds": seconds, "measured": measured})


def _asked_at(study: Study, cell: Cell) -> tuple[int, ...]:
    """Updates after which the state is kept because evaluation sets will be asked of it."""
    downstream = study.experiment.downstream
    if downstream is None or downstream.at == "end" or cell.variant != STUDY:
        return ()
    return tuple(cell.length.milestones())


def _fresh_model(study: Study, cell: Cell, arm: ArmAtScale) -> Backbone:
    """The cell's initial values; a perturbed twin's differ from them by a millionth."""
    key = (study.experiment.study, cell.scale, cell.seed)
    model = build_model(arm.model, arm.seam_configs, key)
    if cell.variant == TWIN:
        perturb(model, key)
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
