"""How a finding of the schema is worded: where, what was expected, what came. No word of pydantic's or of Python's."""

import re
from collections.abc import Iterator
from datetime import date
from typing import Annotated, Any, Literal, get_args

import pytest
from pydantic import BaseModel, Field, ValidationError
from pydantic_core.core_schema import ErrorType

from paribus.adopting.mapping import AdoptionMapping
from paribus.data.tasks import in_tree
from paribus.errors import ExperimentFileError
from paribus.experiment import spec
from paribus.experiment.table import Name, Table
from paribus.mechanisms import mechanisms
from paribus.mechanisms.contract import Seam
from paribus.model.config import NanochatConfig, PrenormConfig
from paribus.refusal import LONGEST, refusal

VALUES: tuple[Any, ...] = (
    *(True, 0, -1, 3, 10**9, 0.5, -0.5, 1.5, float("nan"), float("inf")),
    *("", "x", "a b", "x" * 300, date(2020, 1, 1)),
    *([], [1], ["x"], [-1], [0.5, 0.5], [[]], {}, {"x": 1}, {"a b": "x"}, {"x": [0]}, {"x": []}),
)
"""what a file can hold, right in few places"""
WORDED_BY_PYDANTIC = {*get_args(ErrorType)} - {"value_error", "extra_forbidden", "missing", "literal_error"}
"""types of findings; not those of the schema's own sentences"""
FOREIGN = re.compile(
    "input|should|valid|greater|or equal|dictionary|instance|integer|boolean|string|tuple|item|<class|of the form", re.I
)
"""words of pydantic and of Python, and what is said of a pattern without words of its own"""


def refused(kind: type[BaseModel], table: dict[str, Any]) -> ExperimentFileError:
    with pytest.raises(ValidationError) as caught:
        kind.model_validate(table)
    return refusal(caught.value, "file.toml: ", kind)


def tables(kind: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """A table of the schema and every one inside it."""
    yield kind
    for inside in kind.model_fields.values():
        pending = [inside.annotation]
        for annotation in pending:  # grows while it is gone through
            pending += getattr(annotation, "__args__", ())
            if isinstance(annotation, type) and issubclass(annotation, BaseModel):
                yield from tables(annotation)


EVERY_TABLE: set[type[BaseModel]] = {
    *tables(spec.Experiment),
    *tables(AdoptionMapping),
    PrenormConfig,
    NanochatConfig,
    *in_tree().values(),
    *(kind for seam in Seam for kind in mechanisms(seam).values()),
}


def findings(kind: type[BaseModel], key: str, value: Any) -> list[Any]:
    """What pydantic finds wrong with this value, each in its own words."""
    try:
        kind.model_validate({key: value})
    except ValidationError as error:
        every: list[Any] = error.errors()
        return [
            {name: found[name] for name in ("type", "loc", "input", "ctx") if name in found}
            for found in every
            if found["loc"][:1] == (key,) and found["type"] in WORDED_BY_PYDANTIC
        ]
    return []


@pytest.mark.parametrize("kind", sorted(EVERY_TABLE, key=str), ids=lambda kind: kind.__name__)
def test_no_value_of_any_key_is_refused_in_pydantics_words(kind: type[BaseModel]) -> None:
    for key in kind.model_fields:
        for value in VALUES:
            for finding in findings(kind, key, value):
                alone = ValidationError.from_exception_data(kind.__name__, [finding])
                said = refusal(alone, "", kind)
                assert said.expected
                assert not FOREIGN.search(said.expected)
                assert not re.search(r"constrained|function|\[", said.what)


class Inner(Table):
    depth: int
    """how deep"""


class Kinds(Table):
    number: Annotated[float, Field(gt=0.0, lt=0.5)] = 0.1
    """a number"""
    count: Annotated[int, Field(ge=3, le=4096)] = 3
    """a count"""
    even: Annotated[int, Field(multiple_of=2)] = 2
    """an even count"""
    name: Annotated[str, Field(min_length=1, max_length=9)] | None = None
    """a name"""
    several: Annotated[tuple[int, ...], Field(strict=False, min_length=1, max_length=2)] = (1,)
    """a list"""
    of_names: dict[Name, dict[str, Any]] = Field(default_factory=dict)
    """a table of tables"""
    either: Annotated[str, Field(min_length=1)] | Annotated[tuple[str, ...], Field(strict=False)] = "a"
    """a text or texts"""
    word: Annotated[int, Field(ge=1)] | Literal["full"] = 1
    """a number or a word"""
    sign: Literal["+", "-"] | int = "+"
    """a sign or a number"""
    tables: Annotated[tuple[Inner, ...], Field(strict=False)] = ()
    """a list of tables"""


@pytest.mark.parametrize(
    ("key", "value", "expected", "received"),
    [
        ("number", 0.0, "more than 0", "0.0"),
        ("number", 0.5, "less than 0.5", "0.5"),
        ("number", float("inf"), "a finite number", "inf"),
        ("number", "many", "a number", "'many'"),
        ("count", 2, "at least 3", "2"),
        ("count", 5000, "at most 4,096", "5000"),
        ("count", 3.0, "a whole number", "3.0"),
        ("count", True, "a whole number", "true"),
        ("count", date(2026, 1, 2), "a whole number", "2026-01-02"),
        ("even", 3, "a multiple of 2", "3"),
        ("name", "", "at least 1 character", "''"),
        ("name", "a" * 10, "at most 9 characters", "'aaaaaaaaaa'"),
        ("several", [], "at least 1 entry", "[]"),
        ("several", [1, 2, 3], "at most 2 entries", "[1, 2, 3]"),
        ("several", {"a": [True]}, "a list", "{ a = [true] }"),
        ("of_names", 3, "a table", "3"),
        ("either", 3, "a text in quotes, or a list", "3"),
        ("either", "", "at least 1 character, or a list", "''"),
        ("word", 0, "at least 1, or 'full'", "0"),
        ("sign", "*", "'+' or '-', or a whole number", "'*'"),
    ],
)
def test_what_was_expected_and_what_came_are_said_as_a_file_writes_them(
    key: str, value: Any, expected: str, received: str
) -> None:
    error = refused(Kinds, {key: value})
    assert (error.what, error.expected, error.received) == (f"file.toml: {key}: not a valid value", expected, received)
    assert error.remedy == f"{key}: {Kinds.model_fields[key].description}"


@pytest.mark.parametrize(
    ("table", "what", "expected", "remedy"),
    [
        ({"several": [1, "x"]}, "several.1: not a valid value", "a whole number", "several: a list"),
        ({"of_names": {"a b": {}}}, "of_names.a b: not a valid value", "letters, digits, '_', '.' and '-'", ""),
        ({"of_names": {"a b": 3}}, "of_names.a b: not a valid value", "letters, digits, '_', '.' and '-'", ""),
        ({"of_names": {"a": 3}}, "of_names.a: not a valid value", "a table", ""),
        ({"word": "ful"}, "word: not a valid value", "a whole number, or 'full'", "word: a number or a word"),
        ({"tables": [{"depth": "x"}]}, "tables.0.depth: not a valid value", "a whole number", "how deep"),
    ],
)
def test_a_value_inside_a_list_a_table_or_one_kind_of_several_is_named_by_its_keys(
    table: dict[str, Any], what: str, expected: str, remedy: str
) -> None:
    error = refused(Kinds, table)
    assert error.what == f"file.toml: {what}"
    assert error.expected.startswith(expected)
    assert "or a table" not in error.expected, "a bad name is one thing, what stands under it another"
    assert remedy in error.remedy


def test_a_long_value_is_cut() -> None:
    assert refused(Kinds, {"count": "x" * 300}).received == f"'{'x' * (LONGEST - 4)}..."
