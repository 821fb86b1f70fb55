"""What a study of a synthetic task shows, from its plan and learning curves: the records of the report's section."""

from collections.abc import Iterator, Mapping
from statistics import fmean
from typing import Any

import numpy as np

from paribus.data.tasks.contract import ALL
from paribus.experiment import spec
from paribus.experiment.calibration import State, calibration_of
from paribus.experiment.metrics import parse
from paribus.reading.cell import ReadCell
from paribus.reading.learning import slice_curve
from paribus.reading.study import ReadStudy
from paribus.reading.task_arms import END, TaskArm, budget_updates
from paribus.report.of_tasks import (
    AcquisitionRow,
    CalibrationText,
    LearningCurve,
    LearntRow,
    SliceDifference,
    SliceLevels,
    TaskContent,
    TaskDefinition,
    TaskText,
)
from paribus.reporting.chance import chance_rows
from paribus.reporting.due import due
from paribus.reporting.robustness import robustness
from paribus.reporting.task_differences import describe_contrast
from paribus.stats.learning import area, windows
from paribus.stats.rule import Verdict


def task_content(study: ReadStudy, verdicts: tuple[Verdict, ...], seeds: set[int]) -> TaskContent | None:
    """The section's records, of cells at `seeds`; None where the study reads text, or its plan is not there."""
    found = definition(study)
    if found is None:
        return None
    slices = tuple(levels.slice for levels in found.levels)
    complete = [cell for cell in _cells(study) if cell.key[2] in seeds]
    return TaskContent(
        found,
        tuple(curve for cell in complete for name in slices if (curve := _curve(cell, name)) is not None),
        tuple(_acquisitions(study, complete, slices, seeds)),
        tuple(_differences(study, verdicts, found)),
        tuple(robustness(study, verdicts)),
        tuple(chance_rows(study, seeds)),
        tuple(_learnt(study, complete)),
    )


def _learnt(study: ReadStudy, cells: list[ReadCell]) -> Iterator[LearntRow]:
    """Held-out losses in the unit that the task declares."""
    task = study.experiment.base.task
    for name, learnt in ({} if task is None else task.learnt()).items():
        for scale, arm in dict.fromkeys((cell.key[0], cell.key[1]) for cell in cells):
            losses = {
                cell.key[2]: nats
                for cell in cells
                if cell.key[:2] == (scale, arm) and (nats := cell.final(f"test.nll.{name}")) is not None
            }
            if losses:
                amounts = tuple(map(learnt.amount, losses.values()))
                yield LearntRow(scale, arm, name, tuple(losses), learnt.unit, learnt.whole, amounts)


def definition(study: ReadStudy) -> TaskDefinition | None:
    """The task as the plan describes it; None for text."""
    planned: Mapping[str, Any] | None = study.plan["corpus"].get("task")
    if not planned:
        return None
    experiment = study.experiment
    text = TaskText(
        name=planned["name"],
        title=planned["title"],
        sentence=planned["sentence"],
        knobs=planned["knobs"],
        primary="-".join(parse(experiment.contrasts[experiment.primary].metric).slices) or ALL,
        budget_updates=budget_updates(experiment, next(iter(experiment.scales))),
        targets_per_update=_targets(study),
        row_length=planned["row_length"],
        budget_updates_by_scale={scale: budget_updates(experiment, scale) for scale in experiment.scales},
    )
    levels = tuple(
        SliceLevels(name, of["chance"], of["floor"], of["threshold"], of["shortcuts"])
        for name in planned["order"]
        for of in (planned["slices"][name],)
    )
    return TaskDefinition(text, levels, _calibration(experiment))


def _calibration(experiment: spec.Experiment) -> CalibrationText | None:
    found = calibration_of(experiment)
    if found.state is State.MISSING:
        return None
    shares = tuple(share for name in found.shares for share in found.crossed(name))
    on_baseline = found.state not in (State.STALE, State.NOT_APPLICABLE)
    return CalibrationText(on_baseline, found.seeds, shares, found.sentence)


def _cells(study: ReadStudy) -> list[ReadCell]:
    return [cell for cell in study.cells.values() if cell.state == "complete" and cell.key[3] == spec.STUDY]


def _targets(study: ReadStudy) -> float:
    """Mean over the updates of one cell; 0 before any has ended."""
    lines = next((cell.metrics for cell in _cells(study)), [])
    return fmean(sum(part["targets"] for part in line.get("slices", {}).values()) for line in lines) if lines else 0.0


def _curve(cell: ReadCell, name: str) -> LearningCurve | None:
    curve = slice_curve(cell.metrics, name)
    if curve is None:
        return None
    excess, floor = windows(curve.excess, curve.targets), windows(curve.floor, curve.targets)
    scale, arm, seed, _ = cell.key
    loss = excess.excess + floor.excess
    ends = tuple(int(end) for end in excess.ends)
    return LearningCurve(scale, arm, seed, name, ends, tuple(loss.tolist()), tuple(floor.excess.tolist()))


def _acquisitions(
    study: ReadStudy, cells: list[ReadCell], slices: tuple[str, ...], planned: set[int]
) -> Iterator[AcquisitionRow]:
    places = dict.fromkeys((cell.key[0], cell.key[1]) for cell in cells)
    for scale, arm in places:
        seeds = tuple(cell.key[2] for cell in cells if cell.key[:2] == (scale, arm))
        of = TaskArm(study, scale, arm, seeds)
        found = {seed: study.cells.get((scale, arm, seed, spec.STUDY)) for seed in sorted(planned)}
        diverged = tuple(seed for seed, cell in found.items() if cell is not None and cell.state == "diverged")
        for name in slices:
            curves = [curve for seed in seeds if (curve := of.curve(seed, name)) is not None]
            final = [loss for seed in seeds if (loss := of.excess_at(seed, (name,))[END]) is not None]
            level = of.plateau(name)
            whole = len(curves) == len(seeds) == len(final)
            acquired = of.acquired_by_seed(name)
            floors = [float(np.nanmean(curve.floor)) for curve in curves]
            yield AcquisitionRow(
                scale=scale,
                arm=arm,
                slice=name,
                seeds=seeds,
                area_nats_per_target=fmean(area(c.excess, c.targets) for c in curves) if whole else None,
                final_nats_per_target=fmean(final) + fmean(floors) if whole else None,
                # A seed without a target of the slice did not acquire it.
                acquired_at_updates=tuple(acquired.get(seed) for seed in seeds) if acquired else (),
                plateau="" if level is None else level.sentence,
                diverged=diverged,
            )


def _differences(study: ReadStudy, verdicts: tuple[Verdict, ...], found: TaskDefinition) -> Iterator[SliceDifference]:
    """Every contrast on what it is about; then each group of arms once on what the primary is about and on every slice.

    A contrast's own row carries its declared sign: no other contrast of the same arms takes its place.
    """
    asked = list(due(study, verdicts))
    seen = set()
    for contrast, verdict in asked:
        own = "-".join(parse(contrast.metric).slices) or ALL
        seen.add((verdict.scale, contrast.arms, own))
        yield describe_contrast(study, verdict.name, slices=own).difference
    slices = [levels.slice for levels in found.levels]
    for contrast, verdict in asked:
        every: dict[str, None] = dict.fromkeys([found.text.primary, *(slices if len(slices) > 1 else [])])
        for name in every:
            key = (verdict.scale, contrast.arms, name)
            if key in seen:
                continue
            seen.add(key)
            # A sign was declared for what the contrast is about, and for nothing else.
            yield describe_contrast(study, verdict.name, slices=name, expected=False).difference
