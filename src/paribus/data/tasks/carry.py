"""`carry`: fetch a value over several look-ups, and add to it a number that was there from the start.

Source: our own, on the cycle of `hop`: what an early token said is needed at the very end, so a model that can read the
embedding late is at an advantage.

A row is a random cycle through `nodes` of the `names`, given as triples (u, next u, value of u) in random order, values
uniform on 0..values-1, then `queries` queries [k, u, a], k uniform in 0..hops and u a uniform node. At a the value of
the k-th successor of u plus a, modulo `values`, is asked for. A fair coin for each query decides whether a is 0
(`fixed`) or uniform on 1..values-1 (`free`): the control stands in the same rows, and free minus fixed is what the
addition costs. Answers are not fed back. What is left of a longer row is padding.

`answer` is the place of the value to which a, the token at the target's own place, is added.

Chance: ln values. Floor 0. Shortcut: any value of the row, plus a: the expected entropy of the values' histogram, with
c the count of a value that is there, 1 + Binomial(nodes - 1, 1 / values), E ln(nodes / c). Slices: free and fixed, or
with by = "hops" one for each k.
"""

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from paribus.data.tasks.contract import Levels, Rows, Task, uniform_nats
from paribus.data.tasks.padding import padded, refuse_short

_FREE, _FIXED, _FIRST_K = 0, 1, 2


class Carry(Task):
    """Pointer chasing to a value, then an addition."""

    name = "carry"
    title = "early content needed late"
    sentence = (
        "A cycle of names with values, then queries [k, name, a]: the value of the k-th successor plus a; "
        "a is 0 in half of them."
    )
    slices = ("free", "fixed", "k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7")
    primary = "free-fixed"
    tiny: ClassVar[Mapping[str, Any]] = {"nodes": 2, "names": 3, "values": 3, "hops": 1, "queries": 2}
    tiny_row_length = 12

    nodes: Annotated[int, Field(ge=1, le=256)] = 6
    """names on the cycle of a row, 1 to 256"""
    names: Annotated[int, Field(ge=1, le=4096)] = 32
    """how many names there are, 1 to 4,096"""
    values: Annotated[int, Field(ge=2, le=512)] = 8
    """values 0..values-1, added modulo `values`, 2 to 512"""
    hops: Annotated[int, Field(ge=0, le=7)] = 3
    """the largest k, 0 to 7, below `nodes`"""
    queries: Annotated[int, Field(ge=1, le=512)] = 6
    """queries of a row, 1 to 512"""
    by: Literal["addend", "hops"] = "addend"
    """what the slices tell apart: "addend" (free, fixed) or "hops" (k0, k1, ...)"""

    @model_validator(mode="after")
    def _cycle_fits(self) -> "Carry":
        if self.nodes > self.names:
            raise ValueError(f"a cycle of nodes = {self.nodes} needs as many different names, not names = {self.names}")
        if self.hops >= self.nodes:
            raise ValueError(f"hops = {self.hops} must be below nodes = {self.nodes}: the cycle would close")
        return self

    @property
    def vocabulary_size(self) -> int:
        """Names, values, symbols of k = 0..hops, addends, in this order."""
        return self.names + self.values + (self.hops + 1) + self.values

    @property
    def least_row_length(self) -> int:
        return 3 * self.nodes + 3 * self.queries

    def rows(self, seed: int, step: NDArray[np.int64], row: NDArray[np.int64], row_length: int) -> Rows:
        refuse_short(self, row_length)
        draws = self.draws(seed, step, row)
        cycle = draws.chosen("names", self.names, self.nodes)  # [row node], each followed by the next
        values = draws.integers("values", self.values, self.nodes)
        order = draws.permutations("triples", self.nodes)  # the triple at each place, by the node it starts from
        place = np.argsort(order, axis=-1)  # and back
        hops = draws.integers("hops", self.hops + 1, self.queries)
        start = draws.integers("starts", self.nodes, self.queries)
        fixed = draws.integers("fixed", 2, self.queries)
        addend = np.where(fixed == 1, 0, 1 + draws.integers("addends", self.values - 1, self.queries))

        def of_node(array: NDArray[np.int64], node: NDArray[np.int64]) -> NDArray[np.int64]:
            return np.take_along_axis(array, node % self.nodes, axis=-1)

        triples = np.stack(
            [of_node(cycle, order), of_node(cycle, order + 1), self.names + of_node(values, order)], axis=-1
        )
        first_hop = self.names + self.values
        queries = np.stack([first_hop + hops, of_node(cycle, start), first_hop + self.hops + 1 + addend], axis=-1)
        return padded(
            row_length,
            np.concatenate([triples.reshape(len(cycle), -1), queries.reshape(len(cycle), -1)], axis=-1),
            3 * self.nodes,
            3,
            self.names + (of_node(values, start + hops) + addend) % self.values,
            np.where(fixed == 1, _FIXED, _FREE) if self.by == "addend" else _FIRST_K + hops,
            3 * of_node(place, start + hops) + 2,
        )

    def levels(self, row_length: int) -> Mapping[str, Levels]:
        refuse_short(self, row_length)
        same = Levels(
            chance=uniform_nats(self.values),
            floor=0.0,
            shortcuts={"any value of the row, plus a": expected_entropy_nats(self.nodes, self.values)},
        )
        present = self.slices[:_FIRST_K] if self.by == "addend" else self.slices[_FIRST_K : _FIRST_K + self.hops + 1]
        return dict.fromkeys(present, same)

    def oracle(self, tokens: NDArray[np.int64], seed: int) -> NDArray[np.float64]:
        del seed  # nothing in the rows is fixed by the seed
        probability = np.zeros((*tokens.shape, self.vocabulary_size))
        first, first_hop = 3 * self.nodes, self.names + self.values
        for r, row in enumerate(tokens.tolist()):
            successor = dict(zip(row[0:first:3], row[1:first:3], strict=True))
            value = dict(zip(row[0:first:3], row[2:first:3], strict=True))
            for t in range(first + 2, self.least_row_length, 3):
                name = row[t - 1]
                for _ in range(row[t - 2] - first_hop):
                    name = successor[name]
                addend = row[t] - (first_hop + self.hops + 1)
                probability[r, t, self.names + (value[name] - self.names + addend) % self.values] = 1.0
        return probability


def expected_entropy_nats(draws: int, choices: int) -> float:
    """Expected entropy of the histogram of `draws` independent uniform draws from `choices`, nats: the loss of naming
    one of them, when it is asked for, by their histogram."""
    others, p = draws - 1, 1.0 / choices
    return sum(
        math.comb(others, k) * p**k * (1.0 - p) ** (others - k) * math.log(draws / (1 + k)) for k in range(draws)
    )
