"""An interaction measured in nats and in log compute multiplier (rules of evidence, section 7).

A gain that adds up on one scale need not on another: the loss flattens with the budget, so the same gain in nats is
worth more compute where the baseline is lower. An interaction is concluded only where both scales agree in sign.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from paribus.stats.budgets import envelope
from paribus.stats.curves import FEWEST_SEEDS, Interval, checked, seed_interval
from paribus.stats.forms import Array
from paribus.stats.multiplier import baseline_and_gap, clearly_falls
from paribus.stats.power import count_of
from paribus.stats.rounding import tokens_text


@dataclass(frozen=True, eq=False)
class InteractionMultiplier:
    """An interaction D_I = (m11 - m01) - (m10 - m00), in nats and in log compute multiplier, on the same seeds.

    The two scales have opposite signs where they agree: a loss that falls further is a gain, and so is a larger m.
    """

    at_tokens: float
    seeds: tuple[int, ...]
    differences: Array
    """D_I [seed], in the unit of the loss"""
    confidence: float
    by_form: tuple[tuple[str, float], ...] = ()
    """(form, mean over seeds of ln m(11 over 01) - ln m(10 over 00)); above 0: the gain is larger in company"""
    log_interval: Interval | None = None
    """Envelope over forms of the t interval over seeds; None where some curve does not clearly fall"""
    signs_agree: bool | None = None
    """Whether every form's sign says the same as D_I; False: no interaction may be concluded. None: not known."""
    refusal: str = ""
    notes: tuple[str, ...] = ()
    sentence: str = ""


def multiplier_interaction(
    budgets_tokens: ArrayLike,
    both: ArrayLike,
    only_second: ArrayLike,
    only_first: ArrayLike,
    neither: ArrayLike,
    *,
    at_tokens: float | None = None,
    seeds: Sequence[int] | None = None,
    dependent: bool = False,
    confidence: float = 0.95,
) -> InteractionMultiplier:
    """ln m of `both` over `only_second` minus ln m of `only_first` over `neither`, by seed (rules of evidence, 7).

    Every table holds losses [seed budget]; m11, m01, m10 and m00 in this order. `only_second` and `neither` are the
    baselines and need three budgets; the others are read at `at_tokens` alone. A seed that lacks a cell is left out.
    """
    budgets, tables, names = checked(budgets_tokens, (both, only_second, only_first, neither), seeds)
    with_second = baseline_and_gap(budgets, tables[1], tables[0], at_tokens, names, dependent)
    without = baseline_and_gap(budgets, tables[3], tables[2], at_tokens, names, dependent)
    kept = tuple(name for name in with_second.curves.seeds if name in without.curves.seeds)
    rows = [[pair.curves.seeds.index(name) for name in kept] for pair in (with_second, without)]
    differences = with_second.gaps[rows[0]] - without.gaps[rows[1]]
    notes = tuple(dict.fromkeys((*with_second.notes, *without.notes)))
    found = InteractionMultiplier(with_second.at_tokens, kept, differences, confidence, notes=notes)
    refusal = with_second.refusal or without.refusal
    if not refusal and len(kept) < FEWEST_SEEDS:
        refusal = f"{count_of(len(kept), 'seed')} with all four cells; at least {FEWEST_SEEDS} are needed"
    if refusal:
        return replace(found, refusal=refusal, sentence=f"No interaction in compute multiplier: {refusal}.")
    by_form, intervals = [], []
    for fit, other in zip(with_second.curves.fits, without.curves.fits, strict=True):
        if fit.unusable or other.unusable:
            continue
        logs = with_second.log_multipliers(fit)[rows[0]] - without.log_multipliers(other)[rows[1]]
        falls = all(clearly_falls(one.slope_at(with_second.at_tokens)) for one in (fit, other))
        intervals.append(seed_interval(logs, confidence) if falls and np.isfinite(logs).all() else None)
        by_form.append((fit.form.name, float(logs.mean())))
    if not by_form:
        refusal = "no form describes both baselines over budgets"
        return replace(found, refusal=refusal, sentence=f"No interaction in compute multiplier: {refusal}.")
    means = [mean for _, mean in by_form]
    agree = None
    if np.isfinite(means).all() and None not in intervals:
        agree = all(mean * float(differences.mean()) < 0 for mean in means)
    found = replace(found, by_form=tuple(by_form), log_interval=envelope(intervals), signs_agree=agree)
    return replace(found, sentence=_sentence(found))


def _sentence(found: InteractionMultiplier) -> str:
    head = f"At {tokens_text(found.at_tokens)} tokens the interaction is {found.differences.mean():+.3g} in loss"
    if found.signs_agree is None or found.log_interval is None:
        return f"{head}; in log compute multiplier it is not measured: a baseline's curve does not clearly fall."
    low, high = found.log_interval
    logs = f"{low:+.3g} to {high:+.3g} in log compute multiplier ({100 * found.confidence:.4g} % envelope)"
    ending = (
        "the signs agree"
        if found.signs_agree
        else "the signs do not agree, so no interaction is concluded: it depends on the scale it is measured in"
    )
    return f"{head} and {logs}; {ending}."
