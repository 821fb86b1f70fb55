"""Finished studies whose evidence was lost, torn or edited: there is a report, and it says what cannot be concluded.

Every damage is done to a copy of a study that was really trained; what a report says of it is read from its Markdown,
its JSON and the terminal. Two damages share a study only where they hit different contrasts.
"""

import json
import math
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from paribus.draining import train_missing
from paribus.experiment import loading
from paribus.reading.evidence import verdicts_of
from paribus.reading.study import read_study
from paribus.report import page
from paribus.report.content import ReportContent
from paribus.reporting.assemble import report_content
from paribus.runs.folder import CellFolder
from paribus.stats.rule import Word
from paribus.study import open_study, write_plan

Cli = Callable[..., tuple[int, str, str]]
Text = Callable[..., str]
TEST, MIDDLE = "likelihood/test-00000020", "likelihood/test-00000010"


@pytest.fixture(autouse=True)
def _without_figures_for_a_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are drawn from the same content and take most of a report's time."""
    monkeypatch.setattr(page, "_exports", lambda *_: {})


@pytest.fixture
def copied(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The finished study without its corpus and checkpoints, which no report reads, as the working folder."""
    shutil.copytree(finished, tmp_path / "study", ignore=shutil.ignore_patterns("checkpoints", "corpus", "figures"))
    monkeypatch.chdir(tmp_path / "study")
    return tmp_path / "study"


def cell(folder: Path, arm: str, seed: int, variant: str = "") -> CellFolder:
    found = (folder / "runs" / "tiny" / "tiny" / arm).glob(f"{seed}-*")
    return CellFolder(next(path for path in found if "".join(path.name.split("-", 2)[2:]) == variant))


def signed(damaged: CellFolder) -> None:
    """Write the digests anew, so that the damage looks like what training left."""
    damaged.finish(damaged.summary())


def edit(damaged: CellFolder, name: str, change: Callable[[dict[str, list[Any]]], object]) -> None:
    rows = damaged.rows(name).to_pydict()
    change(rows)
    damaged.write_rows(name, rows)


def edit_json(path: Path, change: Callable[[Any], object]) -> None:
    """As a person does who means it: without the checksum, which would say that the file was changed."""
    content = json.loads(path.read_text(encoding="utf-8"))
    del content["checksum"]
    change(content)
    path.write_text(json.dumps(content), encoding="utf-8")


def diverged(damaged: CellFolder) -> None:
    damaged.finish({"reason": "the training loss became nan at step 7", "step": 7}, diverged=True)
    (damaged.path / "DONE").unlink()


@dataclass(frozen=True)
class Reported:
    """What `paribus report` left."""

    printed: str
    doubts: str
    """the section of the Markdown on what could still be wrong, in one line"""
    verdicts: dict[str, dict[str, Any]]
    cells: dict[tuple[str, int], dict[str, Any]]
    """by name of the arm (with its variant) and seed"""
    data: dict[str, Any]


@pytest.fixture
def report(cli: Cli) -> Callable[[Path], Reported]:
    """Report on the study in a folder; whatever was done to it, there is a report and no cell is touched."""

    def run(folder: Path) -> Reported:
        runs = folder / "runs" / "tiny"
        files = [path for path in (runs / "tiny").rglob("*") if path.is_file()]
        before = {path: path.read_bytes() for path in files}
        status, out, err = cli("report", "study.toml")
        assert (status, err) == (0, ""), err
        assert {path: path.read_bytes() for path in files} == before, "nothing that was computed is lost"
        markdown = (runs / "report.md").read_text(encoding="utf-8")
        html = re.sub(
            r"(?s)<svg.*?</svg>|<style.*?</style>|<script.*?</script>", "", (runs / "report.html").read_text()
        )
        for shown in (markdown, html, out):
            assert not re.search(r"(?<![\w-])(nan|inf|NaN|None)(?![\w-])(?! at step)", shown)
        data = json.loads((runs / "report.json").read_text(encoding="utf-8"))
        cells = {(c["arm"], c["seed"]): c for c in data["cells"]}
        for found in data["cells"]:
            if found["state"] != "complete":
                numbers = {key: value for key, value in found.items() if "_per_" in key or key == "train_seconds"}
                assert not any(numbers.values()), f"a {found['state']} cell shows {numbers}"
        doubts = markdown.partition("## What could still be wrong")[2].partition("\n## ")[0]
        verdicts = {verdict["name"]: verdict for verdict in data["verdicts"]}
        return Reported(out, " ".join(doubts.replace("\\", "").split()), verdicts, cells, data)

    return run


@pytest.fixture
def content() -> Callable[[Path], ReportContent]:
    """What a report on the study in a folder is made of, without the page."""

    def of(folder: Path) -> ReportContent:
        read = read_study(loading.load(folder / "study.toml"), folder / "runs")
        return report_content(read, verdicts_of(read), "")

    return of


UNUSABLE: dict[str, tuple[Callable[[CellFolder], object], str]] = {
    "a NaN row": (
        lambda c: (edit(c, TEST, lambda r: r["nats"].__setitem__(0, math.nan)), signed(c)),
        f"{TEST}.parquet holds no finite nats for 1 of ",
    ),
    "a missing number": (
        lambda c: (edit(c, MIDDLE, lambda r: r["nats"].__setitem__(0, None)), signed(c)),
        f"{MIDDLE}.parquet holds no finite nats for 1 of ",
    ),
    "words for numbers": (
        lambda c: (edit(c, TEST, lambda r: r.update(nats=["low"] * len(r["nats"]))), signed(c)),
        f"{TEST}.parquet holds nats that are no numbers",
    ),
    "nats below zero": (
        lambda c: (edit(c, TEST, lambda r: r["nats"].__setitem__(0, -50.0)), signed(c)),
        f"{TEST}.parquet holds nats below 0",
    ),
    "no tokens": (
        lambda c: (edit(c, TEST, lambda r: r.update(tokens=[0] * len(r["tokens"]))), signed(c)),
        f"{TEST}.parquet holds tokens that are not above 0",
    ),
    "a document twice": (
        lambda c: (edit(c, TEST, lambda r: r.update({k: v + v[:1] for k, v in r.items()})), signed(c)),
        f"{TEST}.parquet holds a document twice",
    ),
    "no document": (
        lambda c: (edit(c, TEST, lambda r: r.update({k: v[:0] for k, v in r.items()})), signed(c)),
        f"{TEST}.parquet holds no",
    ),
    "no column": (
        lambda c: (edit(c, TEST, lambda r: r.pop("nats")), signed(c)),
        f"{TEST}.parquet has no column 'nats'",
    ),
    "two ends": (
        lambda c: (shutil.copy(c.path / f"{TEST}.parquet", c.path / f"{TEST[:-1]}1.parquet"), signed(c)),
        "the test split has several ends of the schedule",
    ),
    "torn rows": (
        lambda c: ((c.path / f"{TEST}.parquet").write_bytes(b"PAR1"), signed(c)),
        f"{TEST}.parquet is not readable",
    ),
    "torn diagnostics": (
        lambda c: ((c.path / "diagnostics" / "00000020.parquet").write_bytes(b"PAR1"), signed(c)),
        "diagnostics/00000020.parquet is not readable",
    ),
    "torn metrics": (
        lambda c: (
            (c.path / "metrics.jsonl").write_bytes((c.path / "metrics.jsonl").read_bytes()[:-30]),
            signed(c),
        ),
        "metrics.jsonl: ends at update 19 of 20",
    ),
    "metrics that are no JSON": (
        lambda c: ((c.path / "metrics.jsonl").write_text("{oops\n", encoding="utf-8"), signed(c)),
        "metrics.jsonl: line 1 of 1 is damaged",
    ),
    "a NaN loss": (
        lambda c: (
            (c.path / "metrics.jsonl").write_text('{"step": 1, "tokens_seen": 2, "loss_nats_per_token": NaN}\n'),
            signed(c),
        ),
        "metrics.jsonl: line 1: loss_nats_per_token: ",
    ),
    "no cell.json": (lambda c: (c.path / "cell.json").unlink(), "cell.json is not as it was written"),
    "a cell.json without digests": (
        lambda c: edit_json(c.path / "cell.json", lambda r: r.pop("initial_digests")),
        "cell.json is not as it was written (initial_digests: ",
    ),
    "a cell.json that was edited and left its checksum": (
        lambda c: (c.path / "cell.json").write_text(
            (c.path / "cell.json").read_text().replace('"seed": 1', '"seed": 2')
        ),
        "cell.json is not as it was written (its checksum is ",
    ),
    "another cell's cell.json": (
        lambda c: edit_json(c.path / "cell.json", lambda r: r.update(arm="standard")),
        "cell.json is that of tiny/standard/1",
    ),
    "an empty DONE": (lambda c: (c.path / "DONE").write_text(""), "DONE is not as it was written"),
    "a bare DONE": (lambda c: (c.path / "DONE").write_text("{}"), "DONE is not as it was written (steps: "),
    "both ends": (lambda c: c.finish({"reason": "", "step": 1}, diverged=True), "marked DONE and DIVERGED at once"),
}
ALTERED: dict[str, tuple[Callable[[CellFolder], object], str]] = {
    "a hand-edited row": (
        lambda c: edit(c, TEST, lambda r: r["nats"].__setitem__(0, r["nats"][0] - 20)),
        f"{TEST}.parquet was changed",
    ),
    "a missing row file": (lambda c: (c.path / f"{TEST}.parquet").unlink(), f"{TEST}.parquet is missing"),
    "an unreadable row file": (
        lambda c: (c.path / f"{TEST}.parquet").write_bytes(b"no rows"),
        f"{TEST}.parquet was changed",
    ),
    "a torn metrics.jsonl": (
        lambda c: (c.path / "metrics.jsonl").write_bytes((c.path / "metrics.jsonl").read_bytes()[:-30]),
        "metrics.jsonl was changed",
    ),
    "a folder for a row file": (
        lambda c: ((c.path / f"{TEST}.parquet").unlink(), (c.path / f"{TEST}.parquet").mkdir()),
        f"{TEST}.parquet is missing",
    ),
    "an added row file": (
        lambda c: shutil.copy(c.path / f"{MIDDLE}.parquet", c.path / "likelihood" / "test-00000099.parquet"),
        "likelihood/test-00000099.parquet was added",
    ),
}


@pytest.mark.parametrize("damage", [*UNUSABLE, *ALTERED])
def test_a_damaged_cell_is_read_as_not_used_with_what_is_wrong_and_costs_only_its_own_pairs(copied: Path, damage: str):
    done, said = {**UNUSABLE, **ALTERED}[damage]
    done(cell(copied, "xsa", 1))
    read = read_study(loading.load(copied / "study.toml"), copied / "runs")
    found = read.cells["tiny", "xsa", 1, ""]
    assert found.state == ("unusable" if damage in UNUSABLE else "altered")
    (why,) = (*found.alterations, *found.faults)
    assert said in why
    assert found.measurements == found.metrics == []
    assert found.final("test.nll") is None
    assert {key: c.state for key, c in read.cells.items() if c.state != "complete"} == {found.key: found.state}
    pairs = {verdict.name: (verdict.seeds, verdict.word is Word.WAITING) for verdict in verdicts_of(read)}
    assert pairs == {"block": (3, False), "xsa": (2, True), "rd": (3, False)}


def test_a_nan_row_is_no_number_and_no_crash_and_the_page_names_its_cell(copied: Path, report):
    arm = "block"
    UNUSABLE["a NaN row"][0](cell(copied, arm, 1))
    ALTERED["a hand-edited row"][0](cell(copied, "rd", 2))
    found = report(copied)
    assert f"Cell tiny/{arm}/1 is not used: {TEST}.parquet holds no finite nats for 1 of " in found.doubts
    assert f"Cell tiny/rd/2 is not used: {TEST}.parquet was changed after the cell had ended." in found.doubts
    assert f"Contrast {arm} lacks 1 of 3 pairs: tiny/{arm}/1 (unusable)." in found.doubts
    assert (found.cells[arm, 1]["state"], found.cells["rd", 2]["state"]) == ("unusable", "altered")
    assert found.verdicts[arm]["word"] == Word.WAITING.value
    assert found.verdicts[arm]["mean"] is found.verdicts[arm]["interval"] is None
    assert "2 cells are not complete" in found.printed


def test_stale_and_missing_cells_show_no_number_and_leave_every_other_contrast(copied: Path, report):
    change = 'output_map = { name = "xsa", strength = 0.5 }'
    file = (copied / "study.toml").read_text(encoding="utf-8")
    (copied / "study.toml").write_text(file.replace('output_map = { name = "xsa" }', change), encoding="utf-8")
    shutil.rmtree(cell(copied, "rd", 0).path)
    found = report(copied)
    assert {state for (arm, _), c in found.cells.items() if (state := c["state"]) and arm == "xsa"} == {"stale"}
    assert "Contrast xsa lacks 3 of 3 pairs: tiny/xsa/0 (stale), tiny/xsa/1 (stale), tiny/xsa/2" in found.doubts
    assert "Contrast rd lacks 1 of 3 pairs: tiny/rd/0 (missing)." in found.doubts
    assert found.verdicts["block"]["seeds"] == 3
    assert found.verdicts["block"]["interval"] is not None


def test_a_metric_that_no_cell_has_and_milestones_that_only_some_have_are_said(copied: Path, content):
    for seed in range(3):
        for path in (cell(copied, "xsa", seed).path / "likelihood").glob("test-*"):
            path.unlink()
        (cell(copied, "rd", seed).path / f"{MIDDLE}.parquet").unlink()
        signed(cell(copied, "xsa", seed))
        signed(cell(copied, "rd", seed))
    found = content(copied)
    doubts, pairs = " ".join(found.caveats), {verdict.name: verdict.seeds for verdict in found.verdicts}
    missing = "tiny/xsa/0, tiny/xsa/1, tiny/xsa/2"
    assert f"Contrast xsa: no test.nll in the rows of {missing}; nothing is concluded from them." in doubts
    assert "Contrast rd: its cells were measured at different numbers of tokens" in doubts
    assert (pairs["xsa"], pairs["rd"]) == (0, 3)


def test_cells_that_scored_other_documents_are_no_pair(copied: Path, content):
    other = cell(copied, "xsa", 1)
    edit(other, TEST, lambda rows: rows.update({name: values[:-1] for name, values in rows.items()}))
    signed(other)
    found = content(copied)
    said = "Contrast xsa: the cells of seed 1 did not score the same documents of the test split; nothing is concluded"
    assert any(said in caveat for caveat in found.caveats)
    assert {v.name: (v.seeds, v.word) for v in found.verdicts}["xsa"] == (2, Word.WAITING)
    assert [row.seed for row in found.pairs if row.contrast == "xsa"] == [0, 2]


def test_identical_differences_are_no_information(copied: Path, content):
    for seed in range(3):
        treatment, baseline = cell(copied, "block", seed), cell(copied, "standard", seed)
        shutil.copytree(baseline.path / "likelihood", treatment.path / "likelihood", dirs_exist_ok=True)
        signed(treatment)
    verdict = next(verdict for verdict in content(copied).verdicts if verdict.name == "block")
    assert verdict.word is Word.NO_INFORMATION
    assert verdict.p_t is verdict.interval is verdict.p_equivalence is None
    assert "identical" in verdict.sentence


def test_an_arm_that_diverged_loses_its_pairs_and_gets_no_word(copied: Path, report):
    for seed in range(3):
        diverged(cell(copied, "block", seed))
    found = report(copied)
    for name, lost in (("block", "treatment_diverged"), ("rd", "baseline_diverged")):
        verdict = found.verdicts[name]
        assert (verdict["word"], verdict["seeds"], verdict[lost]) == (Word.DIVERGENCE.value, 3, 3)
        assert verdict["interval"] is None
    assert found.verdicts["block"]["wins"] == 0
    assert found.cells["block", 1]["state"] == "diverged"
    assert "3 of 13 cells are diverged." in found.doubts


def test_two_seeds_are_exploratory_and_what_was_seen_at_three_is_not_forgotten(copied: Path, content):
    file = (copied / "study.toml").read_text(encoding="utf-8")
    (copied / "study.toml").write_text(file.replace("count = 3", "count = 2"), encoding="utf-8")
    found = content(copied)
    assert {verdict.seeds for verdict in found.verdicts} == {2}
    assert all(verdict.word.value.startswith("exploratory") for verdict in found.verdicts)
    assert any("was changed after cells had run" in caveat for caveat in found.caveats)


def test_a_hand_edited_plan_costs_what_it_was_the_record_of(copied: Path, content):
    def change(plan: Any) -> None:
        plan["cells"] = [entry for entry in plan["cells"] if entry["arm"] != "rd"]
        next(arm for arm in plan["arms"] if arm["arm"] == "xsa")["training_flops_per_token"] = 0
        plan["gates"] = [{"name": "?"}]
        plan["environment"] = "mine"
        del plan["corpus"], plan["diagnostics"]

    edit_json(copied / "runs" / "tiny" / "plan.json", change)
    found = content(copied)
    doubts = " ".join(found.caveats)
    for what in ("arms.1 (training_flops_per_token: ", "gates.0 (", "environment (", "diagnostics (missing"):
        assert f"plan.json is not as it was written and not used in {what}" in doubts
    states = {arm: {row.state for row in found.cells if row.arm == arm} for arm in ("rd", "xsa", "block")}
    assert states == {"rd": {"missing"}, "xsa": {"stale"}, "block": {"complete"}}
    assert next(verdict.interval for verdict in found.verdicts if verdict.name == "block") is not None


@pytest.mark.parametrize(("content", "said"), [("{", "cannot be read"), ("[]", "cannot be read"), (None, "is missing")])
def test_without_a_plan_no_cell_is_taken_for_this_files_and_the_remedy_keeps_them(
    copied: Path, content: str | None, said: str
):
    plan = copied / "runs" / "tiny" / "plan.json"
    plan.unlink()
    if content is not None:
        plan.write_text(content, encoding="utf-8")
    read = read_study(loading.load(copied / "study.toml"), copied / "runs")
    (doubt,) = read.doubts
    assert f"plan.json {said}" in doubt
    assert "`paribus run` writes it anew, and cells are kept" in doubt
    assert {found.state for found in read.cells.values()} == {"missing"}
    assert {verdict.word for verdict in verdicts_of(read)} == {Word.WAITING}


def test_a_plan_whose_code_is_not_installed_makes_stale_cells(copied: Path):
    edit_json(copied / "runs" / "tiny" / "plan.json", lambda plan: plan["arms"][1].update(code_roots=["not.here"]))
    read = read_study(loading.load(copied / "study.toml"), copied / "runs")
    (doubt,) = read.doubts
    assert "Cells of tiny/xsa count as stale, since their code cannot be compared" in doubt
    assert "'not.here'" in doubt


def test_a_hand_edited_ledger_is_kept_and_what_it_no_longer_says_is_said(copied: Path, report):
    ledger = copied / "runs" / "tiny" / "looks.jsonl"
    look = ledger.read_text(encoding="utf-8").splitlines()[0]
    ledger.write_text("a note of mine\n" + '{"time": "x"}\n' + look, encoding="utf-8")  # and no newline at the end
    found = report(copied)
    for line in ("line 1 (", "line 2 (command: "):
        assert f"looks.jsonl: {line}" in found.doubts
    assert "which words were seen then is not known" in found.doubts
    lines = ledger.read_text(encoding="utf-8").splitlines()
    assert lines[:3] == ["a note of mine", '{"time": "x"}', look], "no look is lost"
    assert len(lines) == 4


def test_a_look_at_more_pairs_than_there_are_gives_no_claim(copied: Path):
    ledger = copied / "runs" / "tiny" / "looks.jsonl"
    look = json.loads(ledger.read_text(encoding="utf-8").splitlines()[0])
    del look["crc"]
    ledger.write_text(json.dumps(look | {"pairs": dict.fromkeys(look["pairs"], 99)}) + "\n", encoding="utf-8")
    read = read_study(loading.load(copied / "study.toml"), copied / "runs")
    assert {verdict.word for verdict in verdicts_of(read)} == {Word.RULE_CHANGED}


def measured(study: Path, change: Callable[[Any], object]) -> str:
    """A record of times as `paribus bench` writes it, and then changed by hand."""
    read = read_study(loading.load(study / "study.toml"), study / "runs")
    plan = {arm["arm"]: arm for arm in read.plan["arms"]}
    names = [*(f"{arm}/eager" for arm in plan), "standard/eager/again"]
    columns = {name: {"arm": name.split("/")[0], "way": "eager", "again": name.endswith("again")} for name in names}
    seconds = {name: [1.0 + 0.01 * index, 1.02, 0.99, 1.0] for index, name in enumerate(names)}
    record = {
        "format": 2,
        "identity": {of: {n: plan[n][k] for n in plan} for of, k in (("arms", "declared"), ("code", "code_digest"))},
        "host": "a machine",
        "ways": ["eager"],
        "columns": columns,
        "comparisons": [["xsa/eager", "standard/eager"]],
        "wall_seconds": seconds,
        "cpu_seconds": {name: list(values) for name, values in seconds.items()},
        "bytes_for_backward": dict.fromkeys(names[:-1], 1000),
        "peak_bytes": dict.fromkeys(names[:-1], 1000),
        "parts": {name: {"loss": 1.0} for name in names[:-1]},
        "part_order": ["loss"],
        "parts_in": "wall time",
        "batch_tokens": dict.fromkeys(plan, 512),
    }
    change(record)
    read.folder.write_cost("tiny", record)
    return read.cost("tiny")[1]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda r: r.clear(), "format: "),
        (lambda r: r.pop("identity"), "identity: "),
        (lambda r: r.update(format=3), "format: "),
        (lambda r: (r.pop("format"), r.update(seconds={})), "of an earlier version, which timed no blocks"),
        (lambda r: r["wall_seconds"]["xsa/eager"].__setitem__(0, -1.0), "wall_seconds.xsa/eager.0: "),
        (lambda r: r["cpu_seconds"]["xsa/eager"].__setitem__(0, -1.0), "cpu_seconds.xsa/eager.0: "),
        (lambda r: r["wall_seconds"]["xsa/eager"].pop(), "different numbers of turns"),
        (lambda r: [r[k][c].pop() for k in ("wall_seconds", "cpu_seconds") for c in r["columns"]], "is not whole"),
        (lambda r: r["columns"].pop("xsa/eager"), "has other columns than were timed"),
        (lambda r: r["comparisons"].append(["none/eager", "xsa/eager"]), "names a column that was not timed"),
        (lambda r: r.update(bytes_for_backward={"xsa/eager": "many"}), "bytes_for_backward.xsa/eager: "),
        (lambda r: r["peak_bytes"].pop("xsa/eager"), "peak_bytes: a column is missing"),
        (lambda r: r["parts"].pop("xsa/eager"), "parts: a column is missing"),
        (lambda r: r["part_order"].clear(), "part_order: a part is missing"),
        (lambda r: r.update(ways=["other"]), "ways: one is missing"),
        (lambda r: r["batch_tokens"].pop("xsa"), "batch_tokens: an arm is missing"),
    ],
)
def test_a_hand_edited_record_of_times_is_not_used_and_says_why(copied: Path, change, said: str):
    assert measured(copied, lambda _: None) == ""
    why = measured(copied, change)
    assert said in why
    assert "`paribus bench` measures anew" in why


def test_a_torn_record_of_times_costs_the_times_and_nothing_else(copied: Path, content):
    whole = content(copied)
    path = copied / "runs" / "tiny" / "cost" / "tiny.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text('{"identity": ', encoding="utf-8")
    found = content(copied)
    assert found.costs
    assert all(row.step_time_ratio is row.iso_time is None for row in found.costs)
    assert all("cannot be read" in row.sentence for row in found.costs)
    assert found.verdicts == whole.verdicts


def test_only_where_nothing_can_be_read_is_there_an_error_and_it_deletes_nothing(copied: Path, cli: Cli):
    identity = copied / "runs" / "tiny" / "study.json"
    for content in ("{", "[]", None):
        identity.unlink()
        if content is not None:
            identity.write_text(content, encoding="utf-8")
        status, _, err = cli("report", "study.toml")
        assert status == 1
        assert "study.json" in err
        assert "remedy: restore it from a copy" in err
        assert "Traceback" not in err
        identity.touch()


def test_routes_that_lack_rows_are_not_compared_and_the_report_says_so(copied: Path, content):
    damaged = cell(copied, "rd", 1)
    (name,) = damaged.row_files("routes")
    edit(damaged, name, lambda rows: rows.update({column: values[:-1] for column, values in rows.items()}))
    signed(damaged)
    found = content(copied)
    assert "1 depth routes of tiny/rd/1 lack rows and are not compared between seeds." in found.caveats
    assert {verdict.name: verdict.seeds for verdict in found.verdicts}["rd"] == 3


KINDS = "[noise]\nrepeats = 1\ntwins = 2\nother_seeds = 2\n"


def test_damaged_budgets_twins_and_other_seeds_cost_their_own_rows_and_never_the_headline(
    tmp_path: Path, prepared: Path, text: Text, report, content, monkeypatch: pytest.MonkeyPatch
):
    changed = text(arms=("standard", "xsa"), seeds=3, execution="threads = 1").replace("[noise]\nrepeats = 0\n", KINDS)
    changed = changed.replace("milestones_tokens = [5_000]", "budgets_tokens = [2_000, 4_000]")
    (tmp_path / "study.toml").write_text(changed, encoding="utf-8")
    runs = tmp_path / "runs" / "tiny"
    runs.mkdir(parents=True)
    for name in ("study.json", "corpus"):
        (runs / name).symlink_to(prepared / "runs" / "tiny" / name)
    monkeypatch.chdir(tmp_path)
    study = open_study(loading.load(tmp_path / "study.toml"), tmp_path, tmp_path / "runs")
    write_plan(study, [])
    train_missing(study, lambda _: None, lambda: False)
    whole = content(tmp_path)
    before = {row.kind: row.differences for row in whole.noise}
    assert sorted(before) == ["other seed", "perturbed twin", "repeat"]

    def end_of(damaged: CellFolder) -> str:
        return max(name for name in damaged.row_files("likelihood") if "/test-" in name)

    budget, twin = cell(tmp_path, "xsa", 1, "budget-2000"), cell(tmp_path, "standard", 1, "twin")
    for damaged in (budget, twin):
        edit(damaged, end_of(damaged), lambda rows: rows["nats"].__setitem__(0, math.nan))
        signed(damaged)
    diverged(cell(tmp_path, "standard", 0, "budget-4000"))
    (cell(tmp_path, "standard", 0, "repeat").path / "DONE").write_text("", encoding="utf-8")
    (cell(tmp_path, "standard", 3).path / "cell.json").unlink()
    found = report(tmp_path)
    (headline,) = whole.verdicts
    assert found.verdicts["xsa"]["mean"] == headline.mean
    assert found.verdicts["xsa"]["word"] == headline.word.value
    for name in ("xsa/1 (budget-2000)", "standard/1 (twin)", "standard/0 (repeat)", "standard/3"):
        assert f"Cell tiny/{name} is not used: " in found.doubts
    assert [row["seeds"] for row in found.data["budget_gaps"]] == [[0, 2], [1, 2], [0, 1, 2]]
    noise = {row["kind"]: row["differences"] for row in found.data["noise"]}
    assert noise["perturbed twin"] == list(before["perturbed twin"][:1])
    assert "repeat" not in noise
    assert len(before["other seed"]) == 1
    assert "other seed" not in noise, "one cell alone has nothing to differ from"


def test_a_report_of_nothing_does_not_take_the_place_of_one_that_showed_the_study(study: Path, cli: Cli) -> None:
    """Every cell is stale after an edit of the file: the page of before stays, and the message says what changed."""
    page = study / "runs" / "tiny" / "report.html"
    before = page.read_bytes()
    file = study / "study.toml"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("batch_tokens = 512", "batch_tokens = 1024"), encoding="utf-8")
    status, _, err = cli("report", "study.toml")
    assert status == 1
    assert "every finished cell of 'tiny' is stale" in err
    assert "stale, because the file has changed: tiny/standard, tiny/xsa, tiny/block, tiny/rd" in err
    assert page.read_bytes() == before
    _, out, _ = cli("status", "study.toml")
    assert "stale, because the file has changed" in out
    file.write_text(text, encoding="utf-8")
    assert cli("report", "study.toml")[0] == 0
