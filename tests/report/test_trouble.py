"""Loss spikes and runs that diverged stand on the page, in the data and in the figure; nothing is left out."""

import csv
import io
import json
from dataclasses import replace

from paribus.report import curves, page, rows
from paribus.report.content import ReportContent
from paribus.report.door import due
from paribus.report.evidence import shown_rows
from paribus.report.trouble import RULE, diverged_table, spikes_sentence, spikes_table


def test_the_table_of_spikes_has_every_one_and_marks_those_that_stayed(full_study: ReportContent):
    table = spikes_table(full_study.spikes, "nats per token")
    assert table is not None
    assert len(table.rows) == len(full_study.spikes) == 3
    assert [row[-1] for row in table.rows] == ["6", "not at the end", "2"]
    assert table.accents == ("", "bad", "")
    assert table.rows[2][1] == "parent (A/A twin)"
    assert table.rows[1][6] == "no spread before"
    assert spikes_table((), "nats per token") is None


def test_the_sentence_counts_spikes_and_runs_and_states_the_rule(full_study: ReportContent):
    assert spikes_sentence(full_study.spikes).startswith("Loss spikes: 3 in 3 runs, 1 of them not back at the end. ")
    assert spikes_sentence(()) == f"Loss spikes: none in the runs drawn here. {RULE}"
    assert "8 robust standard deviations (1.4826 MAD) and 0.1 nats or more" in RULE


def test_the_table_of_runs_that_diverged_names_the_first_tensor_and_that_none_was_dropped(full_study: ReportContent):
    table = diverged_table(full_study.diverged)
    assert table is not None
    (row,) = table.rows
    assert row[5].startswith("output of layers.3.mlp (forward")
    assert "No run was dropped or replaced" in table.note
    assert table.accents == ("bad",)
    assert diverged_table(()) is None


def test_page_data_and_tables_for_programs_hold_both(full_study: ReportContent):
    html = page.render(full_study)
    for text in ("Loss spikes: 3 in 3 runs", "Runs that diverged", "output of layers.3.mlp", "A triangle marks where"):
        assert text in html
    data = json.loads(page.to_json(full_study))
    assert [row["step"] for row in data["spikes"]] == [300, 450, 60]
    assert data["spikes"][1]["z"] is None, "what is not finite is null"
    assert data["diverged"][0]["batch_digest"] == "9d4ae8a7ad87d0f8"
    files = rows.csv_files(full_study, shown_rows(full_study))
    assert len(list(csv.DictReader(io.StringIO(files["spikes.csv"])))) == 3
    assert len(list(csv.DictReader(io.StringIO(files["diverged.csv"])))) == 1


def test_the_figure_marks_the_spikes_of_what_it_draws_and_of_nothing_else(full_study: ReportContent):
    drawn = [curve for curve in full_study.curves if curve.arm in ("parent", "rd")]
    plain = curves.loss_curves(drawn, "parent", "x")
    marked = curves.loss_curves(drawn, "parent", "x", spikes=full_study.spikes)
    assert "2 loss spikes are marked." in marked.svg, "the twin is not drawn"
    assert "marked" not in plain.svg
    one = curves.loss_curves(drawn[:1], "parent", "x", spikes=full_study.spikes)
    assert "marked" not in one.svg, "seed 0 of the parent has none"


def test_before_a_verdict_is_due_spikes_of_one_arm_are_told_and_last_losses_of_no_other(
    full_waiting_study: ReportContent,
):
    told = due(full_waiting_study)
    assert {row.arm for row in full_waiting_study.spikes} == {"parent", "rd"}
    assert {row.arm for row in told.spikes} == {"parent"}
    assert len(told.diverged) == len(full_waiting_study.diverged), "that a run diverged is never kept back"
    assert all(row.last_loss_nats_per_token is None for row in told.diverged if row.arm != "parent")


def test_adopted_results_are_not_said_to_have_no_spikes(full_study: ReportContent):
    adopted = replace(full_study, pairing_proven=False, spikes=())
    assert "Loss spikes" not in page.render(adopted)
