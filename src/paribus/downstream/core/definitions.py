"""The list of tasks in a bundle: YAML with `icl_tasks`, as DCLM and nanochat write it.

A key that is not known here may change what a task asks, so it is refused rather than ignored.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn, get_args

import yaml

from paribus.disk import is_plain_name
from paribus.downstream.core.errors import CoreBundleError
from paribus.downstream.core.official import Kind
from paribus.errors import nearest

_NEEDED = ("label", "dataset_uri", "num_fewshot", "icl_task_type")
_OPTIONAL = ("continuation_delimiter", "has_categories")
_USUAL_DELIMITER = " "


@dataclass(frozen=True)
class Definition:
    """One entry of the list."""

    label: str
    kind: Kind
    shots: int
    delimiter: str
    uri: str
    """path of the task's file below `eval_data`"""


def parse_list(content: bytes, name: str) -> tuple[Definition, ...]:
    """The tasks of a list file of this name, in its order.

    CoreBundleError, naming the entry and what is wrong with it, for anything that is not such a list.
    """
    try:
        found = yaml.safe_load(content)
    except yaml.YAMLError as error:
        raise CoreBundleError(f"{name} is not YAML", received=" ".join(str(error).split())) from error
    entries = found.get("icl_tasks") if isinstance(found, dict) else None
    if not isinstance(entries, list) or not entries:
        raise CoreBundleError(f"{name} lists no tasks", expected="icl_tasks: a list of tasks")
    definitions = tuple(_definition(entry, f"{name}, task {place}") for place, entry in enumerate(entries, 1))
    labels = [each.label for each in definitions]
    if twice := sorted({label for label in labels if labels.count(label) > 1}):
        raise CoreBundleError(f"{name} has a label twice", expected="one task a label", received=", ".join(twice))
    return definitions


def _definition(entry: object, place: str) -> Definition:
    if not isinstance(entry, dict):
        _refuse(place, "the keys " + ", ".join(_NEEDED), repr(entry))
    if unknown := [key for key in entry if key not in (*_NEEDED, *_OPTIONAL)]:
        _refuse(place, "known keys only", f"{unknown[0]!r}; {nearest(str(unknown[0]), (*_NEEDED, *_OPTIONAL))}")
    if absent := [key for key in _NEEDED if key not in entry]:
        _refuse(place, "the keys " + ", ".join(_NEEDED), f"none of the name {absent[0]}")
    label = _text(entry, "label", place)
    if not is_plain_name(label):  # rows and records of answers are called after it
        _refuse(place, "label: a text that can be the name of a file", repr(label))
    place = f"{place} ({label})"
    kinds: dict[str, Kind] = {kind: kind for kind in get_args(Kind)}
    kind = kinds.get(_text(entry, "icl_task_type", place))
    if kind is None:
        _refuse(place, "icl_task_type: " + ", ".join(kinds), repr(entry["icl_task_type"]))
    delimiter = entry.get("continuation_delimiter", _USUAL_DELIMITER)
    if not isinstance(delimiter, str):
        _refuse(place, "continuation_delimiter: a text", repr(delimiter))
    return Definition(label, kind, _shots(entry["num_fewshot"], place), delimiter, _uri(entry, place))


def _shots(value: object, place: str) -> int:
    numbers = value if isinstance(value, list) else [value]
    if len(numbers) != 1 or type(numbers[0]) is not int or numbers[0] < 0:
        _refuse(place, "num_fewshot: one number, 0 or more", repr(value))
    return numbers[0]


def _uri(entry: Mapping[str, Any], place: str) -> str:
    uri = _text(entry, "dataset_uri", place)
    path = PurePosixPath(uri)
    if path.is_absolute() or ".." in path.parts or Path(uri).is_absolute() or "\\" in uri:
        _refuse(place, "dataset_uri: a path inside eval_data", repr(uri))
    return uri


def _text(entry: Mapping[str, Any], key: str, place: str) -> str:
    value = entry[key]
    if not isinstance(value, str) or not value.strip():
        _refuse(place, f"{key}: a text", repr(value))
    return value


def _refuse(place: str, expected: str, received: str) -> NoReturn:
    raise CoreBundleError(
        f"{place} is no task that is known here",
        expected=expected,
        received=received,
        remedy="correct the entry, or take it out of the list",
    )
