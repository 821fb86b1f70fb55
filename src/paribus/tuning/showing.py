"""What the report says about tuning: every trial, how each arm was tuned, and its arms side by side. Loads no torch.

Three comparisons stand beside each other (rules of evidence, section 5): tuned against tuned, both at the same value of
the baseline's knob, and the child at its parent's optimum. They are on tuning seeds and `score_of` the study, described
and never decided.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from paribus.experiment import tuning as search
from paribus.experiment.spec import Experiment
from paribus.report.content import TrialRow, TuningSummary
from paribus.report.numbers import fixed
from paribus.stats.rounding import declared as written
from paribus.tuning.reading import ReadTuning, Trial, means, scored_on

TUNED = "tuned against tuned"
SAME_VALUE = "same rate"
AT_PARENTS_OPTIMUM = "child at the parent's optimum"


@dataclass(frozen=True)
class TunedDifference:
    """Treatment minus baseline at values that were tried, of `score_of` the study; no word follows."""

    contrast: str
    scale: str
    treatment: str
    baseline: str
    kind: str
    """TUNED, SAME_VALUE (the declared value of the baseline's knob) or AT_PARENTS_OPTIMUM (the chosen one)"""
    knobs: tuple[str, str]
    """fields that the treatment and the baseline are searched along"""
    treatment_value: float | None
    """of the treatment's knob; None where the treatment was not tried as this comparison needs it"""
    baseline_value: float
    """of the baseline's knob"""
    differences: tuple[float | None, ...]
    """one a tuning seed; None where a cell of it diverged"""
    scored_on: str
    unit: str

    @property
    def mean(self) -> float | None:
        """Over tuning seeds; None where one of them has no difference."""
        finite = [difference for difference in self.differences if difference is not None]
        return math.fsum(finite) / len(finite) if finite and len(finite) == len(self.differences) else None


def trial_rows(tuning: ReadTuning) -> tuple[TrialRow, ...]:
    """Every trial of every arm, by value."""
    return tuple(
        TrialRow(
            tuning.scale,
            arm,
            tuning.knobs[arm],
            trial.value,
            trial.scores,
            trial is tuning.chosen.get(arm),
            *scored_on(tuning.experiment),
        )
        for arm, tried in tuning.trials.items()
        for _, trial in sorted(tried.items())
    )


def tuning_summaries(tuning: ReadTuning) -> tuple[TuningSummary, ...]:
    """How each arm was tuned, in sentences; a treatment's also say what it differs by from its baselines' trials."""
    told: dict[str, list[str]] = {}
    for kinds, difference in _distinct(side_by_side(tuning)):
        told.setdefault(difference.treatment, []).append(_told(kinds, difference))
    found = []
    for arm, tried in tuning.trials.items():
        chosen = tuning.chosen.get(arm)
        found.append(
            TuningSummary(
                scale=tuning.scale,
                arm=arm,
                knob=tuning.knobs[arm],
                trials=len(tried),
                chosen=None if chosen is None else chosen.value,
                interior=chosen is not None and search.is_interior(means(tried)),
                sentence=" ".join([_how(tuning, arm), *told.get(arm, [])]),
            )
        )
    return tuple(found)


def _how(tuning: ReadTuning, arm: str) -> str:
    tried = tuning.trials[arm]
    if not tuning.finished:
        return f"{len(tried)} values were tried so far; the search is not over."
    if search.best_step(means(tried)) is None:
        return f"Each of the {len(tried)} values diverged at a tuning seed; the declared one is kept, untuned."
    if search.is_interior(means(tried)):
        return f"The best of {len(tried)} values, with a tried neighbour on both sides that is no better."
    end = "lowest" if tuning.chosen[arm].step == min(tried) else "highest"
    return f"The best of {len(tried)} values is the {end} one; the search gave up there, a better one may lie beyond."


def side_by_side(tuning: ReadTuning) -> tuple[TunedDifference, ...]:
    """Three comparisons of each treatment with its baseline, for every contrast; empty before the search is over.

    A treatment that is searched along another field than its baseline is at its own chosen value in all of them.
    """
    if not tuning.finished:
        return ()
    found = []
    of, unit = scored_on(tuning.experiment)
    for name, contrast in tuning.experiment.contrasts.items():
        if contrast.arms[0] not in tuning.trials:  # nothing was to be tuned
            continue
        for treatment, baseline in zip(contrast.arms[::2], contrast.arms[1::2], strict=True):
            declared, best = tuning.trials[baseline][0], tuning.chosen[baseline]
            for kind, child, parent in (
                (TUNED, tuning.chosen[treatment], best),
                (SAME_VALUE, _trial_with(tuning, treatment, baseline, declared.value), declared),
                (AT_PARENTS_OPTIMUM, _trial_with(tuning, treatment, baseline, best.value), best),
            ):
                found.append(
                    TunedDifference(
                        contrast=name,
                        scale=tuning.scale,
                        treatment=treatment,
                        baseline=baseline,
                        kind=kind,
                        knobs=(tuning.knobs[treatment], tuning.knobs[baseline]),
                        treatment_value=None if child is None else child.value,
                        baseline_value=parent.value,
                        differences=() if child is None else _differences(child, parent),
                        scored_on=of,
                        unit=unit,
                    )
                )
    return tuple(found)


def _differences(child: Trial, parent: Trial) -> tuple[float | None, ...]:
    pairs = zip(child.scores, parent.scores, strict=True)
    return tuple(
        None if treatment is None or baseline is None else treatment - baseline for treatment, baseline in pairs
    )


def _trial_with(tuning: ReadTuning, treatment: str, baseline: str, value: float) -> Trial | None:
    """The treatment's trial in which the baseline's knob has this value; None where there is none."""
    knob = tuning.knobs[baseline]
    if tuning.knobs[treatment] == knob:
        return next((trial for trial in tuning.trials[treatment].values() if _equal(trial.value, value)), None)
    recipe = tuning.experiment.arm(treatment).optimiser.model_dump()
    return tuning.chosen[treatment] if _equal(recipe[knob.removeprefix(f"{search.RECIPE}.")], value) else None


def _equal(one: float, other: float) -> bool:
    return f"{one:.6g}" == f"{other:.6g}"  # tried values are rounded to six digits


def tuning_caveats(tuning: ReadTuning) -> tuple[str, ...]:
    """What a verdict on the tuned arms must carry: arms whose best value is at the edge, or that have none."""
    found = []
    for arm, chosen in tuning.chosen.items():
        scores, knob = means(tuning.trials[arm]), tuning.knobs[arm]
        if search.best_step(scores) is None:
            found.append(f"Every value of {knob} that was tried for {arm} diverged, so that the arm is untuned.")
        elif not search.is_interior(scores):
            found.append(
                f"The best value of {knob} for {arm}, {written(chosen.value)}, lies at the edge of what was tried: "
                "a better one may lie beyond, and the arm is tuned less well than one with an interior optimum."
            )
    return (*found, *different_knobs(tuning.experiment))


def different_knobs(experiment: Experiment) -> tuple[str, ...]:
    """Pairs of arms that are searched along different fields: each has the other's field as the file declares it."""
    knobs = {} if experiment.tuning is None else experiment.tuning.knobs
    pairs = {
        (treatment, baseline)
        for contrast in experiment.contrasts.values()
        for treatment, baseline in zip(contrast.arms[::2], contrast.arms[1::2], strict=True)
        if {treatment, baseline} <= knobs.keys() and knobs[treatment] != knobs[baseline]
    }
    return tuple(
        f"{treatment} and {baseline} are searched along different fields ({knobs[treatment]}; {knobs[baseline]}): "
        f"{treatment} keeps the declared value of what {baseline} was tuned in, so a difference may be tuning."
        for treatment, baseline in sorted(pairs)
    )


def _distinct(differences: Iterable[TunedDifference]) -> Iterator[tuple[list[str], TunedDifference]]:
    """Each comparison of two trials once, with everything that it is at the same time."""
    found: dict[tuple[object, ...], tuple[list[str], TunedDifference]] = {}
    for row in differences:
        trials = (row.treatment, row.baseline, row.treatment_value, row.baseline_value)
        kinds, _ = found.setdefault(trials, ([], row))
        if row.kind not in kinds:  # several contrasts may compare the same arms
            kinds.append(row.kind)
    yield from found.values()


def _told(kinds: Sequence[str], difference: TunedDifference) -> str:
    kind = ", and ".join(kinds)
    what = f"{kind[0].upper()}{kind[1:]}: {difference.treatment} minus {difference.baseline}"
    own, other = (knob.rpartition(".")[2] for knob in difference.knobs)
    named = (f"{own} ", f"{other} ") if own != other else ("", "")  # a number of another field is not the same value
    if difference.treatment_value is None:
        return f"{what} at {named[1]}{written(difference.baseline_value)} was not tried."
    what += f" at {named[0]}{written(difference.treatment_value)} and {named[1]}{written(difference.baseline_value)}"
    if difference.mean is None:
        return f"{what} lost a cell, which diverged."
    seeds = len(difference.differences)
    of = f"{difference.scored_on}, {seeds} tuning seed{'s' if seeds > 1 else ''}"
    return f"{what}, {fixed(difference.mean, 4, signed=True)} {difference.unit} ({of})."
