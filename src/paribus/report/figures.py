"""Which figures a study's page shows, each with the caption that says what it may and may not be read as."""

import re
from collections.abc import Sequence

from paribus.report.blocks import Block, PageFigure, PageTable, picture_figure
from paribus.report.by_seed import by_seed
from paribus.report.content import DiagnosticText, InterventionText, NoiseRow, ReportContent
from paribus.report.curves import BLOCKS, WINDOW, loss_curves, milestones
from paribus.report.depth import diagnostic_svgs, largest
from paribus.report.differences import paired_differences
from paribus.report.divergences import divergences_svg
from paribus.report.evidence import Shown, may_compare, may_span, waits
from paribus.report.interventions import FOREST_ROWS, changes_table, finite, forest_svg, rows_of
from paribus.report.numbers import significant
from paribus.report.positions import grouping, positions_svg
from paribus.report.readings import by_arm_table, divergence_table, is_divergence
from paribus.stats.rounding import declared, percent

FIRST = 3
"""contrasts in the page's first figure, which fits a screen together with the question; the rest follow below"""
_ONE_ARM = "Until the planned seeds are complete, or a declared look, losses are of one arm: no difference is shown."
_COUNTED = "Pairs beyond the look are left out, and so are differences between arms until no pair waits."
_TWIN, _REPEAT = "perturbed twin", "repeat"


def arms_of(content: ReportContent, scale: str) -> list[str]:
    """The arms of a scale in the order the study declares them: parameters first, then whatever else names one."""
    named = [entry.arm for entry in content.parameters if entry.scale == scale]
    named += [entry.arm for entry in content.cells if entry.scale == scale]
    named += [entry.arm for entry in content.curves if entry.scale == scale]
    named += [entry.arm for entry in content.measurements if entry.scale == scale]
    return list(dict.fromkeys(named))


def scales_of(content: ReportContent) -> list[str]:
    """The scales of the study in the order it declares them."""
    named = [entry.scale for entry in (*content.parameters, *content.cells, *content.curves, *content.measurements)]
    return list(dict.fromkeys([*named, *(value.scale for value in content.diagnostics)]))


def baseline_of(rows: Sequence[Shown], scale: str, arms: Sequence[str]) -> str:
    """The arm that others are drawn against: the primary's baseline, else the first contrast's, else the first arm."""
    here = sorted((row for row in rows if row.scale == scale), key=lambda row: not row.primary)
    return next((row.reference_arm for row in here if row.reference_arm in arms), arms[0] if arms else "")


def differences_figure(rows: Sequence[Shown], *, pairing_proven: bool = True) -> PageFigure:
    """The paired differences of the contrasts that the page begins with, wide and narrow."""
    first = rows[:FIRST]
    picture = paired_differences(first, "figure-differences")
    narrow = paired_differences(first, "figure-differences-narrow", narrow=True)
    rest = len(rows) - len(first)
    more = f" {rest} more {'contrasts stand' if rest > 1 else 'contrast stands'} below." if rest else ""
    return PageFigure(
        "", _differences_caption(first, pairing_proven) + more, picture.svg, narrow.svg, picture, "verdict"
    )


def _differences_caption(rows: Sequence[Shown], pairing_proven: bool) -> str:
    drawn = [row for row in rows if not row.waiting]
    margins = ", ".join(dict.fromkeys(f"±{declared(row.smallest_effect)} {row.unit}" for row in rows))
    parts = []
    if drawn:
        parts.append(
            "Each dot is one seed: the two arms shared initial weights and batches."
            if pairing_proven
            else "Each dot is one pair of runs, joined by their recorded seed; that the two shared initial weights and "
            "batches is not proven."
        )
        levels = list(dict.fromkeys(percent(row.interval_confidence) for row in drawn if row.interval is not None))
        level = levels[0] + " t interval" if len(levels) == 1 else "t interval at the level written beside it"
        parts.append(f"Diamond and bar: their mean and its {level}." if levels else "Diamond: their mean.")
    if any(row.treatment_diverged or row.baseline_diverged for row in drawn):
        parts.append("Cross at the edge: pairs lost to divergence, on the side they count for.")
    if len(drawn) < len(rows):
        parts.append("Nothing about a difference is shown before the planned seeds or a declared look.")
    if rows:
        parts.append(f"Grey band: the smallest effect that matters, {margins}, as the file declares it.")
    return " ".join(parts)


def by_seed_figures(rows: Sequence[Shown], *, pairing_proven: bool = True) -> list[PageFigure]:
    """Every contrast again, if the first figure could not hold all, and the differences in the order of the seeds."""
    figures = []
    if len(rows) > FIRST and not all(row.waiting for row in rows):
        picture = paired_differences(rows, "figure-all-differences")
        figures.append(picture_figure("", _differences_caption(rows, pairing_proven), picture, "differences"))
    told = [row for row in rows if row.finite_differences]
    if told:
        caption = (
            "One panel a contrast, seeds in their order. Line and shade: the mean and its interval; dashed: "
            "the smallest effect on either side of 0; a cross at the lower edge marks a pair that diverged."
        )
        figures.append(picture_figure("", caption, by_seed(told, "figure-by-seed"), "differences-by-seed"))
    return figures


def noise_bars(noise: Sequence[NoiseRow], scale: str) -> list[tuple[str, float]]:
    """The A/A that stands beside loss differences: perturbed twins, or repeats where none ran, in their unit."""
    for kind in (_TWIN, _REPEAT):
        found = [
            row.sd_of_difference
            for row in noise
            if (row.kind, row.scale) == (kind, scale)
            and (row.unit == "nats per token" or row.metric.endswith(".nll"))  # of a task it is per target
            and row.sd_of_difference
        ]
        if found:
            return [(kind, max(found))]
    return []


def loss_figures(content: ReportContent, rows: Sequence[Shown]) -> list[PageFigure]:
    """Loss curves, one figure a scale."""
    figures = []
    for number, scale in enumerate(scales_of(content)):
        curves = [curve for curve in content.curves if curve.scale == scale and curve.tokens]
        if not curves:
            continue
        arms = arms_of(content, scale)
        curves.sort(key=lambda curve: (arms.index(curve.arm), curve.seed))
        compare = may_compare(rows, scale) and len({curve.arm for curve in curves}) > 1
        bars, unit = noise_bars(content.noise, scale) if compare else [], content.loss_unit
        baseline = baseline_of(rows, scale, arms)
        spikes = [row for row in content.spikes if row.scale == scale and not row.variant]
        stem = f"figure-loss-{number}"
        picture = loss_curves(curves, baseline, stem, differences=compare, noise=bars, unit=unit, spikes=spikes)
        updates = max(len(curve.tokens) for curve in curves)
        block = -(-updates // BLOCKS)
        caption = "Lower is better. " if compare else ""
        caption += (
            f"Thin lines: seeds, each point the mean of {block} update{'s' if block > 1 else ''}. "
            "Thick lines: the mean over seeds, where an arm has all of them, smoothed (in this figure only) by a "
            f"moving average over {block * WINDOW} updates. "
            "The axis leaves out the first fall from the logarithm of the vocabulary; a cross marks a run that stops "
            "early. "
        )
        caption += "A triangle marks where a loss spike begins. " if spikes else ""
        caption += "Differences are smoothed the same way." if compare else _withheld(rows, scale)
        for kind, sd in bars:
            caption += (
                f" Bar at the right edge, A/A: two standard deviations ({significant(2 * sd)} {unit}) to "
                f"either side of 0 of what a {kind} of one and the same arm makes of the held-out loss at the end; to "
                "be held against the thin lines."
            )
        figures.append(picture_figure(f"Scale {scale}", caption, picture, file_name("loss", content, scale)))
    return figures


def milestone_figures(content: ReportContent, rows: Sequence[Shown]) -> list[PageFigure]:
    """Test loss at each milestone, one figure a scale."""
    figures = []
    for number, scale in enumerate(scales_of(content)):
        here = [m for m in content.measurements if m.scale == scale and m.split == "test"]
        if not here:
            continue
        arms = arms_of(content, scale)
        here.sort(key=lambda m: (arms.index(m.arm), m.seed, m.tokens_seen))
        compare = may_compare(rows, scale)
        lost = [(cell.arm, cell.seed) for cell in content.cells if (cell.scale, cell.state) == (scale, "diverged")]
        stem, baseline = f"figure-milestones-{number}", baseline_of(rows, scale, arms)
        picture = milestones(here, baseline, stem, lost=lost, differences=compare, unit=content.loss_unit)
        caption = "Lower is better. " if compare else ""
        caption += (
            "Arms at one budget stand side by side. Dots: seeds; larger markers: their mean, filled once the schedule "
            "is complete, hollow mid-schedule; no mean is drawn or told over the seeds that are left when one diverged "
            "or is not there yet. "
            "Mid-schedule values are not what a run of that length would reach, and carry no verdict. "
        )
        caption += _withheld(rows, scale)
        figures.append(picture_figure(f"Scale {scale}", caption, picture, file_name("milestones", content, scale)))
    return figures


def _withheld(rows: Sequence[Shown], scale: str) -> str:
    """What the losses of a scale are without, and until when; empty where nothing is withheld."""
    return "" if may_compare(rows, scale) else _ONE_ARM if waits(rows, scale) else _COUNTED


def file_name(stem: str, content: ReportContent, scale: str) -> str:
    """The stem of a figure's file: with the scale where the study has several, whatever characters it is called by."""
    scales = scales_of(content)
    if len(scales) < 2:
        return stem
    plain = [re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-").lower() for name in scales]
    unique = plain.count(plain[scales.index(scale)]) == 1 and plain[scales.index(scale)]
    return f"{stem}-{unique or scales.index(scale) + 1}"


def diagnostic_blocks(content: ReportContent, rows: Sequence[Shown]) -> list[Block]:
    """Every diagnostic that has a text or a value; one that only checks correctness is a sentence, not a figure."""
    texts = {text.diagnostic: text for text in content.diagnostic_texts}
    names = list(dict.fromkeys([*texts, *(value.diagnostic for value in content.diagnostics)]))
    blocks = []
    for number, name in enumerate(names):
        text = texts.get(name, DiagnosticText(name, name, "", False))
        values = [value for value in content.diagnostics if value.diagnostic == name]
        if not values and content.diagnostics:
            continue  # no arm of this study has what it reads
        if not values:
            blocks.append(Block(text.title, text.sentence, "No value has been read."))
        elif text.correctness_only:
            worst = {
                arm: significant(largest(v for v in values if v.arm == arm))
                for arm in dict.fromkeys(v.arm for v in values)
            }
            note = (
                "A correctness check of the arms in which it is true by construction, and no evidence for anything. "
                f"Largest absolute value ({values[0].unit}): " + ", ".join(f"{arm} {of}" for arm, of in worst.items())
            )
            blocks.append(Block(text.title, text.sentence, note))
        else:
            blocks.append(_diagnostic_block(content, rows, text, number))
    return blocks


def _diagnostic_block(content: ReportContent, rows: Sequence[Shown], text: DiagnosticText, number: int) -> Block:
    drawn, tables = [], []
    for at, scale in enumerate(scales_of(content)):
        here = [v for v in content.diagnostics if (v.diagnostic, v.scale) == (text.diagnostic, scale)]
        if not here:
            continue
        arms = arms_of(content, scale)
        baseline, spans = baseline_of(rows, scale, arms), may_span(rows, scale)
        stem, heading = f"figure-diagnostic-{number}-{at}", f"Scale {scale}"
        if not is_divergence(here[0]):  # drawn together, with their nulls
            drawn += [
                PageFigure(heading, f"{caption} Descriptive only.", svg)
                for svg, caption in diagnostic_svgs(here, arms, baseline, stem, bands=spans)
            ]
        if (svg := positions_svg(here, arms, baseline, f"{stem}-positions")) is not None:
            by_bucket = f"Mean over layers and seeds, by {grouping(here)}. Descriptive only."
            drawn.append(PageFigure(heading, by_bucket, svg))
        caption = f"{text.title}, by arm{_at_scale(content, scale)}"
        if (table := by_arm_table(here, arms, caption, intervals=spans)) is not None:
            tables.append(PageTable(f"diagnostic-{number}-{at}", table))
    together = any(value.diagnostic == text.diagnostic and is_divergence(value) for value in content.diagnostics)
    note = "Drawn below, with its nulls." if together else ""
    return Block(text.title, text.sentence, note, tuple(drawn), tuple(tables))


def divergence_block(content: ReportContent) -> Block | None:
    """Divergences of depth routes beside their nulls; None where no arm has two routes to compare."""
    drawn, tables = [], []
    for at, scale in enumerate(scales_of(content)):
        values = [value for value in content.diagnostics if value.scale == scale]
        changes = [change for change in content.route_changes if change.scale == scale]
        arms = arms_of(content, scale)
        svg = divergences_svg(values, changes, arms, f"figure-divergence-{at}")
        if svg is None:
            continue
        caption = (
            "Jensen-Shannon divergence per token, then averaged; lines are means over seeds, dotted ones over pairs of "
            "seeds. At most ln 2 = 0.693 nats, which is 1 bit. Descriptive only."
        )
        drawn.append(PageFigure(f"Scale {scale}", caption, svg))
        tables.append(PageTable(f"divergence-{at}", divergence_table(values, changes, arms)))
    sentence = (
        "A divergence between the routes of two roles means little alone. Its nulls: an attention route against an MLP "
        "route, which nobody claims to serve one purpose, and one route in two seeds of the same arm."
    )
    return (
        Block("Divergence of depth routes, and its nulls", sentence, "", tuple(drawn), tuple(tables)) if drawn else None
    )


def intervention_blocks(content: ReportContent, rows: Sequence[Shown]) -> list[Block]:
    """Every intervention that was made, a forest and a table a scale."""
    texts = {text.intervention: text for text in content.intervention_texts}
    made = dict.fromkeys(value.intervention for value in content.interventions)
    blocks = []
    for number, name in enumerate(made):
        text = texts.get(name, InterventionText(name, name, ""))
        drawn, tables = [], []
        for at, scale in enumerate(scales_of(content)):
            own = [v for v in content.interventions if (v.intervention, v.scale) == (name, scale)]
            arms = arms_of(content, scale)
            found = rows_of(finite(own), arms)
            if not found:
                continue
            spans = may_span(rows, scale)
            bars = "; bars: its t interval over seeds (95 %)" if spans else ""
            caption = f"Dots: seeds; markers: their mean{bars}. Descriptive only."
            if len(found) > FOREST_ROWS:
                caption += f" The {FOREST_ROWS} largest of {len(found)} changes; the table has all."
            stem = f"figure-intervention-{number}-{at}"
            baseline, title = baseline_of(rows, scale, arms), f"{text.title}: change in NLL"
            svg = forest_svg(found, arms, baseline, stem, title, intervals=spans, unit=content.loss_unit)
            drawn.append(PageFigure(f"Scale {scale}", caption, svg))
            table = changes_table(found, f"{title}{_at_scale(content, scale)}", intervals=spans, unit=content.loss_unit)
            tables.append(PageTable(f"intervention-{number}-{at}", table))
        blocks.append(
            Block(text.title, text.sentence, "" if drawn else "No finite change.", tuple(drawn), tuple(tables))
        )
    return blocks


def _at_scale(content: ReportContent, scale: str) -> str:
    return f", scale {scale}" if len(scales_of(content)) > 1 else ""
