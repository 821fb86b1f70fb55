"""Token ids of many prompts that share parts: each part is encoded once, and the ids are those of the whole texts.

BPE of a joined text is not the join of the encodings. It is where the tokenizer surely ends a token
(`Tokenizer.safe_cut`), so each part is cut at its first and its last such place, and what lies between two parts' cuts
is encoded as one text:

    examples ... |middle of a part| end of it and beginning of the next |middle of the next| ...

Middles are kept from prompt to prompt: examples come again and again, and the answers of a question share all but
their own words. Every cut is judged in the whole text. A tokenizer without safe places gets whole texts.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from paribus.data.tokenizer import Tokenizer
from paribus.downstream.core.rendering import Prompt

KEPT_CHARACTERS = 16_000_000
"""of middles, until they are forgotten; with their ids about 100 MB"""
_SHORTEST_CHARACTERS = 8
"""of a part that is worth cutting"""
_REACH = 200
"""characters from either end in which a cut is looked for"""


class PromptEncoder:
    """Encodes prompts given in parts. Which calls came before changes no id, only the time."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._bos = np.array([tokenizer.bos_id], dtype=np.int32)
        self._kept: dict[str, NDArray[np.int32]] = {}
        self._kept_characters = 0
        self._cuts: dict[str, tuple[int, int] | None] = {}

    def encode(self, prompts: Sequence[Prompt]) -> list[NDArray[np.int32]]:
        """`[token]` of each prompt, the tokenizer's beginning first."""
        cut = [self._segments(prompt) for prompt in prompts]
        found = self._encoded([segment for segments in cut for segment in segments])
        encoded = [np.concatenate([self._bos, *(found[segment] for segment, _ in segments)]) for segments in cut]
        if self._kept_characters > KEPT_CHARACTERS:
            self._kept, self._cuts, self._kept_characters = {}, {}, 0
        return encoded

    def _encoded(self, segments: Sequence[tuple[str, bool]]) -> dict[str, NDArray[np.int32]]:
        found = {segment: self._kept[segment] for segment, _ in segments if segment in self._kept}
        new = [segment for segment in dict(segments) if segment not in found]
        ids, lengths = self._tokenizer.encode_batch_utf8([segment.encode() for segment in new])
        parts = np.split(ids.astype(np.int32), np.cumsum(lengths)[:-1]) if new else []
        found |= zip(new, parts, strict=True)
        for segment, kept in segments:
            if kept and segment not in self._kept:
                self._kept[segment] = found[segment]
                self._kept_characters += len(segment)
        return found

    def _segments(self, prompt: Prompt) -> list[tuple[str, bool]]:
        """Texts whose encodings joined are the prompt's, and whether each is the middle of a part."""
        whole = "".join(prompt)
        cuts: list[tuple[int, bool]] = []
        offset = 0
        for part in prompt:
            place = self._cut(part)
            if place is not None:
                first, last = offset + place[0], offset + place[1]
                if self._tokenizer.safe_cut(whole, first) and self._tokenizer.safe_cut(whole, last):
                    cuts += [(first, False), (last, True)]
            offset += len(part)
        bounds = [(0, False), *cuts, (len(whole), False)]
        return [
            (whole[start:end], ends_a_middle) for (start, _), (end, ends_a_middle) in pairwise(bounds) if end > start
        ]

    def _cut(self, part: str) -> tuple[int, int] | None:
        """First and last safe place of a part, both inside it; None where it has no two."""
        if part not in self._cuts:
            safe, length = self._tokenizer.safe_cut, len(part)
            places: tuple[int, int] | None = None
            if length >= _SHORTEST_CHARACTERS:
                first = next((place for place in range(1, min(length, _REACH)) if safe(part, place)), None)
                last = next(
                    (place for place in range(length - 1, max(0, length - _REACH), -1) if safe(part, place)), None
                )
                places = (first, last) if first is not None and last is not None and first < last else None
            self._cuts[part] = places
        return self._cuts[part]
