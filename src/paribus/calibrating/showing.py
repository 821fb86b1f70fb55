"""What `paribus calibrate` prints: where each seed got below the threshold, what follows, and the table for the file.

Loads no torch.
"""

import math
import statistics
from collections.abc import Sequence
from typing import Any

from rich.console import Console

from paribus.calibrating.reading import Crossing, ReadCalibration, crossings_of
from paribus.experiment.calibration import EARLIEST, LATEST, State, baseline_of
from paribus.experiment.spec import Calibration, Experiment
from paribus.terminal import table

CENTRE = (EARLIEST + LATEST) / 2
"""share of the budget at which a suggested budget puts the crossing"""


def show(read: ReadCalibration, console: Console) -> None:
    """The crossings, the judgement in words, and the table to paste or what to change."""
    found, frozen = read.found, read.table
    assert found is not None
    assert frozen is not None
    scale, baseline = baseline_of(read.experiment)
    rows = [(of.slice, str(of.seed), *_told(of)) for of in read.crossings]
    console.print(
        table(
            f"Below the threshold: {scale}/{baseline}",
            ("slice", "seed", "update", "share of the budget"),
            rows,
            right=(1, 2, 3),
        )
    )
    console.print(found.sentence, highlight=False, soft_wrap=True, markup=False)
    if found.state is not State.CALIBRATED:
        console.print(advice(read), highlight=False, soft_wrap=True, markup=False)
        return
    console.print("\nfreeze it in the file:\n", highlight=False)
    console.print(as_toml(frozen, table_of(read.experiment)), highlight=False, soft_wrap=True, markup=False)


def _told(crossing: Crossing) -> tuple[str, str]:
    if crossing.at is None or crossing.share is None:
        return "diverged" if crossing.diverged else "never", ""
    return f"{crossing.at:,} of {crossing.updates:,}", f"{100 * crossing.share:.4g} %"


def table_of(experiment: Experiment) -> str:
    """Key path of the table that holds the calibration: the scale's own where its file holds several, each of which is
    a study."""
    if not experiment.option:
        return "calibration"
    scale = baseline_of(experiment)[0]
    return f'scales."{scale}".calibration' if "." in scale else f"scales.{scale}.calibration"


def as_toml(found: Calibration, table: str = "calibration") -> str:
    """The calibration of an experiment file that was calibrated, under the key path `table`."""
    slices = ", ".join(f"{name} = {_numbers(shares)}" for name, shares in (found.slices or {}).items())
    return f'[{table}]\nseeds = {found.seeds}\nslices = {{ {slices} }}\nevidence = "{found.evidence}"'


def _numbers(shares: Sequence[float]) -> str:
    return f"[{', '.join(map(repr, shares))}]"


def as_json(read: ReadCalibration) -> dict[str, Any]:
    """All of it as JSON types."""
    found, frozen = read.found, read.table
    assert found is not None
    assert frozen is not None
    scale, baseline = baseline_of(read.experiment)
    return {
        "study": read.experiment.study,
        "scale": scale,
        "arm": baseline,
        "state": str(found.state),
        "sentence": found.sentence,
        "advice": advice(read),
        "suggested_budget_tokens": suggested_budget_tokens(read),
        "crossings": [
            {
                "slice": of.slice,
                "seed": of.seed,
                "update": of.at,
                "updates": of.updates,
                "share": of.share,
                "diverged": of.diverged,
            }
            for of in read.crossings
        ],
        "calibration": frozen.model_dump(mode="json", exclude_none=True),
    }


def advice(read: ReadCalibration) -> str:
    """What to change, in sentences; empty where nothing is."""
    found = read.found
    if found is None or found.state is State.CALIBRATED:
        return ""
    medians, again = _medians(read), "and calibrate again"
    if any(of.diverged for of in read.crossings):
        return f"A baseline that diverges calibrates nothing: lower its learning rates, {again}."
    if never := [name for name, median in medians.items() if math.isinf(median)]:
        on = "" if len(medians) == 1 else f" on {' and '.join(never)}"
        return (
            f"Too many seeds did not get below the threshold{on} within the budget for a median, so nothing measured "
            f"says which budget would do: declare a longer budget_tokens or easier knobs, {again}."
        )
    if max(medians.values()) > LATEST / EARLIEST * min(medians.values()):
        return f"No budget puts {' and '.join(medians)} between 40 and 80 % alike: change the task's knobs, {again}."
    if found.state is State.UNEVEN:
        return (
            f"The seeds disagree: calibrate on more of them (--seeds {2 * read.seeds + 1}), or change the task's "
            f"knobs, {again}."
        )
    return (
        f"Declare budget_tokens = {suggested_budget_tokens(read):_}, which puts the middle of what was measured at "
        f"{100 * CENTRE:.0f} % if it comes at the same update under the other schedule, or change the task's knobs, "
        f"{again}."
    )


def suggested_budget_tokens(read: ReadCalibration) -> int | None:
    """The budget in whole updates of which the median crossing would be 60 %; of two slices, the middle of theirs.

    None where the present one suits, where most seeds never crossed, and where no budget suits both slices.
    """
    found, medians = read.found, _medians(read)
    if found is None or found.state in (State.CALIBRATED, State.UNEVEN):
        return None
    low, high = min(medians.values()), max(medians.values())
    if math.isinf(high) or high > LATEST / EARLIEST * low:
        return None
    updates = max(crossing.updates for crossing in read.crossings)
    batch = read.experiment.arm(baseline_of(read.experiment)[1]).batch_tokens
    return math.ceil((low + high) / 2 / CENTRE * updates) * batch


def _medians(read: ReadCalibration) -> dict[str, float]:
    """Median share over all seeds by slice; infinite where it is one that never got below the threshold."""
    return {
        name: statistics.median(math.inf if of.share is None else of.share for of in crossings_of(read, name))
        for name in read.shares
    }
