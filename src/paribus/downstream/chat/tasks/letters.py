"""A question with lettered choices as an item: the chat prompt up to where the answer stands, and the letters' tokens.

The prediction is the likeliest of the question's letters there, whatever else the model would write (nanochat,
scripts/chat_eval.py).
"""

import functools
from dataclasses import replace

from paribus.downstream.chat.format import ChatFormat, ChatTokenizerError
from paribus.downstream.chat.questions import multiple_choice_prompt
from paribus.downstream.chat.tasks.prompts import prompt_of
from paribus.downstream.chat.tasks.questions import LetterQuestion, Question, Questions
from paribus.downstream.items import Item, Row
from paribus.seeds import generator

NO_OTHER = "no other question has another text to swap in"


def letters_item(question: Question, chat_format: ChatFormat, context_length: int) -> Item:
    """The item; with a `problem` and no rows where it cannot be asked.

    ChatTokenizerError where a letter is not one token.
    """
    if question.problem or not isinstance(question, LetterQuestion):
        return _failed(question.item, question.problem or "no question with letters")
    asked = multiple_choice_prompt(question.stem, question.choices, question.letters)
    prompt = prompt_of([{"role": "user", "content": asked}], chat_format, context_length)
    if prompt.problem:
        return replace(_failed(question.item, prompt.problem), prompt_digest=prompt.digest)
    return Item(
        item=question.item,
        kind="letters",
        rows=(Row(prompt.tokens, start=len(prompt.tokens), bytes=0),),
        gold=question.gold,
        labels=question.letters,
        prompt_digest=prompt.digest,
        letters=letter_tokens(question.letters, chat_format),
        cropped_tokens=prompt.cropped_tokens,
    )


@functools.lru_cache(maxsize=16)
def letter_tokens(letters: tuple[str, ...], chat_format: ChatFormat) -> tuple[int, ...]:
    """The one token of each letter. ChatTokenizerError where a letter has several."""
    encoded = chat_format.tokenizer.encode_batch(letters)
    if split := [letter for letter, ids in zip(letters, encoded, strict=True) if len(ids) != 1]:
        tokenizer = chat_format.tokenizer
        raise ChatTokenizerError(
            "answer letters cannot be compared: the tokenizer writes them in several tokens",
            expected=f"one token for each of {', '.join(letters)}",
            received=f"{', '.join(split)} in several, of the tokenizer {tokenizer.digest[:16]} with "
            f"{tokenizer.vocabulary_size:,} ids",
            remedy="use a model whose tokenizer has a token for each letter, or leave out the tasks with letters",
        )
    return tuple(int(ids[0]) for ids in encoded)


def counterfactual(questions: Questions) -> Questions:
    """A control: every question's stem is another one's, its choices and right letter stay. The score of a model that
    reads the stem falls to chance; one that stays up comes of the choices and letters alone.

    Donors follow a random cycle through the task, so that each stem is used about once and none by its own question;
    a donor whose stem is the same text is passed over. The same for every model and limit.
    """
    asked = [question for question in questions.all if isinstance(question, LetterQuestion)]
    cycle = [asked[index] for index in generator("chat", questions.task, "counterfactual").permutation(len(asked))]
    swapped: dict[int, Question] = {}
    for step, question in enumerate(cycle):
        donors = (cycle[(step + further) % len(cycle)].stem for further in range(1, len(cycle)))
        stem = next((donor for donor in donors if donor != question.stem), None)
        swapped[question.item] = (
            Question(question.item, problem=NO_OTHER) if stem is None else replace(question, stem=stem)
        )
    return questions.with_all([swapped.get(question.item, question) for question in questions.all])


def _failed(item: int, problem: str) -> Item:
    return Item(item, "letters", (), 0, (), "", problem=problem)
