"""What `paribus generate` prints: each prompt dimmed and what was written behind it, one text as it is written."""

import codecs
from typing import Any

from rich.console import Console
from rich.style import Style
from rich.text import Text as Styled

from paribus.generating.writing import Request, Text, Texts

ENDED = {
    "stop": "ended by itself",
    "tokens": "stopped after {tokens:,} tokens",
    "context": "stopped after {tokens:,} tokens: the context of the model is full",
}


class Live:
    """Prints a single text while it is written."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def begin(self, model: str, request: Request) -> None:
        _head(model, request, self.console)
        _print(Styled(_before(request.prompts[0], request), Style(dim=True)), self.console)

    def piece(self, spelled: bytes) -> None:
        _print(Styled(self.decoder.decode(spelled)), self.console)

    def end(self, found: Texts) -> None:
        _print(Styled(self.decoder.decode(b"", final=True)), self.console)
        _foot(found.texts[0], self.console)


def show(found: Texts, console: Console) -> None:
    """All texts, one below the other."""
    _head(found.model, found.request, console)
    for place, text in enumerate(found.texts):
        if place:
            console.print()
        _print(Styled(_before(text.prompt, found.request), Style(dim=True)), console)
        _print(Styled(text.text), console)
        _foot(text, console)


def as_json(found: Texts) -> dict[str, Any]:
    """Everything that was asked and written."""
    asked = found.request
    return {
        "model": found.model,
        "step": found.step,
        "new_tokens": asked.new_tokens,
        "temperature": asked.temperature,
        "top_k": asked.top_k,
        "seed": asked.seed,
        "chat": asked.chat,
        "texts": [
            {
                "prompt": text.prompt,
                "prompt_tokens": text.prompt_tokens,
                "text": text.text,
                "tokens": list(text.tokens),
                "ended": text.ended,
            }
            for text in found.texts
        ],
    }


def _head(model: str, request: Request, console: Console) -> None:
    drawn = f"temperature {request.temperature:g}, top-k {request.top_k:,}, seed {request.seed}"
    how = "the likeliest token each time" if request.temperature == 0.0 else drawn
    console.print(f"{model}: {how}\n", highlight=False, markup=False, soft_wrap=True)


def _before(prompt: str, request: Request) -> str:
    return f"{prompt}\n" if request.chat and prompt else prompt


def _foot(text: Text, console: Console) -> None:
    ended = ENDED[text.ended].format(tokens=len(text.tokens))
    _print(Styled(f"\n[{ended}]\n", Style(dim=True)), console)


def _print(styled: Styled, console: Console) -> None:
    console.print(styled, end="", soft_wrap=True, highlight=False)
