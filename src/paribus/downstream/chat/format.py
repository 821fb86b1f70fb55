"""A conversation as tokens, as nanochat renders one (github.com/karpathy/nanochat, April to July 2026), and which of
them an assistant learns to write.

    bos  (user_start text user_end  assistant_start parts assistant_end)*

Of an assistant's message these are learnt: its text, calls of the interpreter with the tokens around them, and the end.
Not learnt are assistant_start and what the interpreter puts out, which are given when text is generated. A system
message has no tokens of its own: it stands before the first user's, a blank line between them. Each part is encoded
alone, and no text becomes a special token, whatever it spells.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paribus.data.config import NANOCHAT_SPECIAL_TOKENS
from paribus.data.tokenizer import Tokenizer
from paribus.errors import ParibusError, nearest

Message = Mapping[str, Any]
"""`role`: "system", "user" or "assistant"; `content`: a text, or of an assistant a list of parts, each with `type`
("text", "python" or "python_output") and `text`"""
Conversation = Sequence[Message]
"""a system message or none, then user and assistant in turns"""
_Piece = tuple[int | str, bool]
"""a special token or a text, and whether it is learnt"""
PARTS = ("text", "python", "python_output")
ROLES = ("system", "user", "assistant")
SYSTEM_END = "\n\n"
"""between a system message and the user's that it is put before"""


class ConversationError(ParibusError):
    """A conversation that is not one: no messages, an unknown role, a role out of turn, content of another type."""


class ChatTokenizerError(ParibusError):
    """A tokenizer without the special tokens of conversations."""


@dataclass(frozen=True)
class Rendered:
    """A conversation in tokens. Arrays are `[token]`."""

    ids: NDArray[np.int32]
    mask: NDArray[np.bool_]
    """whether the token is learnt"""
    left_out: int = 0
    """tokens at the end that were more than allowed"""


@dataclass(frozen=True)
class ChatFormat:
    """Conversations to tokens. Made by `of`."""

    tokenizer: Tokenizer
    bos: int
    user_start: int
    user_end: int
    assistant_start: int
    assistant_end: int
    python_start: int
    python_end: int
    output_start: int
    output_end: int

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> "ChatFormat":
        """ChatTokenizerError for a tokenizer that lacks some of the nine special tokens."""
        special = tokenizer.special_tokens
        absent = [name for name in NANOCHAT_SPECIAL_TOKENS if name not in special]
        if absent:
            raise ChatTokenizerError(
                "the tokenizer has no tokens for conversations",
                expected="the special tokens " + ", ".join(NANOCHAT_SPECIAL_TOKENS),
                received="without " + ", ".join(absent),
                remedy='a model learns them only with its tokenizer: write `pre_tokenizer = "nanochat"` in '
                "[base.tokenizer], or load one that has them, before pretraining",
            )
        return cls(tokenizer, *(special[name] for name in NANOCHAT_SPECIAL_TOKENS))

    def render(self, conversation: Conversation, max_tokens: int | None = None) -> Rendered:
        """The conversation, of which no more than the first `max_tokens` tokens are kept (nanochat: 2048).

        ConversationError where it is not one.
        """
        return self.render_all([conversation], max_tokens)[0]

    def render_all(self, conversations: Sequence[Conversation], max_tokens: int | None = None) -> list[Rendered]:
        """`render` of each; all texts are encoded together, which is faster and changes no token."""
        planned = [list(self._pieces(conversation)) for conversation in conversations]
        texts = [piece for pieces in planned for piece, _ in pieces if isinstance(piece, str)]
        encoded = iter(self.tokenizer.encode_batch(texts))
        return [_joined(pieces, encoded, max_tokens) for pieces in planned]

    def problem_of(self, conversation: Conversation) -> str:
        """Why it cannot be rendered, in words; empty where it can."""
        try:
            list(self._pieces(conversation))
        except ConversationError as error:
            return error.what + (f" ({error.received})" if error.received else "")
        return ""

    def render_prompt(self, conversation: Conversation) -> NDArray[np.int32]:
        """Everything up to where the assistant is to write: ends with assistant_start. `[token]` int32

        An assistant's message at the end is the answer, and left out. ConversationError where nothing is left to
        answer.
        """
        messages = list(conversation)
        if messages and isinstance(messages[-1], Mapping) and messages[-1].get("role") == "assistant":
            messages = messages[:-1]
        asked = self.render(messages).ids
        return np.append(asked, np.int32(self.assistant_start))

    def _pieces(self, conversation: Conversation) -> Iterator[_Piece]:
        yield self.bos, False
        for place, message in enumerate(_in_turns(conversation)):
            content = message["content"]
            if place % 2 == 0:
                yield from ((self.user_start, False), (content, False), (self.user_end, False))
                continue
            yield self.assistant_start, False
            for kind, text in [("text", content)] if isinstance(content, str) else _parts(content, place):
                if kind == "text":
                    yield text, True
                elif kind == "python":
                    yield from ((self.python_start, True), (text, True), (self.python_end, True))
                else:
                    yield from ((self.output_start, False), (text, False), (self.output_end, False))
            yield self.assistant_end, True


def text_of(content: str | Sequence[Mapping[str, str]]) -> str:
    """All text of a message, its parts end to end."""
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def _joined(pieces: list[_Piece], encoded: Iterator[NDArray[np.int32]], max_tokens: int | None) -> Rendered:
    ids = [next(encoded) if isinstance(piece, str) else np.array([piece], dtype=np.int32) for piece, _ in pieces]
    learnt = [np.full(len(tokens), whether) for tokens, (_, whether) in zip(ids, pieces, strict=True)]
    whole, mask = np.concatenate(ids), np.concatenate(learnt)
    kept = len(whole) if max_tokens is None else min(len(whole), max_tokens)
    return Rendered(whole[:kept], mask[:kept], len(whole) - kept)


def _in_turns(conversation: Conversation) -> list[dict[str, Any]]:
    """The messages, user and assistant in turns, without a system message. ConversationError where they are not."""
    if isinstance(conversation, str | Mapping) or not isinstance(conversation, Sequence) or not conversation:
        raise _malformed("no conversation", "a list of at least one message", conversation)
    messages = [_checked(message, place) for place, message in enumerate(conversation)]
    if messages[0]["role"] == "system":
        if len(messages) == 1 or messages[1]["role"] != "user":
            raise _malformed("a system message that no user's follows", "a message of the user behind it", messages)
        for message in messages[:2]:
            _require_text(message)
        merged = messages[0]["content"] + SYSTEM_END + messages[1]["content"]
        messages = [{"role": "user", "content": merged}, *messages[2:]]
    for place, message in enumerate(messages):
        turn = "assistant" if place % 2 else "user"
        if message["role"] != turn:
            raise _malformed(f"message {place + 1} is out of turn", f"one of the {turn}", message["role"])
        if turn == "user":
            _require_text(message)
        elif not isinstance(message["content"], str | list | tuple):
            raise _malformed("an assistant's message of another kind", "a text or a list of parts", message["content"])
    return messages


def _checked(message: Any, place: int) -> dict[str, Any]:
    if not isinstance(message, Mapping) or not {"role", "content"} <= message.keys():
        raise _malformed(f"message {place + 1} is none", "a table with role and content", message)
    role = message["role"]
    if role not in ROLES:
        raise ConversationError(
            f"message {place + 1} has an unknown role",
            expected=", ".join(ROLES),
            received=repr(role)[:200],
            remedy=nearest(str(role), ROLES),
        )
    content = message["content"]
    if isinstance(content, str):
        _require_unicode(content)
    return {"role": role, "content": content}


def _require_text(message: Mapping[str, Any]) -> None:
    if not isinstance(message["content"], str):
        raise _malformed(f"a message of the {message['role']} that is no text", "a text", message["content"])


def _require_unicode(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise _malformed("a text that is not Unicode", "no lone surrogates", text[error.start : error.end]) from None


def _parts(content: Sequence[Any], place: int) -> Iterator[tuple[str, str]]:
    for part in content:
        if not isinstance(part, Mapping) or not isinstance(part.get("text"), str):
            raise _malformed(f"a part of message {place + 1} is none", "a table with type and text", part)
        if part.get("type") not in PARTS:
            raise _malformed(f"a part of message {place + 1} has an unknown type", ", ".join(PARTS), part.get("type"))
        _require_unicode(part["text"])
        yield part["type"], part["text"]


def _malformed(what: str, expected: str, received: object) -> ConversationError:
    return ConversationError(what, expected=expected, received=repr(received)[:200])
