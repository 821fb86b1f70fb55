"""A tokenizer with the tokens of conversations, small enough to be learnt in a moment."""

import pytest

from paribus.data.config import NANOCHAT_SPECIAL_TOKENS, TokenizerConfig
from paribus.data.tokenizer import Tokenizer
from paribus.downstream.chat.format import ChatFormat

TEXTS = ["the cat sat on the mat", "how many apples are there? 12 apples.", "What is 2+2? It is 4."]


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    config = TokenizerConfig(300, pre_tokenizer="nanochat", special_tokens=NANOCHAT_SPECIAL_TOKENS)
    return Tokenizer.train(TEXTS * 5, config)


@pytest.fixture(scope="session")
def chat(tokenizer: Tokenizer) -> ChatFormat:
    return ChatFormat.of(tokenizer)
