"""Beyond the budget: the gap at every budget that was trained to its own end, and how far three forms disagree after.

Every point is a cell that finished its own schedule. Nothing is drawn or told beyond four times the largest budget
(rules of evidence, section 6).
"""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter, NullLocator

from paribus.report import canvas
from paribus.report.blocks import PageFigure, picture_figure
from paribus.report.canvas import INK, Picture
from paribus.report.content import BudgetGap, BudgetSummary, GapForm, ReportContent
from paribus.report.envelopes import beyond, envelope_at, furthest_budget, in_words
from paribus.report.numbers import interval, short_count, significant
from paribus.report.tables import Column, Table
from paribus.stats.rounding import MISSING, decimals_for, fixed

_POINTS = 100
"""of a fitted form that a figure draws"""


def gap_figures(content: ReportContent) -> list[PageFigure]:
    """One figure a contrast and scale that has budgets of its own."""
    drawn = []
    pairs = list(dict.fromkeys((gap.contrast, gap.scale) for gap in content.budget_gaps))
    for number, key in enumerate(pairs):
        gaps = sorted(
            (gap for gap in content.budget_gaps if (gap.contrast, gap.scale) == key), key=lambda gap: gap.budget_tokens
        )
        forms = [form for form in content.gap_forms if (form.contrast, form.scale) == key]
        summary = next((of for of in content.budget_summaries if (of.contrast, of.scale) == key), None)
        limit = furthest_budget(gaps, content.budget_summaries, *key)
        caption = (
            "Dots: seeds; diamonds: their mean with its t interval; every point finished its own schedule. Lines: "
            "forms fitted seed by seed, and the band from the lowest to the highest bound of all of them. Nothing is "
            "said right of the dotted limit, four times the largest budget. Below 0 the treatment's loss is lower. "
        )
        if summary is not None and summary.dependent:
            caption += "The smaller budgets are cool-down branches of one trunk and so depend on each other. "
        caption += " ".join(dict.fromkeys(form.note for form in forms if form.note))
        picture = gaps_picture(gaps, forms, limit, f"figure-budgets-{number}", content.loss_unit)
        stem = "budgets" if len(pairs) == 1 else f"budgets-{number + 1}"
        drawn.append(picture_figure(f"{key[0]}, scale {key[1]}", caption, picture, stem))
    return drawn


def gaps_picture(
    gaps: Sequence[BudgetGap], forms: Sequence[GapForm], furthest: float, name: str, unit: str = "nats per token"
) -> Picture:
    """Gap of one contrast at one scale (`unit`) against budget; nothing is drawn beyond `furthest` tokens."""
    first, looks = gaps[0], canvas.look_of([form.form for form in forms], "")
    with canvas.style():
        figure = Figure(figsize=(canvas.WIDTH_INCHES * 0.8, 3.3), layout="constrained")
        panel = figure.subplots()
        inside = [_within(form, furthest) for form in forms]
        _envelope(panel, [form for form in inside if form.budgets_tokens])
        for form in inside:
            colour, dash, _ = looks[form.form]
            panel.plot(form.budgets_tokens, form.mean, color=colour, ls=dash, lw=1.8)
        for gap in gaps:
            panel.plot(
                [gap.budget_tokens] * len(gap.differences),
                gap.differences,
                "o",
                ms=3.6,
                mfc=INK,
                mec="none",
                alpha=0.45,
            )
            if gap.interval is not None:
                panel.plot([gap.budget_tokens] * 2, gap.interval, color=INK, lw=1.6)
            if gap.mean is not None:
                panel.plot([gap.budget_tokens], [gap.mean], "D", ms=6, color=INK)
        panel.axhline(0, color=INK, lw=1.0, alpha=0.75)
        panel.axvline(furthest, color=INK, lw=1.0, ls=(0, (2, 2)), alpha=0.7)
        _axis(panel, [gap.budget_tokens for gap in gaps], furthest, unit)
        if forms:
            canvas.key(figure, [form.form for form in forms], looks)
        title = f"{first.contrast}: difference against training budget"
        return Picture(figure, name, title, _in_words(gaps, inside, furthest, unit))


def _within(form: GapForm, furthest: float) -> GapForm:
    """The form up to the limit, thinned to what a screen can show."""
    held = [i for i, budget in enumerate(form.budgets_tokens) if budget <= furthest * (1 + 1e-9)]
    step = max(1, -(-len(held) // _POINTS))
    held = [i for i in held if i % step == 0 or i == held[-1]]
    cut = {field: tuple(getattr(form, field)[i] for i in held) for field in ("budgets_tokens", "mean", "low", "high")}
    return GapForm(form.contrast, form.scale, form.form, note=form.note, **cut)


def _envelope(panel: Axes, forms: Sequence[GapForm]) -> None:
    """From the lowest lower to the highest upper bound of all forms, on one grid."""
    grid = sorted({budget for form in forms for budget in form.budgets_tokens})
    found = [of for budget in grid if (of := envelope_at(forms, budget)) is not None]
    budgets, low, high = ([getattr(of, name) for of in found] for name in ("budget_tokens", "low", "high"))
    panel.fill_between(budgets, low, high, color=INK, alpha=0.1, lw=0)


def _axis(panel: Axes, budgets: Sequence[int], furthest: float, unit: str) -> None:
    panel.set_xscale("log")
    panel.set_xlim(min(budgets) / 1.25, furthest * 1.12)
    ticks = sorted({*budgets, furthest})
    panel.set_xticks(ticks)
    names = {tick: short_count(tick) + ("\nlimit" if tick == furthest else "") for tick in ticks}
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: names.get(value, short_count(value))))
    panel.xaxis.set_minor_locator(NullLocator())
    panel.xaxis.set_minor_formatter(NullFormatter())
    panel.set_xlabel("training tokens of a finished schedule (log scale)")
    panel.set_ylabel(f"difference, {unit}")
    canvas.quiet(panel)


def gaps_table(gaps: Sequence[BudgetGap], unit: str = "nats per token") -> Table:
    """The measured gaps in `unit`, a row a contrast and budget."""
    columns = (
        Column("contrast"),
        Column("scale"),
        Column("budget", "tokens", numeric=True),
        Column("mean difference", unit, numeric=True),
        Column("interval", unit, numeric=True),
        Column("seeds", numeric=True),
    )
    rows = []
    for gap in gaps:
        width = (gap.interval[1] - gap.interval[0]) / 4 if gap.interval else None
        digits = decimals_for(width)
        rows.append(
            (
                gap.contrast,
                gap.scale,
                short_count(gap.budget_tokens),
                fixed(gap.mean, digits, signed=True),
                interval(gap.interval, digits),
                str(len(gap.differences)),
            )
        )
    note = (
        "Treatment minus baseline; lower is better. Each cell finished its own schedule. Intervals are at the level of "
        "the contrast's verdict."
    )
    return Table("Measured at each budget", columns, tuple(rows), note)


def multipliers_table(summaries: Sequence[BudgetSummary]) -> Table:
    """The compute multiplier of each contrast: how many times the tokens the baseline needs for the same loss."""
    columns = (
        Column("contrast"),
        Column("scale"),
        Column("compute multiplier", numeric=True),
        Column("interval", numeric=True),
        Column("method"),
        Column("budgets"),
        Column("what follows"),
    )
    rows = tuple(
        (
            of.contrast,
            of.scale,
            significant(of.compute_multiplier),
            open_interval(of.interval),
            of.method or MISSING,
            "branches of one trunk, dependent" if of.dependent else "separate runs",
            of.sentence or MISSING,
        )
        for of in summaries
    )
    return Table("Compute multiplier", columns, rows, "Above 1: the baseline needs more tokens for the same loss.")


def open_interval(bounds: tuple[float | None, float | None] | None) -> str:
    """An interval either end of which may be unbounded."""
    if bounds is None:
        return MISSING
    low, high = bounds
    if low is None and high is None:
        return "unbounded"
    return f"{'unbounded' if low is None else significant(low)} to {'unbounded' if high is None else significant(high)}"


def _in_words(gaps: Sequence[BudgetGap], forms: Sequence[GapForm], furthest: float, unit: str) -> str:
    measured = "; ".join(
        f"at {short_count(gap.budget_tokens)} tokens {fixed(gap.mean, 4, signed=True)}" for gap in gaps
    )
    fitted = "; ".join(
        f"{form.form}: {significant(form.mean[-1])} at {short_count(form.budgets_tokens[-1])} tokens"
        for form in forms
        if form.budgets_tokens
    )
    told = f" Forms, {unit}: {fitted}." if fitted else " No form was fitted."
    if span := in_words(beyond(forms, max(gap.budget_tokens for gap in gaps), furthest)):
        told += f" Envelope of all forms, {unit}: {span}."
    return f"Mean difference in {unit}: {measured}.{told} Nothing is said beyond {short_count(furthest)} tokens."
