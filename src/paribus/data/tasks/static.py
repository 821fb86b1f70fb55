"""Static: rows of `chain` with targets that nothing in them foretells.

Source: the leak detector of the project's wind tunnel. A model that learns anything here has seen its targets.

Definition. The tokens are those of `chain` with the same knobs; every place is asked, and its target is a symbol drawn
uniformly and independently of everything. Chance and floor: ln states. No shortcut. One slice, `every`.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from paribus.data.tasks.chain import Chain
from paribus.data.tasks.contract import Levels, Rows, uniform_nats
from paribus.data.tasks.padding import refuse_short


class Static(Chain):
    """Rows of `chain` with targets that nothing in them foretells."""

    name: ClassVar[str] = "static"
    title: ClassVar[str] = "targets that nothing foretells"
    sentence: ClassVar[str] = (
        "Each row is written by a Markov chain; asked is a symbol drawn independently of it, which nobody can know."
    )
    slices: ClassVar[tuple[str, ...]] = ("every",)
    primary: ClassVar[str] = "every"

    def rows(self, seed: int, step: NDArray[np.int64], row: NDArray[np.int64], row_length: int) -> Rows:
        chain = super().rows(seed, step, row, row_length)
        shape = (len(row), row_length)
        return replace(
            chain,
            targets=self.draws(seed, step, row).integers("static target", self.states, row_length),
            asked=np.ones(shape, dtype=np.bool_),
            slice=np.zeros(shape, dtype=np.int16),
            floor_nats=np.full(shape, uniform_nats(self.states)),
        )

    def levels(self, row_length: int) -> Mapping[str, Levels]:
        refuse_short(self, row_length)
        return {"every": Levels(uniform_nats(self.states), uniform_nats(self.states), {})}

    def standard_errors(self, row_length: int) -> Mapping[str, float]:
        del row_length  # nothing is simulated
        return {"every": 0.0}

    def oracle(self, tokens: NDArray[np.int64], seed: int) -> NDArray[np.float64]:
        del seed  # nothing in the rows is fixed by the seed
        return np.full((*tokens.shape, self.states), 1 / self.states)
