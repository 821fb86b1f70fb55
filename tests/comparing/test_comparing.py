"""Studies side by side: what is shown, what is compared, and what is never said."""

import io
import json
import re
import shutil
from pathlib import Path

import pytest
from rich.console import Console

from paribus.comparing.showing import describe, describe_json
from paribus.comparing.side_by_side import SideBySide, compare
from paribus.errors import ParibusError, StudyFolderError
from paribus.stats.rule import Word


def _text(found: SideBySide) -> str:
    console = Console(file=io.StringIO(), width=200)
    describe(found, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_equal_arms_and_metric_meet_with_the_numbers_that_each_study_reported(runs) -> None:
    found = compare([runs.make(name="a"), runs.make(name="b", gains=(-0.001, 0.001, 0.002))], runs.folder)
    (group,) = found.groups
    assert [row.word for row in group.rows] == ["better by at least the smallest effect", "inconclusive"]
    reported = json.loads((runs.folder / "b" / "report.json").read_text())["verdicts"][0]
    assert group.rows[1].mean == reported["mean"]
    assert list(group.rows[1].interval or ()) == reported["interval"]
    assert group.rows[0].budget_tokens == 6400
    assert (group.rows[0].seeds, group.rows[0].planned_seeds) == (3, 3)
    assert found.differing == {}
    assert group.differing == {}
    text = _text(found)
    assert "inconclusive (primary)" in text
    assert "3 of 3" in text


def test_a_study_that_waits_shows_no_number(runs) -> None:
    waiting = runs.make(name="b", gains=(-0.0123,), planned=3)
    found = compare([runs.make(name="a"), waiting], runs.folder)
    row = found.groups[0].rows[1]
    assert (row.word, row.mean, row.interval) == (Word.WAITING.value, None, None)
    assert "0.0123" not in _text(found)
    assert "0.0123" not in json.dumps(describe_json(found))
    assert any("waits for its planned seeds" in sentence for sentence in found.sentences)


def test_a_number_that_was_edited_into_a_waiting_report_is_not_shown(runs) -> None:
    waiting = runs.make(name="b", gains=(-0.0123,), planned=3)
    data = json.loads((waiting / "report.json").read_text())
    del data["checksum"]  # as somebody does who means it
    data["verdicts"][0] |= {"mean": -0.5, "interval": [-0.6, -0.4], "standard_error": 0.1}
    (waiting / "report.json").write_text(json.dumps(data))
    row = compare([runs.make(name="a"), waiting], runs.folder).groups[0].rows[1]
    assert (row.mean, row.interval, row.standard_error) == (None, None, None)


def test_a_study_without_a_report_says_how_to_make_one(runs) -> None:
    bare = runs.folder / "bare"
    bare.mkdir()
    with pytest.raises(StudyFolderError, match="not been reported yet") as caught:
        compare([runs.make(name="a"), bare], runs.folder)
    assert "paribus report" in caught.value.remedy


@pytest.mark.parametrize(
    "content", ["{", "[]", "{}", '{"study": "a", "question": "", "cells": [], "verdicts": [{"word": "better"}]}']
)
def test_a_report_that_cannot_be_read_is_one_error(runs, content: str) -> None:
    broken = runs.make(name="b")
    (broken / "report.json").write_text(content)
    with pytest.raises(StudyFolderError, match=r"report\.json"):
        compare([runs.make(name="a"), broken], runs.folder)


@pytest.mark.parametrize(
    ("name", "remedy"), [("report.json", "make the report again with `paribus report"), ("plan.json", "`paribus run`")]
)
@pytest.mark.parametrize("content", ["{", "[]", "\x00"])
def test_the_remedy_for_a_broken_file_is_about_that_file_and_costs_no_cell(
    runs, name: str, content: str, remedy: str
) -> None:
    broken = runs.make(name="b")
    (broken / name).write_text(content)
    with pytest.raises(StudyFolderError, match=re.escape(name)) as caught:
        compare([runs.make(name="a"), broken], runs.folder)
    assert remedy in caught.value.remedy
    assert "delete the folder" not in caught.value.remedy


def test_a_ledger_with_a_bad_line_is_no_reason_not_to_compare(runs) -> None:
    broken = runs.make(name="b")
    ledger = broken / "looks.jsonl"
    ledger.write_text(ledger.read_text() + "somebody was here\n")
    found = compare([runs.make(name="a"), broken], runs.folder)
    assert len(found.groups) == 1
    assert found.studies[1].last_look == json.loads(ledger.read_text().splitlines()[0])["time"]


def test_fields_that_differ_are_named_once_where_every_arm_has_them(runs) -> None:
    wide = runs.make(name="b", replaced=("width = 32", "width = 64"), code="77ab90c1f4")
    found = compare([runs.make(name="a"), wide], runs.folder)
    assert found.groups[0].differing == {
        "every arm.scale.width": ("32", "64"),
        "every arm.code": ("4f1c09ab77", "77ab90c1f4"),
    }
    assert found.differing == {"code version": ("4f1c09ab77", "77ab90c1f4")}
    assert "every arm.scale.width: 32 | 64" in _text(found)


def test_a_field_of_one_arm_is_named_with_its_role(runs) -> None:
    strength = ('{ name = "exclusive" }', '{ name = "exclusive", strength = 0.5 }')
    found = compare([runs.make(name="a"), runs.make(name="b", replaced=strength)], runs.folder)
    (path,) = found.groups[0].differing
    assert path == "treatment.base.output_map.strength"


@pytest.mark.parametrize(
    ("unit", "metric", "digest", "vocabulary", "test_bytes", "comparable"),
    [
        ("nats per token", "test.nll", "one", 2048, 5000, True),
        ("nats per token", "test.nll", "two", 4096, 5000, False),
        ("bits per byte", "test.bits_per_byte", "two", 4096, 5000, True),
        ("bits per byte", "test.bits_per_byte", "two", 4096, 5001, False),
    ],
)
def test_numbers_are_one_quantity_where_text_and_unit_allow_it(
    runs, unit: str, metric: str, digest: str, vocabulary: int, test_bytes: int, comparable: bool
) -> None:
    one = runs.make(name="a", unit=unit, metric=metric)
    other = runs.make(name="b", unit=unit, metric=metric, corpus=runs.corpus(digest, vocabulary, test_bytes))
    (group,) = compare([one, other], runs.folder).groups
    assert group.comparable is comparable
    assert group.why


def test_other_amounts_of_scored_text_are_not_one_quantity(runs) -> None:
    fewer = ("[scales.tiny]", "[base.evaluation]\ntest_tokens = 1000\n[scales.tiny]")
    (group,) = compare([runs.make(name="a"), runs.make(name="b", replaced=fewer)], runs.folder).groups
    assert not group.comparable
    assert "amounts of held-out text" in group.why


def test_equal_names_meet_where_arms_differ_and_the_rest_stands_alone(runs) -> None:
    one = runs.make(name="a")
    other = runs.make(name="b", arms=("trick-2", "plain"))
    third = runs.make(name="c", contrast="another", arms=("x", "y"))
    found = compare([one, other, third], runs.folder)
    (group,) = found.groups
    assert [row.arms for row in group.rows] == [("trick", "plain"), ("trick-2", "plain")]
    assert [row.name for row in found.alone] == ["another"]
    assert "3  another: x minus y, test.nll" in _text(found)


def test_studies_without_a_common_contrast_say_so(runs) -> None:
    found = compare([runs.make(name="a"), runs.make(name="b", contrast="other", arms=("x", "y"))], runs.folder)
    assert found.groups == ()
    assert any("No contrast of one study" in sentence for sentence in found.sentences)


def test_two_folders_of_one_study_are_not_independent(runs) -> None:
    one = runs.make(name="a")
    shutil.copytree(one, runs.folder / "copy")
    found = compare([one, runs.folder / "copy"], runs.folder)
    assert not found.independent
    assert len(found.groups[0].rows) == 2
    assert any("share random streams seed by seed" in sentence for sentence in found.sentences)
    different = compare([one, runs.make(name="b")], runs.folder)
    assert different.independent


def test_nothing_is_pooled_and_no_word_is_said_across_studies(runs) -> None:
    """Every verdict word in the output belongs to a row of a study."""
    found = compare([runs.make(name="a"), runs.make(name="b")], runs.folder)
    assert "Nothing is pooled" in found.sentences[0]
    words = {word.value for word in Word}
    assert not any(word in sentence for sentence in found.sentences for word in words)
    assert _text(found).count("better by at least the smallest effect") == 2


def test_a_report_of_an_earlier_version_is_still_compared(runs) -> None:
    old = runs.make(name="b")
    data = json.loads((old / "report.json").read_text())
    del data["checksum"], data["digests"]
    del data["verdicts"][0]["arms"]
    data["verdicts"][0]["word"] = "not tested: primary undecided"
    (old / "report.json").write_text(json.dumps(data))
    (old / "plan.json").unlink()
    found = compare([runs.make(name="a"), old], runs.folder)
    assert found.groups[0].rows[1].word == "not tested: primary undecided (a word of another version)"
    assert found.groups[0].rows[1].budget_tokens is None
    assert not found.groups[0].comparable
    assert any("independence is not known" in sentence for sentence in found.sentences)


def test_a_plan_whose_text_is_of_another_version_is_compared_as_a_whole(runs) -> None:
    other = runs.make(name="b")
    plan = json.loads((other / "plan.json").read_text())
    for arm in plan["arms"]:
        arm["declared"] = "depth twelve"
    (other / "plan.json").write_text(json.dumps(plan))
    (group,) = compare([runs.make(name="a"), other], runs.folder).groups
    assert group.differing["every arm.declared"] == ("not there", "depth twelve")


def test_a_study_is_named_by_folder_name_or_experiment_file(runs) -> None:
    runs.make(name="a")
    runs.make(name="b")
    (runs.folder / "b").rename(runs.folder / "b@tiny")
    found = compare([Path("a"), runs.folder / "b.toml"], runs.folder)
    assert [study.folder.name for study in found.studies] == ["a", "b@tiny"]


def test_a_file_with_several_run_folders_asks_which(runs) -> None:
    runs.make(name="a")
    for scale in ("S", "tiny"):
        (runs.folder / f"b@{scale}").mkdir()
    with pytest.raises(StudyFolderError, match="a run folder for each scale") as caught:
        compare([Path("a"), Path("b")], runs.folder)
    assert caught.value.expected == "b@S or b@tiny"


def test_an_unknown_study_names_the_nearest(runs) -> None:
    runs.make(name="alpha")
    with pytest.raises(StudyFolderError, match="no run folder") as caught:
        compare([Path("alpha"), Path("alhpa")], runs.folder)
    assert "did you mean 'alpha'?" in caught.value.remedy


@pytest.mark.parametrize("names", [(), ("a",), ("a", "a")])
def test_fewer_than_two_studies_are_refused(runs, names: tuple[str, ...]) -> None:
    runs.make(name="a")
    with pytest.raises(ParibusError, match="at least two different studies"):
        compare([Path(name) for name in names], runs.folder)
