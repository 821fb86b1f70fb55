"""The jobs of ChatCORE, and whether what was answered makes a ChatCORE score."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from paribus.data.tokenizer import Tokenizer
from paribus.downstream import sandbox
from paribus.downstream.chat.definitions import NEEDS_CODE, ChatScore, chat_score, tasks_of
from paribus.downstream.chat.format import ChatFormat
from paribus.downstream.chat.judging import written_text
from paribus.downstream.chat.tasks.catalogue import ChatTask, chat_task
from paribus.downstream.chat.tasks.letters import counterfactual as swapped
from paribus.downstream.chat.tasks.letters import letters_item
from paribus.downstream.chat.tasks.prompts import NEW_TOKENS, generation_prompt
from paribus.downstream.chat.tasks.questions import NumberQuestion, ProgramQuestion, Question, Questions
from paribus.downstream.core.settings import COUNTERFACTUAL
from paribus.downstream.items import Item
from paribus.errors import ParibusError, nearest
from paribus.evaluating.jobs import Job, Judged, Written
from paribus.evaluating.scores import Scores

SPELLING = "spelling_bee"


def chat_jobs(
    folder: Path,
    definition: str,
    *,
    words: Path | None = None,
    tasks: Sequence[str] = (),
    first: int | None = None,
    counterfactual: bool = False,
    allow_code: bool = False,
) -> list[Job]:
    """A job for every task of the definition; with `counterfactual` each control behind its task with letters.

    Without `allow_code` HumanEval is left out. ParibusError for another task, for files that are not there, for
    SpellingBee without a word list, and where code is allowed on a machine that cannot sandbox it.
    """
    names = tasks_of(definition)
    for name in tasks:
        if name not in names:
            raise ParibusError(
                f"{definition} has no task {name}",
                expected=", ".join(names),
                received=name,
                remedy=nearest(name, names),
            )
    if NEEDS_CODE in tasks and not allow_code:
        raise ParibusError(
            f"{NEEDS_CODE} runs programs that a model wrote",
            expected="--allow-code, which runs them in a sandbox",
            received=f"--task {NEEDS_CODE} alone",
            remedy="add --allow-code, or leave the task out",
        )
    asked = [name for name in tasks or names if name != NEEDS_CODE or allow_code]
    if NEEDS_CODE in asked:
        sandbox.require()
    found = []
    for name in asked:
        task = chat_task(name)
        questions = task.read(_place(task, folder, words))
        found.append(_job(definition, task, questions, first, allow_code, control=False))
        if counterfactual and task.kind == "letters":
            found.append(_job(definition, task, swapped(questions), first, allow_code, control=True))
    return found


def _place(task: ChatTask, folder: Path, words: Path | None) -> Path:
    if task.name != SPELLING:
        return folder
    if words is None:
        raise ParibusError(
            "SpellingBee makes its questions of a list of words",
            expected="--words FILE, one word a line",
            received="none",
            remedy="name a word list, leave the task out with --task, or ask chatcore-5, which has no such task",
        )
    return words


def _job(
    definition: str, task: ChatTask, questions: Questions, first: int | None, allow_code: bool, *, control: bool
) -> Job:
    asked = questions.selected(first)
    parts = [f"first-{first}"] if first is not None else []
    parts += [COUNTERFACTUAL] if control else []
    whole = first is None and not control
    missing = questions.missing or ("" if whole else "not every item was asked as it stands")
    return Job(
        suite=definition,
        task=task.name,
        variant="+".join(parts),
        kind=task.kind,
        chance=task.chance,
        total=len(asked),
        settings={"max_items": first, "counterfactual": control, "file": questions.digest, "new_tokens": NEW_TOKENS},
        about={"complete": not missing, "missing": missing},
        items=partial(_items, asked) if task.kind == "letters" else None,
        written=partial(_written, task, asked, allow_code) if task.kind == "generated" else None,
        new_tokens=NEW_TOKENS,
    )


def _items(questions: Sequence[Question], tokenizer: Tokenizer, context_length: int) -> Iterator[Item]:
    chat = ChatFormat.of(tokenizer)
    for question in questions:
        yield letters_item(question, chat, context_length)


def _written(
    task: ChatTask, questions: Sequence[Question], allow_code: bool, tokenizer: Tokenizer, context_length: int
) -> Iterator[Written]:
    chat = ChatFormat.of(tokenizer)
    for question in questions:
        if question.problem or not isinstance(question, NumberQuestion | ProgramQuestion):
            yield Written(question.item, np.zeros(0, np.int32), "", "", _unjudged, problem=question.problem)
            continue
        prompt = generation_prompt(question, chat, context_length)
        yield Written(
            item=question.item,
            prompt=prompt.tokens,
            prompt_digest=prompt.digest,
            gold=question.gold if isinstance(question, NumberQuestion) else "",
            judge=partial(_judged, task, question, chat, allow_code),
            cropped_tokens=prompt.cropped_tokens,
            problem=prompt.problem,
        )


def _judged(
    task: ChatTask,
    question: NumberQuestion | ProgramQuestion,
    chat: ChatFormat,
    allow_code: bool,
    tokens: NDArray[np.integer],
) -> Judged:
    found = task.judge(question, written_text(tokens, chat), allow_code=allow_code)
    return Judged(found.prediction, found.correct, found.problem)


def _unjudged(tokens: NDArray[np.integer]) -> Judged:
    del tokens
    return Judged("", False)


def chat_sentences(definition: str, scores: Sequence[Scores], *, code_ran: bool) -> list[str]:
    """ChatCORE of one model, or what keeps its scores from being ChatCORE."""
    plain = {score.task: score for score in scores if score.suite == definition and not score.variant}
    missing = {task: "is not the whole task" for task, score in plain.items() if not score.complete}
    found = chat_score(
        definition,
        {task: score.accuracy for task, score in plain.items()},
        items={task: score.items for task, score in plain.items()},
        code_ran=code_ran,
        missing=missing,
    )
    if isinstance(found, ChatScore):
        return [f"ChatCORE {found.chatcore:.4f} ({definition}: {', '.join(tasks_of(definition))})"]
    listed = [f"{task} {reason}" for task, reason in found.reasons.items()]
    return [
        f"ChatCORE is not printed, for it is the mean of {len(tasks_of(definition))} whole tasks: {', '.join(listed)}"
    ]
