"""What the records of a run folder must look like to be used. A person may have edited them, a disk may have torn them.

Each check answers with what is wrong, in words for the report, and nothing where all is well: a record that is not as
it was written costs what it was the record of, never the report.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]+$")]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0)]
COST_FORMAT = 2
"""version of cost/<scale>.json: 2 has blocks, CPU time, the profiler's peak and the parts of an update"""


class _Record(BaseModel):
    """Further fields are kept and not looked at: a later version may write more."""

    model_config = ConfigDict(frozen=True, strict=True, extra="allow")


class StudyIdentity(_Record):
    """study.json"""

    study: str
    format: Annotated[int, Field(ge=1)]


class CorpusLink(_Record):
    """corpus.json"""

    corpus: str
    key: str
    digest: str


class CellRecord(_Record):
    """cell.json"""

    scale: str
    arm: str
    seed: int
    variant: str = ""
    digest: Digest
    initial_digests: Annotated[dict[str, str], Field(min_length=1)]
    """of each tensor at step 0"""
    environment: dict[str, str]
    code_version: str


class Ended(_Record):
    """DIVERGED, and the part of DONE that both have"""

    row_digests: dict[str, str] | None = None
    """of every row file; None in a cell that ended before they were kept"""


class Done(Ended):
    """DONE"""

    steps: Annotated[int, Field(ge=1)]
    tokens_seen: Annotated[int, Field(ge=1)]
    train_seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    batch_digest: str
    final_tensors_digest: str


class MarkedFile(_Record):
    """A file of a checkpoint"""

    bytes: Count
    digest: Digest


class Marker(_Record):
    """checkpoints/step-<number>/COMPLETE"""

    step: Count
    cell: str
    """name of the cell's folder"""
    files: dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$")], MarkedFile]


class RowLine(_Record):
    """A line of rows.jsonl"""

    file: str
    """such as "likelihood/test-00000112.parquet" """
    digest: Digest


class AnswersRecord(_Record):
    """tasks/<name>-<step>.json; `paribus.runs.answers` adds what identifies it"""

    suite: str
    task: str
    variant: str
    step: Count
    items: Count
    row_digest: Digest
    kind: str
    """choices, exact, letters or generated"""
    chance: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]
    """of guessing, by the table that the suite goes by"""
    settings: dict[str, Any]
    """everything that decides what was asked and how; equal for two arms that are compared"""
    counts: dict[str, Count] = Field(default_factory=dict)
    """of items that something happened to: problems, near ties, cropped shots; by name"""


class SliceLine(_Record):
    """A slice of a task in a line of metrics.jsonl"""

    targets: Annotated[int, Field(ge=1)]
    loss_nats: Annotated[float, Field(allow_inf_nan=False)]
    floor_nats: Annotated[float, Field(allow_inf_nan=False)]


class MetricsStep(_Record):
    """Of a line of metrics.jsonl, what training needs to go on"""

    step: Annotated[int, Field(ge=1)]


class MetricsLine(MetricsStep):
    """A line of metrics.jsonl"""

    tokens_seen: Annotated[int, Field(ge=1)]
    loss_nats_per_token: Annotated[float, Field(allow_inf_nan=False)]
    slices: dict[str, SliceLine] = Field(default_factory=dict)


class LookLine(_Record):
    """A line of looks.jsonl"""

    time: str
    command: str
    pairs: dict[str, Count]
    """by contrast"""
    words: dict[str, str]
    """by contrast; each has its number of pairs"""
    rule_digest: str


class CostIdentity(_Record):
    """What a measurement of time depends on"""

    arms: dict[str, str]
    code: dict[str, str]


class CostColumn(_Record):
    """What was timed as one column"""

    arm: str
    way: str
    """how it computed; `paribus.costing.ways`"""
    again: bool
    """whether it is the second copy of a baseline (A/A)"""


class CostRecord(_Record):
    """cost/<scale>.json"""

    format: Annotated[int, Field(ge=COST_FORMAT, le=COST_FORMAT)]
    identity: CostIdentity
    host: str
    columns: Annotated[dict[str, CostColumn], Field(min_length=2)]
    ways: Annotated[list[str], Field(min_length=1)]
    """in the order in which they are told"""
    comparisons: list[Annotated[list[str], Field(min_length=2, max_length=2)]]
    """[treatment, baseline], by column"""
    wall_seconds: dict[str, Annotated[list[Positive], Field(min_length=2)]]
    """[turn] by column; turns 2b and 2b + 1 are those of block b, which runs forwards and then backwards"""
    cpu_seconds: dict[str, list[Annotated[float, Field(ge=0, allow_inf_nan=False)]]]
    """the same, of the process on all of its threads"""
    bytes_for_backward: dict[str, Count]
    """by column that is no second copy; likewise the next two"""
    peak_bytes: dict[str, Count]
    parts: dict[str, dict[str, Annotated[float, Field(ge=0, allow_inf_nan=False)]]]
    """seconds of each part of an update, which took place apart from the timed ones"""
    part_order: list[str]
    """parts as they follow one another in an update"""
    parts_in: str
    """the clock of the parts: "processor time" or "wall time" """
    batch_tokens: dict[str, Annotated[int, Field(ge=1)]]
    """of an update, by arm"""


class PlannedCell(_Record):
    """A cell of plan.json"""

    scale: str
    arm: str
    seed: int
    variant: str = ""
    digest: Digest


class PlannedArm(_Record):
    """An arm at a scale of plan.json"""

    scale: str
    arm: str
    declared: str
    parameters_by_role: dict[str, Count]
    training_flops_per_token: Positive
    code_roots: list[str]
    code_digest: str


class PlannedGate(_Record):
    """A gate of plan.json"""

    subject: str
    name: str
    detail: str
    passed: bool


class PlannedDiagnostic(_Record):
    """A diagnostic of plan.json"""

    diagnostic: str
    title: str
    sentence: str
    unit: str
    correctness_only: bool


class PlannedIntervention(_Record):
    """An intervention of plan.json"""

    intervention: str
    title: str
    sentence: str


class SplitCounts(_Record):
    """Of a split of the corpus"""

    documents: Count
    tokens: Count
    bytes: Count


class PlannedSlice(_Record):
    """A slice of the task of plan.json: losses in nats per target"""

    chance: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    floor: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    threshold: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    shortcuts: dict[str, Annotated[float, Field(ge=0, allow_inf_nan=False)]]


class PlannedTask(_Record):
    """The synthetic task of plan.json"""

    name: str
    title: str
    sentence: str
    primary: str
    knobs: dict[str, Any]
    order: list[str]
    """of the slices"""
    slices: Annotated[dict[str, PlannedSlice], Field(min_length=1)]
    row_length: Count


class PlannedCorpus(_Record):
    """The corpus of plan.json"""

    declared: dict[str, Any]
    digest: str
    counts: dict[str, SplitCounts]
    dropped: dict[str, Count]
    vocabulary_size: Count
    task: PlannedTask | None = None


_PLANNED_LISTS = {
    "cells": PlannedCell,
    "arms": PlannedArm,
    "gates": PlannedGate,
    "diagnostics": PlannedDiagnostic,
    "interventions": PlannedIntervention,
}
_OPTIONAL = ("interventions", "corpus")
"""a plan of an earlier version has no interventions; one that was never written has no corpus"""
EMPTY_PLAN: Mapping[str, Any] = {**{name: [] for name in _PLANNED_LISTS}, "environment": {}, "corpus": {}}


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def fault(kind: Any, value: object) -> str:
    """What of `value` is not as `kind` says, the first thing only; empty where it is."""
    try:
        _adapter(kind).validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        return f"{place}: {first['msg']}" if place else str(first["msg"])
    return ""


def cost_fault(value: Any) -> str:
    """As `fault`, of cost/<scale>.json: each column has every turn of whole blocks, and what is compared was timed."""
    if isinstance(value, Mapping) and "format" not in value and "seconds" in value:
        return f"format: of an earlier version, which timed no blocks; this one reads format {COST_FORMAT}"
    return fault(CostRecord, value) or next(_cost_gaps(value), "")


def _cost_gaps(value: Mapping[str, Any]) -> Iterator[str]:
    columns = value["columns"].keys()
    times = ("wall_seconds", "cpu_seconds")
    gaps = [f"{name}: has other columns than were timed" for name in times if value[name].keys() != columns]
    yield from gaps
    turns = {len(seconds) for name in times for seconds in value[name].values()}
    if len(turns) > 1:
        yield "wall_seconds, cpu_seconds: the columns have different numbers of turns"
    if any(count % 2 for count in turns):
        yield "wall_seconds, cpu_seconds: the last block is not whole"
    if not {column for pair in value["comparisons"] for column in pair} <= columns:
        yield "comparisons: names a column that was not timed"
    plain = {name for name, column in value["columns"].items() if not column["again"]}
    for name in ("bytes_for_backward", "peak_bytes", "parts"):
        if not plain <= value[name].keys():
            yield f"{name}: a column is missing"
    if not {part for parts in value["parts"].values() for part in parts} <= {*value["part_order"]}:
        yield "part_order: a part is missing"
    if not {column["way"] for column in value["columns"].values()} <= {*value["ways"]}:
        yield "ways: one is missing"
    if not {column["arm"] for column in value["columns"].values()} <= value["batch_tokens"].keys():
        yield "batch_tokens: an arm is missing"


def metrics_fault(lines: Sequence[Any], steps: int) -> str:
    """As `fault`, of metrics.jsonl: every line is an update with a finite loss, one after another, and the last is
    update `steps`."""
    last = lines[0]["step"] - 1 if lines and not fault(MetricsLine, lines[0]) else 0  # a branch leaves its trunk later
    for number, line in enumerate(lines, 1):
        if wrong := fault(MetricsLine, line):
            return f"line {number}: {wrong}"
        if line["step"] != last + 1:
            return f"line {number}: update {line['step']} comes after {last}"
        last = line["step"]
    return "" if last == steps else f"ends at update {last} of {steps}"


def look_fault(value: Any) -> str:
    """As `fault`, of a line of looks.jsonl: a word belongs to a number of pairs."""
    found = fault(LookLine, value)
    if not found and not value["words"].keys() <= value["pairs"].keys():
        return "words: a contrast has a word and no number of pairs"
    return found


def usable_plan(value: Any) -> tuple[dict[str, Any], list[str]]:
    """The entries of plan.json that are as paribus writes them, and what was left out of it, in words."""
    if not isinstance(value, dict):
        return dict(EMPTY_PLAN), ["all of it (no table)"]
    plan, said = {**value, **EMPTY_PLAN}, []
    for name, kind in _PLANNED_LISTS.items():
        entries = value.get(name, [] if name in _OPTIONAL else None)
        if not isinstance(entries, list):
            said.append(f"{name} (missing, or no list)")
            continue
        faults = [fault(kind, entry) for entry in entries]
        plan[name] = [entry for entry, wrong in zip(entries, faults, strict=True) if not wrong]
        said += [f"{name}.{index} ({wrong})" for index, wrong in enumerate(faults) if wrong]
    for name, kind in (("environment", dict[str, str]), ("corpus", PlannedCorpus)):
        found = value.get(name, {} if name in _OPTIONAL else None)
        wrong = "" if found == {} else fault(kind, found)
        plan[name] = {} if wrong else found
        said += [f"{name} ({wrong})"] * bool(wrong)
    return plan, said
