"""One line of JSON (RFC 8259) without more memory than its bytes and the bytes of the value that is wanted.

A short line goes through the standard parser. Of a long one the long strings and the long lists of numbers are cut
out first: the parser sees what is left, so both ways accept the same lines, and a string of 100 MB is unescaped from
bytes to bytes, a block at a time.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paribus.data.sources.contract import Skip
from paribus.data.sources.judging import BadValueError, is_blank

_LONG_LINE = 1 << 20
_LONG_PART = 1 << 16
_BLOCK_BYTES = 1 << 18

# Possessive quantifiers: an unterminated string or list fails at once and holds no stack.
_OPENING = re.compile(rb'["\[]')
_STRING = re.compile(
    rb'"[^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*+)*+"',
)
_NUMBERS = re.compile(rb"\[[\t\n\r ]*+(?:0|[1-9][0-9]*+)(?:[\t\n\r ]*+,[\t\n\r ]*+(?:0|[1-9][0-9]*+))*+[\t\n\r ]*+\]")
# Whole characters and escapes; a surrogate escape only as the first half of a pair with its second.
_UNITS = re.compile(
    rb"(?:[^\\]++|\\[^u]|\\u(?![dD][89a-fA-F])[0-9a-fA-F]{4}"
    rb"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})*+",
    re.DOTALL,
)
_SURROGATE_BYTES = 6

# A lone surrogate has no UTF-8 form: no text that could become a document is mistaken for a mark.
_MARK = "\udfff"


@dataclass(frozen=True)
class LongPart:
    """Bytes of the line: a string with its quotes, or a list of non-negative integers with its brackets."""

    line: bytes
    start: int
    stop: int


def members(line: bytes) -> dict[str, object]:
    """The line's object; long strings and long lists of numbers as LongPart (`utf8_of` and `numbers_of` read both).

    Raises BadValueError for a line that is not UTF-8 or no JSON object.
    """
    is_blank(line)
    skeleton, parts = _cut(line) if len(line) > _LONG_LINE else (line, [])
    try:
        value = json.loads(skeleton.decode())
    except (ValueError, RecursionError) as error:
        raise BadValueError(
            Skip.MALFORMED, expected="a JSON object", received=f"{error} in {_excerpt(line)}"
        ) from error
    if not isinstance(value, dict):
        raise BadValueError(Skip.MALFORMED, expected="a JSON object", received=_excerpt(line))
    return {key: _restored(held, parts) for key, held in value.items()} if parts else value


def utf8_of(value: object, key: str) -> bytes | None:
    """UTF-8 of a string, None for null. Raises BadValueError for another type and for lone surrogates."""
    if value is None:
        return None
    if isinstance(value, LongPart) and value.line[value.start] == ord('"'):
        return b"".join(_unescaped(value))
    if not isinstance(value, str):
        raise BadValueError(Skip.WRONG_TYPE, expected=f"a string under '{key}'", received=_named(value))
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise _lone_surrogate(f"\\u{ord(value[error.start]):04x}") from error


def numbers_of(value: object, key: str) -> Iterator[NDArray[np.int64]] | None:
    """The integers of a list in blocks, None for null. Raises BadValueError for another type."""
    if value is None:
        return None
    if isinstance(value, LongPart) and value.line[value.start] == ord("["):
        return _parsed(value)
    if not isinstance(value, list) or any(type(number) is not int for number in value):
        raise BadValueError(Skip.WRONG_TYPE, expected=f"a list of integers under '{key}'", received=_named(value))
    try:
        return iter([np.array(value, dtype=np.int64)])
    except OverflowError as error:
        raise BadValueError(Skip.MALFORMED, expected="token ids", received=str(error)) from error


def _cut(line: bytes) -> tuple[bytes, list[LongPart]]:
    """The line with marks in the place of its long parts, and these."""
    kept: list[bytes] = []
    parts: list[LongPart] = []
    position = done = 0
    while opening := _OPENING.search(line, position):
        start = opening.start()
        quoted = line[start] == ord('"')
        match = (_STRING if quoted else _NUMBERS).match(line, start)
        if quoted and match is None:
            raise BadValueError(
                Skip.MALFORMED,
                expected="a JSON object",
                received=f"a string without an end, or with a raw control character or a wrong escape, at byte {start} "
                f"of {_excerpt(line)}",
            )
        position = match.end() if match else start + 1
        if position - start > _LONG_PART:
            kept += [line[done:start], b'"\\udfff%d"' % len(parts)]
            parts.append(LongPart(line, start, position))
            done = position
    kept.append(line[done:])
    return b"".join(kept), parts


def _restored(value: object, parts: list[LongPart]) -> object:
    if not isinstance(value, str) or not value.startswith(_MARK) or not value[1:].isdecimal():
        return value
    index = int(value[1:])
    return parts[index] if index < len(parts) else value


def _unescaped(part: LongPart) -> Iterator[bytes]:
    start, stop = part.start + 1, part.stop - 1
    while start < stop:
        units = _UNITS.match(part.line, start, min(start + _BLOCK_BYTES, stop))
        assert units is not None  # the pattern matches nothing at all, too
        end = units.end()
        if end == start:
            # Anything else that a string may hold is a unit, and a block has room for it.
            raise _lone_surrogate(part.line[start : start + _SURROGATE_BYTES].decode())
        while part.line[end] & 0b1100_0000 == 0b1000_0000:
            end -= 1  # to the beginning of a character
        yield json.loads(b'"' + part.line[start:end] + b'"').encode()
        start = end


def _parsed(part: LongPart) -> Iterator[NDArray[np.int64]]:
    start, stop = part.start + 1, part.stop - 1
    while start < stop:
        comma = part.line.find(b",", min(start + _BLOCK_BYTES, stop), stop)
        end = stop if comma < 0 else comma
        try:
            yield np.array([int(number) for number in part.line[start:end].split(b",")], dtype=np.int64)
        except (ValueError, OverflowError) as error:
            raise BadValueError(Skip.MALFORMED, expected="token ids", received=str(error)) from error
        start = end + 1


def _lone_surrogate(escape: str) -> BadValueError:
    return BadValueError(
        Skip.INVALID_UTF8, expected="a text that has a UTF-8 form", received=f"a lone surrogate, {escape}"
    )


def _named(value: object) -> str:
    kinds = {dict: "an object", list: "a list", LongPart: "a long string or list", bool: "a truth value"}
    return kinds.get(type(value), f"{value!r:.40}")


def _excerpt(line: bytes) -> str:
    return repr(line[:60].decode(errors="replace")) + ("..." if len(line) > 60 else "")
