"""Cells become pairs, pairs become comparisons, comparisons become verdicts; and every look is recorded."""

from paribus.experiment import spec
from paribus.experiment.metrics import parse
from paribus.reading.cell import same_documents
from paribus.reading.informative import why_not_informative
from paribus.reading.study import ReadStudy
from paribus.stats.paired import PairedDifferences, interaction_differences, paired_differences
from paribus.stats.procedure import at_look
from paribus.stats.rule import Comparison, Rule, Verdict, Word
from paribus.stats.verdict import decide


def comparisons(study: ReadStudy) -> list[Comparison]:
    """Every contrast of the file with the pairs that are there, whether they count at the present look or not.

    Only complete and diverged cells make pairs.
    """
    experiment, looks = study.experiment, study.folder.looks()
    current = spec.rule_digest(experiment)
    planned = experiment.seeds.count
    # More pairs than are planned now: a look under other planned seeds, or a line that somebody edited.
    changed = any(
        look["rule_digest"] != current or max(look["pairs"].values()) > planned for look in looks if look["words"]
    )
    found = []
    for name, contrast in experiment.contrasts.items():
        arms = contrast_values(study, contrast)
        pairs = contrast_differences(study, contrast)
        # A pair has a difference only where each of its cells has a value.
        treatment, baseline, *minus = (tuple(v for s in pairs.seeds if (v := arm[s]) is not None) for arm in arms)
        seeds = experiment.seeds
        seen = {look["pairs"][name] for look in looks if look["words"].get(name)}
        stage_1 = seeds.extension
        rule = Rule(
            contrast.smallest_effect,
            contrast.design_effect,
            planned_seeds=seeds.count,
            looks=seeds.looks,
            stage_1_seeds=None if stage_1 is None else stage_1.stage_1_seeds,
            stage_1_alpha=None if stage_1 is None else stage_1.stage_1_alpha,
        )
        found.append(
            Comparison(
                name=name,
                treatment=contrast.treatment,
                baseline=contrast.baseline,
                minus_treatment=contrast.minus_treatment,
                minus_baseline=contrast.minus_baseline,
                scale=experiment.contrast_scale(contrast),
                metric=contrast.metric,
                unit=unit_of(experiment, contrast),
                primary=contrast.primary,
                rule=rule,
                differences=pairs,
                treatment_values=treatment,
                baseline_values=baseline,
                minus_treatment_values=minus[0] if minus else (),
                minus_baseline_values=minus[1] if minus else (),
                rule_changed_after_words=changed,
                verdict_seen_at=tuple(sorted(seen)),
                not_informative=why_not_informative(study, contrast, pairs),
            )
        )
    return found


def unit_of(experiment: spec.Experiment, contrast: spec.Contrast) -> str:
    """The unit of a contrast's differences: a loss is per token of a text, and per target of a task."""
    unit = spec.unit_of(contrast.metric)
    return "nats per target" if experiment.base.task is not None and unit == "nats per token" else unit


def contrast_values(study: ReadStudy, contrast: spec.Contrast) -> list[dict[int, float | None]]:
    """Metric by seed of each arm of the contrast, in the order of its formula.

    A seed at which the arms did not score the same documents is missing from the contrast.
    """
    scale = study.experiment.contrast_scale(contrast)
    apart = {*unequal_documents(study, contrast)}
    values = [values_by_seed(study, scale, arm, contrast.metric) for arm in contrast.arms]
    return [{seed: value for seed, value in of.items() if seed not in apart} for of in values]


def unequal_documents(study: ReadStudy, contrast: spec.Contrast) -> list[int]:
    """Seeds at which two cells of the contrast scored different documents of its split: no difference pairs them."""
    scale, split = study.experiment.contrast_scale(contrast), parse(contrast.metric).held_out_split
    groups = {s: [study.cells[scale, a, s, spec.STUDY] for a in contrast.arms] for s in study.experiment.seeds.numbers}
    return [seed for seed, cells in groups.items() if not same_documents(cells, split)]


def contrast_differences(study: ReadStudy, contrast: spec.Contrast) -> PairedDifferences:
    """The contrast's difference at each seed that has a cell of every arm; for an interaction that of two differences.

    A seed that lacks a cell is missing from this contrast only.
    """
    treatment, baseline, *minus = contrast_values(study, contrast)
    return interaction_differences(treatment, baseline, *minus) if minus else paired_differences(treatment, baseline)


def values_by_seed(study: ReadStudy, scale: str, arm: str, metric: str) -> dict[int, float | None]:
    """Metric by seed; None marks a diverged cell, absence an unfinished one."""
    cells = {seed: study.cells[scale, arm, seed, spec.STUDY] for seed in study.experiment.seeds.numbers}
    found = {seed: cell.final(metric) for seed, cell in cells.items() if cell.state == "complete"}
    # A complete cell without the metric has not diverged: it is missing from this contrast, and the report says so.
    values: dict[int, float | None] = {seed: value for seed, value in found.items() if value is not None}
    return values | {seed: None for seed, cell in cells.items() if cell.state == "diverged"}


def record_look(study: ReadStudy, verdicts: tuple[Verdict, ...], command: str, *, words: bool = True) -> None:
    """Append to the ledger that somebody saw this state of evidence, and its words unless none was shown (`words`)."""
    study.folder.append_look(
        command,
        pairs={verdict.name: verdict.seeds for verdict in verdicts},
        words={v.name: v.word.value for v in verdicts if words and v.word is not Word.WAITING},
        rule_digest=spec.rule_digest(study.experiment),
    )


def verdicts_of(study: ReadStudy) -> tuple[Verdict, ...]:
    """The verdicts at the last declared look, or stage of an extension, that the pairs reach."""
    return decide([at_look(comparison, study.experiment.seeds.numbers) for comparison in comparisons(study)])
