"""Whether a value that was read is a document, a counted skip or an error.

Texts stay bytes from the file to the tokenizer: nothing is normalised, and a text of 100 MB is never one Python string
(which takes four bytes a character as soon as one of them lies beyond the basic plane).
"""

import codecs

from paribus.data.sources.contract import RawDocument, Skip
from paribus.errors import CorpusError

_BLOCK_BYTES = 1 << 20


class BadValueError(Exception):
    """A value that is no document and that `bad_documents = "skip"` may leave out."""

    def __init__(self, skip: Skip, *, expected: str, received: str) -> None:
        self.skip = skip
        self.expected = expected
        self.received = received
        super().__init__(f"{skip}: expected {expected}, received {received}")

    def settle(self, place: str, *, refuse: bool) -> Skip:
        """The reason to count; or raises CorpusError naming the place where bad documents are refused."""
        if refuse:
            raise CorpusError(
                f"{place}: {_WHAT[self.skip]}",
                expected=self.expected,
                received=self.received,
                remedy='mend the file, or count and leave out such documents with bad_documents = "skip"',
            ) from self
        return self.skip


_WHAT = {
    Skip.WRONG_TYPE: "a value of the wrong type",
    Skip.INVALID_UTF8: "the text is not valid UTF-8",
    Skip.MALFORMED: "the entry is malformed",
}


def document(utf8: bytes | None, source: str, host: str | None = None) -> RawDocument | Skip:
    """The document of a text; NULL for none, EMPTY for white space. Raises BadValueError for what is not UTF-8."""
    if utf8 is None:
        return Skip.NULL
    return Skip.EMPTY if is_blank(utf8) else RawDocument(utf8, source, host)


def is_blank(utf8: bytes) -> bool:
    """Whether the text has nothing but white space, as `str.isspace` has it. Decodes all of it, a block at a time.

    Raises BadValueError for bytes that are not valid UTF-8 (surrogates and overlong forms are none).
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    blank = True
    position = 0
    try:
        for position in range(0, len(utf8), _BLOCK_BYTES):
            stop = position + _BLOCK_BYTES
            characters = decoder.decode(utf8[position:stop], final=stop >= len(utf8))
            blank = blank and (not characters or characters.isspace())
    except UnicodeDecodeError as error:
        # The decoder counts from what it still held of the block before.
        held = len(error.object) - len(utf8[position : position + _BLOCK_BYTES])
        at = position - held + error.start
        raise BadValueError(
            Skip.INVALID_UTF8,
            expected="UTF-8",
            received=f"byte 0x{utf8[at]:02x} at byte {at} of {len(utf8)} ({error.reason})",
        ) from error
    return blank
