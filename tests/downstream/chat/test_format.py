"""Conversations in tokens against nanochat's own, and against the grammar written down once more."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paribus.data.config import NANOCHAT_SPECIAL_TOKENS
from paribus.data.tokenizer import Tokenizer
from paribus.downstream.chat.format import ChatFormat, ChatTokenizerError, ConversationError, text_of
from paribus.downstream.chat.questions import multiple_choice_prompt
from paribus.errors import ParibusError
from paribus.interop.ranks import read_tokenizer

GOLDEN = Path(__file__).parents[4] / "shared" / "data" / "nanochat_golden" / "2026-07-text.json"


@pytest.fixture(scope="module")
def golden() -> dict[str, Any]:
    if not GOLDEN.exists():
        pytest.skip(f"real data is absent: expected ../shared/data/nanochat_golden/{GOLDEN.name} beside the repository")
    return json.loads(GOLDEN.read_text(encoding="utf-8"))


@pytest.mark.shared_data
def test_conversations_and_masks_are_those_of_nanochat(golden: dict[str, Any]):
    chat = ChatFormat.of(read_tokenizer(GOLDEN))
    assert len(golden["conversations"]) == 3
    for case in golden["conversations"]:
        found = chat.render(case["conversation"]["messages"])
        assert found.ids.tolist() == case["ids"]
        assert found.mask.tolist() == [bool(value) for value in case["mask"]]
        assert (found.ids.dtype, found.mask.dtype, found.left_out) == (np.int32, np.bool_, 0)


@pytest.mark.shared_data
def test_a_prompt_ends_where_nanochat_lets_the_assistant_write(golden: dict[str, Any]):
    chat = ChatFormat.of(read_tokenizer(GOLDEN))
    case = golden["render_for_completion"]
    messages = case["conversation"]["messages"]
    assert chat.render_prompt(messages).tolist() == case["ids"]
    assert chat.render_prompt(messages[:-1]).tolist() == case["ids"]


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(content: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content}


def test_every_token_is_where_the_grammar_says_and_the_interpreters_output_is_not_learnt(chat: ChatFormat):
    parts = [
        {"type": "text", "text": "it is "},
        {"type": "python", "text": "2+2"},
        {"type": "python_output", "text": "4"},
        {"type": "text", "text": " apples"},
    ]
    conversation = [{"role": "system", "content": "Be brief."}, user("how many?"), assistant(parts)]

    def ids(text: str) -> list[int]:
        return chat.tokenizer.encode_batch([text])[0].tolist()

    expected: list[tuple[int, bool]] = []
    for tokens, learnt in (
        ([chat.bos, chat.user_start], False),
        (ids("Be brief.\n\nhow many?"), False),
        ([chat.user_end, chat.assistant_start], False),
        (ids("it is "), True),
        ([chat.python_start, *ids("2+2"), chat.python_end], True),
        ([chat.output_start, *ids("4"), chat.output_end], False),
        (ids(" apples"), True),
        ([chat.assistant_end], True),
    ):
        expected += [(token, learnt) for token in tokens]
    found = chat.render(conversation)
    assert list(zip(found.ids.tolist(), found.mask.tolist(), strict=True)) == expected
    assert text_of(parts) == "it is 2+24 apples"


@given(
    texts=st.lists(st.one_of(st.text(max_size=20), st.sampled_from(NANOCHAT_SPECIAL_TOKENS)), min_size=2, max_size=6)
)
def test_no_text_becomes_a_special_token_and_every_text_comes_back(chat: ChatFormat, texts: list[str]):
    conversation = [(assistant if place % 2 else user)(text) for place, text in enumerate(texts)]
    found = chat.render(conversation)
    special = set(chat.tokenizer.special_tokens.values())
    borders = [i for i, token in enumerate(found.ids.tolist()) if token in special]
    assert len(borders) == 1 + 2 * len(texts), "one beginning, and two tokens around each message"
    between = [found.ids[a + 1 : b] for a, b in zip(borders[1::2], borders[2::2], strict=True)]
    assert [chat.tokenizer.decode_bytes(ids).decode() for ids in between] == texts


@given(pieces=st.lists(st.text(max_size=12), min_size=1, max_size=8), limit=st.integers(1, 60))
def test_many_conversations_at_once_are_each_alone_and_a_limit_cuts_only_the_end(
    chat: ChatFormat, pieces: list[str], limit: int
):
    conversations = [[user(text), assistant(text[::-1])] for text in pieces]
    for conversation, found in zip(conversations, chat.render_all(conversations, limit), strict=True):
        alone = chat.render(conversation)
        np.testing.assert_array_equal(found.ids, alone.ids[:limit])
        np.testing.assert_array_equal(found.mask, alone.mask[:limit])
        assert found.left_out == max(0, len(alone.ids) - limit)


@pytest.mark.parametrize(
    ("conversation", "said"),
    [
        ([], "no conversation"),
        ("hello", "no conversation"),
        ([assistant("hello")], "message 1 is out of turn"),
        ([user("a"), user("b")], "message 2 is out of turn"),
        ([user("a"), {"role": "assistent", "content": "b"}], "did you mean 'assistant'"),
        ([user("a"), {"role": "assistant"}], "message 2 is none"),
        ([{"role": "system", "content": "s"}], "a system message that no user's follows"),
        ([{"role": "system", "content": "s"}, assistant("b")], "a system message that no user's follows"),
        ([user("a"), {"role": "system", "content": "s"}], "message 2 is out of turn"),
        ([{"role": "user", "content": [{"type": "text", "text": "a"}]}], "a message of the user that is no text"),
        ([user("a"), assistant(None)], "another kind"),
        ([user("a"), assistant([{"type": "image", "text": "b"}])], "an unknown type"),
        ([user("a"), assistant([{"type": "text"}])], "a part of message 2 is none"),
        ([user("\ud800")], "not Unicode"),
        ([user("a"), assistant([{"type": "text", "text": "\udfff"}])], "not Unicode"),
    ],
)
def test_what_is_no_conversation_is_one_error_that_says_why(chat: ChatFormat, conversation: Any, said: str):
    with pytest.raises(ConversationError) as error:
        chat.render(conversation)
    assert said in str(error.value)


def test_there_is_no_prompt_without_a_question(chat: ChatFormat):
    with pytest.raises(ConversationError):
        chat.render_prompt([assistant("4")])


def test_a_tokenizer_without_the_tokens_is_refused_with_what_to_do():
    plain = Tokenizer.train(["some text"], 260)
    with pytest.raises(ChatTokenizerError) as error:
        ChatFormat.of(plain)
    assert "<|assistant_end|>" in str(error.value)
    assert 'pre_tokenizer = "nanochat"' in str(error.value)


def test_a_question_is_asked_word_for_word_as_nanochat_does():
    assert multiple_choice_prompt("Why?", ["because", "so", "thus", "hence"]) == (
        "Multiple Choice question: Why?\n- because=A\n- so=B\n- thus=C\n- hence=D\n\n"
        "Respond only with the letter of the correct answer."
    )
    assert "- no=2\n" in multiple_choice_prompt("Why?", ["yes", "no"], ("1", "2"))
    with pytest.raises(ParibusError, match="not as many choices"):
        multiple_choice_prompt("Why?", ["because"])
