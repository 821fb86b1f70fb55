"""The ChatCORE tasks by name: what each is, how it is read and how a generated answer is judged."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from paribus.downstream.chat.definitions import CHANCE, ROWS
from paribus.downstream.chat.format import Conversation
from paribus.downstream.chat.judging import Judged, judge_number, judge_program
from paribus.downstream.chat.tasks.arc import read_arc_challenge, read_arc_easy
from paribus.downstream.chat.tasks.gsm8k import read_gsm8k
from paribus.downstream.chat.tasks.humaneval import read_humaneval
from paribus.downstream.chat.tasks.mmlu import read_mmlu
from paribus.downstream.chat.tasks.questions import Asked, Kind, NumberQuestion, Questions, conversation
from paribus.downstream.chat.tasks.spelling_bee import read_spelling_bee
from paribus.errors import ParibusError, nearest


@dataclass(frozen=True)
class ChatTask:
    """One task."""

    name: str
    kind: Kind
    """"letters" are compared at one position (`letters.letters_item`); "generated" texts are judged"""
    read: Callable[[Path], Questions]
    """of the folder of evaluation sets; of spelling_bee the word list, or a folder that holds one"""

    @property
    def chance(self) -> float:
        return CHANCE[self.name]

    @property
    def rows_expected(self) -> int:
        return ROWS[self.name]

    def conversation(self, question: Asked) -> Conversation:
        return conversation(question)

    def judge(self, question: Asked, text: str, allow_code: bool = False) -> Judged:
        """Whether a generated text (`judging.written_text`) answers the question.

        A program is run only where `allow_code`. SandboxError where this machine cannot run one in a sandbox.
        """
        if isinstance(question, NumberQuestion):
            return judge_number(question.gold, text)
        return judge_program(question.asked, question.tests, question.entry_point, text, allow_code=allow_code)


TASKS: Mapping[str, ChatTask] = {
    task.name: task
    for task in (
        ChatTask("arc_easy", "letters", read_arc_easy),
        ChatTask("arc_challenge", "letters", read_arc_challenge),
        ChatTask("mmlu", "letters", read_mmlu),
        ChatTask("gsm8k", "generated", read_gsm8k),
        ChatTask("humaneval", "generated", read_humaneval),
        ChatTask("spelling_bee", "generated", read_spelling_bee),
    )
}


def chat_task(name: str) -> ChatTask:
    """The task of that name. ParibusError where there is none."""
    if name not in TASKS:
        raise ParibusError(
            "no ChatCORE task has this name",
            expected=", ".join(TASKS),
            received=name,
            remedy=nearest(name, TASKS),
        )
    return TASKS[name]
