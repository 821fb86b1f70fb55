"""Text that a model writes: tokens drawn one by one behind each prompt, from a cache, so that none is read twice.

A token is drawn from softmax(logits / temperature) over the `top_k` likeliest tokens (Fan et al. 1805.04833), in
float64: the first in order of ids whose cumulative probability exceeds a uniform number. Row i takes its numbers from
a named generator of its own, one for each token that is drawn, so that what is beside it in a batch, or how large the
batch is, changes its text only where rounding does: where a number falls within rounding of the border between two
tokens, or, without a temperature, two logits are as near as that.

A row ends at a stop token, after `new_tokens`, or where it has as many tokens as the model's context; positions
beyond that were never trained.
"""

from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from paribus.errors import ParibusError
from paribus.model.backbone import Backbone
from paribus.model.cache import Cache
from paribus.seeds import generator

Tools = Callable[[Sequence[int]], Sequence[int] | None]
"""(all tokens of a row, prompt included; the last one has just been drawn) -> tokens that are written next whatever the
model would write, or None. It is not asked again until these have been written."""
Written = Callable[[int, int], None]
"""(row, token), for each new token that is no stop token"""


@dataclass(frozen=True)
class Generated:
    """What was written behind one prompt."""

    tokens: NDArray[np.int32]
    """`[token]`, forced ones among them, without the prompt and without the stop token"""
    stopped: bool
    """a stop token was drawn"""
    context_full: bool = False
    """it ended because the context held no more"""


def generate(
    model: Backbone,
    prompts: Sequence[NDArray[np.int32]],
    *,
    new_tokens: int,
    stop: Collection[int],
    temperature: float = 0.0,
    top_k: int | None = None,
    seed: tuple[str | int, ...],
    tools: Tools | None = None,
    batch_rows: int = 16,
    vocabulary_size: int | None = None,
    progress: Callable[[int], None] | None = None,
    written: Written | None = None,
) -> list[Generated]:
    """What the model writes behind each prompt `[token]`, at most `new_tokens` tokens; in the order of the prompts.

    Without a temperature the likeliest token is taken, the lowest id of several. Row i draws from the generator of
    (*seed, "generate", i). `batch_rows` prompts of similar length are continued at once; one that ends leaves the
    others. Of the model's tokens the first `vocabulary_size` are written: a tokenizer may have learnt fewer than the
    model was built for. `progress` is told how many more prompts are finished, `written` each token as
    it comes.

    ParibusError for a prompt that is empty or leaves the context no room, for a temperature below 0 or not finite, for
    numbers of tokens, of top_k or of rows below 1, and for logits that are not finite.
    """
    _require(model, prompts, new_tokens, temperature, top_k, batch_rows)
    settings = _Settings(new_tokens, model.config.context_length, frozenset(stop), temperature, top_k, tools, written)
    found: dict[int, Generated] = {}
    by_length = sorted(range(len(prompts)), key=lambda index: len(prompts[index]))
    for first in range(0, len(prompts), batch_rows):
        rows = [
            _Row(index, prompts[index].tolist(), len(prompts[index]), generator(*seed, "generate", index))
            for index in by_length[first : first + batch_rows]
        ]
        longest = rows[-1].prompt_tokens
        cache = Cache.empty(model, len(rows), min(settings.context_length, longest + new_tokens))
        logits = _read(model, cache, [row.tokens for row in rows])[:, :vocabulary_size]
        while rows:
            ended = [row.write(own, settings) for row, own in zip(rows, logits, strict=True)]
            found |= {row.index: end for row, end in zip(rows, ended, strict=True) if end is not None}
            going_on = [place for place, end in enumerate(ended) if end is None]
            if progress is not None and len(going_on) < len(rows):
                progress(len(rows) - len(going_on))
            if going_on and len(going_on) < len(rows):
                cache = cache.selected(torch.tensor(going_on))
            rows = [rows[place] for place in going_on]
            if rows:
                logits = _read(model, cache, [row.tokens[-1:] for row in rows])[:, :vocabulary_size]
    return [found[index] for index in range(len(prompts))]


def choose(logits: NDArray[np.float64], temperature: float, top_k: int | None, number: float) -> int:
    """The token of logits `[vocab]` that a number from 0 to below 1 points to; without a temperature it points to none,
    and the likeliest is taken."""
    if temperature == 0.0:
        return int(np.argmax(logits))
    tokens = _likeliest(logits, top_k)
    with np.errstate(over="ignore"):  # a temperature near 0: everything but the largest has probability 0
        scaled = (logits[tokens] - logits.max()) / temperature
    cumulative = np.cumsum(np.exp(scaled))
    # A product of a number below 1 rounds to less than the sum, and a token of probability 0 is passed over.
    return int(tokens[np.searchsorted(cumulative, number * cumulative[-1], side="right")])


def _likeliest(logits: NDArray[np.float64], top_k: int | None) -> NDArray[np.int64]:
    """Ids of the `top_k` largest, in order; of equal ones at the border the lowest ids."""
    if top_k is None or top_k >= len(logits):
        return np.arange(len(logits))
    border = np.partition(logits, -top_k)[-top_k]
    above, at_border = np.flatnonzero(logits > border), np.flatnonzero(logits == border)
    return np.sort(np.concatenate((above, at_border[: top_k - len(above)])))


@dataclass(frozen=True)
class _Settings:
    new_tokens: int
    context_length: int
    stop: frozenset[int]
    temperature: float
    top_k: int | None
    tools: Tools | None
    written: Written | None


@dataclass
class _Row:
    """A prompt and what has been written behind it."""

    index: int
    tokens: list[int]
    prompt_tokens: int
    draw: np.random.Generator
    forced: deque[int] = field(default_factory=deque)

    def write(self, logits: NDArray[np.float64], settings: _Settings) -> Generated | None:
        """Write one token; what was generated where the row ends with it."""
        if self.forced:
            self._append(self.forced.popleft(), settings)
        else:
            if not np.isfinite(logits).all():
                raise ParibusError(
                    f"the model's logits are not finite behind {len(self.tokens)} tokens of prompt {self.index + 1}",
                    expected="finite numbers",
                    remedy="take an earlier checkpoint: this one has diverged",
                )
            token = choose(logits, settings.temperature, settings.top_k, self.draw.random())
            if token in settings.stop:
                return self._ended(stopped=True)
            self._append(token, settings)
            if settings.tools is not None:
                self.forced.extend(settings.tools(self.tokens) or ())
        if len(self.tokens) - self.prompt_tokens == settings.new_tokens:
            return self._ended()
        if len(self.tokens) == settings.context_length:
            return self._ended(context_full=True)
        return None

    def _append(self, token: int, settings: _Settings) -> None:
        self.tokens.append(token)
        if settings.written is not None:
            settings.written(self.index, token)

    def _ended(self, *, stopped: bool = False, context_full: bool = False) -> Generated:
        return Generated(np.array(self.tokens[self.prompt_tokens :], dtype=np.int32), stopped, context_full)


def _read(model: Backbone, cache: Cache, rows: Sequence[Sequence[int]]) -> NDArray[np.float64]:
    """Logits [row vocab] behind the last of these tokens of each row."""
    lengths = [len(row) for row in rows]
    tokens = torch.zeros(len(rows), max(lengths), dtype=torch.long)
    for place, row in enumerate(rows):
        tokens[place, : len(row)] = torch.tensor(row)
    with torch.inference_mode():  # a sixth faster than without gradients, one row of a small model
        logits = model.extend(tokens.to(cache.lengths.device), cache, torch.tensor(lengths), last_only=True)
    return logits.double().cpu().numpy()


def _require(
    model: Backbone,
    prompts: Sequence[NDArray[np.int32]],
    new_tokens: int,
    temperature: float,
    top_k: int | None,
    batch_rows: int,
) -> None:
    for index, prompt in enumerate(prompts):
        if not 1 <= len(prompt) < model.config.context_length:
            raise ParibusError(
                f"prompt {index + 1} " + ("is longer than the model can continue" if len(prompt) else "has no token"),
                expected=f"1 to {model.config.context_length - 1} tokens: the context holds "
                f"{model.config.context_length}, prompt and answer together",
                received=f"{len(prompt)} tokens",
                remedy="shorten it" if len(prompt) else "begin it with the token that begins documents",
            )
    if not 0.0 <= temperature < np.inf:
        raise ParibusError(
            "this temperature means nothing",
            expected="0 (the likeliest token) or more, and finite",
            received=f"{temperature:g}",
        )
    wrong = [(name, n) for name, n in (("new_tokens", new_tokens), ("batch_rows", batch_rows)) if n < 1]
    if top_k is not None and top_k < 1:
        wrong.append(("top_k", top_k))
    for name, value in wrong:
        raise ParibusError(f"{name} is out of range", expected="1 or more", received=str(value))
