"""The own report of each task of a set: where it is, and what the reports of a smoke set do not say."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paribus.reading import evidence
from paribus.report import markdown
from paribus.report.door import due
from paribus.report.evidence import shown_rows
from paribus.report.machine import to_json
from paribus.report.sections import assemble
from paribus.report.tables import to_text
from paribus.stats.paired import PairedDifferences
from paribus.stats.rounding import MINUS
from paribus.stats.rule import Comparison, Rule, Verdict, Word
from paribus.stats.verdict import decide
from paribus.tunnel import reports
from paribus.tunnel.family import TESTED
from paribus.tunnel.reports import direction_check, write_reports
from paribus.tunnel.suites import load_suite, only, with_mechanism

RUNS = Path("runs/tunnel-smoke")
Cli = Callable[..., tuple[int, str, str]]


def verdict_of(differences: tuple[float, ...], *diverged: int) -> Verdict:
    seeds = tuple(seed for seed in range(len(differences) + len(diverged)) if seed not in diverged)
    pairs = PairedDifferences(seeds, differences, treatment_diverged=diverged)
    rule = Rule(0.1, 0.3, planned_seeds=5)
    values = tuple(1.0 + difference for difference in differences), (1.0,) * len(differences)
    return decide([Comparison("c", "a", "b", "s", "train.area", "nats per target", True, rule, pairs, *values)])[0]


CLEAR = (-0.50, -0.52, -0.49, -0.51, -0.48)


def test_a_contrast_that_was_tested_is_exploratory_and_keeps_its_mean_and_interval():
    own = verdict_of(CLEAR)
    assert own.word.better
    shown = direction_check(own)
    assert shown.word is Word.EXPLORATORY
    assert (shown.mean, shown.interval, shown.interval_confidence) == (own.mean, own.interval, 0.95)
    assert {name: value for name, value in vars(shown).items() if name.startswith("p_") and value is not None} == {}
    assert (shown.wins, shown.equivalence_interval, shown.notes) == (None, None, ())
    assert shown.sentence == (
        "a against b at s on train.area: direction check on 5 pairs, which carries no verdict word. Mean difference "
        f"{MINUS}0.5000 nats per target, 95 % interval {MINUS}0.5196 to {MINUS}0.4804. The full set may give a word."
    )


@pytest.mark.parametrize("word", [word for word in Word if word in TESTED])
def test_no_word_that_a_test_gave_is_left(word: Word):
    shown = direction_check(replace(verdict_of(CLEAR), word=word))
    assert shown.word is Word.EXPLORATORY
    assert word.value not in shown.sentence


def test_why_there_was_no_test_stays():
    for own in (verdict_of(CLEAR[:4], 4), verdict_of(CLEAR[:3]), verdict_of((-0.5,) * 5)):
        assert own.word in (Word.DIVERGENCE, Word.WAITING, Word.NO_INFORMATION)
        assert direction_check(own) == own


def test_the_report_of_a_task_of_the_smoke_set_holds_no_word_and_no_count_of_wins(
    flown: Path, monkeypatch: pytest.MonkeyPatch
):
    del flown
    # Twelve updates teach nobody anything: here the rows are tested as if they did.
    monkeypatch.setattr(evidence, "why_not_informative", lambda *_: "")
    held: dict[str, Any] = {}
    monkeypatch.setattr(reports, "write", lambda content, folder: held.update({folder.name: content}))
    suite = only(load_suite("smoke"), ["tally"])
    (study,) = suite.studies
    found = write_reports(suite, {"tally": study.experiment}, RUNS, "paribus tunnel --smoke --task tally")
    assert found == {"tally": "../micro-tally/report.html"}
    content = due(held["micro-tally"])
    rows = shown_rows(content)
    tables = [one.table for section in assemble(content, rows).sections for one in section.tables]
    texts = [to_json(content), markdown.report(content, rows), *map(to_text, tables)]
    said = {word.value for word in Word} - {Word.EXPLORATORY.value, Word.NOT_INFORMATIVE.value}
    names = "|".join(sorted(map(re.escape, said), key=len, reverse=True))
    words = re.compile(rf"\b({names}|wins?|winner)\b", re.IGNORECASE)
    # A field that is null, the head of a column of dashes, which way a loss counts: these are said whatever was found.
    anyway = re.compile(r'"(wins|equivalence_\w+|p_equivalence\w*)": null|\| wins \||lower is better')
    for text in texts:
        assert not words.findall(anyway.sub("", text))
    (row,) = rows
    assert (row.word, row.mean is None, row.interval is None) == (Word.EXPLORATORY, False, False)
    assert content.repeat_command == "paribus tunnel --smoke --task tally"
    assert "What the task shows" in texts[1]


def test_every_task_of_the_page_links_the_report_that_lies_in_its_run_folder(flown: Path):
    del flown
    page = (RUNS / "tunnel.html").read_text(encoding="utf-8")
    data = json.loads((RUNS / "tunnel.json").read_text(encoding="utf-8"))
    links = [row["report"] for row in data["rows"]]
    assert links == ["micro-tally/report.html", "micro-twin/report.html"]
    for link in links:
        assert f'<a href="{link}">' in page
        assert (RUNS / link).is_file()


def test_a_part_of_a_smoke_set_links_one_folder_up(flown: Path, cli: Cli, here: Any):
    del flown, here
    assert cli("tunnel", "--task", "twin")[0] == 0
    (row,) = json.loads((RUNS / "only-twin" / "tunnel.json").read_text(encoding="utf-8"))["rows"]
    assert row["report"] == "../micro-twin/report.html"
    assert (RUNS / "only-twin" / row["report"]).is_file()


def test_a_shipped_file_of_the_full_set_is_repeated_by_itself_and_a_mechanism_of_ones_own_with_its_set(
    flown: Path, monkeypatch: pytest.MonkeyPatch
):
    del flown
    held: dict[str, Any] = {}
    monkeypatch.setattr(reports, "write", lambda content, folder: held.update({folder.name: content}))
    shipped = replace(load_suite("smoke"), name="full")
    experiments = {study.task: study.experiment for study in shipped.studies}
    write_reports(shipped, experiments, RUNS, "paribus tunnel --full")
    file = next(study.file for study in shipped.studies if study.task == "twin")
    assert held["micro-twin"].repeat_command == f"paribus run {file} --runs {RUNS}"
    # The cells are the shipped ones under another name of the set: what matters is who is told to run what.
    own = replace(shipped, own=with_mechanism(load_suite("smoke"), "document").own)
    write_reports(own, experiments, RUNS, "paribus tunnel --full --mechanism document")
    assert held["micro-twin"].repeat_command == "paribus tunnel --full --mechanism document"
