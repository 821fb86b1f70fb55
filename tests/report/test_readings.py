"""Diagnostics and interventions as tables and figures: numbers against loops, and nothing said of what was not read."""

import math
import re
from collections.abc import Callable
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest

from paribus.report import canvas, figures
from paribus.report.content import DiagnosticText, DiagnosticValue, InterventionValue, ReportContent, RouteChange
from paribus.report.depth import diagnostic_svgs
from paribus.report.divergences import divergences_svg
from paribus.report.evidence import shown_rows
from paribus.report.interventions import FOREST_ROWS, changes_table, forest_svg, rows_of
from paribus.report.numbers import significant
from paribus.report.positions import positions_svg
from paribus.report.readings import by_arm_table, divergence_table, fine_table, glance_table
from paribus.report.spread import over_seeds, written
from paribus.report.tables import Table
from paribus.stats.paired import t_interval
from paribus.stats.rounding import MISSING

SVG = "{http://www.w3.org/2000/svg}"
ARMS = ["parent", "rd", "rd-tied", "exclusive"]


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def of(study: ReportContent, name: str) -> list[DiagnosticValue]:
    return [value for value in study.diagnostics if value.diagnostic == name]


def row(table: Table | None, *start: str) -> dict[str, str]:
    assert table is not None
    (found,) = (row for row in table.rows if row[: len(start)] == start)
    return {f"{c.heading} {c.unit}".strip(): cell for c, cell in zip(table.columns, found, strict=True)}


def test_the_table_by_arm_is_the_mean_over_layers_with_its_range_and_its_interval_over_seeds(
    study: ReportContent,
) -> None:
    values = of(study, "cos-y-v")
    told = row(by_arm_table(values, ARMS, "c"), "exclusive")
    read = np.array(
        [
            [
                next(
                    v.value
                    for v in values
                    if (v.arm, v.seed, v.layer, v.bucket, v.group) == ("exclusive", s, n, "all", "mean over heads")
                )
                for n in range(6)
            ]
            for s in range(5)
        ]
    )
    low, high = t_interval(read.mean(1).tolist())
    assert float(told["mean over layers cosine"]) == pytest.approx(read.mean(), abs=5e-4)
    assert [float(bound) for bound in told["t interval over seeds 95 %"].split(" to ")] == pytest.approx(
        [low, high], abs=5e-4
    )
    by_layer = read.mean(0)
    assert told["highest layer cosine"] == f"{by_layer.max():.3f}\nlayer {by_layer.argmax()}"
    assert told["lowest layer cosine"].endswith(f"layer {by_layer.argmin()}")
    assert told["standard error over documents of a layer"] == "0.010"


def test_divergences_are_in_nats_and_bits_and_stand_beside_both_nulls(study: ReportContent) -> None:
    null = [replace(v, diagnostic="js_attention_mlp", group="per token, then averaged") for v in of(study, "js_roles")]
    table = divergence_table([*of(study, "js_roles"), *null], study.route_changes, ARMS)
    told = [row(table, "rd", what) for what in ("js_roles, qk vs v", "js_attention_mlp")]
    told.append(row(table, "rd", "qk of attention read, seed against seed"))
    for each in told:
        nats, bits = (float(each[f"mean over layers {unit}"]) for unit in ("nats", "bits"))
        assert bits == pytest.approx(nats / math.log(2), rel=0.01)
    assert [each["read in"] for each in told] == ["5 seeds", "5 seeds", "10 pairs of seeds"]
    assert "layer 5" in told[2]["highest layer nats"]
    assert not any("of averaged routes" in cell for found in table.rows for cell in found)


def test_the_figure_of_divergences_holds_both_nulls_in_every_panel(study: ReportContent) -> None:
    svg = divergences_svg(of(study, "js_roles"), study.route_changes, ARMS, "x")
    assert svg is not None
    told = texts(svg)
    for said in ("rd", "rd-tied", "js_roles, qk vs v", "qk of attention read, seed against seed", "nats"):
        assert said in told
    assert divergences_svg(of(study, "cos-y-v"), [], ARMS, "x") is None


def test_divergences_are_drawn_once_together_with_their_nulls(study: ReportContent) -> None:
    study = replace(study, diagnostics=tuple(of(study, "js_roles")))
    own = next(b for b in figures.diagnostic_blocks(study, shown_rows(study)) if b.title.startswith("How far"))
    assert (own.figures, own.note) == ((), "Drawn below, with its nulls.")
    assert len(own.tables) == 1
    together = figures.divergence_block(study)
    assert together is not None
    assert len(together.figures) == len(together.tables) == 1
    assert figures.divergence_block(replace(study, diagnostics=(), route_changes=())) is None


def test_what_is_read_at_one_layer_is_a_row_and_no_figure(study: ReportContent) -> None:
    once = replace(study, diagnostics=tuple(v for v in of(study, "cos-y-v") if v.layer == 3 and v.bucket == "all"))
    (block, *_) = figures.diagnostic_blocks(once, shown_rows(once))
    assert block.figures == ()
    assert len(block.tables[0].table.rows) == 4


def test_an_arm_that_has_routes_and_one_role_is_shown_with_its_null_alone() -> None:
    changes = [RouteChange("S", "parent", "attention read", layer, "query", (0, 1), 0.01) for layer in (1, 2)]
    (found,) = divergence_table([], changes, ["parent"]).rows
    assert found[:3] == ("parent", "query of attention read, seed against seed", "0.0100")
    assert divergences_svg([], changes, ["parent"], "x") is not None


def test_a_diagnostic_by_position_has_its_buckets_in_the_order_of_the_row(study: ReportContent) -> None:
    svg = positions_svg(of(study, "cos-y-v"), ARMS, "parent", "x")
    assert svg is not None
    told = texts(svg)
    assert [text for text in told if text in ("1-15", "16-63", "1024+")] == ["1-15", "16-63", "1024+"]
    description = ElementTree.fromstring(svg).findtext(f"{SVG}desc") or ""
    mean = np.mean([v.value for v in of(study, "cos-y-v") if (v.arm, v.bucket) == ("rd", "1-15")])
    assert f"rd, mean over heads: 1-15 {mean:.3f}" in description
    assert positions_svg(of(study, "route"), ARMS, "parent", "x") is None


def test_bands_are_said_where_they_are_drawn_and_only_there(study: ReportContent) -> None:
    study = replace(study, diagnostics=tuple(of(study, "cos-y-v")))
    blocks = figures.diagnostic_blocks(study, shown_rows(study))
    with_errors = next(block for block in blocks if block.title.startswith("How much of the mix"))
    assert "Bands: two standard errors over documents" in with_errors.figures[0].caption
    bare = replace(study, diagnostics=tuple(replace(v, standard_error=None) for v in study.diagnostics))
    without = figures.diagnostic_blocks(bare, shown_rows(bare))[0].figures[0]
    assert "Bands" not in without.caption
    drawn, undrawn = (re.findall(r"fill-opacity: 0\.14", f.svg) for f in (with_errors.figures[0], without))
    assert (len(drawn), len(undrawn)) == (4, 0)


def test_the_folded_table_holds_heads_and_buckets_and_no_correctness_check(study: ReportContent) -> None:
    table = fine_table(study.diagnostics, study.diagnostic_texts)
    assert table is not None
    assert {found[3] for found in table.rows} == {"mean over heads", "head:0", "head:1"}
    assert {found[4] for found in table.rows} == {"all", "1-15", "16-63", "1024+"}
    assert len(table.rows) == 4 * (2 + 3)
    checks = (DiagnosticText("cos-y-v", "", "", True),)
    assert fine_table(study.diagnostics, checks) is None
    short = fine_table(study.diagnostics, study.diagnostic_texts, limit=6)
    assert short is not None
    assert (len(short.rows), short.note) == (6, "14 more are in report.json.")


def test_a_change_is_the_mean_over_seeds_with_both_kinds_of_error(study: ReportContent) -> None:
    own = [value for value in study.interventions if value.intervention == "ablated"]
    table = changes_table(rows_of(own, ARMS), "c")
    told = row(table, "embedding", "rd")
    seeds = [value.change for value in own if (value.variant, value.arm) == ("embedding", "rd")]
    assert float(told["change in NLL nats per token"]) == pytest.approx(np.mean(seeds), abs=5e-5)
    assert told["standard error over documents of a seed"] == "0.0040"
    assert (told["seeds"], told["documents"]) == ("5", "300")
    low, high = t_interval(seeds)
    shown = told["t interval over seeds 95 %"].strip("[]").replace("\N{MINUS SIGN}", "-").split(", ")
    assert [float(bound) for bound in shown] == pytest.approx([low, high], abs=5e-5)


def test_a_forest_shows_the_largest_changes_and_the_table_all_of_them() -> None:
    values = [
        InterventionValue("i", f"source {n}", "S", "a", seed, 0.001 * n, None, 1) for n in range(50) for seed in (0, 1)
    ]
    rows = rows_of(values, ["a"])
    told = texts(forest_svg(rows, ["a"], "a", "x", "t"))
    assert sum(text.startswith("source") for text in told) == FOREST_ROWS
    assert "source 49 · a" in told
    assert "source 3 · a" not in told
    table = changes_table(rows, "c")
    assert len(table.rows) == 50
    assert {found[3] for found in table.rows} == {MISSING}, "seeds that read the same carry no interval"


def test_one_seed_has_no_interval_and_no_number_is_lost() -> None:
    assert written(over_seeds([0.1234])) == ("0.123", MISSING)
    assert written(over_seeds([0.1, 0.3])) == ("0.20", "\N{MINUS SIGN}1.07 to 1.47")
    assert over_seeds([0.1, math.nan]).interval is None


@pytest.mark.parametrize("build", [figures.diagnostic_blocks, figures.intervention_blocks])
def test_every_caption_says_that_it_only_describes(build: Callable, study: ReportContent) -> None:
    drawn = [figure for block in build(study, shown_rows(study)) for figure in block.figures]
    assert drawn
    assert all(
        figure.caption.endswith("Descriptive only.") or "Descriptive only." in figure.caption for figure in drawn
    )


def test_the_glance_has_a_row_for_each_reading_and_means_over_layers_and_seeds(study: ReportContent):
    arms = list(dict.fromkeys(v.arm for v in study.diagnostics))
    table = glance_table(study.diagnostics, study.diagnostic_texts, arms)
    assert table is not None
    checks = {text.title for text in study.diagnostic_texts if text.correctness_only}
    assert checks
    titles = [row[0].split("\n")[0] for row in table.rows]
    assert not checks & set(titles)
    [of_text] = [text for text in study.diagnostic_texts if text.diagnostic == "cos-y-v"]
    [found] = [row for row in table.rows if row[0].split("\n")[0] == of_text.title]
    for arm, shown in zip([column.heading for column in table.columns[1:-1]], found[1:-1], strict=True):
        own = [v.value for v in study.diagnostics if (v.diagnostic, v.arm) == ("cos-y-v", arm) and v.summary]
        assert shown == (significant(sum(own) / len(own)) if own else MISSING)


def test_nothing_at_a_glance_where_nothing_was_read():
    assert glance_table([], [], []) is None


def test_an_arm_looks_alike_on_a_figure_that_other_arms_are_missing_from(study: ReportContent):
    """Colours are given by the study's arms, not by those that happen to have a reading."""
    values = [replace(v, site="") for v in of(study, "cos-y-v")]
    [(whole, _)] = diagnostic_svgs(values, ARMS, "parent", "whole")
    [(part, _)] = diagnostic_svgs([v for v in values if v.arm in ("exclusive",)], ARMS, "parent", "part")
    numbers = {arm: canvas.ARM_COLOURS.index(canvas.look_of(ARMS, "parent")[arm][0]) + 1 for arm in ARMS[1:]}
    assert f"--arm-{numbers['exclusive']})" in whole
    assert f"--arm-{numbers['exclusive']})" in part
    assert not any(f"--arm-{numbers[other]})" in part for other in ("rd", "rd-tied"))
