"""The parts beyond the verdicts: numbers against loops, odd records, and a line for what is not there."""

import json
import math
import re
from dataclasses import fields, replace
from xml.etree import ElementTree

import numpy as np
import pytest

from paribus.experiment.spec import Robustness, Scale
from paribus.report import budgets, costs, figures, latex, markdown, page, rows, tuning
from paribus.report.blocks import Absent, Section
from paribus.report.by_seed import by_seed, by_seed_table
from paribus.report.content import BudgetGap, CostRow, Curve, NoiseRow, ReportContent, TrialRow, TuningSummary
from paribus.report.door import due
from paribus.report.estimates import estimates_table, spread_table
from paribus.report.evidence import shown_rows
from paribus.report.noise import noise_table
from paribus.report.published import published_picture, published_table
from paribus.report.robustness import due_rates, rate_sentence, robustness_section
from paribus.report.sections import assemble
from paribus.report.tables import Table
from paribus.report.tasks import tasks_table
from paribus.stats.rounding import MINUS, MISSING
from paribus.stats.words import Word

SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def column(table: Table | None, heading: str) -> list[str]:
    assert table is not None
    (place,) = (i for i, held in enumerate(table.columns) if f"{held.heading} {held.unit}".strip() == heading)
    return [row[place] for row in table.rows]


def test_estimates_begin_with_the_headline_and_give_each_estimand_its_own_error(full_study: ReportContent) -> None:
    contrasts = shown_rows(full_study)
    table = estimates_table(contrasts, full_study.estimates)
    assert column(table, "estimand")[:3] == [
        "these documents, random seeds",
        "new documents",
        "bits per byte, linearised",
    ]
    of_task = estimates_table(contrasts, full_study.estimates, of_task=True)
    assert column(of_task, "estimand")[0] == "new rows, random seeds"
    assert column(table, "degrees of freedom")[:3] == ["4", "6.3", MISSING]
    sd = np.std([d for d in contrasts[0].differences if d is not None], ddof=1)
    assert float(column(table, "standard error")[0]) == pytest.approx(sd / math.sqrt(5), rel=0.05)  # two digits
    assert len(column(table, "note")) == 4 + 2


def test_the_spread_table_shows_both_errors_and_the_worst_seed(full_study: ReportContent) -> None:
    contrasts = shown_rows(full_study)
    table = spread_table(contrasts)
    paired, unpaired = (column(table, f"standard error {kind}") for kind in ("paired", "unpaired"))
    for row, one, other in zip(contrasts, paired, unpaired, strict=True):
        assert float(one) == pytest.approx(row.standard_error, rel=0.05)
        assert float(other) == pytest.approx(row.unpaired_standard_error, rel=0.05)
    held = dict(zip(contrasts[0].difference_seeds, contrasts[0].finite_differences, strict=True))
    worst = max(held, key=held.__getitem__)  # lower is better
    assert column(table, "worst seed")[0] == f"{held[worst]:.4f}".replace("-", MINUS) + f"\nseed {worst}"
    assert spread_table([]) is None


def test_differences_by_seed_stand_at_their_seeds_and_a_lost_pair_says_so(diverged_study: ReportContent) -> None:
    contrasts = shown_rows(diverged_study)
    table = by_seed_table(contrasts)
    lost = column(table, "seed 2")
    assert [cell == "diverged" for cell in lost] == ["rd" in (row.treatment, row.baseline) for row in contrasts]
    picture = by_seed(contrasts, "x")
    assert "seed 2 diverged" in picture.description
    told = ElementTree.fromstring(picture.svg)
    assert len(re.findall("seed 2 diverged", told.findtext(f"{SVG}desc") or "")) == 2


def test_kinds_of_noise_stand_in_order_beside_the_contrast(full_study: ReportContent) -> None:
    table = noise_table(full_study.noise)
    kinds = [cell.split("\n")[0] for cell in column(table, "kind")]
    assert kinds == ["repeat", "perturbed twin", "other seed"]
    assert column(table, "contrast over A/A") == [MISSING, "5.9", "0.59"]
    assert noise_table(()) is None


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        (("repeat", "perturbed twin", "other seed"), [("perturbed twin", 0.1)]),
        (("repeat", "other seed"), [("repeat", 0.1)]),
        (("other seed",), []),
        ((), []),
    ],
)
def test_curves_stand_beside_a_twin_or_a_repeat_and_never_beside_unpaired_noise(
    kinds: tuple[str, ...], expected: list[tuple[str, float]]
) -> None:
    noise = [NoiseRow(kind, "S", "a", "test.nll", "nats per token", (0.1,), 0.1, None) for kind in kinds]
    noise.append(NoiseRow("perturbed twin", "S", "a", "accuracy", "share", (0.9,), 0.9, None))
    assert figures.noise_bars(noise, "S") == expected
    assert figures.noise_bars(noise, "L") == []


def test_the_noise_bar_is_drawn_and_said_where_differences_are(full_study: ReportContent) -> None:
    (told,) = figures.loss_figures(full_study, shown_rows(full_study))
    assert "A/A perturbed twin" in texts(told.svg)
    assert "two standard deviations (0.00420 nats per token)" in told.caption
    bare = replace(full_study, noise=())
    (without,) = figures.loss_figures(bare, shown_rows(bare))
    assert "A/A" not in " ".join(texts(without.svg)) + without.caption


def test_nothing_is_drawn_or_told_beyond_four_times_the_largest_budget(few_records: ReportContent) -> None:
    forms = [
        replace(
            form,
            budgets_tokens=(*form.budgets_tokens, 1e12),
            mean=(*form.mean, -0.7777),
            low=(*form.low, -0.8),
            high=(*form.high, -0.7),
        )
        for form in few_records.gap_forms
    ]
    summary = replace(few_records.budget_summaries[0], furthest_budget_tokens=1e12)
    content = replace(few_records, gap_forms=tuple(forms), budget_summaries=(summary,))
    (figure,) = budgets.gap_figures(content)
    svg = figure.svg
    assert "19.7B" in texts(svg)
    assert "1000B" not in " ".join(texts(svg))
    assert "0.777" not in svg
    assert f"a + b ln B: {MINUS}0.00729 at 19.7B tokens" in svg


def test_an_unbounded_multiplier_says_so(full_study: ReportContent) -> None:
    table = budgets.multipliers_table(full_study.budget_summaries)
    assert column(table, "interval") == ["1.10 to unbounded"]
    assert [budgets.open_interval(of) for of in (None, (None, None), (None, 2.0), (1.0, 2.0))] == [
        MISSING,
        "unbounded",
        "unbounded to 2.00",
        "1.00 to 2.00",
    ]


def test_a_gap_without_forms_is_drawn_alone() -> None:
    gap = BudgetGap("c", "S", 1000, (0,), (0.1,), 0.1, None)
    picture = budgets.gaps_picture([gap], [], 4000.0, "x")
    assert "No form was fitted." in picture.description
    assert "4k" in texts(picture.svg)


def test_step_flops_and_time_stand_side_by_side(full_study: ReportContent) -> None:
    (row,) = costs.gains_table(full_study.costs).rows
    assert [cell.split("\n")[0] for cell in row[1:4]] == [f"{MINUS}0.0123", f"{MINUS}0.0123", f"{MINUS}0.0086"]
    picture = costs.gains_picture(full_study.costs, "x")
    assert picture is not None
    for kind in costs.KINDS:
        assert f"separate value route, {kind}" in texts(picture.svg)
    first = full_study.costs[0]
    numbers = {field.name: None for field in fields(CostRow) if field.name.startswith(("iso_", "break_even_"))}
    nothing = replace(first, step_time_ratio=None, sentence="two hosts: refused", **numbers)
    assert costs.gains_picture([nothing], "x") is None
    assert costs.gains_table([nothing]).rows[0][-1] == "two hosts: refused"


def test_times_stand_beside_the_baseline_against_itself_and_no_claim_within_it_is_made(
    full_study: ReportContent,
) -> None:
    (row,) = costs.machines_table(full_study.costs).rows
    assert row[1:6] == (
        "0.9980 to 1.0030",
        "1.0620\n1.0580 to 1.0660",
        "slower",
        "0.9990 to 1.0020",
        "1.0550\n1.0500 to 1.0600",
    )
    assert row[6:8] == ("1.04", "1.07")
    assert row[0].startswith("separate value route, eager\n")
    nothing = replace(full_study.costs[0], way="", step_time_reading="", step_time_ratio=None, same_arm_interval=None)
    assert costs.machines_table([nothing]).rows[0][0].startswith("separate value route\n")
    assert costs.machines_table([nothing]).rows[0][3] == MISSING


def test_a_host_stands_below_the_times_and_in_a_column_only_where_there_are_several(
    full_study: ReportContent,
) -> None:
    [cost] = full_study.costs
    one = costs.machines_table([cost])
    assert one.note.endswith(f"Measured on {cost.host}.")
    assert one.columns[-1].heading == "rounds"
    two = costs.machines_table([cost, replace(cost, host="another")])
    assert [row[-1] for row in two.rows] == [cost.host, "another"]
    assert "Measured on" not in two.note


def test_parts_of_an_update_are_told_by_arm_and_those_that_one_lacks_are_a_dash(full_study: ReportContent) -> None:
    (table,) = costs.parts_tables(full_study.updates)
    assert table.rows == (("forward: attention", "25.0", "25.0"), ("backward", "75.0", "75.0"))
    assert "processor time" in table.note
    other = replace(full_study.updates[1], parts=("loss",), shares=(1.0,))
    (mixed,) = costs.parts_tables([full_study.updates[0], other])
    assert mixed.rows == (
        ("forward: attention", "25.0", MISSING),
        ("backward", "75.0", MISSING),
        ("loss", MISSING, "100.0"),
    )
    assert costs.parts_tables([replace(full_study.updates[0], parts=(), shares=())]) == ()
    rows = costs.updates_table(full_study.updates).rows
    assert rows[0][1:] == ("20\N{NARROW NO-BREAK SPACE}000", "100.0", "90.00", "16.00", "32.00")


def test_trials_are_counted_per_arm_over_all_of_its_fields() -> None:
    def summary(arm: str, knob: str, trials: int) -> TuningSummary:
        return TuningSummary("S", arm, knob, trials, 1.0, True, "")

    equal = tuning.summaries_table([summary("a", "one", 4), summary("a", "two", 4), summary("b", "one", 8)])
    assert equal.note == "Every arm had the same number of trials."
    unequal = tuning.summaries_table([summary("a", "one", 4), summary("b", "one", 5)])
    assert unequal.note == "The arms had unequal numbers of trials."


def test_a_trial_that_diverged_has_no_score_and_is_no_best() -> None:
    trials = [
        TrialRow("S", "a", "rate", 0.1, (3.0, None), False),
        TrialRow("S", "a", "rate", 0.4, (3.2, 3.4), True),
        TrialRow("S", "a", "rate", 1.6, (math.nan,), False),
    ]
    table = tuning.trials_table(trials, ["S"])
    assert column(table, "above the arm's lowest nats per token") == [MISSING, "0.0000", MISSING]
    assert column(table, "mean score nats per token") == [MISSING, "3.3000", MISSING]
    assert column(table, "tuning seeds") == ["2\n1 without a score", "2", "1\n1 without a score"]
    assert column(tuning.trials_table(trials, []), "mean score nats per token") == [MISSING] * 3
    picture = tuning.trials_picture(trials, ["a"], "a", "x")
    assert picture is not None
    assert "0.4 (chosen) 0.0000" in picture.description
    assert tuning.trials_picture(trials[2:], ["a"], "a", "x") is None


def test_ours_and_theirs_stand_together_and_theirs_alone_before_ours_is_due(
    full_study: ReportContent, full_waiting_study: ReportContent
) -> None:
    picture = published_picture(full_study.published, "x")
    assert picture is not None
    assert {"separate value route, published", "separate value route, ours"} <= set(texts(picture.svg))
    (row,) = published_table(due(full_waiting_study).published).rows
    assert row[3] == MISSING
    assert published_picture(due(full_waiting_study).published, "x") is None


def test_a_task_that_the_baseline_cannot_do_is_marked(full_study: ReportContent) -> None:
    assert [word.split("\n")[0] for word in column(tasks_table(full_study.tasks), "admitted")] == ["yes", "no"]


def test_what_a_study_lacks_is_a_line_that_says_how_to_get_it(empty_study: ReportContent) -> None:
    made = assemble(empty_study, shown_rows(empty_study))
    told = {absent.title: absent.sentence for absent in made.absent}
    assert [section.anchor for section in made.sections] == ["caveats", "repeat"]
    (key,) = re.findall(r"`(\w+) = \[...\]`", told["Beyond the budget"])
    assert key in Scale.model_fields, "the advice names a key that a file may hold"
    assert "paribus run" in told["Loss curves"]
    assert "paribus evaluate" in told["Downstream tasks"]


def test_every_contrast_of_a_text_stands_at_every_rate_and_a_sign_that_turns_is_said(full_study: ReportContent) -> None:
    section = robustness_section(due(full_study).robustness)
    assert isinstance(section, Section)
    (said,) = section.sentences
    assert said == (
        f"separate value route: The sign depends on the learning rate: {MINUS}0.0123 at 1 times, +0.0123 at 0.5 times. "
        "Cells diverged: 1 at 2 times."
    )
    (table,) = (one.table for one in section.tables)
    assert column(table, "learning rates times the arm's own") == ["1", "0.5", "2"]
    assert column(table, "pairs") == ["5", "3", "2"]
    assert column(table, "difference")[2] == MISSING, "the cells that did not diverge are a selection"


def test_rates_whose_intervals_agree_turn_no_sign_and_the_page_claims_no_more(full_study: ReportContent) -> None:
    one, other, lost = full_study.robustness
    agreeing = robustness_section((one, replace(one, factor=0.5), lost))
    blind = robustness_section([replace(row, interval=None) for row in (one, other)])
    assert isinstance(agreeing, Section)
    assert isinstance(blind, Section)
    assert agreeing.sentences == ("No sign was found to turn between these rates. That is not proof that none does.",)
    assert blind.sentences == (), "without an interval nothing was looked for"
    assert rate_sentence([one]) == ""


def test_beside_a_stop_for_futility_rates_have_no_interval_and_no_sign(full_study: ReportContent) -> None:
    first, *others = full_study.verdicts
    futile = replace(full_study, verdicts=(replace(first, word=Word.FUTILE), *others))
    rows = due(futile).robustness
    assert [row.factor for row in rows] == [1.0, 0.5, 2.0]
    assert {row.interval for row in rows} == {None}
    assert rate_sentence(rows) == ""
    assert due_rates(futile.robustness, []) == (), "on a page without verdicts nobody knows what was planned"


def test_rates_of_a_waiting_text_are_a_line_that_says_so(full_waiting_study: ReportContent) -> None:
    early = due(full_waiting_study)
    told = {absent.title: absent.sentence for absent in assemble(early, shown_rows(early)).absent}
    assert told["The same contrasts at other learning rates"].startswith("Withheld until the planned seeds")
    never = robustness_section(())
    assert isinstance(never, Absent)
    (key,) = re.findall(r"`(\w+) = \[", never.sentence)
    assert key in Robustness.model_fields, "the advice names a key that a file may hold"


def test_two_scales_of_one_spelling_do_not_share_a_file(study: ReportContent) -> None:
    def named(*scales: str) -> list[str]:
        cells = tuple(replace(study.cells[0], scale=scale) for scale in scales)
        content = replace(study, cells=cells, parameters=(), curves=(), measurements=(), diagnostics=())
        return [figures.file_name("loss", content, scale) for scale in scales]

    assert named("S/1", "S-1", "../L") == ["loss-1", "loss-2", "loss-l"]
    assert named("S/1") == ["loss"]


def odd(study: ReportContent, bare: ReportContent) -> dict[str, ReportContent]:
    """Contents that a run folder can lead to and nobody planned."""
    verdict = study.verdicts[0]
    alike = replace(verdict, word=type(verdict.word).NO_INFORMATION, sd=0.0, standard_error=None, interval=None)
    same = tuple(replace(pair, difference=0.0) for pair in study.pairs)
    lost = replace(verdict, mean=None, median=None, interval=None, treatment_diverged=5, baseline_diverged=5)
    gone = tuple(replace(pair, difference=None) for pair in study.pairs)
    broken = tuple(replace(value, value=math.nan) for value in study.diagnostics[:400])
    empty = (Curve("S", "rd", 0, (), ()), Curve("S", "parent", 0, (5,), (math.nan,)))
    return {
        "no verdict": replace(bare, verdicts=(), pairs=()),
        "no primary": replace(bare, verdicts=study.verdicts[1:2]),
        "all identical": replace(bare, verdicts=(alike,), pairs=same),
        "all diverged": replace(bare, verdicts=(lost,), pairs=gone),
        "broken readings": replace(bare, diagnostics=broken),
        "empty curves": replace(bare, curves=empty),
        "one seed": replace(
            bare,
            verdicts=(replace(verdict, seeds=1, planned_seeds=1, word=type(verdict.word).EXPLORATORY),),
            pairs=study.pairs[:1],
            measurements=study.measurements[:1],
        ),
        "infinite numbers": replace(
            bare,
            verdicts=(replace(verdict, mean=math.inf, interval=(-math.inf, math.nan), standard_error=math.nan),),
            pairs=tuple(replace(pair, difference=math.inf) for pair in study.pairs),
        ),
    }


def test_odd_content_gives_a_page_and_every_text(study: ReportContent, bare_study: ReportContent) -> None:
    for name, content in odd(study, bare_study).items():
        text = page.render(content)
        assert "<h1>" in text, name
        assert json.loads(page.to_json(content))["study"] == content.study, name
        shown = shown_rows(content)
        assert markdown.report(content, shown).startswith("# "), name
        assert set(rows.csv_files(content, shown)), name
        latex.tex_files(content, shown)


@pytest.mark.parametrize("missing", ["estimates", "noise", "budget_gaps", "gap_forms", "costs", "trials", "tuning"])
def test_each_kind_of_record_may_be_missing_alone(missing: str, full_study: ReportContent) -> None:
    few = {"curves": (), "diagnostics": (), "interventions": (), "route_changes": (), "measurements": ()}
    few |= {"verdicts": full_study.verdicts[:1], "pairs": (), "published": ()}
    content = replace(full_study, **few, **{missing: ()})
    made = assemble(content, shown_rows(content))
    assert {section.anchor for section in made.sections} >= {"caveats", "repeat"}


def test_a_waiting_study_shows_what_the_machine_measured_and_no_gain(full_waiting_study: ReportContent) -> None:
    few = {"curves": (), "measurements": (), "diagnostics": (), "interventions": (), "route_changes": (), "trials": ()}
    waiting = due(replace(full_waiting_study, **few))
    section = next(of for of in assemble(waiting, shown_rows(waiting)).sections if of.anchor == "cost")
    assert section.figures == ()
    gains, machines, *_ = (of.table for of in section.tables)
    assert [held.heading for held in gains.columns] == ["contrast", "step time", "FLOPs"]
    assert [cell.split("\n")[0] for cell in gains.rows[0][1:]] == ["1.06", "1.01"]
    assert column(machines, "kept for backward times the baseline's") == ["1.04"]
    assert "gain" not in (gains.caption + gains.note).lower()


def test_a_pair_that_nobody_proved_is_not_called_one_that_shared_weights(bare_study: ReportContent) -> None:
    made = {
        proven: assemble(content := replace(bare_study, pairing_proven=proven), shown_rows(content))
        for proven in (True, False)
    }
    for proven, found in made.items():
        equal = next(of for of in found.sections if of.anchor == "equal")
        assert ("the two arms shared initial weights" in found.first.caption) == proven
        assert ("is not proven" in found.first.caption) != proven
        assert ("proven" in equal.title) == proven
        assert [table.table.caption for table in equal.tables] == ["Held equal" if proven else "Recorded equal"]
        assert bool(equal.sentences) != proven
    adopted = str(made[False])
    assert "The paired error is what sharing" not in adopted
    assert "The paired error is what sharing" in str(made[True])
    assert "No cell has trained yet" not in adopted, "the cells are there; nobody recorded their curves"


def test_a_diverged_contrast_with_budgets_says_why_it_has_no_estimate(
    full_study: ReportContent, bare_study: ReportContent
) -> None:
    summary = replace(full_study.budget_summaries[0], compute_multiplier=None, interval=None, sentence="Not estimated.")
    bare = replace(bare_study, budget_summaries=(summary,))
    section = next(of for of in assemble(bare, shown_rows(bare)).sections if of.anchor == "budgets")
    assert [of.table.rows[0][-1] for of in section.tables] == ["Not estimated."]
