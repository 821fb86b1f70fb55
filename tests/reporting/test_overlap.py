"""Contrasts on test documents without overlap: from rows to the record, against sums taken directly from the files."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy

from paribus.experiment.spec import STUDY, Key
from paribus.report.content import ReportContent
from paribus.report.of_overlap import OverlapRow
from paribus.report.overlap import TITLE
from paribus.report.sections import assemble
from paribus.reporting.overlap import NOTHING_FREE, UNEQUAL, UNMARKED, overlap, overlap_caveats
from paribus.runs.folder import CellFolder
from paribus.stats.rule import Word
from tests.reporting.conftest import DOCUMENTS

ARMS = ("standard", "xsa")
GAINS = (-0.05, -0.06, -0.04, -0.054, -0.046)
MARKS: list[bool | None] = [(True, True, False, None, True)[number % 5] for number in range(DOCUMENTS)]
BYTES = '[contrasts.bytes]\ntreatment = "xsa"\nbaseline = "standard"\nmetric = "test.bits_per_byte"\n'
BYTES += "smallest_effect = 0.01\ndesign_effect = 0.03\n[seeds]"


def loss_of(key: Key) -> float:
    _, arm, seed, _ = key
    return 3.0 + 0.02 * seed + (GAINS[seed % 5] if arm == "xsa" else 0.0)


@pytest.fixture
def marking(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Every cell that is written from now on has the test marks that the function gives its folder.

    `added`: nats that the treatment's test documents have beside, from their tokens.
    """
    written = CellFolder.write_rows

    def start(marks_of: Callable[[Path], Any], added: Callable[[np.ndarray], np.ndarray] = np.zeros_like) -> None:
        def write(self: CellFolder, name: str, columns: Mapping[str, Any]) -> None:
            told = dict(columns)
            if name.startswith("likelihood/test-"):
                marks = marks_of(self.path)
                told |= {} if marks is None else {"overlap_free": marks}
                if self.path.parent.name == "xsa":
                    told["nats"] = told["nats"] + added(told["tokens"])
            written(self, name, told)

        monkeypatch.setattr(CellFolder, "write_rows", write)

    return start


@pytest.fixture
def marked(marking: Callable) -> None:
    marking(lambda _: pa.array(MARKS, pa.bool_()))


def free_loss(folder: Path, arm: str, seed: int, size: str = "tokens", unit: float = 1.0) -> float:
    """Summed nats over summed sizes of the free documents, read from the file without paribus."""
    (file,) = (folder / "runs" / "tiny" / "tiny" / arm).glob(f"{seed}-*/likelihood/test-*.parquet")
    rows = pq.read_table(file).to_pylist()
    assert [row["overlap_free"] for row in rows] == MARKS
    free = [row for row in rows if row["overlap_free"] is True]
    return sum(row["nats"] for row in free) / (unit * sum(row[size] for row in free))


def counts(row: OverlapRow, what: str) -> tuple[int, int, int]:
    return tuple(getattr(row, f"{kind}_{what}") for kind in ("free", "shared", "unchecked"))


@pytest.mark.usefixtures("marked")
def test_the_difference_is_that_of_the_free_documents_rows_by_seed(fill: Callable) -> None:
    filled = fill(loss_of, {"[seeds]": BYTES}, arms=ARMS, seeds=5)
    content, verdicts = filled.content()
    nats, bits = content.overlap
    for row, size, unit in ((nats, "tokens", 1.0), (bits, "bytes", math.log(2))):
        losses = [[free_loss(filled.folder, arm, seed, size, unit) for seed in range(5)] for arm in ARMS]
        differences = np.subtract(losses[1], losses[0])
        test = scipy.stats.ttest_rel(losses[1], losses[0])
        verdict = next(verdict for verdict in verdicts if verdict.name == row.contrast)
        expected = test.confidence_interval(verdict.interval_confidence or 0.95)
        # Sums of 36 float64 near 400: relative rounding below 1e-14 of values near 3, differences near 0.05.
        assert row.mean == pytest.approx(differences.mean(), abs=1e-12)
        assert row.interval == pytest.approx((expected.low, expected.high), abs=1e-11)
        assert row.standard_error == pytest.approx(scipy.stats.sem(differences), rel=1e-9)
        assert (row.degrees_of_freedom, row.pairs, row.note) == (4, 5, "")
        assert row.mean_of_all == verdict.mean
        assert row.mean != pytest.approx(verdict.mean, abs=1e-4), "the other documents do count in the verdict"
    assert (nats.unit, bits.unit) == ("nats per token", "bits per byte")


@pytest.mark.usefixtures("marked")
def test_free_shared_and_unchecked_documents_and_tokens_are_counted(fill: Callable) -> None:
    filled = fill(loss_of, arms=ARMS, seeds=3)
    (row,) = filled.content()[0].overlap
    assert counts(row, "documents") == (36, 12, 12)
    (file,) = (filled.folder / "runs" / "tiny" / "tiny" / "xsa").glob("0-*/likelihood/test-*.parquet")
    rows = pq.read_table(file).to_pylist()
    expected = [sum(r["tokens"] for r in rows if r["overlap_free"] is mark) for mark in (True, False, None)]
    assert counts(row, "tokens") == tuple(expected)
    assert row.tokens == sum(r["tokens"] for r in rows)


@pytest.mark.usefixtures("marked")
def test_an_interaction_subtracts_two_such_differences(fill: Callable) -> None:
    simple = 'treatment = "block"\nbaseline = "standard"'
    changes = {simple: 'treatment = "rd"\nbaseline = "block"\nminus_treatment = "xsa"\nminus_baseline = "standard"'}

    def loss(key: Key) -> float:
        return 3.0 + {"standard": 0.0, "xsa": 0.01, "block": 0.1, "rd": 0.13}[key[1]]

    filled = fill(loss, changes, seeds=3)
    row = next(row for row in filled.content()[0].overlap if row.contrast == "block")
    by_seed = [
        sum(
            sign * free_loss(filled.folder, arm, seed)
            for sign, arm in ((1, "rd"), (-1, "block"), (-1, "xsa"), (1, "standard"))
        )
        for seed in range(3)
    ]
    assert row.mean == pytest.approx(np.mean(by_seed), abs=1e-12)


def test_rows_of_an_earlier_version_read_and_one_line_says_that_nothing_is_marked(fill: Callable) -> None:
    content, verdicts = fill(loss_of, arms=ARMS, seeds=3).content()
    assert verdicts[0].mean is not None
    assert content.overlap == ()
    assert "earlier versions carry no marks" in absent_sentence(content)


def absent_sentence(content: ReportContent) -> str:
    return next(absent.sentence for absent in assemble(content, []).absent if absent.title == TITLE)


@pytest.mark.usefixtures("marked")
def test_before_the_planned_seeds_there_is_neither_a_row_nor_a_caveat(fill: Callable) -> None:
    missing = ("tiny", "xsa", 4, STUDY)
    content, verdicts = fill(loss_of, skip=(missing,), arms=ARMS, seeds=5).content()
    assert verdicts[0].word is Word.WAITING
    assert content.overlap == ()
    assert not any("13-gram" in caveat for caveat in content.caveats)


@pytest.mark.usefixtures("marked")
def test_a_contrast_on_the_validation_split_has_no_row(fill: Callable) -> None:
    second = 'metric = "validation.nll"\n'
    content, _ = fill(
        loss_of, {"[seeds]": BYTES.replace('metric = "test.bits_per_byte"\n', second)}, arms=ARMS
    ).content()
    assert [row.contrast for row in content.overlap] == ["xsa"]


@pytest.mark.parametrize(
    ("marks", "note"),
    [
        (lambda path: None if path.parent.name == "xsa" else MARKS, f"{UNMARKED}: 3 of 6"),
        (lambda path: ["yes"] * DOCUMENTS if path.parent.name == "xsa" else MARKS, f"{UNMARKED}: 3 of 6"),
        (lambda path: MARKS[::-1] if path.name.startswith("1-") else MARKS, UNEQUAL),
        (lambda _: [False] * DOCUMENTS, NOTHING_FREE),
    ],
)
def test_what_cannot_be_paired_is_said_and_has_no_number(
    fill: Callable, marking: Callable, marks: Callable, note: str
) -> None:
    marking(marks)
    (row,) = fill(loss_of, arms=ARMS, seeds=3).content()[0].overlap
    assert (row.note, row.mean, row.interval, row.pairs) == (note, None, None, 0)
    assert row.documents == DOCUMENTS


def test_documents_of_which_none_was_checked_are_counted_as_such(fill: Callable, marking: Callable) -> None:
    marking(lambda _: pa.nulls(DOCUMENTS, pa.bool_()))
    content, _ = fill(loss_of, arms=ARMS, seeds=3).content()
    assert counts(content.overlap[0], "documents") == (0, 0, DOCUMENTS)
    assert content.overlap[0].note == NOTHING_FREE
    assert any(caveat.startswith("Only 0 of ") for caveat in content.caveats)


@pytest.mark.usefixtures("marked")
def test_a_diverged_cell_leaves_counts_and_no_estimate(fill: Callable) -> None:
    filled = fill(loss_of, arms=ARMS, seeds=5)
    read, (_, verdicts) = filled.read(), filled.content()
    told = tuple(replace(verdict, word=Word.DIVERGENCE, mean=None) for verdict in verdicts)
    (row,) = overlap(read, told)
    assert (row.mean, row.interval) == (None, None)
    assert row.note.startswith("a cell diverged")
    assert row.free_documents == 36


def test_a_caveat_names_another_sign_and_too_little_that_is_free(fill: Callable, marking: Callable) -> None:
    marking(lambda _: MARKS)
    (row,) = fill(loss_of, arms=ARMS, seeds=3).content()[0].overlap
    assert overlap_caveats([row]) == [], "the signs agree and most of the text is free"
    assert row.mean is not None
    turned = replace(row, mean=0.02)
    (said,) = overlap_caveats([turned])
    assert "the difference has the other sign (+0.02 against -0.05" in said
    half = replace(row, free_tokens=100, shared_tokens=60, unchecked_tokens=40)
    assert overlap_caveats([half]) == []
    few = replace(half, free_tokens=99, shared_tokens=61)
    (said,) = overlap_caveats([few, replace(few, contrast="another")])
    assert said.startswith("Only 99 of 200 scored test tokens")
    assert "61 in documents that do, 40 in documents that were not checked" in said


def test_a_sign_that_turns_is_among_the_caveats_of_the_study(fill: Callable, marking: Callable) -> None:
    """The treatment wins on the whole by documents that stand in training text, and loses on the others."""

    marks = [number % 2 == 0 for number in range(DOCUMENTS)]
    marking(lambda _: marks, lambda tokens: tokens * np.where(marks, 0.3, -0.4))
    content, verdicts = fill(loss_of, arms=ARMS, seeds=3).content()
    (row,) = content.overlap
    assert row.mean is not None
    assert verdicts[0].mean is not None
    assert row.mean > 0 > verdicts[0].mean
    assert overlap_caveats(content.overlap)[0] in content.caveats
