"""What a person wrote: a TOML file read, and pydantic's findings as one error (where, expected, came, what to do)."""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from paribus.errors import ExperimentFileError, nearest

MOST_NAMED = 6
"""keys of further findings that an error names"""
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
_PATTERNS: Mapping[str, str] = {
    r"^[A-Za-z0-9][A-Za-z0-9_.-]*$": "letters, digits, '_', '.' and '-', a letter or digit first",
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


def refusal(error: ValidationError, where: str, kind: type[BaseModel]) -> ExperimentFileError:
    """The first of the findings in a table of `kind` at the key path `where` (it may end in a file name and ": "), with
    the keys of the others."""
    found = error.errors(include_url=False)
    misspelt = [finding for finding in found if finding["type"] == "extra_forbidden"]
    # A misspelt key also leaves the right one missing; the misspelling is the one to name.
    first = misspelt[0] if misspelt else found[0]
    others = [other for other in found if other is not first and not (misspelt and other["type"] == "missing")]
    keys = _keys(first)
    fields = _fields(kind, keys[:-1])
    at = where + ".".join(keys) if where.endswith(": ") or not where else ".".join([where, *keys])
    what, expected, received, remedy = _explained(first, keys[-1] if keys else "", fields)
    return ExperimentFileError(
        f"{at}: {what}" + _named(others, first), expected=expected, received=received, remedy=remedy
    )


def _keys(finding: Any) -> list[str]:
    """The key path of a finding. What pydantic adds for the key of a table of names is left out."""
    return [str(part) for part in finding["loc"] if part != "[key]"]


def _named(others: list[Any], first: Any) -> str:
    """Behind the first finding, the keys of the others: those that are missing first."""
    missing = [".".join(_keys(other)) for other in others if other["type"] == "missing"]
    wrong = [".".join(_keys(other)) for other in others if other["type"] != "missing"]
    said = []
    if missing:
        said.append(f"{'also ' if first['type'] == 'missing' else ''}missing: {_listed(missing)}")
    if wrong:
        said.append(f"{'' if first['type'] == 'missing' else 'also '}wrong: {_listed(wrong)}")
    return f" ({'; '.join(said)})" if said else ""


def _listed(keys: list[str]) -> str:
    return ", ".join(keys[:MOST_NAMED]) + (f" and {len(keys) - MOST_NAMED} more" if len(keys) > MOST_NAMED else "")


def _explained(finding: Any, key: str, fields: dict[str, FieldInfo]) -> tuple[str, str, str, str]:
    """(what, expected, received, remedy) of one finding about `key` of a table with these fields."""
    about = (fields[key].description or "") if key in fields else ""
    expected = _in_words(finding)
    if finding["type"] == "extra_forbidden":
        return "unknown key", ", ".join(sorted(fields)), f"'{key}'", nearest(key, fields)
    if finding["type"] == "missing":
        return "missing", about, "", f"add '{key}' to this table"
    if finding["type"] == "value_error":
        return finding["msg"].removeprefix("Value error, "), "", "", ""
    if finding["type"] == "literal_error":
        valid = [str(value) for value in _literals(fields[key].annotation)] if key in fields else []
        return "not a valid value", expected, repr(finding["input"]), nearest(str(finding["input"]), valid)
    remedy = finding.get("ctx", {}).get("remedy") or (f"{key}: {about}" if about else "")
    return "not a valid value", expected, repr(finding["input"]), str(remedy)


def _literals(annotation: Any) -> list[Any]:
    """The values of every Literal inside an annotation such as Literal["+", "-"] | None."""
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    return [value for argument in get_args(annotation) for value in _literals(argument)]


def _in_words(finding: Any) -> str:
    """What a finding expected, without the words of Python and of pydantic."""
    kind, limits = finding["type"], finding.get("ctx", {})
    if kind in _PLAIN_WORDS:
        return _PLAIN_WORDS[kind]
    if kind == "string_pattern_mismatch":
        return _PATTERNS.get(limits["pattern"], f"a text of the form {limits['pattern']}")
    if kind in ("string_too_short", "string_too_long"):
        at_least = kind == "string_too_short"
        count = limits["min_length" if at_least else "max_length"]
        return f"at {'least' if at_least else 'most'} {count} character{'s' if count != 1 else ''}"
    if kind in ("too_short", "too_long"):
        at_least = kind == "too_short"
        count = limits["min_length" if at_least else "max_length"]
        return f"at {'least' if at_least else 'most'} {count} entr{'ies' if count != 1 else 'y'}"
    return finding["msg"].removeprefix("Input should be ")


def _fields(kind: type[BaseModel], keys: list[str]) -> dict[str, FieldInfo]:
    """Fields of the table at the key path below `kind`; none where the path leaves the schema."""
    current: type[BaseModel] | None = kind
    names_ahead = False
    for key in keys:
        if names_ahead:
            names_ahead = False  # a name inside a dict of tables (scales, contrasts) leads to the same type of table
        elif current is not None and key in current.model_fields:
            annotation = current.model_fields[key].annotation
            current, names_ahead = _table_type(annotation), get_origin(annotation) is dict
        else:
            return {}
    return current.model_fields if current is not None and not names_ahead else {}


def _table_type(annotation: Any) -> type[BaseModel] | None:
    """The table inside an annotation such as Annotated[dict[Name, Scale], ...] or Corpus | None."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    found = (_table_type(argument) for argument in get_args(annotation))
    return next((table for table in found if table is not None), None)
