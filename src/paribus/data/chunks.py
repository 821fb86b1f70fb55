"""Cutting a long text where its tokens are cut anyway, so that the ids of the pieces are the ids of the whole.

One call of the library on a 100 MB text takes 11 GB. A cut between two characters is safe where

- the split patterns of GPT-2 and the GPT-4-like ones (`patterns.KNOWN`) end a token whatever surrounds the two. They
  look at nothing before a match, and after one only from within white space (`\\s+(?!\\S)`); and no alternative holds
  a letter or digit before white space or before another mark, a letter and a digit side by side, or anything but white
  space before U+0020. A mark before a letter or a line end is no safe place: GPT-4-like patterns keep them together;
- no token of the vocabulary has the two side by side, for a tokenizer that does not split text: merging can join
  only what some token holds;
- splitting the two sides gives what splitting the surrounding window gives, for any other pre-tokenizer: checked for
  each cut with the library's own.
"""

import string
import unicodedata
from collections.abc import Callable, Iterator
from typing import Any

from paribus.data.tokenizers import patterns
from paribus.data.tokenizers.lossless import stages_of
from paribus.data.tokenizers.spelling import Spelling
from paribus.errors import CorpusError

PIECE_BYTES = 250_000
"""Longer texts are cut."""
LONGEST_RUN_BYTES = 1_000_000
"""Of a text that is cut: a run without a safe place that is longer is refused."""

SafeCut = Callable[[str, int], bool]
"""Whether the text may be cut before the character of the index (1 to length - 1)."""

_WHITE_SPACE = frozenset("\t\n\x0b\x0c\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000") | {
    chr(point) for point in range(0x2000, 0x200B)
}
_UNCERTAIN = frozenset("\x1c\x1d\x1e\x1f\u180e\u200b\ufeff")
"""White space to some libraries or in some versions of Unicode only."""
_MARKS = frozenset(string.punctuation) | frozenset(
    "\u3001\u3002\u300a\u300b\u300c\u300d\u300e\u300f\u2014\u2026\uff01\uff08\uff09\uff0c\uff1a\uff1b\uff1f"
)
"""Neither letter nor digit nor white space in any version of Unicode: ASCII, and those of Chinese and Japanese."""
_DIGITS = frozenset(string.digits)
_LETTERS = frozenset(string.ascii_letters)
_CONTEXT = 256
"""Characters on each side of a cut that is checked with the library's pre-tokenizer."""


class LongRunError(CorpusError):
    """A text cannot be cut: it has a long run without a place where its tokens surely end."""


def pieces(utf8: bytes, safe: SafeCut, limit: int = PIECE_BYTES, longest_run: int = LONGEST_RUN_BYTES) -> Iterator[str]:
    """The text in pieces, each the longest of at most `limit` bytes, or else the shortest, that ends in a safe place.

    Memory: one piece. Raises LongRunError naming the run where a piece would be longer than `longest_run` bytes,
    CorpusError for bytes that are not UTF-8.
    """
    start = 0
    while len(utf8) - start > limit:
        first = _boundary(utf8, max(0, start - 4 * _CONTEXT))
        before = len(decoded(utf8, first, start))
        text = decoded(utf8, first, _boundary(utf8, start + limit + 4 * _CONTEXT))
        within = before + len(decoded(utf8, start, _boundary(utf8, start + limit)))
        cut = next((index for index in range(within, before, -1) if safe(text, index)), None)
        if cut is None:
            text = decoded(utf8, first, _boundary(utf8, start + longest_run + 4 * _CONTEXT))
            reach = before + len(decoded(utf8, start, _boundary(utf8, start + longest_run)))
            cut = next((index for index in range(within + 1, min(reach + 1, len(text))) if safe(text, index)), None)
        if cut is None and len(utf8) - start > longest_run:
            raise LongRunError(
                f"the document has a run of more than {longest_run:,} bytes without a place where a token surely ends",
                expected="white space, or letters beside digits or other marks, at least once in a run",
                received=f"{text[before : before + 40]!r}... from byte {start:,} of {len(utf8):,}",
                remedy="leave the document out, or break the run",
            )
        piece = text[before:cut]
        yield piece
        start += len(piece.encode())
    if start < len(utf8) or not utf8:
        yield decoded(utf8, start, len(utf8))


def safe_cuts(definition: dict[str, Any], spelling: Spelling, pre_tokenizer: Any) -> SafeCut:
    """Where texts of this tokenizer may be cut; `pre_tokenizer` is the library's, for those that are not known."""
    stages = stages_of(definition)
    spelled = [stage["type"] for stage in stages].index("ByteLevel") if spelling.byte_level else -1
    # A pattern after the byte-level spelling sees other characters than the text's.
    known = [place <= spelled and _known(stage) for place, stage in enumerate(stages)]
    if all(is_known or _by_character(stage) for is_known, stage in zip(known, stages, strict=True)):
        if any(known):
            return lambda text, index: ends_a_token(text[index - 1], text[index])
        if not definition["model"]["ignore_merges"]:
            return _never_joined(spelling)
    return _checked(pre_tokenizer) if spelling.byte_level else lambda _text, _index: False


def ends_a_token(before: str, after: str) -> bool:
    """Whether each of `patterns.KNOWN` ends a token between the two characters, whatever surrounds them."""
    if after == " ":
        return not (before.isspace() or before in _WHITE_SPACE or before in _UNCERTAIN)
    if after in _WHITE_SPACE:
        return before in _DIGITS or _is_letter(before)
    if after in _MARKS:
        return before in _DIGITS or _is_letter(before)
    if after in _DIGITS:
        return _is_letter(before)
    return before in _DIGITS and after in _LETTERS


def _is_letter(character: str) -> bool:
    """A letter in this version of Unicode and in an old one, hence in whichever the library uses."""
    versions = (unicodedata, unicodedata.ucd_3_2_0)
    return character in _LETTERS or all(version.category(character)[0] == "L" for version in versions)


def _known(stage: dict[str, Any]) -> bool:
    match stage:
        case {"type": "ByteLevel", "use_regex": True}:
            return True
        case {"type": "Split", "pattern": {"Regex": str(pattern)}, "behavior": "Isolated" | "Removed"}:
            return pattern in patterns.KNOWN
    return False


def _by_character(stage: dict[str, Any]) -> bool:
    """Whether the stage splits by what single characters are, so that a cut moves no other split."""
    match stage:
        case {"type": "ByteLevel", "use_regex": False} | {"type": "Digits" | "Punctuation" | "Metaspace"}:
            return True
        case {"type": "Split", "pattern": {"String": str(pattern)}}:
            return len(pattern) == 1
    return False


def _never_joined(spelling: Spelling) -> SafeCut:
    joined, space = spelling.joined, spelling.space

    def characters(text: str, index: int) -> bool:
        before, after = (
            space if space and character == " " else character for character in text[index - 1 : index + 1]
        )
        return (before, after) not in joined

    def last_and_first_byte(text: str, index: int) -> bool:
        return (text[index - 1].encode()[-1], text[index].encode()[0]) not in joined

    return last_and_first_byte if spelling.byte_level else characters


def _checked(pre_tokenizer: Any) -> SafeCut:
    def split(text: str) -> list[str]:
        return [piece for piece, _ in pre_tokenizer.pre_tokenize_str(text)]

    def agrees(text: str, index: int) -> bool:
        if not ends_a_token(text[index - 1], text[index]):
            return False
        return all(
            split(text[max(0, index - reach) : index]) + split(text[index : index + reach])
            == split(text[max(0, index - reach) : index + reach])
            for reach in (_CONTEXT, _CONTEXT // 3)
        )

    return agrees


def _boundary(utf8: bytes, place: int) -> int:
    """The last place at or before this one where a character begins."""
    place = min(place, len(utf8))
    while 0 < place < len(utf8) and utf8[place] & 0xC0 == 0x80:
        place -= 1
    return place


def decoded(utf8: bytes, start: int = 0, stop: int | None = None) -> str:
    """The characters of a part of a text. Raises CorpusError where it is not UTF-8."""
    try:
        return utf8[start:stop].decode()
    except UnicodeDecodeError as error:
        raise CorpusError(
            "the document is not valid UTF-8",
            expected="valid UTF-8",
            received=f"{utf8[start + error.start : start + error.start + 4]!r} at byte {start + error.start:,}",
        ) from error
