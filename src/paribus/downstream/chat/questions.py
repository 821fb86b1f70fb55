"""A question with lettered choices as one message, word for word as nanochat asks it: scores depend on the words.

The letter stands behind its choice and directly after the sign, so that in the prompt it is the token that an answer of
this letter alone is.
"""

from collections.abc import Sequence

from paribus.errors import ParibusError

LETTERS = ("A", "B", "C", "D")


def multiple_choice_prompt(question: str, choices: Sequence[str], letters: Sequence[str] = LETTERS) -> str:
    """The user's message. ParibusError where there is not one letter a choice."""
    if len(choices) != len(letters) or not choices:
        raise ParibusError(
            "a question has not as many choices as letters",
            expected=f"{len(letters)} choices, for {', '.join(letters)}",
            received=f"{len(choices)}",
        )
    lines = [f"- {choice}={letter}" for choice, letter in zip(choices, letters, strict=True)]
    return "\n".join(
        [f"Multiple Choice question: {question}", *lines, "", "Respond only with the letter of the correct answer."]
    )
