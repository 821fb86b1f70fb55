"""Answers read back: what is damaged costs itself and is said, and everything else is as it was written."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from paribus.disk import sealed, unsealed
from paribus.downstream.chat.definitions import CHATCORE
from paribus.reading.answers import CHATS
from paribus.runs.answers import SCHEMA, AnswersFolder, Asked
from paribus.runs.folder import CellFolder

TASKS = ("arc_easy", "boolq")


def test_both_definitions_of_chatcore_are_those_that_are_asked() -> None:
    assert {name: set(tasks) for name, tasks in CHATS.items()} == {n: set(tasks) for n, tasks in CHATCORE.items()}


def test_answers_are_read_as_they_were_written(asking, given: Callable, put: Callable) -> None:
    columns = put(asking.cell("a", 0).path, given(problems=3), 20, "a", 0)
    (model,) = asking.read("a", 0)
    (found,) = model.held.values()
    assert (model.where, model.after, model.steps, model.faults) == ("tiny/a/0", "", 20, ())
    assert found.accuracy == np.mean(columns["correct"])
    assert found.problems == {"longer than the context": 3}
    assert found.predictions[""] == 3
    assert sum(found.golds.values()) == sum(found.predictions.values()) == 400
    assert np.isnan(found.gold_bits[:3]).all()
    bits = np.array(columns["gold_nats"][3:]) / (math.log(2) * np.array(columns["gold_bytes"][3:]))
    assert found.gold_bits[3:] == pytest.approx(bits, rel=1e-12)
    assert np.isnan(found.margin).sum() == 3


def rewrite(path: Path, change: Callable[[dict], None]) -> None:
    """Rows that a consistent record vouches for, whatever they say."""
    rows, record = next(path.glob("tasks/core.arc_easy*.parquet")), next(path.glob("tasks/core.arc_easy*.json"))
    columns = pq.read_table(rows).to_pydict()
    change(columns)
    asked = Asked.of_stem(rows.stem)
    assert asked is not None
    AnswersFolder(path).write(asked, columns, unsealed(record.read_bytes())[0])


def damage(path: Path, how: str) -> None:
    files = {kind: next(path.glob(f"tasks/core.arc_easy*.{kind}")) for kind in ("parquet", "json")}
    record = unsealed(files["json"].read_bytes())[0]
    if how == "rows":
        files["parquet"].write_bytes(files["parquet"].read_bytes()[:-9] + b"overwrite")
    elif how == "no rows":
        files["parquet"].unlink()
    elif how == "record":
        files["json"].write_text('{"suite": "core"}', encoding="utf-8")
    elif how == "torn record":
        files["json"].write_text('{"suite": "co', encoding="utf-8")
    elif how == "another task":
        files["json"].write_bytes(sealed(record | {"task": "piqa"}))
    elif how == "other number":
        files["json"].write_bytes(sealed(record | {"items": 3}))
    elif how == "twice":
        rewrite(path, lambda columns: columns["item"].__setitem__(1, 0))
    elif how == "no answer":
        rewrite(path, lambda columns: columns["correct"].__setitem__(1, None))
    elif how == "not finite":
        rewrite(path, lambda columns: columns["gold_nats"].__setitem__(1, math.nan))
    else:
        files["json"].unlink()


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("rows", "was changed after it was written"),
        ("no rows", "is not readable"),
        ("record", "is not as it was written"),
        ("torn record", "is not readable"),
        ("another task", "record is that of another task"),
        ("other number", "not one an item in the items' order (400 rows, 3 items)"),
        ("twice", "not one an item in the items' order"),
        ("no answer", "a row lacks a value"),
        ("not finite", "a likelihood is not finite"),
        ("no record", "without a record are not used (core.arc_easy-00000020)"),
    ],
)
def test_damaged_answers_cost_themselves_and_are_said(asking, given: Callable, how: str, said: str) -> None:
    for task in TASKS:
        asking.give("a", 0, given(task=task))
    damage(asking.cell("a", 0).path, how)
    (model,) = asking.read("a", 0)
    assert [asked.task for asked in model.held] == ["boolq"]
    (fault,) = model.faults
    assert said in fault
    assert "tiny/a/0" in fault
    assert str(asking.folder) not in fault, "a report is read on other machines"


def test_rows_of_another_layout_are_not_used(asking, given: Callable) -> None:
    asking.give("a", 0, given())
    path = next(asking.cell("a", 0).path.glob("tasks/*.parquet"))
    record = path.with_suffix(".json")
    pq.write_table(pq.read_table(path).drop_columns(["margin"]), path)
    from paribus.runs.answers import _digest  # the record of such rows is what is to be made here

    told = unsealed(record.read_bytes())[0]
    record.write_bytes(sealed(told | {"row_digest": _digest(path.read_bytes())}))
    (model,) = asking.read("a", 0)
    assert "other columns than answers have (margin)" in model.faults[0]
    assert "margin" in SCHEMA.names


def test_after_a_fine_tuning_answers_carry_how_it_was_done_and_not_of_which_cell(
    asking, given: Callable, put: Callable, tune: Callable
) -> None:
    folder = tune(asking.cell("a", 0), "chat")
    put(folder, given(), 6)
    record = unsealed((folder / "finetune.json").read_bytes())[0]
    _, plain = asking.read("a", 0)
    assert (plain.where, plain.after, plain.steps) == ("tiny/a/0 after chat", "chat", 6)
    assert [of.finetune for of in plain.held.values()] == [{"digest": "ab12"}]
    settings = {"recipe": {"steps": 6}, "base": record.pop("base")}
    (folder / "finetune.json").write_bytes(sealed(record | {"settings": settings}))
    _, told = asking.read("a", 0)
    assert [of.finetune for of in told.held.values()] == [{"recipe": {"steps": 6}}]


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("no digest", "names no settings"),
        ("other values", "from other values than the cell ended with"),
        ("no base", "from other values than the cell ended with"),
        ("altered", "metrics.jsonl was changed"),
        ("no record", "is not readable"),
        ("diverged", "the fine-tuning diverged"),
        ("no steps", "no number of steps"),
    ],
)
def test_a_fine_tuning_that_is_not_of_this_cell_costs_its_answers_alone(
    asking, given: Callable, put: Callable, tune: Callable, how: str, said: str
) -> None:
    cell = asking.cell("a", 0)
    asking.give("a", 0, given())
    folder = tune(cell, "chat")
    put(folder, given(), 6)
    path = folder / "finetune.json"
    record = unsealed(path.read_bytes())[0]
    if how == "no digest":
        del record["digest"]
    elif how == "other values":
        record["base"]["final_tensors_digest"] = "other"
    elif how == "no base":
        del record["base"]
    elif how == "altered":
        CellFolder(folder).append_metrics({"step": 7})
    elif how == "diverged":
        (folder / "DONE").unlink()
        CellFolder(folder).finish({"reason": "nan"}, diverged=True)
    elif how == "no steps":
        CellFolder(folder).finish({})
    path.write_bytes(sealed(record))
    if how == "no record":
        path.unlink()
    own, tuned = asking.read("a", 0)
    assert len(own.held) == 1
    assert not tuned.held
    (fault,) = tuned.faults
    assert "Answers of tiny/a/0 after chat are not used" in fault
    assert said in fault


def test_a_fine_tuning_that_has_not_ended_is_no_fault(asking, tune: Callable) -> None:
    folder = tune(asking.cell("a", 0), "chat")
    (folder / "DONE").unlink()
    (own,) = asking.read("a", 0)
    assert own.faults == ()


@pytest.mark.parametrize("chance", [62.0, -0.1, 1, True, "0.5", None])
def test_what_is_no_chance_is_none(asking, given: Callable, chance: object) -> None:
    asking.give("a", 0, given(record={"chance_v2": chance}))
    (found,) = asking.read("a", 0)[0].held.values()
    assert found.chance_v2 is None
