"""What is read from a text, and when it is right."""

import pytest

from paribus.downstream import sandbox
from paribus.downstream.chat.format import ChatFormat
from paribus.downstream.chat.judging import (
    NOT_ALLOWED,
    Judged,
    imports_of,
    judge_number,
    judge_program,
    number_after_marks,
    program_of,
    written_text,
)

PROMPT = "from typing import List\n\n\ndef double(x: int) -> int:\n    # twice\n"
TESTS = "def check(candidate):\n    assert candidate(2) == 4\n    assert candidate(-1) == -2\n"


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("So it is\n#### 18", "18"),
        ("#### 1,234,567", "1234567"),
        ("#### -3.5", "-3.5"),
        ("#### 18.", "18."),
        ("#### 5.0", "5.0"),
        ("#### 1 and #### 2", "1"),
        ("#### $5", None),
        ("####5", None),
        ("### 5", None),
        ("5", None),
        ("#### <|python_start|>5", None),
        ("", None),
    ],
)
def test_the_number_is_the_first_behind_the_marks(text: str, number: str | None) -> None:
    assert number_after_marks(text) == number


def test_numbers_are_compared_as_texts() -> None:
    assert judge_number("18", "#### 18") == Judged(True, "18")
    assert judge_number("1234", "#### 1,234") == Judged(True, "1234")
    assert judge_number("18", "#### 18.0") == Judged(False, "18.0")
    assert judge_number("18", "eighteen") == Judged(False, "")


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("def f(): pass", "def f(): pass"),
        ("  \n x = 1 \n", "x = 1"),
        ("Here:\n```python\nx = 1\n```\nand\n```\ny = 2\n```", "x = 1"),
        ("```\nx = 1\n\ny = 2\n```", "x = 1\n\ny = 2"),
        ("```python\nx = 1", "```python\nx = 1"),
        ("```js\nx = 1\n```", "```js\nx = 1\n```"),
    ],
)
def test_the_program_is_the_first_fenced_block_or_all(text: str, program: str) -> None:
    assert program_of(text) == program


def test_imports_are_those_before_the_first_statement() -> None:
    prompt = "# a comment\nfrom typing import List\n\nimport math\ndef f():\n    import os\n"
    assert imports_of(prompt) == "from typing import List\nimport math"
    assert imports_of("def f(): pass\nimport os") == ""


def test_special_tokens_are_spelled_in_a_text_and_the_end_ends_it(chat: ChatFormat) -> None:
    call, number, rest = (ids.tolist() for ids in chat.tokenizer.encode_batch(["2*9", "#### ", "18 é"]))
    tokens = [*number, chat.python_start, *call, chat.python_end, *rest, chat.assistant_end, *number]
    assert written_text(tokens, chat) == "#### <|python_start|>2*9<|python_end|>18 é"
    assert written_text([*number, chat.bos, *rest], chat) == "#### "
    assert written_text([], chat) == ""


@pytest.mark.usefixtures("sandboxed")
@pytest.mark.parametrize(
    ("text", "correct", "problem"),
    [
        ("def double(x: int) -> int:\n    return 2 * x", True, ""),
        ("Sure:\n```python\ndef double(x: List) -> int:\n    return x + x\n```\nIt adds.", True, ""),
        ("def double(x):\n    return 4", False, ""),
        ("def other(x):\n    return 2 * x", False, ""),
        ("I cannot do that.", False, ""),
        ("def double(x):\n    return 2 * x\nraise SystemExit(0)", False, ""),
        ("import os\nos._exit(0)", False, "its program ended before it was through, with code 0"),
        ("def double(x):\n    import os\n    os.fork()", False, "its program was refused something"),
        ("def double(x):\n    open('/tmp/paribus-made', 'w')", False, "its program was refused something"),
    ],
)
def test_a_program_is_right_where_its_tests_run_to_their_end(text: str, correct: bool, problem: str) -> None:
    found = judge_program(PROMPT, TESTS, "double", text, allow_code=True)
    assert (found.correct, found.prediction) == (correct, program_of(text))
    assert found.problem.startswith(problem)
    assert bool(found.problem) == bool(problem)


def test_no_program_runs_unless_it_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    def ran(*_: object, **__: object) -> None:
        raise AssertionError("a program was run")

    monkeypatch.setattr(sandbox, "run", ran)
    found = judge_program(PROMPT, TESTS, "double", "def double(x):\n    return 2 * x", allow_code=False)
    assert (found.correct, found.problem) == (False, NOT_ALLOWED)
