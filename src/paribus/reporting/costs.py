"""What a contrast costs: interleaved step times, FLOPs, and what is left of the gain at equal FLOPs and equal time."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from paribus.experiment import spec
from paribus.reading.evidence import unit_of
from paribus.reading.study import ReadStudy
from paribus.report.content import CostRow
from paribus.reporting.due import DIVERGED, SILENT, confidence_of, losses_by_budget, nll_metric, once
from paribus.stats.iso import IsoComparison, IsoView, iso_comparison
from paribus.stats.rule import Verdict, Word
from paribus.stats.step_ratio import StepRatio, step_ratio


def costs(study: ReadStudy, verdicts: tuple[Verdict, ...]) -> Iterator[CostRow]:
    """Every pair of arms; what is left of a gain only where the contrast is due. An interaction has no cost."""
    flops = {(a["scale"], a["arm"]): a["training_flops_per_token"] for a in study.plan["arms"]}
    every = ((study.experiment.contrasts[verdict.name], verdict) for verdict in verdicts)
    for contrast, verdict in once(study, every):
        if len(contrast.arms) > 2 or not {(verdict.scale, arm) for arm in contrast.arms} <= flops.keys():
            continue
        scale = study.experiment.contrast_scale(contrast)
        measured, reason = study.cost(scale)
        reason = reason or _not_usable(study, scale, contrast, measured)
        timed = None if measured is None or reason else _ratio(measured, contrast)
        flop_ratio = flops[scale, contrast.treatment] / flops[scale, contrast.baseline]
        if verdict.word in SILENT or verdict.word is Word.DIVERGENCE:
            why = f"Nothing is left to compare: {DIVERGED}." if verdict.word is Word.DIVERGENCE else ""
            yield _row(verdict, measured, timed, flop_ratio, None, " ".join(filter(None, (why, reason))), contrast)
            continue
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
            unit=unit_of(study.experiment, contrast.model_copy(update={"metric": nll_metric(contrast)})),
            dependent=study.experiment.scales[scale].budget_cells == "branches",
            confidence=confidence_of(verdict),
        )
        yield _row(verdict, measured, timed, flop_ratio, found, reason, contrast)


def _not_usable(study: ReadStudy, scale: str, contrast: spec.Contrast, measured: Mapping[str, Any] | None) -> str:
    """Why a measurement of time says nothing about the present arms; empty where it does."""
    if measured is None:
        return "The time of an update was not measured; `paribus bench` does it."
    try:
        arms, code = measured["identity"]["arms"], measured["identity"]["code"]
        for arm in contrast.arms:
            declared = spec.declared(study.experiment, scale, arm)
            if code.get(arm) != study.code_digests.get((scale, arm)) or arms.get(arm) != declared:
                return f"The time of {arm} was measured under another file or code; `paribus bench` measures it anew."
        rounds = {len(measured["seconds"][arm]) for arm in (*contrast.arms, measured["again"]["column"])}
        whole = len(rounds) == 1 and {*contrast.arms} <= measured["bytes_for_backward"].keys() and measured["host"]
    except (KeyError, TypeError, AttributeError):
        whole = False
    return "" if whole else "The measurement of time is damaged and not used; `paribus bench` measures it anew."


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
    found: IsoComparison | None,
    reason: str,
    contrast: spec.Contrast,
) -> CostRow:
    usable = timed is not None and not timed.refusal
    again = timed.again_log_ratio if timed is not None else None
    end = None if found is None or found.refusal or found.break_even.refusal else found.break_even
    said = ["" if found is None else found.sentence, reason]
    if timed is not None:
        notes = () if found is None else found.notes
        said += [timed.refusal, *(f"{note[0].upper()}{note[1:]}." for note in dict.fromkeys((*notes, *timed.notes)))]
    seen = measured if measured is not None and not reason else {}
    return CostRow(
        contrast=verdict.name,
        scale=verdict.scale,
        host=seen.get("host", ""),
        rounds=timed.rounds if timed is not None else 0,
        step_time_ratio=timed.ratio if timed is not None and usable else None,
        step_time_ratio_interval=timed.interval() if timed is not None else None,
        same_arm_ratio=None if again is None else float(np.exp(again)),
        flop_ratio=flop_ratio,
        **_views("iso_step", None if found is None else found.steps),
        **_views("iso_flop", None if found is None else found.flops),
        **_views("iso_time", None if found is None else found.time),
        break_even_ratio=None if end is None else end.multiplier,
        break_even_interval=None if end is None else end.interval,
        sentence=" ".join(part for part in said if part),
        backward_memory_ratio=_over(seen.get("bytes_for_backward", {}), contrast),
    )


def _views(name: str, view: IsoView | None) -> dict[str, Any]:
    return {name: None if view is None else view.mean, f"{name}_interval": None if view is None else view.interval}


def _over(memory: Mapping[str, int], contrast: spec.Contrast) -> float | None:
    treatment, baseline = memory.get(contrast.treatment), memory.get(contrast.baseline)
    return treatment / baseline if treatment and baseline else None
