"""Whether a task could tell the arms of a contrast apart at all (rules of evidence, section 8).

A contrast whose arms all sit on one plateau is no tie: nothing was measured. It gets a word that says so, whatever its
interval.
"""

from collections.abc import Sequence

from paribus.data.tasks.contract import ALL
from paribus.experiment.metrics import parse
from paribus.experiment.spec import Contrast
from paribus.reading.study import ReadStudy
from paribus.reading.task_arms import END, FIRST, PairedArms
from paribus.stats.plateaus import Informative, informative

FEWEST_SEEDS = 3
"""below them an arm has no band"""


def why_not_informative(study: ReadStudy, contrast: Contrast, seeds: Sequence[int]) -> str:
    """The plateau that both arms of a task's contrast sit on; empty where they tell something, and for text."""
    if study.experiment.base.task is None or len(contrast.arms) > 2 or len(seeds) < FEWEST_SEEDS:
        return ""
    metric = parse(contrast.metric)
    arms = PairedArms(study, contrast, seeds)
    told = informative_about(arms, metric.slices or (ALL,), whole_curve=metric.of_training)
    return "" if told.informative else told.reason


def informative_about(arms: PairedArms, slices: Sequence[str], *, whole_curve: bool = True) -> Informative:
    """Whether the areas could differ at all: unless both arms sit on one plateau from the first milestone to the end.

    An area compares when a plateau is left. Two arms that end on the floor, and were not there a third of the way in,
    are informative about that; not so what is measured at the end (`whole_curve` false).
    """
    found = [told for name in slices if (told := _of_slice(arms, name, whole_curve)) is not None]
    if not found:
        return Informative(True, "no cell says where the arms sit")
    reasons = "; ".join(
        told.reason if len(slices) == 1 else f"{name}: {told.reason}" for name, told in zip(slices, found, strict=False)
    )
    return Informative(any(told.informative for told in found), reasons)


def _of_slice(arms: PairedArms, name: str, whole_curve: bool) -> Informative | None:
    early, end = arms.plateaus(name, FIRST), arms.plateaus(name, END)
    if early is None or end is None:
        return None
    at_end = informative(end)
    if at_end.informative or not whole_curve:
        return at_end
    throughout = set.intersection(*(set(one.sits_on) for one in (*early.values(), *end.values())))
    if throughout:
        return Informative(False, f"{at_end.reason} from the first milestone to the end")
    return Informative(True, f"{at_end.reason} at the end and not at the first milestone: the area compares how soon")
