"""The mapping file of `paribus adopt`: where another harness keeps what a paired contrast needs. A strict TOML schema.

Unknown keys, wrong types, NaN and infinity are refused. What the files cannot say themselves (what matters, which runs
are compared, which settings must be equal, how noisy a metric is known to be) is written here, once, by a person.
"""

import re
from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from paribus.errors import ExperimentFileError, nearest
from paribus.refusal import read_toml, refusal

FILE = "@file"
"""the path that stands for the name of the file a record came from"""
Text = Annotated[str, Field(min_length=1)]
Texts = Annotated[tuple[Text, ...], Field(strict=False)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=60)]
Positive = Annotated[float, Field(gt=0.0)]


class Table(BaseModel):
    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


def _pattern(text: str) -> str:
    try:
        groups = re.compile(text).groups
    except re.error as error:
        raise ValueError(f"{text!r} is no regular expression: {error}") from None
    if groups != 1:
        raise ValueError(f"{text!r} needs exactly one group, it has {groups}")
    return text


Pattern = Annotated[str, BeforeValidator(lambda value: _pattern(value) if isinstance(value, str) else value)]


class Column(Table):
    """Where a value stands in their record. A text alone is a path."""

    path: Text | None = None
    """dotted path in a JSON record ("config.depth"), heading of a CSV column, or "@file" for the file's name"""
    pattern: Pattern | None = None
    """regular expression with one group: the part of the text at `path` that is meant, such as "seed(\\d+)" """
    value: str | int | float | None = None
    """the same value for every record, in place of a path"""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.path is None) == (self.value is None):
            raise ValueError("give either path or value")
        if self.pattern is not None and self.path is None:
            raise ValueError("a pattern needs a path")
        return self


def _column(value: object) -> object:
    return {"path": value} if isinstance(value, str) else value


AnyColumn = Annotated[Column, BeforeValidator(_column)]


class Columns(Table):
    """What a run is, by our names."""

    arm: AnyColumn
    """the variant that was trained; contrasts name its values"""
    scale: AnyColumn | None = None
    """size or setting within which arms are compared, such as the depth"""
    recipe: AnyColumn | None = None
    """what else separates runs that may not be compared, such as the version of the training script"""
    seed: AnyColumn | None = None
    """whole number; runs of one scale, recipe and seed make a pair"""
    host: AnyColumn | None = None
    """machine or accelerator; times of two hosts are never compared"""
    parameters: AnyColumn | None = None
    """number of trained parameters"""
    tokens: AnyColumn | None = None
    """training tokens of the run; must be equal within a pair unless the contrast lets them differ"""
    seconds: AnyColumn | None = None
    """training time of the run"""


class Metric(Table):
    """A number that runs are judged by."""

    column: AnyColumn
    """where it stands"""
    lower_is_better: bool
    """direction of better"""
    smallest_effect: Positive
    """what matters, in the metric's unit"""
    design_effect: Positive
    """what power is computed for; larger than smallest_effect"""
    unit: Text
    """as it is printed behind a number"""
    comparable_within: Texts = ()
    """paths that must be equal for two runs' values to be the same quantity, such as the number of scored items"""
    noise_sd: Positive | None = None
    """a public figure: standard deviation of this metric over runs of one arm, in the metric's unit"""
    noise_source: Text | None = None
    """where that figure comes from, and for what it holds"""
    noise_runs: Annotated[int, Field(ge=2)] | None = None
    """number of runs that it was estimated from"""

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        if self.design_effect <= self.smallest_effect:
            raise ValueError(f"design_effect {self.design_effect} must exceed smallest_effect {self.smallest_effect}")
        if (self.noise_sd is None) != (self.noise_source is None):
            raise ValueError("noise_sd and noise_source belong together: a figure without a source is not used")
        if self.noise_runs is not None and self.noise_sd is None:
            raise ValueError("noise_runs without noise_sd")
        return self


class Contrast(Table):
    """Treatment minus baseline on one metric, at every scale that has runs of either."""

    treatment: Text
    """value of the column `arm`"""
    baseline: Text
    """value of the column `arm`"""
    metric: Name
    """a table of [metrics]"""
    primary: bool = False
    """exactly one contrast is; the others get words only after it"""
    primary_scale: Text | None = None
    """the scale that the primary is decided at; needed where it has several"""
    scales: Texts = ()
    """scales to compare at; empty takes every scale that has a run of either arm"""
    also_differs: Texts = ()
    """paths in which the arms may differ because that is the question; * stands for any text"""

    @model_validator(mode="after")
    def _compares_two_arms(self) -> Self:
        if self.treatment == self.baseline:
            raise ValueError("treatment and baseline are the same arm")
        if self.primary_scale is not None and not self.primary:
            raise ValueError("primary_scale belongs to the primary contrast")
        if self.primary_scale is not None and self.scales and self.primary_scale not in self.scales:
            raise ValueError(f"primary_scale '{self.primary_scale}' is not among scales")
        return self


class Equal(Table):
    """Settings."""

    fields: Texts = ()
    """paths that must be equal within a pair, such as the learning rate; where one is not, nothing is concluded"""
    ignore: Texts = ()
    """paths of outcomes and bookkeeping (times, dates, folders), which are never compared; * stands for any text"""


class Label(Table):
    """A promise in a name, such as "10min", that the measured value must keep."""

    column: AnyColumn
    """where the name stands; its pattern's group is the promised number"""
    measured: AnyColumn
    """where the measured value stands"""
    factor: Positive = 1.0
    """measured units of one promised unit, such as 60 for minutes against seconds"""
    tolerance: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.05
    """relative difference that is let pass"""

    @model_validator(mode="after")
    def _has_a_pattern(self) -> Self:
        if self.column.pattern is None:
            raise ValueError("column needs a pattern whose group is the promised number")
        return self


class AdoptionMapping(Table):
    """One folder of another harness's results."""

    question: Text
    """what the runs were made to find out, in one sentence"""
    source: str = ""
    """where the files come from"""
    caveats: Texts = ()
    """what is known about these runs beyond the files; each is shown"""
    files: Text | Texts
    """globs in the folder; .json and .jsonl hold one record or a list of them, .csv a record a line"""
    planned_seeds: Annotated[int, Field(ge=1)] | None = None
    """pairs that were planned in writing before the first run; without it the pairs that are there count as the plan"""
    columns: Columns
    """where runs say what they are"""
    metrics: Annotated[dict[Name, Metric], Field(min_length=1)]
    """what they are judged by"""
    contrasts: Annotated[dict[Name, Contrast], Field(min_length=1)]
    """what is compared with what"""
    equal: Equal = Equal()
    """which settings must be equal, and which fields are no settings"""
    labels: dict[Name, Label] = {}
    """names that promise a number"""
    declared: dict[Text, dict[Text, str | int | float | bool]] = {}
    """by arm: what its manifest or text says was set, by path, to be held against what its records say"""

    @property
    def globs(self) -> tuple[str, ...]:
        return (self.files,) if isinstance(self.files, str) else self.files

    @property
    def primary(self) -> str:
        return next(name for name, contrast in self.contrasts.items() if contrast.primary)


def load_mapping(path: Path) -> AdoptionMapping:
    """The mapping in the file at `path`. ExperimentFileError names file, key and the nearest valid name."""
    table = read_toml(
        path,
        "a mapping: which of their columns is the arm, the seed, the metric",
        "write one (docs/howto/adopt-results.md), or name it with --mapping",
    )
    try:
        mapping = AdoptionMapping.model_validate(table)
    except ValidationError as error:
        raise refusal(error, f"{path}: ", AdoptionMapping) from None
    _check_names(path, mapping)
    return mapping


def _check_names(path: Path, mapping: AdoptionMapping) -> None:
    for name, contrast in mapping.contrasts.items():
        if contrast.metric not in mapping.metrics:
            raise ExperimentFileError(
                f"{path}: contrasts.{name}.metric: no such metric",
                expected=", ".join(sorted(mapping.metrics)),
                received=f"'{contrast.metric}'",
                remedy=nearest(contrast.metric, mapping.metrics),
            )
    arms = {arm for contrast in mapping.contrasts.values() for arm in (contrast.treatment, contrast.baseline)}
    for arm in mapping.declared:
        if arm not in arms:
            raise ExperimentFileError(
                f"{path}: declared.{arm}: no contrast has this arm",
                expected=", ".join(sorted(arms)),
                received=f"'{arm}'",
                remedy=nearest(arm, arms),
            )
    primaries = [name for name, contrast in mapping.contrasts.items() if contrast.primary]
    if len(primaries) != 1:
        raise ExperimentFileError(
            f"{path}: contrasts: exactly one contrast must be primary",
            expected="primary = true in one of them",
            received=", ".join(primaries) or "none",
            remedy="choose the one that answers the question, not the one with the largest number",
        )
