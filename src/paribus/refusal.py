"""What a person wrote: a TOML file read, and pydantic's findings as one error (where, expected, came, what to do)."""

import datetime
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, Tag, ValidationError
from pydantic.fields import FieldInfo

from paribus.errors import ExperimentFileError, nearest

MOST_NAMED = 6
"""keys of further findings that an error names"""
LONGEST = 80
"""characters of a received value that an error shows"""
_PLAIN_WORDS: Mapping[str, str] = {
    "bool_type": "true or false",
    "dict_type": "a table",
    "finite_number": "a finite number",
    "float_type": "a number",
    "int_from_float": "a whole number",
    "int_type": "a whole number",
    "list_type": "a list",
    "model_type": "a table",
    "path_type": "a path",
    "string_type": "a text in quotes",
    "tuple_type": "a list",
}
"""by pydantic's type of a finding"""
_LIMITS: Mapping[str, Callable[[dict[str, Any]], str]] = {
    "greater_than": lambda limits: f"more than {_number(limits['gt'])}",
    "greater_than_equal": lambda limits: f"at least {_number(limits['ge'])}",
    "less_than": lambda limits: f"less than {_number(limits['lt'])}",
    "less_than_equal": lambda limits: f"at most {_number(limits['le'])}",
    "multiple_of": lambda limits: f"a multiple of {_number(limits['multiple_of'])}",
    "string_pattern_mismatch": lambda limits: _PATTERNS.get(
        limits["pattern"], f"a text of the form {limits['pattern']}"
    ),
    "string_too_long": lambda limits: f"at most {_counted(limits['max_length'], 'character', 'characters')}",
    "string_too_short": lambda limits: f"at least {_counted(limits['min_length'], 'character', 'characters')}",
    "too_long": lambda limits: f"at most {_counted(limits['max_length'], 'entry', 'entries')}",
    "too_short": lambda limits: f"at least {_counted(limits['min_length'], 'entry', 'entries')}",
}
"""the same, of findings that come with a limit"""
_NAME = "letters, digits, '_', '.' and '-', a letter or digit first"
_PATTERNS: Mapping[str, str] = {
    r"^[\w.-]+/[\w.-]+$": "a repository as owner/name",
    "^[SL]+$": "letters S (a short window) and L (the whole row), such as 'SSSL'",
    "^[0-9a-f]{40}$": "a commit: 40 hexadecimal digits",
    r"^[A-Za-z0-9][A-Za-z0-9_.-]*$": _NAME,
    r"^[A-Za-z0-9][A-Za-z0-9_.-]*(@[A-Za-z0-9][A-Za-z0-9_.-]*)?(\+tuning|\+calibration)?$": _NAME,
    r"^[^.]+(\.[^.]+)*$": "keys joined by '.', such as 'loss.gated'",
    r"^[0-9a-f]{16}$": "16 hexadecimal digits",
}


def read_toml(path: Path, expected: str, remedy: str) -> dict[str, Any]:
    """The tables of the TOML file at `path`. ExperimentFileError, where there is none with what was `expected` there
    and the `remedy`, and where it cannot be read."""
    try:
        return tomllib.loads(path.read_bytes().decode())
    except FileNotFoundError:
        raise ExperimentFileError(f"{path}: no such file", expected=expected, remedy=remedy) from None
    except IsADirectoryError:
        raise ExperimentFileError(
            f"{path}: a folder", expected=expected, remedy="name the file, such as study.toml"
        ) from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ExperimentFileError(
            f"{path}: not a readable TOML file", received=str(error), remedy=_toml_remedy(str(error))
        ) from None


def _toml_remedy(said: str) -> str:
    """What to do about a message of tomllib's."""
    if re.search(r"Cannot overwrite|Cannot declare|Duplicate inline|Cannot mutate", said):
        return "this key stands twice in the table: keep one of the two"
    return "an unclosed quote or bracket on or above that line is the usual cause"


@dataclass(frozen=True)
class _Place:
    """Where in a table of a schema a finding belongs."""

    keys: list[str]
    """of the file; what pydantic adds for the key of a table of names, or for a kind among several, is left out"""
    fields: Mapping[str, FieldInfo] = field(default_factory=dict)
    """of the table that holds the last key; none where the path leaves the schema"""
    about: str = ""
    """the sentence of the last key, or of the list that it counts in"""
    annotation: Any = None
    """what the schema admits there"""
    of_name: bool = False
    """whether it is the last key itself that is wrong, not what stands under it"""


def refusal(error: ValidationError, where: str, kind: type[BaseModel]) -> ExperimentFileError:
    """The first of the findings in a table of `kind` at the key path `where` (it may end in a file name and ": "), with
    the keys of the others."""
    found = [(finding, _place(finding["loc"], kind)) for finding in error.errors(include_url=False)]
    misspelt = [(finding, place) for finding, place in found if finding["type"] == "extra_forbidden"]
    # A misspelt key also leaves the right one missing; the misspelling is the one to name.
    first, at = misspelt[0] if misspelt else found[0]
    here = [finding for finding, place in found if (place.keys, place.of_name) == (at.keys, at.of_name)]
    others = [
        (finding["type"], ".".join(place.keys))
        for finding, place in found
        if place.keys != at.keys and not (misspelt and finding["type"] == "missing")
    ]
    path = where + ".".join(at.keys) if where.endswith(": ") or not where else ".".join([where, *at.keys])
    what, expected, received, remedy = _explained(first, here, at)
    return ExperimentFileError(
        f"{path}: {what}" + _named(others, first["type"]), expected=expected, received=received, remedy=remedy
    )


def _place(path: tuple[int | str, ...], kind: type[BaseModel]) -> _Place:
    """The place of a finding with this path below a table of `kind`."""
    place = _Place([], annotation=kind)
    for part in path:
        if part == "[key]":
            return replace(place, of_name=True)
        kinds = _kinds(place.annotation)
        if len(kinds) > 1 and isinstance(part, str):
            # pydantic's word for one kind among several; where the kinds have tags, it is the tag of the right one
            place = replace(place, annotation=_tagged(place.annotation, part))
            continue
        keys, admitted = [*place.keys, str(part)], kinds[0] if kinds else None
        if isinstance(admitted, type) and issubclass(admitted, BaseModel):
            known = admitted.model_fields.get(keys[-1])
            about, below = (known.description or "", known.annotation) if known else ("", None)
            place = _Place(keys, admitted.model_fields, about, below)
        else:  # a list counts its entries, and a table of names leads to the same under each name
            inside = get_args(admitted)
            counted = isinstance(part, int)
            below = (inside[0] if counted else inside[-1]) if inside else None
            place = _Place(keys, {}, place.about if counted else "", below)
    return place


def _kinds(annotation: Any) -> list[Any]:
    """What an annotation admits but None, each without the limits that are annotated to it."""
    if get_origin(annotation) is Annotated:
        return _kinds(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return [kind for member in get_args(annotation) for kind in _kinds(member)]
    return [] if annotation in (None, NoneType) else [annotation]


def _tagged(annotation: Any, tag: str) -> Any:
    """The kind with this tag among those that an annotation admits; None where there is none."""
    for member in get_args(annotation):
        if get_origin(member) is Annotated and Tag(tag) in get_args(member)[1:]:
            return get_args(member)[0]
    return None


def _named(others: list[tuple[str, str]], first: str) -> str:
    """Behind the first finding, whose type is given, the types and keys of the others: those that are missing first."""
    missing = list(dict.fromkeys(keys for kind, keys in others if kind == "missing"))
    wrong = list(dict.fromkeys(keys for kind, keys in others if kind != "missing"))
    said = []
    if missing:
        said.append(f"{'also ' if first == 'missing' else ''}missing: {_listed(missing)}")
    if wrong:
        said.append(f"{'' if first == 'missing' else 'also '}wrong: {_listed(wrong)}")
    return f" ({'; '.join(said)})" if said else ""


def _listed(keys: list[str]) -> str:
    return ", ".join(keys[:MOST_NAMED]) + (f" and {len(keys) - MOST_NAMED} more" if len(keys) > MOST_NAMED else "")


def _explained(finding: Any, here: list[Any], at: _Place) -> tuple[str, str, str, str]:
    """(what, expected, received, remedy) of a finding; `here` are all findings of its place."""
    key = at.keys[-1] if at.keys else ""
    if finding["type"] == "extra_forbidden":
        return "unknown key", ", ".join(sorted(at.fields)), f"'{key}'", nearest(key, at.fields) if at.fields else ""
    if finding["type"] == "missing":
        return "missing", at.about, "", f"add '{key}' to this table"
    if finding["type"] == "value_error":
        return finding["msg"].removeprefix("Value error, "), "", "", ""
    # A place that admits several kinds has a finding for each of them.
    expected, received = ", or ".join(dict.fromkeys(map(_in_words, here))), _as_written(finding["input"])
    if finding["type"] == "literal_error" and (valid := list(map(str, _literals(at.annotation)))):
        return "not a valid value", expected, received, nearest(str(finding["input"]), valid)
    remedy = finding.get("ctx", {}).get("remedy") or (f"{_last_name(at.keys)}: {at.about}" if at.about else "")
    return "not a valid value", expected, received, str(remedy)


def _last_name(keys: list[str]) -> str:
    """The last key that is no place in a list."""
    return next(key for key in reversed(keys) if not key.isdecimal())


def _literals(annotation: Any) -> list[Any]:
    """The values of every Literal inside an annotation such as Literal["+", "-"] | None."""
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    return [value for argument in get_args(annotation) for value in _literals(argument)]


def _in_words(finding: Any) -> str:
    """What a finding expected, without the words of Python and of pydantic."""
    kind = finding["type"]
    if kind in _LIMITS:
        return _LIMITS[kind](finding["ctx"])
    return _PLAIN_WORDS.get(kind) or finding["msg"].removeprefix("Input should be ")


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def _counted(count: int, one: str, several: str) -> str:
    return f"{count} {one if count == 1 else several}"


def _as_written(value: Any) -> str:
    """A value as TOML writes it, up to LONGEST characters."""
    if isinstance(value, bool):
        written = str(value).lower()
    elif isinstance(value, dict):
        written = f"{{ {', '.join(f'{key} = {_as_written(of)}' for key, of in value.items())} }}" if value else "{}"
    elif isinstance(value, list | tuple):
        written = f"[{', '.join(map(_as_written, value))}]"
    elif isinstance(value, datetime.date | datetime.time):
        written = value.isoformat()
    else:
        written = repr(str(value) if isinstance(value, Path) else value)
    return written if len(written) <= LONGEST else f"{written[: LONGEST - 3]}..."
