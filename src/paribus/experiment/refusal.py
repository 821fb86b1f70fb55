"""From pydantic's findings to one error that names the file, the key path, and what would be valid."""

from pathlib import Path
from typing import Any, NoReturn, get_args, get_origin

from pydantic import BaseModel, ValidationError

from paribus.errors import ExperimentFileError, nearest


def refuse(path: Path, error: ValidationError, prefix: str, kind: type[BaseModel]) -> NoReturn:
    """Turn the first of pydantic's findings into one error that names file, key path, and what would be valid."""
    found = error.errors(include_url=False)
    # A misspelt key also leaves the right one missing; the misspelling is the one to name.
    first = next((e for e in found if e["type"] == "extra_forbidden"), found[0])
    keys = [str(part) for part in first["loc"]]
    where = ".".join([prefix, *keys] if prefix else keys)
    more = error.error_count() - 1
    more_text = f" (and {more} more)" if more else ""
    if first["type"] == "extra_forbidden":
        valid = _valid_keys(kind, keys[:-1])
        raise ExperimentFileError(
            f"{path}: {where}: unknown key{more_text}",
            expected=", ".join(sorted(valid)),
            received=f"'{keys[-1]}'",
            remedy=nearest(keys[-1], valid),
        ) from None
    message = first["msg"].removeprefix("Value error, ")
    received = "" if first["type"] in ("missing", "value_error") else repr(first["input"])
    raise ExperimentFileError(f"{path}: {where}: {message}{more_text}", received=received) from None


def _valid_keys(kind: type[BaseModel], keys: list[str]) -> list[str]:
    """Field names of the table at the key path below `kind`."""
    current: type[BaseModel] | None = kind
    names_ahead = False
    for key in keys:
        if names_ahead:
            names_ahead = False  # a name inside a dict of tables (scales, contrasts) leads to the same type of table
        elif current is not None and key in current.model_fields:
            annotation = current.model_fields[key].annotation
            current, names_ahead = _table_type(annotation), get_origin(annotation) is dict
        else:
            return []
    return list(current.model_fields) if current is not None and not names_ahead else []


def _table_type(annotation: Any) -> type[BaseModel] | None:
    """The table inside an annotation such as Annotated[dict[Name, Scale], ...] or Corpus | None."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    found = (_table_type(argument) for argument in get_args(annotation))
    return next((table for table in found if table is not None), None)
