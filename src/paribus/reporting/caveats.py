"""What could still be wrong with a study, each said only where it is the case."""

from collections.abc import Iterator

from paribus.experiment import spec
from paribus.experiment.calibration import State, calibration_of
from paribus.experiment.metrics import parse
from paribus.optim.config import OptimiserConfig
from paribus.reading.cell import ENDED, UNUSED
from paribus.reading.environments import environment_sentences
from paribus.reading.evidence import unequal_documents
from paribus.reading.study import ReadStudy
from paribus.report.evidence import may_compare, shown
from paribus.report.of_tasks import CAUTION
from paribus.report.task_arm_tables import leak_sentences
from paribus.reporting.chance import chance_rows
from paribus.reporting.equality import complete_groups, held_equal
from paribus.stats.rule import Verdict, Word

ONE_COLLECTION = (
    "Seeds are random, the held-out documents are these; another collection of documents may answer differently."
)
FEW_DOCUMENTS = 100
"""held-out documents below which the report says so"""
_NAMED = 3
"""cells that a sentence names"""
_RATES = (
    ("depth read", "depth queries", "depth_read_learning_rate"),
    ("scalar", "learned scalars", "scalar_learning_rate"),
)
"""roles that only a mechanism has: the role, what it is called in a sentence, and its rate"""


def caveats(study: ReadStudy, verdicts: tuple[Verdict, ...]) -> list[str]:
    """What could still be wrong, each said only where it is the case."""
    found = []
    states = {state: study.count(state) for state in ("missing", "started", "running", "stale", "diverged", *UNUSED)}
    for state, count in states.items():
        if count:
            found.append(f"{count} of {len(study.cells)} cells are {state}.")
    found += [*study.doubts, *_unused(study), *_not_here(study), *_without_metric(study), *_unequal_documents(study)]
    found += [*_unequal_milestones(study), *_without_digests(study)]
    unequal = [held for held in held_equal(study) if not held.holds]
    found += [f"Not held equal: {held.what} ({held.proof})." for held in unequal]
    found += [text for name, contrast in study.experiment.contrasts.items() for text in _mixed(study, name, contrast)]
    found += environment_sentences({_named(c.key): c.record for c in study.cells.values() if c.state in ENDED})
    rules = [look["rule_digest"] for look in study.folder.looks()]
    rules.append(study.plan.get("rule_digest", spec.rule_digest(study.experiment)))
    if any(rule != spec.rule_digest(study.experiment) for rule in rules):
        found.append("The rule (contrasts, margins or planned seeds) was changed after cells had run; see the looks.")
    found += _untuned_rates(study)
    found.append(f"Numbers hold for this precision: mode {study.experiment.execution.mode}, float32 throughout.")
    splits = dict.fromkeys(parse(c.metric).held_out_split for c in study.experiment.contrasts.values())
    of_task = study.experiment.base.task is not None
    for split in splits if not of_task else ():
        counts = [n for cell in study.cells.values() if (n := cell.number_of_documents(split)) is not None]
        if counts and min(counts) < FEW_DOCUMENTS:
            found.append(
                f"Only {min(counts)} documents of the {split} split were scored: another collection may well answer "
                "differently."
            )
    if study.experiment.tuning is None:
        found.append(
            "Nothing was tuned for this file by paribus; equal tuning of the arms is the experimenter's to show."
        )
    if any(contrast.minus_treatment is not None for contrast in study.experiment.contrasts.values()):
        budgets = any(scale.budgets_tokens for scale in study.experiment.scales.values())
        where = "see the budgets" if budgets else "which are not measured here"
        found.append(
            f"An interaction is a statement about one scale. This one is in nats; in compute multipliers ({where}) its "
            "sign may be another, and only where both agree is it a finding about the mechanisms."
        )
    if any(contrast.metric.startswith("validation.") for contrast in study.experiment.contrasts.values()):
        found.append("A verdict on the validation split is only as good as that split's distance from tuning.")
    found += _of_task(study, verdicts) if of_task else [ONE_COLLECTION]
    if any(verdict.word is Word.WAITING for verdict in verdicts):
        found.append("Not all planned seeds are there yet; no verdict is due.")
    return found


def _of_task(study: ReadStudy, verdicts: tuple[Verdict, ...]) -> Iterator[str]:
    """What holds of a synthetic task, and of no text. A leak comes first, once it is due."""
    rows = [shown(verdict) for verdict in verdicts]
    arms = chance_rows(study, {*study.experiment.seeds.numbers})
    yield from leak_sentences([row for row in arms if may_compare(rows, row.scale)])
    yield CAUTION
    yield "Every seed has rows of its own: the verdict is about new rows of this task at these knobs and this budget."
    calibration = calibration_of(study.experiment)
    if calibration.state not in (State.CALIBRATED, State.NOT_APPLICABLE):
        yield f"{calibration.sentence[:1].upper()}{calibration.sentence[1:].rstrip('.')}."


def _mixed(study: ReadStudy, name: str, contrast: spec.Contrast) -> Iterator[str]:
    """A contrast whose cells ran on different code, packages or processors says so."""
    records = [cell.record for group in complete_groups(study, contrast) for cell in group]
    versions: dict[str, set[str]] = {"code": {record["code_version"] for record in records}}
    for record in records:
        for what in record["environment"].keys() - {"code version"}:
            versions.setdefault(what, set()).add(record["environment"][what])
    for what, values in sorted(versions.items()):
        if len(values) > 1:
            found = ", ".join(sorted(values))
            yield f"Contrast {name} mixes cells that differ in what they ran on, {what}: {found}."


def _untuned_rates(study: ReadStudy) -> Iterator[str]:
    """Rates of a mechanism's own parameters that nobody set: one sentence a role, with the arms that have it."""
    default = OptimiserConfig()
    for role, what, field in _RATES:
        rate = getattr(default, field)
        arms = [
            arm
            for arm in study.experiment.arms
            if getattr(study.experiment.arm(arm).optimiser, field) == rate
            and arm not in _tuned(study, f"optimiser.{field}")
            and any(a["arm"] == arm and role in a["parameters_by_role"] for a in study.plan["arms"])
        ]
        if arms:
            yield (
                f"The learning rate of {what} in {', '.join(arms)} is the default {rate:g}, which is untuned; "
                "such rates can matter more than a mechanism."
            )


def _unused(study: ReadStudy) -> Iterator[str]:
    """A finished cell that cannot be evidence is named with why; none of its numbers is shown."""
    for key, cell in study.cells.items():
        if cell.state not in UNUSED:
            continue
        why = "; ".join((*cell.alterations, *cell.faults)[:3])
        after = " after the cell had ended" if cell.alterations else ""
        yield f"Cell {_named(key)} is not used: {why}{after}. Delete its folder to train it again."


def _not_here(study: ReadStudy) -> Iterator[str]:
    """A contrast that lacks pairs says at which seeds, and which cells it waits for."""
    for name, contrast in study.experiment.contrasts.items():
        scale = study.experiment.contrast_scale(contrast)
        cells = [
            study.cells[scale, arm, s, spec.STUDY] for s in study.experiment.seeds.numbers for arm in contrast.arms
        ]
        lost = [cell for cell in cells if cell.state not in ENDED]
        if lost:
            seeds = len({cell.key[2] for cell in lost})
            named = ", ".join(f"{_named(cell.key)} ({cell.state})" for cell in lost[:_NAMED])
            yield (
                f"Contrast {name} lacks {seeds} of {study.experiment.seeds.count} pairs: {named}{_more(len(lost))}. "
                "Nothing is concluded from those seeds."
            )


def _unequal_documents(study: ReadStudy) -> Iterator[str]:
    """Losses on different documents make no pair."""
    for name, contrast in study.experiment.contrasts.items():
        if seeds := unequal_documents(study, contrast):
            split = parse(contrast.metric).held_out_split
            yield (
                f"Contrast {name}: the cells of seed {', '.join(map(str, seeds))} did not score the same documents of "
                f"the {split} split; nothing is concluded from them."
            )


def _without_digests(study: ReadStudy) -> Iterator[str]:
    """Rows whose digests were not kept could have been changed without a trace."""
    ended = [
        c for c in study.cells.values() if c.state in ENDED and c.folder is not None and not c.folder.keeps_digests
    ]
    if ended:
        named = ", ".join(_named(cell.key) for cell in ended[:_NAMED])
        yield (
            f"No digests of the rows were kept with {named}{_more(len(ended))}: a later change would not be noticed."
        )


def _more(count: int) -> str:
    return f" and {count - _NAMED} more" if count > _NAMED else ""


def _without_metric(study: ReadStudy) -> Iterator[str]:
    """A complete cell that holds no number for a contrast's metric is missing from that contrast."""
    for name, contrast in study.experiment.contrasts.items():
        scale = study.experiment.contrast_scale(contrast)
        cells = [
            study.cells[scale, arm, s, spec.STUDY] for arm in contrast.arms for s in study.experiment.seeds.numbers
        ]
        without = [c for c in cells if c.state == "complete" and c.final(contrast.metric) is None]
        if without:
            named = ", ".join(_named(cell.key) for cell in without[:_NAMED]) + _more(len(without))
            yield f"Contrast {name}: no {contrast.metric} in the rows of {named}; nothing is concluded from them."


def _unequal_milestones(study: ReadStudy) -> Iterator[str]:
    """Cells of a contrast that were measured at different budgets are compared at the last one only."""
    for name, contrast in study.experiment.contrasts.items():
        budgets = {
            tuple(sorted({(m.split, m.tokens_seen) for m in cell.measurements}))
            for group in complete_groups(study, contrast)
            for cell in group
        }
        if len(budgets) > 1:
            shown = "; ".join(
                ", ".join(f"{split} at {tokens:,}" for split, tokens in at) or "none" for at in sorted(budgets)
            )
            yield f"Contrast {name}: its cells were measured at different numbers of tokens ({shown})."


def _named(key: spec.Key) -> str:
    scale, arm, seed, variant = key
    return f"{scale}/{arm}/{seed}" + (f" ({variant})" if variant else "")


def _tuned(study: ReadStudy, field: str) -> set[str]:
    """Arms for which the study itself searched this field."""
    knobs = {} if study.experiment.tuning is None else study.experiment.tuning.knobs
    return {arm for arm, knob in knobs.items() if knob == field}
