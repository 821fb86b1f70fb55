"""Whether a task could tell the arms of a contrast apart at all (rules of evidence, section 8).

A contrast whose arms all sit on one plateau is no tie: nothing was measured. It gets a word that says so. It never
overrules a difference that was found: where the paired interval excludes 0 something was measured, whatever the
plateaus.
"""

import math
from collections.abc import Sequence

from paribus.data.tasks.contract import ALL
from paribus.experiment.metrics import AREA, LOG2_UPDATES, NLL, parse
from paribus.experiment.spec import Contrast
from paribus.reading.study import ReadStudy
from paribus.reading.task_arms import CONFIDENCE, PairedArms, t_interval
from paribus.stats.paired import PairedDifferences
from paribus.stats.plateaus import Informative, informative, informative_area, measured
from paribus.stats.power import count_of

FEWEST_SEEDS = 3
"""below them an arm has no band"""


def none_acquired(budget_updates: int) -> str:
    """What stands in the place of a difference in updates to the threshold that nobody reached."""
    return f"no cell acquired it within {count_of(budget_updates, 'update')}"


def why_not_informative(study: ReadStudy, contrast: Contrast, pairs: PairedDifferences) -> str:
    """Why a task's contrast, with these differences of its metric, measured nothing; empty otherwise, and for text."""
    if study.experiment.base.task is None or len(pairs.seeds) < FEWEST_SEEDS:
        return ""
    metric = parse(contrast.metric)
    arms = PairedArms(study, contrast, pairs.seeds)
    told = informative_about(
        arms,
        metric.slices or (ALL,),
        pairs.differences,
        quantity=metric.quantity,
        smallest_effect=contrast.smallest_effect,
    )
    return "" if told.informative else told.reason


def informative_about(
    arms: PairedArms, slices: Sequence[str], differences: Sequence[float], *, quantity: str, smallest_effect: float
) -> Informative:
    """Whether the arms could differ at all in a quantity, on at least one of `slices`, and why.

    `quantity` decides what counts: of an area the whole curve, of a held-out loss the end, of updates to the threshold
    whether they were ever told apart. `differences` are the contrast's, one a seed; `smallest_effect` is in their unit.
    """
    found = [_of_slice(arms, name, quantity, smallest_effect) for name in slices]
    if any(told is None for told in found):
        return Informative(True, "no cell says where the arms sit")
    known = {name: told for name, told in zip(slices, found, strict=True) if told is not None}
    reasons = "; ".join(told.reason if len(slices) == 1 else f"{name}: {told.reason}" for name, told in known.items())
    one = Informative(
        any(told.informative for told in known.values()), reasons, any(told.ratio_bounded for told in known.values())
    )
    return measured(one, t_interval(differences, CONFIDENCE))


def margin_of(contrast: Contrast) -> float:
    """The contrast's smallest effect where it is a loss in nats per target; of another unit it bounds no loss."""
    return contrast.smallest_effect if parse(contrast.metric).quantity in (AREA, NLL) else math.inf


def _of_slice(arms: PairedArms, name: str, quantity: str, smallest_effect: float) -> Informative | None:
    if quantity == LOG2_UPDATES:
        return _of_updates(arms, name)
    end = arms.plateaus(name, smallest_effect)
    if end is None:
        return None
    # A ratio of updates is one of two arms.
    acquired = () if arms.interaction else arms.acquired_by(name)
    if quantity != AREA:
        return informative(end, acquired=acquired)
    whole = arms.area_plateaus(name, smallest_effect)
    return None if whole is None else informative_area(whole, end, acquired=acquired)


def _of_updates(arms: PairedArms, name: str) -> Informative:
    """All cells at the budget, or all at the first window, were never told apart."""
    if not arms.any_acquired(name):
        return Informative(False, none_acquired(arms.budget))
    if arms.all_in_first_window(name):
        return Informative(False, "every cell acquired it in the first window of its curve")
    return Informative(True, "the cells differ in when they acquired it, or in whether they did")
