"""What is taken from a text that a model wrote, and when it is right: nanochat's rules, because scores depend on them.

Facts of karpathy/nanochat: tasks/gsm8k.py (after openai/grade-school-math) and tasks/humaneval.py.

    number     the first "#### " with a number behind it: an optional minus, digits, points and commas, commas removed;
               compared as text, so 5.0 is not 5, and neither is "5." at the end of a sentence
    program    the first block fenced by three backticks (without a language, or python), else all of the text;
               before it come the imports that the prompt begins with, behind it the tests and check(entry point)
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paribus.downstream import sandbox
from paribus.downstream.chat.format import ChatFormat

_NUMBER = re.compile(r"#### (-?[0-9.,]+)")
_FENCED = re.compile(r"```(?:python)?\s*\n(.*?)\n```", re.DOTALL)
NOT_ALLOWED = "its program was not run: running code was not allowed"


@dataclass(frozen=True)
class Judged:
    """What a generated answer is worth."""

    correct: bool
    prediction: str
    """the number, or the program; empty where the text holds none"""
    problem: str = ""
    """why the answer could not be judged, or what its program was stopped at, in words; it counts as wrong"""


def written_text(tokens: Sequence[int] | NDArray[np.integer], chat_format: ChatFormat) -> str:
    """The text of generated tokens up to the end of the answer, special tokens spelled by their names.

    They are spelled so that a number or a program with a call of the tool inside is not taken for one without.
    """
    names = {token: name for name, token in chat_format.tokenizer.special_tokens.items()}
    parts: list[str] = []
    plain: list[int] = []
    for token in map(int, tokens):
        if token in (chat_format.assistant_end, chat_format.bos):
            break
        if token in names:
            parts += [chat_format.tokenizer.decode(plain), names[token]]
            plain = []
        else:
            plain.append(token)
    return "".join([*parts, chat_format.tokenizer.decode(plain)])


def number_after_marks(text: str) -> str | None:
    """The number behind the first "#### ", without commas; None where there is none."""
    found = _NUMBER.search(text)
    return None if found is None else found[1].replace(",", "")


def judge_number(gold: str, text: str) -> Judged:
    """`gold` as `number_after_marks` gives it."""
    found = number_after_marks(text)
    return Judged(found == gold, found or "")


def program_of(text: str) -> str:
    """The program that a text holds."""
    fenced = _FENCED.search(text)
    return (text if fenced is None else fenced[1]).strip()


def imports_of(prompt: str) -> str:
    """The import lines that a prompt begins with, comments and blank lines passed over."""
    found = []
    for line in map(str.strip, prompt.split("\n")):
        if line.startswith(("import ", "from ")):
            found.append(line)
        elif line and not line.startswith("#"):
            break
    return "\n".join(found)


def judge_program(prompt: str, tests: str, entry_point: str, text: str, *, allow_code: bool) -> Judged:
    """Run the program of a text against its tests in the sandbox: right where it runs to the end of them.

    Nothing is run unless `allow_code`. SandboxError where this machine cannot sandbox; then nothing was run either.
    """
    code = program_of(text)
    if not allow_code:
        return Judged(False, code, NOT_ALLOWED)
    outcome = sandbox.run(f"{imports_of(prompt)}\n\n{code}\n\n{tests}\ncheck({entry_point})")
    return Judged(outcome.ok, code, f"its program {outcome.problem}" if outcome.stopped else "")
