"""The page: complete, self-contained, the same bytes every time, and silent before the planned seeds."""

import json
import re
from collections import Counter
from dataclasses import fields, is_dataclass, replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from paribus.errors import StorageError
from paribus.report import page
from paribus.report.content import ReportContent

SECTIONS = ("verdict", "caveats", "overlap", "sensitivity", "estimates", "by-seed", "noise", "loss", "milestones")
SECTIONS += (
    "budgets",
    "rates",
    "diagnostics",
    "interventions",
    "cost",
    "tasks",
    "tuning",
    "published",
    "equal",
    "parameters",
    "seeds",
    "looks",
)
SECTIONS += ("environment", "repeat")
VOID = {"meta", "link", "br", "hr", "img", "input", "path", "use", "image"}
HOSTILE = '<script>alert("x")</script>&amp; $x_1$ \x00 "quoted" \'single\' ]]>'


class Outline(HTMLParser):
    """Every element with its attributes, the text of the page, and whatever is not well nested."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.faults: list[str] = []
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.words = ""
        self.feed(text)
        self.close()
        self.faults += [f"<{tag}> is never closed" for tag in self.open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        repeated = [name for name, count in Counter(name for name, _ in attrs).items() if count > 1]
        self.faults += [f"<{tag}> has {name} twice" for name in repeated]
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID:
            return
        if not self.open or self.open[-1] != tag:
            self.faults.append(f"</{tag}> closes {self.open[-1:] or 'nothing'}")
        if tag in self.open:
            while self.open.pop() != tag:
                pass

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] != "style":
            self.words += data

    def tags(self, *names: str) -> list[dict[str, str]]:
        return [attributes for tag, attributes in self.elements if tag in names]


def renamed(value: Any, old: str, new: str) -> Any:
    """The same records with one name replaced wherever it stands."""
    if isinstance(value, str):
        return new if value == old else value
    if isinstance(value, tuple):
        return tuple(renamed(entry, old, new) for entry in value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{f.name: renamed(getattr(value, f.name), old, new) for f in fields(value) if f.init})
    return value


@pytest.fixture(scope="session")
def pages(
    written: Path, waiting_written: Path, diverged_study: ReportContent, empty_study: ReportContent
) -> dict[str, str]:
    """Each kind of study, rendered once; the finished and the waiting one have every record."""
    few = {"diagnostics": (), "interventions": (), "route_changes": (), "measurements": ()}
    kinds = {"diverged": replace(diverged_study, **few), "empty": empty_study}
    rendered = {name: page.render(content) for name, content in kinds.items()}
    folders = {"finished": written, "waiting": waiting_written}
    texts = {name: (folder / "report.html").read_text(encoding="utf-8") for name, folder in folders.items()}
    return texts | rendered


@pytest.fixture(params=["finished", "waiting", "diverged", "empty"])
def any_page(request: pytest.FixtureRequest, pages: dict[str, str]) -> str:
    return pages[request.param]


@pytest.fixture(scope="session")
def finished(pages: dict[str, str]) -> Outline:
    return Outline(pages["finished"])


def test_every_kind_of_study_renders_as_well_nested_html_with_unique_ids(any_page: str) -> None:
    outline = Outline(any_page)
    assert outline.faults == []
    ids = [attributes["id"] for _, attributes in outline.elements if "id" in attributes]
    assert [name for name, count in Counter(ids).items() if count > 1] == []
    referred = [a["href"][1:] for _, a in outline.elements if a.get("href", "").startswith("#")]
    referred += [name for _, a in outline.elements for name in a.get("aria-labelledby", "").split()]
    assert set(referred) <= set(ids)


def test_every_section_is_in_order_or_a_line_of_what_is_not_in_the_study(any_page: str) -> None:
    outline = Outline(any_page)
    found = tuple(a["id"] for a in outline.tags("h2"))
    absent = len(outline.tags("dt"))
    assert found == (*(name for name in SECTIONS if name in found), *(["absent"] if absent else []))
    assert len(set(SECTIONS) & set(found)) + absent == len(SECTIONS)
    assert len(outline.tags("h1")) == 1
    levels = [int(tag[1]) for tag, _ in outline.elements if re.fullmatch("h[1-6]", tag)]
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert [len(outline.tags(landmark)) for landmark in ("main", "header", "nav", "footer")] == [1, 1, 1, 1]


def test_a_study_with_every_record_lacks_no_section(finished: Outline) -> None:
    assert tuple(a["id"] for a in finished.tags("h2")) == SECTIONS


def test_what_could_be_wrong_stands_right_below_the_verdicts(pages: dict[str, str]) -> None:
    text = pages["finished"]
    places = [text.index(mark) for mark in ('id="table-verdicts"', 'id="caveats"', "<nav", 'id="estimates"')]
    assert places == sorted(places)


def test_the_question_the_word_and_the_differences_come_before_everything_else(
    study: ReportContent, pages: dict[str, str]
) -> None:
    text = pages["finished"]
    marks = (f"<h1>{study.question}</h1>", study.verdicts[0].sentence, 'id="figure-differences"', "<table", 'id="loss"')
    places = [text.index(mark) for mark in marks]
    assert places == sorted(places)


def test_the_page_asks_for_nothing_outside_itself(any_page: str) -> None:
    outline = Outline(any_page)
    assert outline.tags("script", "iframe", "object", "embed") == []
    for tag, attributes in outline.elements:
        for name in ("src", "href", "xlink:href", "srcset", "action", "data", "poster"):
            assert attributes.get(name, "#").startswith(("#", "data:")), (tag, attributes)
    assert re.findall(r"url\((?!#)[^)]*\)", any_page) == []
    assert "@import" not in any_page
    assert set(re.findall(r"https?://[^\s\"'<]+", any_page)) <= {"http://www.w3.org/2000/svg"}


def folded_in(text: str) -> str:
    """Everything on a page that is closed until a reader opens it."""
    return "".join(re.findall(r"<details>.*?</details>", text, flags=re.S))


def test_gates_are_folded_and_facts_about_pairs_are_not(pages: dict[str, str]) -> None:
    folded = folded_in(pages["finished"])
    assert "1 gates, checked before training" in folded
    assert "a token changes no earlier logit" in folded
    assert "Batches and their order" not in folded


def test_hostile_names_are_shown_and_never_obeyed(study: ReportContent) -> None:
    names = ("rd", "separate value route", "nats per token", "S", "route", "share", "qk", "rd-attnres-small")
    few = tuple(value for value in study.diagnostics if value.layer < 2)
    hostile = replace(study, curves=study.curves[::5], diagnostics=few)
    for number, name in enumerate(names):
        hostile = renamed(hostile, name, f"{HOSTILE}{number}")
    facts = {HOSTILE: HOSTILE}
    free = {
        "question": HOSTILE,
        "repeat_command": HOSTILE,
        "environment": facts,
        "corpus": facts,
        "caveats": (HOSTILE,),
    }
    outline = Outline(page.render(replace(hostile, **free)))
    assert outline.faults == []
    assert outline.tags("script") == []
    shown = HOSTILE.replace("\x00", "\N{REPLACEMENT CHARACTER}")
    assert outline.words.count(shown) >= len(names) + 8
    assert "\x00" not in outline.words


def test_before_the_planned_seeds_no_word_p_interval_or_difference_leaves(
    waiting_study: ReportContent, pages: dict[str, str]
) -> None:
    hidden = waiting_study.verdicts[0]
    assert hidden.mean is not None, "the fixture must hold what the page is to keep back"
    parts = json.loads(page.to_json(waiting_study))
    for readings in ("diagnostics", "interventions", "route_changes"):  # thousands of numbers of single cells
        del parts[readings]
    data = json.dumps(parts).replace("lower_is_better", "")
    words = Outline(re.sub(r'(?s)<h2 id="diagnostics">.*?</section>', "</section>", pages["waiting"])).words
    for text in (words, data):
        for said in ("better", "worse", "equivalent", "inconclusive", "sign-flip p", "treatment diverged"):
            assert said not in text
        assert re.findall(r"\d % (?:t )?interval", text) == []
        for verdict in waiting_study.verdicts:
            assert verdict.mean is not None
            assert f"{abs(verdict.mean):.4f}" not in text
    for row in json.loads(page.to_json(waiting_study))["verdicts"]:
        assert (row["futile"], row["extension"]) == (False, False)
        told = {key for key, value in row.items() if value not in (None, [], "")} - {"futile", "extension"}
        declared = {"name", "treatment", "baseline", "scale", "metric", "unit", "primary", "lower_is_better"}
        assert told == declared | {
            "arms",
            "smallest_effect",
            "design_effect",
            "seeds",
            "planned_seeds",
            "word",
            "sentence",
        }
    assert "losses are of one arm: no difference is shown." in pages["waiting"]


def test_a_finished_study_says_what_a_waiting_one_keeps_back(finished: Outline, study: ReportContent) -> None:
    for said in ("better", "sign-flip p", "95 % interval", f"{abs(study.verdicts[0].mean or 0):.4f}"):
        assert said in finished.words


def test_a_diverged_cell_stays_in_the_table_and_is_counted(pages: dict[str, str]) -> None:
    words = Outline(pages["diverged"]).words
    assert "1 of 20 cells diverged; none was dropped or replaced." in words
    assert "withheld: divergence" in words
    assert "1 of 5 pairs diverged" in words
    # Either has what is held unequal; the one a field tuned to the edge, a model of one letter, a task that needs no
    # question, a spike that stayed and what is known of a run that diverged, the other a diverged cell.
    assert [pages[kind].count('<tr class="bad">') for kind in ("finished", "diverged")] == [6, 2]
    assert 'class="bad"' in pages["diverged"].partition('<h2 id="seeds">')[2]


def test_a_correctness_check_is_a_note_and_what_no_arm_has_is_left_out(finished: Outline) -> None:
    assert "A correctness check of the arms in which it is true by construction" in finished.words
    assert "No value has been read." not in finished.words


def test_mid_schedule_milestones_are_labelled_and_the_last_is_not(finished: Outline) -> None:
    assert "9.83M tokens (mid-schedule)" in finished.words
    assert "19.7M tokens:" in finished.words


def test_figures_and_tables_speak_for_themselves(finished: Outline) -> None:
    figures = finished.tags("svg")
    assert len(figures) == len(finished.tags("figure")) + 1 > 10, "one figure has a narrow form too"
    for figure in figures:
        assert figure["role"] == "img"
        assert figure["aria-labelledby"] == f"{figure['id']}-title {figure['id']}-desc"
    tables = len(finished.tags("table"))
    assert len(finished.tags("caption")) == tables > 20
    assert {a.get("scope") for a in finished.tags("th")} == {"col", "row"}


def test_data_beside_the_page_is_json_without_nan(diverged_study: ReportContent) -> None:
    data = json.loads(page.to_json(diverged_study), parse_constant=lambda name: pytest.fail(f"{name} in the JSON"))
    assert len(data["cells"]) == 20
    assert data["verdicts"][0]["differences"].count(None) == 1


def test_readings_of_every_seed_are_rows_beside_the_page(study: ReportContent) -> None:
    data = json.loads(page.to_json(study))
    for name, records in (
        ("diagnostics", study.diagnostics),
        ("interventions", study.interventions),
        ("route_changes", study.route_changes),
    ):
        columns, rows = data[name]["columns"], data[name]["rows"]
        assert len(rows) == len(records) >= 100 or name == "interventions"
        for row, record in zip(rows, records, strict=True):
            told = dict(zip(columns, row, strict=True))
            assert all(told[key] == value for key, value in vars(record).items() if not isinstance(value, tuple))
    lines = page.to_json(study).splitlines()
    assert len(lines) < len(study.diagnostics) + len(study.interventions) + len(study.route_changes) + 1500


def test_words_of_verdicts_never_stand_on_diagnostics_or_interventions(pages: dict[str, str]) -> None:
    for kind in ("finished", "waiting"):
        text = pages[kind]
        start = text.index('<h2 id="diagnostics">')
        inside = text[start : text.index("</section>", text.index('<h2 id="interventions">'))]
        for word in ("better", "worse", "equivalent", "inconclusive", "significant"):
            assert word not in inside


def test_what_is_read_by_head_is_folded_once_and_never_drawn(pages: dict[str, str]) -> None:
    text = pages["finished"]
    folded = folded_in(text)
    assert text.count("head:1") == folded.count("head:1") == 4  # one an arm


def test_a_study_without_interventions_says_so(pages: dict[str, str]) -> None:
    assert "No intervention was made in this study." in pages["empty"]
    assert "No intervention was made in this study." not in pages["finished"]


def test_a_refused_write_leaves_nothing_behind_and_says_what_to_do(empty_study: ReportContent, tmp_path: Path) -> None:
    (tmp_path / "report.html").mkdir()
    with pytest.raises(StorageError, match="free space or make the folder writable"):
        page.write(empty_study, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "figures",
        "report.html",
        "report.json",
        "report.md",
        "tables",
        "verdict.md",
        "verdict.svg",
    ]
    assert [path for path in tmp_path.rglob("*") if path.name.endswith(".partial")] == []


def test_the_verdict_alone_lies_beside_the_page(study: ReportContent, written: Path) -> None:
    assert (written / "verdict.svg").read_text().startswith("<svg")
    table, _, notes = (written / "verdict.md").read_text().partition("\n\n")
    assert len(table.splitlines()) == 2 + len(study.verdicts)
    assert "- all contrasts: the exact sign-flip p cannot be below 0.0625 with 5 seeds" in notes


def test_details_of_diagnostics_are_folded_and_the_glance_is_open(pages: dict[str, str]) -> None:
    text = pages["finished"]
    start = text.index('<h2 id="diagnostics">')
    inside = text[start : text.index("</section>", start)]
    folded = folded_in(inside)
    assert "At a glance: means over layers and seeds" not in folded
    assert "At a glance: means over layers and seeds" in inside
    assert inside.count("<svg") == folded.count("<svg") > 0
    assert "details::details-content { content-visibility: visible;" in text.partition("@media print")[2]


def test_only_a_watched_page_loads_itself_again_and_says_how_far_the_study_is(
    waiting_study: ReportContent, pages: dict[str, str]
) -> None:
    watched = page.render(replace(waiting_study, curves=(), measurements=(), diagnostics=()), refresh_seconds=20)
    outline = Outline(watched)
    assert [a["content"] for a in outline.tags("meta") if a.get("http-equiv") == "refresh"] == ["20"]
    assert [(a["value"], a["max"]) for a in outline.tags("progress")] == [("12", "20")]
    assert "12 of 20 training runs complete (8 missing)." in outline.words
    assert outline.tags("script") == []
    assert 'http-equiv="refresh"' not in pages["waiting"]
    assert "<progress" not in pages["waiting"]


def test_the_first_figure_has_a_form_for_a_phone_that_shows_the_same(finished: Outline, pages: dict[str, str]) -> None:
    wide, narrow = (
        next(a for a in finished.tags("svg") if a["id"] == name)
        for name in ("figure-differences", "figure-differences-narrow")
    )
    widths = [float(a["viewbox"].split()[2]) for a in (wide, narrow)]
    assert widths[1] < widths[0] / 2
    assert narrow["style"] == "width:100%"
    described = re.findall(r'<desc id="figure-differences(?:-narrow)?-desc">(.*?)</desc>', pages["finished"])
    assert described[0] == described[1]
