"""CORE and ChatCORE: each model's score, or why there is none; differences, and what each task adds to them.

Random baselines cancel in a difference of centred accuracies, their weights 1/(1 - r) do not. So every share stands
under both tables: v1, the bundle's own, and v2, the corrected one.
"""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from paribus.report import canvas
from paribus.report.canvas import INK, Picture
from paribus.report.numbers import interval
from paribus.report.of_answers import VERSIONS, CoreDifferenceRow, CoreRow, CoreShareRow
from paribus.report.tables import Column, Table
from paribus.stats.rounding import MISSING, decimals_for, fixed, percent, whole_percent

_COLOURS = {"v1": canvas.ARM_COLOURS[0], "v2": canvas.ARM_COLOURS[4]}
"""of each table's bars; those of v2 are hollow besides"""


def score_name(suite: str, variant: str, after: str) -> str:
    """A score as tables name it; what it was taken of in small type."""
    name = {"core": "CORE", "chatcore-5": "ChatCORE, five tasks", "chatcore-6": "ChatCORE, six tasks"}.get(suite, suite)
    return "\n".join([name + (f" +{variant}" if variant else ""), *([f"after {after}"] if after else [])])


def core_table(found: Sequence[CoreRow]) -> Table:
    """A row an arm and table of baselines, a column a seed, end of the schedule; then what is not printed, and why."""
    ends = [row for row in found if not row.mid_schedule]
    seeds = sorted({row.seed for row in ends if row.v1 is not None})
    columns = (
        Column("score"),
        Column("arm"),
        Column("baselines"),
        *(Column(f"seed {seed}", numeric=True) for seed in seeds),
        Column("mean", numeric=True),
        Column("not printed, because"),
    )
    body = []
    for who in dict.fromkeys((row.suite, row.variant, row.after, row.scale, row.arm) for row in ends):
        own = {row.seed: row for row in ends if (row.suite, row.variant, row.after, row.scale, row.arm) == who}
        for version in VERSIONS:
            values = {seed: value for seed, row in own.items() if (value := getattr(row, version)) is not None}
            if values:
                numbers = [fixed(values.get(seed), 4) for seed in seeds]
                mean = fixed(float(np.mean([*values.values()])), 4) if len(values) > 1 else MISSING
                body.append((score_name(*who[:3]), f"{who[4]}\nscale\u00a0{who[3]}", version, *numbers, mean, ""))
    body += [
        (f"{name}: not printed", where, MISSING, *(MISSING for _ in seeds), MISSING, reason)
        for name, where, reason in _unprinted(ends)
    ]
    note = (
        "The mean over all tasks of (accuracy minus chance)/(1 minus chance), from complete tasks alone. "
        "v1: the random baselines of the bundle; v2: the corrected ones, where a copy was given."
    )
    return Table("Scores over all tasks", columns, tuple(body), note)


def _unprinted(found: Sequence[CoreRow]) -> list[tuple[str, str, str]]:
    """Score, arms with their seeds, and reason; one entry a reason."""
    by_reason: dict[tuple[str, str], dict[str, list[str]]] = {}
    for row in found:
        if row.v1 is None:
            arms = by_reason.setdefault((score_name(row.suite, row.variant, row.after), row.reason), {})
            arms.setdefault(f"{row.scale}/{row.arm}", []).append(str(row.seed))
    return [
        (name.replace("\n", ", "), "\n".join(f"{arm}, seeds {', '.join(seeds)}" for arm, seeds in arms.items()), reason)
        for (name, reason), arms in by_reason.items()
    ]


def core_differences_table(found: Sequence[CoreDifferenceRow]) -> Table:
    """One row a contrast and score."""
    columns = (
        Column("score"),
        Column("contrast"),
        Column("difference", "v1", numeric=True),
        Column("difference", "v2", numeric=True),
        Column("seeds", numeric=True),
        Column("note"),
    )
    body = tuple(
        (
            score_name(row.suite, row.variant, row.after),
            f"{row.contrast}\nscale\u00a0{row.scale}",
            _with_interval(row.v1_difference, row.v1_interval, row.confidence),
            _with_interval(row.v2_difference, row.v2_interval, row.confidence),
            str(len(row.seeds)),
            row.note or MISSING,
        )
        for row in found
    )
    return Table("Scores: treatment minus baseline", columns, body, "Paired t over seeds. No verdict of this page.")


def shares_table(found: Sequence[CoreShareRow]) -> Table:
    """One row a contrast, score and task, the largest contribution first."""
    columns = (
        Column("task"),
        Column("score"),
        Column("contrast"),
        Column("accuracy", "difference", numeric=True),
        Column("adds", "v1", numeric=True),
        Column("share", "v1", numeric=True),
        Column("adds", "v2", numeric=True),
        Column("share", "v2", numeric=True),
    )
    body = tuple(
        (
            row.task,
            score_name(row.suite, row.variant, row.after),
            f"{row.contrast}\nscale\u00a0{row.scale}",
            fixed(row.accuracy_difference, 4, signed=True),
            fixed(row.v1_contribution, 5, signed=True),
            MISSING if row.v1_share is None else whole_percent(row.v1_share),
            fixed(row.v2_contribution, 5, signed=True),
            MISSING if row.v2_share is None else whole_percent(row.v2_share),
        )
        for row in found
    )
    note = "Shares of one contrast add up to 100 %; beyond it, other tasks take some of it back."
    return Table("What each task adds to a difference of scores", columns, body, note)


def shares_picture(found: Sequence[CoreShareRow], name: str) -> Picture | None:
    """Bars of one contrast and score: what each task adds under each table, the largest first.

    Tasks that add nothing have no bar; None where none adds anything.
    """
    found = [row for row in found if row.v1_contribution or row.v2_contribution]
    if not found:
        return None
    versions = [v for v in VERSIONS if all(_adds(row, v) is not None for row in found)]
    score = score_name(found[0].suite, found[0].variant, found[0].after).replace("\n", ", ")
    with canvas.style():
        figure = Figure(figsize=(canvas.WIDTH_INCHES * 0.8, 0.95 + 0.25 * len(found)), layout="constrained")
        panel = figure.subplots()
        height = 0.76 / len(versions)
        for number, version in enumerate(versions):
            colour = _COLOURS[version]
            places = [place + (number - (len(versions) - 1) / 2) * height for place in range(len(found))]
            widths = [_adds(row, version) or 0.0 for row in found]
            total = fixed(sum(widths), 4, signed=True)
            fill = colour if version == VERSIONS[0] else "none"
            label = f"{version}, sum {total}"
            panel.barh(places, widths, height=height, lw=1.0, facecolor=fill, edgecolor=colour, label=label)
        panel.axvline(0, color=INK, lw=1.0, alpha=0.75)
        panel.set_yticks(range(len(found)), [canvas.label(row.task, 40) for row in found])
        panel.set_ylim(len(found) - 0.4, -0.6)
        panel.set_title(canvas.label(found[0].contrast, 60))
        panel.set_xlabel(f"added to the difference of {canvas.label(score, 50)}")
        figure.legend(loc="outside upper left", ncols=2)
        canvas.quiet(panel, grid="x")
        title = f"What each task adds to {score}: {found[0].contrast}"
        return Picture(figure, name, title, f"{title}. {_in_words(found, versions)}")


def _adds(row: CoreShareRow, version: str) -> float | None:
    return row.v1_contribution if version == "v1" else row.v2_contribution


def _in_words(found: Sequence[CoreShareRow], versions: Sequence[str]) -> str:
    each = [f"{row.task} {' and '.join(fixed(_adds(row, v), 5, signed=True) for v in versions)}" for row in found]
    return f"Under {' and '.join(versions)}: {', '.join(each)}."


def _with_interval(value: float | None, bounds: tuple[float, float] | None, confidence: float) -> str:
    if value is None:
        return MISSING
    digits = decimals_for((bounds[1] - bounds[0]) / 4 if bounds else None)
    told = f"\n{interval(bounds, digits)} {percent(confidence)}" if bounds else ""
    return fixed(value, digits, signed=True) + told
