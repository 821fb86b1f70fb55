"""The calculator against Python's own evaluation, and the calls of it against a machine that reads token by token."""

import warnings
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paribus.downstream.chat.calculator import LONGEST, Calculator, calculate
from paribus.downstream.chat.format import ChatFormat

NUMBERS = st.one_of(
    st.integers(0, 10**12).map(str),
    st.integers(0, 10**9).map("{:,}".format),
    st.decimals(0, 10**6, places=2).map(str),
    st.sampled_from([".5", "3.", "007", "0", "00", "1e5", "0x1", "1_000"]),
)


def _joined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    operation = st.sampled_from(["+", "-", "*", "/", "//", " + ", " - ", "**", "%"])
    return st.one_of(
        st.tuples(inner, operation, inner).map("".join),
        inner.map("({})".format),
        inner.map("-{}".format),
        inner.map("+{}".format),
    )


EXPRESSIONS = st.one_of(st.recursive(NUMBERS, _joined, max_leaves=8), st.text("0123456789*+-/.(), ", max_size=12))


def by_python(expression: str) -> str | None:
    """nanochat's rule for arithmetic: a list of characters, no powers, then whatever Python makes of it."""
    plain = expression.replace(",", "")
    if set(plain) - set("0123456789*+-/.() ") or "**" in plain:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        try:
            value = eval(plain, {"__builtins__": {}})
        except Exception:
            return None
    return str(value) if type(value) in (int, float) else None


@given(EXPRESSIONS)
def test_arithmetic_is_pythons_within_the_characters_that_are_allowed(expression: str) -> None:
    assert calculate(expression) == by_python(expression)


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("12/60", "0.2"),
        ("1,000*3", "3000"),
        ("7//2", "3"),
        ("2*(3+4)-1", "13"),
        ("-3 + +2", "-1"),
        ("0.1+0.2", "0.30000000000000004"),
        ("1/0", None),
        ("2**3", None),
        ("7%3", None),
        ("", None),
        ("()", None),
        ("...", None),
        ("5(3)", None),
        ("x+1", None),
        ("__import__('os').system('true')", None),
        ("'strawberry'.count('r')", "3"),
        ('"strawberry".count("rr")', "1"),
        (" 'strawberry'.count( 'r' ) ", "3"),
        ("'profile'.count('f')", "1"),
        ("'a,b'.count(',')", "3"),  # commas are removed first: the empty text, between and around two letters
        ("'naïve'.count('a')", None),
        ("'strawberry'.count('r') + 1", None),
        ("'strawberry'.upper()", None),
        ("open('secret').count('a')", None),
        ("'a'.__class__.count('a')", None),
        ("'a'.count('a', 0)", None),
        ("'''a'''.count('a')", None),
    ],
)
def test_what_is_answered(expression: str, result: str | None) -> None:
    assert calculate(expression) == result


@pytest.mark.parametrize(
    ("expression", "result"),
    [("2**10", "1024"), ("7%3", "1"), ("2**-1", "0.5"), ("2**0.5", str(2**0.5)), ("(-8)**0.5", None), ("0**-1", None)],
)
def test_powers_and_remainders_are_answered_where_they_are_asked_for(expression: str, result: str | None) -> None:
    assert calculate(expression, extended=True) == result
    assert calculate(expression) is None


@pytest.mark.parametrize(
    "expression", ["9**9**9", "(9**9)**(9**9)", "2**(10**6)", "(-2)**99999", "2.0**99999", "9" * 400 + "." + "**9" * 20]
)
def test_a_power_that_is_too_large_has_no_result(expression: str) -> None:
    assert calculate(expression, extended=True) is None


@pytest.mark.parametrize(
    "expression",
    ["(" * 249 + "1" + ")" * 249, "-" * 400 + "1", "1" + "+1" * 249, "9*" * 249 + "9", "(" * 400, "9" * 500],
)
def test_depth_and_length_end_in_a_result_or_in_none(expression: str) -> None:
    assert len(expression) <= LONGEST
    found = calculate(expression)
    assert found is None or found == by_python(expression)
    assert calculate(expression + " " * LONGEST) is None


def machine(tokens: Sequence[int], chat: ChatFormat) -> list[list[int] | None]:
    """What is forced behind each token, reading them one after the other with a state."""
    special = set(chat.tokenizer.special_tokens.values())
    inside, call, forced = False, [], []
    for token in tokens:
        answer = None
        if token == chat.python_start:
            inside, call = True, []
        elif token == chat.python_end and inside:
            inside = False
            result = None if special & set(call) else calculate(chat.tokenizer.decode(call))
            if result is not None:
                encoded = chat.tokenizer.encode_batch([result])[0].tolist()
                answer = [chat.output_start, *encoded, chat.output_end]
        elif inside:
            call.append(token)
        forced.append(answer)
    return forced


@given(data=st.data())
def test_calls_are_those_that_a_machine_finds_reading_token_by_token(chat: ChatFormat, data: st.DataObject) -> None:
    [digits] = chat.tokenizer.encode_batch(["1+2*3"])
    ordinary = [*digits.tolist(), chat.python_start, chat.python_end, chat.output_start, chat.bos, chat.assistant_start]
    tokens = data.draw(st.lists(st.sampled_from(ordinary), max_size=24))
    calculator = Calculator(chat)
    assert [calculator(tokens[: length + 1]) for length in range(len(tokens))] == machine(tokens, chat)


def test_a_call_forces_its_output_between_the_output_tokens(chat: ChatFormat) -> None:
    encode = chat.tokenizer.encode_batch
    [call, result, prompt] = (ids.tolist() for ids in encode(["12*4", "48", "What is 12*4?"]))
    row = [chat.bos, chat.user_start, *prompt, chat.user_end, chat.assistant_start, chat.python_start, *call]
    calculator = Calculator(chat)
    assert calculator(row) is None
    assert calculator([*row, chat.python_end]) == [chat.output_start, *result, chat.output_end]
    assert calculator([]) is None
    assert calculator([chat.python_end]) is None
    assert calculator([chat.python_start, chat.python_end]) is None
    for special in chat.tokenizer.special_tokens.values():  # though it stands for no text
        nested = [*row, special, *call, chat.python_end]
        assert (calculator(nested) is None) == (special != chat.python_start)
