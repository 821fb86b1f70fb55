"""The items of a task as a model sees them: drawn, rendered, encoded, cut to the context, marked where they fail."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from string import ascii_uppercase

import numpy as np
from numpy.typing import NDArray

from paribus.data.tokenizer import Tokenizer
from paribus.downstream.core.bundle import CoreTask
from paribus.downstream.core.counterfactual import counterfactuals, swapped_part
from paribus.downstream.core.cropping import ShotSearch, crop_tokens
from paribus.downstream.core.encoding import PromptEncoder
from paribus.downstream.core.errors import CoreBundleError
from paribus.downstream.core.rendering import Prompt, example, prompts
from paribus.downstream.core.rows import Choices, Line, Passage, Question, Schema
from paribus.downstream.core.settings import CoreSettings
from paribus.downstream.core.shots import draw, shuffled
from paribus.downstream.core.spans import SpanError, Tokens, scored
from paribus.downstream.items import Item, Row

TOGETHER = 128
"""items that are encoded in one call, after a few smaller calls: the first item comes soon"""
_FIRST = 8


@dataclass
class _Draft:
    """An item on its way to its tokens."""

    line: Line
    question: Question
    """that is asked: of the control, with the swapped part"""
    examples: list[str]
    """rendered, oldest first"""
    search: ShotSearch
    digest: str = ""
    rows: list[Tokens] = field(default_factory=list)
    """of the most examples that are known to fit; of none where none do"""
    shots: int = 0
    """examples in `rows`"""

    def prompts(self, shots: int, delimiter: str) -> list[Prompt]:
        return prompts(self.question, self.examples[len(self.examples) - shots :], delimiter)


def count_items(task: CoreTask, settings: CoreSettings) -> int:
    """How many items `core_items` yields; 0 of a task that cannot be asked."""
    rows = 0 if task.unusable else task.rows_found or 0
    return rows if settings.max_items is None else min(rows, settings.max_items)


def core_items(
    task: CoreTask, tokenizer: Tokenizer, *, context_length: int, settings: CoreSettings | None = None
) -> Iterator[Item]:
    """The task's items in nanochat's order, some encoded ahead; those that cannot be asked are marked.

    Raises CoreBundleError for a task that cannot be asked at all, and for a limit that leaves too few items to draw
    examples from.
    """
    settings = settings or CoreSettings()
    lines = task.lines()
    order = shuffled(len(lines))
    asked = len(order) if settings.max_items is None else min(len(order), settings.max_items)
    pool = asked if settings.shots_from == "truncated" else len(order)
    if pool <= task.shots:
        raise CoreBundleError(
            f"{task.label}: examples cannot be drawn from {pool} items",
            expected=f"{task.shots} examples and a question",
            received=f"max_items = {settings.max_items} with examples from the items that are asked",
            remedy="ask more items, or draw examples from all: shots_from = all",
        )
    examples = [None if line.question is None else example(line.question, task.delimiter) for line in lines]
    usable = [position for position in range(pool) if examples[order[position]] is not None]
    questions = [line.question for line in lines]
    if settings.counterfactual:
        questions = counterfactuals(task.label, questions)

    def drafted(position: int) -> _Draft | Item:
        line, question = lines[order[position]], questions[order[position]]
        if line.question is None:
            return _marked(line, line.problem)
        if question is None:
            return _marked(line, f"no other item has another text for {swapped_part(line.question)}")
        if len(usable) - 1 < task.shots:
            return _marked(line, f"{len(usable) - 1} other items can be read, too few for {task.shots} examples")
        drawn = [examples[order[place]] or "" for place in draw(position, usable, task.shots)]
        search = ShotSearch(task.shots, context_length, [len(shot) for shot in drawn])
        return _Draft(line, question, drawn, search)

    encoder = PromptEncoder(tokenizer)
    sizes = tokenizer.token_bytes()
    positions, together = iter(range(asked)), _FIRST
    while batch := [drafted(position) for position in islice(positions, together)]:
        together = min(2 * together, TOGETHER)
        drafts = [draft for draft in batch if isinstance(draft, _Draft)]
        _encode(drafts, task, encoder, crop=settings.too_long == "crop-shots")
        for draft in batch:
            yield _finished(draft, task, sizes, context_length, settings) if isinstance(draft, _Draft) else draft


def _encode(drafts: Sequence[_Draft], task: CoreTask, encoder: PromptEncoder, *, crop: bool) -> None:
    """Give each draft its rows with as many examples as fit, or with all."""
    tried = [(draft, len(draft.examples)) for draft in drafts]
    while tried:
        texts = [draft.prompts(shots, task.delimiter) for draft, shots in tried]
        encoded = iter(encoder.encode([prompt for of_item in texts for prompt in of_item]))
        further = []
        for (draft, shots), of_item in zip(tried, texts, strict=True):
            rows = list(islice(encoded, len(of_item)))
            longest = max(range(len(rows)), key=lambda row: len(rows[row]))
            if not draft.digest:
                draft.digest = _digest(rows)
            draft.search.told(shots, len(rows[longest]))
            if not crop or shots == max(draft.search.most, 0):
                draft.rows, draft.shots = rows, shots
            if crop and not draft.search.found and (draft.search.most, draft.search.fewest) != (-1, 0):
                characters = sum(map(len, of_item[longest]))
                further.append((draft, draft.search.guess(shots, len(rows[longest]), characters)))
        tried = further


def _finished(
    draft: _Draft, task: CoreTask, sizes: NDArray[np.int32], context_length: int, settings: CoreSettings
) -> Item:
    labels, gold = _labels(draft.question)
    kind = "exact" if task.kind == "language_modeling" else "choices"
    problem, rows, cropped = "", (), 0
    try:
        tokens, starts = scored(task.kind, draft.rows)
        if settings.too_long == "crop-shots":
            tokens, starts, cropped = crop_tokens(tokens, starts, context_length)
        rows = tuple(
            Row(of_row, start, int(sizes[of_row[start:]].sum())) for of_row, start in zip(tokens, starts, strict=True)
        )
    except SpanError as error:
        problem = str(error)
    return Item(
        item=draft.line.number,
        kind=kind,
        rows=rows,
        gold=gold,
        labels=labels,
        prompt_digest=draft.digest,
        cropped_shots=len(draft.examples) - draft.shots,
        cropped_tokens=cropped,
        problem=problem,
    )


def _marked(line: Line, problem: str) -> Item:
    """An item that cannot be asked, known by the digest of its line."""
    digest = hashlib.blake2b(line.content, digest_size=8).hexdigest()
    labels, gold = ((("",), 0)) if line.question is None else _labels(line.question)
    kind = "exact" if isinstance(line.question, Passage) else "choices"
    return Item(line.number, kind, (), gold, labels, digest, problem=problem)


def _labels(question: Question) -> tuple[tuple[str, ...], int]:
    match question:
        case Choices(_, answers, gold) | Schema(answers, _, gold):
            return tuple(_letter(place) for place in range(len(answers))), gold
        case Passage(_, continuation):
            return (continuation,), 0


def _letter(place: int) -> str:
    return ascii_uppercase[place] if place < len(ascii_uppercase) else str(place + 1)


def _digest(rows: Sequence[Tokens]) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for row in rows:
        digest.update(len(row).to_bytes(8, "little"))
        digest.update(np.ascontiguousarray(row, dtype="<i4").tobytes())
    return digest.hexdigest()
