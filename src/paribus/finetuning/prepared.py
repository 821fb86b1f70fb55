"""A mixture's data in the tokens of one tokenizer, shared by every cell of a study; and one cell's batches of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from paribus.data.progress import Progress, silent
from paribus.data.tokenizer import Tokenizer
from paribus.downstream.chat.dataset import ChatData, read_chat_data, require_present
from paribus.downstream.chat.format import ChatFormat
from paribus.downstream.chat.mixture import Mixture
from paribus.downstream.chat.order import mixed_order
from paribus.downstream.chat.packing import ChatBatches
from paribus.errors import ParibusError
from paribus.finetuning.base import BaseCell, Recipe
from paribus.finetuning.held_out import HeldOutChat


@dataclass(frozen=True)
class Prepared:
    """Conversations to train on and to measure on."""

    mixture: Mixture
    chat: ChatFormat
    context_length: int
    training: ChatData
    held_out: HeldOutChat

    @property
    def identity(self) -> dict[str, Any]:
        """Files and tokenizer, by their contents."""
        found: dict[str, Any] = {"tokenizer": self.chat.tokenizer.digest, "parts": _files(self.training)}
        if self.mixture.validation:
            found["validation"] = _files(self.held_out.data)
        return found

    def batches(self, base: BaseCell, recipe: Recipe) -> ChatBatches:
        """Of one cell; the same for every arm of its seed that has the same context and batch."""
        order = mixed_order(self.training, self.mixture, study=base.study, scale=base.scale, seed=base.seed)
        if not len(order):
            raise ParibusError(
                f"the mixture '{self.mixture.name}' holds nothing to learn",
                expected="at least one conversation with an answer that is not held out",
                received=f"{sum(facts.rows for facts in self.training.facts)} rows",
            )
        return ChatBatches(
            self.training,
            order,
            bos=self.chat.bos,
            context_length=recipe.context_length,
            rows_per_batch=recipe.rows_per_batch,
            buffer=self.mixture.buffer,
        )

    def counts(self, batches: ChatBatches) -> dict[str, Any]:
        """What became of the rows of every part, and of the places of the batches."""
        places = batches.steps * batches.rows_per_batch * (batches.context_length + 1)
        rows = len(batches.layout) * (batches.context_length + 1)
        found: dict[str, Any] = {
            "parts": [facts.as_json() for facts in self.training.facts],
            "validation_conversations": len(self.held_out),
            "rows": len(batches.layout),
            "conversations": len(batches.layout.entries),
            "places": places,
            "padding": batches.layout.padding + places - rows,
        }
        if self.mixture.validation:
            found["validation_parts"] = [facts.as_json() for facts in self.held_out.data.facts]
        return found


def prepare_chat(
    mixture: Mixture, folder: Path, tokenizer: Tokenizer, context_length: int, progress: Progress = silent
) -> Prepared:
    """Read and tokenise everything. `folder` is what the paths of the mixture are relative to.

    ParibusError for data that is missing or wrong, and for a tokenizer without the tokens of conversations.
    """
    chat = ChatFormat.of(tokenizer)
    require_present([*mixture.parts, *mixture.validation], folder)
    reading: Mapping[str, Any] = {
        "max_tokens": context_length,
        "drop_too_long": mixture.training.too_long == "drop",
        "by_nanochat": mixture.order == "nanochat",
        "progress": progress,
    }
    training = read_chat_data(mixture.parts, folder, chat, held_out_fraction=mixture.held_out_fraction, **reading)
    measured, candidates = training, np.flatnonzero(training.held_out)
    if mixture.validation:
        measured = read_chat_data(mixture.validation, folder, chat, **reading)
        candidates = np.arange(len(measured))
    held_out = HeldOutChat.of(measured, candidates, mixture.validation_conversations)
    return Prepared(mixture, chat, context_length, training, held_out)


def _files(data: ChatData) -> list[dict[str, Any]]:
    return [{"part": facts.label, "files": list(facts.files)} for facts in data.facts]
