"""A study of a synthetic task: the corpus line is all that changes, and the learning curve is evidence."""

import io
import json
import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from paribus.draining import train_missing
from paribus.experiment import loading
from paribus.experiment.spec import STUDY, rate_variant
from paribus.publishing import Asked, publish
from paribus.reading.evidence import verdicts_of
from paribus.reading.study import ReadStudy, read_study
from paribus.report import page
from paribus.report.of_tasks import CAUTION
from paribus.reporting.assemble import report_content
from paribus.stats.rounding import MINUS
from paribus.stats.rule import Word
from paribus.study import open_study, write_plan

TASK = 'corpus = { task = "twin", ids = 4, colours = 4 }'


def task_text(text: Callable[..., str], **changes: str) -> str:
    """The tiny study with the corpus line replaced, about a slice of the learning curve."""
    whole = text(arms=("standard", "xsa"), seeds=3)
    corpus = next(line for line in whole.splitlines() if line.startswith("corpus"))
    metric = changes.get("metric", "train.area.same-different")
    return whole.replace(corpus, TASK).replace("smallest_effect", f'metric = "{metric}"\nsmallest_effect', 1)


@pytest.fixture
def write(tmp_path: Path, text: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    monkeypatch.chdir(tmp_path)

    def of(*behind: str, **changes: str) -> Path:
        path = tmp_path / "study.toml"
        path.write_text(task_text(text, **changes) + "\n".join(behind), encoding="utf-8")
        return path

    return of


def trained_study(file: Path, runs: Path = Path("runs"), stop: Callable[[], bool] = lambda: False) -> ReadStudy:
    experiment = loading.load(file)
    study = open_study(experiment, file.parent, runs)
    write_plan(study, [])
    train_missing(study, lambda _: None, stop)
    return read_study(experiment, runs)


@pytest.fixture(scope="module")
def finished_task(tmp_path_factory: pytest.TempPathFactory, text: Callable[..., str]) -> ReadStudy:
    """The study, trained once for the tests that only read it."""
    folder = tmp_path_factory.mktemp("task")
    (folder / "study.toml").write_text(task_text(text), encoding="utf-8")
    return trained_study(folder / "study.toml", folder / "runs")


@pytest.fixture
def copied(finished_task: ReadStudy, write: Callable[..., Path]) -> Path:
    """Its file in the working folder, with a copy of its runs."""
    shutil.copytree(finished_task.folder.path.parent, "runs")
    return write()


def test_the_learning_curve_of_every_cell_is_kept_by_slice_and_adds_up_to_its_loss(finished_task: ReadStudy) -> None:
    for cell in finished_task.cells.values():
        assert cell.state == "complete"
        for line in cell.metrics:
            found = line["slices"].values()
            targets = sum(part["targets"] for part in found)
            mean = sum(part["targets"] * part["loss_nats"] for part in found) / targets
            # The loss is a float32 mean of some hundred float32 numbers below 10, the slices are summed in float64.
            assert line["loss_nats_per_token"] == pytest.approx(mean, rel=1e-5)
            assert all(part["floor_nats"] == 0 for part in found)


def test_arms_of_a_seed_share_their_batches_and_their_held_out_rows_and_seeds_do_not(finished_task: ReadStudy) -> None:
    digests = {key: cell.summary["batch_digest"] for key, cell in finished_task.cells.items()}
    rows = {key: cell.documents_digest("test") for key, cell in finished_task.cells.items()}
    for found in (digests, rows):
        by_seed = {seed: {value for key, value in found.items() if key[2] == seed} for seed in range(3)}
        assert [len(values) for values in by_seed.values()] == [1, 1, 1]
        assert len(set.union(*by_seed.values())) == 3


def test_the_area_is_the_mean_of_every_updates_excess_loss(finished_task: ReadStudy) -> None:
    for cell in finished_task.cells.values():
        assert cell.folder is not None
        lines = [json.loads(line) for line in (cell.folder.path / "metrics.jsonl").read_text().splitlines()]
        areas = {
            name: np.mean([line["slices"][name]["loss_nats"] for line in lines if name in line["slices"]])
            for name in ("same", "different")
        }
        assert cell.final("train.area.same") == pytest.approx(areas["same"], rel=1e-12)
        assert cell.final("train.area.same-different") == pytest.approx(areas["same"] - areas["different"], rel=1e-9)
        assert cell.final("train.log2_updates.same") == pytest.approx(math.log2(len(lines)))  # too short to learn it
        assert cell.final("train.area.nothing") is None


def test_the_loss_on_a_slice_of_the_held_out_rows_is_that_of_its_units(finished_task: ReadStudy) -> None:
    for cell in finished_task.cells.values():
        rows = cell.document_rows("test", ("document", "source", "tokens", "nats", "floor_nats"))
        assert rows is not None
        found = rows.to_pylist()
        for name in ("same", "different"):
            own = [row for row in found if row["source"] == name]
            expected = sum(row["nats"] for row in own) / sum(row["tokens"] for row in own)
            assert cell.final(f"test.nll.{name}") == pytest.approx(expected, rel=1e-12)
        assert cell.final("test.bits_per_byte") is None
        assert {m.bits_per_byte for m in cell.measurements} == {None}


def test_a_cell_interrupted_again_and_again_ends_with_the_bits_of_one_that_was_not(
    write: Callable[..., Path], trained: Callable[[Path], dict[str, object]], tmp_path: Path
) -> None:
    file = write()
    file.write_text(file.read_text().replace("count = 3", "count = 1"), encoding="utf-8")
    whole = trained_study(file)
    paths = {key: cell.folder.path for key, cell in whole.cells.items() if cell.folder is not None}
    expected = {key: trained(path) for key, path in paths.items()}
    (tmp_path / "runs").rename(tmp_path / "before")
    polled = [0]

    def stop_now_and_then() -> bool:
        polled[0] += 1
        return polled[0] % 9 == 0

    while any(cell.state != "complete" for cell in trained_study(file, stop=stop_now_and_then).cells.values()):
        pass
    assert {key: trained(path) for key, path in paths.items()} == expected


@pytest.mark.usefixtures("copied")
def test_other_learning_rates_are_cells_of_their_own_and_change_no_other(
    finished_task: ReadStudy, write: Callable[..., Path]
) -> None:
    before = {key: cell.digest for key, cell in finished_task.cells.items()}
    study = trained_study(write("[robustness]", "rate_factors = [0.5, 2]"))
    half, double = rate_variant(0.5), rate_variant(2.0)
    assert {key[3] for key in study.cells} == {STUDY, half, double}
    assert {key: cell.digest for key, cell in study.cells.items() if key[3] == STUDY} == before
    assert {cell.state for cell in study.cells.values()} == {"complete"}
    resolved = {
        key[3]: cell.record["resolved"]["optimiser"] for key, cell in study.cells.items() if key[1:3] == ("xsa", 0)
    }
    rates = [name for name in resolved[STUDY] if name.endswith("_learning_rate")]
    assert rates
    for name, value in resolved[STUDY].items():
        scaled = [value * factor if name in rates else value for factor in (0.5, 2)]
        assert [resolved[half][name], resolved[double][name]] == scaled
    losses = {key[3]: cell.final("train.area") for key, cell in study.cells.items() if key[1:3] == ("xsa", 0)}
    assert len(set(losses.values())) == 3
    content = report_content(study, verdicts_of(study), "paribus run study.toml")
    assert content.task is not None
    rows = [row for row in content.task.rates if row.contrast == content.verdicts[0].name]
    assert [(row.factor, row.pairs, row.diverged) for row in rows] == [(1.0, 3, 0), (0.5, 3, 0), (2.0, 3, 0)]
    for row, variant in zip(rows, (STUDY, half, double), strict=True):
        treatment, baseline = (
            np.mean([study.cells["tiny", arm, seed, variant].final(row.metric) or 0.0 for seed in range(3)])
            for arm in ("xsa", "standard")
        )
        assert row.mean == pytest.approx(float(treatment - baseline), abs=1e-12)
    text = page.render(content)
    assert "The same contrasts at other learning rates" in text
    # A cell that diverged at a rate is counted, and no mean is taken of the others.
    lost = {
        key: replace(cell, state="diverged") if key == ("tiny", "xsa", 1, double) else cell
        for key, cell in study.cells.items()
    }
    found = report_content(replace(study, cells=lost), verdicts_of(study), "").task
    assert found is not None
    assert [(row.pairs, row.diverged, row.mean is None) for row in found.rates][:3] == [
        (3, 0, False),
        (3, 0, False),
        (2, 1, True),
    ]


def test_an_edited_learning_curve_is_no_evidence(copied: Path) -> None:
    study = read_study(loading.load(copied), Path("runs"))
    assert {cell.state for cell in study.cells.values()} == {"complete"}
    cell = study.cells["tiny", "xsa", 1, STUDY]
    assert cell.folder is not None
    path = cell.folder.path / "metrics.jsonl"
    path.write_text(path.read_text().replace('"loss_nats": ', '"loss_nats": 0'), encoding="utf-8")
    again = read_study(loading.load(copied), Path("runs"))
    assert again.cells["tiny", "xsa", 1, STUDY].state == "altered"


def test_a_changed_knob_is_another_corpus_and_makes_the_cells_stale(copied: Path) -> None:
    assert {cell.state for cell in read_study(loading.load(copied), Path("runs")).cells.values()} == {"complete"}
    copied.write_text(copied.read_text().replace("colours = 4", "colours = 2"), encoding="utf-8")
    assert {cell.state for cell in read_study(loading.load(copied), Path("runs")).cells.values()} == {"stale"}


def test_arms_that_never_leave_chance_are_not_informative_and_no_tie(finished_task: ReadStudy) -> None:
    for verdict in verdicts_of(finished_task):
        assert verdict.word is Word.NOT_INFORMATIVE
        assert verdict.p_sign_flip is None
        assert "chance" in " ".join(verdict.notes)
    corpus = finished_task.plan["corpus"]
    slices = {name: {**of, "chance": 9.0, "shortcuts": {}} for name, of in corpus["task"]["slices"].items()}
    elsewhere = {**finished_task.plan, "corpus": {**corpus, "task": {**corpus["task"], "slices": slices}}}
    for verdict in verdicts_of(replace(finished_task, plan=elsewhere)):
        assert verdict.word is not Word.NOT_INFORMATIVE


def test_the_report_of_a_task_shows_curves_differences_and_the_caution(finished_task: ReadStudy) -> None:
    content = report_content(finished_task, verdicts_of(finished_task), "paribus run study.toml")
    assert content.task is not None
    assert {curve.slice for curve in content.task.curves} == {"same", "different"}
    assert content.task.differences[0].slice == "same-different"
    assert all(len(row.milestones) == 3 for row in content.task.differences)
    assert CAUTION in content.caveats
    assert any("not calibrated" in caveat for caveat in content.caveats)
    assert not any("documents" in caveat for caveat in content.caveats)
    assert {row.layer for row in content.retrieval} <= {0, 1}
    text = page.render(content)
    assert "What the task shows" in text
    assert "not informative" in text
    assert "new rows, random seeds" in text
    assert "these documents" not in text
    assert "What the study reads" in text
    primary = f"same {MINUS} different"
    assert f"the claim is about {primary}." in text
    assert f"Bold: {primary}, which the primary is about." in text


def test_the_unit_of_a_tasks_loss_is_nats_per_target(finished_task: ReadStudy) -> None:
    contrasts = finished_task.experiment.contrasts
    for metric, unit in (("test.nll", "nats per target"), ("train.log2_updates", "log2 updates")):
        one = {name: of.model_copy(update={"metric": metric}) for name, of in contrasts.items()}
        experiment = finished_task.experiment.model_copy(update={"contrasts": one})
        verdicts = verdicts_of(replace(finished_task, experiment=experiment))
        assert {verdict.unit for verdict in verdicts} == {unit}


def test_updates_to_a_threshold_that_no_cell_reached_are_no_measurement(finished_task: ReadStudy) -> None:
    contrasts = {
        name: of.model_copy(update={"metric": "train.log2_updates.same"})
        for name, of in finished_task.experiment.contrasts.items()
    }
    study = replace(finished_task, experiment=finished_task.experiment.model_copy(update={"contrasts": contrasts}))
    verdicts = verdicts_of(study)
    updates = len(next(iter(study.cells.values())).metrics)
    for verdict in verdicts:
        assert f"not informative: no cell acquired it within {updates} updates" in verdict.notes
    content = report_content(study, verdicts, "paribus run study.toml")
    assert content.task is not None
    row = next(row for row in content.task.differences if row.slice == "same")
    assert (row.log2_updates_difference, row.log2_updates_interval, row.censored) == (None, None, (3, 3))
    assert content.task.definition.text.primary == "same"


def test_the_primary_of_a_contrast_without_slices_is_all_targets(finished_task: ReadStudy) -> None:
    contrasts = {
        name: of.model_copy(update={"metric": "train.area"}) for name, of in finished_task.experiment.contrasts.items()
    }
    study = replace(finished_task, experiment=finished_task.experiment.model_copy(update={"contrasts": contrasts}))
    content = report_content(study, verdicts_of(study), "paribus run study.toml")
    assert content.task is not None
    assert content.task.definition.text.primary == "all"
    assert content.task.differences[0].slice == "all"


def test_a_declared_sign_is_told_in_the_terminal_too(finished_task: ReadStudy, tmp_path: Path) -> None:
    shutil.copytree(finished_task.folder.path.parent, tmp_path / "runs")
    declared = {
        name: of.model_copy(update={"expected": "+"}) for name, of in finished_task.experiment.contrasts.items()
    }
    experiment = finished_task.experiment.model_copy(update={"contrasts": declared})
    printed = io.StringIO()
    publish(
        Asked(tmp_path / "study.toml", experiment, tmp_path / "runs", "study.toml"), "report", Console(file=printed)
    )
    name = next(iter(declared))
    assert f"{name}: expected +, the task could not tell (not informative)\n" in printed.getvalue()


def with_contrasts(study: ReadStudy, **contrasts: dict[str, Any]) -> ReadStudy:
    """The study with these contrasts, each the first one of its file with changes."""
    (_, first), *_ = study.experiment.contrasts.items()
    found = {name: first.model_copy(update={"primary": False, **of}) for name, of in contrasts.items()}
    found[next(iter(found))] = next(iter(found.values())).model_copy(update={"primary": True})
    return replace(study, experiment=study.experiment.model_copy(update={"contrasts": found}))


def test_every_contrast_keeps_its_declared_sign_whichever_of_the_same_arms_came_first(finished_task: ReadStudy) -> None:
    study = with_contrasts(
        finished_task,
        interaction={"expected": "+"},
        acted={"metric": "train.area.same", "expected": "-"},
        again={"metric": "test.nll.same", "expected": "0"},
    )
    content = report_content(study, verdicts_of(study), "paribus run study.toml")
    assert content.task is not None
    signs = {(row.contrast, row.slice): row.expected for row in content.task.differences}
    assert signs == {
        ("interaction", "same-different"): "+",
        ("acted", "same"): "-",
        ("again", "same"): "0",
        ("interaction", "different"): "",
    }
    marked = {row.contrast: row for row in content.task.differences if row.agreement}
    assert marked.keys() == {"interaction", "acted", "again"}
    assert [marked[name].metric for name in marked] == ["", "", "test.nll.same"]
    assert "on test.nll.same: " in page.render(content)


def test_an_interaction_of_four_arms_is_checked_and_shown(finished_task: ReadStudy) -> None:
    # (xsa - standard) - (standard - xsa), of two arms that enter twice, is refused in a file; its numbers are plain.
    (_, first), *_ = finished_task.experiment.contrasts.items()
    four = {"minus_treatment": first.baseline, "minus_baseline": first.treatment}
    study = with_contrasts(finished_task, doubled={**four, "metric": "train.area.same"})
    (verdict,) = verdicts_of(study)
    assert verdict.word is Word.NOT_INFORMATIVE, "all arms stay at chance"
    content = report_content(study, (verdict,), "paribus run study.toml")
    assert content.task is not None
    row = content.task.differences[0]
    assert row.compared == f"(xsa {MINUS} standard) {MINUS} (standard {MINUS} xsa)"
    plain = report_content(
        simple := with_contrasts(finished_task, plain={"metric": "train.area.same"}), verdicts_of(simple), ""
    ).task
    assert plain is not None
    assert row.differences == pytest.approx([2 * value for value in plain.differences[0].differences if value])
    for one, other in zip(row.milestones, plain.differences[0].milestones, strict=True):
        assert one.mean == pytest.approx(2 * (other.mean or 0.0))
    assert (row.log2_updates_difference, row.censored, row.ratio_sentence) == (None, (0, 0), "")
    assert row.compared in page.render(content)
