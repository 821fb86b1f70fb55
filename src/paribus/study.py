"""Where the branches meet: an experiment becomes cells, cells are trained and measured, the run folder fills.

experiment -> plan -> gates -> claims -> per cell: order -> model -> optimisers -> events -> measurements -> folder.
Reading the folder back needs no tensors and lives in `paribus.reading`.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from paribus import mechanisms
from paribus.data.corpus import CorpusConfig
from paribus.data.frozen import DocumentTable, FrozenCorpus, TokenFile
from paribus.data.order import Order
from paribus.data.parquet_folder import parquet_files
from paribus.data.shards import prepare
from paribus.data.split import Split
from paribus.data.windows import windows
from paribus.errors import CorpusError, DivergenceError
from paribus.experiment import spec
from paribus.experiment.code import code_digest
from paribus.experiment.gates import Gate
from paribus.experiment.pairs import check_pairs
from paribus.experiment.plan import ArmAtScale, Cell, cells, resolve_arms
from paribus.measure.likelihood import bits_per_byte, document_nats, nats_per_token
from paribus.measure.probes import probe
from paribus.mechanisms.contract import Diagnostic
from paribus.model.build import build_model
from paribus.runs.claims import claim
from paribus.runs.environment import code_version, environment
from paribus.runs.folder import CellFolder, StudyFolder
from paribus.train.loop import MilestoneReached, StepFinished, train
from paribus.train.state import TrainState
from paribus.train.step import Consumed

EVALUATION_TOKENS = 8192
"""inputs of one forward pass when scoring; bounds the logits at EVALUATION_TOKENS * vocabulary numbers"""
HELD_OUT: tuple[Split, ...] = ("test", "validation")

Emit = Callable[[dict[str, Any]], None]
"""receives what happened, as JSON types: {"kind": "step" | "cell" | ..., ...}"""


@dataclass(frozen=True)
class Study:
    """An experiment with its corpus, its resolved arms and its cells."""

    experiment: spec.Experiment
    folder: StudyFolder
    corpus: FrozenCorpus
    arms: Mapping[tuple[str, str], ArmAtScale]
    cells: tuple[Cell, ...]

    def cell_folder(self, cell: Cell) -> CellFolder:
        return self.folder.cell(cell.scale, cell.arm, cell.seed, cell.digest, cell.repeat)

    def stale_folders(self) -> dict[str, int]:
        """Finished work under another digest, by "scale/arm": its fields or its code were other ones."""
        counts: dict[str, int] = {}
        for cell in self.cells:
            others = self.folder.other_cells(cell.scale, cell.arm, cell.seed, cell.digest)
            if others and not cell.repeat and not self.cell_folder(cell).finished:
                counts[f"{cell.scale}/{cell.arm}"] = counts.get(f"{cell.scale}/{cell.arm}", 0) + len(others)
        return counts

    @property
    def missing(self) -> list[Cell]:
        return [cell for cell in self.cells if not self.cell_folder(cell).finished]


def open_study(
    experiment: spec.Experiment,
    experiment_folder: Path,
    runs: Path,
    progress: Callable[[str, int, int], None] | None = None,
) -> Study:
    """Resolve the arms, check the pairs, claim the run folder, freeze or open the corpus, and lay out the cells.

    Everything about the file is checked before anything is written. CorpusError where a budget exceeds the corpus.
    """
    arms = resolve_arms(experiment)
    check_pairs(experiment, arms)
    config = corpus_config(experiment.base.corpus, experiment_folder)
    if config.folder is not None:
        parquet_files(config.folder)  # a wrong path is an error before anything is written
    folder = StudyFolder(runs / experiment.study)
    folder.claim_for(experiment.study)
    corpus = prepare(
        config, folder.corpus, vocabulary_size=experiment.base.tokenizer.vocabulary_size, progress=progress
    )
    corpus.verify()
    study = Study(experiment, folder, corpus, arms, tuple(cells(experiment, arms, corpus.digest)))
    for (scale, _), arm in arms.items():
        _order(study, arm, scale, experiment.seeds.first).require(arm.length.steps)
    for split in HELD_OUT:
        if corpus.counts[split].tokens == 0:
            raise CorpusError(
                f"the {split} split is empty",
                expected="at least one document",
                received=f"{corpus.counts['train'].documents} documents, all in the train split",
                remedy=f"name a larger corpus, or raise corpus.{split}_fraction",
            )
    return study


def corpus_config(corpus: spec.Corpus, experiment_folder: Path) -> CorpusConfig:
    """The data branch's description of the corpus that the file declares. A path is relative to the file."""
    declared = CorpusConfig(
        near_duplicate_similarity=corpus.near_duplicate_similarity,
        test_fraction=corpus.test_fraction,
        validation_fraction=corpus.validation_fraction,
    )
    if corpus.path is None:
        return declared
    return replace(declared, kind="parquet", folder=(experiment_folder / corpus.path).resolve())


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
                {"scale": c.scale, "arm": c.arm, "seed": c.seed, "repeat": c.repeat, "digest": c.digest}
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
                for d in study_diagnostics(study)
            ],
            "corpus": {
                "declared": dict(study.corpus.config),
                "digest": study.corpus.digest,
                "counts": counts,
                "dropped": dict(study.corpus.dropped),
                "vocabulary_size": study.corpus.vocabulary_size,
            },
            "environment": environment(),
            "rule_digest": rule,
        }
    )


def study_diagnostics(study: Study) -> tuple[Diagnostic, ...]:
    """Diagnostics of every mechanism in the study; each is read on every arm that has its sites."""
    modules = {
        mechanisms.module_of(config).__name__: mechanisms.module_of(config)
        for arm in study.arms.values()
        for config in arm.mechanisms.values()
    }
    return tuple(d for _, module in sorted(modules.items()) for d in mechanisms.diagnostics_of(module))


def train_missing(study: Study, emit: Emit, should_stop: Callable[[], bool]) -> None:
    """Train every cell that is neither finished nor held by another process, in the plan's order."""
    prepare_process(study.experiment.execution)
    for cell in study.cells:
        folder = study.cell_folder(cell)
        if folder.finished or should_stop():
            continue
        with claim(folder.path) as held:
            if held and not folder.finished:
                train_cell(study, cell, emit, should_stop)


def prepare_process(execution: spec.Execution) -> None:
    """Proof mode for this process: deterministic algorithms and a fixed number of threads."""
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(execution.threads)


def train_cell(study: Study, cell: Cell, emit: Emit, should_stop: Callable[[], bool]) -> None:
    """Train one claimed cell from its last checkpoint to its end, or to a checkpoint where `should_stop` says so."""
    folder, arm = study.cell_folder(cell), study.arms[cell.scale, cell.arm]
    model = build_model(arm.model, arm.seam_configs, (study.experiment.study, cell.scale, cell.seed))
    initial = {name: _tensor_digest(p) for name, p in model.named_parameters()}
    state = TrainState.fresh(model, arm.base.optimiser)
    checkpoint = folder.latest_checkpoint()
    if checkpoint is not None:
        state.restore(checkpoint[1])
    folder.keep_metrics_until(state.step)
    folder.write_record(
        {
            "scale": cell.scale,
            "arm": cell.arm,
            "seed": cell.seed,
            "repeat": cell.repeat,
            "digest": cell.digest,
            "resolved": dict(cell.resolved),
            "source_lists": list(arm.source_lists),
            "initial_digests": initial,
            "environment": environment(),
            "code_version": code_version(),
        }
    )
    context = {"scale": cell.scale, "arm": cell.arm, "seed": cell.seed, "repeat": cell.repeat}
    emit({"kind": "started", **context, "step": state.step, "steps": arm.length.steps})
    execution = study.experiment.execution
    order = _order(study, arm, cell.scale, cell.seed)
    rows = execution.micro_batch_rows or order.rows_per_batch
    measured: list[dict[str, Any]] = []
    try:
        for event in train(state, order, arm.length, arm.base.schedule, rows):
            if isinstance(event, MilestoneReached):
                measured.extend(_measure(study, arm, folder, state, event))
                continue
            folder.append_metrics(_metrics_line(event))
            emit({"kind": "step", **context, **_metrics_line(event), "steps": arm.length.steps})
            stop = should_stop() and event.step < arm.length.steps
            if stop or event.step % execution.checkpoint_steps == 0:
                folder.write_checkpoint(event.step, state.to_files())
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
            "tokens_seen": state.step * arm.length.batch_tokens,
            "train_seconds": seconds,
            "batch_digest": state.digest_hex(),
            "final_tensors_digest": _digest_of_all(model),
        }
    )
    emit({"kind": "finished", **context, "seconds": seconds, "measured": measured})


def _metrics_line(event: StepFinished) -> dict[str, Any]:
    return asdict(event)


def _order(study: Study, arm: ArmAtScale, scale: str, seed: int) -> Order:
    rows = arm.base.batch_tokens // arm.base.context_length
    return Order(study.corpus, arm.base.context_length, rows, study=study.experiment.study, scale=scale, seed=seed)


def _measure(
    study: Study, arm: ArmAtScale, folder: CellFolder, state: TrainState, event: MilestoneReached
) -> Iterator[dict[str, Any]]:
    """Score held-out documents and, at the end of the schedule, read the diagnostics. Rows first, then what to show."""
    limits = {"test": arm.base.evaluation.test_tokens, "validation": arm.base.evaluation.validation_tokens}
    for split in HELD_OUT:
        held_out = _limited(study.corpus.split(split), limits[split])
        documents = held_out.documents
        nats = document_nats(state.model, _scoring_batches(held_out, arm.base.context_length), len(documents))
        if not np.isfinite(nats).all():
            # The last update can break a model whose training loss was finite until then.
            raise DivergenceError(f"the {split} loss became {nats.sum()} after step {event.step}")
        folder.write_rows(
            f"likelihood/{split}-{event.step:08d}",
            {
                "document": documents.id,
                "source": [study.corpus.sources[source] for source in documents.source],
                "tokens": documents.tokens,
                "bytes": documents.bytes,
                "nats": nats,
                "tokens_seen": np.full(len(documents), event.tokens_seen),
                "mid_schedule": np.full(len(documents), not event.final),
            },
        )
        yield {
            "split": split,
            "tokens_seen": event.tokens_seen,
            "nats_per_token": nats_per_token(nats, documents.tokens),
            "bits_per_byte": bits_per_byte(nats, documents.bytes),
        }
    if event.final:
        probed = _limited(study.corpus.split("validation"), arm.base.evaluation.probe_tokens)
        batches = (batch for batch, _ in _scoring_batches(probed, arm.base.context_length))
        readings = probe(state.model, batches, study_diagnostics(study))
        folder.write_rows(
            f"diagnostics/{event.step:08d}",
            {
                "diagnostic": [r.diagnostic for r in readings],
                "layer": [r.layer for r in readings],
                "group": [r.group for r in readings],
                "value": [r.value for r in readings],
            },
        )
    state.model.train()


def _scoring_batches(held_out: TokenFile, context_length: int) -> Iterator[tuple[Consumed, Any]]:
    for batch in windows(held_out, context_length).batches(EVALUATION_TOKENS):
        yield Consumed.from_batch(batch, torch.device("cpu")), batch.document_row


def _limited(held_out: TokenFile, tokens: int | None) -> TokenFile:
    """The first documents of a split, whole, until they hold `tokens` tokens."""
    if tokens is None:
        return held_out
    table = held_out.documents
    count = int(np.searchsorted(np.cumsum(table.tokens), tokens)) + 1
    columns = {name: getattr(table, name)[:count] for name in ("id", "source", "offset", "tokens", "bytes")}
    return replace(held_out, documents=DocumentTable(**columns))


def _tensor_digest(tensor: torch.Tensor) -> str:
    content = tensor.detach().contiguous().numpy().tobytes()
    return hashlib.blake2b(f"{tuple(tensor.shape)} {tensor.dtype}".encode() + content, digest_size=8).hexdigest()


def _digest_of_all(model: torch.nn.Module) -> str:
    digests = {name: _tensor_digest(parameter) for name, parameter in model.named_parameters()}
    return hashlib.blake2b(json.dumps(digests, sort_keys=True).encode(), digest_size=16).hexdigest()
