"""Whether a task could tell the arms of a contrast apart at all (rules of evidence, section 8).

A contrast whose arms all sit on one plateau is no tie: nothing was measured. It gets a word that says so, whatever its
interval.
"""

from collections.abc import Sequence

from paribus.data.tasks.contract import ALL
from paribus.experiment.metrics import LOG2_UPDATES, parse
from paribus.experiment.spec import Contrast
from paribus.reading.study import ReadStudy
from paribus.reading.task_arms import END, FIRST, PairedArms
from paribus.stats.plateaus import Informative, informative, informative_area
from paribus.stats.power import count_of

FEWEST_SEEDS = 3
"""below them an arm has no band"""


def none_acquired(budget_updates: int) -> str:
    """What stands in the place of a difference in updates to the threshold that nobody reached."""
    return f"no cell acquired it within {count_of(budget_updates, 'update')}"


def why_not_informative(study: ReadStudy, contrast: Contrast, seeds: Sequence[int]) -> str:
    """The plateau that both arms of a task's contrast sit on; empty where they tell something, and for text.

    Updates to the threshold tell nothing where no cell reached it: every one stands at the budget.
    """
    if study.experiment.base.task is None or len(contrast.arms) > 2 or len(seeds) < FEWEST_SEEDS:
        return ""
    metric = parse(contrast.metric)
    arms = PairedArms(study, contrast, seeds)
    if metric.quantity == LOG2_UPDATES and not any(arms.any_acquired(name) for name in metric.slices or (ALL,)):
        return none_acquired(arms.budget)
    told = informative_about(arms, metric.slices or (ALL,), whole_curve=metric.of_training)
    return "" if told.informative else told.reason


def informative_about(arms: PairedArms, slices: Sequence[str], *, whole_curve: bool = True) -> Informative:
    """Whether the areas could differ at all, on at least one of `slices` (`paribus.stats.plateaus.informative_area`).

    What is measured at the end (`whole_curve` false) is told apart by where the arms end alone.
    """
    found = {name: told for name in slices if (told := _of_slice(arms, name, whole_curve)) is not None}
    if not found:
        return Informative(True, "no cell says where the arms sit")
    reasons = "; ".join(told.reason if len(slices) == 1 else f"{name}: {told.reason}" for name, told in found.items())
    return Informative(any(told.informative for told in found.values()), reasons)


def _of_slice(arms: PairedArms, name: str, whole_curve: bool) -> Informative | None:
    early, end = arms.plateaus(name, FIRST), arms.plateaus(name, END)
    if early is None or end is None:
        return None
    return informative_area(early, end, acquired=arms.any_acquired(name)) if whole_curve else informative(end)
