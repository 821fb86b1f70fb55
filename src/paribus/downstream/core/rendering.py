"""The prompts of an item, to the letter of nanochat's templates (core_eval.py, after llm-foundry's).

Each example is question, delimiter, right answer and a blank line; the question follows without its answer's absence
being marked in any way. Prompts come as parts whose join is the text: parts that prompts share are encoded once.

    multiple_choice     one prompt an answer: query, delimiter, answer
    schema              one prompt a beginning: beginning, delimiter, continuation
    language_modeling   context (stripped), delimiter, continuation; and the same without the continuation, stripped
"""

from collections.abc import Sequence

from paribus.downstream.core.rows import Choices, Passage, Question, Schema

BETWEEN = "\n\n"
"""behind each example"""
Prompt = tuple[str, ...]


def example(question: Question, delimiter: str) -> str:
    """The question with its right answer, as it stands before another one."""
    match question:
        case Choices(query, choices, gold):
            return f"{query}{delimiter}{choices[gold]}{BETWEEN}"
        case Schema(options, continuation, gold):
            return f"{options[gold]}{delimiter}{continuation}{BETWEEN}"
        case Passage(context, continuation):
            return f"{context.strip()}{delimiter}{continuation}{BETWEEN}"


def prompts(question: Question, examples: Sequence[str], delimiter: str) -> list[Prompt]:
    """The item's prompts in the order of its answers; of a passage, the one without its continuation and the one with.

    `examples` are rendered, the oldest first.
    """
    match question:
        case Choices(query, choices, _):
            return [(*examples, query + delimiter, choice) for choice in choices]
        case Schema(options, continuation, _):
            return [(*examples, option + delimiter, continuation) for option in options]
        case Passage(context, continuation):
            asked = (*examples, context.strip() + delimiter)
            return [_stripped(asked), (*asked, continuation)]


def text(prompt: Prompt) -> str:
    return "".join(prompt)


def _stripped(parts: Prompt) -> Prompt:
    """Parts of the stripped text: the same ones where only the last one's end is stripped."""
    last = parts[-1].rstrip()
    if last and not parts[0][:1].isspace() and parts[0]:
        return (*parts[:-1], last)
    return ("".join(parts).strip(),)
