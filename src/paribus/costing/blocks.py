"""Turns of an update in mirrored blocks: A B C C B A. Why so, and what is made of them: `paribus.stats.step_ratio`.

The first half of a block is a drawn order that moves on by one place from block to block and is drawn anew once every
column has been in every place: each comes equally often first, last, and in the middle, where it follows itself.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from paribus.sample_update import Spent

Update = Callable[[], Spent]


def orders(columns: list[str], stream: np.random.Generator) -> Iterator[list[str]]:
    """The first half of each block, without end."""
    while True:
        drawn: list[str] = [columns[place] for place in stream.permutation(len(columns))]
        for place in range(len(columns)):
            yield drawn[place:] + drawn[:place]


@dataclass
class Turns:
    """What was timed so far, by column: turns 2b and 2b + 1 are those of block b."""

    wall_seconds: dict[str, list[float]] = field(default_factory=dict)
    cpu_seconds: dict[str, list[float]] = field(default_factory=dict)

    def take_block(self, updates: Mapping[str, Update], order: Sequence[str]) -> None:
        """Every column in this order and then in the reverse one."""
        for name in (*order, *reversed(order)):
            spent = updates[name]()
            self.wall_seconds.setdefault(name, []).append(spent.wall_seconds)
            self.cpu_seconds.setdefault(name, []).append(spent.cpu_seconds)
