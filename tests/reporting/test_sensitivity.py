"""How far the effect moves with the schedule and with a swept field: from rows to the section, and through the door."""

import math
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy

from paribus.experiment.control import SCHEDULE_ARM
from paribus.experiment.spec import STUDY, Key
from paribus.reading.cell import ReadCell
from paribus.reading.study import ReadStudy
from paribus.report import page
from paribus.report.content import ReportContent
from paribus.report.door import due
from paribus.report.sensitivity import TITLE, schedule_sentences
from paribus.reporting.sensitivity import sensitivity
from paribus.reporting.task_study import _acquisitions as acquisitions
from paribus.stats.rounding import MINUS
from paribus.stats.rule import Verdict, Word

ARMS = ("standard", "xsa")
GAINS = (-0.05, -0.06, -0.04, -0.054, -0.046)
HALF, QUARTER = "xsa.strength-0.5", "xsa.strength-0.25"
SHARE = {"xsa": 1.0, HALF: 0.7, QUARTER: 0.2, SCHEDULE_ARM: 0.4}
"""of the gain at a seed"""
OWN = 'output_map = { name = "xsa", strength = 1.0 }'
ASKED = {
    'output_map = { name = "xsa" }': OWN + '\nsweep = { "output_map.strength" = [0.5, 1.0, 0.25] }',
    "[noise]\n": "[robustness]\nschedule = true\nseeds = 4\n[noise]\n",
}


Asked = tuple[ReadStudy, tuple[Verdict, ...], ReportContent]
_SHARED: dict[str, Asked] = {}


@pytest.fixture
def asked(fill: Callable) -> Asked:
    """The finished study with its verdicts and content, written once for this file. Nobody may change it."""
    if not _SHARED:
        filled = fill(loss_of, ASKED, arms=ARMS, seeds=5)
        content, verdicts = filled.content()
        _SHARED["study"] = (filled.read(), verdicts, content)
    return _SHARED["study"]


def loss_of(key: Key) -> float:
    _, arm, seed, _ = key
    return 3.0 + 0.02 * seed + SHARE.get(arm, 0.0) * GAINS[seed % 5]


def t_interval(values: np.ndarray) -> tuple[float, float]:
    error = float(np.std(values, ddof=1)) / math.sqrt(len(values))
    half = float(scipy.stats.t.ppf(0.975, len(values) - 1)) * error
    return float(np.mean(values)) - half, float(np.mean(values)) + half


def test_the_effect_stands_beside_the_longer_decay_and_every_value_from_the_seeds_that_have_one(asked: Asked) -> None:
    _, verdicts, content = asked
    rows = content.sensitivity
    assert [(row.kind, row.compared, row.knob, row.value, row.own) for row in rows] == [
        ("effect", f"xsa {MINUS} standard", "", None, None),
        ("schedule", f"{SCHEDULE_ARM} {MINUS} standard", "schedule.decay", 0.6, 0.4),
        ("value", f"xsa {MINUS} standard", "output_map.strength", 1.0, 1.0),
        ("value", f"{HALF} {MINUS} standard", "output_map.strength", 0.5, 1.0),
        ("value", f"{QUARTER} {MINUS} standard", "output_map.strength", 0.25, 1.0),
    ]
    assert [row.is_own for row in rows] == [False, False, True, False, False]
    assert {(row.contrast, row.scale, row.metric, row.unit) for row in rows} == {
        ("xsa", "tiny", "test.nll", "nats per token")
    }
    for row, (share, seeds) in zip(rows, ((1.0, 5), (0.4, 4), (1.0, 5), (0.7, 4), (0.2, 4)), strict=True):
        values = share * np.array(GAINS[:seeds])
        assert (row.pairs, row.planned, row.diverged) == (seeds, seeds, 0)
        assert row.mean == pytest.approx(values.mean(), abs=1e-12)
        assert row.interval == pytest.approx(t_interval(values), abs=1e-9)
    assert rows[0].mean == pytest.approx(verdicts[0].mean, abs=1e-12)
    assert [verdict.name for verdict in verdicts] == ["xsa"], "a derived arm gets no verdict and no word"
    text = page.render(content)
    assert TITLE in text
    (said,) = schedule_sentences(rows)
    assert said.startswith(f"schedule.decay 0.6 in place of 0.4 moves standard by {MINUS}0.0204 [")
    assert f"; the difference of xsa {MINUS} standard is {MINUS}0.0500 [" in said
    assert said in text


def test_a_swept_baseline_is_compared_with_itself_beside_the_primary(fill: Callable) -> None:
    rate = 'sweep = { "optimiser.matrix_learning_rate" = [0.01, 0.04] }'
    low, high = (f"standard.matrix_learning_rate-{value}" for value in ("0.01", "0.04"))
    asked = {"[arms.standard]\n": f"[arms.standard]\n{rate}\n"}

    def loss(key: Key) -> float:
        return loss_of(key) + {low: 0.3, high: -0.1}.get(key[1], 0.0) * (1 + 0.1 * key[2])

    content, _ = fill(loss, asked, arms=ARMS, seeds=3).content()
    effect, *values = content.sensitivity
    assert (effect.kind, effect.compared) == ("effect", f"xsa {MINUS} standard")
    assert [(row.compared, row.value, row.own) for row in values] == [
        (f"{low} {MINUS} standard", 0.01, 0.02),
        (f"{high} {MINUS} standard", 0.04, 0.02),
    ], "its own value is its own difference of 0, which nobody measures"
    assert [row.mean for row in values] == pytest.approx([0.33, -0.11], abs=1e-9)


def test_before_the_planned_seeds_no_value_tells_anything_though_all_its_cells_are_there(
    fill: Callable, asked: Asked
) -> None:
    last = tuple(("tiny", arm, 4, STUDY) for arm in ARMS)
    filled = fill(loss_of, ASKED, skip=last, arms=ARMS, seeds=5)
    content, verdicts = filled.content()
    assert verdicts[0].word is Word.WAITING
    assert content.sensitivity == ()
    # Records that came in all the same are stopped at the door.
    late = asked[2]
    held = replace(content, sensitivity=late.sensitivity)
    assert due(held).sensitivity == ()
    text = page.render(held)
    assert "in place of 0.4" not in text
    for row in late.sensitivity:
        assert f"{abs(row.mean or 0):.4f}" not in text
    # A derived arm's losses beside the baseline's would be a difference that anyone can take.
    told = {cell.arm for cell in due(held).cells if cell.test_nats_per_token is not None}
    assert told == {"standard"}


def test_a_waiting_secondary_leaves_the_primary_and_hides_its_own_values(asked: Asked) -> None:
    content = asked[2]
    first = content.verdicts[0]
    second = replace(first, name="second", primary=False, word=Word.WAITING, scale="other")
    rows = (*content.sensitivity, replace(content.sensitivity[-1], contrast="second", scale="other"))
    told = due(replace(content, verdicts=(first, second), sensitivity=rows)).sensitivity
    assert told == content.sensitivity
    swapped = (replace(first, word=Word.WAITING), replace(second, word=first.word))
    assert due(replace(content, verdicts=swapped, sensitivity=rows)).sensitivity == (), "the primary comes first"


def test_beside_a_stop_for_futility_there_is_no_interval(asked: Asked) -> None:
    content = asked[2]
    futile = (replace(content.verdicts[0], word=Word.FUTILE),)
    rows = due(replace(content, verdicts=futile)).sensitivity
    assert {row.interval for row in rows} == {None}


def test_a_cell_that_diverged_is_counted_and_no_mean_is_taken_of_the_others(asked: Asked) -> None:
    read, verdicts, content = asked
    lost = ("tiny", HALF, 1, STUDY)
    cells = {key: replace(cell, state="diverged") if key == lost else cell for key, cell in read.cells.items()}
    rows = list(sensitivity(replace(read, cells=cells), verdicts))
    assert [(row.pairs, row.diverged, row.mean is None) for row in rows] == [
        (5, 0, False),
        (4, 0, False),
        (5, 0, False),
        (3, 1, True),
        (4, 0, False),
    ]
    assert "diverged" in page.render(replace(content, sensitivity=tuple(rows)))


def test_a_cell_that_is_not_there_yet_is_a_pair_less(asked: Asked) -> None:
    read, verdicts, content = asked
    key = ("tiny", QUARTER, 0, STUDY)
    cells = {**read.cells, key: ReadCell(key, "missing", "", None)}
    rows = tuple(sensitivity(replace(read, cells=cells), verdicts))
    assert [(row.pairs, row.planned) for row in rows][-1] == (3, 4)
    assert "3 of 4" in page.render(replace(content, sensitivity=rows))


def test_losses_on_different_documents_make_no_pair(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    read, verdicts, _ = asked
    other = read.cells["tiny", HALF, 2, STUDY]
    monkeypatch.setitem(other.__dict__, "_documents_digests", {"test": "another"})
    assert [row.pairs for row in sensitivity(read, verdicts)] == [5, 4, 5, 3, 4]


def test_a_study_that_asks_for_none_has_no_row_and_says_how(fill: Callable) -> None:
    content, _ = fill(loss_of, arms=ARMS, seeds=3).content()
    assert content.sensitivity == ()
    assert "trains the baseline with a longer decay" in page.render(content)


def test_a_task_study_reads_a_derived_arm_that_has_no_cells_at_the_later_seeds() -> None:
    key = ("s", "idea.width-4", 0, STUDY)
    cell = SimpleNamespace(key=key, state="complete", metrics=[], thresholds={})
    study: Any = SimpleNamespace(cells={key: cell}, plan={"corpus": {}})
    cells: Any = [cell]
    (row,) = acquisitions(study, cells, ("QD",), {0, 1, 2})
    assert (row.arm, row.seeds, row.diverged) == ("idea.width-4", (0,), ())
