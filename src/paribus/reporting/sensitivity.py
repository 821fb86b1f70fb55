"""How far the effect moves with the schedule and with swept fields, from the cells of derived arms: all are shown."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from paribus.experiment.control import SCHEDULE_ARM
from paribus.experiment.metrics import parse
from paribus.experiment.spec import STUDY, Contrast
from paribus.experiment.sweeps import Group, described
from paribus.reading.cell import same_documents
from paribus.reading.evidence import unit_of
from paribus.reading.study import ReadStudy
from paribus.reading.task_arms import CONFIDENCE, t_interval
from paribus.report.of_sensitivity import Kind, SensitivityRow, Value
from paribus.reporting.due import counted_seeds, due, signs
from paribus.reporting.robustness import compared
from paribus.stats.rule import Verdict


def sensitivity(study: ReadStudy, verdicts: tuple[Verdict, ...]) -> Iterator[SensitivityRow]:
    """The primary's difference, what a longer decay moves, and every swept arm at every value, its own among them.

    Nothing before the primary is due, nothing beside a contrast that is not, and nothing where the file asks for none.
    """
    found = {verdict.name: (contrast, verdict) for contrast, verdict in due(study, verdicts)}
    groups = described(study.experiment)
    if not groups or study.experiment.primary not in found:
        return
    contrast, verdict = found[study.experiment.primary]
    yield _row(study, _Asked("effect", verdict.name, contrast), counted_seeds(study, verdict))
    for group in sorted(groups, key=lambda group: SCHEDULE_ARM not in group.arms):
        place = study.experiment.beside(group.arms[0])
        if place is not None and place[0] in found:
            yield from _of_group(study, group, place, *found[place[0]])


@dataclass(frozen=True)
class _Asked:
    """What a row is about; `contrast` has the arms that are compared."""

    kind: Kind
    beside: str
    contrast: Contrast
    of: str = ""
    knob: str = ""
    value: Value | None = None
    own: Value | None = None


def _of_group(
    study: ReadStudy, group: Group, place: tuple[str, str], contrast: Contrast, verdict: Verdict
) -> Iterator[SensitivityRow]:
    beside, baseline = place
    counted = counted_seeds(study, verdict)
    few = [s for s in study.experiment.seeds.numbers[: study.experiment.robustness.seeds] if s in counted]
    kind: Kind = "schedule" if SCHEDULE_ARM in group.arms else "value"

    def asked(arm: str, value: Value | None) -> _Asked:
        arms = {"treatment": arm, "baseline": baseline, "minus_treatment": None, "minus_baseline": None}
        return _Asked(kind, beside, contrast.model_copy(update=arms), group.of, group.knob, value, group.own)

    if group.of != baseline and group.own is not None:
        yield _row(study, asked(group.of, group.own), counted)
    for arm, value in zip(group.arms, group.values, strict=True):
        yield _row(study, asked(arm, value), few)


def _row(study: ReadStudy, asked: _Asked, seeds: Sequence[int]) -> SensitivityRow:
    contrast = asked.contrast
    scale = study.experiment.contrast_scale(contrast)
    cells = [[study.cells[scale, arm, seed, STUDY] for arm in contrast.arms] for seed in seeds]
    # An arm may enter an interaction twice: its cell diverged once.
    diverged = {cell.key for group in cells for cell in group if cell.state == "diverged"}
    split = parse(contrast.metric).held_out_split
    values = []
    for group in cells:
        known = [value for cell in group if (value := cell.final(contrast.metric)) is not None]
        # Losses on different documents make no pair.
        if len(known) == len(group) and same_documents(group, split):
            values.append(sum(sign * value for sign, value in zip(signs(contrast), known, strict=True)))
    whole = bool(values) and not diverged
    return SensitivityRow(
        kind=asked.kind,
        contrast=asked.beside,
        compared=compared(contrast),
        scale=scale,
        metric=contrast.metric,
        unit=unit_of(study.experiment, contrast),
        of=asked.of,
        knob=asked.knob,
        value=asked.value,
        own=asked.own,
        mean=float(np.mean(values)) if whole else None,
        interval=t_interval(values, CONFIDENCE) if whole else None,
        pairs=len(values),
        planned=len(seeds),
        diverged=len(diverged),
    )
