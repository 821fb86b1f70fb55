"""The page of a set of tasks: marks, numbers and the caution; no word in a smoke set; readable on a desk and a phone.

Where there is no chromium the last tests are skipped by name; PARIBUS_REQUIRE_BROWSER=1 makes that a failure instead.
"""

import html
import json
import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.image import imread

from paribus.errors import ParibusError
from paribus.reading.task_arms import CONFIDENCE
from paribus.report.of_tasks import (
    CAUTION,
    FULL,
    MARKS,
    SMOKE,
    CalibrationText,
    MilestoneDifference,
    SliceDifference,
    SliceLevels,
    TaskDefinition,
    TaskText,
    TunnelContent,
    TunnelRow,
)
from paribus.report.tables import to_text
from paribus.report.tunnel_door import due_tunnel
from paribus.report.tunnel_figure import caption, scale_of, tunnel_figure
from paribus.report.tunnel_page import render_tunnel
from paribus.report.tunnel_table import MILESTONE_CONFIDENCE, readings_table, tally_of, tunnel_table
from paribus.seeds import generator

MINUS, DASH = "\N{MINUS SIGN}", "\N{EN DASH}"
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
REQUIRED = os.environ.get("PARIBUS_REQUIRE_BROWSER") == "1"
needs_browser = pytest.mark.skipif(BROWSER is None and not REQUIRED, reason="needs chromium on PATH")
CASES = (
    # task, title, slice, mean, half width, declared, agreement, word
    ("cross", "deep key or deep content", "QD", -1.28, 0.3, "-", "agrees", "better by at least the smallest effect"),
    ("twin", "fetch the twin's content", "same-different", 0.044, 0.005, "+", "agrees", "worse"),
    ("tally", "count yourself", "all", -0.016, 0.036, "+", "open", "inconclusive"),
    ("carry", "early content needed late", "free-fixed", 0.128, 0.046, "-", "against", "worse"),
    ("ledger", "facts and bigrams", "fact", 0.003, 0.002, "0", "not informative", "equivalent"),
)


def a_row(case: tuple[Any, ...], seeds: int, *, full: bool) -> TunnelRow:
    task, title, name, mean, half, declared, agreement, word = case
    noise = generator("tunnel-page", task).normal(0, half, seeds)
    milestones = ((100, mean / 2), (200, -mean / 3), (300, mean))
    difference = SliceDifference(
        contrast=f"{task} contrast",
        compared=f"separate-routes {MINUS} baseline",
        scale="S",
        slice=name,
        area_difference=mean,
        interval=(mean - half, mean + half),
        interval_confidence=0.95,
        seeds=tuple(range(seeds)),
        differences=tuple(float(mean + x - noise.mean()) for x in noise),
        milestones=tuple(MilestoneDifference(u, m, (m - half, m + half)) for u, m in milestones),
        log2_updates_difference=None,
        log2_updates_interval=None,
        censored=(0, 1),
        ratio_sentence="0.55 of the updates [0.41, 0.74].",
        informative=agreement != "not informative",
        informative_sentence="",
        expected=declared,
        agreement=agreement,
    )
    return TunnelRow(
        task=task,
        title=title,
        difference=difference,
        planned_seeds=seeds,
        budget_updates=300,
        acquired_baseline=(210, 280, None, 260, 240),
        acquired_treatment=(148, 222, 185, 160, 190),
        plateau="treatment sits on the floor (0.00 nats), baseline between two levels",
        word=word if full else "",
        p_holm=0.0234 if full else None,
        report=f"{task}/report.html",
    )


def a_set(kind: str = SMOKE) -> TunnelContent:
    seeds = 10 if kind == FULL else 5
    text = TaskText(
        "twin", "fetch the twin's content", "asked is a colour", {"ids": 16}, "same-different", 400, 1536.0, 64
    )
    levels = (SliceLevels("same", 2.079, 0.0, 1.04, {"own colour": 2.2}), SliceLevels("different", 2.079, 0, 1.04, {}))
    return TunnelContent(
        question="What do separate routes change?",
        set=kind,
        planned_seeds=seeds,
        rows=tuple(a_row(case, seeds, full=kind == FULL) for case in CASES),
        definitions=(TaskDefinition(text, levels, CalibrationText(True, 3, (0.5, 0.62, None), "Frozen.")),),
        seconds=512.0,
        environment={"host": "two cores"},
        caveats=("The rate was tuned on one seed.",),
        repeat_command="paribus tunnel --smoke",
    )


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return render_tunnel(a_set(), tmp_path_factory.mktemp("smoke"))


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return render_tunnel(a_set(FULL), tmp_path_factory.mktemp("full"))


def body_of(page: Path) -> str:
    """The page's text without its style sheet."""
    return re.sub(r"<style>.*?</style>", "", page.read_text(encoding="utf-8"), flags=re.S)


def test_four_files_are_written_and_the_page_is_named(smoke: Path) -> None:
    assert smoke.name == "tunnel.html"
    assert sorted(p.name for p in smoke.parent.iterdir()) == ["tunnel.html", "tunnel.json", "tunnel.md", "tunnel.svg"]


def test_first_the_question_then_the_set_then_the_figure_then_the_table_then_the_caution(smoke: Path) -> None:
    page = body_of(smoke)
    parts = ["smoke set, 5 seeds a task, 8 min 32 s", "<h1>What do separate routes change?", 'id="figure-tunnel"']
    parts += ['class="dense tunnel"', CAUTION, "The tasks</h2>", "own colour: 2.200", "two cores", "paribus tunnel"]
    places = [page.index(part) for part in parts]
    assert places == sorted(places)
    assert page.count(CAUTION) == 1


@pytest.mark.parametrize("agreement", [key for key in MARKS if key])
def test_every_mark_appears_in_figure_table_and_markdown(agreement: str, smoke: Path) -> None:
    assert f"<div>{MARKS[agreement]}</div>" in body_of(smoke)
    figure = ElementTree.parse(smoke.with_name("tunnel.svg"))
    assert MARKS[agreement] in [e.text for e in figure.iter("{http://www.w3.org/2000/svg}text")]
    assert f"| {MARKS[agreement]} |" in smoke.with_name("tunnel.md").read_text(encoding="utf-8")


def test_a_smoke_page_holds_no_win_word_and_says_why(smoke: Path) -> None:
    beside = [smoke.with_name(name).read_text(encoding="utf-8") for name in ("tunnel.md", "tunnel.svg")]
    for page in (body_of(smoke), *beside):
        assert not re.search(r"\b(better|worse|equivalent|win|inconclusive)\b", page)
    assert "Direction check: 5 seeds, no words." in body_of(smoke)
    assert "adjusted p" not in body_of(smoke)


def with_row(content: TunnelContent, **change: Any) -> TunnelContent:
    return replace(content, rows=(replace(content.rows[0], **change), *content.rows[1:]))


@pytest.mark.parametrize("change", [{"word": "better"}, {"word": "inconclusive"}, {"p_holm": 0.01}])
def test_a_smoke_set_with_a_verdict_is_refused(change: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ParibusError, match="carries a verdict in a smoke set"):
        render_tunnel(with_row(a_set(), **change), tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("field", ["ratio_sentence", "informative_sentence", "rate_sentence", "plateau"])
@pytest.mark.parametrize("kind", [SMOKE, FULL])
def test_a_sentence_that_says_who_won_is_refused(field: str, kind: str) -> None:
    content, said = a_set(kind), "The treatment is clearly better here."
    if field == "plateau":
        changed = with_row(content, plateau=said)
    else:
        changed = with_row(content, difference=replace(content.rows[0].difference, **{field: said}))
    with pytest.raises(ParibusError, match="says in a sentence who won"):
        due_tunnel(changed)


def test_an_arm_may_be_called_anything() -> None:
    content = a_set()
    named = replace(
        content.rows[0].difference, compared=f"better init {MINUS} base", ratio_sentence="better init needs half."
    )
    assert due_tunnel(with_row(content, difference=named)).rows[0].difference == named


def test_a_word_needs_to_be_of_the_rules_and_to_rest_on_ten_seeds() -> None:
    with pytest.raises(ParibusError, match="no rule gives"):
        due_tunnel(with_row(a_set(FULL), word="superb"))
    with pytest.raises(ParibusError, match="too few seeds"):
        due_tunnel(with_row(a_set(FULL), planned_seeds=9))
    with pytest.raises(ParibusError, match="no such set"):
        due_tunnel(replace(a_set(), set="half"))


def test_the_full_set_shows_words_and_adjusted_p_in_columns_of_their_own(full: Path) -> None:
    page = body_of(full)
    assert '<span class="word better">better by at least the smallest effect</span>' in page
    assert page.count('<span class="word worse">worse</span>') == 2
    assert page.count("<div>0.0234</div>") == 5
    assert "verdicts and adjusted p are of that test, over all 5 rows at 5 % together" in html.unescape(page)
    assert "no words" not in page


def of_a_family(content: TunnelContent) -> TunnelContent:
    """Rows tested at the steps of Holm's procedure over five rows, the last not tested."""
    rows = [
        replace(row, difference=replace(row.difference, interval_confidence=1 - 0.05 / (5 - place)))
        for place, row in enumerate(content.rows[:4])
    ]
    return replace(content, rows=(*rows, replace(content.rows[4], word="not informative", p_holm=None)))


def test_each_interval_of_a_full_set_says_its_own_level_and_the_note_what_each_level_is(tmp_path: Path) -> None:
    content = of_a_family(a_set(FULL))
    table = tunnel_table(due_tunnel(content))
    assert [row[4].rpartition("] ")[2] for row in table.rows] == ["99 %", "98.75 %", "98.33 %", "97.5 %", "95 %"]
    assert all("%" not in cell for row in table.rows for cell in row[5:8]), "milestones have one level, said below"
    assert "A row without an adjusted p was not tested: its interval, 95 %, describes." in table.note
    assert (
        "Milestones: 95 % each, not adjusted, and no word rests on them: of 15 such intervals 0.75 would" in table.note
    )
    page = html.unescape(body_of(render_tunnel(content, tmp_path)))
    assert "mean and paired t interval at the level written beside it" in page
    assert "bars there: 95 % intervals, not adjusted" in page
    figure = tmp_path / "tunnel.svg"
    assert "98.33 % interval" in figure.read_text(encoding="utf-8")
    narrow = tunnel_figure(due_tunnel(content).rows, "narrow", narrow=True).standalone
    assert "98.33 %" in (narrow if isinstance(narrow, str) else narrow.decode()), "on a phone as well"
    data = json.loads((tmp_path / "tunnel.json").read_text(encoding="utf-8"))
    assert data["milestone_confidence"] == MILESTONE_CONFIDENCE == CONFIDENCE
    assert [row["difference"]["interval_confidence"] for row in data["rows"]][:2] == [0.99, 0.9875]


def test_a_full_set_that_tested_every_row_speaks_of_no_other_and_a_smoke_set_has_one_level() -> None:
    assert "not tested" not in tunnel_table(due_tunnel(a_set(FULL))).note
    told = tunnel_table(due_tunnel(a_set())).note
    assert told.startswith("Intervals, those of milestones too: paired t over seeds, 95 %. Direction check: 5 seeds")
    assert "95 % paired t interval" in caption(a_set().rows)


@pytest.mark.parametrize("kind", [SMOKE, FULL])
def test_before_the_planned_seeds_nothing_of_a_row_leaves(kind: str, tmp_path: Path) -> None:
    content = a_set(kind)
    first = content.rows[0]
    early = replace(first.difference, seeds=(0, 1, 2), differences=first.difference.differences[:3])
    page = render_tunnel(with_row(content, difference=early), tmp_path)
    numbers = [repr(x) for x in (*early.differences, *(early.interval or ()), early.area_difference)]
    for file in tmp_path.iterdir():
        told = file.read_text(encoding="utf-8")
        assert not [number for number in numbers if number in told], file.name
        assert f"{MINUS}1.28" not in told
        assert "better by" not in told
    assert f'<div>{DASH} <span class="below">3 of {content.planned_seeds} pairs</span>' in body_of(page)
    assert "1 waiting for planned seeds" in body_of(page)


def test_every_number_of_a_row_stands_in_the_table() -> None:
    row = tunnel_table(due_tunnel(a_set())).rows[0]
    assert row == (
        "deep key or deep content\ncross",
        f"QD\nseparate-routes {MINUS} baseline",
        f"expected {MINUS}",
        "✓ agrees",
        f"{MINUS}1.28\n[{MINUS}1.58, {MINUS}0.98]",
        f"{MINUS}0.64\n[{MINUS}0.94, {MINUS}0.34]\nat 100",
        "+0.43\n[+0.13, +0.73]\nat 200",
        f"{MINUS}1.28\n[{MINUS}1.58, {MINUS}0.98]\nat 300",
        "260 / 185\n4/5, 5/5 seeds",
    )


def test_the_tally_counts_every_row_once() -> None:
    content = due_tunnel(a_set(FULL))
    told = tally_of(content)
    assert told.startswith("5 tasks, 5 rows: ")
    assert sum(map(int, re.findall(r"\d+", told.partition(":")[2]))) == 5
    assert "2 as declared, 1 against it, 1 open, 1 not informative" in told


def test_a_pair_lost_to_divergence_is_told_instead_of_a_mean(tmp_path: Path) -> None:
    content = a_set()
    lost = replace(
        content.rows[0].difference, area_difference=None, interval=None, differences=(-1.2, -1.3, None, -1.1, -1.4)
    )
    page = render_tunnel(with_row(content, difference=lost), tmp_path)
    assert "1 of 5 pairs diverged" in body_of(page)
    assert "no mean: 1 of 5 pairs diverged" in (tmp_path / "tunnel.svg").read_text(encoding="utf-8")


def test_the_small_figure_stands_on_the_side_of_its_difference(smoke: Path) -> None:
    strips = re.findall(r'<path class="bar" d="M(-?[\d.]+) 0H(-?[\d.]+)"/>', body_of(smoke))
    assert len(strips) == len(CASES)
    content = a_set()
    for (low, high), row in zip(strips, content.rows, strict=True):
        interval = row.difference.interval
        assert interval is not None
        # rounded to a tenth of the strip's unit, of which its half has 50
        assert (float(low), float(high)) == pytest.approx([50 * end / scale_of(row) for end in interval], abs=0.051)
        assert abs(float(low)) <= 50 >= abs(float(high))


def test_a_link_leads_to_the_tasks_own_report_and_nowhere_else(tmp_path: Path, smoke: Path) -> None:
    assert '<a href="cross/report.html">' in body_of(smoke)
    bad = with_row(a_set(), report='javascript:alert("1")', task="<b>x")
    page = body_of(render_tunnel(bad, tmp_path))
    assert "javascript:" not in page
    assert "<b>x" not in page


def test_the_json_holds_all_numbers_in_full(full: Path) -> None:
    data = json.loads(full.with_name("tunnel.json").read_text(encoding="utf-8"))
    content = a_set(FULL)
    assert (data["set"], data["planned_seeds"], data["caution"]) == (FULL, 10, CAUTION)
    for found, row in zip(data["rows"], content.rows, strict=True):
        assert found["difference"]["differences"] == list(row.difference.differences)
        assert found["word"] == row.word
    assert data["definitions"][0]["text"]["knobs"] == {"ids": 16}


def test_the_same_records_give_the_same_bytes(smoke: Path, tmp_path: Path) -> None:
    render_tunnel(a_set(), tmp_path)
    for file in tmp_path.iterdir():
        assert file.read_bytes() == smoke.with_name(file.name).read_bytes(), file.name


def test_a_set_without_rows_is_a_page_that_says_so(tmp_path: Path) -> None:
    page = render_tunnel(replace(a_set(), rows=(), definitions=(), caveats=(), environment={}), tmp_path)
    assert "No task is in this set." in body_of(page)


def test_a_terminal_shows_the_same_table() -> None:
    told = to_text(tunnel_table(due_tunnel(a_set())), 100)
    assert "✓ agrees" in told
    assert f"{MINUS}1.28" in told


def test_the_figure_speaks_of_every_row() -> None:
    words = tunnel_figure(due_tunnel(a_set()).rows, "figure").description
    for task, _, _, _, _, _, agreement, _ in CASES:
        assert f"{task}, separate-routes" in words
        assert agreement in words


def undeclared(content: TunnelContent) -> TunnelContent:
    """The first row alone, with no sign declared and no mark."""
    row = content.rows[0]
    return replace(content, rows=(replace(row, difference=replace(row.difference, expected="", agreement="")),))


def test_without_a_mark_on_the_page_none_is_explained(smoke: Path, tmp_path: Path) -> None:
    bare = undeclared(a_set())
    page = body_of(render_tunnel(bare, tmp_path))
    for told in (page, (tmp_path / "tunnel.md").read_text(encoding="utf-8"), tunnel_table(bare).note):
        assert "✓ agrees" not in told
        assert "Grey:" not in told
    assert body_of(smoke).count("✓ agrees: the difference is as declared") == 2, "below the figure and the table"
    blind = replace(bare.rows[0], difference=replace(bare.rows[0].difference, informative=False))
    assert "∅ not informative: every arm" in tunnel_table(replace(bare, rows=(blind,))).note


def test_a_set_without_declared_signs_says_so_instead_of_counting_marks() -> None:
    assert tally_of(undeclared(a_set(FULL))) == "1 task, 1 row: no sign was declared."
    assert tunnel_table(undeclared(a_set())).rows[0][2] == "none"


def test_where_the_arms_end_is_told_once_and_never_lost() -> None:
    content = a_set()
    judged = replace(content.rows[0].difference, informative_sentence="Both sit on the floor (0.00 nats).")
    first, second = readings_table(with_row(content, difference=judged)).rows[:2]
    assert first[2] == "Both sit on the floor (0.00 nats). 0.55 of the updates [0.41, 0.74]."
    assert second[2].startswith("treatment sits on the floor (0.00 nats), baseline between two levels. 0.55 ")


def test_the_settings_of_each_arm_and_how_each_task_was_calibrated_stand_on_the_page(tmp_path: Path) -> None:
    content = replace(
        a_set(),
        arms={"mine": 'output_map = { name = "a.b:mine", strength = 0.5 }'},
        difficulty={"twin": "calibrated: the baseline got half-way at 45 % of the budget"},
    )
    page = html.unescape(body_of(render_tunnel(content, tmp_path)))
    text = (tmp_path / "tunnel.md").read_text(encoding="utf-8")
    for told in (page, text):
        assert 'output_map = { name = "a.b:mine", strength = 0.5 }' in told
        assert "calibrated: the baseline got half-way at 45 % of the budget" in told
        assert "What each arm changes" in told
        assert "How the difficulty of each task was set" in told


def browse(opened: Path, folder: Path, *flags: str) -> tuple[str, list[str]]:
    """What a browser prints on opening a page from disk, and what its console said."""
    assert BROWSER is not None, "PARIBUS_REQUIRE_BROWSER=1 and no chromium on PATH"
    quiet = ("--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync")
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", *quiet, f"--user-data-dir={folder}/profile"]
    command += ["--blink-settings=preferredColorScheme=1", "--enable-logging=stderr", *flags, opened.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


@needs_browser
def test_nothing_scrolls_sideways_at_1280_and_at_420_pixels(full: Path, tmp_path: Path) -> None:
    """In frames of these widths, since a browser window cannot be as narrow as a phone."""
    framed = tmp_path / "framed.html"
    source = html.escape(full.read_text(encoding="utf-8"), quote=True)
    frames = [f'<iframe style="width:{w}px;height:900px;border:0" srcdoc="{source}"></iframe>' for w in (1280, 420)]
    measure = (
        "onload=()=>{document.title=[...document.querySelectorAll('iframe')].map(f=>{const d=f.contentDocument,"
        "t=d.querySelector('table.tunnel').parentElement,"
        "g=[...d.querySelectorAll('figure > div')].filter(e=>e.clientWidth);"
        "return [d.documentElement.scrollWidth,t.scrollWidth-t.clientWidth,g.length,"
        "...g.map(e=>e.scrollWidth-e.clientWidth)].join(' ')}).join(',')}"
    )
    page = f"<!doctype html><title>none</title>{''.join(frames)}<script>{measure}</script>"
    framed.write_text(page, encoding="utf-8")
    dom, _ = browse(framed, tmp_path, "--window-size=1400,1000", "--dump-dom")
    measured = re.findall(r"<title>([^<]+)</title>", dom)[0].split(",")
    # width of the page, overflow of the table, figures that are shown, overflow of each; a scroll bar takes up to 15
    found = [tuple(map(int, one.split())) for one in measured]
    assert [1280 - 15 <= found[0][0] <= 1280, 420 - 15 <= found[1][0] <= 420] == [True, True]
    assert [one[1:] for one in found] == [(0, 1, 0), (0, 1, 0)]


@needs_browser
def test_a_browser_shows_the_page_and_complains_of_nothing(smoke: Path, tmp_path: Path) -> None:
    picture = tmp_path / "page.png"
    flags = ("--window-size=1280,1400", "--hide-scrollbars", f"--screenshot={picture}")
    assert browse(smoke, tmp_path, *flags)[1] == []
    pixels = imread(picture)[..., :3]
    assert len(np.unique(pixels, axis=0)) > 300, "an empty page has few rows of pixels that differ"
    counts, edges = np.histogram(pixels.mean(-1), bins=50, range=(0, 1))
    assert edges[counts.argmax()] > 0.9
