"""The tool that an assistant may call while it writes: a calculator, with nanochat's rules for what it answers.

    python_start EXPRESSION python_end        written by the model
    output_start RESULT output_end            forced behind it; nothing where there is no result

Facts of karpathy/nanochat, nanochat/engine.py (October 2025 to July 2026), because scores depend on them. Commas are
removed first. Answered are sums, differences, products and quotients (/ and //) of plain numbers, with signs and
parentheses and the result as Python writes it; and the count of one quoted text in another, 'word'.count('r'). Powers,
remainders and everything else get no answer.

Of two of its rules the purpose is kept, not the letter. It lets Python evaluate what has passed a list of characters
and holds none of a list of words ("file", which is in "profile"); here nothing but those two forms is evaluated. It
gives up after 3 seconds; here the length is bounded, so that no clock decides.
"""

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paribus.downstream.chat.format import ChatFormat

LONGEST = 500
"""characters of an expression"""
LARGEST_BITS = 4096
"""of a power"""

_ARITHMETIC = re.compile(r"[0-9*+\-/.()% ]+")
_QUOTED = r"""(['"])([A-Za-z0-9()._ ]*)"""
_COUNT = re.compile(rf"\s*{_QUOTED}\1\.count\( *{_QUOTED}\3 *\)\s*")

Number = int | float
_SIGNS: Mapping[type[ast.unaryop], Callable[[Number], Number]] = {ast.UAdd: operator.pos, ast.USub: operator.neg}
_OPERATIONS: Mapping[type[ast.operator], Callable[[Number, Number], Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}


def calculate(expression: str, *, extended: bool = False) -> str | None:
    """The result as text, None where there is none. `extended` allows % and bounded **, which nanochat does not."""
    plain = expression.replace(",", "")
    if len(plain) > LONGEST:
        return None
    if counted := _COUNT.fullmatch(plain):
        return str(counted[2].count(counted[4]))
    if not _ARITHMETIC.fullmatch(plain):
        return None
    operations = dict(_OPERATIONS)
    if extended:
        operations |= {ast.Mod: operator.mod, ast.Pow: _power}
    try:
        return str(_value(ast.parse(plain.strip(" "), mode="eval").body, operations))
    # MemoryError and RecursionError are how the parser refuses deep nesting.
    except (SyntaxError, ArithmeticError, ValueError, MemoryError, RecursionError):
        return None


@dataclass(frozen=True)
class Calculator:
    """Which tokens follow a call of the tool; to be asked after every token of a row."""

    chat_format: ChatFormat

    def __call__(self, tokens: Sequence[int] | NDArray[np.integer]) -> list[int] | None:
        """`tokens`: a row so far, `[token]`, with or without its prompt. The tokens to force next, None for none.

        A call is a python_end behind a python_start, with no other special token between: a pure function of the row.
        """
        chat = self.chat_format
        if len(tokens) == 0 or tokens[-1] != chat.python_end:
            return None
        special = set(chat.tokenizer.special_tokens.values())
        written: list[int] = []
        for token in map(int, reversed(tokens[:-1])):
            if token in special:
                result = calculate(chat.tokenizer.decode(written[::-1])) if token == chat.python_start else None
                return None if result is None else self._output(result)
            written.append(token)
        return None

    def _output(self, result: str) -> list[int]:
        [encoded] = self.chat_format.tokenizer.encode_batch([result])
        return [self.chat_format.output_start, *encoded.tolist(), self.chat_format.output_end]


def _value(root: ast.expr, operations: Mapping[type[ast.operator], Callable[[Number, Number], Number]]) -> Number:
    """Without recursion, so that how deep the caller is decides nothing. ValueError for what is not arithmetic."""
    order, pending = [], [root]
    while pending:
        node = pending.pop()
        order.append(node)
        if isinstance(node, ast.BinOp):
            pending += [node.left, node.right]
        elif isinstance(node, ast.UnaryOp):
            pending.append(node.operand)
    values: dict[ast.expr, Number] = {}
    for node in reversed(order):
        match node:
            case ast.Constant(value=int() | float() as value):
                values[node] = value
            case ast.UnaryOp(op=sign, operand=inner) if type(sign) in _SIGNS:
                values[node] = _SIGNS[type(sign)](values[inner])
            case ast.BinOp(left=left, op=operation, right=right) if type(operation) in operations:
                values[node] = operations[type(operation)](values[left], values[right])
            case _:
                raise ValueError("not arithmetic")
    return values[root]


def _power(base: Number, exponent: Number) -> Number:
    if isinstance(base, int) and isinstance(exponent, int) and base.bit_length() * abs(exponent) > LARGEST_BITS:
        raise ValueError("too large")
    result = base**exponent
    if isinstance(result, complex):
        raise ValueError("not a real number")
    return result
