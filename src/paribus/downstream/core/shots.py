"""Which examples stand before a question: nanochat's draw, with Python's generator and its seeds.

The items are shuffled once by Random(1337); a limit takes the first of them. The item at position p of that order gets
examples that Random(1234 + p) samples from the others, in the order in which they are sampled. nanochat samples from
what the limit left; by default here it is from all, so that an item's prompt is the same under every limit.
"""

import random
from bisect import bisect_left
from collections.abc import Sequence

ORDER_SEED = 1337
SHOTS_SEED = 1234


def shuffled(count: int) -> list[int]:
    """The fixed order of so many items: at each position, the item's number."""
    order = list(range(count))
    random.Random(ORDER_SEED).shuffle(order)
    return order


def draw(position: int, usable: Sequence[int], shots: int) -> list[int]:
    """Positions of the examples for the item at `position`, first example first.

    `usable`: positions that may be examples, ascending; the item's own is left out. ValueError where too few are left.
    """
    own = bisect_left(usable, position)
    present = own < len(usable) and usable[own] == position
    # Which places are sampled depends on how many there are alone, so the list without the item need not be made.
    places = random.Random(SHOTS_SEED + position).sample(range(len(usable) - present), shots)
    return [usable[place + (present and place >= own)] for place in places]
