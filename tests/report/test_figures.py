"""Figures: right places, legible without a page, and nothing that a reader may not see yet."""

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pytest

from paribus.report import canvas, curves, figures
from paribus.report.content import Curve, DiagnosticValue, Measurement, ReportContent
from paribus.report.depth import diagnostic_svgs, largest
from paribus.report.differences import paired_differences
from paribus.report.evidence import shown_rows

SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def circles(svg: str) -> int:
    """Points drawn as one seed each: the translucent marks."""
    return len(re.findall(r"<use [^>]*fill-opacity: 0\.75", svg))


def test_every_seed_of_every_contrast_is_a_point(study: ReportContent) -> None:
    assert circles(paired_differences(shown_rows(study)).svg) == 20


def test_a_lost_pair_is_a_cross_where_it_counts_and_not_a_point(diverged_study: ReportContent) -> None:
    svg = paired_differences(shown_rows(diverged_study)).svg
    assert circles(svg) == 18
    assert texts(svg).count("1 of 5 pairs diverged") == 2


def test_a_waiting_contrast_is_words_only(waiting_study: ReportContent) -> None:
    svg = paired_differences(shown_rows(waiting_study)).svg
    assert circles(svg) == 0
    assert texts(svg).count("nothing is shown before the planned seeds") == 4
    assert texts(svg).count("3 of 5 planned pairs complete") == 4
    assert not any("better" in text or "%" in text for text in texts(svg))


def test_the_side_of_better_follows_the_metric(study: ReportContent) -> None:
    lower = paired_differences(shown_rows(study)).svg
    upward = replace(study, verdicts=tuple(replace(v, lower_is_better=False) for v in study.verdicts))
    assert "← treatment better" in texts(lower)
    assert "treatment better →" in texts(paired_differences(shown_rows(upward)).svg)


def test_units_never_share_an_axis(study: ReportContent) -> None:
    mixed = replace(study, verdicts=(*study.verdicts[:3], replace(study.verdicts[3], unit="bits per byte")))
    axes = [
        text for text in texts(paired_differences(shown_rows(mixed)).svg) if text.startswith("treatment \N{MINUS SIGN}")
    ]
    assert [axis.split(", ")[1] for axis in axes] == ["nats per token", "bits per byte"]


def test_the_readme_figure_stands_alone(study: ReportContent) -> None:
    picture = figures.differences_figure(shown_rows(study)).picture
    assert picture is not None
    svg = picture.standalone
    root = ElementTree.fromstring(svg)
    assert int(root.attrib["width"]) > 600
    assert "currentColor" not in svg
    assert "var(" not in svg
    visible = re.sub(r"stroke: #000000; stroke-opacity: 0(?=[;\"])", "", svg)
    drawn = set(re.findall(r"(?:fill|stroke): (#[0-9a-f]{6})", visible))
    assert drawn, "the figure draws nothing"
    for colour in drawn:
        for ground in ("#ffffff", "#0d1117"):
            assert contrast(colour, ground) > 3, f"{colour} on {ground}"  # WCAG 2.2, 1.4.11: 3 to 1 for graphics


def contrast(one: str, other: str) -> float:
    """Contrast ratio of two sRGB colours as WCAG defines it."""

    def luminance(colour: str) -> float:
        channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_every_figure_is_xml_with_a_title_a_description_and_its_own_ids(study: ReportContent) -> None:
    rows = shown_rows(study)
    drawn = [
        figures.differences_figure(rows),
        *figures.loss_figures(study, rows),
        *figures.milestone_figures(study, rows),
    ]
    drawn += [figure for block in figures.diagnostic_blocks(study, rows) for figure in block.figures]
    seen: set[str] = set()
    for figure in drawn:
        root = ElementTree.fromstring(figure.svg)
        ids = {element.attrib["id"] for element in root.iter() if "id" in element.attrib}
        assert ids.isdisjoint(seen)
        assert all(name.startswith(root.attrib["id"]) for name in ids)
        seen |= ids
        assert len(root.findtext(f"{SVG}title") or "") > 5
        assert len(root.findtext(f"{SVG}desc") or "") > 40
        assert figure.caption


def test_drawing_leaves_the_readers_matplotlib_as_it_was(study: ReportContent) -> None:
    with mpl.rc_context({"font.size": 17.0, "svg.hashsalt": "own"}):
        before = dict(mpl.rcParams)
        assert paired_differences(shown_rows(study)).svg
        assert dict(mpl.rcParams) == before


def test_a_block_is_the_mean_of_its_raw_losses_and_of_nothing_where_a_cell_has_stopped() -> None:
    tokens, loss = tuple(range(10, 3201, 10)), tuple(float(i) for i in range(320))
    middles, cells = curves.in_blocks([Curve("S", "a", 0, tokens, loss), Curve("S", "a", 1, tokens[:7], loss[:7])])
    assert len(middles) == curves.BLOCKS
    np.testing.assert_array_equal(cells["a", 0], np.arange(0.5, 320, 2))
    np.testing.assert_array_equal(cells["a", 1][:5], [0.5, 2.5, 4.5, 6.0, np.nan])


def test_an_update_that_ends_on_an_edge_belongs_to_the_block_before_it() -> None:
    # At 696 updates one edge of 160 rounds to the other side of the token count that it equals.
    number = np.arange(1, 697)
    block = -(-number * curves.BLOCKS // 696) - 1
    _, cells = curves.in_blocks(
        [Curve("S", "a", 0, tuple(int(n) * 524_288 for n in number), tuple(map(float, number)))]
    )
    np.testing.assert_array_equal(cells["a", 0], [number[block == b].mean() for b in range(curves.BLOCKS)])


def test_smoothing_keeps_a_straight_line_and_never_fills_a_gap() -> None:
    line = np.arange(20.0)
    inner = slice(curves.WINDOW // 2, -(curves.WINDOW // 2))
    np.testing.assert_allclose(curves.smooth(line)[inner], line[inner], rtol=0, atol=1e-12)  # sums of 7 small integers
    line[12:] = np.nan
    assert np.isnan(curves.smooth(line)[12:]).all()


def test_no_mean_is_drawn_over_the_survivors_of_a_divergence() -> None:
    rows = [Measurement("S", arm, seed, 100, "test", 3.0, 1.0, False) for arm in ("a", "b") for seed in (0, 1)]
    rows.append(Measurement("S", "a", 2, 100, "test", 3.0, 1.0, False))
    whole = curves.milestones([row for row in rows if row.seed < 2], "a", "x").svg
    torn, fewer = (curves.milestones(rows, "a", "x", lost=lost).svg for lost in ([("b", 2)], []))
    assert "b at 100 tokens: 3.0000" in whole
    for svg in (torn, fewer):
        assert "b at 100 tokens" not in svg
        assert "a at 100 tokens: 3.0000" in svg


def test_no_thick_line_is_drawn_of_an_arm_that_lacks_a_seed() -> None:
    def thick(*cells: tuple[str, int]) -> int:
        lines = [Curve("S", arm, seed, (1, 2, 3), (3.0, 2.0, 1.0)) for arm, seed in cells]
        return len(re.findall(r"stroke-width: 2[;\"]", curves.loss_curves(lines, "a", "x", differences=False).svg))

    whole = thick(("a", 0), ("b", 0), ("a", 1), ("b", 1))
    assert thick(("a", 0), ("b", 0), ("a", 1)) < whole


@pytest.mark.parametrize("draw", [figures.loss_figures, figures.milestone_figures])
def test_differences_of_a_scale_are_drawn_only_once_none_of_its_contrasts_waits(
    draw: Callable, study: ReportContent, waiting_study: ReportContent
) -> None:
    (told,), (kept,) = draw(study, shown_rows(study)), draw(waiting_study, shown_rows(waiting_study))
    assert any("Difference to parent" in text for text in texts(told.svg))
    assert not any("Difference" in text for text in texts(kept.svg))


def test_depth_sources_become_maps_and_pairs_of_roles_become_lines(study: ReportContent) -> None:
    def drawn(name: str) -> list[tuple[str, str]]:
        values = [value for value in study.diagnostics if value.diagnostic == name and value.layer < 3]
        return diagnostic_svgs(values, ["parent", "rd", "rd-tied", "exclusive"], "parent", "x")

    ((maps, _),), ((lines, _),) = drawn("route"), drawn("js_roles")
    assert maps.count("<image") >= 5  # one a pair of arm and site, and the colour bar
    assert "rd · v" in texts(maps)
    assert "<image" not in lines
    assert any(text.startswith("qk vs v: ") for text in texts(lines))


def test_a_diagnostic_that_broke_is_reported_and_not_drawn() -> None:
    values = [DiagnosticValue("d", "", "S", "a", 0, layer, "site", "", float("nan")) for layer in range(3)]
    assert diagnostic_svgs(values, ["a"], "a", "x") == []
    assert np.isnan(largest(values) or 0)


def test_a_name_with_dollars_or_of_another_script_is_drawn_as_it_is_written() -> None:
    curve = Curve("S", "$x_1$ _汉字", 0, (1, 2), (3.0, 2.0))
    assert "$x_1$ _汉字" in texts(curves.loss_curves([curve], "", "x").svg)


def test_a_long_name_is_shortened_and_keeps_both_ends() -> None:
    short = canvas.label("a-very-long-arm-name\nwith a break and an-ending", 20)
    assert len(short) == 20
    assert short.startswith("a-very-long")
    assert short.endswith("ending")


def test_reports_never_load_torch_or_pyplot() -> None:
    code = (
        "import sys, paribus.report.page, paribus.report.figures, paribus.report.tables; "
        "paribus.report.figures.differences_figure([]); "
        "sys.exit(', '.join({'torch', 'matplotlib.pyplot'} & set(sys.modules)) or None)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
