"""`paribus tasks`: which synthetic tasks there are, and all that is known of one of them before any training."""

import json
from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError
from rich.console import Console

from paribus.data import tasks
from paribus.data.tasks.contract import Task
from paribus.errors import CorpusError, ParibusError
from paribus.refusal import refusal
from paribus.terminal import table

USUAL_ROW_LENGTH = 64
"""tokens of the row at which levels are shown, of a task that needs less than half of it"""


def described() -> list[dict[str, Any]]:
    """Every task as JSON types: the tree's, then those of installed packages. One that is broken holds why."""
    found = [_summary(name, kind) for name, kind in tasks.in_tree().items()]
    names = {each["name"] for each in found}
    for outside in tasks.outside():
        if outside.error is not None:
            found.append({"name": outside.point, "package": outside.package, "broken": _in_one_line(outside.error)})
        for name, kind in outside.tasks.items():
            if name in names:
                why = f"a task called '{name}' is there already; rename this one"
                found.append({"name": name, "package": outside.package, "broken": why})
                continue
            names.add(name)
            try:
                found.append({**_summary(name, kind), "package": outside.package})
            except ParibusError as error:
                found.append({"name": name, "package": outside.package, "broken": _in_one_line(error)})
    return found


def described_one(name: str) -> dict[str, Any]:
    """All of one task at its default knobs, as JSON types, with levels in nats per target at `row_length` tokens.

    ExperimentFileError where there is none of this name, CorpusError where it is broken.
    """
    kind = tasks.find(name, "corpus")
    task = _at_defaults(kind)
    row_length = task.least_row_length
    if 2 * row_length < USUAL_ROW_LENGTH:
        row_length = USUAL_ROW_LENGTH
    return {
        **_summary(name, kind),
        "knobs": [
            {
                "name": knob,
                "default": getattr(task, knob),
                "sentence": " ".join((field.description or "").split()),
            }
            for knob, field in kind.model_fields.items()
        ],
        "vocabulary_size": task.vocabulary_size,
        "row_length": row_length,
        "levels": task.describe(row_length)["slices"],
    }


def show(found: Sequence[dict[str, Any]], console: Console) -> None:
    """The list as a table, and what is broken below it."""
    rows = [
        (
            each["name"],
            each["title"],
            ", ".join(each["slices"]),
            ", ".join(f"{knob} = {_written(value)}" for knob, value in each["defaults"].items()),
            str(each["least_row_length"]),
        )
        for each in found
        if "broken" not in each
    ]
    columns = ("task", "what it is about", "slices", "knobs by default", "least row")
    console.print(table("Tasks", columns, rows, right=(4,)))
    for each in found:
        if "broken" in each:
            _say(console, f"{each['name']} (of {each['package']}) is broken: {each['broken']}")
    _say(console, "\n`paribus tasks NAME` says what is asked, what its knobs are, and which losses need no training")


def show_one(found: dict[str, Any], console: Console) -> None:
    """Sentence, knobs and levels of one task."""
    _say(console, f"{found['name']}: {found['sentence']}")
    chosen = ", ".join(f"{knob} = {_written(value)}" for knob, value in list(found["defaults"].items())[:1])
    shown = f'corpus = {{ task = "{found["name"]}"{f", {chosen}" if chosen else ""} }}'
    _say(console, f"in an experiment file: {shown}, with context_length of at least {found['least_row_length']}\n")
    rows = [(knob["name"], _written(knob["default"]), knob["sentence"]) for knob in found["knobs"]]
    console.print(table("Knobs", ("knob", "default", "what it is"), rows))
    console.print()
    rows = [
        (
            name,
            *(f"{level[key]:.3f}" for key in ("chance", "floor", "threshold")),
            ", ".join(f"{what} {nats:.3f}" for what, nats in level["shortcuts"].items()),
        )
        for name, level in found["levels"].items()
    ]
    columns = ("slice", "chance", "floor", "acquired below", "shortcuts")
    title = f"Nats per target in rows of {found['row_length']} tokens, {found['vocabulary_size']:,} different ones"
    console.print(table(title, columns, rows, right=(1, 2, 3)))
    if absent := [name for name in found["slices"] if name not in found["levels"]]:
        _say(console, f"no targets with these knobs at this length: {', '.join(absent)}")
    _say(console, f"a claim is usually about: {found['primary']}")


def _summary(name: str, kind: type[Task]) -> dict[str, Any]:
    task = _at_defaults(kind)
    return {
        "name": name,
        "title": kind.title,
        "sentence": kind.sentence,
        "slices": list(kind.slices),
        "primary": kind.primary,
        "defaults": task.model_dump(mode="json"),
        "least_row_length": task.least_row_length,
    }


def _at_defaults(kind: type[Task]) -> Task:
    """The task at its default knobs. CorpusError where it needs some that have none."""
    try:
        return kind()
    except ValidationError as error:
        found = refusal(error, "", kind)
        raise CorpusError(
            f"the task '{kind.name}' has no defaults: {found.what}",
            expected="a default for every knob",
            remedy=found.remedy,
        ) from None


def _in_one_line(error: ParibusError) -> str:
    return "; ".join(filter(None, (error.what, error.received)))


def _written(value: Any) -> str:
    return json.dumps(value)


def _say(console: Console, text: str) -> None:
    console.print(text, highlight=False, markup=False, soft_wrap=True)
