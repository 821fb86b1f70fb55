"""What a contrast costs: interleaved step times, FLOPs, and what is left of the gain at equal FLOPs and equal time."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from paribus.experiment import spec
from paribus.experiment.code import code_digest
from paribus.reading import ReadStudy
from paribus.report.content import CostRow
from paribus.reporting.due import due, losses_by_budget
from paribus.stats.iso import IsoComparison, IsoView, iso_comparison
from paribus.stats.rule import Verdict
from paribus.stats.step_ratio import StepRatio, step_ratio


def costs(study: ReadStudy, verdicts: tuple[Verdict, ...]) -> Iterator[CostRow]:
    """Every simple contrast that is due; an interaction has no cost of its own."""
    flops = {(a["scale"], a["arm"]): a["training_flops_per_token"] for a in study.plan["arms"]}
    for contrast, verdict in due(study, verdicts):
        if len(contrast.arms) > 2:
            continue
        scale = study.experiment.contrast_scale(contrast)
        measured = study.folder.cost(scale)
        reason = _not_usable(study, scale, contrast, measured)
        timed = None if measured is None or reason else _ratio(measured, contrast)
        flop_ratio = flops[scale, contrast.treatment] / flops[scale, contrast.baseline]
        tokens, seeds, tables = losses_by_budget(study, contrast, verdict)
        treatment, baseline = tables[contrast.treatment], tables[contrast.baseline]
        found = iso_comparison(
            tokens,
            baseline,
            treatment,
            flop_ratio=flop_ratio,
            step_time=timed,
            at_tokens=tokens[-1],
            seeds=seeds,
            unit="nats per token",
            dependent=study.experiment.scales[scale].budget_cells == "branches",
        )
        yield _row(verdict, measured, timed, flop_ratio, found, reason, contrast)


def _not_usable(study: ReadStudy, scale: str, contrast: spec.Contrast, measured: Mapping[str, Any] | None) -> str:
    """Why a measurement of time says nothing about the present arms; empty where it does."""
    if measured is None:
        return "The time of an update was not measured; `paribus cost` does it."
    codes = {(a["scale"], a["arm"]): code_digest(a["code_roots"]) for a in study.plan["arms"]}
    identity = measured["identity"]
    for arm in contrast.arms:
        same_code = identity["code"].get(arm) == codes.get((scale, arm))
        if not same_code or identity["arms"].get(arm) != spec.declared(study.experiment, scale, arm):
            return f"The time of {arm} was measured under another file or code; `paribus cost` measures it anew."
    return ""


def _ratio(measured: Mapping[str, Any], contrast: spec.Contrast) -> StepRatio:
    names = list(measured["seconds"])
    seconds = np.array([measured["seconds"][name] for name in names]).T
    twice = measured["again"]
    again = names.index(twice["column"]) if twice["arm"] == contrast.baseline else None
    hosts = [measured["host"]] * len(seconds)
    return step_ratio(
        seconds, names.index(contrast.baseline), names.index(contrast.treatment), again=again, hosts=hosts
    )


def _row(
    verdict: Verdict,
    measured: Mapping[str, Any] | None,
    timed: StepRatio | None,
    flop_ratio: float,
    found: IsoComparison,
    reason: str,
    contrast: spec.Contrast,
) -> CostRow:
    usable = timed is not None and not timed.refusal
    again = timed.again_log_ratio if timed is not None else None
    end = found.break_even
    said = [found.sentence, reason, timed.refusal if timed is not None else ""]
    memory = (measured or {}).get("bytes_for_backward", {})
    return CostRow(
        contrast=verdict.name,
        scale=verdict.scale,
        host=(measured or {}).get("host", ""),
        rounds=timed.rounds if timed is not None else 0,
        step_time_ratio=timed.ratio if timed is not None and usable else None,
        step_time_ratio_interval=timed.interval() if timed is not None else None,
        same_arm_ratio=None if again is None else float(np.exp(again)),
        flop_ratio=flop_ratio,
        **_views("iso_step", found.steps),
        **_views("iso_flop", found.flops),
        **_views("iso_time", found.time),
        break_even_ratio=None if end.refusal or found.refusal else end.multiplier,
        break_even_interval=None if end.refusal or found.refusal else end.interval,
        sentence=" ".join(part for part in said if part),
        peak_memory_ratio=_over(memory, contrast) if not reason else None,
    )


def _views(name: str, view: IsoView) -> dict[str, Any]:
    return {name: view.mean, f"{name}_interval": view.interval}


def _over(memory: Mapping[str, int], contrast: spec.Contrast) -> float | None:
    treatment, baseline = memory.get(contrast.treatment), memory.get(contrast.baseline)
    return treatment / baseline if treatment and baseline else None
