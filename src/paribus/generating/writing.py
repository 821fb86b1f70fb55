"""`paribus generate`: a trained model continues texts, or answers as an assistant."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from paribus.data.tokenizer import Tokenizer
from paribus.downstream.chat.calculator import Calculator
from paribus.downstream.chat.format import ChatFormat
from paribus.model.generate import Generated, Tools, generate
from paribus.trained import open_model

Ended = Literal["stop", "tokens", "context"]
"""at a stop token; after as many tokens as were asked for; where the context was full"""


@dataclass(frozen=True)
class Request:
    """What is to be written."""

    prompts: tuple[str, ...]
    """an empty one is the beginning of a document"""
    new_tokens: int
    """at most, of each text"""
    temperature: float
    """0 writes the likeliest token"""
    top_k: int
    """tokens among which one is drawn"""
    seed: int
    chat: bool = False
    """a prompt is what a user says, and an assistant answers; it may call the calculator"""


@dataclass(frozen=True)
class Text:
    """A prompt, and what was written behind it."""

    prompt: str
    prompt_tokens: int
    """special tokens among them"""
    text: str
    """special tokens by their names"""
    tokens: tuple[int, ...]
    ended: Ended


@dataclass(frozen=True)
class Texts:
    """All that was written for one request."""

    model: str
    step: int
    request: Request
    texts: tuple[Text, ...]


class Listener(Protocol):
    """Is told of a single text while it is written."""

    def begin(self, model: str, request: Request) -> None: ...
    def piece(self, spelled: bytes) -> None:
        """Bytes of one token, which need not be whole characters."""
        ...


def write(
    folder: Path, request: Request, tokenizer: Path | None, step: int | None, listener: Listener | None = None
) -> Texts:
    """Texts of a trained model: an imported one, or a finished or fine-tuned cell, at `step` or its last.

    A text begins with the token that begins documents, and ends before the next such token; an assistant's answer
    before the token that ends it. ParibusError for a folder, a tokenizer or a request that cannot be used.
    """
    trained = open_model(folder, tokenizer, step)
    prompts, stop, tools = _chat(trained.tokenizer, request) if request.chat else _plain(trained.tokenizer, request)
    own = trained.tokenizer
    if listener is not None:
        listener.begin(trained.name, request)
    found = generate(
        trained.model.to("cuda" if torch.cuda.is_available() else "cpu"),
        prompts,
        new_tokens=request.new_tokens,
        stop=stop,
        temperature=request.temperature,
        top_k=request.top_k,
        seed=("paribus generate", request.seed),
        tools=tools,
        vocabulary_size=own.vocabulary_size,
        written=None if listener is None else lambda _, token: listener.piece(spelled(own, [token])),
    )
    texts = (
        Text(
            text, len(prompt), spelled(own, one.tokens).decode(errors="replace"), tuple(one.tokens.tolist()), _end(one)
        )
        for text, prompt, one in zip(request.prompts, prompts, found, strict=True)
    )
    return Texts(trained.name, trained.step, request, tuple(texts))


def spelled(tokenizer: Tokenizer, tokens: Sequence[int] | NDArray[np.integer]) -> bytes:
    """The bytes of the tokens, a special one by its name: nobody should overlook that a model wrote it."""
    names = {token: name.encode() for name, token in tokenizer.special_tokens.items()}
    return b"".join(names.get(token) or tokenizer.decode_bytes([token]) for token in map(int, tokens))


def _plain(tokenizer: Tokenizer, request: Request) -> tuple[list[NDArray[np.int32]], set[int], None]:
    beginning = np.array([tokenizer.bos_id], dtype=np.int32)
    encoded = tokenizer.encode_batch(list(request.prompts))
    return [np.concatenate((beginning, ids)) for ids in encoded], {tokenizer.bos_id}, None


def _chat(tokenizer: Tokenizer, request: Request) -> tuple[list[NDArray[np.int32]], set[int], Tools]:
    chat = ChatFormat.of(tokenizer)
    prompts = [chat.render_prompt([{"role": "user", "content": prompt}]) for prompt in request.prompts]
    return prompts, {chat.assistant_end, chat.bos}, Calculator(chat)


def _end(one: Generated) -> Ended:
    return "stop" if one.stopped else "context" if one.context_full else "tokens"
