"""Arms beside chance where nothing can be learned, as the page shows them and as its caveats name a leak."""

from collections.abc import Set

from paribus.reading.chance import arms_at_chance
from paribus.reading.study import ReadStudy
from paribus.report.of_tasks import ChanceRow


def chance_rows(study: ReadStudy, seeds: Set[int]) -> list[ChanceRow]:
    """One for each arm and slice whose chance is its floor, of the complete cells among `seeds`."""
    return [
        ChanceRow(
            arm.scale,
            arm.arm,
            arm.slice,
            tuple(arm.losses),
            tuple(loss.mean for loss in arm.losses.values()),
            tuple(loss.inputs for loss in arm.losses.values()),
            arm.found,
        )
        for arm in arms_at_chance(study, seeds)
    ]
