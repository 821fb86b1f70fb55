"""Error rates of studies that are looked at more than once: planned looks, and one declared extension.

A page errs where it carries a false word at any look or stage. The number of seeds that an extension adds is chosen
after stage 1, by how near its primary came to a rejection.
"""

from collections.abc import Callable, Sequence

import numpy as np
from draws import Floats, draw_gains
from numpy.typing import NDArray
from table import ERROR, Entry, percent
from words import BETTER, EQUIVALENT, WINS, Codes, Flags, extended_words, stage_1_words, words_at_looks

from paribus.seeds import generator

LOOKS = ((5, 8), (3, 5, 8))
STAGE_1_SEEDS, STAGE_1_ALPHA = 5, 0.01
SEEDS_IN_ALL = (8, 10, 16)
"""What an extension may end at; the nearer to a rejection, the fewer."""


def look_entries(pages: int, noise: str) -> list[Entry]:
    """Planned looks, each kind of them with every error rate of the rule."""
    found: list[Entry] = []
    for looks in LOOKS:

        def ever(purpose: str, effects: Sequence[float], margin: float, looks: tuple[int, ...] = looks) -> list[Codes]:
            rng = generator("validity", noise, looks[-1], "looks", f"{looks} {purpose}")
            return words_at_looks(draw_gains(rng, (pages, looks[-1]), noise, effects), margin, looks)

        found += _entries(f"looks {', '.join(map(str, looks))}", noise, ever)
    return found


def extension_entries(pages: int, noise: str) -> list[Entry]:
    """One declared extension of a number of seeds that depends on stage 1."""

    def ever(purpose: str, effects: Sequence[float], margin: float) -> list[Codes]:
        rng = generator("validity", noise, STAGE_1_SEEDS, "extension", purpose)
        gains = draw_gains(rng, (pages, max(SEEDS_IN_ALL)), noise, effects)
        first = stage_1_words(gains[..., :STAGE_1_SEEDS], margin, STAGE_1_ALPHA)
        last, chosen = first.copy(), seeds_in_all(gains[:, 0, :STAGE_1_SEEDS])
        for count in SEEDS_IN_ALL:
            pages_here = chosen == count
            last[pages_here] = extended_words(gains[pages_here, :, :count], margin, STAGE_1_SEEDS, STAGE_1_ALPHA)
        return [first, last]

    label = f"extension {STAGE_1_SEEDS} + {', '.join(str(count - STAGE_1_SEEDS) for count in SEEDS_IN_ALL)}"
    return _entries(label, noise, ever)


def seeds_in_all(primary: Floats) -> NDArray[np.int64]:
    """The size of each study, chosen from the primary's stage 1 (pages, seeds)."""
    score = np.abs(primary.mean(axis=1)) / primary.std(axis=1, ddof=1)
    return np.select([score > 1.0, score > 0.5], SEEDS_IN_ALL[:2], SEEDS_IN_ALL[2])


def _entries(label: str, noise: str, ever: Callable[[str, Sequence[float], float], list[Codes]]) -> list[Entry]:
    held = ERROR if noise != "spikes" else None

    def any_of(words: list[Codes], codes: list[int]) -> Flags:
        return np.any([np.isin(each, codes) for each in words], axis=0)

    found: list[Entry] = []
    for margin in (1e-6, 0.5):
        wins = any_of(ever(f"null {margin}", (0, 0, 0), margin), WINS).any(axis=1)
        found.append(Entry(f"{label}: null pages with any better/worse, d = {margin:g} sd", noise, percent(wins), held))
    behind = any_of(ever("real primary", (5, 0, 0), 1e-6), WINS)[:, 1:].any(axis=1)
    found.append(Entry(f"{label}: real primary, pages with a false secondary", noise, percent(behind), held))
    for margin in (1.0, 2.0):
        equal = any_of(ever(f"at margin {margin}", (margin, 0, 0), margin), EQUIVALENT)[:, 0]
        found.append(Entry(f"{label}: false equivalent at |true| = d = {margin:g} sd", noise, percent(equal), held))
    both = any_of(ever("secondaries", (5, 1, -1), 1.0), EQUIVALENT)[:, 1:].any(axis=1)
    found.append(Entry(f"{label}: secondaries at d = 1 sd, any false equivalent", noise, percent(both), held))
    better = any_of(ever("power", (1.5, 0, 0), 1.0), BETTER)[:, 0]
    found.append(Entry(f"{label}: better at a true 1.5 d, d = 1 sd", noise, percent(better)))
    return found
