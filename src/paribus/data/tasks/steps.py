"""Which steps of a task are whose: training, validation and test rows are rows at steps that never meet."""

from collections.abc import Mapping

from paribus.data.split import Split

MOST_STEPS = 2**40
"""of each split"""
FIRST_STEP: Mapping[Split, int] = {"train": 0, "validation": MOST_STEPS, "test": 2 * MOST_STEPS}
