"""What lies beside the page: for programs, for a paper, for a pull request. The same records give the same bytes."""

import csv
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from paribus.errors import StorageError
from paribus.report import latex, markdown, page, rows, tables
from paribus.report.content import ReportContent
from paribus.report.evidence import shown_rows
from paribus.report.files import replace_files
from paribus.stats.rounding import MINUS

TOP = ["report.html", "report.json", "report.md", "verdict.md", "verdict.svg"]
FIGURES = (
    "budgets",
    "cost",
    "differences",
    "differences-by-seed",
    "gold-bits",
    "core-shares",
    "letters",
    "loss",
    "milestones",
    "published",
    "sensitivity",
    "tuning",
    "verdict",
)
CSVS = ("budgets", "cells", "costs", "diverged", "estimates", "pairs", "spikes", "trials", "updates", "verdicts")
CSVS = (*CSVS, "tasks", "task-pairs", "core", "core-differences", "core-shares", "letters", "counterfactuals")
TEXS = ("cost", "estimates", "seeds", "tuning", "verdicts")
TEXS = (*TEXS, "tasks", "task-pairs", "core", "core-differences", "core-shares", "counterfactuals")


def names_below(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def read(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_a_report_is_these_files_and_lists_those_that_lie_below_it(written: Path) -> None:
    below = [f"figures/{name}.{kind}" for name in FIGURES for kind in ("pdf", "svg")]
    below += [f"tables/{name}.csv" for name in CSVS] + [f"tables/{name}.tex" for name in TEXS]
    assert names_below(written) == sorted([*TOP, *below])
    assert json.loads((written / "report.json").read_text(encoding="utf-8"))["files"] == sorted(below)


ANOTHER_PROCESS = """
import importlib.util, sys
from pathlib import Path
spec = importlib.util.spec_from_file_location("conftest", sys.argv[1])
sys.modules["conftest"] = conftest = importlib.util.module_from_spec(spec)
spec.loader.exec_module(conftest)
conftest.page.write(conftest.with_records(conftest.build(conftest.Fake())), Path(sys.argv[2]))
"""


def test_another_process_with_other_hashes_writes_the_same_bytes(written: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", ANOTHER_PROCESS, str(Path(__file__).with_name("conftest.py")), str(tmp_path)]
    subprocess.run(command, env=os.environ | {"PYTHONHASHSEED": "12345"}, check=True)
    sums = [
        {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names_below(folder)}
        for folder in (written, tmp_path)
    ]
    assert len(sums[0]) == len(TOP) + 2 * len(FIGURES) + len(CSVS) + len(TEXS)
    assert sums[0] == sums[1]


def test_a_pdf_carries_no_date_no_maker_and_letters_instead_of_outlines(written: Path) -> None:
    for name in FIGURES:
        data = (written / "figures" / f"{name}.pdf").read_bytes()
        assert data.startswith(b"%PDF")
        assert not re.search(rb"/(CreationDate|ModDate|Producer|Creator)", data)
        assert b"/FontFile2" in data, "TrueType, which publishers accept"
        assert b"/Type3" not in data


def test_a_figure_on_its_own_is_xml_with_words_and_a_size(written: Path) -> None:
    for name in FIGURES:
        root = ElementTree.parse(written / "figures" / f"{name}.svg").getroot()
        assert int(root.attrib["width"]) > 400
        assert "currentColor" not in (written / "figures" / f"{name}.svg").read_text(encoding="utf-8")
        assert all(len(root.findtext(f"{{http://www.w3.org/2000/svg}}{part}") or "") > 5 for part in ("title", "desc"))


def test_a_csv_holds_every_number_in_full(full_study: ReportContent) -> None:
    shown = shown_rows(full_study)
    files = rows.csv_files(full_study, shown)
    assert sorted(files) == sorted(f"{name}.csv" for name in CSVS)
    verdict = read(files["verdicts.csv"])[0]
    first = shown[0]
    assert first.interval is not None
    assert float(verdict["mean"]) == first.mean
    assert (float(verdict["interval_low"]), float(verdict["interval_high"])) == first.interval
    assert verdict["word"] == "better by at least the smallest effect"
    pairs = [row for row in read(files["pairs.csv"]) if row["contrast"] == first.name]
    assert [float(row["difference"]) for row in pairs] == list(first.differences)
    assert [float(row["difference_nats_per_token"]) for row in read(files["budgets.csv"])] == [
        difference for gap in full_study.budget_gaps for difference in gap.differences
    ]
    assert len(read(files["cells.csv"])) == len(full_study.cells)
    cost = read(files["costs.csv"])[0]
    assert (cost["break_even_interval_low"], cost["break_even_interval_high"]) == ("1.1", "")
    assert [float(row["score_nats_per_token"]) for row in read(files["trials.csv"])] == [
        score for trial in full_study.trials for score in trial.scores
    ]


def test_a_list_in_a_csv_is_words_between_semicolons_or_numbers_between_spaces(full_study: ReportContent) -> None:
    verdict = replace(full_study.verdicts[0], looks=(5, 8), uncounted_seeds=(), notes=("a, b", "c"))
    told = replace(full_study, verdicts=(verdict,))
    (row,) = read(rows.csv_files(told, shown_rows(told))["verdicts.csv"])
    assert (row["looks"], row["uncounted_seeds"], row["notes"]) == ("5 8", "", "a, b; c")
    assert row["arms"] == "; ".join(verdict.arms)


def test_a_csv_tells_what_is_not_a_number_from_what_is_not_there(diverged_study: ReportContent) -> None:
    files = rows.csv_files(diverged_study, shown_rows(diverged_study))
    lost = next(row for row in read(files["cells.csv"]) if row["state"] == "diverged")
    assert (lost["final_training_loss_nats_per_token"], lost["test_nats_per_token"]) == ("nan", "")
    pair = next(row for row in read(files["pairs.csv"]) if row["diverged"] == "true")
    assert pair["difference"] == ""
    assert read(files["budgets.csv"]) == []


def braces(text: str) -> int:
    bare = re.sub(r"\\[{}]", "", text)
    return bare.count("{") - bare.count("}")


def test_latex_tables_are_whole_and_have_as_many_cells_in_each_row(full_study: ReportContent) -> None:
    files = latex.tex_files(full_study, shown_rows(full_study))
    assert sorted(files) == sorted(f"{name}.tex" for name in TEXS)
    for text in files.values():
        assert text.startswith(r"% needs \usepackage{booktabs")
        assert braces(text) == 0
        begun, ended = (re.findall(rf"\\{which}{{(\w+)}}", text) for which in ("begin", "end"))
        assert begun == ended[::-1]
        assert [text.count(rf"\{rule}rule") for rule in ("top", "mid", "bottom")] == [1, 1, 1]
        (kinds,) = re.findall(r"\\begin{tabular}{(.*)}", text)
        columns = len(re.findall(r"[lr]|p{[^}]*}", kinds))
        body = [line for line in text.splitlines() if line.endswith(r"\\")]
        assert {len(re.findall(r"(?<!\\)&", line)) for line in body} == {columns - 1}
    assert f"{MINUS}" not in files["verdicts.tex"]
    assert r"110\,156\,544 (+36\,864, 0.033 \%)" in files["verdicts.tex"]


def test_a_table_longer_than_a_page_breaks_over_pages() -> None:
    column = (tables.Column("name"), tables.Column("value", "nats", numeric=True))
    long = tables.Table("c", column, tuple((str(i), "1") for i in range(latex.PAGE_ROWS + 1)))
    text = latex.to_latex(long, "tab:x")
    assert text.count(r"\toprule") == 2
    assert [text.count(part) for part in (r"\begin{longtable}{lr}", r"\endhead", r"\end{longtable}", "& nats")] == [
        1,
        1,
        1,
        2,
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("50 % of a_b & #1 {x} ~ ^", r"50 \% of a\_b \& \#1 \{x\} \textasciitilde{} \textasciicircum{}"),
        ("\\input{x}", r"\textbackslash{}input\{x\}"),
        (f"{MINUS}0.5 ±0.1", r"$-$0.5 $\pm$0.1"),
        ("2 \N{MULTIPLICATION SIGN} 10⁻¹²", r"2 $\times$ 10$^{-12}$"),
        ("a\x00b\tc", "a b c"),
    ],
)
def test_latex_prints_a_name_as_it_stands(text: str, expected: str) -> None:
    assert latex.escape(text) == expected


def test_a_row_that_begins_with_a_bracket_is_no_argument_of_the_line_break() -> None:
    table = tables.Table("c", (tables.Column("a"), tables.Column("b")), (("x", "y"), ("[1, 2]", "z")))
    assert "\n{}[1, 2] & z" in latex.to_latex(table, "tab:x")


def test_the_report_for_a_pull_request_says_question_answer_doubts_and_how(
    full_study: ReportContent, written: Path
) -> None:
    text = (written / "report.md").read_text(encoding="utf-8")
    heads = re.findall(r"^#+ (.*)$", text, flags=re.M)
    assert heads == [
        full_study.question,
        "Verdicts",
        "Without overlap with training text",
        "Sensitivity: the schedule and other values",
        "The same contrasts at other learning rates",
        "Estimates",
        "A/A: how much is noise",
        "Beyond the budget",
        "Cost",
        "Downstream tasks",
        "Tuning",
        "Published figures",
        "What could still be wrong",
        "How to repeat it",
    ]
    assert "**better by at least the smallest effect.**" in text
    assert all(f"- {caveat}\n" in text for caveat in full_study.caveats)
    assert f"```sh\n{full_study.repeat_command}\n```" in text
    assert len(text) < 13_000
    for said in ("perturbed twin", "unbounded", "| 19.7B | 4 |", "Both neighbours lose.", "A paper, table 2"):
        assert said in text


def test_no_name_can_open_a_tag_a_link_or_a_fence_in_markdown(study: ReportContent) -> None:
    hostile = replace(
        study,
        question="# <img src=x> [a](javascript:1) `x",
        caveats=("- <b>bold</b> | pipe", "```"),
        repeat_command="echo ```\necho two",
    )
    text = markdown.report(hostile, shown_rows(hostile))
    assert "<img" not in text
    assert "<b>" not in text
    assert text.startswith("# \\# &lt;img src=x> \\[a\\](javascript:1) \\`x\n")
    assert "````sh\necho ```\necho two\n````" in text


def test_what_an_earlier_report_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    listing = json.dumps({"files": ["figures/cost.pdf", "tables/a.csv"]})
    replace_files(tmp_path, {"figures/cost.pdf": b"x", "tables/a.csv": "a", "report.json": listing}, "report.json")
    (tmp_path / "figures" / "mine.png").write_bytes(b"mine")
    replace_files(tmp_path, {"tables/a.csv": "b", "report.json": "{}"}, "report.json")
    assert names_below(tmp_path) == ["figures/mine.png", "report.json", "tables/a.csv"]


def test_a_listing_that_names_files_elsewhere_removes_none_of_them(tmp_path: Path) -> None:
    folder = tmp_path / "report"
    (folder / "cells").mkdir(parents=True)
    kept = [tmp_path / "outside", folder / "cells" / "x", folder / "verdict.svg"]
    for path in kept:
        path.write_text("kept")
    names = ["../outside", "tables/../../outside", "cells/x", "verdict.svg", "/etc/x", "figures/..", 3, "figures/"]
    (folder / "report.json").write_text(json.dumps({"files": names}))
    replace_files(folder, {"report.json": "{}"}, "report.json")
    assert all(path.exists() for path in kept)


def test_a_watched_report_has_no_exports_and_the_last_one_has_them_all(
    bare_study: ReportContent, written: Path, tmp_path: Path
) -> None:
    shutil.copytree(written, tmp_path, dirs_exist_ok=True)
    assert (tmp_path / "figures" / "cost.pdf").exists()
    page.write(bare_study, tmp_path, refresh_seconds=5)
    assert names_below(tmp_path) == TOP
    assert 'http-equiv="refresh"' in (tmp_path / "report.html").read_text(encoding="utf-8")


_ANSWERS = ("tasks", "task_pairs", "core", "core_differences", "core_shares", "letters", "counterfactuals")
_CONTRASTS = ("estimates", "budget_gaps", "gap_forms", "budget_summaries", "robustness", "sensitivity", "overlap")


def test_the_json_holds_the_records_of_every_section(full_study: ReportContent) -> None:
    data = json.loads(page.to_json(full_study), parse_constant=lambda name: pytest.fail(f"{name} in the JSON"))
    assert data["format"] == 8
    for name in ("caveats", "repeat_command", "environment", "corpus", "pairing_proven"):
        held = getattr(full_study, name)
        assert data[name] == (list(held) if isinstance(held, tuple) else held)
    assert [look["words"] for look in data["looks"]] == [dict(look.words) for look in full_study.looks]
    for name in ("held_equal", "parameters", "cells"):
        assert [sorted(row) for row in data[name]] == [sorted(vars(row)) for row in getattr(full_study, name)]
    told = [dict(zip(data["measurements"]["columns"], row, strict=True)) for row in data["measurements"]["rows"]]
    assert told == [vars(measurement) for measurement in full_study.measurements]
    assert data["costs"][0]["step_time_ratio"] == 1.062
    assert [row["kind"] for row in data["noise"]] == ["other seed", "perturbed twin", "repeat"]
    for name in (*_CONTRASTS, "trials", "tuning", "published", *_ANSWERS):
        assert len(data[name]) == len(getattr(full_study, name)) > 0
    assert data["task_pairs"][0]["gold_bits_interval"] == list(full_study.task_pairs[0].gold_bits_interval or ())
    assert [row["mean"] for row in data["robustness"]] == [row.mean for row in full_study.robustness]


def test_a_folder_that_cannot_be_made_is_the_error_and_not_what_is_tidied_up_after_it(tmp_path: Path) -> None:
    (tmp_path / "figures").write_text("a file")
    with pytest.raises(StorageError, match="the report could not be written"):
        replace_files(tmp_path, {"figures/cost.svg": "x"}, "report.json")
