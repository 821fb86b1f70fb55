"""In which field two records differ, so that a refusal or a stale cell can name it."""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

LONGEST = 60


class Difference(NamedTuple):
    """One field of two JSON values."""

    field: str
    """keys and places from the outside in, joined by dots; empty where the values themselves differ"""
    before: Any
    now: Any

    @property
    def sentence(self) -> str:
        return f"{self.field}: {short(self.before)}, now {short(self.now)}"


def differences(before: Any, now: Any, field: str = "") -> Iterator[Difference]:
    """Every field that differs, in the order of keys. A key that one of them lacks is null there."""
    if isinstance(before, dict) and isinstance(now, dict):
        pairs = [(key, before.get(key), now.get(key)) for key in sorted({*before, *now})]
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        pairs = [(str(place), a, b) for place, (a, b) in enumerate(zip(before, now, strict=True))]
    else:
        if before != now:
            yield Difference(field, before, now)
        return
    for key, a, b in pairs:
        yield from differences(a, b, f"{field}.{key}" if field else key)


def short(value: Any, longest: int = LONGEST) -> str:
    """The value as JSON, cut where it is long."""
    said = json.dumps(value, sort_keys=True)
    return said if len(said) <= longest else said[: longest - 3] + "..."
