"""From records to runs: what each says about arm, scale, seed, host and metrics, as the mapping points to it."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from paribus.adopting.mapping import FILE, AdoptionMapping, Column
from paribus.adopting.records import Left, Record, Value, number, typed

ONE_SCALE = "one scale"
"""the scale of runs whose mapping has no column for it"""


@dataclass(frozen=True)
class Run:
    """One training run of the other harness."""

    source: str
    arm: str
    scale: str
    """scale, and behind a comma the recipe where the mapping has one"""
    seed: int | None
    """None where none is recorded"""
    host: str | None
    parameters: float | None
    tokens: float | None
    seconds: float | None
    values: Mapping[str, float | None]
    """by metric, in its unit; NaN or infinite as recorded, None where there is no number"""
    fields: Mapping[str, Value]
    """all that was recorded, by path"""


def value_of(record: Record | Run, column: Column | None) -> Value:
    """What the record says at a column: None where there is nothing, or where the pattern does not match."""
    if column is None:
        return None
    if column.path is None:
        return column.value
    found = record.fields.get(column.path)
    if column.pattern is None or found is None:
        return found
    match = re.search(column.pattern, text_of(found))
    return typed(match[1]) if match is not None and match[1] is not None else None


def text_of(value: Value) -> str:
    """As a person would write it: 24 for 24.0, true for True."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.12g}"
    return "not recorded" if value is None else str(value)


def to_runs(records: Iterable[Record], mapping: AdoptionMapping) -> tuple[list[Run], list[Left]]:
    """Every record as a run; those that do not say which arm, scale or seed they are, with that reason."""
    runs: list[Run] = []
    left: list[Left] = []
    for record in records:
        reason = _why_not(record, mapping)
        if reason:
            left.append(Left(record.source, reason))
        else:
            runs.append(_run(record, mapping))
    return runs, left


def _why_not(record: Record, mapping: AdoptionMapping) -> str:
    columns = mapping.columns
    for name, column in (("arm", columns.arm), ("scale", columns.scale), ("recipe", columns.recipe)):
        if column is not None and value_of(record, column) is None:
            return f"no {name} at {where(column)}"
    seed = value_of(record, columns.seed)
    if seed is not None and _whole(seed) is None:
        return f"the seed at {where(columns.seed)} is no whole number: {text_of(seed)}"
    return ""


def _whole(value: Value) -> int | None:
    """The integer, without a way through floating point, where 64-bit seeds would collide."""
    if isinstance(value, str):
        return int(value) if re.fullmatch(r"\s*[+-]?[0-9]+\s*", value) else None
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    return value if not isinstance(value, bool) else None


def where(column: Column | None) -> str:
    """How a column is named in a sentence."""
    if column is None or column.path is None:
        return "a constant"
    return f"'{column.path}'" + (f" by the pattern {column.pattern}" if column.pattern else "")


def _run(record: Record, mapping: AdoptionMapping) -> Run:
    columns = mapping.columns
    scale = ONE_SCALE if columns.scale is None else text_of(value_of(record, columns.scale))
    if columns.recipe is not None:
        recipe = text_of(value_of(record, columns.recipe))
        scale = recipe if columns.scale is None else f"{scale}, {recipe}"
    host = value_of(record, columns.host)
    return Run(
        source=record.source,
        arm=text_of(value_of(record, columns.arm)),
        scale=scale,
        seed=_whole(value_of(record, columns.seed)),
        host=None if host is None else text_of(host),
        parameters=number(value_of(record, columns.parameters)),
        tokens=number(value_of(record, columns.tokens)),
        seconds=number(value_of(record, columns.seconds)),
        values={name: number(value_of(record, metric.column)) for name, metric in mapping.metrics.items()},
        fields=record.fields,
    )


def matches(path: str, patterns: Iterable[str]) -> bool:
    """Whether a path is one of the patterns, in which * stands for any text."""
    return any(fnmatchcase(path, pattern) for pattern in patterns)


OURS = ("tokens", "parameters", "host")
"""names of ours that [equal] and also_differs may use where no field of theirs is called so"""


def is_ours(path: str, mapping: AdoptionMapping) -> bool:
    """Whether a path is a name of ours that the mapping has a column for."""
    return path in OURS and getattr(mapping.columns, path) is not None


def setting(run: Run, path: str) -> Value:
    """A recorded field, or one of ours by its name."""
    if path not in run.fields and path in OURS:
        ours: Value = getattr(run, path)
        return ours
    return run.fields.get(path)


def no_settings(mapping: AdoptionMapping) -> set[str]:
    """Paths that say what a run is or how it ended, and so are expected to differ between two runs."""
    columns = mapping.columns
    # Tokens stay among the settings under their own check; arm and scale make the pair.
    named = (columns.arm, columns.scale, columns.recipe, columns.seed, columns.host, columns.parameters)
    named += (columns.tokens, columns.seconds, *(metric.column for metric in mapping.metrics.values()))
    return {FILE, *(column.path for column in named if column is not None and column.path is not None)}
