"""From a run folder that was read back to what the report shows. Loads no torch."""

from pathlib import Path

from paribus.experiment import spec
from paribus.reading.study import ReadStudy
from paribus.report.content import (
    ArmParameters,
    DiagnosticText,
    InterventionText,
    ReportContent,
)
from paribus.report.evidence import shown
from paribus.report.overlap import due_overlap
from paribus.reporting.answers import answers_content
from paribus.reporting.budgets import budgets
from paribus.reporting.caveats import caveats
from paribus.reporting.costs import costs, updates
from paribus.reporting.equality import held_equal
from paribus.reporting.estimates import across_scales, estimates
from paribus.reporting.mechanism import diagnostics, interventions, route_changes
from paribus.reporting.noise import noise
from paribus.reporting.overlap import overlap, overlap_caveats
from paribus.reporting.published import published
from paribus.reporting.records import cell_row, corpus, curve, distinct_looks, pair_rows
from paribus.reporting.retrieval import retrieval
from paribus.reporting.robustness import robustness
from paribus.reporting.sensitivity import sensitivity
from paribus.reporting.task_study import task_content
from paribus.reporting.trouble import curve_until_divergence, diverged_rows, spike_rows, trouble_caveats
from paribus.stats.rule import Verdict
from paribus.tuning.reading import ReadTuning
from paribus.tuning.showing import trial_rows, tuning_caveats, tuning_summaries


def report_content(
    study: ReadStudy,
    verdicts: tuple[Verdict, ...],
    repeat_command: str,
    experiment_folder: Path = Path(),
    tuning: ReadTuning | None = None,
) -> ReportContent:
    """Everything that the report shows, from rows and records; published figures are read beside the file."""
    waiting = {seed for verdict in verdicts for seed in verdict.uncounted_seeds}
    planned = {*study.experiment.seeds.numbers} - waiting
    found = budgets(study, verdicts)
    self_noise = tuple(noise(study, verdicts))
    complete = [
        cell
        for cell in study.cells.values()
        if cell.state == "complete" and cell.key[3] == spec.STUDY and cell.key[2] in planned
    ]
    lost = [c for c in study.cells.values() if c.state == "diverged" and c.key[3] == spec.STUDY and c.key[2] in planned]
    until = (curve_until_divergence(cell) for cell in lost)
    spikes = tuple(spike_rows([*study.cells.values()]))
    without_overlap = tuple(overlap(study, verdicts))
    told = overlap_caveats(due_overlap(without_overlap, [shown(verdict) for verdict in verdicts]))
    changes, lost_routes = route_changes(complete)
    of_task = task_content(study, verdicts, planned)
    answered = answers_content(study, verdicts, complete)
    values = tuple(value for cell in complete for value in diagnostics(study, cell))
    return ReportContent(
        study=study.experiment.study,
        question=study.experiment.question,
        verdicts=verdicts,
        curves=(*(curve(cell) for cell in complete), *(found for found in until if found is not None)),
        measurements=tuple(m for cell in complete for m in cell.measurements),
        diagnostics=values,
        diagnostic_texts=tuple(
            DiagnosticText(d["diagnostic"], d["title"], d["sentence"], d["correctness_only"])
            for d in study.plan["diagnostics"]
        ),
        held_equal=tuple(held_equal(study)),
        parameters=tuple(
            ArmParameters(
                a["scale"],
                a["arm"],
                a["parameters_by_role"],
                sum(a["parameters_by_role"].values()),
                a["training_flops_per_token"],
            )
            for a in study.plan["arms"]
        ),
        cells=tuple(cell_row(cell) for cell in study.cells.values()),
        looks=tuple(distinct_looks(study)),
        environment=study.plan["environment"],
        corpus=corpus(study),
        caveats=(
            *caveats(study, verdicts),
            *trouble_caveats(study, spikes),
            *told,
            *lost_routes,
            *answered.caveats,
            *(tuning_caveats(tuning) if tuning is not None else ()),
        ),
        repeat_command=repeat_command,
        pairs=tuple(pair_rows(study)),
        interventions=tuple(value for cell in complete for value in interventions(cell)),
        intervention_texts=tuple(
            InterventionText(i["intervention"], i["title"], i["sentence"])
            for i in study.plan.get("interventions", [])  # a plan of an earlier version has none
        ),
        route_changes=tuple(changes),
        estimates=(*estimates(study, verdicts), *across_scales(study, verdicts)),
        overlap=without_overlap,
        noise=self_noise,
        budget_gaps=found.gaps,
        gap_forms=found.forms,
        budget_summaries=found.summaries,
        costs=tuple(costs(study, verdicts)),
        updates=tuple(updates(study)),
        tasks=answered.tasks,
        task_pairs=answered.task_pairs,
        core=answered.core,
        core_differences=answered.core_differences,
        core_shares=answered.core_shares,
        letters=answered.letters,
        counterfactuals=answered.counterfactuals,
        robustness=tuple(robustness(study, verdicts)) if of_task is None else (),
        sensitivity=tuple(sensitivity(study, verdicts)),
        task=of_task,
        retrieval=tuple(retrieval(study, values)),
        spikes=spikes,
        diverged=tuple(diverged_rows(study)),
        published=tuple(published(study, verdicts, self_noise, experiment_folder)),
        trials=() if tuning is None else trial_rows(tuning),
        tuning=() if tuning is None else tuning_summaries(tuning),
    )
