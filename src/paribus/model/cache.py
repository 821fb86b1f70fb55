"""Rows that are continued: what is kept of the tokens that a backbone has read, so that none is read twice.

Of every layer the rotated keys and the values that attention aggregates are kept, for a capacity that is set aside at
once. What else looks back is little: the previous token (a backbone that smears embeddings), and what an output map
looks at. A map that says `position_local` sees the new positions alone; any other one is given its row's whole past,
attention outputs among it, and the new positions of what it returns are taken. A mask is asked once about one document
of the whole capacity. A value map and a routing over depth see the new positions alone: by their contract they know no
others, and the memory of a routing lives inside one call.

Rows may be of unequal lengths: each is written behind its own past, and reads keys up to its own position.
"""

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from paribus.errors import ParibusError
from paribus.mechanisms.contract import AttentionMask, OutputMap, Values
from paribus.model.backbone import Backbone, attend
from paribus.model.tables import rotary_phases
from paribus.shapes import AskedStream, GroupedHeads, Heads, KvHeads, ReadPairs, Stream, Tokens


class Cache:
    """The past of some rows, each one document from position 0. `Backbone.extend` fills it.

    It belongs to the model that filled it: values of another one's, or of one whose weights have changed, are not
    recognised.
    """

    capacity: int
    """tokens that a row can take in"""
    lengths: Tensor
    """`[row]` int64 on the model's device: tokens that each row has taken in"""

    def __init__(self, lengths: Sequence[int], capacity: int, device: torch.device) -> None:
        self.capacity = capacity
        self.lengths = torch.tensor(lengths, dtype=torch.long, device=device)
        self.known_lengths = tuple(lengths)  # the same numbers, without asking a device for them
        self.last = torch.zeros_like(self.lengths)
        self._kept: dict[tuple[int, str], Tensor] = {}
        self._pairs: dict[int, Tensor | None] = {}

    @classmethod
    def empty(cls, model: Backbone, rows: int, capacity: int) -> "Cache":
        """Of rows that have taken nothing in, on the device of the model. Tensors get the types of what is computed.

        ParibusError where `rows` or `capacity` is below 1.
        """
        if min(rows, capacity) < 1:
            raise ParibusError(
                "a cache holds at least one row of at least one token",
                expected="rows >= 1 and capacity >= 1",
                received=f"rows = {rows}, capacity = {capacity}",
            )
        return cls([0] * rows, capacity, next(model.parameters()).device)

    def repeated(self, counts: Tensor | int) -> "Cache":
        """Row i `counts[i]` times, one behind the other: a shared prefix, then each continuation. Copies."""
        rows = torch.arange(len(self.known_lengths), device=self.lengths.device)
        times = counts.to(rows.device) if isinstance(counts, Tensor) else counts
        return self.selected(rows.repeat_interleave(times))

    def selected(self, rows: Tensor) -> "Cache":
        """The rows of these indices (or those that are True), in this order. Copies."""
        index = rows.to(self.lengths.device)
        index = index.nonzero().squeeze(1) if index.dtype == torch.bool else index.long()
        chosen = Cache([self.known_lengths[row] for row in index.tolist()], self.capacity, self.lengths.device)
        chosen.last = self.last[index]
        chosen._kept = {key: t[index] for key, t in self._kept.items()}
        chosen._pairs = dict(self._pairs)
        return chosen

    def appended(self, tokens: Tokens, lengths: Tensor | None, *, last_only: bool) -> "Appended":
        """The tokens as rows behind this past; see `Backbone.extend`. ParibusError where they do not fit."""
        rows, time = tokens.shape
        counts = (time,) * rows if lengths is None else tuple(int(count) for count in lengths.tolist())
        if rows != len(self.known_lengths) or len(counts) != rows or time < 1:
            raise ParibusError(
                "these tokens are not a continuation of the rows of this cache",
                expected=f"[row time] with {len(self.known_lengths)} rows and one token or more, a length for each row",
                received=f"tokens {list(tokens.shape)}, {len(counts)} lengths",
            )
        if min(counts) < 0 or max(counts) > time:
            raise ParibusError(
                "the lengths of a continuation are out of range",
                expected=f"0 to {time}, the tokens that are given",
                received=f"{min(counts)} to {max(counts)}",
            )
        longest = max(length + count for length, count in zip(self.known_lengths, counts, strict=True))
        if longest > self.capacity:
            raise ParibusError(
                "a row has become longer than its cache",
                expected=f"at most {self.capacity} tokens",
                received=str(longest),
                remedy="ask Cache.empty for the capacity of the longest row",
            )
        return Appended(self, tokens, counts, last_only=last_only)

    def advance(self, rows: "Appended") -> None:
        """What was appended is past from now on."""
        self.lengths = self.lengths + rows.counted
        self.last = torch.where(rows.counted > 0, rows.last_of(rows.tokens), self.last)
        self.known_lengths = rows.ends

    def kept(self, layer: int, what: str, like: Tensor) -> Tensor:
        """[row capacity ...] of what a layer keeps under a name; zero where nothing was written, so that a key that no
        query may read still is a number."""
        key = (layer, what)
        if key not in self._kept:
            self._kept[key] = like.new_zeros(len(like), self.capacity, *like.shape[2:])
        return self._kept[key]

    def pairs(self, layer: int, mask: nn.Module) -> Tensor | None:
        """[capacity capacity] pairs (query, key) of one document under a layer's mask, None for all earlier ones."""
        if layer not in self._pairs:
            document = torch.zeros(1, self.capacity, dtype=torch.long, device=self.lengths.device)
            asked = cast(AttentionMask, mask)(document)
            found = None if asked is None else asked[0]
            for known in self._pairs.values():  # layers of one mask share its pairs
                if known is not None and found is not None and torch.equal(known, found):
                    found = known
            self._pairs[layer] = found
        return self._pairs[layer]


class Appended:
    """Tokens behind the past of their rows, for the length of one call: the `Rows` of `Backbone.extend`."""

    def __init__(self, cache: Cache, tokens: Tokens, counts: tuple[int, ...], *, last_only: bool) -> None:
        self.cache, self.tokens, self.last_only = cache, tokens, last_only
        self.before = cache.last[:, None]
        starts, device, time = cache.known_lengths, tokens.device, tokens.shape[1]
        self.ends = tuple(start + count for start, count in zip(starts, counts, strict=True))
        self.start, self.end = min(starts), max(1, *self.ends)
        self.level = len(set(starts)) == 1 and min(counts) == time
        """every row takes in the same positions, so that they are slices"""
        self.counted = torch.tensor(counts, dtype=torch.long, device=device)
        self.document = torch.zeros_like(tokens)
        self._allowed: dict[tuple[int | None, int], ReadPairs] = {}
        if self.level:
            self.positions = torch.arange(self.start, self.end, device=device)[None]
            """[row time], or [1 time] where all rows have the same"""
        else:
            self._row = torch.arange(len(counts), device=device)
            offset = torch.arange(time, device=device)
            # Padding stands where its row's last token does: it sees what that sees, and is never written.
            last = (cache.lengths + self.counted - 1).clamp_min(0)[:, None]
            self.positions = (cache.lengths[:, None] + offset).minimum(last)
            self._of_row, self._of_time = (offset < self.counted[:, None]).nonzero(as_tuple=True)
            self._place = self.positions[self._of_row, self._of_time]

    def phases(self, head_width: int, base: float) -> tuple[Tensor, Tensor]:
        rounded = 1 << (self.cache.capacity - 1).bit_length()  # few tables, whatever the capacities
        cos, sin = rotary_phases(rounded, head_width, base, self.tokens.device)
        if self.level:
            return cos[self.start : self.end], sin[self.start : self.end]
        return cos[self.positions], sin[self.positions]

    def joined(self, mask: nn.Module) -> Tensor:
        has_one, pairs = self.positions > 0, self.cache.pairs(0, mask)
        if pairs is None:
            return has_one
        return has_one & pairs[self.positions, (self.positions - 1).clamp_min(0)]

    def attend(
        self, layer: int, q: Heads, k: KvHeads, v: KvHeads, mask: nn.Module, window: int | None = None
    ) -> tuple[Heads, ReadPairs | None]:
        device = q.device.type
        if k.dtype == torch.float32 and torch.is_autocast_enabled(device):
            k = k.to(torch.get_autocast_dtype(device))  # what attention makes of it, once and not at every token
        keys, values = self._with_past(layer, "key", k), self._with_past(layer, "value", v)
        pairs = self.cache.pairs(layer, mask)
        sees_all = pairs is None and (window is None or window >= self.end - 1)
        if self.level and self.start == 0 and sees_all:
            return attend(q, k, v, None), None
        first = 0 if window is None else max(0, self.start - window)
        keys, values = keys[:, first:], values[:, first:]
        if self.level and q.shape[1] == 1 and pairs is None:
            return attend(q, keys, values, None, causal=False), None
        allowed = self._pairs(window, pairs)[..., first:]
        return attend(q, keys, values, allowed), allowed

    def mapped(self, layer: int, output_map: nn.Module, y: GroupedHeads, values: Values) -> Any:
        mapping = cast(OutputMap, output_map)
        if getattr(output_map, "position_local", False):
            return mapping(y, values, self.document)
        whole = self._with_past(layer, "mixed", y)
        past = Values(*(self._with_past(layer, name, t) for name, t in values._asdict().items()))
        z = mapping(whole, past, self.document.new_zeros(whole.shape[:2]))
        return z[:, self.start :] if self.level else z[self._row[:, None], self.positions]

    def asked(self, x: Stream) -> AskedStream:
        return self.last_of(x).unsqueeze(1) if self.last_only else x

    def last_of(self, t: Tensor) -> Tensor:
        """[row ...] of each row's last token; of one that takes nothing in, any."""
        return t[:, -1] if self.level else t[self._row, (self.counted - 1).clamp_min(0)]

    def _with_past(self, layer: int, what: str, t: Tensor) -> Tensor:
        """Write t [row time ...] behind what is kept under this name: [row end ...] from position 0 on."""
        kept = self.cache.kept(layer, what, t)
        if self.level:
            kept[:, self.start : self.end] = t
        else:
            kept[self._of_row, self._place] = t[self._of_row, self._of_time]
        return kept[:, : self.end]

    def _pairs(self, window: int | None, pairs: Tensor | None) -> ReadPairs:
        """[row time end], or [1 time end], made once for the layers that share it."""
        key = (window, id(pairs))
        if key not in self._allowed:
            behind = self.positions[..., None] - torch.arange(self.end, device=self.tokens.device)
            allowed = behind >= 0 if window is None else (behind >= 0) & (behind <= window)
            self._allowed[key] = allowed if pairs is None else allowed & pairs[self.positions][..., : self.end]
        return self._allowed[key]
