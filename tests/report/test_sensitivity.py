"""The section that shows the effect beside a longer decay and other values of a field: what it draws and says."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paribus.report import markdown, page
from paribus.report.blocks import Absent, Section
from paribus.report.content import ReportContent, SensitivityRow
from paribus.report.door import due
from paribus.report.evidence import shown_rows
from paribus.report.sections import assemble
from paribus.report.sensitivity import (
    TITLE,
    schedule_sentences,
    sensitivity_picture,
    sensitivity_section,
    sensitivity_table,
)
from paribus.stats.rounding import MINUS, MISSING
from tests.report.test_browser import BROWSER, REQUIRED, shoot

NAME, SCALE = "separate value route", "S"
NOTHING = {"curves": (), "measurements": (), "diagnostics": (), "interventions": (), "route_changes": ()}
EFFECT = (-0.0121, 0.0031)
"""mean and half interval of the primary"""


def row(kind: str, mean: float | None, half: float | None = 0.003, **changes: Any) -> SensitivityRow:
    arms = {"effect": "rd", "schedule": "schedule-sensitivity", "value": "rd.blocks-2"}
    given: dict[str, Any] = {
        "kind": kind,
        "contrast": NAME,
        "compared": f"{arms[kind]} {MINUS} parent",
        "scale": SCALE,
        "metric": "test.nll",
        "unit": "nats per token",
        "of": "",
        "knob": "",
        "value": None,
        "own": None,
        "mean": mean,
        "interval": None if mean is None or half is None else (mean - half, mean + half),
        "pairs": 5,
        "planned": 5,
        "diverged": 0,
    }
    return SensitivityRow(**(given | changes))


def value(at: Any, mean: float | None, own: Any = 8, knob: str = "routing.blocks", **changes: Any) -> SensitivityRow:
    compared = f"rd{'' if at == own else f'.blocks-{at}'} {MINUS} parent"
    given: dict[str, Any] = {"compared": compared, **changes}
    return row("value", mean, of="rd", knob=knob, value=at, own=own, **given)


SCHEDULE = row("schedule", 0.0041, of="parent", knob="schedule.decay", value=0.6, own=0.4, pairs=3, planned=3)
ROWS = (
    row("effect", *EFFECT),
    SCHEDULE,
    value(8, EFFECT[0], interval=(-0.0152, -0.0090)),
    value(2, -0.0077),
    value(4, None, diverged=1, pairs=2),
)


@pytest.fixture(scope="module")
def asked(study: ReportContent) -> ReportContent:
    """A study with a control of the schedule and one swept field."""
    return replace(study, sensitivity=ROWS, **NOTHING)


def test_the_section_has_one_sentence_one_figure_and_one_table() -> None:
    section = sensitivity_section(ROWS)
    assert isinstance(section, Section)
    (figure,), (table,) = section.figures, section.tables
    assert section.sentences == schedule_sentences(ROWS)
    assert section.sentences == (
        "schedule.decay 0.6 in place of 0.4 moves parent by +0.0041 [+0.0011, +0.0071] nats per token; the difference "
        f"of rd {MINUS} parent is {MINUS}0.0121 [{MINUS}0.0152, {MINUS}0.0090].",
    )
    assert figure.file == "sensitivity"
    assert table.table.caption.startswith("The effect, a longer decay")


def test_the_table_has_the_effect_the_schedule_and_the_values_in_their_order() -> None:
    table = sensitivity_table(ROWS)
    cells = {column.heading: [line[i] for line in table.rows] for i, column in enumerate(table.columns)}
    assert cells["value"] == [MISSING, "0.6\nown 0.4", "2", "4", "8\nits own"]
    assert [text.partition("\n")[0] for text in cells["difference"]] == [
        f"{MINUS}0.0121",
        "+0.0041",
        f"{MINUS}0.0077",
        MISSING,
        f"{MINUS}0.0121",
    ], "as many decimals in every row of a unit"
    assert cells["pairs"] == ["5", "3", "5", "2 of 5", "5"]
    assert cells["diverged"] == [MISSING, MISSING, MISSING, "1", MISSING]
    assert cells["compared"][0].endswith("primary")
    assert not any(text.endswith("primary") for text in cells["compared"][1:])


def test_a_wide_interval_has_as_many_decimals_as_a_narrow_one_of_its_unit() -> None:
    wide = replace(SCHEDULE, interval=(-0.4, 0.4))
    column = [heading.heading for heading in sensitivity_table(ROWS).columns].index("difference")
    told = [line[column] for line in sensitivity_table((ROWS[0], wide)).rows]
    assert told[1] == f"+0.0041\n[{MINUS}0.4000, +0.4000]"
    assert told[0] == sensitivity_table(ROWS).rows[0][column]


def heights(found: tuple[SensitivityRow, ...], panel: int = 0) -> dict[str, Any]:
    """What a panel of the figure holds, in the coordinates of its data."""
    axes = sensitivity_picture(found, "figure").figure.axes[panel]
    lines = [(np.asarray(line.get_xdata()), np.asarray(line.get_ydata()), line) for line in axes.get_lines()]
    return {
        "marks": {round(float(x[0]), 6): float(y[0]) for x, y, line in lines if line.get_marker() in ("s", "D")},
        "rings": [float(y[0]) for _, y, line in lines if line.get_marker() == "o"],
        "bars": {tuple(np.round(y, 6)) for x, y, line in lines if len(x) == 2 and x[0] == x[1]},
        "across": sorted(float(y[0]) for x, y, line in lines if len(x) == 2 and x[0] != x[1]),
        "bands": [float(patch.get_extents().transformed(axes.transData.inverted()).y0) for patch in axes.patches],
        "ticks": [label.get_text() for label in axes.get_xticklabels()],
        "words": [text.get_text() for text in axes.texts],
        "title": axes.get_title(loc="left"),
    }


def test_the_figure_has_every_value_the_effect_as_a_band_and_the_schedule_as_another_mark() -> None:
    sweep, schedule = heights(ROWS, 0), heights(ROWS, 1)
    assert sorted(sweep["marks"].values()) == [-0.0121, -0.0077]
    assert sweep["rings"] == [-0.0121], "the arm's own value alone"
    assert sweep["words"] == ["diverged"]
    assert sweep["ticks"] == ["2", "4", "8"]
    assert sweep["title"] == "rd minus parent: routing.blocks"
    assert (-0.0107, -0.0047) in sweep["bars"]
    for panel in (sweep, schedule):
        assert panel["across"] == [-0.0121, 0.0], "the effect and zero"
        assert panel["bands"] == [pytest.approx(-0.0152)]
    assert list(schedule["marks"].values()) == [0.0041]
    assert schedule["bars"] == {(0.0011, 0.0071)}
    assert schedule["ticks"] == ["decay\n0.6 for 0.4"]


def places(*values: Any) -> list[float]:
    """Where values stand along the figure."""
    return list(heights((row("effect", *EFFECT), *(value(at, -0.01) for at in values)))["marks"])


def test_values_stand_to_scale_on_a_logarithmic_axis_where_they_are_factors_apart() -> None:
    assert np.diff(places(2, 4, 8)) == pytest.approx([np.log(2)] * 2, abs=2e-6), "rounded to millionths"
    assert np.diff(places(0.2, 0.4, 0.6, 0.8)) == pytest.approx([0.2] * 3)
    assert np.diff(places(0.0, 0.5, 1.0)) == pytest.approx([0.5] * 2)
    assert places("learned", 1.0, 2.0) == [0.0, 1.0, 2.0], "what is no number stands beside the others"
    assert places(True, False) == [0.0, 1.0]


def test_a_swept_baseline_says_its_own_value_which_nobody_measured() -> None:
    rates = {"of": "parent", "knob": "optimiser.matrix_learning_rate", "own": 0.02}
    swept = [row("value", 0.01, value=at, compared=f"parent.rate-{at} {MINUS} parent", **rates) for at in (0.01, 0.04)]
    found = heights((row("effect", *EFFECT), *swept))
    assert found["title"] == "parent minus itself: optimiser.matrix_learning_rate, own value 0.02"
    assert found["rings"] == []
    assert found["across"] == [-0.0121, 0.0], "the primary's difference is the band beside a baseline's values too"


def test_a_control_without_a_sweep_is_two_lines_beside_each_other() -> None:
    section = sensitivity_section(ROWS[:2])
    assert isinstance(section, Section)
    (figure,) = section.figures
    assert figure.picture is not None
    (axes,) = figure.picture.figure.axes
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names == [f"primary: rd {MINUS} parent", f"schedule-sensitivity {MINUS} parent"]
    assert "band" not in figure.caption


def test_a_figure_is_drawn_for_every_scale_and_unit_and_none_without_a_number() -> None:
    other = tuple(replace(of, unit="bits per byte", scale="M") for of in ROWS)
    section = sensitivity_section((*ROWS, *other))
    assert isinstance(section, Section)
    assert [figure.file for figure in section.figures] == ["sensitivity-1", "sensitivity-2"]
    assert [figure.heading for figure in section.figures] == ["Scale S, nats per token", "Scale M, bits per byte"]
    nothing = tuple(replace(of, mean=None, interval=None) for of in ROWS)
    bare = sensitivity_section(nothing)
    assert isinstance(bare, Section)
    assert (bare.figures, bare.sentences) == ((), ())


def test_the_figure_is_told_in_words() -> None:
    words = sensitivity_picture(ROWS, "figure").description
    assert f"rd {MINUS} parent, primary: {MINUS}0.0121 [{MINUS}0.0152, {MINUS}0.0090]" in words
    assert "schedule.decay 0.6: +0.0041" in words
    assert "routing.blocks 4: no difference" in words


def test_the_section_stands_before_the_estimates_and_in_json_and_markdown(asked: ReportContent) -> None:
    told = due(asked)
    anchors = [section.anchor for section in assemble(told, shown_rows(told)).sections]
    assert anchors.index("sensitivity") == anchors.index("estimates") - 1
    data = json.loads(page.to_json(asked))["sensitivity"]
    assert [(of["kind"], of["mean"]) for of in data] == [(of.kind, of.mean) for of in ROWS]
    text = markdown.report(told, shown_rows(told))
    assert f"## {TITLE}" in text
    assert "schedule.decay 0.6 in place of 0.4 moves parent" in text
    verdicts = text.partition(f"## {TITLE}")[0]
    assert "rd.blocks-2" not in verdicts, "no value is a contrast"


def test_nothing_leaves_while_the_primary_waits(waiting_study: ReportContent) -> None:
    held = replace(waiting_study, sensitivity=ROWS, **NOTHING)
    assert due(held).sensitivity == ()
    texts = page.render(held) + page.to_json(held) + markdown.report(due(held), shown_rows(held))
    for digits in ("0.0121", "0.0041", "0.0077", "0.0031"):
        assert digits not in texts
    absent = sensitivity_section((), "Withheld.")
    assert isinstance(absent, Absent)
    assert absent.sentence == "Withheld."


def test_a_page_without_verdicts_shows_none(asked: ReportContent) -> None:
    assert due(replace(asked, verdicts=())).sensitivity == ()


@pytest.mark.skipif(BROWSER is None and not REQUIRED, reason="needs chromium on PATH")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_draws_the_band_the_marks_and_the_ring(asked: ReportContent, tmp_path: Path, scheme: str) -> None:
    text = page.render(replace(asked, verdicts=asked.verdicts[:1], pairs=()))
    section = re.search(r'<section aria-labelledby="sensitivity".*?</section>', text, re.DOTALL)
    assert section is not None
    opened = tmp_path / "section.html"
    opened.write_text(f"{text[: text.index('<main')]}<main>{section[0]}</main></body></html>", encoding="utf-8")
    pixels, console = shoot(opened, tmp_path, scheme=scheme)
    assert console == []
    blue, orange = (np.abs(pixels - colour).max(-1) < 0.25 for colour in ((0.2, 0.5, 0.8), (0.85, 0.4, 0.1)))
    assert blue.sum() > 100, "the swept arm"
    assert orange.sum() > 30, "the longer decay"
