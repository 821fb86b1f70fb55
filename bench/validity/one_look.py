"""Error rates, coverage and power of a study that is looked at once, on pages of one primary and two secondaries."""

import math
from collections.abc import Sequence

import numpy as np
from draws import Floats, draw_gains
from table import ERROR, Entry, Target, percent
from words import ALPHA, BETTER, CODE, EQUIVALENT, WINS, page_words

from paribus.seeds import generator
from paribus.stats.noise import sd_from_cells
from paribus.stats.paired import t_critical
from paribus.stats.power import equivalence_power, rule_power
from paribus.stats.rule import Word


def entries(pages: int, seeds: int, noise: str) -> list[Entry]:
    """Every row for one number of seeds and one noise. Spikes are shown, and held to nothing."""
    held = noise != "spikes"
    found: list[Entry] = []

    def gains(purpose: str, effects_sd: Sequence[float]) -> Floats:
        return draw_gains(generator("validity", noise, seeds, "verdicts", purpose), (pages, seeds), noise, effects_sd)

    def row(label: str, flags: object, target: Target | None = None) -> None:
        found.append(Entry(label, noise, percent(np.asarray(flags)), target if held else None))

    null = gains("null", (0, 0, 0))
    for margin in (1e-6, 0.5, 1.0):
        any_win = np.isin(page_words(null, margin), WINS).any(axis=1)
        row(f"null pages with any better/worse, d = {margin:g} sd", any_win, ERROR)
    real_primary = gains("real primary", (5, 0, 0))
    row(
        "real primary: pages with a false secondary",
        np.isin(page_words(real_primary, 1e-6)[:, 1:], WINS).any(axis=1),
        ERROR,
    )
    for margin in (0.5, 1.0, 2.0):
        at_margin = page_words(gains(f"at margin {margin}", (margin, 0, 0)), margin)[:, 0]
        row(f"false equivalent at |true| = d = {margin:g} sd", np.isin(at_margin, EQUIVALENT), ERROR)
    both = page_words(gains("secondaries at margin", (5, 1, -1)), 1.0)[:, 1:]
    row("secondaries at |true| = d = 1 sd: any false equivalent", np.isin(both, EQUIVALENT).any(axis=1), ERROR)
    primary = null[:, 0]
    half = t_critical(seeds - 1, 1 - ALPHA) * primary.std(axis=1, ddof=1) / math.sqrt(seeds)
    coverage = Target(94, 96) if noise == "normal" else Target(low=94)
    row("95 % interval covers the truth", np.abs(primary.mean(axis=1)) <= half, coverage)
    for margin in (1.0, 2.0):
        equivalent = np.isin(page_words(null, margin)[:, 0], EQUIVALENT)
        row(f"equivalent at a true 0, d = {margin:g} sd", equivalent)
    row("inconclusive, skewed at a true 0, d = 1 sd", page_words(null, 1.0)[:, 0] == CODE[Word.SKEWED])
    for effect, margin in ((1.0, 1.0), (1.5, 1.0), (1.5, 2.0)):
        words = page_words(gains(f"power {effect} {margin}", (effect * margin, 0, 0)), margin)[:, 0]
        row(f"better at a true {effect:g} d, d = {margin:g} sd", np.isin(words, BETTER))
    return found


CELL_SD = 0.00023
"""bits per byte of one cell, as the public seeds have it; the powers depend on ratios only"""


def power_entries(pages: int, seeds: int) -> list[Entry]:
    """Simulated power against what `paribus power` prints, with cells of a known sd and a known pair correlation.

    The cells are drawn in bits per byte and the printed powers come from the same numbers that a user would give:
    --cell-sd and --correlation.
    """
    found: list[Entry] = []
    for correlation in (0.0, 0.5, 0.9):
        sd = sd_from_cells(CELL_SD, correlation)
        for margin_sd, effect_sd in ((0.5, 1.0), (1.0, 1.5), (1.0, 2.0), (1.5, 0.0), (2.0, 0.0)):
            margin, effect = margin_sd * CELL_SD, effect_sd * CELL_SD
            rng = generator("validity", "normal", seeds, "power", f"{correlation} {margin_sd} {effect_sd}")
            shared, cells = rng.standard_normal((pages, 1, seeds)), rng.standard_normal((pages, 2, seeds))
            cells = CELL_SD * (math.sqrt(correlation) * shared + math.sqrt(1 - correlation) * cells)
            words = page_words(cells[:, :1] - cells[:, 1:] + effect, margin)[:, 0]
            if effect:
                simulated, printed = percent(np.isin(words, BETTER)), 100 * rule_power(seeds, effect / sd, margin / sd)
                label = f"better at a true {effect_sd:g}, d = {margin_sd:g}, r = {correlation:g}, S = {seeds}"
            else:
                simulated, printed = percent(np.isin(words, EQUIVALENT)), 100 * equivalence_power(seeds, margin / sd)
                label = f"equivalent at a true 0, d = {margin_sd:g}, r = {correlation:g}, S = {seeds}"
            near = Target(printed - 2, printed + 2, "within 2 of printed")
            found.append(Entry(label, "simulated", simulated, near))
            found.append(Entry(label, "printed", printed))
    return found
