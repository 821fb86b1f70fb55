"""The vectorised rule of the validity benchmark equals the verdict, and a small simulation keeps its error rates."""

import importlib.util
import math
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from paribus.seeds import generator
from paribus.stats.paired import t_critical
from paribus.stats.verdict import Comparison, decide

Compare = Callable[..., Comparison]
PAGES = 20_000


@pytest.fixture(scope="session")
def bench() -> ModuleType:
    path = Path(__file__).parents[2] / "bench" / "validity" / "verdicts.py"
    spec = importlib.util.spec_from_file_location("bench_validity_verdicts", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def at_most(rate: float, events: float, pages: int) -> bool:
    """Whether a share is within four binomial standard errors above the rate that it must not exceed."""
    return events <= rate + 4 * math.sqrt(rate * (1 - rate) / pages)


@pytest.mark.parametrize("noise", ["normal", "t3", "spikes"])
@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_the_fast_path_equals_the_verdict(bench: ModuleType, compare: Compare, seeds: int, noise: str) -> None:
    found = set()
    for effects_sd in ((0, 0, 0, 0), (2, 1, 0.4, -2), (-4, 0.1, 3, 0)):
        for margin in (0.05, 1.0, 2.5):
            rng = generator("tests", noise, seeds, "fast path", f"{effects_sd} {margin}")
            gains = bench.draw_gains(rng, (12, seeds), noise, effects_sd)
            fast = bench.page_words(gains, margin)
            for contrasts, codes in zip(gains, fast, strict=True):
                page = [
                    compare(
                        values,
                        name=str(index),
                        primary=index == 0,
                        lower_is_better=False,
                        smallest_effect=margin,
                        design_effect=2 * margin,
                    )
                    for index, values in enumerate(contrasts)
                ]
                words = [verdict.word for verdict in decide(page)]
                assert words == [bench.WORDS[code] for code in codes]
                found.update(words)
    assert len(found) >= 8


@pytest.mark.parametrize("noise", ["normal", "t3"])
@pytest.mark.parametrize("seeds", [5, 8])
def test_simulated_pages_keep_their_error_rates(bench: ModuleType, seeds: int, noise: str) -> None:
    def words(purpose: str, effects_sd: tuple[float, ...], margin: float) -> np.ndarray:
        rng = generator("tests", noise, seeds, "error rates", purpose)
        return bench.page_words(bench.draw_gains(rng, (PAGES, seeds), noise, effects_sd), margin)

    null = np.isin(words("null", (0, 0, 0), 1e-6), bench.WINS).any(axis=1).mean()
    behind = np.isin(words("real primary", (5, 0, 0), 1e-6)[:, 1:], bench.WINS).any(axis=1).mean()
    equivalent = np.isin(words("at margin", (1, 0, 0), 1.0)[:, 0], bench.EQUIVALENT).mean()
    behind_equivalent = np.isin(words("secondaries", (5, 1, -1), 1.0)[:, 1:], bench.EQUIVALENT).any(axis=1).mean()
    assert at_most(0.05, null, PAGES)
    assert at_most(0.05, behind, PAGES)
    assert at_most(0.05, equivalent, PAGES)
    assert at_most(0.05, behind_equivalent, PAGES)
    assert null > 0.025  # the rule can err: half the level is far above any share that a rule which never speaks has


def test_the_95_percent_interval_covers_95_percent(bench: ModuleType) -> None:
    gains = bench.draw_gains(generator("tests", "normal", 5, "coverage", "null"), (PAGES, 5), "normal", (0,))[:, 0]
    half = t_critical(4, 0.95) * gains.std(axis=1, ddof=1) / math.sqrt(5)
    covered = float((np.abs(gains.mean(axis=1)) <= half).mean())
    assert covered == pytest.approx(0.95, abs=4 * math.sqrt(0.95 * 0.05 / PAGES))
