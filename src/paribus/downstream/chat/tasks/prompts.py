"""A user's message as the tokens that a model answers to, cut to what the context holds.

Policy for prompts that are too long, the same for every arm since it looks at the tokenizer and the context alone: the
user's text loses tokens at its left, where a question begins and not where its options and instruction are; what frames
it (beginning, user_start, user_end, assistant_start) stays. What was lost is counted.
"""

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paribus.downstream.chat.format import ChatFormat, Conversation
from paribus.downstream.chat.tasks.questions import Asked, conversation

NEW_TOKENS = 512
"""the most that nanochat lets a model write"""
_BEFORE, _BEHIND = 2, 2
"""tokens of the frame on either side of the user's text"""


@dataclass(frozen=True)
class Prompt:
    """Tokens up to and with assistant_start."""

    tokens: NDArray[np.int32]
    """`[token]`"""
    digest: str
    """16 hexadecimal digits over the tokens before any cropping"""
    cropped_tokens: int = 0
    problem: str = ""
    """why it cannot be asked, in words"""


def prompt_of(asked: Conversation, chat_format: ChatFormat, longest: int) -> Prompt:
    """The prompt of one user's message, of at most `longest` tokens."""
    whole = chat_format.render_prompt(asked)
    digest = prompt_digest(whole)
    over = max(0, len(whole) - longest)
    if over and longest <= _BEFORE + _BEHIND:
        return Prompt(whole[:0], digest, 0, f"a context of {longest} tokens has no room for any of the question")
    return Prompt(np.concatenate([whole[:_BEFORE], whole[_BEFORE + over :]]), digest, over)


def generation_prompt(
    question: Asked, chat_format: ChatFormat, context_length: int, new_tokens: int = NEW_TOKENS
) -> Prompt:
    """The prompt of a question whose answer is generated.

    It leaves room for `new_tokens`, but never more than half of the context: a model of a short one writes less.
    """
    longest = max(context_length - new_tokens, context_length - context_length // 2)
    return prompt_of(conversation(question), chat_format, longest)


def prompt_digest(tokens: NDArray[np.int32]) -> str:
    return hashlib.blake2b(tokens.astype("<i4").tobytes(), digest_size=8).hexdigest()
