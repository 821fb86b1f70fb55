"""What went wrong in a study's runs reaches its report: from metrics and DIVERGED to records and sentences."""

from collections.abc import Callable
from typing import Any

import pytest

from paribus.experiment.spec import STUDY, Key
from paribus.report.content import ReportContent, SpikeRow
from paribus.runs.folder import CellFolder
from paribus.runs.trouble import in_words
from paribus.stats.rule import Word

ARMS = ("standard", "xsa")
UPDATES = 66
LONGER = {"budget_tokens = 10_000\nmilestones_tokens = [5_000]": f"budget_tokens = {UPDATES * 512}"}
FIRST = {
    "tensor": "output of layers.1.mlp",
    "sentence": "output of layers.1.mlp (forward): 3 NaN of 9 values",
    "step": 60,
}


@pytest.fixture
def study(fill: Callable) -> Any:
    return fill(lambda key: 3.0 + 0.01 * key[2] - 0.05 * (key[1] == "xsa"), LONGER, arms=ARMS, seeds=3)


def cell(study: Any, arm: str, seed: int) -> CellFolder:
    return study.read().cells["tiny", arm, seed, STUDY].folder


def again(folder: CellFolder, losses: dict[int, float], updates: int = UPDATES, **diverged: Any) -> None:
    """End the cell anew with other losses at some updates, or after fewer updates as diverged."""
    summary = folder.summary()
    (folder.path / "DONE").unlink()
    (folder.path / "metrics.jsonl").unlink()
    for step in range(1, updates + 1):
        line = {"step": step, "tokens_seen": step * 512, "loss_nats_per_token": losses.get(step, 5.0)}
        folder.append_metrics({**line, "learning_rate_multiplier": 1.0, "wall_seconds": 0.1})
    summary.pop("row_digests")
    folder.finish(diverged or summary, diverged=bool(diverged))


def caveats(content: ReportContent, word: str) -> list[str]:
    return [text for text in content.caveats if word in text]


def test_a_spike_in_metrics_is_a_record_of_its_run_and_no_run_is_left_out_for_it(study: Any):
    before, verdicts = study.content()
    assert before.spikes == ()
    again(cell(study, "xsa", 1), {60: 5.8, 61: 6.0, 62: 5.5})
    content, after = study.content()
    (row,) = content.spikes
    assert (row.scale, row.arm, row.seed, row.variant) == ("tiny", "xsa", 1, "")
    assert (row.step, row.tokens_seen, row.recovered_after_updates) == (60, 60 * 512, 3)
    assert row.height == pytest.approx(1.0, abs=1e-12)
    assert after == verdicts, "a spike changes no verdict"
    assert len(content.curves) == len(before.curves) == 6
    assert caveats(content, "spike") == []


def test_a_spike_that_did_not_come_back_is_a_doubt_that_names_the_run(study: Any):
    again(cell(study, "xsa", 1), dict.fromkeys(range(64, UPDATES + 1), 7.0))
    content, _ = study.content()
    assert [row.recovered_after_updates for row in content.spikes] == [None]
    assert caveats(content, "spiked") == [
        "The training loss of tiny/xsa/1 spiked and was not back at the end; see the loss curves."
    ]


def test_a_run_that_diverged_stays_in_with_what_broke_its_curve_and_the_verdict_says_so(study: Any):
    told = {"reason": "the training loss became nan at step 60 (30,720 tokens)", "step": 60, "batch_digest": "ab"}
    again(cell(study, "xsa", 2), {59: 9.0}, 59, **told, first=FIRST, kind="update")
    content, (verdict,) = study.content()
    (row,) = content.diverged
    assert (row.arm, row.seed, row.step, row.batch_digest) == ("xsa", 2, 60, "ab")
    assert (row.first_tensor, row.last_loss_nats_per_token) == (FIRST["sentence"], 9.0)
    assert row.folder.startswith("tiny/xsa/2-")
    assert caveats(content, "diverged and stays in") == [
        f"Cell tiny/xsa/2 diverged and stays in: {told['reason']}; first not finite: {FIRST['sentence']}."
    ]
    assert {(c.arm, c.seed, len(c.tokens)) for c in content.curves if c.seed == 2} == {
        ("standard", 2, UPDATES),
        ("xsa", 2, 59),
    }
    assert [s.step for s in content.spikes] == [59], "the last update before it counts as well"
    assert verdict.word is Word.DIVERGENCE
    assert (verdict.treatment_diverged, verdict.baseline_diverged) == (1, 0)
    assert "Diverged: xsa 1, standard 0 of 3" in verdict.sentence


def test_a_run_that_diverged_with_damaged_metrics_has_no_curve_and_is_told_all_the_same(study: Any):
    folder = cell(study, "xsa", 2)
    again(folder, {}, 3, reason="the training loss became nan at step 4", step=4)
    (folder.path / "DIVERGED").unlink()
    file = folder.path / "metrics.jsonl"
    file.write_bytes(file.read_bytes().replace(b'"step": 2', b'"step": 7'))
    folder.finish({"reason": "the training loss became nan at step 4", "step": 4}, diverged=True)
    content, _ = study.content()
    assert [(row.seed, row.first_tensor, row.last_loss_nats_per_token) for row in content.diverged] == [(2, "", None)]
    assert len(content.curves) == 5


def test_why_a_cell_ended_is_one_sentence_whatever_is_on_record():
    reason = {"reason": "the training loss became nan at step 9", "step": 9}
    assert in_words(reason) == reason["reason"]
    assert in_words({}) == "no reason is on record"
    earlier = in_words({**reason, "first": {**FIRST, "step": 8}})
    assert earlier.endswith(f"; first not finite: at step 8, {FIRST['sentence']}")
    assert "suspect the machine" in in_words({**reason, "kind": "not seen again"})
    assert "every update before it was finite" in in_words({**reason, "kind": "held out"})
    assert in_words({**reason, "not_explained": "OSError: x"}).endswith("not explained: OSError: x")


def test_a_spike_row_has_a_field_for_which_of_an_arms_cells_it_is(fill: Callable):
    def loss(key: Key) -> float:
        return 3.0 + 0.001 * key[2]

    kinds = {**LONGER, "[noise]\nrepeats = 0": "[noise]\ntwins = 1"}
    found = fill(loss, kinds, arms=ARMS, seeds=2)
    twin = next(c for k, c in found.read().cells.items() if k[3] == "twin")
    again(twin.folder, {60: 6.0})
    (row,) = found.content()[0].spikes
    assert isinstance(row, SpikeRow)
    assert (row.arm, row.variant) == ("standard", "A/A twin")
