"""A real study of targets that nothing foretells, and of a table to store: read back, with and without a leak."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from paribus.experiment.spec import STUDY
from paribus.reading.cell import ReadCell
from paribus.reading.evidence import verdicts_of
from paribus.reading.study import ReadStudy
from paribus.report import page
from paribus.report.task_section import TITLE
from paribus.reporting.assemble import report_content
from paribus.stats.chance import BELOW
from tests.study.test_task_study import TASK, task_text, trained_study


def trained_on(factory: pytest.TempPathFactory, text: Callable[..., str], task: str) -> ReadStudy:
    folder = factory.mktemp("leak")
    written = task_text(text, metric="test.nll").replace(TASK, f"corpus = {task}")
    (folder / "study.toml").write_text(written, encoding="utf-8")
    return trained_study(folder / "study.toml", folder / "runs")


@pytest.fixture(scope="module")
def static(tmp_path_factory: pytest.TempPathFactory, text: Callable[..., str]) -> ReadStudy:
    return trained_on(tmp_path_factory, text, '{ task = "static", states = 4 }')


def reading_its_targets(monkeypatch: pytest.MonkeyPatch, arm: str) -> None:
    """One of fifty targets costs the arm nothing."""
    whole = ReadCell.document_rows

    def document_rows(self: ReadCell, split: str, columns: Sequence[str]) -> pa.Table | None:
        rows = whole(self, split, columns)
        if rows is None or self.key[1] != arm or "nats" not in columns:
            return rows
        nats = pa.array(rows["nats"].to_numpy() * 0.9)
        return rows.set_column(rows.column_names.index("nats"), "nats", nats)

    monkeypatch.setattr(ReadCell, "document_rows", document_rows)


def test_every_arm_is_held_against_chance_on_its_held_out_inputs(static: ReadStudy) -> None:
    content = report_content(static, verdicts_of(static), "")
    assert content.task is not None
    found = content.task.at_chance
    assert [(row.arm, row.slice, row.seeds) for row in found] == [
        ("standard", "every", (0, 1, 2)),
        ("xsa", "every", (0, 1, 2)),
    ]
    for row in found:
        errors = []
        for seed, loss, inputs in zip(row.seeds, row.losses_nats_per_target, row.inputs, strict=True):
            rows = static.cells["tiny", row.arm, seed, STUDY].document_rows("test", ("tokens", "nats"))
            assert rows is not None
            nats, targets = rows["nats"].to_numpy(), rows["tokens"].to_numpy()
            assert loss == pytest.approx(nats.sum() / targets.sum(), rel=1e-12)
            assert (inputs, set(targets)) == (len(nats), {32})
            errors.append(np.std(nats / 32, ddof=1) / np.sqrt(len(nats)))  # rows of one length: a plain mean
        assert row.found.chance == np.log(4)
        assert row.found.mean == pytest.approx(np.mean(row.losses_nats_per_target), rel=1e-12)
        assert row.found.standard_error == pytest.approx(np.sqrt(np.sum(np.square(errors))) / 3, rel=1e-9)
        assert row.found.where != BELOW
    assert not any("LEAK" in caveat for caveat in content.caveats)


def test_a_leak_is_said_at_the_top_of_the_section_and_among_the_caveats(
    static: ReadStudy, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading_its_targets(monkeypatch, "xsa")
    content = report_content(static, verdicts_of(static), "")
    leaks = [caveat for caveat in content.caveats if caveat.startswith("LEAK on every: ")]
    assert len(leaks) == 1
    assert "xsa (loss " in leaks[0]
    assert "standard (loss " not in leaks[0]
    html = page.render(content)
    assert html.count(leaks[0].partition(":")[0]) == 2
    assert html.index("LEAK", html.index(f">{TITLE}</h2>")) < html.index("Each row is written by")


def test_a_leak_hints_at_an_outcome_and_waits_for_the_planned_seeds(
    static: ReadStudy, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading_its_targets(monkeypatch, "xsa")
    lost = {k: replace(c, state="missing") if k[1:3] == ("xsa", 2) else c for k, c in static.cells.items()}
    waiting = replace(static, cells=lost)
    content = report_content(waiting, verdicts_of(waiting), "")
    assert "LEAK" not in " ".join(content.caveats) + page.render(content)


def test_what_an_arm_stored_is_told_in_bits_of_the_table(
    tmp_path_factory: pytest.TempPathFactory, text: Callable[..., str]
) -> None:
    ledger = '{ task = "ledger", subjects = 4, relations = 2, objects = 8 }'
    study = trained_on(tmp_path_factory, text, ledger)
    content = report_content(study, verdicts_of(study), "")
    assert content.task is not None
    assert content.task.at_chance == ()
    for row in content.task.learnt:
        losses = [study.cells["tiny", row.arm, seed, STUDY].final("test.nll") or 0.0 for seed in row.seeds]
        assert row.amounts == pytest.approx([8 * (3 - nats / np.log(2)) for nats in losses], rel=1e-12)
        assert (row.whole, row.unit) == (24.0, "bits of the table")
    assert [row.arm for row in content.task.learnt] == ["standard", "xsa"]
    html = page.render(content)
    assert "What each arm has learnt" in html
    assert "When each seed acquired what" in html
    told = html[html.index("Loss curves</h2>") : html.index(">Cost</h2>")] + html[html.index(">Seeds</h2>") :]
    assert "nats per target" in told
    assert "nats per token" not in told


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
