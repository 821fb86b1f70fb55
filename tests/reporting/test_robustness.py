"""Contrasts of a text at other learning rates: from rows to the table, and through the door."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import scipy

from paribus.experiment.spec import STUDY, Key, rate_variant, variant_rate
from paribus.report import page
from paribus.report.door import due
from paribus.report.robustness import TITLE, rate_sentence
from paribus.reporting.due import counted_seeds
from paribus.reporting.robustness import at_rates, robustness
from paribus.stats.rounding import MINUS
from paribus.stats.rule import Word

ARMS = ("standard", "xsa")
GAINS = (-0.05, -0.06, -0.04, -0.054, -0.046)
HALF, DOUBLE = rate_variant(0.5), rate_variant(2.0)
RATES = {"[noise]\n": "[robustness]\nrate_factors = [0.5, 2.0]\nseeds = 4\n[noise]\n"}
BYTES_PER_TOKEN = 4
"""of the rows that conftest writes"""


def loss_of(key: Key) -> float:
    """The treatment gains at its own rates and at half of them, and loses as much at twice."""
    _, arm, seed, variant = key
    sign = -1 if variant == DOUBLE else 1
    return 3.0 + 0.02 * seed + (sign * GAINS[seed % 5] if arm == "xsa" else 0.0)


def t_interval(values: tuple[float, ...]) -> tuple[float, float]:
    error = float(np.std(values, ddof=1)) / math.sqrt(len(values))
    half = float(scipy.stats.t.ppf(0.975, len(values) - 1)) * error
    return float(np.mean(values)) - half, float(np.mean(values)) + half


def test_a_text_shows_its_contrast_at_every_rate_from_the_seeds_that_have_one(fill: Callable) -> None:
    content, verdicts = fill(loss_of, RATES, arms=ARMS, seeds=5).content()
    assert content.task is None
    rows = content.robustness
    assert [(row.contrast, row.compared, row.metric, row.unit) for row in rows] == [
        ("xsa", f"xsa {MINUS} standard", "test.nll", "nats per token")
    ] * 3
    assert [(row.factor, row.pairs, row.diverged) for row in rows] == [(1.0, 5, 0), (0.5, 4, 0), (2.0, 4, 0)]
    for row, values in zip(rows, (GAINS, GAINS[:4], tuple(-gain for gain in GAINS[:4])), strict=True):
        assert row.mean == pytest.approx(np.mean(values), abs=1e-12)
        assert row.interval == pytest.approx(t_interval(values), abs=1e-9)
    assert rows[0].mean == pytest.approx(verdicts[0].mean, abs=1e-12), "the study's own cells are those of the verdict"
    said = f"The sign depends on the learning rate: {MINUS}0.0500 at 1 times, {MINUS}0.0510 at 0.5 times, "
    said += "+0.0510 at 2 times."
    assert rate_sentence(rows) == said
    text = page.render(content)
    assert TITLE in text
    assert said in text


def test_a_contrast_in_bits_per_byte_stands_beside_the_one_in_nats(fill: Callable) -> None:
    second = '[contrasts.bytes]\ntreatment = "xsa"\nbaseline = "standard"\nmetric = "test.bits_per_byte"\n'
    changes = {"[seeds]": f"{second}smallest_effect = 0.01\ndesign_effect = 0.03\n[seeds]", **RATES}
    content, _ = fill(loss_of, changes, arms=ARMS, seeds=5).content()
    nats = [row for row in content.robustness if row.unit == "nats per token"]
    bits = [row for row in content.robustness if row.unit == "bits per byte"]
    assert [row.contrast for row in bits] == ["bytes"] * 3
    for one, other in zip(nats, bits, strict=True):
        assert one.mean is not None
        assert other.mean == pytest.approx(one.mean / (BYTES_PER_TOKEN * math.log(2)), rel=1e-9)


def test_before_the_planned_seeds_no_rate_tells_anything_though_all_its_cells_are_there(fill: Callable) -> None:
    last = tuple(("tiny", arm, 4, STUDY) for arm in ARMS)
    filled = fill(loss_of, RATES, skip=last, arms=ARMS, seeds=5)
    content, verdicts = filled.content()
    assert verdicts[0].word is Word.WAITING
    assert content.robustness == ()
    # A record that came in all the same is stopped at the door.
    read = filled.read()
    early = at_rates(read, "xsa", read.experiment.contrasts["xsa"], counted_seeds(read, verdicts[0]))
    assert [row.pairs for row in early] == [4, 4, 4]
    held = replace(content, robustness=tuple(early))
    assert due(held).robustness == ()
    text = page.render(held)
    assert "depends on the learning rate" not in text
    for row in early:
        assert f"{abs(row.mean or 0):.3f}" not in text
    # Cells at other rates are arms of their own names: their losses wait too.
    told = {cell.arm for cell in due(held).cells if cell.test_nats_per_token is not None}
    assert told == {"standard"}


def test_a_cell_that_diverged_at_a_rate_is_counted_and_no_mean_is_taken_of_the_others(fill: Callable) -> None:
    filled = fill(loss_of, RATES, arms=ARMS, seeds=5)
    read, (_, verdicts) = filled.read(), filled.content()
    lost = ("tiny", "xsa", 1, DOUBLE)
    cells = {key: replace(cell, state="diverged") if key == lost else cell for key, cell in read.cells.items()}
    rows = list(robustness(replace(read, cells=cells), verdicts))
    assert [(row.factor, row.pairs, row.diverged, row.mean is None) for row in rows] == [
        (1.0, 5, 0, False),
        (0.5, 4, 0, False),
        (2.0, 3, 1, True),
    ]
    assert rate_sentence(rows) == "", "the rate at which the sign turned has no mean"


def test_losses_on_different_documents_make_no_pair_at_a_rate_either(
    fill: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled = fill(loss_of, RATES, arms=ARMS, seeds=5)
    read, (_, verdicts) = filled.read(), filled.content()
    other = read.cells["tiny", "xsa", 2, HALF]
    monkeypatch.setitem(other.__dict__, "_documents_digests", {"test": "another"})
    assert [row.pairs for row in robustness(read, verdicts)] == [5, 3, 4]


def test_a_text_that_declares_no_other_rate_has_no_row(fill: Callable) -> None:
    content, _ = fill(loss_of, arms=ARMS, seeds=3).content()
    assert {variant_rate(cell) for *_, cell in fill(loss_of, arms=ARMS, seeds=3).read().cells} == {None}
    assert content.robustness == ()
    assert TITLE in page.render(content), "among what the study lacks"
