"""The retrieving layer of each arm: chosen by the mass on the answer, the other readings taken there."""

from collections.abc import Sequence
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest

from paribus.report.blocks import Absent, Section
from paribus.report.content import DiagnosticValue, ReportContent
from paribus.report.evidence import shown_rows
from paribus.report.of_retrieval import retrieval_rows
from paribus.report.positions import by_slice, grouping, positions_svg
from paribus.report.readings import fine_table
from paribus.report.retrieval import due_retrieval, retrieval_section, retrieval_table
from paribus.stats.rounding import MISSING

SVG = "{http://www.w3.org/2000/svg}"
MASSES = {  # by arm, layer: one a seed, on the slice that is asked about
    "routed": [(0.1, 0.2, 0.3), (0.9, 0.8, 0.4), (0.3, 0.1, 0.5)],
    "plain": [(0.2, 0.2, 0.2), (0.1, 0.1, 0.1), (0.3, 0.4, 0.35)],
}
SLICES = ("deep", "raw")


def value(name: str, group: str, arm: str, seed: int, layer: int, bucket: str, of: float) -> DiagnosticValue:
    return DiagnosticValue(name, "weight", "S", arm, seed, layer, "", group, of, bucket, 0.01, 40)


def told(arm: str, seed: int, layer: int, bucket: str) -> list[DiagnosticValue]:
    """All readings at one layer: numbers that say where they come from."""
    shift = 0.001 * seed + 0.01 * layer + (0.0 if bucket == "deep" else 0.1 if bucket == "raw" else 0.2)
    mass = MASSES[arm][layer][seed] if bucket == "deep" else 1 - MASSES[arm][layer][seed]
    where = (arm, seed, layer, bucket)
    found = [
        value("answer_mass", "largest head", *where, mass),
        value("answer_mass", "mean over heads", *where, 2.0),
        value("own_share", "mean over heads", *where, 0.3 + shift),
        value("own_share", "head:0", *where, 3.0),
        value("cos_y_v", "mean over heads", *where, 0.5 + shift),
    ]
    if arm == "routed" and layer:
        found += [
            value("depth_embedding_mass_attention", "query", *where, 4.0),
            value("depth_embedding_mass_attention", "value_query", *where, 0.6 + shift),
            value("depth_embedding_mass_mlp", "query", *where, 5.0),
            value("js_roles_attention", "query vs value_query: per token, then averaged", *where, 0.2 + shift),
            value("js_roles_attention", "query vs value_query: of averaged routes", *where, 6.0),
        ]
    return found


VALUES = [
    one
    for arm in MASSES
    for seed in (0, 1, 2)
    for layer in (0, 1, 2)
    for bucket in ("all", *SLICES)
    for one in told(arm, seed, layer, bucket)
]


def test_the_retrieving_layer_has_the_largest_mean_over_seeds_whatever_single_seeds_say():
    routed, plain = retrieval_rows(VALUES, "deep")
    assert (routed.arm, routed.layer, routed.layer_of_seeds) == ("routed", 1, (1, 1, 2))
    assert (plain.arm, plain.layer, plain.layer_of_seeds) == ("plain", 2, (2, 2, 2))
    assert routed.answer_mass == pytest.approx((0.9 + 0.8 + 0.4) / 3)
    assert (routed.answer_mass_of_seeds, routed.seeds) == ((0.9, 0.8, 0.4), (0, 1, 2))


def test_the_other_readings_are_those_of_that_layer_and_slice_and_of_the_route_that_feeds_the_value():
    routed, plain = retrieval_rows(VALUES, "deep")
    at = 0.001 * np.mean([0, 1, 2]) + 0.01 * 1
    assert routed.own_share == pytest.approx(0.3 + at)
    assert routed.own_cosine == pytest.approx(0.5 + at)
    assert routed.value_route_on_embedding == pytest.approx(0.6 + at)
    assert routed.route_divergence_nats == pytest.approx(0.2 + at)
    assert plain.own_share == pytest.approx(0.3 + 0.001 + 0.02)
    assert (plain.value_route_on_embedding, plain.route_divergence_nats) == (None, None)


@pytest.mark.parametrize(
    ("roles", "feeds_the_value"),
    [
        (("query",), "query"),
        (("query", "value_query"), "value_query"),
        (("query", "key_value_query"), "key_value_query"),
        (("query", "key_query"), "query"),  # the value reads with the query
        (("query", "key_query", "value_query"), "value_query"),
    ],
)
def test_the_route_of_the_value_is_the_one_called_after_it_else_the_first(roles: Sequence[str], feeds_the_value: str):
    where = ("routed", 0, 1, "deep")
    mass = value("answer_mass", "largest head", *where, 0.5)
    routes = [value("depth_embedding_mass_attention", role, *where, float(role == feeds_the_value)) for role in roles]
    pairs = [
        value("js_roles_attention", f"{first} vs {second}: per token, then averaged", *where, 0.1 * (first == "query"))
        for place, first in enumerate(roles)
        for second in roles[place + 1 :]
    ]
    [row] = retrieval_rows([mass, *routes, *pairs], "deep")
    assert row.value_route_on_embedding == 1.0
    assert row.route_divergence_nats == (None if feeds_the_value == "query" else 0.1)


def test_a_claim_about_two_slices_has_a_row_for_each_at_the_layer_of_the_first():
    rows = retrieval_rows([v for v in VALUES if v.arm == "routed"], "deep-raw")
    assert [(row.slice, row.layer) for row in rows] == [("deep", 1), ("raw", 1)]
    assert rows[1].answer_mass == pytest.approx(1 - rows[0].answer_mass)
    assert rows[1].own_share == pytest.approx(0.1 + (rows[0].own_share or 0))


def test_an_arm_without_a_reading_on_the_slice_has_no_row():
    assert retrieval_rows([v for v in VALUES if v.diagnostic != "answer_mass"], "deep") == []
    assert retrieval_rows(VALUES, "absent") == []


def test_the_table_holds_the_layer_the_mass_with_its_range_and_dashes_where_nothing_is_routed():
    table = retrieval_table(retrieval_rows(VALUES, "deep"))
    routed, plain = (dict(zip([c.heading for c in table.columns], row, strict=True)) for row in table.rows)
    assert routed["retrieving layer"] == "1\n2 of 3 seeds"
    assert routed["on the answer"] == "0.700\n0.400 to 0.900"
    assert routed["value route"] == "0.611"
    assert routed["value route against query-key route"] == "0.211"
    assert plain["value route"] == plain["value route against query-key route"] == MISSING
    assert "exceeds its nulls" in table.note
    assert "nulls" not in retrieval_table(retrieval_rows([v for v in VALUES if v.arm == "plain"], "deep")).note


def test_columns_of_routes_are_left_out_where_no_arm_has_any_and_an_empty_section_says_why():
    section = retrieval_section(retrieval_rows([v for v in VALUES if v.arm == "plain"], "deep"))
    assert isinstance(section, Section)
    assert not any("route" in column.heading for column in section.tables[0].table.columns)
    assert isinstance(retrieval_section(()), Absent)


def test_before_the_planned_seeds_the_rows_of_one_arm_may_be_told_and_of_no_other(
    study: ReportContent, waiting_study: ReportContent
):
    arms = ("parent", "rd")
    rows = [replace(row, arm=arm) for arm, row in zip(arms, retrieval_rows(VALUES, "deep"), strict=True)]
    assert [row.arm for row in due_retrieval(rows, shown_rows(study))] == ["parent", "rd"]
    assert [row.arm for row in due_retrieval(rows, shown_rows(waiting_study))] == ["parent"]


def test_buckets_of_a_task_are_called_slices_and_keep_the_tasks_order():
    values = [replace(v, diagnostic="d") for v in VALUES if v.diagnostic == "own_share"]
    renamed = [replace(v, bucket={"deep": "zeta", "raw": "alpha"}.get(v.bucket, v.bucket)) for v in values]
    svg = positions_svg(renamed, list(MASSES), "plain", "x")
    assert svg is not None
    words = [element.text or "" for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]
    assert [word for word in words if word in ("zeta", "alpha")][:2] == ["zeta", "alpha"]
    assert "slice of the targets" in words
    assert "position in the row" not in svg
    mean = np.mean([v.value for v in renamed if (v.arm, v.bucket, v.group) == ("plain", "alpha", "mean over heads")])
    description = ElementTree.fromstring(svg).findtext(f"{SVG}desc") or ""
    assert f"alpha {mean:.3f}" in description
    table = fine_table(renamed, ())
    assert table is not None
    assert [column.heading for column in table.columns][4] == "slice"
    assert table.caption == "By head and by slice of the targets (every target is written as all)"
    assert {row[4] for row in table.rows} == {"all", "zeta", "alpha"}


def test_ranges_of_positions_are_told_from_slices_whatever_those_are_called():
    def of(*buckets: str) -> list[DiagnosticValue]:
        return [replace(VALUES[0], bucket=bucket) for bucket in buckets]

    assert not by_slice(of("all", "1-15", "16-63", "1024+"))
    assert grouping(of("all", "1-15")) == "position in the row"
    assert not by_slice(of("all"))
    for name in ("1", "2_3", "QD", "4_and_more"):
        assert by_slice(of("all", name))


def test_a_layer_is_chosen_once_even_where_two_are_equal():
    [row] = retrieval_rows(
        [value("answer_mass", "largest head", "a", 0, layer, "deep", 0.5) for layer in (2, 1)], "deep"
    )
    assert row.layer == 1
