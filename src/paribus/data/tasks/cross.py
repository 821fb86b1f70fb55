"""`cross`: match on a computed key and read a raw token, or match on a raw token and read a computed key.

Source: our own, one sentence turned into data: where to look needs a feature gathered from other places, what to read
is the token itself. It descends from the key-value recall of Zoology (Arora et al., arXiv 2312.04927), where both are
raw.

A row is `records` records, then as many queries. A record is m digits (of `digits`) and one content; its key is the sum
of its digits modulo `digits`. Keys differ within a row, so do contents. With m = 0 there is no digit, and a content c
names its own key, c modulo `digits`: both roles are raw, the control. Each record is asked for once, in random order,
by one of two faces:

    [QD, key symbol] -> content        deep query: the key is computed, the content is raw
    [QS, content]    -> key symbol     deep content: the content is raw, the key is computed

The target stands at the second token of the query; answers are not fed back. What is left of a longer row is padding.

Chance: ln contents on QD, ln digits on QS. Floor 0. Shortcuts: any content (key) of the row, ln records; and, since
each record is asked for once and a query shows the other side of its own, any that no earlier query has shown: the mean
over the queries j = 0, 1, ... of E ln(records - B) with B ~ Binomial(j, 1/2), 1.80 nats for 8 records. With m = 0 the
query alone tells a key's contents (QD: ln(contents / digits)) and a content's key (QS: 0). Slices: the two faces.
"""

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from paribus.data.tasks.contract import Levels, Rows, Task, uniform_nats
from paribus.data.tasks.hashing import Draws
from paribus.data.tasks.padding import padded, refuse_short

_QD, _QS = 0, 1


class Cross(Task):
    """Retrieval by a computed key and of a computed key."""

    name = "cross"
    title = "computed key or computed content"
    sentence = (
        "Records of digits and a content, then queries: given the digit sum name the content (QD), "
        "given the content name the digit sum (QS)."
    )
    slices = ("QD", "QS")
    primary = "QD"
    tiny: ClassVar[Mapping[str, Any]] = {"m": 1, "digits": 4, "records": 2, "contents": 4}
    tiny_row_length = 8

    m: Annotated[int, Field(ge=0, le=8)] = 1
    """digits of a key, 0 to 8: 0 both roles are raw; 1 the key is the token before; more need a sum modulo `digits`"""
    digits: Annotated[int, Field(ge=2, le=512)] = 16
    """how many digits, hence how many keys, 2 to 512"""
    records: Annotated[int, Field(ge=2, le=512)] = 8
    """records, and queries, of a row, 2 to 512"""
    contents: Annotated[int, Field(ge=2, le=4096)] = 32
    """how many contents, 2 to 4,096"""
    kind: Literal["mixed", "deep-query", "deep-content"] = "mixed"
    """"mixed" tosses a fair coin for each query; "deep-query" asks QD only, "deep-content" QS only"""

    @model_validator(mode="after")
    def _records_can_differ(self) -> "Cross":
        if self.records > self.digits:
            raise ValueError(f"{self.records} records cannot have different keys among digits = {self.digits}")
        if self.records > self.contents:
            raise ValueError(f"{self.records} records cannot have different contents among contents = {self.contents}")
        if self.m == 0 and self.contents % self.digits:
            raise ValueError(
                f"with m = 0 a content names its key: contents = {self.contents} must be a multiple of digits = "
                f"{self.digits}"
            )
        return self

    @property
    def vocabulary_size(self) -> int:
        """Digits, contents, key symbols, QD, QS, in this order."""
        return self.digits + self.contents + self.digits + 2

    @property
    def least_row_length(self) -> int:
        return self.records * (self.m + 1) + 2 * self.records

    def rows(self, seed: int, step: NDArray[np.int64], row: NDArray[np.int64], row_length: int) -> Rows:
        refuse_short(self, row_length)
        draws = self.draws(seed, step, row)
        first_content, first_key = self.digits, self.digits + self.contents
        keys = draws.chosen("keys", self.digits, self.records)
        digits, contents = self._records(draws, keys)
        order = draws.permutations("order", self.records)
        kind = self._kinds(draws)

        record = np.concatenate([digits, first_content + contents[..., None]], axis=-1)  # [row record m+1]
        asked_key = first_key + np.take_along_axis(keys, order, axis=-1)
        asked_content = first_content + np.take_along_axis(contents, order, axis=-1)
        is_deep_query = kind == _QD
        query = np.stack(
            [first_key + self.digits + kind, np.where(is_deep_query, asked_key, asked_content)], axis=-1
        )  # [row query 2]
        content_at = order * (self.m + 1) + self.m
        first = self.records * (self.m + 1)
        return padded(
            row_length,
            np.concatenate([record.reshape(len(keys), -1), query.reshape(len(keys), -1)], axis=-1),
            first,
            2,
            np.where(is_deep_query, asked_content, asked_key),
            kind,
            np.where(is_deep_query, content_at, self._key_at(content_at, first)),
        )

    def _records(self, draws: Draws, keys: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Digits `[row record m]` that sum to the keys, and contents `[row record]`, counted from 0."""
        if self.m == 0:
            copies = draws.integers("contents", self.contents // self.digits, self.records)
            return np.zeros((*keys.shape, 0), dtype=np.int64), keys + self.digits * copies
        free = draws.integers("digits", self.digits, self.records, self.m - 1)
        last = (keys - free.sum(-1)) % self.digits
        return np.concatenate([free, last[..., None]], axis=-1), draws.chosen("contents", self.contents, self.records)

    def _kinds(self, draws: Draws) -> NDArray[np.int64]:
        """Face of each query `[row query]`."""
        if self.kind == "mixed":
            return draws.integers("kinds", 2, self.records)
        return np.full((len(draws.keys), self.records), _QD if self.kind == "deep-query" else _QS, dtype=np.int64)

    def _key_at(self, content_at: NDArray[np.int64], first: int) -> NDArray[np.int64]:
        """Where a QS answer can be read: at the query itself (m = 0), at the one digit, or at no single place."""
        if self.m == 0:
            return np.broadcast_to(first + 1 + 2 * np.arange(self.records), content_at.shape)
        return content_at - 1 if self.m == 1 else np.full_like(content_at, -1)

    def levels(self, row_length: int) -> Mapping[str, Levels]:
        refuse_short(self, row_length)
        deep_query = {"any content of the row": uniform_nats(self.records)}
        deep_content = {"any key of the row": uniform_nats(self.records)}
        if self.kind == "mixed":
            deep_query["any content not shown yet"] = not_shown_nats(self.records)
            deep_content["any key not shown yet"] = not_shown_nats(self.records)
        if self.m == 0:
            deep_query["any content of the key"] = uniform_nats(self.contents // self.digits)
            deep_content["the key that the content names"] = 0.0
        found = {
            "QD": Levels(chance=uniform_nats(self.contents), floor=0.0, shortcuts=deep_query),
            "QS": Levels(chance=uniform_nats(self.digits), floor=0.0, shortcuts=deep_content),
        }
        absent = {"mixed": "", "deep-query": "QS", "deep-content": "QD"}[self.kind]
        return {name: levels for name, levels in found.items() if name != absent}

    def oracle(self, tokens: NDArray[np.int64], seed: int) -> NDArray[np.float64]:
        del seed  # nothing in the rows is fixed by the seed
        probability = np.zeros((*tokens.shape, self.vocabulary_size))
        first = self.records * (self.m + 1)
        for r, row in enumerate(tokens.tolist()):
            key_of, content_of = {}, {}
            for begin in range(0, first, self.m + 1):
                *digits, content = row[begin : begin + self.m + 1]
                key = sum(digits) % self.digits if self.m else (content - self.digits) % self.digits
                symbol = self.digits + self.contents + key
                key_of[content], content_of[symbol] = symbol, content
            for t in range(first + 1, self.least_row_length, 2):
                deep_query = row[t - 1] == self.vocabulary_size - 2
                probability[r, t, content_of[row[t]] if deep_query else key_of[row[t]]] = 1.0
        return probability


def not_shown_nats(records: int) -> float:
    """Mean over the queries of ln of the answers that no earlier query of the other face has shown."""
    by_query = [
        sum(math.comb(earlier, shown) * math.log(records - shown) for shown in range(earlier + 1)) / 2**earlier
        for earlier in range(records)
    ]
    return math.fsum(by_query) / records
