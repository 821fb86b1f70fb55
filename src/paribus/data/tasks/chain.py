"""Chain: learn a fresh Markov chain from the row that it writes.

Source: task T3 of the project's wind tunnel, after Edelman et al. (2024, "The evolution of statistical induction
heads") and Bietti et al. (2023, "Birth of a Transformer").

Definition. Every row has a transition matrix of its own, each of whose rows is drawn from a symmetric Dirichlet of the
given concentration. The first `order` symbols are uniform; each later one is drawn from the row of the matrix that
belongs to the last `order` symbols, the state. The target at a place is the next symbol, also at the last place, whose
next symbol the row does not show. Where fewer than `order` symbols have been read nothing is asked.

The matrix is never drawn. With the Dirichlet integrated out, the symbol b follows the n-th earlier visit of state a
with probability (n_ab + concentration) / (n_a + concentration x states): a Polya urn. Drawing from the urn has exactly
the law of drawing the matrix first, costs a few gathers a place where a Dirichlet of small concentration would cost a
root search for each of its states^(order + 1) entries, and hands over the best predictor's probability at no cost.

Chance: by symmetry every symbol follows equally often, ln states on every slice.
Floor: Bayes' rule, which is the urn; `floor_nats` is its loss on each target. Its expectation on a slice depends on how
often states are visited again and has no closed form: `levels` takes the mean over 2^21 targets of a reserved stream
(over 2^16 rows where rows are short). With the default knobs and 128 places its standard error is 0.008 nats on `self`
and 0.002 on `later` (`standard_errors`); on `first` it is ln states exactly. Being the best over all targets, the rule
need not be the best on a slice that the answer defines.

Shortcuts, from the same simulation: "symbols of the row", which predicts (m_b + 1) / (m + states) where m_b of the m
symbols read so far are b (Laplace's rule for a source without memory); "the own symbol again", which gives the symbol
just read the probability with which it repeats and shares the rest equally.

Slices: `first` (a state that the row visits for the first time: only the prior helps), `self` (a later visit, after
which the own symbol follows), `later` (all other later visits). `self` is known only from the answer, so on `self` and
`later` every level is the loss of one predictor for all targets.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from paribus.data.tasks.contract import Levels, Rows, Task, one_document, sample, uniform_nats
from paribus.data.tasks.padding import refuse_short
from paribus.seeds import stream_key

FIRST, SELF, LATER = 0, 1, 2
LARGEST_TABLE = 4096
"""entries of a transition matrix; more would make the counts of a batch larger than its tokens by that factor"""
SIMULATED_TARGETS, SIMULATED_ROWS = 2**21, 2**16
"""at most, whichever is reached first"""
SIMULATED_STEPS = 8
"""parts in which they are drawn, to bound the memory"""


class Chain(Task):
    """Learn a fresh Markov chain from the row that it writes."""

    name: ClassVar[str] = "chain"
    title: ClassVar[str] = "learn a fresh Markov chain"
    sentence: ClassVar[str] = "Each row is written by a Markov chain of its own; asked is the next symbol."
    slices: ClassVar[tuple[str, ...]] = ("first", "self", "later")
    primary: ClassVar[str] = "later"
    tiny: ClassVar[Mapping[str, Any]] = {"states": 2, "concentration": 0.5}
    tiny_row_length: ClassVar[int] = 5

    states: int = Field(default=16, ge=2, le=64)
    """different symbols, 2 to 64; with `order` 2 at most 16 (6 is usual)"""
    concentration: float = Field(default=0.1, ge=0.001, le=100)
    """of the Dirichlet, 0.001 to 100; small values make each symbol follow by few others"""
    order: Literal[1, 2] = 1
    """how many symbols make the state: the last one, or the last two"""

    @model_validator(mode="after")
    def _table(self) -> "Chain":
        if self.states ** (self.order + 1) > LARGEST_TABLE:
            raise ValueError(
                f"{self.states} states with order {self.order} need {self.states ** (self.order + 1):,} transition "
                f"probabilities, at most {LARGEST_TABLE:,} are counted: lower 'states'"
            )
        return self

    @property
    def vocabulary_size(self) -> int:
        return self.states

    @property
    def least_row_length(self) -> int:
        return self.order

    def rows(self, seed: int, step: NDArray[np.int64], row: NDArray[np.int64], row_length: int) -> Rows:
        refuse_short(self, row_length)
        draws = self.draws(seed, step, row)
        symbols = np.empty((len(row), row_length + 1), dtype=np.int64)
        symbols[:, : self.order] = draws.integers("first", self.states, self.order)
        visits, hits = self._walk(symbols, draws.uniform("urn", row_length))
        tokens, targets = symbols[:, :-1], symbols[:, 1:].copy()
        asked = np.broadcast_to(np.arange(row_length) >= self.order - 1, tokens.shape).copy()
        targets[~asked] = 0
        label = np.where(visits == 0, FIRST, np.where(targets == tokens, SELF, LATER))
        bayes = (hits + self.concentration) / (visits + self.concentration * self.states)
        return Rows(
            tokens=np.ascontiguousarray(tokens),
            targets=targets,
            asked=asked,
            slice=np.where(asked, label, 0).astype(np.int16),
            floor_nats=np.where(asked, -np.log(bayes), 0.0),
            answer=np.full(tokens.shape, -1, dtype=np.int64),
            document=one_document(tokens.shape),
        )

    def levels(self, row_length: int) -> Mapping[str, Levels]:
        return self._simulated(row_length)[0]

    def standard_errors(self, row_length: int) -> Mapping[str, float]:
        """Of the simulated floor of each slice, nats per target, with rows as the independent units."""
        return self._simulated(row_length)[1]

    def oracle(self, tokens: NDArray[np.int64], seed: int) -> NDArray[np.float64]:
        del seed  # nothing in the rows is fixed by the seed
        answers = np.full((*tokens.shape, self.states), 1 / self.states)
        for r, row in enumerate(tokens.tolist()):
            for t in range(self.order - 1, len(row)):
                state = row[t - self.order + 1 : t + 1]
                earlier = [u for u in range(self.order - 1, t) if row[u - self.order + 1 : u + 1] == state]
                for b in range(self.states):
                    followed = sum(row[u + 1] == b for u in earlier)
                    answers[r, t, b] = (followed + self.concentration) / (
                        len(earlier) + self.concentration * self.states
                    )
        return answers

    def _simulated(self, row_length: int) -> tuple[Mapping[str, Levels], Mapping[str, float]]:
        refuse_short(self, row_length)
        return _simulated(self.states, self.concentration, self.order, row_length)

    def _walk(
        self, symbols: NDArray[np.int64], uniform: NDArray[np.float64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Fill `symbols` `[row time+1]` from its first `order` on. Gives, for each place `[row time]`, how often its
        state was visited before and how often the next symbol followed then; 0 where the state is not complete."""
        rows, places = uniform.shape
        states = self.states**self.order
        every = np.arange(rows) * states
        visits = np.zeros(rows * states, dtype=np.int64)
        hits = np.zeros(rows * states * self.states, dtype=np.int64)
        followers = np.zeros((rows * states, places), dtype=np.int8)
        """`[row state, visit]`: what came after each visit, the balls in the urn"""
        visited, hit = np.zeros((places, rows), dtype=np.int64), np.zeros((places, rows), dtype=np.int64)
        for t in range(self.order - 1, places):
            state = every + symbols[:, t]
            if self.order == 2:
                state += self.states * symbols[:, t - 1]
            n = visits[state]
            point = uniform[:, t] * (n + self.concentration * self.states)
            ball = np.minimum(point.astype(np.int64), np.maximum(n - 1, 0))
            # Rounding may carry the division to `states`.
            fresh = np.minimum(((point - n) / self.concentration).astype(np.int64), self.states - 1)
            following = np.where(point < n, followers[state, ball], fresh)
            transition = state * self.states + following
            visited[t], hit[t] = n, hits[transition]
            followers[state, n] = following
            visits[state] = n + 1
            hits[transition] += 1
            symbols[:, t + 1] = following
        return visited.T, hit.T


@cache
def _simulated(
    states: int, concentration: float, order: Literal[1, 2], row_length: int
) -> tuple[Mapping[str, Levels], Mapping[str, float]]:
    """Levels of each slice that occurs, and the standard error of its floor, from a reserved stream."""
    task = Chain(states=states, concentration=concentration, order=order)
    seed = stream_key("task levels", task.name)
    rows = max(1, min(SIMULATED_TARGETS // row_length, SIMULATED_ROWS) // SIMULATED_STEPS)
    sums = np.concatenate(
        [_sums(task, sample(task, seed, step, rows, row_length)) for step in range(SIMULATED_STEPS)], 2
    )
    count, floor, unigram, again = sums.transpose(1, 0, 2)
    again_rate = again.sum() / count.sum()
    levels, errors = {}, {}
    for index, name in enumerate(task.slices):
        total = count[index].sum()
        if not total:
            continue
        mean = floor[index].sum() / total
        repeated = again[index].sum() / total
        own = -repeated * np.log(again_rate) - (1 - repeated) * np.log((1 - again_rate) / (task.states - 1))
        shortcuts = {"symbols of the row": float(unigram[index].sum() / total), "the own symbol again": float(own)}
        levels[name] = Levels(uniform_nats(task.states), float(mean), shortcuts)
        errors[name] = float(np.sqrt(np.sum((floor[index] - mean * count[index]) ** 2)) / total)
    return levels, errors


def _sums(task: Chain, drawn: Rows) -> NDArray[np.float64]:
    """`[slice, quantity, row]`: targets, Bayes' loss, loss of the symbols of the row, targets equal to their token."""
    quantities = (
        np.ones(drawn.tokens.shape),
        drawn.floor_nats,
        _unigram_nats(drawn, task.states),
        drawn.targets == drawn.tokens,
    )
    return np.array(
        [
            [np.where(drawn.asked & (drawn.slice == index), quantity, 0.0).sum(axis=1) for quantity in quantities]
            for index in range(len(task.slices))
        ]
    )


def _unigram_nats(drawn: Rows, states: int) -> NDArray[np.float64]:
    """Loss of each target under the add-one frequencies of the symbols up to its place: `[row time]`."""
    rows, places = drawn.tokens.shape
    every = np.arange(rows) * states
    so_far = np.zeros(rows * states)
    hits = np.empty((places, rows))
    for t in range(places):
        so_far[every + drawn.tokens[:, t]] += 1
        hits[t] = so_far[every + drawn.targets[:, t]]
    return -np.log((hits.T + 1) / (np.arange(1, places + 1) + states))
