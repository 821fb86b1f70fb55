"""What a person wrote: a TOML file read, and pydantic's findings as one error (where, expected, came, what to do)."""

import tomllib
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from paribus.errors import ExperimentFileError, nearest


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
            f"{path}: not a readable TOML file",
            received=str(error),
            remedy="an unclosed quote or bracket on or above that line is the usual cause",
        ) from None


def refusal(error: ValidationError, where: str, kind: type[BaseModel]) -> ExperimentFileError:
    """The first of the findings in a table of `kind` at the key path `where` (it may end in a file name and ": ")."""
    found = error.errors(include_url=False)
    misspelt = [finding for finding in found if finding["type"] == "extra_forbidden"]
    # A misspelt key also leaves the right one missing; the misspelling is the one to name.
    first = misspelt[0] if misspelt else found[0]
    more = sum(not (misspelt and finding["type"] == "missing") for finding in found) - 1
    keys = [str(part) for part in first["loc"]]
    fields = _fields(kind, keys[:-1])
    at = where + ".".join(keys) if where.endswith(": ") or not where else ".".join([where, *keys])
    what, expected, received, remedy = _explained(first, keys[-1] if keys else "", fields)
    return ExperimentFileError(
        f"{at}: {what}" + (f" (and {more} more)" if more else ""), expected=expected, received=received, remedy=remedy
    )


def _explained(finding: Any, key: str, fields: dict[str, FieldInfo]) -> tuple[str, str, str, str]:
    """(what, expected, received, remedy) of one finding about `key` of a table with these fields."""
    about = (fields[key].description or "") if key in fields else ""
    expected = finding["msg"].removeprefix("Input should be ")
    if finding["type"] == "extra_forbidden":
        return "unknown key", ", ".join(sorted(fields)), f"'{key}'", nearest(key, fields)
    if finding["type"] == "missing":
        return "missing", about, "", f"add '{key}' to this table"
    if finding["type"] == "value_error":
        return finding["msg"].removeprefix("Value error, "), "", "", ""
    if finding["type"] == "literal_error":
        valid = [str(value) for value in get_args(fields[key].annotation)] if key in fields else []
        return "not a valid value", expected, repr(finding["input"]), nearest(str(finding["input"]), valid)
    remedy = finding.get("ctx", {}).get("remedy") or (f"{key}: {about}" if about else "")
    return "not a valid value", expected, repr(finding["input"]), str(remedy)


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
