"""The control swaps what a model must read, keeps what it answers, and is the same for every model."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paribus.data.tokenizer import Tokenizer
from paribus.downstream.core.bundle import CoreTask
from paribus.downstream.core.counterfactual import counterfactuals, swapped_part
from paribus.downstream.core.items import core_items
from paribus.downstream.core.rows import Choices, Passage, Question, Schema
from paribus.downstream.core.settings import CoreSettings

LISTED = Choices("Question: who barks?\nChoices:\nA. dog\nB. cat\nAnswer:", ("A", "B"), 0)
OTHER_LISTED = Choices("Question: who sails in A. Town?\nChoices:\nA. sailor\nB. baker\nAnswer:", ("A", "B"), 1)
READ = Choices("Passage: it rained.\nQuestion: did it rain?\n", ("no", "yes"), 1)
OTHER_READ = Choices("Passage: the sun shone.\nQuestion: was it dark?\n", ("no", "yes"), 0)


def test_what_is_swapped_follows_the_form_of_the_item():
    assert [swapped_part(question) for question in (LISTED, READ, Choices("q", ("a", "b"), 0))] == [
        "the query before its options",
        "the passage",
        "the query",
    ]
    assert swapped_part(Schema(("a", "b"), "c", 0)) == "the continuation"
    assert swapped_part(Passage("a", "b")) == "the context"
    # Letters whose options are not listed are answered from the whole query.
    assert swapped_part(Choices("Which letter comes first?", ("A", "B"), 0)) == "the query"


def test_the_options_the_question_and_the_answers_stay():
    first, second = counterfactuals("task", [LISTED, OTHER_LISTED])
    assert first == Choices("Question: who sails in A. Town?\nChoices:\nA. dog\nB. cat\nAnswer:", ("A", "B"), 0)
    assert second == Choices("Question: who barks?\nChoices:\nA. sailor\nB. baker\nAnswer:", ("A", "B"), 1)
    assert counterfactuals("task", [READ, OTHER_READ]) == [
        Choices("Passage: the sun shone.\nQuestion: did it rain?\n", ("no", "yes"), 1),
        Choices("Passage: it rained.\nQuestion: was it dark?\n", ("no", "yes"), 0),
    ]
    assert counterfactuals("task", [Schema(("a", "b"), "ran.", 0), Schema(("c", "d"), "sat.", 1)]) == [
        Schema(("a", "b"), "sat.", 0),
        Schema(("c", "d"), "ran.", 1),
    ]
    assert counterfactuals("task", [Passage("a", "x"), Passage("b", "y")]) == [Passage("b", "x"), Passage("a", "y")]


@given(st.lists(st.one_of(st.none(), st.sampled_from("abcdef")), max_size=30))
def test_each_item_gets_another_text_where_the_task_has_one(texts: list[str | None]):
    questions: list[Question | None] = [
        None if text is None else Choices(text, (f"{place}", "no"), place % 2) for place, text in enumerate(texts)
    ]
    found = counterfactuals("task", questions)
    assert found == counterfactuals("task", questions)
    several = len({text for text in texts if text is not None}) > 1
    for question, swapped in zip(questions, found, strict=True):
        if question is None or not several:
            assert swapped is None
            continue
        assert isinstance(question, Choices)
        assert isinstance(swapped, Choices)
        assert swapped.query != question.query
        assert swapped.query in texts
        assert (swapped.choices, swapped.gold) == (question.choices, question.gold)


def test_with_distinct_texts_every_one_is_used_exactly_once():
    questions: list[Question | None] = [Passage(f"text {number}", "end") for number in range(200)]
    found = counterfactuals("task", questions)
    contexts = [question.context for question in found if isinstance(question, Passage)]
    assert sorted(contexts) == sorted(f"text {number}" for number in range(200))
    assert counterfactuals("other task", questions) != found


def test_texts_are_swapped_among_items_of_the_same_form_only():
    found = counterfactuals("task", [LISTED, OTHER_LISTED, READ, OTHER_READ])
    assert [swapped is not None and swapped_part(swapped) for swapped in found] == [
        "the query before its options",
        "the query before its options",
        "the passage",
        "the passage",
    ]
    assert counterfactuals("task", [LISTED, READ]) == [None, None]


@pytest.mark.parametrize("kind", ["multiple_choice", "schema", "language_modeling"])
def test_examples_labels_and_gold_stay_and_only_the_question_changes(
    one_task: Callable[..., CoreTask], tokenizer: Tokenizer, rows_of: Any, kind: str
):
    task = one_task(kind, rows_of[kind], shots=3)
    control = CoreSettings(counterfactual=True)
    plain = list(core_items(task, tokenizer, context_length=4096))
    swapped = list(core_items(task, tokenizer, context_length=4096, settings=control))
    for one, other in zip(plain, swapped, strict=True):
        assert (one.item, one.labels, one.gold, other.problem) == (other.item, other.labels, other.gold, "")
        assert one.prompt_digest != other.prompt_digest
        for row, changed in zip(one.rows, other.rows, strict=True):
            before, after = (tokenizer.decode(each.tokens).split("\n\n") for each in (row, changed))
            assert before[:-1] == after[:-1]
            assert before[-1] != after[-1]
            if kind != "schema":
                ends = [tokenizer.decode(each.tokens[each.start :]) for each in (row, changed)]
                assert ends[0] == ends[1]
    limited = core_items(task, tokenizer, context_length=4096, settings=CoreSettings(counterfactual=True, max_items=5))
    assert [item.prompt_digest for item in limited] == [item.prompt_digest for item in swapped[:5]]


def test_a_task_without_another_text_marks_its_items(one_task: Callable[..., CoreTask], tokenizer: Tokenizer):
    task = one_task("language_modeling", [{"context": "the same", "continuation": str(end)} for end in range(3)])
    items = list(core_items(task, tokenizer, context_length=99, settings=CoreSettings(counterfactual=True)))
    assert {item.problem for item in items} == {"no other item has another text for the context"}
