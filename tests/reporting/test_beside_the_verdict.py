"""Estimates, A/A, budgets, cost and published figures, from rows to the records that the page shows."""

import json
import math
from collections.abc import Callable

import numpy as np
import pytest

from paribus.experiment.spec import REPEAT, STUDY, TWIN, Key, variant_budget
from paribus.stats.paired import t_critical
from paribus.stats.rule import Word

ARMS = ("standard", "xsa")
GAINS = (-0.05, -0.06, -0.04, -0.055, -0.045)
BUDGETS = {"milestones_tokens = [5_000]": "budgets_tokens = [2_500, 5_000]"}


def loss_of(key: Key) -> float:
    """A floor law over budgets for the baseline, a constant gain of the treatment, and a shift of each seed."""
    _, arm, seed, variant = key
    budget = variant_budget(variant) or 10_000
    value = 3.0 + 40 * budget**-0.5 + 0.02 * seed
    value += {STUDY: 0.0, REPEAT: 0.0, TWIN: 0.003 * (-1) ** seed}.get(variant, 0.0)
    return value + (GAINS[seed % 5] if arm == "xsa" else 0.0)


def test_the_second_estimand_and_the_other_unit_come_from_the_rows(fill: Callable) -> None:
    content, verdicts = fill(loss_of, arms=ARMS, seeds=5).content()
    assert verdicts[0].mean == pytest.approx(np.mean(GAINS), abs=1e-12)
    found = {(row.estimand, row.unit): row for row in content.estimates}
    new = found["new documents", "nats per token"]
    assert new.mean == pytest.approx(np.mean(GAINS), abs=1e-12)
    assert new.standard_error is not None
    assert verdicts[0].standard_error is not None
    assert new.standard_error > 1.2 * verdicts[0].standard_error
    # Four bytes a token: nats per token over 4 ln 2 are bits per byte, document by document.
    these = found["these documents", "bits per byte"]
    assert these.mean == pytest.approx(np.mean(GAINS) / (4 * math.log(2)), rel=1e-9)
    error = np.std(GAINS, ddof=1) / math.sqrt(5) / (4 * math.log(2))
    assert these.interval is not None
    assert these.interval[1] - these.interval[0] == pytest.approx(2 * t_critical(4, 0.95) * error, rel=1e-6)


def test_an_interaction_has_the_second_estimand_too(fill: Callable) -> None:
    simple = 'treatment = "block"\nbaseline = "standard"'
    changes = {simple: 'treatment = "rd"\nbaseline = "block"\nminus_treatment = "xsa"\nminus_baseline = "standard"'}

    def loss(key: Key) -> float:
        gain = {"standard": 0.0, "xsa": 0.01, "block": 0.1, "rd": 0.13}[key[1]]
        return 3.0 + gain + 0.001 * (key[2] + 1) * (key[1] == "rd")

    content, verdicts = fill(loss, changes, seeds=3).content()
    assert verdicts[0].mean == pytest.approx(0.13 - 0.1 - 0.01 + 0.002, abs=1e-12)
    new = next(row for row in content.estimates if (row.contrast, row.estimand) == ("block", "new documents"))
    assert new.mean == pytest.approx(0.022, abs=1e-9)


def test_each_kind_of_a_a_keeps_its_name(fill: Callable) -> None:
    kinds = {"[noise]\nrepeats = 0": "[noise]\nrepeats = 2\ntwins = 4\nother_seeds = 3"}
    content, verdicts = fill(loss_of, kinds, arms=ARMS, seeds=5).content()
    found = {row.kind: row for row in content.noise}
    assert set(found) == {"repeat", "perturbed twin", "other seed"}
    assert found["repeat"].differences == (0.0, 0.0)
    assert found["perturbed twin"].differences == pytest.approx((0.003, -0.003, 0.003, -0.003), abs=1e-12)
    assert found["perturbed twin"].sd_of_difference == pytest.approx(0.003, abs=1e-12)
    assert found["perturbed twin"].contrast_sd == verdicts[0].sd == pytest.approx(np.std(GAINS, ddof=1), rel=1e-9)
    # Seeds 5, 6, 7 differ by 0.02 each: sd 0.02, and sqrt 2 of it for a difference.
    assert found["other seed"].sd_of_difference == pytest.approx(0.02 * math.sqrt(2), rel=1e-9)


def test_before_the_planned_seeds_nothing_beside_the_verdict_is_there(fill: Callable) -> None:
    kinds = {"[noise]\nrepeats = 0": "[noise]\ntwins = 2"} | BUDGETS
    missing = ("tiny", "xsa", 4, STUDY)
    content, verdicts = fill(loss_of, kinds, skip=(missing,), arms=ARMS, seeds=5).content()
    assert verdicts[0].word is Word.WAITING
    assert content.estimates == ()
    assert content.budget_gaps == ()
    assert content.gap_forms == ()
    (cost,) = content.costs
    assert (cost.iso_step, cost.iso_flop, cost.iso_time, cost.break_even_ratio) == (None, None, None, None)
    assert cost.flop_ratio > 1, "what is known of the machine and the arms is no outcome"
    assert {row.contrast_sd for row in content.noise} == {None}


def test_budgets_give_the_gap_and_a_compute_multiplier_near_the_truth(fill: Callable) -> None:
    content, _ = fill(loss_of, BUDGETS, arms=ARMS, seeds=5).content()
    assert [gap.budget_tokens for gap in content.budget_gaps] == [2_560, 5_120, 10_240], "whole updates"
    assert all(gap.mean == pytest.approx(np.mean(GAINS), abs=1e-9) for gap in content.budget_gaps)
    assert {form.form for form in content.gap_forms} >= {"a + b ln B"}
    assert all(max(form.budgets_tokens) <= 40_960 * (1 + 1e-9) for form in content.gap_forms)
    (summary,) = content.budget_summaries
    # 40 (m B)^-0.5 = 40 B^-0.5 - 0.05 with 40 B^-0.5 = 0.4: m = (0.4 / 0.35)^2 = 1.306 under the true form.
    assert summary.compute_multiplier == pytest.approx((0.4 / 0.35) ** 2, rel=0.1)
    assert summary.interval is not None
    low, high = summary.interval
    assert low is not None
    assert high is not None
    assert low < (0.4 / 0.35) ** 2 < high
    assert not summary.dependent


def test_branches_are_said_to_depend_on_their_trunk(fill: Callable) -> None:
    branches = {"milestones_tokens = [5_000]": 'budgets_tokens = [4_000, 7_000]\nbudget_cells = "branches"'}
    content, _ = fill(loss_of, branches, arms=ARMS, seeds=5).content()
    (summary,) = content.budget_summaries
    assert summary.dependent
    assert "trunk" in summary.sentence


def test_two_budgets_or_two_seeds_are_refused_in_words(fill: Callable) -> None:
    content, _ = fill(
        loss_of, {"milestones_tokens = [5_000]": "budgets_tokens = [5_000]"}, arms=ARMS, seeds=5
    ).content()
    (summary,) = content.budget_summaries
    assert summary.compute_multiplier is None
    assert "3" in summary.sentence
    (cost,) = content.costs
    assert cost.iso_step == pytest.approx(np.mean(GAINS), abs=1e-9)
    assert cost.iso_time is None
    assert "3 budgets" in cost.sentence


def timed(filled: object, ratio: float) -> dict[str, object]:
    """A measurement in which the treatment takes `ratio` of the baseline's time, with one slow round."""
    from paribus.costing.running import identity

    study = filled.study  # pyright: ignore[reportAttributeAccessIssue]
    arms = {arm: resolved for (_, arm), resolved in study.arms.items()}
    base = [0.1 + 0.001 * (i % 3) for i in range(20)]
    base[7] *= 3
    jitter = [(-1) ** (i // 2) for i in range(20)]  # from block to block
    seconds = {
        "standard/eager": base,
        "xsa/eager": [ratio * value * (1 + 0.002 * sign) for value, sign in zip(base, jitter, strict=True)],
        "standard/eager/again": [value * (1 + 0.001 * sign) for value, sign in zip(base, jitter, strict=True)],
    }
    return {
        "format": 2,
        "identity": identity(study.experiment, arms),
        "host": "one host",
        "columns": {
            name: {"arm": name.split("/")[0], "way": "eager", "again": name.endswith("again")} for name in seconds
        },
        "ways": ["eager"],
        "comparisons": [["xsa/eager", "standard/eager"]],
        "wall_seconds": seconds,
        "cpu_seconds": {
            name: [value / (2 if name == "xsa/eager" else 1) for value in values] for name, values in seconds.items()
        },
        "bytes_for_backward": {"standard/eager": 100, "xsa/eager": 110},
        "peak_bytes": {"standard/eager": 200, "xsa/eager": 260},
        "parts": {"standard/eager": {"loss": 1.0, "backward": 3.0}, "xsa/eager": {"loss": 1.0, "backward": 4.0}},
        "part_order": ["loss", "backward"],
        "parts_in": "processor time",
        "batch_tokens": {"standard": 512, "xsa": 512},
    }


def test_a_win_by_the_step_that_loses_by_the_second_is_reported_as_both(fill: Callable) -> None:
    filled = fill(loss_of, BUDGETS, arms=ARMS, seeds=5)
    filled.study.folder.write_cost("tiny", timed(filled, ratio=2.0))
    (cost,) = filled.content()[0].costs
    assert cost.step_time_ratio == pytest.approx(2.0, rel=0.01)
    assert cost.same_arm_ratio == pytest.approx(1.0, abs=0.01)
    assert cost.iso_step_interval is not None
    assert cost.iso_step_interval[1] < 0
    assert cost.iso_time_interval is not None
    assert cost.iso_time_interval[0] > 0
    assert cost.break_even_ratio == pytest.approx((0.4 / 0.35) ** 2, rel=0.1)
    assert (cost.backward_memory_ratio, cost.peak_memory_ratio) == pytest.approx((1.1, 1.3))
    assert (cost.way, cost.step_time_reading, cost.rounds) == ("eager", "slower", 20)
    assert cost.same_arm_interval is not None
    assert cost.same_arm_interval[0] < 1 < cost.same_arm_interval[1]
    assert cost.cpu_time_ratio == pytest.approx(1.0, rel=0.01)
    assert "steps" in cost.sentence
    assert "time" in cost.sentence


def test_what_an_update_takes_stands_beside_the_contrast_for_every_arm(fill: Callable) -> None:
    filled = fill(loss_of, BUDGETS, arms=ARMS, seeds=5)
    filled.study.folder.write_cost("tiny", timed(filled, ratio=2.0))
    rows = {row.arm: row for row in filled.content()[0].updates}
    assert rows.keys() == {"standard", "xsa"}, "the second copy of the baseline is no arm"
    slow = rows["xsa"]
    assert slow.tokens_per_second == pytest.approx(512 / (2 * 0.101), rel=0.01)
    assert slow.wall_seconds == pytest.approx(2 * slow.cpu_seconds)
    assert (slow.parts, slow.shares) == (("loss", "backward"), (0.2, 0.8))
    assert (slow.peak_bytes, slow.bytes_for_backward, slow.host, slow.rounds) == (260, 110, "one host", 20)


def test_ways_of_computing_are_reported_apart(fill: Callable) -> None:
    filled = fill(loss_of, BUDGETS, arms=ARMS, seeds=5)
    measured = timed(filled, ratio=2.0)
    faster = timed(filled, ratio=1.5)
    for name in ("columns", "wall_seconds", "cpu_seconds", "bytes_for_backward", "peak_bytes", "parts"):
        table: dict = measured[name]  # pyright: ignore[reportAssignmentType]
        other: dict = faster[name]  # pyright: ignore[reportAssignmentType]
        table |= {column.replace("/eager", "/other"): value for column, value in other.items()}
    columns: dict = measured["columns"]  # pyright: ignore[reportAssignmentType]
    measured["ways"] = ["eager", "other"]
    columns |= {name: {**of, "way": "other"} for name, of in columns.items() if "/other" in name}
    filled.study.folder.write_cost("tiny", measured)
    content = filled.content()[0]
    assert [(row.way, round(row.step_time_ratio or 0, 1)) for row in content.costs] == [("eager", 2.0), ("other", 1.5)]
    assert content.costs[0].iso_time != content.costs[1].iso_time
    assert content.costs[0].iso_step == content.costs[1].iso_step
    assert [(row.arm, row.way) for row in content.updates] == [
        ("standard", "eager"),
        ("xsa", "eager"),
        ("standard", "other"),
        ("xsa", "other"),
    ]


def test_a_record_of_an_earlier_version_is_said_to_be_one(fill: Callable) -> None:
    filled = fill(loss_of, BUDGETS, arms=ARMS, seeds=5)
    old = {key: value for key, value in timed(filled, ratio=2.0).items() if key in ("identity", "host")}
    filled.study.folder.write_cost("tiny", {**old, "seconds": {}, "again": {}})
    content = filled.content()[0]
    assert content.updates == ()
    assert content.costs[0].step_time_ratio is None
    assert "of an earlier version, which timed no blocks" in content.costs[0].sentence
    assert "`paribus bench` measures anew" in content.costs[0].sentence


def test_a_measurement_of_other_code_is_not_used(fill: Callable) -> None:
    filled = fill(loss_of, BUDGETS, arms=ARMS, seeds=5)
    measured = json.loads(json.dumps(timed(filled, ratio=2.0)))
    measured["identity"]["code"]["xsa"] = "0" * 16
    filled.study.folder.write_cost("tiny", measured)
    (cost,) = filled.content()[0].costs
    assert (cost.step_time_ratio, cost.iso_time, cost.backward_memory_ratio) == (None, None, None)
    assert "`paribus bench` measures it anew" in cost.sentence


PAPER = '[paper]\nsource = "a paper"\ncaveats = ["one run"]\n[paper.small]\nnll = { baseline = 3.0, gated = 2.95 }\n'


@pytest.mark.parametrize(("same", "word"), [("false", "related evidence"), ("true", "replicated")])
def test_a_published_figure_stands_beside_its_contrast(fill: Callable, tmp_path, same: str, word: str) -> None:
    (tmp_path / "papers.toml").write_text(PAPER, encoding="utf-8")
    figure = (
        '[contrasts.xsa.published]\nfile = "papers.toml"\nentry = "paper.small"\ntreatment = "nll.gated"\n'
        f'baseline = "nll.baseline"\nsame_recipe = {same}\nstandard_error = 0.004\n[seeds]'
    )
    content, _ = fill(loss_of, {"[seeds]": figure}, arms=ARMS, seeds=5).content()
    (row,) = content.published
    assert row.published == pytest.approx(-0.05)
    assert row.word == word
    assert row.caveats == ("one run",)
    assert row.source == "a paper"


def test_after_a_divergence_nothing_is_estimated_from_the_cells_that_are_left(fill: Callable) -> None:
    filled = fill(loss_of, BUDGETS, arms=ARMS, seeds=5)
    cell = next(cell for cell in filled.study.cells if cell.key == ("tiny", "xsa", 4, STUDY))
    folder = filled.study.cell_folder(cell)
    (folder.path / "DONE").unlink()
    folder.finish({"reason": "the loss became nan", "step": 3}, diverged=True)
    content, verdicts = filled.content()
    assert verdicts[0].word is Word.DIVERGENCE
    assert [row.mean for row in content.estimates] == [None]
    assert "diverged" in content.estimates[0].note
    assert content.budget_gaps == ()
    assert [summary.compute_multiplier for summary in content.budget_summaries] == [None]
    (cost,) = content.costs
    assert (cost.iso_step, cost.iso_time, cost.break_even_ratio) == (None, None, None)


def test_intervals_beside_a_stricter_headline_are_as_strict(fill: Callable) -> None:
    stage = {"count = 5": "count = 5\nextension = { stage_1_seeds = 5, stage_1_alpha = 0.01 }"} | BUDGETS
    content, verdicts = fill(loss_of, stage, arms=ARMS, seeds=5).content()
    assert verdicts[0].interval_confidence == pytest.approx(0.99)
    assert {row.confidence for row in content.estimates} == {verdicts[0].interval_confidence}
    wide, (gap,) = content.budget_gaps[-1].interval, [verdicts[0].interval]
    assert wide == pytest.approx(gap, abs=1e-9)


def test_documents_of_one_source_are_one_cluster(fill: Callable) -> None:
    filled = fill(loss_of, arms=ARMS, seeds=5)
    for cell in filled.study.cells:
        folder = filled.study.cell_folder(cell)
        for name in folder.row_files("likelihood"):
            rows = folder.rows(name).to_pydict()
            rows["source"] = [f"host {number // 6}" for number in range(len(rows["source"]))]
            folder.write_rows(name, rows)
        summary = {key: value for key, value in folder.summary().items() if key != "row_digests"}
        folder.finish(summary)
    content, _ = filled.content()
    assert content.estimates[0].note.startswith("60 documents of 10 sources")
