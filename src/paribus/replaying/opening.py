"""A cell's updates as they were made, had again from its folder alone: its record, its checkpoints, its corpus.

Nothing is written and no claim is taken: the cell may be finished, or be in training at this moment. The experiment
file is not needed; the package of a mechanism of one's own is.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load

from paribus.data import tasks
from paribus.data.material import Material, batches_of
from paribus.data.tasks.stream import TaskCorpus
from paribus.errors import CorpusError, ParibusError, StudyFolderError
from paribus.experiment.donors import adopt
from paribus.experiment.spec import TUNING, TWIN
from paribus.experiment.twins import perturb
from paribus.mechanisms import of_record
from paribus.mechanisms.contract import Seam
from paribus.model.build import build_model
from paribus.model.config import CONFIGS
from paribus.optim.config import OptimiserConfig, ScheduleConfig
from paribus.runs import layout, trouble
from paribus.runs.folder import CellFolder
from paribus.runs.study_folder import StudyFolder
from paribus.texts import recorded
from paribus.train.loop import Course, RunLength
from paribus.train.state import TENSORS, TrainState

RECORD = "cell.json"


@dataclass(frozen=True)
class Start:
    """Where updates begin to be made again."""

    updates: int
    """that are done there"""
    where: str
    """in words"""
    files: Mapping[str, bytes] | None
    """the state; None at the cell's beginning, whose values are drawn"""


@dataclass(frozen=True)
class OpenCell:
    """A cell that was trained, or is in training."""

    folder: CellFolder
    record: Mapping[str, Any]
    """cell.json"""

    @classmethod
    def read(cls, path: Path) -> "OpenCell":
        """StudyFolderError for a folder that is no cell's, or whose record is damaged."""
        if not (path / RECORD).exists():
            tuned = (path / "finetune.json").exists()
            raise StudyFolderError(
                f"{path} is not the folder of a cell" + (" that was pretrained" if tuned else ""),
                expected="runs/<study>/<scale>/<arm>/<seed>-<digest>, with cell.json in it",
                received="what a cell was fine-tuned to"
                if tuned
                else "a folder"
                if path.is_dir()
                else "no such folder",
                remedy="name the cell's own folder; `paribus status` lists the cells of a study",
            )
        folder = CellFolder(path.resolve())
        record = folder.record()
        if wrong := layout.fault(layout.CellRecord, record) or ("" if "resolved" in record else "resolved: missing"):
            raise StudyFolderError(f"{path / RECORD} is not as it was written", received=wrong)
        return cls(folder, record)

    @property
    def resolved(self) -> Mapping[str, Any]:
        return self.record["resolved"]

    @property
    def name(self) -> str:
        variant = self.record.get("variant", "")
        return f"{self.record['scale']}/{self.record['arm']}/{self.record['seed']}" + (f" ({variant})" * bool(variant))

    @property
    def study(self) -> StudyFolder:
        return StudyFolder(self.folder.path.parents[2])

    @cached_property
    def trunk(self) -> "OpenCell | None":
        """The longer run that this one left; None where it is none's branch."""
        if "trunk" not in self.resolved:
            return None
        return OpenCell.read(self.folder.path.parent / f"{self.record['seed']}-{self.resolved['trunk']['digest']}")

    @cached_property
    def length(self) -> RunLength:
        fields = self.resolved
        length = RunLength(fields["budget_tokens"], fields["batch_tokens"], tuple(fields["milestones_tokens"]))
        if self.trunk is None:
            return length
        return replace(length, leaves_after=fields["trunk"]["step"], trunk_steps=self.trunk.length.steps)

    @property
    def mode(self) -> str:
        return self.resolved["execution"].get("mode", "proof")  # an earlier version knew no other

    @cached_property
    def device(self) -> torch.device:
        """The kind that the cell was trained on where that is here, else the CPU."""
        kind = self.resolved["execution"]["device"]
        return torch.device(kind if kind == "cpu" or torch.cuda.is_available() else "cpu")

    @cached_property
    def corpus(self) -> Material:
        """What the cell read. CorpusError where it is gone, or another stands in its place."""
        study, digest = self.study, self.resolved["corpus"]
        planned = (study.plan() or {}).get("corpus", {}).get("declared", {})
        if planned.get("kind") == "task":
            task = tasks.find(planned["task"], "plan.json").model_validate(planned["knobs"])
            found: Material | None = TaskCorpus(task, self.resolved["context_length"])
        else:
            runs = study.path.parent  # trials read the corpus of the study that they tune
            found = recorded(runs, StudyFolder(runs / self.resolved["study"].removesuffix(TUNING)))
        if found is None or found.digest != digest:
            raise CorpusError(
                f"what {self.name} was trained on is not here",
                expected=f"the corpus of digest {digest[:16]}",
                received="none on record beside the study" if found is None else f"digest {found.digest[:16]}",
                remedy="copy the study's folder and the store of corpora beside it as they were",
            )
        return found

    @cached_property
    def course(self) -> Course:
        fields = self.resolved
        read = fields.get("order", {"packing": "stream", "epochs": 1})  # an earlier version knew no other
        order = batches_of(
            self.corpus,
            fields["context_length"],
            fields["batch_tokens"] // fields["context_length"],
            study=fields["study"],
            scale=fields["scale"],
            seed=fields["seed"],
            packing=read["packing"],
            epochs=read["epochs"],
        )
        rows = fields["execution"]["micro_batch_rows"] or order.rows_per_batch
        schedule = ScheduleConfig.model_validate_json(json.dumps(fields["schedule"]))
        return Course(order, self.length, schedule, rows)

    def require_step(self, step: int) -> None:
        """ParibusError for an update that the cell does not have."""
        steps = self.length.steps
        if not 1 <= step <= steps:
            raise ParibusError(
                f"{self.name} has no update {step}",
                expected=f"--step from 1 to {steps}",
                received=str(step),
            )

    def nearest(self, step: int) -> Start:
        """The latest state that is kept from before update `step`; the cell's beginning where none is.

        What is damaged is passed over; `paribus doctor` tells of it.
        """
        found: dict[int, tuple[str, Any]] = {}
        if self.trunk is not None:
            left = self.length.leaves_after
            found[left] = (f"where it left {self.trunk.name}", lambda: self.trunk and self.trunk.at(left))
        for kept in self.folder.checkpoint_steps():
            found[kept] = (f"its checkpoint of step {kept}", lambda kept=kept: self.at(kept))
        if (record := self.trouble) is not None and record["step"] - 1 not in found:
            before = record["step"] - 1
            found[before] = ("the state kept in trouble/", lambda: trouble.state_before(self.folder, record))
        for updates in sorted((u for u in found if u < step), reverse=True):
            where, read = found[updates]
            try:
                files = read()
            except StudyFolderError:
                continue
            if files is not None:
                return Start(updates, where, files)
        return Start(0, "its beginning", None)

    @cached_property
    def trouble(self) -> Mapping[str, Any] | None:
        """What was kept of the update that ended the cell."""
        return trouble.kept(self.folder)

    def at(self, step: int) -> dict[str, bytes] | None:
        return self.folder.checkpoint_at(step)

    def state(self, start: Start) -> TrainState:
        """The cell's state there. StudyFolderError where a donor's tensors are gone, ParibusError for a mechanism that
        is not installed."""
        fields, key = self.resolved, (self.resolved["study"], self.resolved["scale"], self.resolved["seed"])
        config = CONFIGS[fields["model"].get("backbone", "prenorm")].model_validate(fields["model"])
        arm = {seam: of_record(seam, fields["mechanisms"][str(seam)], self.name) for seam in Seam}
        model = build_model(config, arm, key)
        model.compiled = self.mode == "fast"
        if self.record.get("variant", "") == TWIN:
            perturb(model, key)
        if start.files is None and self.record.get("donors"):
            adopt(model, arm, {Seam(seam): self._donated(donor) for seam, donor in self.record["donors"].items()})
        optimiser = OptimiserConfig.model_validate_json(json.dumps(fields["optimiser"]))
        state = TrainState.fresh(model.to(self.device), optimiser)
        if start.files is not None:
            state.restore(dict(start.files))
        return state

    def _donated(self, donor: Mapping[str, Any]) -> dict[str, torch.Tensor]:
        """Parameters of a donor at its last update, by qualified name."""
        scale, arm, seed = donor["cell"].split("/")
        folder = self.study.cell(scale, arm, int(seed), donor["digest"])
        checkpoint = folder.latest_checkpoint() if folder.state == "complete" else None
        if checkpoint is None or checkpoint[0] != folder.summary()["steps"]:
            raise StudyFolderError(
                f"{self.name} starts from the last state of {donor['cell']}, which is gone",
                expected=f"a checkpoint of its last step in {folder.path}",
                remedy="restore it from a copy, or replay an update behind a checkpoint of this cell",
            )
        tensors = load(checkpoint[1][TENSORS])
        return {name.removeprefix("model/"): t for name, t in tensors.items() if name.startswith("model/")}
