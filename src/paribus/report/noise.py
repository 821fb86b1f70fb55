"""A/A: what one and the same architecture differs from itself, in three kinds that are never mixed up.

A *repeat* shows the noise of the kernels, a *perturbed twin* the floor below which no paired difference can be seen, an
*other seed* the noise that pairing removes. Beside them stands the spread of the contrast itself (rules, section 4).
"""

from collections.abc import Sequence

from paribus.report.content import NoiseRow
from paribus.report.numbers import significant
from paribus.report.tables import Column, Table
from paribus.stats.rounding import MISSING, declared

MEANINGS = {
    "repeat": "the same cell again: noise of the kernels, no noise floor",
    "perturbed twin": "same seed, one tensor changed by a millionth: the floor of a paired difference",
    "other seed": "unpaired noise, from the cells' deviations from their mean",
}


def noise_table(noise: Sequence[NoiseRow]) -> Table | None:
    """One row a kind, scale and arm; None without an A/A."""
    if not noise:
        return None
    columns = (
        Column("kind"),
        Column("scale"),
        Column("arm"),
        Column("metric"),
        Column("pairs", numeric=True),
        Column("sd of a difference", numeric=True),
        Column("largest difference", numeric=True),
        Column("sd of the primary contrast", numeric=True),
        Column("contrast over A/A", numeric=True),
        Column("unit"),
    )
    rows = []
    for row in sorted(noise, key=_order):
        largest = max((abs(difference) for difference in row.differences), default=None)
        meaning = MEANINGS.get(row.kind, "")
        rows.append(
            (
                f"{row.kind}\n{meaning}" if meaning else row.kind,
                row.scale,
                row.arm,
                row.metric,
                str(len(row.differences)),
                significant(row.sd_of_difference, 2),
                significant(largest, 2),
                significant(row.contrast_sd, 2),
                _ratio(row),
                row.unit,
            )
        )
    note = (
        "A contrast whose spread lies near the twin's is as precise as pairing can make it. Error rates of verdicts "
        "come from simulation, never from one A/A."
    )
    return Table("A/A: one architecture against itself", columns, tuple(rows), note)


def _order(row: NoiseRow) -> tuple[str, int, str]:
    kinds = list(MEANINGS)
    return row.scale, kinds.index(row.kind) if row.kind in kinds else len(kinds), row.arm


def _ratio(row: NoiseRow) -> str:
    if not row.sd_of_difference or row.contrast_sd is None:
        return MISSING
    return declared(float(f"{row.contrast_sd / row.sd_of_difference:.2g}"))
