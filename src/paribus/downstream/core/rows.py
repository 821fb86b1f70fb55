"""The questions in a task's file: one JSON object a line, of one of three forms. Whatever is wrong with a line is kept
beside its number, so that one bad line costs one item and is counted.

    multiple_choice     query, choices, gold
    schema              context_options, continuation, gold
    language_modeling   context, continuation
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from paribus.downstream.core.official import Kind


@dataclass(frozen=True)
class Choices:
    """One question, several answers to it."""

    query: str
    choices: tuple[str, ...]
    gold: int


@dataclass(frozen=True)
class Schema:
    """Several beginnings of one sentence; the likeliest end tells which is right."""

    options: tuple[str, ...]
    continuation: str
    gold: int


@dataclass(frozen=True)
class Passage:
    """A text that is to be continued word for word."""

    context: str
    continuation: str


Question = Choices | Schema | Passage


@dataclass(frozen=True)
class Line:
    """One line of a task's file."""

    number: int
    """from 0; blank lines are counted and are no items"""
    question: Question | None
    problem: str
    """why there is no question, in words; else empty"""
    content: bytes
    """as it stands in the file"""


def parse_lines(content: bytes, kind: Kind) -> list[Line]:
    """Every line that is not blank, in the file's order."""
    return [_line(number, line, kind) for number, line in enumerate(content.split(b"\n")) if line.strip()]


def count_lines(content: bytes) -> int:
    return sum(1 for line in content.split(b"\n") if line.strip())


def _line(number: int, content: bytes, kind: Kind) -> Line:
    try:
        found = json.loads(content.decode())
        question = _question(found, kind)
        if b"\\u" in content:  # only an escape can spell half of a character
            json.dumps(found, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return Line(number, None, f"line {number + 1} holds half of a character (a lone surrogate)", content)
    except RecursionError:
        return Line(number, None, f"line {number + 1} is nested too deeply", content)
    except json.JSONDecodeError as error:
        return Line(number, None, f"line {number + 1} is no JSON: {error.msg} at character {error.pos + 1}", content)
    except UnicodeDecodeError as error:
        return Line(number, None, f"line {number + 1} is not UTF-8 from byte {error.start + 1}", content)
    except ValueError as error:
        return Line(number, None, f"line {number + 1}: {error}", content)
    return Line(number, question, "", content)


def _question(found: object, kind: Kind) -> Question:
    """Raises ValueError for an object that is no question of this kind."""
    if not isinstance(found, dict):
        raise ValueError("no JSON object")
    match kind:
        case "multiple_choice":
            choices = _texts(found, "choices")
            return Choices(_text(found, "query"), choices, _gold(found, choices))
        case "schema":
            options = _texts(found, "context_options")
            return Schema(options, _text(found, "continuation"), _gold(found, options))
        case "language_modeling":
            return Passage(_text(found, "context"), _text(found, "continuation"))


def _text(found: dict[str, Any], key: str) -> str:
    value = found.get(key)
    if not isinstance(value, str):
        raise ValueError(f"{key} is no text" if key in found else f"{key} is missing")
    return value


def _texts(found: dict[str, Any], key: str) -> tuple[str, ...]:
    value = found.get(key)
    if not isinstance(value, list) or len(value) < 2 or not all(isinstance(each, str) for each in value):
        raise ValueError(f"{key} is no list of two texts or more" if key in found else f"{key} is missing")
    return tuple(value)


def _gold(found: dict[str, Any], answers: Sequence[str]) -> int:
    value = found.get("gold")
    if type(value) is not int:
        raise ValueError("gold is no whole number" if "gold" in found else "gold is missing")
    if not 0 <= value < len(answers):
        raise ValueError(f"gold index {value} is out of range: there are {len(answers)} answers, from 0")
    return value
