"""The vectorised rule of the validity benchmark equals the verdict, and short simulations keep the error rates."""

import importlib
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from paribus.seeds import generator
from paribus.stats.verdict import Comparison, decide

Compare = Callable[..., Comparison]
BENCH = Path(__file__).parents[2] / "bench" / "validity"
EFFECTS_SD = ((0, 0, 0, 0), (2, 1, 0.4, -2), (-4, 0.1, 3, 0))
PAGES = 10_000


@pytest.fixture(scope="session")
def bench() -> Iterator[SimpleNamespace]:
    """The benchmark's modules, which find each other as a script's neighbours do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCH))
        names = ("draws", "words", "table", "one_look", "stages", "new_documents", "verdicts")
        yield SimpleNamespace(**{name: importlib.import_module(name) for name in names})


def words_of(compare: Compare, page: np.ndarray, margin: float, **rule: Any) -> list[Any]:
    """What the verdict says of gains (contrasts, seeds) with the primary first."""
    verdicts = decide(
        [
            compare(
                values,
                name=str(index),
                primary=index == 0,
                lower_is_better=False,
                smallest_effect=margin,
                design_effect=2 * margin,
                **rule,
            )
            for index, values in enumerate(page)
        ]
    )
    return [verdict.word for verdict in verdicts]


@pytest.mark.parametrize("noise", ["normal", "t3", "CORE", "spikes"])
@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_the_fast_path_equals_the_verdict(bench: SimpleNamespace, compare: Compare, seeds: int, noise: str) -> None:
    found = set()
    for effects_sd in EFFECTS_SD:
        for margin in (0.05, 1.0, 2.5):
            rng = generator("tests", noise, seeds, "fast path", f"{effects_sd} {margin}")
            gains = bench.draws.draw_gains(rng, (12, seeds), noise, effects_sd)
            for page, codes in zip(gains, bench.words.page_words(gains, margin), strict=True):
                words = words_of(compare, page, margin)
                assert words == [bench.words.WORDS[code] for code in codes]
                found.update(words)
    assert len(found) >= 8


def test_the_fast_path_gives_identical_differences_no_word_and_keeps_their_place_in_the_family(
    bench: SimpleNamespace, compare: Compare
) -> None:
    rng = generator("tests", "normal", 5, "fast path", "identical")
    for constant in range(3):
        gains = bench.draws.draw_gains(rng, (20, 5), "normal", (3, 1.2, 1.2))
        gains[:, constant] = 1.25
        for page, codes in zip(gains, bench.words.page_words(gains, 0.5), strict=True):
            assert words_of(compare, page, 0.5) == [bench.words.WORDS[code] for code in codes]


@pytest.mark.parametrize("looks", [(5, 8), (3, 5, 8)])
def test_the_fast_path_equals_the_verdict_at_every_look(
    bench: SimpleNamespace, compare: Compare, looks: tuple[int, ...]
) -> None:
    found = set()
    for effects_sd in ((0, 0, 0), (2, 1, 0.4), (-3, 0.1, -2)):
        for margin in (0.05, 2.0):
            # Few pages: the p values of looks, which the fast path does without, are integrals.
            rng = generator("tests", "normal", 8, "looks", f"{looks} {effects_sd} {margin}")
            gains = bench.draws.draw_gains(rng, (2, 8), "normal", effects_sd)
            at_looks = bench.words.words_at_looks(gains, margin, looks)
            for pairs, codes in zip((5, 8), at_looks, strict=True):
                for page, of_page in zip(gains[..., :pairs], codes, strict=True):
                    words = words_of(compare, page, margin, looks=looks, planned_seeds=8)
                    assert words == [bench.words.WORDS[code] for code in of_page]
                    found.update(words)
            if looks[0] < 5:  # the look that is left out has no word of a test to leave out
                for page in gains[..., : looks[0]]:
                    words = words_of(compare, page, margin, looks=looks, planned_seeds=8)
                    assert not any(word.settled for word in words)
    assert len(found) >= 6


@pytest.mark.parametrize("added", [3, 6])
def test_the_fast_path_equals_the_verdict_of_both_stages(bench: SimpleNamespace, compare: Compare, added: int) -> None:
    found = set()
    for effects_sd in (*EFFECTS_SD, (1.2, 0.9, 0.5, -0.7)):
        for margin in (0.05, 0.4, 1.0, 2.5):
            rng = generator("tests", "normal", 5 + added, "extension", f"{effects_sd} {margin}")
            gains = bench.draws.draw_gains(rng, (5, 5 + added), "normal", effects_sd)
            rule = {"stage_1_seeds": 5, "stage_1_alpha": 0.01, "planned_seeds": 5 + added}
            first = bench.words.stage_1_words(gains[..., :5], margin, 0.01)
            last = bench.words.extended_words(gains, margin, 5, 0.01)
            for page, codes_1, codes_2 in zip(gains, first, last, strict=True):
                at_first = words_of(compare, page[:, :5], margin, **rule)
                assert at_first == [bench.words.WORDS[code] for code in codes_1]
                words = words_of(compare, page, margin, **rule)
                assert words == [bench.words.WORDS[code] for code in codes_2]
                found.update(words)
    assert len(found) >= 8


def at_most(rate: float, events: float, pages: int) -> bool:
    """Whether a share is within four binomial standard errors above the rate that it must not exceed."""
    return events <= rate + 4 * math.sqrt(rate * (1 - rate) / pages)


@pytest.mark.parametrize("noise", ["normal", "t3"])
@pytest.mark.parametrize("seeds", [5, 8])
def test_simulated_pages_keep_their_error_rates(bench: SimpleNamespace, seeds: int, noise: str) -> None:
    entries = {entry.row: entry for entry in bench.one_look.entries(PAGES, seeds, noise)}
    errors = [entry for entry in entries.values() if entry.target == bench.table.ERROR]
    assert len(errors) == 8
    for entry in errors:
        assert at_most(0.05, entry.percent / 100, PAGES), entry
    # The rule can err: half the level is far above any share that a rule which never speaks has.
    assert entries["null pages with any better/worse, d = 1e-06 sd"].percent > 2.5
    coverage = entries["95 % interval covers the truth"]
    low, high = (94.1, 95.9) if noise == "normal" else (94.1, 97.9)  # four standard errors around 95, for t3 up to 97
    assert low < coverage.percent < high


def test_simulated_power_of_correlated_cells_is_what_power_prints(bench: SimpleNamespace) -> None:
    for seeds in (5, 8):
        entries = bench.one_look.power_entries(PAGES, seeds)
        simulated, printed = entries[::2], entries[1::2]
        assert {entry.column for entry in simulated} == {"simulated"}
        for found, expected in zip(simulated, printed, strict=True):
            share = min(max(expected.percent / 100, 0.001), 0.999)
            # Four binomial standard errors, at most 2 points, which is the target.
            assert found.percent / 100 == pytest.approx(
                share, abs=0.001 + 4 * math.sqrt(share * (1 - share) / PAGES)
            ), found
    assert max(entry.percent for entry in printed) - min(entry.percent for entry in printed) > 50


def test_looks_and_an_extension_keep_the_error_rates_over_all_looks_and_stages(bench: SimpleNamespace) -> None:
    pages = 4_000
    entries = [*bench.stages.look_entries(pages, "normal"), *bench.stages.extension_entries(pages, "normal")]
    errors = [entry for entry in entries if entry.target == bench.table.ERROR]
    assert len(errors) == 18
    for entry in errors:
        assert at_most(0.05, entry.percent / 100, pages), entry
    nulls = [entry for entry in errors if "d = 1e-06" in entry.row]
    assert len(nulls) == 3
    assert all(entry.percent > 3.5 for entry in nulls)  # alpha is spent, not given away


def test_plain_t_tests_at_every_look_would_be_seen_to_err(bench: SimpleNamespace) -> None:
    """The simulation can fail: without the levels of the looks, the same pages carry far more false words."""
    rng = generator("tests", "normal", 8, "looks", "undeclared")
    gains = bench.draws.draw_gains(rng, (10_000, 8), "normal", (0,))
    wins = [np.isin(bench.words.page_words(gains[..., :n], 1e-6), bench.words.WINS) for n in (3, 5, 8)]
    assert np.any(wins, axis=0).mean() > 0.09  # 11 % by the published simulation of the same three looks


def test_the_new_documents_interval_covers_and_a_single_pair_does_not(bench: SimpleNamespace) -> None:
    pages = 1_000
    entries = bench.new_documents.document_entries(pages, 5)
    for entry in entries:
        if entry.target is not None:
            # Four binomial standard errors of 1,000 pages around 95 %.
            assert abs(entry.percent - 95) < 2.8, entry
    single = {entry.column: entry.percent for entry in entries if entry.row.startswith("one pair")}
    assert single["seeds dominate"] < 65


def test_the_public_seeds_have_their_published_moments(bench: SimpleNamespace) -> None:
    values = np.loadtxt(BENCH / "nanochat_seeds.csv", delimiter=",")
    assert values.shape == (20, 3)
    assert values[:, 0].tolist() == list(range(1, 21))
    bits_per_byte, core = values[:, 1], values[:, 2]
    # As published, to the digits that were.
    assert bits_per_byte.mean() == pytest.approx(0.73732, abs=5e-6)
    assert bits_per_byte.std(ddof=1) == pytest.approx(0.00023, abs=5e-6)
    assert core.mean() == pytest.approx(0.2389, abs=5e-5)
    assert core.std(ddof=1) == pytest.approx(0.0062, abs=5e-5)
    assert np.corrcoef(bits_per_byte, core)[0, 1] == pytest.approx(0.08, abs=0.005)
    for noise in bench.draws.PUBLIC:
        drawn = bench.draws.public_seeds(noise)
        assert drawn.mean() == pytest.approx(0, abs=1e-9)
        assert drawn.std() == pytest.approx(1, rel=1e-12)


@pytest.mark.parametrize("noise", ["normal", "t3", "bits per byte"])
def test_drawn_cells_have_the_correlation_and_the_sd_that_they_were_asked_for(
    bench: SimpleNamespace, noise: str
) -> None:
    for correlation in (0.0, 0.5, 0.9):
        rng = generator("tests", noise, 1, "draws", f"{correlation}")
        gains = bench.draws.draw_gains(rng, (40_000, 2), noise, (0, 1), correlation)
        assert gains[:, 0].mean() == pytest.approx(0, abs=0.02)  # four standard errors of 80,000 draws: 0.014
        assert gains[:, 1].mean() == pytest.approx(1, abs=0.02)
        # t3 has no fourth moment: its sample sd settles slowly.
        assert gains[:, 0].std() == pytest.approx(1, rel=0.08 if noise == "t3" else 0.015)


def test_a_table_names_what_missed_its_target(bench: SimpleNamespace) -> None:
    table = bench.table
    entries = [
        table.Entry("false", "normal", 5.6, table.ERROR),
        table.Entry("false", "t3", 4.0, table.ERROR),
        table.Entry("false", "spikes", 30.0),
        table.Entry("covers", "normal", 95.0, table.Target(94, 96)),
        table.Entry("power", "normal", 81.0),
    ]
    lines = table.rendered("Title", entries).splitlines()
    assert lines[2].endswith("<= 5.5         MISSED by normal")
    assert lines[3].endswith("94 to 96       PASS")
    assert lines[4].endswith("81.0")
