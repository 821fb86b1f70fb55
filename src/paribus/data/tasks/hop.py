"""`hop`: the k-th successor on a cycle that the row spells out, an answer that takes one look-up after another.

Source: Depo of Physics of Language Models 4.1 (Allen-Zhu, arXiv 2512.17351), made small: one-token names, a cycle of
fixed size, one loss per query.

A row is a random cycle through `nodes` of the `names`, given as its edges (u, next u) in random order, then `queries`
queries [k, u], k uniform in 1..hops and u a uniform node of the cycle. At u the k-th successor of u is asked for;
answers are not fed back, and a query may come twice. What is left of a longer row is padding.

`answer` is the second token of the edge that ends at the asked name (the name stands once more, as the start of its own
edge).

Chance: ln names. Floor 0. Shortcuts: any name of the row, ln nodes; any name of the row but u, ln(nodes - 1), as good
as can be without following an edge, since hops < nodes. Slices by k. The claim is about k >= 3: primary k3.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from paribus.data.tasks.contract import Levels, Rows, Task, uniform_nats
from paribus.data.tasks.padding import padded, refuse_short


class Hop(Task):
    """Pointer chasing of declared depth."""

    name = "hop"
    title = "the k-th successor on a cycle"
    sentence = "The edges of a cycle in random order, then queries [k, name]: name the k-th successor."
    slices = ("k1", "k2", "k3", "k4", "k5", "k6", "k7", "k8")
    primary = "k3"
    tiny: ClassVar[Mapping[str, Any]] = {"nodes": 3, "names": 4, "hops": 2, "queries": 2}
    tiny_row_length = 10

    nodes: Annotated[int, Field(ge=2, le=256)] = 8
    """names on the cycle of a row, 2 to 256"""
    names: Annotated[int, Field(ge=2, le=4096)] = 32
    """how many names there are, 2 to 4,096"""
    hops: Annotated[int, Field(ge=1, le=8)] = 4
    """the largest k, 1 to 8, below `nodes` so that no name is its own answer"""
    queries: Annotated[int, Field(ge=1, le=512)] = 8
    """queries of a row, 1 to 512"""

    @model_validator(mode="after")
    def _cycle_fits(self) -> "Hop":
        if self.nodes > self.names:
            raise ValueError(f"a cycle of nodes = {self.nodes} needs as many different names, not names = {self.names}")
        if self.hops >= self.nodes:
            raise ValueError(f"hops = {self.hops} must be below nodes = {self.nodes}: the cycle would close")
        return self

    @property
    def vocabulary_size(self) -> int:
        """Names, then the symbols of k = 1..hops."""
        return self.names + self.hops

    @property
    def least_row_length(self) -> int:
        return 2 * self.nodes + 2 * self.queries

    def rows(self, seed: int, step: NDArray[np.int64], row: NDArray[np.int64], row_length: int) -> Rows:
        refuse_short(self, row_length)
        draws = self.draws(seed, step, row)
        cycle = draws.chosen("names", self.names, self.nodes)  # [row node], each followed by the next
        order = draws.permutations("edges", self.nodes)  # the edge at each place, by the node it starts from
        place = np.argsort(order, axis=-1)  # and back
        hops = 1 + draws.integers("hops", self.hops, self.queries)
        start = draws.integers("starts", self.nodes, self.queries)

        def name_of(node: NDArray[np.int64]) -> NDArray[np.int64]:
            return np.take_along_axis(cycle, node % self.nodes, axis=-1)

        edges = np.stack([name_of(order), name_of(order + 1)], axis=-1)
        queries = np.stack([self.names + hops - 1, name_of(start)], axis=-1)
        last_edge = np.take_along_axis(place, (start + hops - 1) % self.nodes, axis=-1)
        return padded(
            row_length,
            np.concatenate([edges.reshape(len(cycle), -1), queries.reshape(len(cycle), -1)], axis=-1),
            2 * self.nodes,
            2,
            name_of(start + hops),
            hops - 1,
            2 * last_edge + 1,
        )

    def levels(self, row_length: int) -> Mapping[str, Levels]:
        refuse_short(self, row_length)
        same = Levels(
            chance=uniform_nats(self.names),
            floor=0.0,
            shortcuts={
                "any name of the row": uniform_nats(self.nodes),
                "any name of the row but the queried one": uniform_nats(self.nodes - 1),
            },
        )
        return dict.fromkeys(self.slices[: self.hops], same)

    def oracle(self, tokens: NDArray[np.int64], seed: int) -> NDArray[np.float64]:
        del seed  # nothing in the rows is fixed by the seed
        probability = np.zeros((*tokens.shape, self.vocabulary_size))
        first = 2 * self.nodes
        for r, row in enumerate(tokens.tolist()):
            successor = dict(zip(row[:first:2], row[1:first:2], strict=True))
            for t in range(first + 1, self.least_row_length, 2):
                name = row[t]
                for _ in range(row[t - 1] - self.names + 1):
                    name = successor[name]
                probability[r, t, name] = 1.0
        return probability
