"""Random numbers by counter: what row r of step s draws is a hash of (seed, s, r, purpose, index), and nothing else.

Rows, steps and purposes can be drawn in any order and in any number, together or one by one, on every machine, with
the same result. The hash is the finaliser of splitmix64 (Steele, Lea and Flood 2014), applied once for each part of
the key; every array below is uint64 with wrap-around.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paribus.seeds import stream_key

_STRIDE, _MIX_1, _MIX_2 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_UNIT = 2.0**-53


def mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A bijection of 64-bit words in which every output bit depends on every input bit."""
    values = (values ^ (values >> np.uint64(30))) * _MIX_1
    values = (values ^ (values >> np.uint64(27))) * _MIX_2
    return values ^ (values >> np.uint64(31))


@dataclass(frozen=True)
class Draws:
    """The random numbers of some rows, each row keyed by itself: results have the row as their first axis."""

    keys: NDArray[np.uint64]
    """`[row]`"""

    @classmethod
    def of(cls, seed: int, step: NDArray[np.int64], row: NDArray[np.int64]) -> "Draws":
        """Of the rows `row` of the steps `step`, both `[row]`; `seed` is any key of 64 bits."""
        keys = mix(step.astype(np.uint64) * _STRIDE + np.uint64(seed % 2**64))
        return cls(mix(keys + (row.astype(np.uint64) + np.uint64(1)) * _STRIDE))

    def bits(self, purpose: str, *shape: int) -> NDArray[np.uint64]:
        """64 uniform bits `[row *shape]`; equal for equal purpose, whatever else was drawn."""
        index = np.arange(1, int(np.prod(shape, dtype=np.int64)) + 1, dtype=np.uint64).reshape(shape)
        own = mix(self.keys + np.uint64(stream_key("task draw", purpose)))
        return mix(own.reshape(-1, *(1 for _ in shape)) + index * _STRIDE)

    def uniform(self, purpose: str, *shape: int) -> NDArray[np.float64]:
        """Uniform on [0, 1), multiples of 2^-53: `[row *shape]`."""
        return (self.bits(purpose, *shape) >> np.uint64(11)).astype(np.float64) * _UNIT

    def integers(self, purpose: str, high: int, *shape: int) -> NDArray[np.int64]:
        """Uniform on 0..high-1, `[row *shape]`. The bias of the truncation is below high / 2^53."""
        return (self.uniform(purpose, *shape) * high).astype(np.int64)

    def permutations(self, purpose: str, items: int, *shape: int) -> NDArray[np.int64]:
        """A uniform permutation of 0..items-1 along the last axis, `[row *shape items]`."""
        return np.argsort(self.bits(purpose, *shape, items), axis=-1, kind="stable")

    def chosen(self, purpose: str, items: int, count: int, *shape: int) -> NDArray[np.int64]:
        """`count` different ones of 0..items-1 in uniform order, `[row *shape count]`."""
        return self.permutations(purpose, items, *shape)[..., :count]
