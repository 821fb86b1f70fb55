"""How an arm says in which layers a mechanism acts: words such as "all" and "last:4", or a list of layer indices."""

import re
from typing import Any

from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

_LAST = re.compile(r"last:[1-9][0-9]*")


def layer_choice(*words: str, last: bool = False) -> BeforeValidator:
    """Admits the words, "last:N" where `last`, and a list of indices that is not empty, each once: one sentence for all
    else. A list is put in order, so that equal choices are equal configurations."""
    quoted = [f'"{word}"' for word in (*words, *(["last:N"] if last else []))]
    expected = f"{', '.join(quoted)}, or a list of layer indices from 0"

    def check(value: Any) -> str | tuple[int, ...]:
        if isinstance(value, str) and (value in words or (last and _LAST.fullmatch(value))):
            return value
        if isinstance(value, list | tuple) and value and all(type(index) is int for index in value):
            if len(set(value)) < len(value):
                repeated = listed(frozenset(index for index in value if value.count(index) > 1))
                once = f"every layer index once (repeated: {repeated})"
                raise PydanticCustomError("layers", "{expected}", {"expected": once})
            return tuple(sorted(value))
        raise PydanticCustomError("layers", "{expected}", {"expected": expected})

    return BeforeValidator(check)


def outside(layers: frozenset[int], count: int) -> str | None:
    """What is wrong with indices that a model of `count` layers does not have, with the valid range."""
    beyond = layers - set(range(count))
    return (
        f"layers {listed(beyond)} are outside the model: valid layer indices are 0 to {count - 1}" if beyond else None
    )


def listed(layers: frozenset[int]) -> str:
    """Layer indices for a message."""
    return ", ".join(map(str, sorted(layers))) or "none"
