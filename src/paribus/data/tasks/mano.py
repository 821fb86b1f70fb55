"""`mano`: compute a value, fetch nothing.

Source: Mano of Physics of Language Models 4.1 (Allen-Zhu, arXiv 2512.17351), made small: modulo 7 instead of 23, at
most 4 operators instead of 10 and more, no division of lengths into buckets.

A row is packed with expressions in prefix form, each followed by "=", at which its value modulo `modulus` is asked for.
An expression has l operators out of +, - and x, l uniform on 0..max_operators, a tree shape uniform among the
Catalan(l) binary trees, operators and numbers uniform. Each expression is one document. The first one that would cross
the end of the row and all after it are left out, so the longest are slightly rarer than uniform; the rest is padding.

Chance of a slice: the entropy of the value over such expressions, exact; products favour 0, so it is below ln modulus
from l = 1 on. Floor 0. Shortcuts: uniform, ln modulus; with l = 0 the number itself, 0; with more, what the first
operator alone or the last number alone says of the value, exact as well. Slices: l. The claim is about l = 4.
"""

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from paribus.data.tasks.contract import Levels, Rows, Task, uniform_nats
from paribus.data.tasks.hashing import Draws
from paribus.data.tasks.padding import refuse_short

_OPERATORS = 3
_PLUS, _MINUS, _TIMES = range(_OPERATORS)
_NUMBER, _OPERATOR, _UNUSED = 0, 1, 2


class Mano(Task):
    """Modular arithmetic in prefix form."""

    name = "mano"
    title = "computation without fetching"
    sentence = "Prefix expressions of +, - and x on small numbers, each followed by '=': name the value."
    slices = ("l0", "l1", "l2", "l3", "l4", "l5", "l6", "l7", "l8")
    primary = "l4"
    tiny: ClassVar[Mapping[str, Any]] = {"modulus": 3, "max_operators": 1}
    tiny_row_length = 8

    modulus: Annotated[int, Field(ge=2, le=97)] = 7
    """numbers are 0..modulus-1, 2 to 97"""
    max_operators: Annotated[int, Field(ge=0, le=8)] = 4
    """the most operators of an expression, 0 to 8"""

    @property
    def vocabulary_size(self) -> int:
        """Numbers, then +, -, x, =."""
        return self.modulus + _OPERATORS + 1

    @property
    def least_row_length(self) -> int:
        return 2 * self.max_operators + 2

    def rows(self, seed: int, step: NDArray[np.int64], row: NDArray[np.int64], row_length: int) -> Rows:
        refuse_short(self, row_length)
        draws = self.draws(seed, step, row)
        shape = (len(draws.keys), row_length)
        row_of, equals_at, operators, places, pattern = self._packed(draws, row_length)
        number = draws.integers("numbers", self.modulus, row_length)
        operator = self.modulus + draws.integers("operators", _OPERATORS, row_length)
        at = (np.broadcast_to(row_of[:, None], places.shape), places)
        symbols = np.where(pattern == _OPERATOR, operator[at], number[at])

        tokens = np.zeros(shape, dtype=np.int64)
        used = pattern != _UNUSED
        tokens[at[0][used], at[1][used]] = symbols[used]
        tokens[row_of, equals_at] = self.vocabulary_size - 1
        targets, asked = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.bool_)
        labels, answer = np.zeros(shape, dtype=np.int16), np.full(shape, -1, dtype=np.int64)
        targets[row_of, equals_at] = self._values(symbols, pattern)
        asked[row_of, equals_at] = True
        labels[row_of, equals_at] = operators
        answer[row_of, equals_at] = np.where(operators == 0, equals_at - 1, -1)
        return Rows(
            tokens=tokens,
            targets=targets,
            asked=asked,
            slice=labels,
            floor_nats=np.zeros(shape),
            answer=answer,
            document=(np.cumsum(asked, axis=-1) - asked).astype(np.int32),
        )

    def _packed(self, draws: Draws, row_length: int) -> tuple[NDArray[np.int64], ...]:
        """Of each expression that fits: its row, the place of its "=", its operators `[expression]`; and of each of its
        symbols the place and what it is `[expression 2*max_operators+1]`, unused ones at the place of the "="."""
        slots = row_length // 2
        operators = draws.integers("lengths", self.max_operators + 1, slots)
        end = np.cumsum(2 * operators + 2, axis=-1)
        row_of, slot = np.nonzero(end <= row_length)
        operators, equals_at = operators[row_of, slot], end[row_of, slot] - 1
        table, first, count = _shape_table(self.max_operators)
        shape = (draws.uniform("shapes", slots)[row_of, slot] * count[operators]).astype(np.int64)
        pattern = table[first[operators] + shape]
        places = (equals_at - 2 * operators - 1)[:, None] + np.arange(pattern.shape[1])
        return row_of, equals_at, operators, np.minimum(places, equals_at[:, None]), pattern

    def _values(self, symbols: NDArray[np.int64], pattern: NDArray[np.int64]) -> NDArray[np.int64]:
        """Values of prefix expressions `[expression place]`, read from their ends with a stack."""
        stack = np.zeros((len(symbols), self.max_operators + 2), dtype=np.int64)
        depth = np.zeros(len(symbols), dtype=np.int64)
        for place in reversed(range(symbols.shape[1])):
            pushed = np.flatnonzero(pattern[:, place] == _NUMBER)
            stack[pushed, depth[pushed]] = symbols[pushed, place]
            depth[pushed] += 1
            joined = np.flatnonzero(pattern[:, place] == _OPERATOR)
            top = depth[joined]
            left, right = stack[joined, top - 1], stack[joined, top - 2]
            operator = symbols[joined, place] - self.modulus
            value = np.where(operator == _TIMES, left * right, left + np.where(operator == _PLUS, right, -right))
            stack[joined, top - 2] = value % self.modulus
            depth[joined] -= 1
        return stack[:, 0]

    def levels(self, row_length: int) -> Mapping[str, Levels]:
        refuse_short(self, row_length)
        found = {}
        for operators in range(self.max_operators + 1):
            by_last, by_first = _joint_distributions(self.modulus, operators)
            shortcuts = {"uniform": uniform_nats(self.modulus)}
            if operators == 0:
                shortcuts["the number itself"] = 0.0
            else:
                shortcuts["the first operator alone"] = conditional_entropy_nats(by_first)
                shortcuts["the last number alone"] = conditional_entropy_nats(by_last)
            chance = conditional_entropy_nats(by_last.sum(-1, keepdims=True))
            found[f"l{operators}"] = Levels(chance=chance, floor=0.0, shortcuts=shortcuts)
        return found

    def oracle(self, tokens: NDArray[np.int64], seed: int) -> NDArray[np.float64]:
        del seed  # nothing in the rows is fixed by the seed
        probability = np.zeros((*tokens.shape, self.vocabulary_size))
        for r, row in enumerate(tokens.tolist()):
            begin = 0
            for t, token in enumerate(row):
                if token == self.vocabulary_size - 1:
                    probability[r, t, self._parsed(row[begin:t])[0]] = 1.0
                    begin = t + 1
        return probability

    def _parsed(self, symbols: list[int]) -> tuple[int, list[int]]:
        """The value of the prefix expression that the symbols begin with, and the symbols after it."""
        head, rest = symbols[0], symbols[1:]
        if head < self.modulus:
            return head, rest
        left, rest = self._parsed(rest)
        right, rest = self._parsed(rest)
        return (left + right, left - right, left * right)[head - self.modulus] % self.modulus, rest


def conditional_entropy_nats(joint: NDArray[np.float64]) -> float:
    """Entropy of the value given the clue, nats; `joint` is their probability `[value clue]`."""
    conditional = joint / joint.sum(0, keepdims=True)
    positive = joint > 0
    return max(float(-(joint[positive] * np.log(conditional[positive])).sum()), 0.0)


@cache
def tree_shapes(operators: int) -> tuple[tuple[int, ...], ...]:
    """Every binary tree with that many inner nodes, in prefix order: 1 an operator, 0 a number. Catalan many."""
    if operators == 0:
        return ((_NUMBER,),)
    return tuple(
        (_OPERATOR, *left, *right)
        for inner in range(operators)
        for left in tree_shapes(inner)
        for right in tree_shapes(operators - 1 - inner)
    )


@cache
def _shape_table(most: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """All shapes of 0..most operators, one a row, filled up; where those of l operators begin; how many they are."""
    shapes = [shape for operators in range(most + 1) for shape in tree_shapes(operators)]
    width = 2 * most + 1
    table = np.array([[*shape, *[_UNUSED] * (width - len(shape))] for shape in shapes], dtype=np.int64)
    count = np.array([len(tree_shapes(operators)) for operators in range(most + 1)], dtype=np.int64)
    return table, np.cumsum(count) - count, count


@cache
def _joint_distributions(modulus: int, operators: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Probability of (value, last number) and, from 1 operator on, of (value, first operator), `[value clue]`.

    A uniform shape of l operators splits into i and l - 1 - i with probability C_i C_{l-1-i} / C_l (C Catalan), and
    both parts are uniform again.
    """
    if operators == 0:
        return np.eye(modulus) / modulus, np.full((modulus, 1), 1.0 / modulus)
    number = np.arange(modulus)
    outcomes = [f(number[:, None], number[None, :]) % modulus for f in (np.add, np.subtract, np.multiply)]
    by_last, by_first = np.zeros((modulus, modulus)), np.zeros((modulus, _OPERATORS))
    for inner in range(operators):
        share = len(tree_shapes(inner)) * len(tree_shapes(operators - 1 - inner)) / len(tree_shapes(operators))
        left = _joint_distributions(modulus, inner)[0].sum(-1)
        right = _joint_distributions(modulus, operators - 1 - inner)[0]
        for operator, outcome in enumerate(outcomes):
            weight = share / _OPERATORS * left[:, None, None] * right[None, :, :]  # [left right last]
            found = np.zeros((modulus, modulus))
            np.add.at(found, outcome, weight)
            by_last += found
            by_first[:, operator] += found.sum(-1)
    return by_last, by_first
