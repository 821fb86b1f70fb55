"""What becomes of an item that is longer than the context: whole examples go first, oldest first, then tokens.

The policy looks at the tokenizer and the context alone, so it is the same for every arm. All rows of an item keep the
same examples. A row keeps the tokenizer's beginning as its first token, and its scored tokens all.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from paribus.downstream.core.spans import SpanError, Tokens


@dataclass
class ShotSearch:
    """How many examples fit: the most whose rows do. Longer prompts never have fewer tokens, so it is bracketed."""

    shots: int
    """that were drawn"""
    context_length: int
    lengths: Sequence[int]
    """characters of the rendered examples, oldest first"""
    most: int = -1
    """of examples that are known to fit; -1: none yet"""
    fewest: int = field(init=False)
    """of examples that are known not to fit"""

    def __post_init__(self) -> None:
        self.fewest = self.shots + 1

    def told(self, shots: int, tokens: int) -> None:
        """So many examples made a longest row of so many tokens."""
        if tokens <= self.context_length:
            self.most = max(self.most, shots)
        else:
            self.fewest = min(self.fewest, shots)

    @property
    def found(self) -> bool:
        return self.fewest - self.most == 1

    def guess(self, shots: int, tokens: int, characters: int) -> int:
        """How many examples to try next, by the characters that a token has had with `shots` of them."""
        room = characters * self.context_length / tokens
        rest = characters - sum(self.lengths[self.shots - shots :])
        fitting = 0
        for length in reversed(self.lengths):
            rest += length
            if rest > room:
                break
            fitting += 1
        return min(max(fitting, self.most + 1), self.fewest - 1)


def crop_tokens(
    rows: Sequence[Tokens], starts: Sequence[int], context_length: int
) -> tuple[list[Tokens], list[int], int]:
    """Rows of at most `context_length` tokens, their spans' first tokens, and how many tokens were left out.

    Every row loses the same tokens behind its first one, as many as the longest needs, so that answers are compared
    after the same words; a row with less before its span loses what it has. Raises SpanError where a span is too long.
    """
    cut = max(0, max(len(row) for row in rows) - context_length)
    if cut == 0:
        return list(rows), list(starts), 0
    longest = max(len(row) - start for row, start in zip(rows, starts, strict=True))
    if longest > context_length - 1:
        raise SpanError(f"the scored part has {longest} tokens, the context {context_length}")
    cuts = [min(cut, start - 1) for start in starts]
    cropped = [np.concatenate([row[:1], row[1 + left :]]) for row, left in zip(rows, cuts, strict=True)]
    return cropped, [start - left for start, left in zip(starts, cuts, strict=True)], cut
