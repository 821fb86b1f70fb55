"""What went wrong in training as the report shows it: runs that diverged, and loss spikes by a declared rule."""

import math
from collections.abc import Sequence

from paribus.report.numbers import count, significant
from paribus.report.of_training import DivergedRow, SpikeRow
from paribus.report.tables import Column, Table
from paribus.stats.rounding import MISSING
from paribus.stats.spikes import FEWEST, RECOVERED, SMALLEST_HEIGHT, THRESHOLD, WINDOW

RULE = (
    f"A spike begins where the training loss lies {THRESHOLD:g} robust standard deviations (1.4826 MAD) and "
    f"{SMALLEST_HEIGHT:g} nats or more above the median of the {WINDOW} updates before it ({FEWEST} at the beginning "
    f"of a run), and ends where it is back within {RECOVERED:g}. It describes; no run is left out for it."
)


def spikes_sentence(spikes: Sequence[SpikeRow]) -> str:
    """In how many runs there are spikes, with the rule."""
    runs = len({(row.scale, row.arm, row.seed, row.variant) for row in spikes})
    lost = sum(row.recovered_after_updates is None for row in spikes)
    rest = f", {lost} of them not back at the end" if lost else ""
    found = f"{len(spikes)} in {runs} run{'s' if runs > 1 else ''}{rest}" if spikes else "none in the runs drawn here"
    return f"Loss spikes: {found}. {RULE}"


def spikes_table(spikes: Sequence[SpikeRow], unit: str) -> Table | None:
    """Every spike; None without one."""
    if not spikes:
        return None
    columns = (
        Column("scale"),
        Column("arm"),
        Column("seed", numeric=True),
        Column("update", numeric=True),
        Column("tokens", numeric=True),
        Column("height", unit, numeric=True),
        Column("z", numeric=True),
        Column("back after", "updates", numeric=True),
    )
    rows = tuple(
        (
            row.scale,
            f"{row.arm} ({row.variant})" if row.variant else row.arm,
            str(row.seed),
            count(row.step),
            count(row.tokens_seen),
            significant(row.height),
            significant(row.z) if math.isfinite(row.z) else "no spread before",
            "not at the end" if row.recovered_after_updates is None else count(row.recovered_after_updates),
        )
        for row in spikes
    )
    accents = tuple("bad" if row.recovered_after_updates is None else "" for row in spikes)
    return Table("Loss spikes", columns, rows, accents=accents)


def diverged_table(diverged: Sequence[DivergedRow]) -> Table | None:
    """Every run that diverged, with what is known of why; None without one."""
    if not diverged:
        return None
    columns = (
        Column("scale"),
        Column("arm"),
        Column("seed", numeric=True),
        Column("update", numeric=True),
        Column("what happened"),
        Column("first tensor that was not finite"),
        Column("batch"),
        Column("last finite loss", numeric=True),
    )
    rows = tuple(
        (
            row.scale,
            f"{row.arm} ({row.variant})" if row.variant else row.arm,
            str(row.seed),
            MISSING if row.step is None else count(row.step),
            row.reason,
            row.first_tensor or MISSING,
            row.batch_digest or MISSING,
            significant(row.last_loss_nats_per_token, 5),
        )
        for row in diverged
    )
    note = (
        "No run was dropped or replaced: a pair counts against the arm that diverged. `paribus replay` with a cell's "
        "folder makes the update again."
    )
    return Table("Runs that diverged", columns, rows, note, ("bad",) * len(rows))
