"""Which tokens of an item's rows are scored, after nanochat's core_eval.py.

    multiple_choice     from the first token in which the answers' rows differ, to the end
    schema              the tokens at the end that all rows have in common
    language_modeling   those behind the prompt without its continuation, whose tokens must begin the row

Where one answer begins with all of another ("Cu" and "C"), the other has no token of its own, and nanochat takes the
mean of nothing, a NaN that wins or loses by the order of the answers. Here the span begins one token earlier, in all
rows: 4 of the 4,214 items of arc_easy and piqa with the tokenizer of the golden values, none elsewhere.

A tokenizer may spell the end of a prompt otherwise once the continuation follows. Then no token is where the
continuation begins, and nanochat stops with a failed assertion. Here the item is marked instead, and counts as wrong:
a span that began earlier would ask for words of the prompt as well, and an item of one task would be another task. The
same tokenizer serves every arm, so the same items are marked in all of them.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from paribus.downstream.core.official import Kind

Tokens = NDArray[np.int32]


class SpanError(Exception):
    """No span can be scored; the text says why."""


def common_prefix(rows: Sequence[Tokens]) -> int:
    """How many first tokens all rows have in common."""
    shortest = min(len(row) for row in rows)
    same = np.ones(shortest, dtype=bool)
    for row in rows[1:]:
        same &= row[:shortest] == rows[0][:shortest]
    return shortest if same.all() else int(np.argmin(same))


def common_suffix(rows: Sequence[Tokens]) -> int:
    """How many last tokens all rows have in common."""
    return common_prefix([row[::-1] for row in rows])


def scored(kind: Kind, rows: Sequence[Tokens]) -> tuple[list[Tokens], list[int]]:
    """Rows that are asked, and the first scored token of each; the span ends the row.

    `rows` are encoded prompts with the tokenizer's beginning, as `rendering.prompts` orders them. Raises SpanError.
    """
    match kind:
        case "multiple_choice":
            shortest = min(len(row) for row in rows)
            start = min(common_prefix(rows), shortest - 1)
            if start == 0 or all(np.array_equal(row, rows[0]) for row in rows):
                raise SpanError("the answers are the same in tokens, or one has no token at all")
            return list(rows), [start] * len(rows)
        case "schema":
            length = common_suffix(rows)
            if length == 0:
                raise SpanError("the beginnings change the last token of the continuation, so that nothing is common")
            if any(len(row) == length for row in rows):
                raise SpanError("the beginnings are the same")
            return list(rows), [len(row) - length for row in rows]
        case "language_modeling":
            without, row = rows
            if len(row) <= len(without) or not np.array_equal(row[: len(without)], without):
                raise SpanError("the tokenizer has no token boundary where the continuation begins")
            return [row], [len(without)]
