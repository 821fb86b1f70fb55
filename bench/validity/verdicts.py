"""How often the verdict rule errs and how often it finds what is there, on pages of one primary and two secondaries.

    python bench/validity/verdicts.py --pages 10000

Each page compares three treatments with one baseline, so its contrasts are correlated through the shared arm. Cells are
independent draws around each arm's mean: normal; Student t with 3 degrees of freedom; or spikes, where one treatment
cell in ten jumps and the mean is still 0. The last shows what the t interval cannot do and is not held to 5 %. sd is
the standard deviation of the paired difference. `page_words` is the rule on many pages at once; a test holds it equal
to paribus.stats.verdict.decide.
"""

import argparse
import math
from collections.abc import Sequence

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from paribus.seeds import generator
from paribus.stats.paired import t_critical
from paribus.stats.rule import Word

WORDS = tuple(Word)
CODE = {word: code for code, word in enumerate(WORDS)}
WINS = [CODE[word] for word in WORDS if word.better or word.worse]
BETTER = [CODE[word] for word in WORDS if word.better]
NOT_ZERO = [CODE[word] for word in WORDS if word.not_zero]
EQUIVALENT = [CODE[Word.EQUIVALENT], CODE[Word.EQUIVALENT_NOT_ZERO]]
ALPHA = 0.05

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]


def page_words(gains: Floats, margin: float, alpha: float = ALPHA) -> Codes:
    """Words, as indices into `WORDS`, of `gains` (pages, contrasts, seeds) with the primary as contrast 0."""
    seeds = gains.shape[2]
    mean = gains.mean(axis=2)
    error = gains.std(axis=2, ddof=1) / math.sqrt(seeds)
    skewed = mean * np.median(gains, axis=2) < 0
    p_t = 2 * scipy.special.stdtr(seeds - 1, -np.abs(mean / error))
    p_equivalence = scipy.special.stdtr(seeds - 1, (np.abs(mean) - margin) / error)
    level = np.concatenate([np.full_like(p_t[:, :1], alpha), holm_levels(p_t[:, 1:], alpha)], axis=1)
    level_equivalence = np.concatenate(
        [np.full_like(p_t[:, :1], alpha), holm_levels(p_equivalence[:, 1:], alpha)], axis=1
    )
    half = -scipy.special.stdtrit(seeds - 1, level / 2) * error
    not_zero = (np.abs(mean) > half) & ~skewed
    equivalent = np.abs(mean) - scipy.special.stdtrit(seeds - 1, level_equivalence) * error < margin
    large = not_zero & (np.abs(mean) >= margin)
    beyond = np.abs(mean) - half >= margin
    better = np.where(beyond, CODE[Word.BETTER_BY_SMALLEST_EFFECT], CODE[Word.BETTER])
    worse = np.where(beyond, CODE[Word.WORSE_BY_SMALLEST_EFFECT], CODE[Word.WORSE])
    words = np.select(
        [large & (mean > 0), large, equivalent & not_zero, equivalent, not_zero, skewed],
        [
            better,
            worse,
            np.full_like(better, CODE[Word.EQUIVALENT_NOT_ZERO]),
            np.full_like(better, CODE[Word.EQUIVALENT]),
            np.full_like(better, CODE[Word.BELOW_SMALLEST_EFFECT]),
            np.full_like(better, CODE[Word.SKEWED]),
        ],
        CODE[Word.INCONCLUSIVE],
    )
    gate = np.isin(words[:, :1], NOT_ZERO)
    words[:, 1:] = np.where(gate, words[:, 1:], CODE[Word.NOT_TESTED])
    return words


def holm_levels(p_values: Floats, alpha: float) -> Floats:
    """The level at which Holm tests each p value of a row; behind the stop, the level of the stop."""
    count = p_values.shape[1]
    if not count:
        return p_values
    order = np.argsort(p_values, axis=1, kind="stable")
    steps = alpha / (count - np.arange(count))
    failed = np.take_along_axis(p_values, order, axis=1) > steps
    rank = np.arange(count)
    stop = np.where(failed.any(axis=1), failed.argmax(axis=1), count - 1)
    ranked = steps[np.minimum(rank[None, :], stop[:, None])]
    levels = np.empty_like(p_values)
    np.put_along_axis(levels, order, ranked, axis=1)
    return levels


def draw_gains(rng: np.random.Generator, shape: tuple[int, int], noise: str, effects_sd: Sequence[float]) -> Floats:
    """Gains in sd, for `shape` (pages, seeds), of treatments with the given effects against one shared baseline."""
    pages, seeds = shape
    size = (pages, len(effects_sd) + 1, seeds)
    cells = rng.standard_t(3, size) / math.sqrt(3) if noise == "t3" else rng.standard_normal(size)
    gains = (cells[:, 1:] - cells[:, :1]) / math.sqrt(2)
    if noise == "spikes":
        rate, part = 0.1, 0.9  # nine tenths of the variance comes from one cell in ten
        spikes = (rng.random(gains.shape) < rate) - rate
        gains = math.sqrt(1 - part) * gains + math.sqrt(part / (rate * (1 - rate))) * spikes
    return gains + np.asarray(effects_sd)[None, :, None]


def share(flags: ArrayLike) -> str:
    """A percentage and its binomial standard error."""
    hits = np.asarray(flags, dtype=np.bool_)
    rate = float(hits.mean())
    return f"{100 * rate:5.1f} +- {100 * math.sqrt(rate * (1 - rate) / hits.size):.1f} %"


def rows(pages: int, seeds: int, noise: str) -> list[tuple[str, str]]:
    """Every row of the table for one number of seeds and one noise."""

    def gains(purpose: str, effects_sd: Sequence[float]) -> Floats:
        return draw_gains(generator("validity", noise, seeds, "verdicts", purpose), (pages, seeds), noise, effects_sd)

    found: list[tuple[str, str]] = []
    null = gains("null", (0, 0, 0))
    for margin in (1e-6, 0.5, 1.0):
        any_win = np.isin(page_words(null, margin), WINS).any(axis=1)
        found.append((f"null pages with any better/worse, d = {margin:g} sd (<= 5)", share(any_win)))
    real_primary = gains("real primary", (5, 0, 0))
    false_secondary = np.isin(page_words(real_primary, 1e-6)[:, 1:], WINS).any(axis=1)
    found.append(("real primary, null secondaries: pages with a false secondary (<= 5)", share(false_secondary)))
    for margin in (0.5, 1.0, 2.0):
        at_margin = page_words(gains(f"at margin {margin}", (margin, 0, 0)), margin)[:, 0]
        found.append((f"false equivalent at |true| = d = {margin:g} sd (<= 5)", share(np.isin(at_margin, EQUIVALENT))))
    both = page_words(gains("secondaries at margin", (5, 1, -1)), 1.0)[:, 1:]
    found.append(
        (
            "secondaries at |true| = d = 1 sd: pages with a false equivalent (<= 5)",
            share(np.isin(both, EQUIVALENT).any(axis=1)),
        )
    )
    for margin in (0.5, 1.0, 1.5, 2.0):
        equivalent = np.isin(page_words(null, margin)[:, 0], EQUIVALENT)
        found.append((f"equivalent at a true 0, d = {margin:g} sd", share(equivalent)))
    found.append(
        ("inconclusive, skewed at a true 0, d = 1 sd", share(page_words(null, 1.0)[:, 0] == CODE[Word.SKEWED]))
    )
    primary = null[:, 0]
    half = t_critical(seeds - 1, 1 - ALPHA) * primary.std(axis=1, ddof=1) / math.sqrt(seeds)
    found.append(("95 % interval covers the truth (95)", share(np.abs(primary.mean(axis=1)) <= half)))
    for effect in (1.0, 1.5):
        for margin in (1.0, 2.0):
            words = page_words(gains(f"power {effect} {margin}", (effect * margin, 0, 0)), margin)[:, 0]
            found.append((f"better at a true {effect:g} d, d = {margin:g} sd", share(np.isin(words, BETTER))))
    return found


def main() -> None:
    """Print one column for each number of seeds and noise."""
    parser = argparse.ArgumentParser(description="Error rates and power of the verdict rule, by simulation.")
    parser.add_argument("--pages", type=int, default=10_000, help="simulated pages for each entry")
    parser.add_argument("--seeds", type=int, nargs="+", default=[5, 8], help="pairs of each contrast")
    parser.add_argument("--noises", nargs="+", default=["normal", "t3", "spikes"], choices=["normal", "t3", "spikes"])
    arguments = parser.parse_args()
    columns = [(seeds, noise) for seeds in arguments.seeds for noise in arguments.noises]
    tables = [dict(rows(arguments.pages, seeds, noise)) for seeds, noise in columns]
    width = max(map(len, tables[0]))
    print(f"{arguments.pages} pages each; +- is the binomial standard error")
    print(" " * width + "".join(f"{f'S = {seeds}, {noise}':>18}" for seeds, noise in columns))
    for label in tables[0]:
        print(label.ljust(width) + "".join(table[label].rjust(18) for table in tables))


if __name__ == "__main__":
    main()
