"""Which tokens of some items are computed once, and which rows are computed together. Knows tokens, no tensors.

A row's last scored token is never an input, so a row of n tokens costs n - 1 (`letters`, whose answer stands behind
the last token, n). Of an item whose rows begin alike, the beginning is computed once and every row continues it:

    tokens of the unit = prefix + sum over rows of (inputs of the row - prefix)

A prefix ends where the first scored token of one of its rows begins, at the latest: the logits at its last position are
then that token's, and nothing else of the head is needed for it. Where sharing saves fewer tokens than it puts through
the head needlessly (other contexts before one continuation), each row stands for itself.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from paribus.downstream.items import Item, Row

WASTE = 1 / 8
"""largest share of padding in a batch of prefixes"""
WASTE_BEHIND, WORTH_A_CALL = 1 / 4, 64
"""the same of continuations, and tokens of padding that cost less than another call"""
FULL_ENOUGH = 1 / 4
"""of a batch, from which on another length begins another one: rows of one length need no padding and no mask"""


@dataclass(frozen=True)
class Unit:
    """Rows of one item that continue one prefix."""

    item: int
    """by which the item is known to whoever plans"""
    rows: tuple[int, ...]
    """of the item; those with more tokens behind the prefix come first"""
    prefix: int
    """tokens, at least 1"""
    longest: int
    """inputs of the longest row"""
    tokens: int
    """all inputs that are computed"""


def inputs(row: Row) -> int:
    """Tokens of a row that a model must read."""
    return len(row.tokens) - (row.start < len(row.tokens))


def units_of(place: int, item: Item) -> Iterator[Unit]:
    """One unit, or one of each row where sharing gains nothing."""
    first = min(row.start for row in item.rows)
    common = min(_common(item.rows), first)
    saved, headed = common * (len(item.rows) - 1), sum(row.start - common for row in item.rows)
    if len(item.rows) == 1 or (common >= 1 and saved >= headed):
        yield _unit(place, item, range(len(item.rows)), common if len(item.rows) > 1 else first)
        return
    for index, row in enumerate(item.rows):
        yield _unit(place, item, [index], row.start)


def _unit(place: int, item: Item, rows: Sequence[int], prefix: int) -> Unit:
    ordered = sorted(rows, key=lambda index: -inputs(item.rows[index]))
    behind = sum(inputs(item.rows[index]) - prefix for index in rows)
    return Unit(place, tuple(ordered), prefix, inputs(item.rows[ordered[0]]), prefix + behind)


def _common(rows: Sequence[Row]) -> int:
    """Length of the beginning that all rows share."""
    shared = rows[0].tokens
    for row in rows[1:]:
        length = min(len(shared), len(row.tokens))
        differs = (shared[:length] != row.tokens[:length]).nonzero()[0]
        shared = shared[: int(differs[0]) if len(differs) else length]
    return len(shared)


def batches_of(units: Sequence[Unit], batch_tokens: int, most: int) -> Iterator[list[Unit]]:
    """Units of similar lengths, at most `most` and `batch_tokens` of cache a batch but for one that needs more alone.

    The longest come first, so that memory that does not suffice is seen at once.
    """
    batch: list[Unit] = []
    longest = filled = 0
    for unit in sorted(units, key=lambda unit: (-unit.prefix, -unit.longest)):
        reach = max(longest, unit.longest)
        if batch:
            padded, other = batch[0].prefix * (len(batch) + 1), unit.prefix != batch[0].prefix
            too_many = reach * (len(batch) + 1) > batch_tokens or len(batch) >= most
            enough = other and batch[0].prefix * len(batch) >= FULL_ENOUGH * batch_tokens
            if too_many or enough or padded - filled - unit.prefix > WASTE * padded:
                yield batch
                batch, reach, filled = [], unit.longest, 0
        batch.append(unit)
        longest, filled = reach, filled + unit.prefix
    if batch:
        yield batch


def parts_of(lengths: Sequence[int], most_tokens: int, most: int) -> Iterator[slice]:
    """Continuations, the longest first, in parts of little padding: at most `most` and `most_tokens`, but for one by
    itself."""
    begin, filled = 0, 0
    for place, length in enumerate(lengths):
        padded = lengths[begin] * (place + 1 - begin)
        waste = padded - filled - length
        full = padded > most_tokens or place - begin >= most
        if place > begin and (full or waste > max(WASTE_BEHIND * padded, WORTH_A_CALL)):
            yield slice(begin, place)
            begin, filled = place, 0
        filled += length
    if lengths:
        yield slice(begin, len(lengths))
