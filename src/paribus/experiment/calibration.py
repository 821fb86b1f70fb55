"""Whether a synthetic task is neither too easy nor too hard for its budget, decided on the baseline alone. Torch-free.

A contrast on a task can only show something where its baseline is on the way: one that has solved the task early, or
that is still at chance at the end, makes every treatment look alike. So the difficulty is set before any treatment is
trained, on seeds that no verdict uses (rules of evidence, section 8): on most of them the baseline's loss should get
half-way from chance to the floor (below every shortcut, where one is as low: `Levels.threshold`) between 40 and 80 % of
the budget. What was found stands in the file's `[calibration]`
beside a digest of what was calibrated, so that knobs that were changed afterwards are noticed.

The calibration is a study of its own, with the primary's baseline as its only arm. Its name is part of every random
stream, so that its seeds are never the verdict's, whatever their numbers.
"""

import hashlib
import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from paribus.data.tasks.checks import answering
from paribus.data.tasks.contract import ALL, Levels, sample
from paribus.errors import ExperimentFileError
from paribus.experiment.metrics import parse
from paribus.experiment.spec import (
    BESIDE_THE_FULL_RUN,
    CALIBRATION,
    Calibration,
    Experiment,
    Noise,
    Robustness,
    Seeds,
    barely_scored,
    named_in_mechanisms,
)
from paribus.experiment.tuning import RECIPE

EARLIEST, LATEST = 0.4, 0.8
"""shares of the budget between which the baseline should reach the threshold"""
DEFAULT_SEEDS = 3
_BESIDE_THE_BASELINE = {"corpus", "tokenizer", "evaluation"}
"""fields of an arm that do not change how it learns a task; the task itself is in the digest by its own"""
_BESIDE_THE_LENGTH = BESIDE_THE_FULL_RUN | {"milestones_tokens", "base", "execution"}
"""fields of a scale that do not change its full run, or that stand elsewhere once they are laid over the file"""

_DIGEST_ROWS = 8
"""of the task, in the digest: a generator that yields others is another task"""
_DIGITS = 9
"""decimals of a loss in the digest: the last bits of a logarithm are the processor's"""

Shares = Mapping[str, Sequence[float]]
"""of the budget, by slice: one for each calibration seed that reached the threshold"""


class State(StrEnum):
    """What is known of a task's difficulty."""

    MISSING = "missing"
    """nobody calibrated it"""
    STALE = "stale"
    """something else was calibrated than what the file now declares"""
    NOT_APPLICABLE = "not applicable"
    """the file says why there is nothing to calibrate, or reads text"""
    CALIBRATED = "calibrated"
    TOO_EASY = "too easy"
    """most seeds reach the threshold before 40 % of the budget"""
    TOO_HARD = "too hard"
    """most seeds reach the threshold after 80 % of the budget, or never"""
    UNEVEN = "uneven"
    """neither: the seeds, or the two slices of a difference, disagree"""


@dataclass(frozen=True)
class CalibrationFound:
    """What a file's `[calibration]` is worth for what the file now declares."""

    state: State
    sentence: str
    """for a page, without a full stop; empty for text, which has nothing to calibrate"""
    seeds: int = 0
    """calibration seeds; 0 where nothing was found"""
    shares: Shares = field(default_factory=dict)

    def crossed(self, name: str) -> tuple[float | None, ...]:
        """Share of the budget at which each calibration seed reached the threshold on a slice; None, last, for each
        that never did."""
        known = tuple(self.shares[name])
        return (*known, *[None] * (self.seeds - len(known)))


def calibration_of(experiment: Experiment) -> CalibrationFound:
    """What is known of the difficulty of the experiment's task, from its file alone.

    The baseline was calibrated as the file declares it. What tuning then chose for its knob makes nothing stale, and
    is said.
    """
    found = declared_calibration(experiment)
    if experiment.base.task is None:
        return CalibrationFound(State.NOT_APPLICABLE, "")
    if found is None:
        return CalibrationFound(
            State.MISSING,
            "the task's difficulty was not calibrated on the baseline (`paribus calibrate`), so nothing says that the "
            "budget suits it",
        )
    if found.seeds is None or found.slices is None:
        why = (found.not_applicable or "").rstrip(". ")
        return CalibrationFound(State.NOT_APPLICABLE, f"not calibrated, as the file declares: {why}")
    names = slices_of(experiment)
    if changed := _changed(experiment, found, names):
        return CalibrationFound(
            State.STALE, f"the calibration in the file is stale: {changed}; `paribus calibrate` does it anew"
        )
    shares = {name: found.slices[name] for name in names}
    sentence = in_words(shares, found.seeds, lowered(experiment)) + _before_tuning(experiment)
    return CalibrationFound(judged(shares, found.seeds), sentence, found.seeds, shares)


def declared_calibration(experiment: Experiment) -> Calibration | None:
    """The table that the file holds for the primary's scale: the scale's own, or the file's."""
    return experiment.scales[baseline_of(experiment)[0]].calibration or experiment.calibration


def _before_tuning(experiment: Experiment) -> str:
    """What a reader must know of a calibrated baseline with a tuned knob; empty where it has none."""
    knob = _tuned_field(experiment, baseline_of(experiment)[1])
    return f"; calibrated at the declared value of {RECIPE}.{knob}, which tuning then chooses" if knob else ""


def _tuned_field(experiment: Experiment, arm: str) -> str:
    """The field of the recipe that tuning chooses for the arm; empty where it chooses none."""
    return "" if experiment.tuning is None else experiment.tuning.knobs.get(arm, "").removeprefix(f"{RECIPE}.")


def _changed(experiment: Experiment, found: Calibration, names: Sequence[str]) -> str:
    """How what the file declares differs from what was calibrated; empty where it does not."""
    assert found.slices is not None
    if found.evidence != evidence_of(experiment, found.slices):
        return "the baseline, the task's knobs or levels, the scale or the execution were changed after it"
    missing = [name for name in names if name not in found.slices]
    return f"it says nothing of {' and '.join(missing)}, which the primary is about" if missing else ""


def lowered(experiment: Experiment) -> tuple[str, ...]:
    """Of the slices that the primary is about those whose threshold lies below half-way, where a shortcut is as low."""
    base = experiment.arm(baseline_of(experiment)[1])
    if base.task is None:
        return ()
    found = [name for name, level in base.task.levels(base.context_length).items() if not _half_way(level)]
    names = slices_of(experiment)
    return (ALL,) if found and names == (ALL,) else tuple(name for name in names if name in found)


def _half_way(level: Levels) -> bool:
    return math.isclose(level.threshold, (level.floor + level.chance) / 2, abs_tol=10**-_DIGITS)


def slices_of(experiment: Experiment) -> tuple[str, ...]:
    """The slices that the primary is about: those that its metric names, or "all" targets together."""
    return parse(experiment.contrasts[experiment.primary].metric).slices or (ALL,)


def evidence_of(experiment: Experiment, slices: Collection[str] | None = None) -> str:
    """Digest of all that decides how the primary's baseline learns, 16 hexadecimal digits: its declared fields, the
    task with its levels and first rows, the scale and the execution. ExperimentFileError for text. `slices` are those
    that were calibrated, of which the thresholds count too; None for those that the primary is about.

    Neither treatments, nor seeds, nor the rule of a verdict are part of it, nor what the study or an arm is called. The
    field that tuning chooses for an arm is not either: the declared experiment and the tuned one have one digest.
    """
    scale, arms = _baseline(experiment)
    slices = slices_of(experiment) if slices is None else slices
    size = experiment.scales[scale].model_dump_json(exclude=_BESIDE_THE_LENGTH)
    execution = experiment.execution.model_dump_json(include={"mode", "device", "threads", "micro_batch_rows"})
    digest = hashlib.blake2b(f"{size} {execution}".encode(), digest_size=8)
    for arm in arms:
        base = experiment.arm(arm)
        assert base.task is not None
        without: dict[str, bool | dict[str, bool]] = dict.fromkeys(_BESIDE_THE_BASELINE, True)
        if knob := _tuned_field(experiment, arm):
            without[RECIPE] = {knob: True}
        digest.update(base.model_dump_json(exclude=without).encode())
        digest.update(f"{base.task.name} {base.task.model_dump_json()}".encode())
        with answering(base.task):
            levels = base.task.levels(base.context_length)
            rows = sample(base.task, 0, 0, _DIGEST_ROWS, base.context_length)
        known = {name: [round(level.chance, _DIGITS), round(level.floor, _DIGITS)] for name, level in levels.items()}
        for name, level in levels.items():
            # Half-way follows from chance and floor; only where a shortcut lowers it the threshold says more.
            if (name in slices or ALL in slices) and not _half_way(level):
                known[name].append(round(level.threshold, _DIGITS))
        digest.update(json.dumps(known, sort_keys=True).encode())
        floor = np.rint(rows.floor_nats * 10**_DIGITS)
        for array in (rows.tokens, rows.targets, rows.asked, rows.slice, floor):
            digest.update(np.ascontiguousarray(array, dtype="<i8").tobytes())
    return digest.hexdigest()


def calibration_experiment(experiment: Experiment, seeds: int) -> Experiment:
    """The study that trains the primary's baseline alone, with what it starts from, at `seeds` calibration seeds.

    Held-out rows decide nothing here: no more of them is scored than a cell must. ExperimentFileError for text, for a
    file that declares that calibration does not apply, and where the baseline has no way to go.
    """
    scale, arms = _baseline(experiment)
    _require_a_way(experiment)
    only_full_runs = {"milestones_tokens": (), "budgets_tokens": ()}
    return experiment.model_copy(
        update={
            "study": f"{experiment.study}{CALIBRATION}",
            "scales": {scale: experiment.scales[scale].model_copy(update=only_full_runs)},
            "arms": {
                arm: barely_scored(experiment.arm(arm), experiment.arms[arm], "test", "validation") for arm in arms
            },
            "contrasts": {},
            "seeds": Seeds(count=seeds),
            "noise": Noise(),
            "robustness": Robustness(),
            "tuning": None,
            "calibration": None,
            "execution": experiment.execution.model_copy(update={"cost_rounds": 0}),
        }
    )


def baseline_of(experiment: Experiment) -> tuple[str, str]:
    """(scale, arm) of the primary's baseline."""
    primary = experiment.contrasts[experiment.primary]
    return experiment.contrast_scale(primary), primary.baseline


def _baseline(experiment: Experiment) -> tuple[str, tuple[str, ...]]:
    """The primary's scale, and its baseline behind the arms that it starts from. ExperimentFileError for text."""
    if experiment.base.task is None:
        raise ExperimentFileError(
            "calibration belongs to a synthetic task, and this study reads text",
            expected='a task, such as base.corpus = { task = "cross" }',
            received="documents, which have no chance level and no floor that is known beforehand",
            remedy="leave [calibration] out; nothing about a text study needs it",
        )
    scale, baseline = baseline_of(experiment)
    needed = [baseline]
    for arm in needed:  # grows while it is gone through: a donor may have a donor
        named = set(named_in_mechanisms(experiment.arm(arm)))
        needed += [other for other in experiment.arms if other in named and other not in needed]
    return scale, tuple(reversed(needed))


def _require_a_way(experiment: Experiment) -> None:
    """ExperimentFileError where calibration is declared not to apply, or where chance already is the floor."""
    declared, base = declared_calibration(experiment), experiment.arm(baseline_of(experiment)[1])
    if declared is not None and declared.not_applicable is not None:
        raise ExperimentFileError(
            "calibration.not_applicable: the file says that there is nothing to calibrate",
            expected="no [calibration], or what an earlier one found",
            received=f"'{declared.not_applicable}'",
            remedy="remove it to calibrate the baseline after all",
        )
    assert base.task is not None
    levels = base.task.levels(base.context_length)
    names = slices_of(experiment)
    for name in levels if names == (ALL,) else names:
        if levels[name].teaches:
            continue
        raise ExperimentFileError(
            f"the task '{base.task.name}' has no way from chance to the floor on '{name}', so no baseline can get "
            "half-way",
            expected="a chance level above the floor",
            received=f"both {levels[name].chance:.4g} nats per target",
            remedy='declare not_applicable = "why" in [calibration], as for any negative control',
        )


def share_of(update: int, updates: int) -> float:
    """Share of the budget, to the four significant digits that a file holds: what is judged is what is written."""
    return float(f"{update / updates:.4g}")


def judged(shares: Shares, seeds: int) -> State:
    """Whether the baseline got half-way in time on every slice, at most of `seeds` seeds."""
    found = {_judged_slice(of, seeds) for of in shares.values()} - {State.CALIBRATED}
    if not found:
        return State.CALIBRATED
    return found.pop() if len(found) == 1 else State.UNEVEN


def _judged_slice(shares: Sequence[float], seeds: int) -> State:
    early = sum(share < EARLIEST for share in shares)
    late = seeds - sum(share <= LATEST for share in shares)
    counts = {State.CALIBRATED: seeds - early - late, State.TOO_EASY: early, State.TOO_HARD: late}
    return next((state for state, count in counts.items() if 2 * count > seeds), State.UNEVEN)


def in_words(shares: Shares, seeds: int, below_half_way: Collection[str] = ()) -> str:
    """Such as "calibrated: the baseline got half-way from chance to the floor at 45 % and 61 % of the budget (2 of 2
    seeds within 40 to 80 %)"; without a full stop. `below_half_way` are the slices whose threshold a shortcut lowers.
    """
    told = (_of_slice(name, of, seeds, lower=name in below_half_way) for name, of in shares.items())
    return f"{judged(shares, seeds)}: " + "; ".join(told)


def _of_slice(name: str, shares: Sequence[float], seeds: int, *, lower: bool) -> str:
    on = "" if name == ALL else f"on {name} "
    way = "below every shortcut" if lower else "half-way from chance to the floor"
    half_way = f"{on}the baseline got {way}"
    never = seeds - len(shares)
    if not shares:
        return f"{half_way} at none of {_seeds(seeds)} within the budget"
    within = sum(EARLIEST <= share <= LATEST for share in shares)
    listed = [f"{100 * share:.4g} %" for share in sorted(shares)]
    at = " and ".join(filter(None, [", ".join(listed[:-1]), listed[-1]]))
    lost = f", and never at {never} of {_seeds(seeds)}" if never else ""
    inside = f"{within} of {_seeds(seeds)} within {100 * EARLIEST:.0f} to {100 * LATEST:.0f} %"
    return f"{half_way} at {at} of the budget{lost} ({inside})"


def _seeds(count: int) -> str:
    return f"{count} seed{'s' if count > 1 else ''}"
