"""Where the branches meet: an experiment becomes a study, with its corpus, its arms, its cells and its run folder.

experiment -> plan -> gates -> claims -> per cell: order -> model -> optimisers -> events -> measurements -> folder.
Who takes a cell is `paribus.draining`'s, what happens to it `paribus.training`'s; reading the folder back needs no
tensors: `paribus.reading`.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from types import ModuleType

import torch

from paribus import mechanisms
from paribus.data.frozen import FrozenCorpus
from paribus.data.held_out import EvaluationBatch, HeldOut
from paribus.data.material import Material, batches_of, held_out_of
from paribus.data.order import Batches
from paribus.data.progress import Progress, silent
from paribus.data.split import Split
from paribus.data.tasks.checks import check_task
from paribus.data.tasks.stream import TaskCorpus
from paribus.errors import CorpusError, StudyFolderError
from paribus.experiment import spec
from paribus.experiment.code import code_digest
from paribus.experiment.gates import Gate
from paribus.experiment.pairs import check_pairs
from paribus.experiment.plan import ArmAtScale, Cell, cells, device_of, resolve_arms
from paribus.measure.retrieval import ANSWER_MASS
from paribus.measuring import HELD_OUT
from paribus.mechanisms.contract import Diagnostic, Intervention
from paribus.probing import frozen_rows
from paribus.runs.differences import differences
from paribus.runs.environment import environment
from paribus.runs.folder import CORPUS, CellFolder
from paribus.runs.study_folder import StudyFolder
from paribus.texts import corpus_of, require_texts
from paribus.train.determinism import require_mode


@dataclass(frozen=True)
class Study:
    """An experiment with its corpus, its resolved arms and its cells."""

    experiment: spec.Experiment
    folder: StudyFolder
    corpus: Material
    arms: Mapping[tuple[str, str], ArmAtScale]
    cells: tuple[Cell, ...]
    micro_batch_rows: int = 0
    """rows of one forward pass, 0 for the whole batch: the file's, or the machine's where the file leaves it to that"""

    def cell_folder(self, cell: Cell) -> CellFolder:
        return self.folder.cell(cell.scale, cell.arm, cell.seed, cell.digest, cell.variant)

    def stale_folders(self) -> dict[str, tuple[int, tuple[str, ...]]]:
        """Work under another digest, by "scale/arm": how many cells, and which fields are other ones since the newest
        of them, each with both values. Code is a field, by its digest."""
        found: dict[str, tuple[int, tuple[str, ...]]] = {}
        for cell in self.cells:
            others = self.folder.other_cells(cell.scale, cell.arm, cell.seed, cell.digest, cell.variant)
            if others and not self.cell_folder(cell).finished:
                count, changed = found.get(f"{cell.scale}/{cell.arm}", (0, ()))
                found[f"{cell.scale}/{cell.arm}"] = count + len(others), changed or _changed(cell, others)
        return found

    @property
    def missing(self) -> list[Cell]:
        return [cell for cell in self.cells if not self.cell_folder(cell).finished]


def _changed(cell: Cell, others: Sequence[CellFolder]) -> tuple[str, ...]:
    """What of the cell's fields is another one than the newest of its stale cells was trained by."""
    newest = max(others, key=lambda other: (other.path / "cell.json").stat().st_mtime_ns)
    try:
        before = newest.record()["resolved"]
    except (StudyFolderError, KeyError, TypeError):
        return ()
    now = json.loads(json.dumps(dict(cell.resolved)))
    return tuple(found.sentence for found in differences(before, now))


def open_study(
    experiment: spec.Experiment,
    experiment_folder: Path,
    runs: Path,
    progress: Progress = silent,
) -> Study:
    """Resolve the arms, check the pairs, claim the run folder, freeze or open the corpus, and lay out the cells.

    Everything about the file is checked before anything is written. CorpusError where a budget exceeds the corpus.
    """
    arms = resolve_arms(experiment)
    check_pairs(experiment, arms)
    owner = experiment.study.removesuffix(spec.TUNING)  # trials read the corpus of the study that they tune
    if experiment.base.task is None and not (runs / owner / CORPUS).exists():
        # A wrong path is an error before anything is written.
        require_texts(experiment.base, experiment_folder)
    folders = {name: StudyFolder(runs / name) for name in (owner, experiment.study)}
    for name, folder in folders.items():
        folder.claim_for(name)
    corpus: Material
    if experiment.base.task is not None:
        corpus = task_corpus(experiment.base)
    else:
        corpus = corpus_of(experiment.base, experiment_folder, runs, folders[owner], progress)
    folder = folders[experiment.study]
    rows = frozen_rows(experiment, arms, folder)
    study = Study(experiment, folder, corpus, arms, tuple(cells(experiment, arms, corpus.digest, rows)), rows)
    for (scale, _), arm in arms.items():
        order_of(study, arm, scale, experiment.seeds.first).require(arm.length.steps)
    for split in HELD_OUT if isinstance(corpus, FrozenCorpus) else ():
        if corpus.counts[split].tokens == 0:
            raise CorpusError(
                f"the {split} split is empty",
                expected="at least one document",
                received=f"{corpus.counts['train'].documents} documents, all in the train split",
                remedy=f"name a larger corpus, or raise corpus.{split}_fraction",
            )
    return study


def task_corpus(base: spec.Base) -> TaskCorpus:
    """The task that the file declares, at its row length. CorpusError for a row too short to hold it, or a task that
    is not what a task must be."""
    assert base.task is not None
    check_task(base.task, base.context_length)
    return TaskCorpus(base.task, base.context_length)


def write_plan(study: Study, found: list[Gate] | None) -> None:
    """Put on record what a reader of the folder needs without tensors: cells, arms, gates, corpus.

    `found` are the gates that were just checked; None keeps those on record, where nothing was to be trained.
    """
    earlier = study.folder.plan() or {}
    gates = earlier.get("gates", []) if found is None else [asdict(gate) for gate in found]
    rule = spec.rule_digest(study.experiment)
    if earlier.get("rule_digest", rule) != rule:
        study.folder.append_look("rule changed", pairs={}, words={}, rule_digest=earlier["rule_digest"])
    counts = {split: asdict(count) for split, count in study.corpus.counts.items()}
    study.folder.write_plan(
        {
            "cells": [
                {"scale": c.scale, "arm": c.arm, "seed": c.seed, "variant": c.variant, "digest": c.digest}
                for c in study.cells
            ],
            "arms": [
                {
                    "scale": scale,
                    "arm": name,
                    "declared": spec.declared(study.experiment, scale, name),
                    "parameters_by_role": dict(arm.parameters_by_role),
                    "training_flops_per_token": arm.training_flops_per_token,
                    "code_roots": list(arm.code_roots),
                    "code_digest": code_digest(arm.code_roots),
                    "groups": {name: asdict(group) for name, group in arm.groups.items()},
                    "source_lists": list(arm.source_lists),
                }
                for (scale, name), arm in study.arms.items()
            ],
            "gates": gates,
            "diagnostics": [
                {
                    "diagnostic": d.name,
                    "title": d.title,
                    "sentence": d.sentence,
                    "unit": d.unit,
                    "correctness_only": d.correctness_only,
                }
                for d in study_diagnostics(study.corpus)
            ],
            "interventions": [
                {"intervention": i.name, "title": i.title, "sentence": i.sentence} for i in study_interventions(study)
            ],
            "corpus": {
                "declared": dict(study.corpus.config),
                "digest": study.corpus.digest,
                "counts": counts,
                "dropped": dict(study.corpus.dropped) if isinstance(study.corpus, FrozenCorpus) else {},
                "vocabulary_size": study.corpus.vocabulary_size,
            }
            | ({"task": study.corpus.describe()} if isinstance(study.corpus, TaskCorpus) else {}),
            "environment": environment(),
            "rule_digest": rule,
        }
    )


def planned_alike(study: Study) -> bool:
    """Whether the study's plan is on record and names these cells. False where there is none, before the first run.

    StudyFolderError where it names others: this machine has another version of paribus or of a mechanism, another
    kind of device, or another file, and would train cells that nobody compares with the rest.
    """
    plan = study.folder.plan()
    if plan is None:
        return False
    fields = ("scale", "arm", "seed", "variant", "digest")
    planned = {tuple(cell.get(name) for name in fields) for cell in plan.get("cells", [])}
    own = {(cell.scale, cell.arm, cell.seed, cell.variant, cell.digest) for cell in study.cells}
    if foreign := sorted(own - planned):
        scale, arm, seed, variant, digest = foreign[0]
        there = [cell[4] for cell in planned if cell[:4] == (scale, arm, seed, variant)]
        raise StudyFolderError(
            f"{len(foreign)} of {len(own)} cells are not those that this study is planned with",
            expected=f"{scale}/{arm}/{seed} {variant}".strip() + f" with the digest {there[0] if there else 'none'}",
            received=f"the digest {digest} of this file, this version of the code and this kind of device",
            remedy="use the same file, the same version of paribus and of your mechanisms, and the same kind of device "
            "as the machine that planned the study; or plan it anew with `paribus run`",
        )
    return True


def gates_hold_here(study: Study) -> bool:
    """Whether the gates on record were all passed on a machine and with packages like these."""
    plan = study.folder.plan() or {}
    gates = plan.get("gates") or []
    return bool(gates) and all(gate.get("passed") for gate in gates) and plan.get("environment") == environment()


def study_diagnostics(corpus: Material) -> tuple[Diagnostic, ...]:
    """Diagnostics of every mechanism, and of a task how much attention reaches the answer."""
    return (*mechanisms.all_diagnostics(), *((ANSWER_MASS,) if isinstance(corpus, TaskCorpus) else ()))


def study_interventions(study: Study) -> tuple[Intervention, ...]:
    """Interventions of every mechanism in the study, each once; each is made on every arm that it applies to."""
    found = {i.name: i for module in _modules(study) for i in mechanisms.interventions_of(module)}
    return tuple(found.values())


def _modules(study: Study) -> list[ModuleType]:
    """The modules that declare the study's mechanisms and what they extend, by name."""
    modules = {
        module.__name__: module
        for arm in study.arms.values()
        for config in arm.mechanisms.values()
        for module in mechanisms.lineage_of(config)
    }
    return [module for _, module in sorted(modules.items())]


def prepare_process(execution: spec.Execution) -> None:
    """The file's mode for this process, and a fixed number of threads."""
    require_mode(execution.mode, device_of(execution))
    torch.set_num_threads(execution.threads)


def order_of(study: Study, arm: ArmAtScale, scale: str, seed: int) -> Batches:
    """Which tokens a cell of the arm reads at which step."""
    rows = arm.base.batch_tokens // arm.base.context_length
    corpus = arm.base.corpus
    return batches_of(
        study.corpus,
        arm.base.context_length,
        rows,
        study=study.experiment.study,
        scale=scale,
        seed=seed,
        packing=corpus.packing,
        epochs=corpus.epochs,
    )


def held_out_for(
    corpus: Material,
    arm: ArmAtScale,
    study: str,
    scale: str,
    seed: int,
    before_batch: Callable[[], None] | None = None,
) -> Callable[[Split, int | None], HeldOut]:
    """What a cell of the arm is measured on, by split and number of tokens. `before_batch` is called before each batch
    is read, and may raise to end a measurement that takes long."""

    def batches(of: HeldOut, inputs: int) -> Iterator[EvaluationBatch]:
        for batch in of.batches(inputs):
            if before_batch is not None:
                before_batch()
            yield batch

    def of(split: Split, tokens: int | None) -> HeldOut:
        found = held_out_of(corpus, split, tokens, arm.base.context_length, study=study, scale=scale, seed=seed)
        return replace(found, batches=partial(batches, found))

    return of
