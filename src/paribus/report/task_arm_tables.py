"""Tables of single arms on a task beyond the curve: when each seed acquired what, and two that only some tasks have.

Where chance is the floor an arm is held against chance, which is the leak detector; where the task declares a unit of
what is learnt, such as bits of a table, the held-out loss is told in it too.
"""

from collections.abc import Sequence

from paribus.report.numbers import count
from paribus.report.of_tasks import ChanceRow, TaskContent, asked
from paribus.report.tables import Column, Table
from paribus.stats.chance import ABOVE, AT, BELOW, STANDARD_ERRORS
from paribus.stats.rounding import MISSING, decimals_for, fixed

WHERE = {AT: "yes", BELOW: "no: BELOW chance, a leak", ABOVE: "no: above it, which no leak explains"}
"""whether an arm is at chance, as a cell says it"""


def acquired_by_seed_table(task: TaskContent) -> Table:
    """Updates until each seed acquired a slice, a row a slice and arm and a column a seed; without rows where nothing
    can be acquired."""
    order = [levels.slice for levels in task.definition.levels]
    held = [row for row in task.acquisitions if row.acquired_at_updates]
    held.sort(key=lambda row: order.index(row.slice) if row.slice in order else len(order))
    seeds = sorted({seed for row in held for seed in (*row.seeds, *row.diverged)})
    several = len({row.scale for row in held}) > 1
    columns = (
        Column("slice"),
        Column("arm"),
        *((Column("scale"),) if several else ()),
        *(Column(f"seed {seed}", numeric=True) for seed in seeds),
    )
    body = []
    for row in held:
        budget = task.definition.text.updates_at(row.scale)
        told = {
            seed: f"> {count(budget)}" if at is None else count(at)
            for seed, at in zip(row.seeds, row.acquired_at_updates, strict=True)
        }
        told |= dict.fromkeys(row.diverged, "diverged")
        cells = [told.get(seed, MISSING) for seed in seeds]
        body.append((asked(row.slice), row.arm, *([row.scale] if several else []), *cells))
    note = 'Updates until the slice was acquired; ">" and the budget where it was not within it.'
    return Table("When each seed acquired what", columns, tuple(body), note)


def chance_table(task: TaskContent) -> Table:
    """One row a slice and arm on which nothing can be learned: held-out loss beside chance."""
    several = len({row.scale for row in task.at_chance}) > 1
    columns = (
        Column("slice"),
        Column("arm"),
        *((Column("scale"),) if several else ()),
        Column("held-out loss", "nats per target", numeric=True),
        Column("chance", "nats per target", numeric=True),
        Column("loss less chance", "nats per target", numeric=True),
        Column("in standard errors", numeric=True),
        Column("seeds", numeric=True),
        Column(f"at chance within {STANDARD_ERRORS:g} standard errors"),
    )
    body = []
    for row in task.at_chance:
        found = row.found
        digits = min(max(decimals_for(found.standard_error, otherwise=4), 3), 6)
        low, high = min(row.losses_nats_per_target), max(row.losses_nats_per_target)
        body.append(
            (
                asked(row.slice),
                row.arm,
                *([row.scale] if several else []),
                f"{fixed(found.mean, digits)}\nseeds {fixed(low, digits)} to {fixed(high, digits)}",
                fixed(found.chance, digits),
                f"{fixed(found.mean - found.chance, digits, signed=True)}\n± {fixed(found.standard_error, digits)}",
                _in_errors(row),
                str(len(row.seeds)),
                WHERE[found.where],
            )
        )
    inputs = sorted({number for row in task.at_chance for number in row.inputs})
    scored = " to ".join(count(number) for number in dict.fromkeys((inputs[0], inputs[-1]))) if inputs else "0"
    note = (
        "Chance is the floor here: nothing can be learned. Loss: the mean over seeds, each scored on "
        f"{scored} held-out inputs of its own. ±: its standard error over those inputs with the trained models given, "
        "that of seeds pooled as independent: the root of the sum of their squares, over the number of seeds. Above "
        "chance: what a model guesses costs it that much, and a leak smaller than this would not show."
    )
    accents = tuple("bad" if row.found.where == BELOW else "" for row in task.at_chance)
    return Table(
        "The leak detector: arms beside chance where nothing can be learned", columns, tuple(body), note, accents
    )


def _in_errors(row: ChanceRow) -> str:
    found = row.found
    if not found.standard_error:
        return MISSING
    return fixed((found.mean - found.chance) / found.standard_error, 1, signed=True)


def leak_sentences(rows: Sequence[ChanceRow]) -> list[str]:
    """One for each slice and scale on which an arm is below chance: what nobody may miss."""
    leaks: dict[tuple[str, str], list[ChanceRow]] = {}
    for row in rows:
        if row.found.where == BELOW:
            leaks.setdefault((row.slice, row.scale), []).append(row)
    several = len({row.scale for row in rows}) > 1
    told = []
    for (name, scale), found in leaks.items():
        arms = ", ".join(
            f"{row.arm} (loss {fixed(row.found.mean, 4)}, chance {fixed(row.found.chance, 4)}, "
            f"{_in_errors(row)} standard errors)"
            for row in found
        )
        where = f"{asked(name)}{f' at scale {scale}' if several else ''}"
        told.append(
            f"LEAK on {where}: below chance where nothing can be learned: {arms}. An arm that is has read its "
            "targets, or the rows tell them; believe no result of it, on this task or another, before that is mended."
        )
    return told


def learnt_table(task: TaskContent) -> Table:
    """One row a slice and arm for which the task declares a unit of what is learnt: mean and range over seeds."""
    several = len({row.scale for row in task.learnt}) > 1
    units = list(dict.fromkeys(row.unit for row in task.learnt))
    columns = (
        Column("slice"),
        Column("arm"),
        *((Column("scale"),) if several else ()),
        Column("learnt", units[0] if len(units) == 1 else "", numeric=True),
        Column("share of all", numeric=True),
        Column("least and most", "over seeds", numeric=True),
        Column("seeds", numeric=True),
    )
    body = []
    for row in task.learnt:
        mean = sum(row.amounts) / len(row.amounts)
        body.append(
            (
                asked(row.slice),
                row.arm,
                *([row.scale] if several else []),
                count(mean) if len(units) == 1 else f"{count(mean)}\n{row.unit}",
                f"{100 * mean / row.whole:.1f} %\nof {count(row.whole)}" if row.whole else MISSING,
                f"{count(min(row.amounts))} to {count(max(row.amounts))}",
                str(len(row.seeds)),
            )
        )
    note = "From the held-out loss at the end, in the task's own unit; below 0 a model is worse than knowing nothing."
    return Table("What each arm has learnt", columns, tuple(body), note)
