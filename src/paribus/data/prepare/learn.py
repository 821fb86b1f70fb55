"""The tokenizer of a corpus: learnt from the kept training documents in their order, or one that exists."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from paribus.data.chunks import LongRunError, ends_a_token, pieces
from paribus.data.config import TokenizerConfig
from paribus.data.frozen import TOKENIZER
from paribus.data.prepare.finished import record, recorded
from paribus.data.prepare.inventory import Lot, Work
from paribus.data.prepare.kept import kept_texts
from paribus.data.tokenizer import Tokenizer

STAGE = "tokenizer"


@dataclass(frozen=True)
class LearnTask:
    config: TokenizerConfig
    lots: tuple[Lot, ...]
    documents: tuple[int, ...]
    """how many each lot has"""


def learn(work: Work, task: LearnTask) -> None:
    """Learn a tokenizer and save it, unless that is done.

    Memory: the library holds every distinct word it has seen with its count, and pairs of tokens with the words they
    stand in; `train_characters` bounds that, and nothing here does. Texts are handed over in pieces of 1 MB.
    """
    mark = work.path(STAGE, f"{TOKENIZER}.json")
    if recorded(mark) is not None:
        return
    whole_documents = replace(task.config, train_document_characters=None)
    save(work, Tokenizer.train(_texts(work, task), whole_documents))


def save(work: Work, tokenizer: Tokenizer) -> None:
    """Keep the tokenizer beside the other working files."""
    tokenizer.save(work.path(STAGE, TOKENIZER))
    record(work.path(STAGE, f"{TOKENIZER}.json"), [work.path(STAGE, TOKENIZER)], {})


def _texts(work: Work, task: LearnTask) -> Iterator[str]:
    most = task.config.train_document_characters
    for utf8 in kept_texts(work, task.lots, task.documents, "train"):
        # A character has at most four bytes.
        shown = utf8 if most is None else utf8[: 4 * most].decode(errors="ignore")[:most].encode()
        try:
            # Cut where both ways of splitting text end a token, the pieces have the words of the whole.
            yield from pieces(shown, lambda text, index: ends_a_token(text[index - 1], text[index]))
        except LongRunError:
            # Encoding decides what becomes of the document; a run without an end has nothing to teach.
            continue
