"""How the arms were tuned: every value that was tried, on seeds and a split that the verdict does not use.

Trials are counted per arm, since unequal tuning is the cheapest way to a false win (rules of evidence, section 5).
Scores are drawn above the lowest of their own arm: two arms' tuning scores are no contrast.
"""

import math
from collections import defaultdict
from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from paribus.report import canvas
from paribus.report.canvas import Picture
from paribus.report.content import TrialRow, TuningSummary
from paribus.report.of_conduct import best_score
from paribus.report.tables import Column, Table
from paribus.stats.rounding import MISSING, declared, fixed

_COLUMNS = 3


def summaries_table(tuning: Sequence[TuningSummary]) -> Table:
    """One row an arm and field: how many trials it had, what was chosen, and whether the optimum is interior."""
    columns = (
        Column("arm"),
        Column("scale"),
        Column("tuned field"),
        Column("trials", numeric=True),
        Column("chosen", numeric=True),
        Column("optimum interior"),
        Column("what was found"),
    )
    rows = tuple(
        (
            of.arm,
            of.scale,
            of.knob,
            str(of.trials),
            declared(of.chosen),
            "yes" if of.interior else "no",
            of.sentence or MISSING,
        )
        for of in tuning
    )
    accents = tuple("" if of.interior else "bad" for of in tuning)
    totals: dict[tuple[str, str], int] = defaultdict(int)
    for of in tuning:
        totals[of.scale, of.arm] += of.trials
    counts = [{n for (at, _), n in totals.items() if at == scale} for scale in {of.scale for of in tuning}]
    unequal = any(len(of_scale) > 1 for of_scale in counts)
    note = "The arms had unequal numbers of trials." if unequal else "Every arm had the same number of trials."
    return Table("Trials of each arm", columns, rows, note, accents)


def trials_table(trials: Sequence[TrialRow], absolute: Sequence[str]) -> Table:
    """Every value tried; the mean score itself only at scales in `absolute`, where a comparison of arms is due."""
    unit = trials[0].unit if trials else ""
    columns = (
        Column("arm"),
        Column("scale"),
        Column("tuned field"),
        Column("value", numeric=True),
        Column("above the arm's lowest", unit, numeric=True),
        Column("mean score", unit, numeric=True),
        Column("tuning seeds", numeric=True),
        Column("chosen"),
    )
    rows = []
    for trial in trials:
        mean, best = trial.mean_score, best_score(trials, trial.scale, trial.arm)
        above = None if mean is None or best is None else mean - best
        lost = sum(score is None or not math.isfinite(score) for score in trial.scores)
        rows.append(
            (
                trial.arm,
                trial.scale,
                trial.knob,
                declared(trial.value),
                fixed(above, 4),
                fixed(mean, 4) if trial.scale in absolute else MISSING,
                f"{len(trial.scores)}" + (f"\n{lost} without a score" if lost else ""),
                "chosen" if trial.chosen else "",
            )
        )
    accents = tuple("primary" if trial.chosen else "" for trial in trials)
    scored_on = trials[0].scored_on if trials else ""
    note = f"Scored on {scored_on}, with seeds that no verdict uses; the lowest mean is chosen."
    return Table("Every trial", columns, tuple(rows), note, accents)


def trials_picture(trials: Sequence[TrialRow], arms: Sequence[str], baseline: str, name: str) -> Picture | None:
    """Score above the arm's lowest against the value on a log2 axis, a panel a field; one scale."""
    told = [trial for trial in trials if trial.value > 0 and trial.mean_score is not None]
    if not told:
        return None
    fields = list(dict.fromkeys(trial.knob for trial in told))
    present = [arm for arm in dict.fromkeys([*arms, *(t.arm for t in told)]) if any(t.arm == arm for t in told)]
    looks = canvas.look_of([*arms, *(arm for arm in present if arm not in arms)], baseline)
    columns = min(len(fields), _COLUMNS)
    lines = math.ceil(len(fields) / columns)
    words = []
    with canvas.style():
        width = canvas.WIDTH_INCHES * (0.6 if columns == 1 else 1)
        figure = Figure(figsize=(width, 0.4 + 2.4 * lines), layout="constrained")
        panels = figure.subplots(lines, columns, squeeze=False).ravel()
        for panel, field in zip(panels, fields, strict=False):
            here = [trial for trial in told if trial.knob == field]
            for arm in present:
                own = sorted((trial for trial in here if trial.arm == arm), key=lambda trial: trial.value)
                if not own:
                    continue
                colour, dash, marker = looks[arm]
                above = [_above(trial, told) for trial in own]
                values = [trial.value for trial in own]
                panel.plot(values, above, color=colour, ls=dash, lw=1.6, marker=marker, ms=4)
                for trial, score in zip(own, above, strict=True):
                    if trial.chosen:
                        panel.plot([trial.value], [score], "o", ms=11, mfc="none", mec=colour, mew=1.5)
                reached = ", ".join(
                    f"{declared(t.value)}{' (chosen)' if t.chosen else ''} {fixed(score, 4)}"
                    for t, score in zip(own, above, strict=True)
                )
                words.append(f"{arm}, {field}: {reached}")
            panel.set_xscale("log", base=2)
            panel.set_xticks(sorted({trial.value for trial in here}))
            panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: declared(value)))
            panel.xaxis.set_minor_locator(NullLocator())
            panel.tick_params(axis="x", labelrotation=30)
            panel.set_title(canvas.label(field, 34))
            panel.set_xlabel("value (log2 scale)")
            canvas.quiet(panel)
        for panel in panels[len(fields) :]:
            panel.set_visible(False)
        panels[0].set_ylabel(f"above the arm's lowest,\n{told[0].unit}")
        canvas.key(figure, present, looks, markers=True)
        described = f"Mean score above the arm's lowest, {told[0].unit}, by value. {'; '.join(words)}."
        return Picture(figure, name, "Tuning: score against value", described)


def _above(trial: TrialRow, trials: Sequence[TrialRow]) -> float:
    mean, best = trial.mean_score, best_score(trials, trial.scale, trial.arm)
    return math.nan if mean is None or best is None else mean - best
