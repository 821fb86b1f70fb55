"""Named generators: every random number comes from a stream keyed by what it is for.

A stream is named by (study, scale, seed, purpose, name). Two streams with different names are independent,
so adding a parameter, an arm or a purpose never shifts the numbers that another one draws.
"""

import hashlib

import numpy as np
from numpy.typing import NDArray


def stream_key(*parts: str | int) -> int:
    """A 64-bit key of the named stream. Parts are length-prefixed, so ("a", "bc") and ("ab", "c") differ."""
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        encoded = f"{type(part).__name__}:{part}".encode()
        digest.update(len(encoded).to_bytes(4, "little"))
        digest.update(encoded)
    return int.from_bytes(digest.digest(), "little")


def generator(*parts: str | int) -> np.random.Generator:
    """The counter-based generator (Philox 4x64) of the named stream."""
    return np.random.Generator(np.random.Philox(key=stream_key(*parts)))


def unit_noise(shape: tuple[int, ...], *parts: str | int) -> NDArray[np.float32]:
    """Standard normal noise, float32, drawn on the CPU from the named stream. Scales are applied by the caller."""
    return generator(*parts).standard_normal(shape, dtype=np.float32)


def unit_uniform_noise(shape: tuple[int, ...], *parts: str | int) -> NDArray[np.float32]:
    """The same, uniform with standard deviation 1: from -sqrt(3) to sqrt(3)."""
    uniform = generator(*parts).random(shape, dtype=np.float32)
    return (uniform - np.float32(0.5)) * np.float32(12**0.5)
