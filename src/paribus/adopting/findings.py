"""What a folder of foreign results is silent about, or says without meaning to: findings about the whole folder."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from paribus.adopting.mapping import FILE, AdoptionMapping, Column
from paribus.adopting.pairing import cells
from paribus.adopting.records import Record, number
from paribus.adopting.runs import Run, is_ours, matches, no_settings, text_of, value_of, where
from paribus.errors import nearest
from paribus.stats.power import count_of

A_FEW = 6
"""rows or fields that a sentence names before it counts the rest; all are in the JSON"""


class Severity(Enum):
    """What a finding does to a conclusion."""

    NOTHING = "nothing can be concluded"
    LIMITS = "limits what can be concluded"
    NOTE = "note"


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong, missing or worth knowing."""

    severity: Severity
    what: str
    """a few words, the same for every finding of its kind"""
    sentence: str
    rows: tuple[str, ...] = ()
    """sources of the records that it concerns"""
    contrast: str = ""
    """name of the compared contrast; empty where it concerns the folder"""


def some(items: Iterable[str]) -> str:
    """The first of them, and how many more there are."""
    every = list(items)
    return ", ".join(every[:A_FEW]) + (f" and {len(every) - A_FEW} more" if len(every) > A_FEW else "")


def standing(mapping: AdoptionMapping) -> list[Finding]:
    """What no folder of result files can show, whatever is in it."""
    found = [
        Finding(
            Severity.LIMITS,
            "rule written afterwards",
            "Contrasts, margins and the primary were written down in the mapping, after the runs had ended"
            + (
                "; planned_seeds is taken on trust."
                if mapping.planned_seeds is not None
                else ", and no number of planned seeds is known: that nobody stopped at a good moment cannot be shown."
            ),
        ),
        Finding(
            Severity.LIMITS,
            "pairing not proven",
            "The files do not prove that paired runs share initial values and batches: pairs are formed by what was "
            "recorded.",
        ),
    ]
    return found + [Finding(Severity.LIMITS, "caveat", caveat) for caveat in mapping.caveats]


def missing_columns(records: Sequence[Record], mapping: AdoptionMapping) -> list[Finding]:
    """Paths of the mapping that no record has, with the nearest path that one has."""
    known = {path for record in records for path in record.fields}
    found = []
    for key, path in _paths(mapping):
        if path not in known and not (key == "equal.fields" and is_ours(path, mapping)):
            found.append(
                Finding(
                    Severity.LIMITS,
                    "key without a column",
                    f"{key}: no record has '{path}' ({nearest(path, known - {FILE})}); nothing was read or checked by "
                    "it.",
                )
            )
    return found


def _paths(mapping: AdoptionMapping) -> list[tuple[str, str]]:
    """(key in the mapping, path) of everything that points into a record."""
    columns: list[tuple[str, Column | None]] = [
        (f"columns.{name}", getattr(mapping.columns, name)) for name in type(mapping.columns).model_fields
    ]
    columns += [(f"metrics.{name}.column", metric.column) for name, metric in mapping.metrics.items()]
    for name, label in mapping.labels.items():
        columns += [(f"labels.{name}.column", label.column), (f"labels.{name}.measured", label.measured)]
    found = [(key, column.path) for key, column in columns if column is not None and column.path is not None]
    found += [("equal.fields", path) for path in mapping.equal.fields]
    for name, metric in mapping.metrics.items():
        found += [(f"metrics.{name}.comparable_within", path) for path in metric.comparable_within]
    return found + [(f"declared.{arm}", path) for arm, paths in mapping.declared.items() for path in paths]


def label_drift(records: Sequence[Record], mapping: AdoptionMapping) -> list[Finding]:
    """Names that promise a number which the measurement does not keep, and names that could not be checked."""
    found = []
    for name, label in mapping.labels.items():
        unchecked = []
        for record in records:
            promised = number(value_of(record, label.column))
            measured = number(value_of(record, label.measured))
            if promised is None or measured is None:
                unchecked.append(record.source)
            elif not abs(measured - promised * label.factor) <= label.tolerance * promised * label.factor:
                assert label.column.path is not None
                found.append(
                    Finding(
                        Severity.LIMITS,
                        "label drift",
                        f"{name}: '{text_of(record.fields.get(label.column.path))}' promises "
                        f"{promised * label.factor:g}, measured at {where(label.measured)} is {measured:g}.",
                        (record.source,),
                    )
                )
        if unchecked:
            found.append(
                Finding(
                    Severity.NOTE,
                    "label not checked",
                    f"{name}: {count_of(len(unchecked), 'record')} without both numbers.",
                    tuple(unchecked),
                )
            )
    return found


def unused_arms(runs: Sequence[Run], mapping: AdoptionMapping) -> list[Finding]:
    """Runs of arms that no contrast names."""
    named = {arm for contrast in mapping.contrasts.values() for arm in (contrast.treatment, contrast.baseline)}
    others = [run for run in runs if run.arm not in named]
    if not others:
        return []
    arms = dict.fromkeys(run.arm for run in others)
    sentence = f"{count_of(len(others), 'run')} of arms that no contrast names: {some(arms)}."
    return [Finding(Severity.NOTE, "arm in no contrast", sentence, tuple(run.source for run in others))]


@dataclass(frozen=True)
class Repeats:
    """An accidental A/A: one arm, one scale, one seed, run more than once. Values in the metric's unit."""

    scale: str
    arm: str
    metric: str
    unit: str
    differences: tuple[float, ...]
    """each later run minus the first"""
    sd_of_difference: float | None
    """sqrt 2 times the sd over the runs: of a difference of two of them; None where all are identical"""
    sources: tuple[str, ...]
    differing: tuple[str, ...] = ()
    """recorded settings in which the runs differ, so that it may be no A/A"""


def accidental_repeats(runs: Sequence[Run], mapping: AdoptionMapping) -> list[Repeats]:
    """Cells that were run more than once, by metric. Runs without a recorded seed are not repeats of one another."""
    found = []
    for (scale, arm, seed), repeated in cells(runs).items():
        for name, metric in mapping.metrics.items():
            pairs = [(run.source, value) for run in repeated if _finite(value := run.values[name])]
            if seed is None or len(pairs) < 2:
                continue
            values = [value for _, value in pairs if value is not None]
            mean = sum(values) / len(values)
            variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
            found.append(
                Repeats(
                    scale=scale,
                    arm=arm,
                    metric=name,
                    unit=metric.unit,
                    differences=tuple(value - values[0] for value in values[1:]),
                    sd_of_difference=math.sqrt(2 * variance) if max(values) > min(values) else None,
                    sources=tuple(source for source, _ in pairs),
                    differing=_differing(repeated, mapping),
                )
            )
    return found


def repeats_as_findings(repeats: Sequence[Repeats]) -> list[Finding]:
    """What an accidental A/A says, and what it does not."""
    found = []
    for one in repeats:
        head = f"{one.arm} at {one.scale} was run {len(one.sources)} times with one seed: {one.metric} "
        if one.sd_of_difference is None:
            text = "is identical to the last digit. Either a file was stored twice or nothing was random; no noise."
        else:
            unlike = some(one.differing)
            doubt = (
                f" It is one only if these recorded fields, which differ, do not matter: {unlike}." if unlike else ""
            )
            text = (
                f"differs by up to {max(map(abs, one.differences)):.3g} {one.unit}, sd of a difference "
                f"{one.sd_of_difference:.3g}: an A/A by accident. It measures what changes within one seed; noise "
                f"between seeds is not in it.{doubt} The first run in file order is the one that counts."
            )
        found.append(Finding(Severity.NOTE, "accidental A/A", head + text, one.sources))
    return found


def _differing(repeated: Sequence[Run], mapping: AdoptionMapping) -> tuple[str, ...]:
    """Settings in which runs of one cell differ, the budget among them."""
    excluded = no_settings(mapping)
    paths = sorted({path for run in repeated for path in run.fields} - excluded)
    settings = [path for path in paths if not matches(path, mapping.equal.ignore)]
    found = [path for path in settings if len({text_of(run.fields.get(path)) for run in repeated}) > 1]
    budgets = {run.tokens for run in repeated}
    return (*found, *(["tokens"] if len(budgets) > 1 else []))


def other_scales(runs: Sequence[Run], mapping: AdoptionMapping) -> list[Finding]:
    """Metrics that are another quantity at another scale, so that their differences cannot be held side by side."""
    found = []
    for name, metric in mapping.metrics.items():
        for path in metric.comparable_within:
            scored = [run for run in runs if run.values[name] is not None]
            by_scale = {
                scale: sorted({text_of(run.fields.get(path)) for run in scored if run.scale == scale})
                for scale in dict.fromkeys(run.scale for run in scored)
            }
            if len({tuple(values) for values in by_scale.values()}) > 1:
                of = "; ".join(f"{scale}: {' and '.join(values)}" for scale, values in by_scale.items())
                found.append(
                    Finding(
                        Severity.NOTHING,
                        "scales not comparable",
                        f"{name} is not one quantity across scales ({path} is {of}): nothing can be concluded from "
                        "how its difference changes with scale.",
                        tuple(run.source for run in scored),
                    )
                )
    return found


def _finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)
