"""Which values of a knob are tried next, and the study that tries them. Pure; torch-free.

The search of each arm starts at its declared value and goes in factors, `value = declared * factor^step`, until the
best value has a tried neighbour on both sides that is no better (rules of evidence, section 5). It is a lockstep: the
first round tries steps -1, 0 and 1 of every arm, each further round one more value of every arm, so that the arms have
equal numbers of trials at any time. The further value lies beyond that end of what was tried which scored better: the
only way on for an arm whose best is at an end. An arm whose search is over takes part in the rounds that others need.
Its additional values widen its range instead of refining it, so that every optimum is known to the same factor:
a finer grid for the arms that were declared close to their optimum would be unequal tuning by another name.

The trials are arms of a study of their own. Its name is part of every random stream, so that its seeds are never the
verdict's, whatever their numbers.
"""

import math
from collections.abc import Collection, Mapping
from typing import Any

from pydantic import ValidationError

from paribus.errors import ExperimentFileError, nearest
from paribus.experiment.spec import (
    TUNING,
    Experiment,
    Noise,
    Robustness,
    Seeds,
    Tuning,
    barely_scored,
    merged,
    named_in_mechanisms,
)
from paribus.optim.config import OptimiserConfig

FIRST_ROUND = (-1, 0, 1)
TRIED_AT = ".at-"
"""between an arm's name and the value that a trial gives its knob; no arm of a tuned file may contain it"""
LONGEST_NAME = 44
"""of a tuned arm, so that a trial's name fits"""
RECIPE = "optimiser"
"""the table that knobs are fields of: how an arm is trained, not what it is"""
Steps = Mapping[str, Collection[int]]
"""steps from the declared value, by arm"""
Scores = Mapping[int, float]
"""of one arm, by step: lower is better, infinite where a tuning seed diverged"""


def value_at(declared: float, factor: float, step: int) -> float:
    """declared * factor^step, to six digits; the declared value itself at step 0."""
    return declared if step == 0 else float(f"{declared * factor**step:.6g}")


def best_step(scores: Scores) -> int | None:
    """The step with the lowest score, of equal ones the closest to the declared value; None where none is finite."""
    finite = [step for step, score in scores.items() if math.isfinite(score)]
    return min(finite, key=lambda step: (scores[step], abs(step), step), default=None)


def is_interior(scores: Scores) -> bool:
    """Whether both neighbours of the best value were tried."""
    best = best_step(scores)
    return best is not None and min(scores) < best < max(scores)


def next_steps(max_trials: int, scores: Mapping[str, Scores]) -> dict[str, tuple[int, ...]]:
    """What every arm tries next; empty once each has an interior best value, or `max_trials` values.

    `scores` holds every arm, with consecutive steps; an arm without any, like all others then, is at the beginning.
    """
    if not all(scores.values()):
        return dict.fromkeys(scores, FIRST_ROUND)
    if all(is_interior(tried) or len(tried) >= max_trials for tried in scores.values()):
        return {}
    return {arm: (_beyond_the_better_end(tried),) for arm, tried in scores.items()}


def _beyond_the_better_end(tried: Scores) -> int:
    # Where both ends diverged, the lower one: rates that are too high are the usual cause.
    low, high = min(tried), max(tried)
    return high + 1 if tried[high] < tried[low] else low - 1


def trial_arm(arm: str, declared: float, factor: float, step: int) -> str:
    """Name of a trial among the arms of the tuning study; at the declared value it is the arm itself."""
    return arm if step == 0 else f"{arm}{TRIED_AT}{value_at(declared, factor, step):.6g}".replace("+", "")


def declared_values(experiment: Experiment) -> dict[str, float]:
    """The knob's value of each tuned arm as the file declares it.

    ExperimentFileError where the tuning is not one that can be done, or not equal for the arms of the contrasts.
    """
    tuning = experiment.tuning
    if tuning is None:
        return {}
    _check_place(experiment)
    for arm in tuning.knobs:
        if arm not in experiment.arms:
            raise ExperimentFileError(
                f"tuning.knobs.{arm}: no such arm",
                expected=", ".join(experiment.arms),
                received=f"'{arm}'",
                remedy=nearest(arm, experiment.arms),
            )
    for name, contrast in experiment.contrasts.items():
        for arm in contrast.arms:
            if arm not in tuning.knobs:
                raise ExperimentFileError(
                    f"tuning.knobs: no field for arm '{arm}', which contrasts.{name} compares",
                    expected="equal tuning of the arms: a field for each of " + ", ".join(contrast.arms),
                    received=", ".join(tuning.knobs),
                    remedy=f'add {arm} = "optimiser...", the field that it depends on most',
                )
    return {arm: _declared_value(experiment, tuning, arm) for arm in tuning.knobs}


def _check_place(experiment: Experiment) -> None:
    if len(experiment.scales) > 1:
        raise ExperimentFileError(
            "tuning: an optimum belongs to one scale, and this study has several",
            expected="one scale",
            received=", ".join(experiment.scales),
            remedy=f"restrict the file to one, such as --scale {next(iter(experiment.scales))}",
        )
    for arm in experiment.arms:
        if TRIED_AT in arm:
            raise ExperimentFileError(
                f"arms.{arm}: '{TRIED_AT}' joins a tuned arm to a value that was tried",
                expected=f"a name without '{TRIED_AT}' in a file that tunes",
                received=f"'{arm}'",
                remedy="rename the arm",
            )


def _declared_value(experiment: Experiment, tuning: Tuning, arm: str) -> float:
    if len(arm) > LONGEST_NAME:
        raise ExperimentFileError(
            f"arms.{arm}: the name of a tuned arm is too long",
            expected=f"at most {LONGEST_NAME} characters, so that the tried values fit behind it",
            received=f"{len(arm)} characters",
            remedy="rename the arm",
        )
    recipe, path = experiment.arm(arm).optimiser, tuning.knobs[arm]
    values = recipe.model_dump()
    knobs = {f"{RECIPE}.{field}": value for field, value in values.items() if _searchable(recipe, field, tuning)}
    if path not in knobs:
        known = path.removeprefix(f"{RECIPE}.") in values
        raise ExperimentFileError(
            f"tuning.knobs.{arm}: "
            + ("this field cannot be searched in factors" if known else "no such field of the recipe"),
            expected=f"a field of {RECIPE} that may be any positive number: {', '.join(knobs)}",
            received=f"'{path}'" + (f" = {values[path.removeprefix(f'{RECIPE}.')]}" if known else ""),
            remedy=nearest(path, knobs),
        )
    return knobs[path]


def _searchable(recipe: OptimiserConfig, field: str, tuning: Tuning) -> bool:
    """Whether every value that the search might reach is valid. A share or a momentum is bounded, 0 has no factors."""
    values = recipe.model_dump()
    if not isinstance(values[field], float) or values[field] <= 0.0:
        return False
    try:
        for step in (-tuning.max_trials, tuning.max_trials):
            reached = value_at(values[field], tuning.factor, step)
            OptimiserConfig.model_validate(values | {field: reached})
    except (ValidationError, OverflowError):
        return False
    return True


def declare_knobs(experiment: Experiment) -> Experiment:
    """The experiment whose contrasts declare that their arms may differ in what is tuned. Doing it again adds nothing.

    What is declared does not depend on what was chosen: the rule that decides a verdict is the same before and after.
    """
    if experiment.tuning is None:
        return experiment
    knobs = experiment.tuning.knobs
    contrasts = {}
    for name, contrast in experiment.contrasts.items():
        fields = dict.fromkeys((*contrast.also_differs, *(knobs[arm] for arm in contrast.arms if arm in knobs)))
        contrasts[name] = contrast.model_copy(update={"also_differs": tuple(fields)})
    return experiment.model_copy(update={"contrasts": contrasts})


def with_values(experiment: Experiment, values: Mapping[str, float]) -> Experiment:
    """The experiment with the knobs of these arms at these values."""
    assert experiment.tuning is not None
    arms = dict(experiment.arms)
    for arm, value in values.items():
        knob = experiment.tuning.knobs[arm]
        derived = experiment.robustness.derived.items()
        # An arm that differs in one field is tuned with the one that it is derived from, in all others.
        for name in (arm, *(name for name, what in derived if what.of == arm and what.knob != knob)):
            arms[name] = _at_value(arms[name], knob, value)
    return declare_knobs(experiment).model_copy(update={"arms": arms})


def _at_value(difference: dict[str, Any], knob: str, value: float) -> dict[str, Any]:
    return merged(difference, {RECIPE: {knob.removeprefix(f"{RECIPE}."): value}})


def trial_experiment(experiment: Experiment, steps: Steps) -> Experiment:
    """The study of these trials: arms that differ from the file's in their knob's value alone.

    Arms that others are compared with come first. Arms that are not tuned are in it where another arm names them in a
    mechanism, as it does its donor; a donor is at its declared value here. The test split is the verdict's: of it, and
    of what diagnostics read, no more is looked at than a cell must.
    """
    tuning, declared = experiment.tuning, declared_values(experiment)
    assert tuning is not None
    arms: dict[str, dict[str, Any]] = {}
    named = _named_in_mechanisms(experiment)
    for arm in _parents_first(experiment):
        if arm not in declared:
            if arm in named:
                arms[arm] = barely_scored(experiment.arm(arm), experiment.arms[arm], "test")
            continue
        for step in sorted(steps[arm], key=lambda step: (abs(step), step)):
            value = value_at(declared[arm], tuning.factor, step)
            difference = (
                experiment.arms[arm] if step == 0 else _at_value(experiment.arms[arm], tuning.knobs[arm], value)
            )
            name = trial_arm(arm, declared[arm], tuning.factor, step)
            arms[name] = barely_scored(experiment.arm(arm), difference, "test")
    full_runs = {"milestones_tokens": (), "budgets_tokens": ()}
    return declare_knobs(experiment).model_copy(
        update={
            "study": f"{experiment.study}{TUNING}",
            "scales": {name: size.model_copy(update=full_runs) for name, size in experiment.scales.items()},
            "arms": arms,
            "seeds": Seeds(count=tuning.seeds),
            "noise": Noise(),
            "robustness": Robustness(),
            "tuning": None,
            "execution": experiment.execution.model_copy(update={"cost_rounds": 0}),
        }
    )


def _parents_first(experiment: Experiment) -> list[str]:
    parents = {arm for contrast in experiment.contrasts.values() for arm in contrast.arms[1::2]}
    return sorted(experiment.arms, key=lambda arm: arm not in parents)


def _named_in_mechanisms(experiment: Experiment) -> set[str]:
    return {name for arm in experiment.arms for name in named_in_mechanisms(experiment.arm(arm))}
