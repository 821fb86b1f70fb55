"""What a contrast costs: times of an update, FLOPs, and what is left of the gain at equal FLOPs and at equal time."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from paribus.experiment import spec
from paribus.reading.evidence import unit_of
from paribus.reading.study import ReadStudy
from paribus.reading.times import (
    TimeRatio,
    column_name,
    median_seconds,
    shares_of_parts,
    time_ratio,
    tokens_per_second,
)
from paribus.report.content import CostRow, UpdateRow
from paribus.reporting.due import DIVERGED, SILENT, confidence_of, losses_by_budget, nll_metric, once
from paribus.stats.iso import IsoComparison, IsoView, iso_comparison
from paribus.stats.rule import Verdict, Word


def costs(study: ReadStudy, verdicts: tuple[Verdict, ...]) -> Iterator[CostRow]:
    """Every pair of arms; what is left of a gain only where the contrast is due. An interaction has no cost."""
    flops = {(a["scale"], a["arm"]): a["training_flops_per_token"] for a in study.plan["arms"]}
    every = ((study.experiment.contrasts[verdict.name], verdict) for verdict in verdicts)
    for contrast, verdict in once(study, every):
        if len(contrast.arms) > 2 or not {(verdict.scale, arm) for arm in contrast.arms} <= flops.keys():
            continue
        scale = study.experiment.contrast_scale(contrast)
        measured, reason = study.cost(scale)
        reason = reason or _not_usable(study, scale, contrast.arms, measured)
        usable = None if reason else measured
        flop_ratio = flops[scale, contrast.treatment] / flops[scale, contrast.baseline]
        if verdict.word in SILENT or verdict.word is Word.DIVERGENCE:
            why = f"Nothing is left to compare: {DIVERGED}." if verdict.word is Word.DIVERGENCE else ""
            said = " ".join(filter(None, (why, reason)))
            for way in _ways(usable, contrast):
                yield _row(verdict, _timed(usable, contrast, way), flop_ratio, None, said)
            continue
        tokens, seeds, tables = losses_by_budget(study, contrast, verdict)
        treatment, baseline = tables[contrast.treatment], tables[contrast.baseline]
        for way in _ways(usable, contrast):
            timed = _timed(usable, contrast, way)
            found = iso_comparison(
                tokens,
                baseline,
                treatment,
                flop_ratio=flop_ratio,
                step_time=None if timed is None else timed.ratio.wall,
                at_tokens=tokens[-1],
                seeds=seeds,
                unit=unit_of(study.experiment, contrast.model_copy(update={"metric": nll_metric(contrast)})),
                dependent=study.experiment.scales[scale].budget_cells == "branches",
                confidence=confidence_of(verdict),
            )
            yield _row(verdict, timed, flop_ratio, found, reason)


def updates(study: ReadStudy) -> Iterator[UpdateRow]:
    """What an update of every arm takes by itself, as far as it was measured under the present file and code."""
    for scale in study.experiment.scales:
        measured, _ = study.cost(scale)
        if measured is None:
            continue
        for way, arm in product(measured["ways"], study.experiment.arms):
            name = column_name(arm, way)
            if name not in measured["columns"] or _not_usable(study, scale, [arm], measured):
                continue
            shares = shares_of_parts(measured, name)
            yield UpdateRow(
                scale=scale,
                arm=arm,
                way=way,
                host=measured["host"],
                rounds=len(measured["wall_seconds"][name]),
                tokens_per_second=tokens_per_second(measured, name),
                wall_seconds=median_seconds(measured, name),
                cpu_seconds=median_seconds(measured, name, "cpu_seconds"),
                bytes_for_backward=measured["bytes_for_backward"][name],
                peak_bytes=measured["peak_bytes"][name],
                parts=tuple(shares),
                shares=tuple(shares.values()),
                parts_in=measured["parts_in"],
            )


@dataclass(frozen=True)
class _Timed:
    """A contrast in one way of computing."""

    way: str
    ratio: TimeRatio
    host: str
    kept: float | None
    """memory, treatment over baseline"""
    peak: float | None


def _not_usable(study: ReadStudy, scale: str, arms: Sequence[str], measured: Mapping[str, Any] | None) -> str:
    """Why a measurement of time says nothing about the present arms; empty where it does."""
    if measured is None:
        return "The time of an update was not measured; `paribus bench` does it."
    known, code = measured["identity"]["arms"], measured["identity"]["code"]
    for arm in arms:
        declared = spec.declared(study.experiment, scale, arm)
        if code.get(arm) != study.code_digests.get((scale, arm)) or known.get(arm) != declared:
            return f"The time of {arm} was measured under another file or code; `paribus bench` measures it anew."
        if all(column["arm"] != arm for column in measured["columns"].values()):
            return f"The time of {arm} was not measured; `paribus bench` measures it."
    return "" if measured["host"] else "The host of the measurement of time is not on record, so it is not used."


def _ways(measured: Mapping[str, Any] | None, contrast: spec.Contrast) -> list[str]:
    """In which both arms were timed; one without a name where nothing was."""
    if measured is None:
        return [""]
    both = ({column_name(arm, way) for arm in contrast.arms} for way in measured["ways"])
    found = [way for way, names in zip(measured["ways"], both, strict=True) if names <= measured["columns"].keys()]
    return found or [""]


def _timed(measured: Mapping[str, Any] | None, contrast: spec.Contrast, way: str) -> _Timed | None:
    if measured is None or not way:
        return None
    treatment, baseline = column_name(contrast.treatment, way), column_name(contrast.baseline, way)

    def over(memory: Mapping[str, int]) -> float | None:
        return memory[treatment] / memory[baseline] if memory[treatment] and memory[baseline] else None

    ratio = time_ratio(measured, treatment, baseline)
    return _Timed(way, ratio, measured["host"], over(measured["bytes_for_backward"]), over(measured["peak_bytes"]))


def _row(
    verdict: Verdict, timed: _Timed | None, flop_ratio: float, found: IsoComparison | None, reason: str
) -> CostRow:
    end = None if found is None or found.refusal or found.break_even.refusal else found.break_even
    said = ["" if found is None else found.sentence, reason]
    machine: dict[str, Any] = {"host": "", "rounds": 0, "step_time_ratio": None, "step_time_ratio_interval": None}
    machine["same_arm_ratio"] = None
    if timed is not None:
        wall, cpu = timed.ratio.wall, timed.ratio.cpu
        notes = () if found is None else found.notes
        said += [wall.refusal, *(f"{note[0].upper()}{note[1:]}." for note in dict.fromkeys((*notes, *wall.notes)))]
        machine = {
            "host": timed.host,
            "rounds": wall.rounds,
            "step_time_ratio": None if wall.refusal else wall.ratio,
            "step_time_ratio_interval": wall.interval(),
            "step_time_reading": wall.reading.value,
            "same_arm_ratio": None if wall.again is None else wall.again.ratio,
            "same_arm_interval": None if wall.again is None else wall.again.interval(),
            "cpu_time_ratio": None if cpu.refusal else cpu.ratio,
            "cpu_time_ratio_interval": cpu.interval(),
            "cpu_same_arm_interval": None if cpu.again is None else cpu.again.interval(),
            "backward_memory_ratio": timed.kept,
            "peak_memory_ratio": timed.peak,
            "way": timed.way,
        }
    return CostRow(
        contrast=verdict.name,
        scale=verdict.scale,
        flop_ratio=flop_ratio,
        **_views("iso_step", None if found is None else found.steps),
        **_views("iso_flop", None if found is None else found.flops),
        **_views("iso_time", None if found is None else found.time),
        break_even_ratio=None if end is None else end.multiplier,
        break_even_interval=None if end is None else end.interval,
        sentence=" ".join(part for part in said if part),
        **machine,
    )


def _views(name: str, view: IsoView | None) -> dict[str, Any]:
    return {name: None if view is None else view.mean, f"{name}_interval": None if view is None else view.interval}
