"""One cell fine-tuned: claimed, opened, updated from its last checkpoint, measured, finished.

Model and averages start where pretraining ended; everything else that a cell's training keeps is kept here too, in
`finetuned/<name>` below the cell, in the same files. Modules that follow the share of the run stay where its end left
them.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from paribus.downstream.chat.packing import ChatBatches
from paribus.errors import DivergenceError, ParibusError
from paribus.finetuning.base import BaseCell, Recipe, moment_of
from paribus.finetuning.held_out import GROUP, score, summary
from paribus.finetuning.prepared import Prepared
from paribus.finetuning.record import digest_of_values, keep_record, settings_of
from paribus.finetuning.step import update
from paribus.runs.claims import ClaimLostError, claim
from paribus.runs.folder import CellFolder
from paribus.runs.records import Fence
from paribus.train.determinism import set_deterministic
from paribus.train.loop import announce, not_finite
from paribus.train.state import TrainState
from paribus.trained import open_model

Emit = Callable[[dict[str, Any]], None]
"""receives what happened, as a study's training says it: {"kind": "started" | "step" | "finished" | ..., ...}"""


@dataclass(frozen=True)
class Job:
    """One fine-tuning that is to be done."""

    base: BaseCell
    recipe: Recipe
    prepared: Prepared
    batches: ChatBatches
    fence: Fence | None = None
    """of the claim under which its folder is written"""

    @property
    def folder(self) -> CellFolder:
        return replace(self.base.finetuned(self.prepared.mixture.name), fence=self.fence)

    @property
    def steps(self) -> int:
        """Updates; ParibusError where the mixture fills fewer than it asks for."""
        asked = self.prepared.mixture.training.updates
        if asked is None:
            return self.batches.steps
        self.batches.require(asked)
        return asked


def device_here() -> str:
    """ "cuda" where there is a device of that kind, else "cpu"."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def finetune(job: Job, emit: Emit, should_stop: Callable[[], bool]) -> str:
    """What became of it: complete, diverged, stopped (resumable), or claimed (another process has it).

    StudyFolderError where the folder was begun by other settings. One that has ended is not touched.
    """
    if job.folder.finished:
        _keep_record(job)
        return job.folder.state
    with claim(job.folder.path, above=job.folder.highest_token) as held:
        if held is None:
            return "claimed"
        try:
            return _finetune(replace(job, fence=held.require), held.token, emit, should_stop)
        except ClaimLostError as error:
            emit({"kind": "stopped", **_context(job), "step": _step(job), "reason": error.received})
            return "claimed"


def _context(job: Job) -> dict[str, Any]:
    base = job.base
    return {"scale": base.scale, "arm": base.arm, "seed": base.seed, "variant": base.variant}


def _step(job: Job) -> int:
    """Of the last checkpoint."""
    return max(job.folder.checkpoint_steps(), default=0)


def _keep_record(job: Job) -> None:
    device = device_here()
    settings = settings_of(job.base, job.prepared.mixture, job.recipe, job.steps, device, job.prepared.identity)
    device_name = torch.cuda.get_device_name() if device == "cuda" else device
    keep_record(job.folder, job.base, settings, job.prepared.counts(job.batches), device_name)


def _finetune(job: Job, token: int, emit: Emit, should_stop: Callable[[], bool]) -> str:
    recipe, mixture, folder = job.recipe, job.prepared.mixture, job.folder
    training, steps, chat = mixture.training, job.steps, job.prepared.chat
    set_deterministic(True)
    torch.set_num_threads(recipe.threads)
    _keep_record(job)
    if folder.finished:  # since it was looked at
        return folder.state
    state = _state(job)
    model: Any = state.model
    damaged: dict[int, str] = {}
    if (checkpoint := folder.latest_checkpoint(on_damage=damaged.__setitem__)) is not None:
        state.restore(checkpoint[1])
    folder.keep_metrics_until(state.step)
    context = _context(job)
    started_event = {"kind": "started", **context, "step": state.step, "steps": steps}
    emit(started_event | ({"damaged_checkpoints": {str(k): why for k, why in damaged.items()}} if damaged else {}))
    token_bytes = chat.tokenizer.token_bytes()
    try:
        if state.step == 0:
            _measure(job, model, token_bytes, 0)
        while state.step < steps:
            started = time.perf_counter()
            moment = moment_of(state.step, steps, training)
            done = update(
                model,
                state.optimisers,
                job.batches.batch(state.step),
                state.step,
                moment,
                recipe.micro_batch_rows,
                state.gradient_clip_norm,
            )
            state.digest = state.digest + done.digest.cpu()
            state.step += 1
            loss = None
            if done.loss is not None and done.gradient is not None:
                loss, size = torch.stack((done.loss, done.gradient.size)).tolist()
                if wrong := not_finite(loss, size):
                    raise DivergenceError(f"the fine-tuning {wrong} at step {state.step}")
            line = {
                "step": state.step,
                "tokens_seen": state.step * recipe.batch_tokens,
                "targets": done.targets,
                "loss_nats_per_token": loss,
                "learning_rate_multiplier": moment.learning_rate,
                "wall_seconds": time.perf_counter() - started,
                "token": token,
            }
            if done.gradient is not None and done.gradient.norm is not None:
                line["gradient_norm"] = float(done.gradient.norm)
            folder.append_metrics(line)
            last = state.step == steps
            if last or (mixture.validation_updates and state.step % mixture.validation_updates == 0):
                _measure(job, model, token_bytes, state.step)
            emit({"kind": "step", **context, **line, "loss_nats_per_token": math.nan if loss is None else loss})
            stop = should_stop() and not last
            if last or stop or state.step % mixture.checkpoint_updates == 0:
                folder.write_checkpoint(state.step, state.to_files())
            if stop:
                emit({"kind": "stopped", **context, "step": state.step})
                return "stopped"
    except DivergenceError as error:
        folder.finish({"reason": error.what, "step": state.step}, diverged=True)
        emit({"kind": "diverged", **context, "reason": error.what})
        return "diverged"
    _finish(job, state, steps)
    seconds = folder.summary()["train_seconds"]
    emit({"kind": "finished", **context, "seconds": seconds, "measured": []})
    return "complete"


def _state(job: Job) -> TrainState:
    """Model and optimisers as pretraining left them, no update done."""
    trained = open_model(job.base.folder.path)
    if trained.tokenizer.digest != job.prepared.chat.tokenizer.digest:
        raise ParibusError(
            f"{job.base.name} has another tokenizer than the other cells",
            expected=f"digest {job.prepared.chat.tokenizer.digest}",
            received=trained.tokenizer.digest,
            remedy="fine-tune cells of different studies one after the other",
        )
    model = trained.model.to(device_here())
    state = TrainState.fresh(model, job.recipe.optimiser)
    if job.prepared.mixture.training.warm_start:
        state.restore(dict(job.base.last_files()))
    announce(model, trained.step, trained.step)
    state.step, state.digest = 0, torch.zeros((), dtype=torch.int64)
    return state


def _measure(job: Job, model: Any, token_bytes: Any, step: int) -> None:
    """Rows of the held-out conversations after `step` updates. DivergenceError where one is not finite."""
    if not len(job.prepared.held_out):
        return
    columns = score(model, job.prepared.held_out, token_bytes, job.prepared.chat.bos)
    if not math.isfinite(columns["nats"].sum()):
        raise DivergenceError(f"the loss on held-out conversations became {columns['nats'].sum()} after step {step}")
    job.folder.write_rows(f"{GROUP}/chat-{step:08d}", columns)


def _finish(job: Job, state: TrainState, steps: int) -> None:
    folder = job.folder
    metrics = folder.metrics()
    measured = {
        str(int(name.rpartition("-")[2])): summary(folder.rows(name).to_pydict()) for name in folder.row_files(GROUP)
    }
    folder.finish(
        {
            "steps": steps,
            "tokens_seen": steps * job.recipe.batch_tokens,
            "targets_seen": sum(line["targets"] for line in metrics),
            "updates_without_targets": sum(line["targets"] == 0 for line in metrics),
            "train_seconds": sum(line["wall_seconds"] for line in metrics),
            "batch_digest": state.digest_hex(),
            "final_tensors_digest": digest_of_values(state.model),
            "validation": measured,
        }
    )
