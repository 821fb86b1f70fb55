"""The finished cell that is fine-tuned, and what of its recipe goes on."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paribus.downstream.chat.mixture import Training
from paribus.errors import StudyFolderError
from paribus.optim.config import OptimiserConfig, ScheduleConfig, at_rates
from paribus.optim.schedule import Moment, multiplier
from paribus.runs.folder import CellFolder

FINETUNED = "finetuned"
"""below a cell's folder: what it was fine-tuned to, by name"""
RECORD = "finetune.json"
SCALED_WITH_BATCH = ("matrix", "embedding", "value_embedding", "head", "stream_scale", "embedding_scale")
"""roles whose rates a recipe multiplies by the root of the batch; not shortcuts, nor what mechanisms add"""


@dataclass(frozen=True)
class BaseCell:
    """A cell that is complete."""

    folder: CellFolder
    study: str
    scale: str
    arm: str
    seed: int
    variant: str
    digest: str
    final_tensors_digest: str
    resolved: Mapping[str, Any]
    """every field that the cell was trained by"""

    @classmethod
    def read(cls, path: Path) -> "BaseCell":
        """StudyFolderError for a folder that is not that of a complete cell."""
        folder = CellFolder(path)
        if folder.state != "complete" or not (path / "cell.json").exists():
            raise StudyFolderError(
                f"{path} cannot be fine-tuned",
                expected="the folder of a finished cell: runs/<study>/<scale>/<arm>/<seed>-<digest>",
                received=folder.state if (path / "cell.json").exists() else "no cell of a study",
                remedy="let `paribus run` finish it, or name another folder",
            )
        record, summary = folder.record(), folder.summary()
        return cls(
            folder=folder,
            study=record["resolved"]["study"],
            scale=record["scale"],
            arm=record["arm"],
            seed=record["seed"],
            variant=record.get("variant", ""),
            digest=record["digest"],
            final_tensors_digest=summary["final_tensors_digest"],
            resolved=record["resolved"],
        )

    @property
    def name(self) -> str:
        return f"{self.scale}/{self.arm}/{self.seed}" + (f" ({self.variant})" if self.variant else "")

    def finetuned(self, name: str) -> CellFolder:
        """Where what it is fine-tuned to under this name lies."""
        return CellFolder(self.folder.path / FINETUNED / name)

    def last_files(self) -> Mapping[str, bytes]:
        """The state at the last update. StudyFolderError where it is not kept."""
        found = self.folder.latest_checkpoint()
        if found is None or found[0] != self.folder.summary()["steps"]:
            raise StudyFolderError(
                f"{self.folder.path} does not hold the state at its last update",
                expected="a checkpoint of the last step",
                received="none" if found is None else f"step {found[0]}",
                remedy="delete this cell's folder to train it again; it will come out the same",
            )
        return found[1]


@dataclass(frozen=True)
class Recipe:
    """The updates in numbers: what the mixture file says, filled up with what the cell was trained by."""

    context_length: int
    batch_tokens: int
    micro_batch_rows: int
    """of one forward pass"""
    optimiser: OptimiserConfig
    """at the peak of the schedule"""
    threads: int

    @property
    def rows_per_batch(self) -> int:
        return self.batch_tokens // self.context_length


def recipe_of(base: BaseCell, training: Training) -> Recipe:
    """StudyFolderError for a batch that is not made of whole rows."""
    resolved = base.resolved
    context, pretraining_batch = resolved["context_length"], resolved["batch_tokens"]
    batch = training.batch_tokens or pretraining_batch
    if batch % context:
        raise StudyFolderError(
            "a batch of fine-tuning is not made of whole rows",
            expected=f"training.batch_tokens a multiple of {context}, the context of {base.name}",
            received=str(batch),
        )
    declared = resolved["execution"]["micro_batch_rows"] if training.micro_batch_rows is None else None
    rows = training.micro_batch_rows if declared is None else declared
    optimiser = at_rates(OptimiserConfig.model_validate(resolved["optimiser"]), training.rate_factor)
    changes: dict[str, Any] = {"matrix_weight_decay": training.matrix_weight_decay}
    if optimiser.matrix_update != "adamw":
        changes["matrix_momentum"] = training.momentum
    if training.rates_at_batch_tokens is not None:
        factor = math.sqrt(training.rates_at_batch_tokens / pretraining_batch)
        names = [f"{role}_learning_rate" for role in SCALED_WITH_BATCH]
        changes |= {name: getattr(optimiser, name) * factor for name in names}
    return Recipe(
        context_length=context,
        batch_tokens=batch,
        micro_batch_rows=int(rows or 0) or batch // context,
        optimiser=optimiser.model_copy(update=changes),
        threads=resolved["execution"]["threads"],
    )


def moment_of(step: int, steps: int, training: Training) -> Moment:
    """Of update `step` (from 0) in a fine-tuning of `steps` updates: rates as shares of the run, counted at the middle
    of an update and always in [0, 1]; Muon's momentum by the number of updates."""
    shape = ScheduleConfig(warmup=training.warmup, decay=training.decay, final=training.final)
    warmup = training.momentum_warmup_updates
    risen = min(1.0, step / warmup) if warmup else 1.0
    return Moment(
        learning_rate=min(1.0, max(0.0, multiplier(step, steps, shape))),
        momentum_share=risen,
        momentum_rest=training.momentum_initial * (1.0 - risen),
    )
