"""Lines of a cell's metrics.jsonl: which count, where several workers wrote, and how far they are whole."""

from collections.abc import Sequence
from typing import Any

from paribus.runs.records import Line, lines_of


def of_holders(lines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Lines of metrics but those of a worker that had lost the cell: its token is lower than that of a line before,
    or the holder of a higher one trained the same update again. A line of an earlier version has no token."""
    kept: list[dict[str, Any]] = []
    highest = None
    for line in lines:
        step = _update_of(line)
        token = None if step is None else line.get("token")
        if step is not None and isinstance(token, int):
            if highest is not None and token < highest:
                continue
            if highest is not None and token > highest:
                kept = [before for before in kept if (_update_of(before) or 0) < step]
            highest = token
        kept.append(line)
    return kept


def sound(file: bytes) -> tuple[list[Line], int]:
    """Lines of updates one after another up to the first that is damaged or missing, and the last one's update."""
    lines = list(lines_of(file))
    good = [line for line in lines if not line.wrong and _update_of(line.content) is not None]
    held = {id(content) for content in of_holders([line.content for line in good])}
    left_out = {line.number for line in good if id(line.content) not in held}
    found: list[Line] = []
    reach = 0
    for line in lines:
        if line.number in left_out:
            continue
        step = None if line.wrong else _update_of(line.content)
        if step is None or (found and step != reach + 1):
            break
        found.append(line)
        reach = step
    return found, reach


def highest_token(file: bytes) -> int:
    """Of the claims that wrote these lines; 0 where none of them says one."""
    lines = (line.content for line in lines_of(file))
    return max(
        (line["token"] for line in lines if isinstance(line, dict) and type(line.get("token")) is int), default=0
    )


def _update_of(line: object) -> int | None:
    """Which update a line of metrics is of; None where it is no such line."""
    step = line.get("step") if isinstance(line, dict) else None
    return step if isinstance(step, int) else None
