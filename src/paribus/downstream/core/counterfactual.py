"""A control: the same answers under another item's question. A model that reads the question falls to chance; a score
that stays up comes of the answers themselves, their positions or their frequency.

What is swapped depends on the item's form; the examples before it, the answers and the right index stay.

    answers that are letters of options in the query    all of the query before the options
    a query of "Passage: ... Question: ..."             the passage
    any other query                                     the query
    schema                                              the continuation
    language_modeling                                   the context

Other items are met in the order of a random cycle through the task, so that each is used about once, and one that
would swap in the same text is passed over.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from paribus.downstream.core.rows import Choices, Passage, Question, Schema
from paribus.seeds import generator

_QUESTION = "\nQuestion:"
_PASSAGE = "Passage:"


def swapped_part(question: Question) -> str:
    """What the control swaps in this item, in words."""
    match question:
        case Choices():
            return _split(question)[0]
        case Schema():
            return "the continuation"
        case Passage():
            return "the context"


def counterfactuals(label: str, questions: Sequence[Question | None]) -> list[Question | None]:
    """Each question with another one's part in place of its own; None where the task has no other text for it.

    The same for every model, order and limit: donors follow from the label and the questions alone.
    """
    found: list[Question | None] = [None] * len(questions)
    cycles: dict[str, list[tuple[int, Question, str]]] = {}
    for place in generator("core", label, "counterfactual").permutation(len(questions)).tolist():
        if (question := questions[place]) is not None:
            form, swapped, _ = _split(question)
            cycles.setdefault(form, []).append((place, question, swapped))
    for cycle in cycles.values():
        # Backwards and around twice: where the next text is the same as one's own, its donor is one's own donor too.
        donor, after = None, cycle[0][2]
        for place, question, swapped in [*reversed(cycle), *reversed(cycle)]:
            donor, after = (donor if swapped == after else after), swapped
            found[place] = None if donor is None else _with(question, donor)
    return found


def _split(question: Question) -> tuple[str, str, str]:
    """What is swapped in words, the text that is swapped, and what stays of the field that held it."""
    match question:
        case Schema(_, continuation, _):
            return "the continuation", continuation, ""
        case Passage(context, _):
            return "the context", context, ""
        case Choices(query, choices, _):
            if (options := _options(query, choices)) is not None:
                return "the query before its options", query[:options], query[options:]
            if query.lstrip().startswith(_PASSAGE) and _QUESTION in query:
                asked = query.rindex(_QUESTION)
                return "the passage", query[:asked], query[asked:]
            return "the query", query, ""


def _with(question: Question, text: str) -> Question:
    match question:
        case Choices():
            return replace(question, query=text + _split(question)[2])
        case Schema():
            return replace(question, continuation=text)
        case Passage():
            return replace(question, context=text)


def _options(query: str, choices: Sequence[str]) -> int | None:
    """Where the first of the options begins whose letters are the answers; None where the answers are no such letters
    or the query does not list them all."""
    if not all(len(choice.strip()) == 1 and choice.strip().isalpha() for choice in choices):
        return None
    end = len(query)
    for choice in reversed(choices):
        marks = list(re.finditer(rf"^[ \t]*{re.escape(choice.strip())}[.)]", query[:end], re.MULTILINE))
        if not marks:
            return None
        end = marks[-1].start()
    return end or None
