"""Questions with letters as items, prompts that are too long, and the control."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paribus.downstream.chat.format import ChatFormat, ChatTokenizerError
from paribus.downstream.chat.tasks.letters import NO_OTHER, counterfactual, letters_item
from paribus.downstream.chat.tasks.prompts import generation_prompt, prompt_of
from paribus.downstream.chat.tasks.questions import LetterQuestion, NumberQuestion, Question, Questions

LETTERS = ("A", "B", "C", "D")
QUESTION = LetterQuestion(5, "What is 2+2?", ("1", "two", "4", "the cat"), LETTERS, 2)
TEXT = (
    "Multiple Choice question: What is 2+2?\n- 1=A\n- two=B\n- 4=C\n- the cat=D\n\n"
    "Respond only with the letter of the correct answer."
)
LONG = 4096


def test_an_item_is_the_prompt_up_to_the_answer_and_its_letters(chat: ChatFormat) -> None:
    item = letters_item(QUESTION, chat, LONG)
    text, *letters = chat.tokenizer.encode_batch([TEXT, *LETTERS])
    whole = [chat.bos, chat.user_start, *text.tolist(), chat.user_end, chat.assistant_start]
    [row] = item.rows
    assert row.tokens.tolist() == whole
    assert (row.start, row.bytes, row.tokens.dtype) == (len(whole), 0, np.int32)
    assert (item.item, item.kind, item.gold, item.labels) == (5, "letters", 2, LETTERS)
    assert item.letters == tuple(int(ids[0]) for ids in letters)
    assert (item.cropped_tokens, item.cropped_shots, item.problem) == (0, 0, "")


def test_a_letter_of_several_tokens_is_one_error(chat: ChatFormat) -> None:
    question = LetterQuestion(0, "Why?", ("a", "b"), ("A", "BB"), 0)
    with pytest.raises(ChatTokenizerError, match=f"BB in several, of the tokenizer {chat.tokenizer.digest[:16]}"):
        letters_item(question, chat, LONG)


@given(over=st.integers(-3, 200))
def test_too_long_prompts_lose_tokens_at_the_left_of_the_users_text(chat: ChatFormat, over: int) -> None:
    whole = letters_item(QUESTION, chat, LONG)
    tokens = whole.rows[0].tokens
    longest = len(tokens) - over
    item = letters_item(QUESTION, chat, longest)
    assert item.prompt_digest == whole.prompt_digest
    if over <= 0:
        assert item.rows[0].tokens.tolist() == tokens.tolist()
        assert item.cropped_tokens == 0
    elif longest > 4:
        assert item.rows[0].tokens.tolist() == [*tokens[:2], *tokens[2 + over :]]
        assert (item.cropped_tokens, item.rows[0].start, item.problem) == (over, longest, "")
    else:
        assert (item.rows, item.cropped_tokens) == ((), 0)
        assert "has no room for any of the question" in item.problem


def test_a_generated_answer_has_its_room_but_never_more_than_half_of_the_context(chat: ChatFormat) -> None:
    question = NumberQuestion(0, "apples " * 2000, "1")
    assert len(generation_prompt(question, chat, 2048).tokens) == 2048 - 512
    assert len(generation_prompt(question, chat, 600).tokens) == 300
    assert len(generation_prompt(question, chat, 601, new_tokens=10).tokens) == 591
    short = generation_prompt(NumberQuestion(0, "apples", "1"), chat, 2048)
    assert short.tokens.tolist() == chat.render_prompt([{"role": "user", "content": "apples"}]).tolist()
    assert short.cropped_tokens == 0


def test_an_empty_message_is_asked_as_it_is(chat: ChatFormat) -> None:
    found = prompt_of([{"role": "user", "content": ""}], chat, 5)
    assert (len(found.tokens), found.problem) == (4, "")


def test_a_malformed_question_is_an_item_with_its_problem(chat: ChatFormat) -> None:
    item = letters_item(Question(7, problem="question is None"), chat, LONG)
    assert (item.item, item.rows, item.problem) == (7, (), "question is None")


def questions(count: int, stems: int | None = None) -> Questions:
    """Each stem has one right answer among choices that all share; gold positions vary."""
    made = []
    for item in range(count):
        stem = item if stems is None else item % stems
        gold = stem * 7 % 4
        made.append(LetterQuestion(item, f"stem {stem}", ("red", "green", "blue", "black"), LETTERS, gold))
    return Questions("arc_easy", tuple(made), count, "")


def test_the_control_swaps_stems_and_nothing_else() -> None:
    plain = questions(200)
    swapped = counterfactual(plain)
    assert [question.item for question in swapped.all] == list(range(200))
    stems = []
    for own, other in zip(plain.all, swapped.all, strict=True):
        assert isinstance(own, LetterQuestion)
        assert isinstance(other, LetterQuestion)
        assert other.stem != own.stem
        assert (other.choices, other.letters, other.gold) == (own.choices, own.letters, own.gold)
        stems.append(other.stem)
    assert sorted(stems) == sorted(q.stem for q in plain.all if isinstance(q, LetterQuestion))
    assert counterfactual(plain) == swapped


def test_under_the_control_a_reader_of_stems_falls_to_chance_and_a_guesser_of_positions_does_not() -> None:
    plain = questions(4000)
    swapped = counterfactual(plain)
    right = {q.stem: q.gold for q in plain.all if isinstance(q, LetterQuestion)}

    def accuracy(of: Questions) -> float:
        return float(np.mean([right[q.stem] == q.gold for q in of.all if isinstance(q, LetterQuestion)]))

    def guesses(of: Questions) -> list[bool]:
        return [q.gold == 1 for q in of.all if isinstance(q, LetterQuestion)]

    assert accuracy(plain) == 1.0
    # Four equally frequent answers: binomial, four standard errors of 4000 draws.
    assert accuracy(swapped) == pytest.approx(0.25, abs=4 * (0.25 * 0.75 / 4000) ** 0.5)
    assert guesses(plain) == guesses(swapped)


def test_a_stem_of_the_same_text_is_passed_over() -> None:
    plain = questions(60, stems=3)
    for own, other in zip(plain.all, counterfactual(plain).all, strict=True):
        assert isinstance(own, LetterQuestion)
        assert isinstance(other, LetterQuestion)
        assert own.stem != other.stem


def test_a_question_with_no_other_text_is_marked_and_malformed_ones_stay() -> None:
    bad = Question(1, problem="bad")
    one = questions(1)
    found = counterfactual(one.with_all([*one.all, bad]))
    assert found.all == (Question(0, problem=NO_OTHER), bad)
