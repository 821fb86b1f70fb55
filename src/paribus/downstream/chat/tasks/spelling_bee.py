"""SpellingBee: how often a letter occurs in a word. 256 questions drawn from a word list.

It stands for nanochat's task of that name, which was part of ChatCORE until 2026-07-03. The words, the wording and the
draw are our own (`paribus.downstream.chat.spelling`, stream "test", which fine-tuning never draws from), so a score is
not nanochat's to the letter. How an answer is read and scored is nanochat's: the number behind "#### ".
"""

import gzip
import hashlib
import io
import zlib
from collections.abc import Mapping
from pathlib import Path

from paribus.downstream.chat.definitions import ROWS
from paribus.downstream.chat.spelling import spelling_bee
from paribus.downstream.chat.tasks.questions import NumberQuestion, Questions
from paribus.downstream.chat.tasks.reading import ChatTaskError

LARGEST_BYTES = 64 * 2**20
"""of a list once unpacked; one of 370 000 English words has 4 MB"""


def read_spelling_bee(words: Path) -> Questions:
    """`words`: a list, one word a line, as it is or compressed (.gz); or a folder with one file words*.

    ChatTaskError where there is none, or none that can be read.
    """
    path = _list_in(words) if words.is_dir() else words
    try:
        content = path.read_bytes()
        with gzip.open(io.BytesIO(content)) if path.suffix == ".gz" else io.BytesIO(content) as stream:
            unpacked = stream.read(LARGEST_BYTES + 1)
        if len(unpacked) > LARGEST_BYTES:
            raise EOFError(f"more than {LARGEST_BYTES:,} bytes")
        text = unpacked.decode()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise _refused(path, f"{type(error).__name__}: {error}") from error
    found = [word for line in text.split("\n") if (word := line.strip())]
    if not found:
        raise _refused(path, "no words")
    questions = tuple(_question(found, item) for item in range(ROWS["spelling_bee"]))
    return Questions(
        "spelling_bee", questions, ROWS["spelling_bee"], hashlib.blake2b(content, digest_size=16).hexdigest()
    )


def _question(words: list[str], item: int) -> NumberQuestion:
    asked, answer = spelling_bee(words, item, "test")
    [gold] = [part["text"] for part in answer["content"] if _is_output(part)]
    return NumberQuestion(item, asked["content"], gold)


def _is_output(part: Mapping[str, str]) -> bool:
    return part["type"] == "python_output"


def _list_in(folder: Path) -> Path:
    found = sorted(path for path in folder.glob("words*") if path.is_file())
    if len(found) != 1:
        raise _refused(folder, f"{len(found)} files words*" if found else "no file words*")
    return found[0]


def _refused(path: Path, received: str) -> ChatTaskError:
    return ChatTaskError(
        f"{path} holds no word list for spelling_bee",
        expected="a file with one word a line, as it is or compressed (.gz)",
        received=received,
        remedy="name a word list, or evaluate under chatcore-5, which has no spelling_bee",
    )
