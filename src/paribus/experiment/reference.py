"""Every field that an experiment file may hold, from the schema itself, so that the page cannot fall behind it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from paribus.experiment import spec
from paribus.experiment.design import TwinOf
from paribus.model.config import NanochatConstants, PrenormConstants
from paribus.optim.config import OptimiserConfig, ScheduleConfig
from paribus.published import PublishedFigure
from paribus.recipes.config import Derive

TABLES: Mapping[str, type[BaseModel]] = {
    "": spec.Experiment,
    "base": spec.Base,
    "base.corpus": spec.Corpus,
    "base.tokenizer": spec.Tokenizer,
    "base.model (prenorm)": PrenormConstants,
    "base.model (nanochat)": NanochatConstants,
    "base.optimiser": OptimiserConfig,
    "base.schedule": ScheduleConfig,
    "base.evaluation": spec.Evaluation,
    "scales.NAME": spec.Scale,
    "scales.NAME.derive": Derive,
    "scales.NAME.twin_of": TwinOf,
    "scales.NAME.margins": spec.Margins,
    "contrasts.NAME": spec.Contrast,
    "contrasts.NAME.published": PublishedFigure,
    "seeds": spec.Seeds,
    "seeds.extension": spec.Extension,
    "noise": spec.Noise,
    "robustness": spec.Robustness,
    "tuning": spec.Tuning,
    "calibration": spec.Calibration,
    "execution": spec.Execution,
}
"""where each table stands in a file, and in brackets which of its kinds; NAME is the user's"""
_BOUNDS = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}
_TYPES = {"integer": "whole number", "number": "number", "string": "text", "boolean": "true or false"}


@dataclass(frozen=True)
class FieldText:
    """One key as a page shows it."""

    key: str
    kind: str
    default: str
    """empty where the key must be there"""
    sentence: str


def fields(table: str) -> Iterator[FieldText]:
    """The keys of a table of `TABLES`, in the order of the schema."""
    kind = TABLES[table]
    for name, described in kind.model_json_schema()["properties"].items():
        field = kind.model_fields[name]
        sentence = " ".join((described.get("description") or "").split())
        default = "" if field.is_required() else _written(field.get_default(call_default_factory=True))
        # Loading fills in this one alone, so the schema needs it and the file does not.
        yield FieldText(name, _kind(described), "the file's name" if name == "study" else default, sentence)


def as_markdown() -> str:
    """The page docs/experiment-file.md."""
    lines = [
        "# The experiment file, key by key",
        "",
        "Written by `paribus fields --markdown`. A strict TOML file: an unknown key is an error that names the nearest",
        "one. `NAME` stands for a name of yours. `[arms.NAME]` holds differences from `[base]`, with the same keys;",
        "what a mechanism's own table holds stands in its file under `src/paribus/mechanisms/`.",
    ]
    for table in TABLES:
        where, _, kind = table.partition(" ")
        title = f"`[{where}]` {kind}".rstrip() if table else "Top level"
        lines += ["", f"## {title}", "", "| key | kind | default | what it is |", "|---|---|---|---|"]
        for field in fields(table):
            cells = (f"`{field.key}`", field.kind, field.default or "**needed**", field.sentence)
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _kind(described: Mapping[str, Any]) -> str:
    if "anyOf" in described:
        return " or ".join(_kind(one) for one in described["anyOf"] if one.get("type") != "null")
    if "enum" in described or "const" in described:
        return " or ".join(f'"{value}"' for value in described.get("enum", [described.get("const")]))
    if described.get("type") == "array":
        inner = described.get("items", described.get("prefixItems", [{}]))
        return f"list; each {_kind(inner if isinstance(inner, Mapping) else inner[0])}"
    if described.get("type", "object") == "object" or "$ref" in described:
        return "table"
    bounds = ", ".join(f"{sign} {described[name]:g}" for name, sign in _BOUNDS.items() if name in described)
    kind = "path" if described.get("format") == "path" else _TYPES[described["type"]]
    return f"{kind}, {bounds}" if bounds else kind


def _written(default: Any) -> str:
    if isinstance(default, BaseModel) or default == {}:
        return "its own defaults"
    if default is None:
        return "none"
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, tuple):
        return "[]" if not default else str(list(default))
    return (
        f'"{default}"' if isinstance(default, str) else f"{default:g}" if isinstance(default, float) else str(default)
    )
