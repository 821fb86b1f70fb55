"""Conversations that teach to spell words and to count their letters, generated from a word list.

They stand for nanochat's SimpleSpelling and SpellingBee of April 2026. What an answer is scored by is theirs (a call of
str.count, its output, "#### n" at the end); the wording of questions and explanations is our own, and so is the draw:
row i is a pure function of (kind, split, i) and of the words, whatever else is read.
"""

import string
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from paribus.downstream.chat.format import Conversation
from paribus.seeds import generator

Split = Literal["train", "test"]
ASKED_OF_OWN_LETTER = 0.9
"""share of questions about a letter that the word has; of the others it is any letter"""
QUESTIONS = (
    "How many times is {letter} in {word}?",
    "How many {letter} does {word} have?",
    "how many {letter} in {word}",
    "Please count the letter {letter} in {word}.",
    "Count {letter} in the word {word}.",
    "In {word}, how often do I see {letter}?",
    "I am looking at the word {word}. How many of its letters are {letter}?",
    "number of {letter} in {word}?",
    "Tell me how often {letter} occurs in {word}.",
    "Does {word} contain {letter}, and how often?",
    "what is the count of {letter} in {word}",
    "Look at {word}: how many {letter} are there?",
)
QUOTES = ("", "'", '"')


def simple_spelling(words: Sequence[str], row: int, split: Split = "train") -> Conversation:
    """A word is asked for, and its letters are the answer, joined by commas."""
    draw = generator("chat", "simple-spelling", split, row)
    word = words[int(draw.integers(len(words)))]
    return [_user(f"Spell the word: {word}"), _assistant(f"{word}:{','.join(word)}")]


def spelling_bee(words: Sequence[str], row: int, split: Split = "train") -> Conversation:
    """How often a letter occurs in a word: spelled out, counted letter by letter, then counted by the interpreter."""
    draw = generator("chat", "spelling-bee", split, row)
    word = words[int(draw.integers(len(words)))]
    own = draw.random() < ASKED_OF_OWN_LETTER
    letter = word[int(draw.integers(len(word)))] if own else string.ascii_lowercase[int(draw.integers(26))]
    question = QUESTIONS[int(draw.integers(len(QUESTIONS)))]
    around_letter, around_word = (QUOTES[int(place)] for place in draw.integers(len(QUOTES), size=2))
    asked = question.format(letter=f"{around_letter}{letter}{around_letter}", word=f"{around_word}{word}{around_word}")
    count = word.count(letter)
    parts = [
        _part("text", f"The word is {word}. Its letters one by one:\n\n{_counted(word, letter)}\nThat makes {count}. "),
        _part("text", "The interpreter should agree:\n\n"),
        _part("python", f"{word!r}.count({letter!r})"),
        _part("python_output", str(count)),
        _part("text", f"\n\nIt counts {count}.\n\n#### {count}"),
    ]
    return [_user(asked), _assistant(parts)]


def _counted(word: str, letter: str) -> str:
    """A line for each letter: its place and itself without a space between, as the word itself is spelled by no space;
    behind the letter that is looked for, how many there are so far."""
    seen, lines = 0, []
    for place, each in enumerate(word, 1):
        seen += each == letter
        lines.append(f"{place}:{each}" + (f" is number {seen}" if each == letter else ""))
    return "\n".join(lines) + "\n"


def _part(kind: str, text: str) -> Mapping[str, str]:
    return {"type": kind, "text": text}


def _user(text: str) -> Mapping[str, Any]:
    return {"role": "user", "content": text}


def _assistant(content: str | Sequence[Mapping[str, str]]) -> Mapping[str, Any]:
    return {"role": "assistant", "content": content}
