"""The parts of a page in their order; a part that a study has nothing for becomes a line of the list at the end."""

from collections.abc import Sequence
from dataclasses import dataclass

from paribus.report import budgets, costs, envelopes, figures, noise, published, tables, tuning
from paribus.report.answers_section import answers_section
from paribus.report.blocks import Absent, Block, PageFigure, PageTable, Section, picture_figure
from paribus.report.by_seed import by_seed_table
from paribus.report.content import ReportContent
from paribus.report.estimates import estimates_table, spread_table
from paribus.report.evidence import Shown, may_compare
from paribus.report.overlap import overlap_section
from paribus.report.positions import grouping
from paribus.report.readings import fine_table, glance_table
from paribus.report.retrieval import retrieval_section
from paribus.report.robustness import robustness_section
from paribus.report.sensitivity import sensitivity_section
from paribus.report.tables import Table
from paribus.report.task_section import task_section
from paribus.report.trouble import diverged_table, spikes_sentence, spikes_table

Part = Section | Absent
_WAITS = "Withheld until the planned seeds are complete, or a declared look."
_OTHERS = "What is not due is left out: numbers of two arms side by side would be a difference that anyone can take."
_UNPROVEN = (
    "These runs were not made by paribus. What their files record is compared; that the arms of a pair shared initial "
    "weights, batches and their order is not proven, and what no file records may have differed."
)
_NO_CELL = "No cell has trained yet; `paribus run FILE` trains them."


@dataclass(frozen=True)
class Page:
    """Everything between the question and the footer, without markup."""

    first: PageFigure
    verdicts: Table
    sections: tuple[Section, ...]
    absent: tuple[Absent, ...]

    @property
    def pictures(self) -> list[PageFigure]:
        """The figures that are written to files of their own, in the page's order."""
        every = [self.first, *(figure for section in self.sections for figure in section.figures)]
        return [figure for figure in every if figure.picture is not None and figure.file]


def assemble(content: ReportContent, rows: Sequence[Shown]) -> Page:
    """The page of a content that went through `door.due`, with its `rows` from `evidence.shown_rows`."""
    parts: list[Part] = [
        _caveats(content),
        *([] if content.task is None else [task_section(content.task, rows)]),
        overlap_section(content.overlap, rows, _WAITS if _waits(rows) else ""),
        sensitivity_section(content.sensitivity, _WAITS if _waits(rows) else ""),
        _estimates(content, rows),
        _by_seed(content, rows),
        _noise(content),
        _loss(content, rows),
        _milestones(content, rows),
        _budgets(content, rows),
        *([robustness_section(content.robustness, _WAITS if _waits(rows) else "")] if content.task is None else []),
        _diagnostics(content, rows),
        *([] if content.task is None else [retrieval_section(content.retrieval)]),
        _interventions(content, rows),
        _cost(content, rows),
        answers_section(content, rows, _WAITS if _waits(rows) else ""),
        _tuning(content, rows),
        _published(content),
        _held_equal(content),
        _parameters(content),
        _seeds(content, rows),
        _looks(content),
        _facts(content),
        Section("repeat", "How to repeat it", code=content.repeat_command),
    ]
    verdicts = tables.without_empty_columns(tables.verdict_table(rows, content.parameters), keep=2)
    return Page(
        figures.differences_figure(rows, pairing_proven=content.pairing_proven),
        verdicts,
        tuple(part for part in parts if isinstance(part, Section)),
        tuple(part for part in parts if isinstance(part, Absent)),
    )


def _waits(rows: Sequence[Shown]) -> bool:
    return any(row.waiting for row in rows)


def _tables(anchor: str, found: Sequence[Table | None], style: str = "dense") -> tuple[PageTable, ...]:
    """Tables without the columns in which nothing stands, each under an anchor of its own."""
    held = [tables.without_empty_columns(table, keep=1) for table in found if table is not None and table.rows]
    return tuple(PageTable(f"{anchor}-{number}", table, style) for number, table in enumerate(held, 1))


def _caveats(content: ReportContent) -> Section:
    clean = () if content.caveats else ("No check raised a doubt. That is not proof that there is none.",)
    return Section("caveats", "What could still be wrong", clean, points=content.caveats)


def _estimates(content: ReportContent, rows: Sequence[Shown]) -> Part:
    spread = spread_table(rows, pairing_proven=content.pairing_proven)
    found = _tables("estimates", [estimates_table(rows, content.estimates, of_task=content.task is not None), spread])
    return Section("estimates", "Estimates", tables=found) if found else Absent("Estimates", _WAITS)


def _by_seed(content: ReportContent, rows: Sequence[Shown]) -> Part:
    title = "Paired differences by seed"
    drawn = figures.by_seed_figures(rows, pairing_proven=content.pairing_proven)
    found = _tables("by-seed", [by_seed_table(rows)])
    return Section("by-seed", title, figures=tuple(drawn), tables=found) if drawn or found else Absent(title, _WAITS)


def _noise(content: ReportContent) -> Part:
    title = "A/A: how much is noise"
    found = _tables("noise", [noise.noise_table(content.noise)])
    how = "No A/A arm ran, so nothing here says how little could be seen; declare one in the file."
    return Section("noise", title, tables=found) if found else Absent(title, how)


def _untrained(content: ReportContent) -> str:
    stale = sum(cell.state == "stale" for cell in content.cells)
    if stale:
        why = "the file or the code that made them has changed"
        return f"{stale} cells are stale: {why}. Run the study to train them anew."
    trained = any(cell.state in ("complete", "diverged") for cell in content.cells)
    return "Training runs are there; nothing of this kind is recorded of them." if trained else _NO_CELL


def _loss(content: ReportContent, rows: Sequence[Shown]) -> Part:
    drawn = figures.loss_figures(content, rows)
    title = "Loss curves"
    if not drawn:
        return Absent(title, _untrained(content))
    said = (spikes_sentence(content.spikes),) if content.pairing_proven else ()  # adopted results were not looked at
    found = _tables("spikes", [spikes_table(content.spikes, content.loss_unit)])
    return Section("loss", title, said, figures=tuple(drawn), tables=found)


def _milestones(content: ReportContent, rows: Sequence[Shown]) -> Part:
    drawn = figures.milestone_figures(content, rows)
    title = "Milestones"
    return Section("milestones", title, figures=tuple(drawn)) if drawn else Absent(title, _untrained(content))


def _budgets(content: ReportContent, rows: Sequence[Shown]) -> Part:
    title = "Beyond the budget"
    if not content.budget_gaps and not content.budget_summaries:
        how = (
            "Milestones are never extrapolated; train at least 3 budgets to their own end (`budgets_tokens = [...]` in "
            "[scales.NAME]; the scale's own budget is one of them)."
        )
        return Absent(title, _WAITS if _waits(rows) else how)
    tables_of = (
        budgets.multipliers_table(content.budget_summaries),
        envelopes.envelopes_table(content.budget_gaps, content.gap_forms, content.budget_summaries, content.loss_unit),
        budgets.gaps_table(content.budget_gaps, content.loss_unit),
    )
    found = _tables("budgets", tables_of)
    return Section("budgets", title, figures=tuple(budgets.gap_figures(content)), tables=found)


def _diagnostics(content: ReportContent, rows: Sequence[Shown]) -> Part:
    blocks = figures.diagnostic_blocks(content, rows)
    if not content.diagnostics and not content.route_changes:
        unread = ", ".join(block.title for block in blocks)
        how = f"Declared and not read yet: {unread}." if unread else "No diagnostic was read in this study."
        return Absent("Diagnostics", how)
    together = figures.divergence_block(content)
    blocks += [] if together is None else [together]
    fine = fine_table(content.diagnostics, content.diagnostic_texts)
    if fine is not None:
        title = f"Readings by head and by {grouping(content.diagnostics)}"
        blocks.append(Block(title, "", "", (), (PageTable("fine", fine),)))
    glances = []
    several = len(figures.scales_of(content)) > 1
    for scale in figures.scales_of(content):
        values = [value for value in content.diagnostics if value.scale == scale]
        table = glance_table(values, content.diagnostic_texts, figures.arms_of(content, scale))
        glances.append(None if table is None else tables.captioned(table, f", scale {scale}" if several else ""))
    sentence = "Readings of the trained models, layer by layer. They describe; none of them carries a verdict."
    return Section("diagnostics", "Diagnostics", (sentence,), tables=_tables("glance", glances), folded=tuple(blocks))


def _interventions(content: ReportContent, rows: Sequence[Shown]) -> Part:
    title = "Interventions at evaluation"
    blocks = figures.intervention_blocks(content, rows)
    waiting = _waits(rows)
    if not blocks:
        return Absent(title, _WAITS if waiting else "No intervention was made in this study.")
    sentence = "What a trained model loses when a part of it is changed at evaluation: what it relies on, no verdict."
    return Section("interventions", title, (sentence, *((_OTHERS,) if waiting else ())), folded=tuple(blocks))


def _cost(content: ReportContent, rows: Sequence[Shown]) -> Part:
    title = "Cost"
    if not content.costs:
        how = (
            "No step time is recorded beside a contrast: `paribus bench` measures arms side by side on one host. Wall "
            "times of training runs are no comparison."
        )
        return Absent(title, how)
    waits = _waits(rows)
    picture = costs.gains_picture(content.costs, "figure-cost", content.loss_unit)
    caption = "Markers: the mean difference; bars: its interval. Steps and seconds may disagree: both are told."
    drawn = () if picture is None else (picture_figure("", caption, picture, "cost"),)
    found = _tables(
        "cost",
        [
            costs.gains_table(content.costs, content.loss_unit),
            costs.machines_table(content.costs),
            costs.updates_table(content.updates),
            *costs.parts_tables(content.updates),
        ],
    )
    return Section("cost", title, (f"Gains: {_WAITS[0].lower()}{_WAITS[1:]}",) if waits else (), drawn, found)


def _tuning(content: ReportContent, rows: Sequence[Shown]) -> Part:
    title = "Tuning"
    if not content.trials and not content.tuning:
        how = "No field was searched in this study: every arm ran at the values that its file gives."
        return Absent(title, how)
    drawn = []
    scales = list(dict.fromkeys(trial.scale for trial in content.trials))
    for number, scale in enumerate(scales):
        arms = figures.arms_of(content, scale)
        own = [trial for trial in content.trials if trial.scale == scale]
        baseline = figures.baseline_of(rows, scale, arms)
        picture = tuning.trials_picture(own, arms, baseline, f"figure-tuning-{number}")
        if picture is not None:
            caption = (
                "Mean score over the tuning seeds, above the lowest of the same arm. Ring: "
                "the chosen value. An arm whose ring lies at an end of its line was not searched far enough."
            )
            stem = "tuning" if len(scales) == 1 else f"tuning-{number + 1}"
            drawn.append(picture_figure(f"Scale {scale}" if len(scales) > 1 else "", caption, picture, stem))
    absolute = [scale for scale in scales if may_compare(rows, scale)]
    found = _tables("tuning", [tuning.summaries_table(content.tuning), tuning.trials_table(content.trials, absolute)])
    return Section("tuning", title, figures=tuple(drawn), tables=found)


def _published(content: ReportContent) -> Part:
    title = "Published figures"
    found = _tables("published", [published.published_table(content.published)])
    if not found:
        return Absent(title, "No published figure is declared beside a contrast of this study.")
    drawn = []
    units = list(dict.fromkeys(row.unit for row in content.published))
    for number, unit in enumerate(units, 1):
        own = [row for row in content.published if row.unit == unit]
        picture = published.published_picture(own, f"figure-published-{number}")
        if picture is not None:
            caption = (
                "Bars: theirs at 1.96 of their standard errors, ours at its 95 % t interval, where they are known."
            )
            stem = "published" if len(units) == 1 else f"published-{number}"
            drawn.append(picture_figure("", caption, picture, stem))
    return Section("published", title, figures=tuple(drawn), tables=found)


def _held_equal(content: ReportContent) -> Part:
    proven = content.pairing_proven
    title = "What was held equal, and how it was proven" if proven else "What is recorded as held equal"
    said = () if proven else (_UNPROVEN,)
    shared = [entry for entry in content.held_equal if not entry.gate]
    gates = [entry for entry in content.held_equal if entry.gate]
    if not shared and not gates:
        return Absent(title, _untrained(content))
    folded = ()
    if gates:
        head = f"{len(gates)} gates, checked before training: laws of the mechanisms, pairs, norms"
        table = PageTable("gates", tables.held_equal_table(gates, "Gates before training"))
        folded = (Block(head, "", "", (), (table,)),)
    found = _tables("held", [tables.held_equal_table(shared, "Held equal" if proven else "Recorded equal")], style="")
    return Section("equal", title, said, tables=found, folded=folded)


def _parameters(content: ReportContent) -> Part:
    if not content.parameters:
        return Absent("Parameters", "No parameter has been counted yet.")
    sentence = (
        "Arms may differ in size by what the experiment declares; the verdict table repeats the difference beside each "
        "contrast."
    )
    found = _tables("parameter", [tables.parameters_table(content.parameters)])
    return Section("parameters", "Parameters", (sentence,), tables=found)


def _seeds(content: ReportContent, rows: Sequence[Shown]) -> Part:
    table = tables.without_empty_columns(tables.seeds_table(content.cells, content.loss_unit), keep=4)
    found = _tables("runs", [table, diverged_table(content.diverged)])
    said = (_OTHERS,) if not all(row.settled for row in rows) else ()
    return (
        Section("seeds", "Seeds", said, tables=found) if found else Absent("Seeds", "No training run is planned yet.")
    )


def _looks(content: ReportContent) -> Part:
    found = _tables("ledger", [tables.looks_table(content.looks)])
    return (
        Section("looks", "Looks", tables=found) if found else Absent("Looks", "Nobody has looked at the evidence yet.")
    )


def _facts(content: ReportContent) -> Part:
    title = "Corpus and environment"
    corpus = tables.facts_table("What the study reads", content.corpus)
    environment = tables.facts_table("Where and with what the study ran", content.environment)
    found = _tables("facts", [corpus, environment], style="facts")
    return Section("environment", title, tables=found) if found else Absent(title, "Nothing is recorded about them.")
