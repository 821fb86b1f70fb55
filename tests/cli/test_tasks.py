"""`paribus tasks`, and what `plan`, `check` and `fields` say of a study that reads a task."""

import json
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from paribus.data import tasks
from paribus.data.tasks.contract import Levels
from paribus.data.tasks.cross import Cross

Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def study(study_text: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The text of study.toml in the working folder."""
    path = list(sys.path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    text = study_text(
        "idea",
        'mask = { name = "document" }',
        base={"context_length": "40", "batch_tokens": "400", "corpus": '{ task = "cross" }'},
        contrast={"metric": '"train.area.QD"'},
    )
    Path("study.toml").write_text(text, encoding="utf-8")
    yield text
    sys.path[:] = path
    tasks.tasks.cache_clear()


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package whose task cannot be imported."""
    monkeypatch.setattr(tasks, "entry_points", lambda **_: [EntryPoint("lost", "no.such.module", tasks.GROUP)])


def test_every_task_is_listed_with_its_slices_knobs_and_least_row(cli: Cli):
    code, out, err = cli("tasks", "--json")
    assert (code, err) == (0, "")
    found = {each["name"]: each for each in json.loads(out)}
    assert set(found) >= set(tasks.in_tree())
    for name, kind in tasks.in_tree().items():
        assert found[name]["defaults"] == kind().model_dump(mode="json")
        assert found[name]["least_row_length"] == kind().least_row_length
        assert found[name]["slices"] == list(kind.slices)
    code, out, _ = cli("tasks")
    assert code == 0
    assert all(name in out for name in found)


@pytest.mark.parametrize("name", sorted(tasks.in_tree()))
def test_one_task_shows_every_knob_and_the_levels_that_the_task_states(cli: Cli, name: str):
    code, out, err = cli("tasks", name, "--json")
    assert (code, err) == (0, "")
    found: dict[str, Any] = json.loads(out)
    task = tasks.in_tree()[name]()
    assert [knob["name"] for knob in found["knobs"]] == list(type(task).model_fields)
    assert all(knob["sentence"] for knob in found["knobs"])
    length = found["row_length"]
    assert length == (64 if 2 * task.least_row_length < 64 else task.least_row_length)
    levels = task.levels(length)
    assert found["levels"].keys() == levels.keys()
    for label, level in levels.items():
        shown = found["levels"][label]
        assert (shown["chance"], shown["floor"], shown["threshold"]) == (level.chance, level.floor, level.threshold)
        assert shown["shortcuts"] == dict(level.shortcuts)
    code, out, _ = cli("tasks", name)
    assert code == 0
    assert task.sentence[:40] in out
    assert f"{next(iter(levels.values())).chance:.3f}" in out


@pytest.mark.usefixtures("broken")
def test_a_broken_package_is_listed_as_broken_and_the_others_stay(cli: Cli):
    code, out, err = cli("tasks")
    assert (code, err) == (0, "")
    assert "lost (of an installed package) is broken: the task 'lost' of an installed package cannot be imported" in out
    assert "twin" in out
    code, _, err = cli("tasks", "lost")
    assert code == 1
    assert "mend or uninstall that package" in err
    assert cli("plan", "study.toml")[0] == 0, "a study of a task of the tree does not care"


def test_an_unknown_task_and_a_task_among_the_tables_are_answered_with_what_was_meant(cli: Cli):
    code, _, err = cli("tasks", "crss")
    assert code == 2
    assert "did you mean 'cross'?" in err
    code, _, err = cli("fields", "cross")
    assert code == 1
    assert "remedy: it is a task: `paribus tasks cross` shows its knobs" in err
    code, _, err = cli("fields", "sees")
    assert "did you mean 'seeds'?" in err
    code, _, err = cli("fields", "zzzzz")
    assert "valid: base, " in err, "no empty name in the list"


def test_plan_says_what_of_a_row_is_padding_and_that_a_tokenizer_is_not_used(cli: Cli, study: str):
    code, out, _ = cli("plan", "study.toml")
    assert code == 0
    assert "20% of a row of 40 tokens is padding that nobody scores: an example needs 32 tokens" in out
    assert "tokenizer" not in out.replace("tokenizer, ", "")
    text = study.replace("context_length = 40", "context_length = 32").replace(
        "batch_tokens = 400", "batch_tokens = 320"
    )
    text = text.replace("[scales.tiny]", "tokenizer = { vocabulary_size = 300 }\n[scales.tiny]")
    Path("study.toml").write_text(text, encoding="utf-8")
    code, out, _ = cli("plan", "study.toml")
    assert code == 0
    assert "note: [base.tokenizer] is not used: a task has tokens of its own" in out
    assert "is padding" not in out
    found = json.loads(cli("plan", "study.toml", "--json")[1])
    assert found["task"]["padding_share"] == 0.0
    assert len(found["calibration"]) == 1


def test_a_row_that_happens_to_ask_nothing_is_no_padding(cli: Cli, study: str):
    text = study.replace("length = 40", "length = 4").replace('task = "cross"', 'task = "twin"')
    Path("study.toml").write_text(text.replace("train.area.QD", "train.area.same"), encoding="utf-8")
    found = json.loads(cli("plan", "study.toml", "--json")[1])
    assert found["task"]["padding_share"] == 0.0


def test_check_runs_the_tasks_own_gate_and_a_leak_fails_it(cli: Cli, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("paribus.checking.planned_gates", lambda *_: [])  # the arms' gates take seconds
    code, out, err = cli("check", "study.toml")
    assert (code, err) == (0, "")
    assert "no target can be read off one token; rows are a pure function" in out
    assert out.endswith("all 1 gates passed\n")

    def unstated(task: Cross, row_length: int) -> dict[str, Levels]:
        del row_length
        return {name: Levels(9.0, 8.0, {}) for name in task.slices}

    monkeypatch.setattr(Cross, "levels", unstated)
    code, out, err = cli("check", "study.toml")
    assert code == 1
    assert "1 of 1 gates failed" in err
    assert "the task is what it says (cross: the task 'cross': " in err
