"""Reading a run folder back: cells become rows, rows become comparisons, comparisons become verdicts.

Needs no tensors: `status` and `report` load no torch. Everything is recomputed from rows.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from paribus.errors import StudyFolderError
from paribus.experiment import spec
from paribus.experiment.code import code_digest
from paribus.experiment.spec import Key
from paribus.report.content import Measurement
from paribus.runs.folder import CellFolder, StudyFolder
from paribus.stats.paired import PairedDifferences, interaction_differences, paired_differences
from paribus.stats.procedure import at_look
from paribus.stats.rule import Comparison, Rule, Verdict, Word
from paribus.stats.verdict import decide

ENDED = ("complete", "diverged")
QUANTITIES = {"nll": "nats_per_token", "bits_per_byte": "bits_per_byte"}
"""field of a measurement by what a metric's name ends in"""


@dataclass(frozen=True)
class ReadCell:
    """A cell of the study as the disk has it. Rows are read once, and only where the cell is complete."""

    key: Key
    state: str
    """complete, diverged, running, started, missing, stale, or altered"""
    digest: str
    folder: CellFolder | None
    alterations: tuple[str, ...] = ()
    """what of its rows is not as it was written; such a cell is not used"""

    @cached_property
    def measurements(self) -> list[Measurement]:
        """One for each split and budget, recomputed from the documents' rows."""
        if self.folder is None or self.state != "complete":
            return []
        scale, arm, seed, _ = self.key
        found = []
        for name in self.folder.row_files("likelihood"):
            rows = self.folder.rows(name, ("nats", "tokens", "bytes", "tokens_seen", "mid_schedule"))
            nats, tokens, size = (math.fsum(rows[column].to_numpy()) for column in ("nats", "tokens", "bytes"))
            found.append(
                Measurement(
                    scale=scale,
                    arm=arm,
                    seed=seed,
                    tokens_seen=rows["tokens_seen"][0].as_py(),
                    split=_split_of(name),
                    nats_per_token=nats / tokens,
                    bits_per_byte=nats / (math.log(2.0) * size),
                    mid_schedule=rows["mid_schedule"][0].as_py(),
                )
            )
        return found

    def document_rows(self, split: str, columns: Sequence[str]) -> pa.Table | None:
        """Rows of the split's documents at the end of the schedule; None where the cell has none."""
        if self.folder is None or self.state != "complete":
            return None
        names = [name for name in self.folder.row_files("likelihood") if _split_of(name) == split]
        return self.folder.rows(names[-1], columns) if names else None  # sorted by step: the last is the end

    def final(self, metric: str) -> float | None:
        """The metric ("test.nll", ...) at the end of the schedule; None where the cell is not complete."""
        split, _, quantity = metric.partition(".")
        field = QUANTITIES[quantity]
        values = [getattr(m, field) for m in self.measurements if m.split == split and not m.mid_schedule]
        return values[0] if values else None

    @cached_property
    def metrics(self) -> list[dict[str, Any]]:
        return self.folder.metrics() if self.folder is not None and self.state == "complete" else []

    @cached_property
    def record(self) -> dict[str, Any]:
        return self.folder.record() if self.folder is not None and self.state in ENDED else {}

    @cached_property
    def summary(self) -> dict[str, Any]:
        return self.folder.summary() if self.folder is not None and self.state in ENDED else {}


def _split_of(name: str) -> str:
    """ "likelihood/test-00000112" is of the split "test"."""
    return name.partition("/")[2].partition("-")[0]


@dataclass(frozen=True)
class ReadStudy:
    """The experiment file and what the run folder holds of it."""

    experiment: spec.Experiment
    folder: StudyFolder
    plan: Mapping[str, Any]
    cells: Mapping[Key, ReadCell]

    def count(self, state: str) -> int:
        return sum(cell.state == state for cell in self.cells.values())

    def stale_folders(self) -> list[Path]:
        """Folders of cells that the file asks for, under digests that are not the plan's: kept, never used."""
        found = set()
        for (scale, arm, seed, variant), cell in self.cells.items():
            others = self.folder.other_cells(scale, arm, seed, cell.digest or "none", variant)
            found.update(other.path for other in others)
        return sorted(found)


def read_study(experiment: spec.Experiment, runs: Path) -> ReadStudy:
    """Every cell that the file asks for, with its state. StudyFolderError where the folder is another study's."""
    folder = StudyFolder(runs / experiment.study)
    if not (folder.path / "study.json").exists():
        raise StudyFolderError(
            f"study '{experiment.study}' has no run folder yet",
            expected=f"{folder.path} with a study in it",
            received="nothing there",
            remedy="start it with `paribus run`, or name its folder with --runs",
        )
    folder.claim_for(experiment.study)
    plan = folder.plan() or {"cells": [], "arms": [], "gates": [], "diagnostics": [], "environment": {}, "corpus": {}}
    digests = {(c["scale"], c["arm"], c["seed"], c.get("variant")): c["digest"] for c in plan["cells"]}
    current = {
        (a["scale"], a["arm"]): a["arm"] in experiment.arms
        and a["scale"] in experiment.scales
        and a["declared"] == spec.declared(experiment, a["scale"], a["arm"])
        and a["code_digest"] == code_digest(a["code_roots"])
        for a in plan["arms"]
    }
    cells = {}
    for key in experiment.cell_keys():
        scale, arm, seed, variant = key
        digest = digests.get(key)
        found = folder.cell(scale, arm, seed, digest, variant) if digest is not None else None
        state = found.state if found is not None else "missing"
        altered: list[str] = []
        if state != "missing" and not current.get((scale, arm), False):
            state = "stale"
        elif found is not None and state in ENDED:
            altered = found.alterations()
        cells[key] = ReadCell(key, "altered" if altered else state, digest or "", found, tuple(altered))
    return ReadStudy(experiment, folder, plan, cells)


def comparisons(study: ReadStudy) -> list[Comparison]:
    """Every contrast of the file with the pairs that are there, whether they count at the present look or not.

    Only complete and diverged cells make pairs.
    """
    experiment, looks = study.experiment, study.folder.looks()
    current = spec.rule_digest(experiment)
    changed = any(look["words"] and look["rule_digest"] != current for look in looks)
    found = []
    for name, contrast in experiment.contrasts.items():
        arms = contrast_values(study, contrast)
        pairs = contrast_differences(study, contrast)
        # A pair has a difference only where each of its cells has a value.
        treatment, baseline, *minus = (tuple(v for s in pairs.seeds if (v := arm[s]) is not None) for arm in arms)
        seeds = experiment.seeds
        stage_1 = seeds.extension
        rule = Rule(
            contrast.smallest_effect,
            contrast.design_effect,
            planned_seeds=seeds.count,
            looks=seeds.looks,
            stage_1_seeds=None if stage_1 is None else stage_1.stage_1_seeds,
            stage_1_alpha=None if stage_1 is None else stage_1.stage_1_alpha,
        )
        found.append(
            Comparison(
                name=name,
                treatment=contrast.treatment,
                baseline=contrast.baseline,
                minus_treatment=contrast.minus_treatment,
                minus_baseline=contrast.minus_baseline,
                scale=experiment.contrast_scale(contrast),
                metric=contrast.metric,
                unit=spec.UNITS[contrast.metric.partition(".")[2]],
                primary=contrast.primary,
                rule=rule,
                differences=pairs,
                treatment_values=treatment,
                baseline_values=baseline,
                minus_treatment_values=minus[0] if minus else (),
                minus_baseline_values=minus[1] if minus else (),
                rule_changed_after_words=changed,
                verdict_seen_at=tuple(sorted({look["pairs"][name] for look in looks if look["words"].get(name)})),
            )
        )
    return found


def contrast_values(study: ReadStudy, contrast: spec.Contrast) -> list[dict[int, float | None]]:
    """Metric by seed of each arm of the contrast, in the order of its formula."""
    scale = study.experiment.contrast_scale(contrast)
    return [values_by_seed(study, scale, arm, contrast.metric) for arm in contrast.arms]


def contrast_differences(study: ReadStudy, contrast: spec.Contrast) -> PairedDifferences:
    """The contrast's difference at each seed that has a cell of every arm; for an interaction that of two differences.

    A seed that lacks a cell is missing from this contrast only.
    """
    treatment, baseline, *minus = contrast_values(study, contrast)
    return interaction_differences(treatment, baseline, *minus) if minus else paired_differences(treatment, baseline)


def values_by_seed(study: ReadStudy, scale: str, arm: str, metric: str) -> dict[int, float | None]:
    """Metric by seed; None marks a diverged cell, absence an unfinished one."""
    cells = {seed: study.cells[scale, arm, seed, spec.STUDY] for seed in study.experiment.seeds.numbers}
    found = {seed: cell.final(metric) for seed, cell in cells.items() if cell.state == "complete"}
    # A complete cell without the metric has not diverged: it is missing from this contrast, and the report says so.
    values: dict[int, float | None] = {seed: value for seed, value in found.items() if value is not None}
    return values | {seed: None for seed, cell in cells.items() if cell.state == "diverged"}


def record_look(study: ReadStudy, verdicts: tuple[Verdict, ...], command: str) -> None:
    """Append to the ledger that somebody saw this state of evidence."""
    study.folder.append_look(
        command,
        pairs={verdict.name: verdict.seeds for verdict in verdicts},
        words={v.name: v.word.value for v in verdicts if v.word is not Word.WAITING},
        rule_digest=spec.rule_digest(study.experiment),
    )


def verdicts_of(study: ReadStudy) -> tuple[Verdict, ...]:
    """The verdicts at the last declared look, or stage of an extension, that the pairs reach."""
    return decide([at_look(comparison, study.experiment.seeds.numbers) for comparison in comparisons(study)])
