"""One job put to one model: rows of items as the run folder keeps them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from paribus.data.tokenizer import Tokenizer
from paribus.downstream.chat.calculator import Calculator
from paribus.downstream.chat.format import ChatFormat
from paribus.downstream.items import Answer, Item
from paribus.evaluating.jobs import Job, Judged
from paribus.measure.answers import answer
from paribus.model.backbone import Backbone
from paribus.model.generate import generate
from paribus.runs.answers import SCHEMA

ROWS_AT_ONCE = 32
"""texts that are written side by side"""


@dataclass(frozen=True)
class Rows:
    """Columns of `paribus.runs.answers.SCHEMA`, sorted by item, and how many items something happened to."""

    columns: Mapping[str, Any]
    counts: Mapping[str, int]


def ask(model: Backbone, tokenizer: Tokenizer, job: Job, progress: Callable[[int], None]) -> Rows:
    """Every item of the job. `progress` receives how many more are done.

    Errors: as `paribus.measure.answers.answer`; those of single items stand in their rows.
    """
    rows = (
        _scored(model, tokenizer, job, progress) if job.items is not None else _written(model, tokenizer, job, progress)
    )
    rows.sort(key=lambda row: row["item"])
    columns = {name: pa.array([row[name] for row in rows], SCHEMA.field(name).type) for name in SCHEMA.names}
    counts = {
        "problems": sum(bool(row["problem"]) for row in rows),
        "near ties": sum(row["near_tie"] for row in rows),
        "cropped by shots": sum(row["cropped_shots"] > 0 for row in rows),
        "cropped by tokens": sum(row["cropped_tokens"] > 0 for row in rows),
    }
    return Rows(columns, counts)


def _scored(model: Backbone, tokenizer: Tokenizer, job: Job, progress: Callable[[int], None]) -> list[dict[str, Any]]:
    assert job.items is not None
    asked: list[dict[str, Any]] = []

    def noted() -> Iterator[Item]:
        """Items on their way to the model; what rows need of them is kept, their tokens are not."""
        assert job.items is not None
        for item in job.items(tokenizer, model.config.context_length):
            asked.append(_of_item(item, job.chance))
            yield item

    answers = list(answer(model, noted(), tokenizer.decode, progress=progress))
    return [row | _of_answer(found) for row, found in zip(asked, answers, strict=True)]


def _of_item(item: Item, chance: float) -> dict[str, Any]:
    return {
        "item": item.item,
        "prompt_digest": item.prompt_digest,
        "gold": item.labels[item.gold] if item.gold < len(item.labels) else "",
        "chance": chance,
        "cropped_shots": item.cropped_shots,
        "cropped_tokens": item.cropped_tokens,
    }


def _of_answer(found: Answer) -> dict[str, Any]:
    return {
        "prediction": found.prediction,
        "correct": found.correct,
        "gold_nats": found.gold_nats,
        "gold_bytes": found.gold_bytes,
        "nats": list(found.nats),
        "tokens": list(found.tokens),
        "margin": found.margin,
        "near_tie": found.near_tie,
        "problem": found.problem,
    }


def _written(model: Backbone, tokenizer: Tokenizer, job: Job, progress: Callable[[int], None]) -> list[dict[str, Any]]:
    assert job.written is not None
    chat = ChatFormat.of(tokenizer)
    questions = list(job.written(tokenizer, model.config.context_length))
    askable = [question for question in questions if not question.problem]
    texts = generate(
        model,
        [question.prompt for question in askable],
        new_tokens=job.new_tokens,
        stop=frozenset({chat.assistant_end, chat.bos}),
        seed=(job.suite, job.task),
        tools=Calculator(chat),
        batch_rows=ROWS_AT_ONCE,
        vocabulary_size=tokenizer.vocabulary_size,
        progress=progress,
    )
    written = {question.item: found.tokens for question, found in zip(askable, texts, strict=True)}
    rows = []
    for question in questions:
        judged = question.judge(written[question.item]) if question.item in written else Judged("", False)
        rows.append(
            {
                "item": question.item,
                "prompt_digest": question.prompt_digest,
                "gold": question.gold,
                "chance": job.chance,
                "cropped_shots": 0,
                "cropped_tokens": question.cropped_tokens,
                "prediction": judged.prediction,
                "correct": judged.correct and not question.problem,
                "gold_nats": None,
                "gold_bytes": None,
                "nats": [],
                "tokens": [],
                "margin": None,
                "near_tie": False,
                "problem": question.problem or judged.problem,
            }
        )
    return rows
