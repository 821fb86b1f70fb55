"""A bundle is read as it stands, and what it lacks is said."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paribus.downstream.core.baselines import RESTATED_V2, read_baselines
from paribus.downstream.core.bundle import CoreTask, read_bundle
from paribus.downstream.core.errors import CoreBundleError
from paribus.downstream.core.items import core_items, count_items
from paribus.downstream.core.official import CORE, Official
from paribus.downstream.core.settings import CoreSettings

WriteBundle = Callable[..., Path]


def rewrite(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_a_bundle_is_read_in_the_order_of_its_list_with_baselines_as_fractions(write_bundle: WriteBundle):
    bundle = read_bundle(write_bundle(shots=3, delimiter="\nAnswer: ", baselines={"picks": 62, "schemas": 9.1}))
    assert [task.label for task in bundle.tasks] == ["picks", "schemas", "passages"]
    assert [task.kind for task in bundle.tasks] == ["multiple_choice", "schema", "language_modeling"]
    assert [task.chance_v1 for task in bundle.tasks] == [0.62, 0.091, 0.25]
    assert {(task.shots, task.delimiter, task.rows_found, task.unusable) for task in bundle.tasks} == {
        (3, "\nAnswer: ", 16, "")
    }
    content = bundle.tasks[0].file.read_bytes()
    assert bundle.tasks[0].digest == hashlib.blake2b(content, digest_size=16).hexdigest()
    assert json.loads(json.dumps(bundle.as_json()))["list_file"] == "core.yaml"


@pytest.mark.parametrize(
    "name", ["core.yaml", "eval_meta_data.csv", "eval_data/group/picks.jsonl", "eval_data/group/passages.jsonl"]
)
def test_the_digest_covers_every_file(write_bundle: WriteBundle, name: str):
    folder = write_bundle()
    before = read_bundle(folder)
    (folder / name).write_bytes((folder / name).read_bytes() + b"\n")
    assert read_bundle(folder).digest != before.digest


def test_another_list_of_the_same_form_may_be_named(write_bundle: WriteBundle):
    folder = write_bundle()
    entry = {"label": "schemas", "dataset_uri": "group/schemas.jsonl", "num_fewshot": [0], "icl_task_type": "schema"}
    (folder / "smoke.yaml").write_text(json.dumps({"icl_tasks": [entry]}))
    bundle = read_bundle(folder, "smoke.yaml")
    assert [(task.label, task.delimiter) for task in bundle.tasks] == [("schemas", " ")]
    with pytest.raises(CoreBundleError, match=r"core\.yaml, smoke\.yaml"):
        read_bundle(folder, "other.yaml")


def test_a_task_without_a_file_is_stated_and_the_others_are_read(write_bundle: WriteBundle):
    folder = write_bundle()
    (folder / "eval_data" / "group" / "schemas.jsonl").unlink()
    tasks = {task.label: task for task in read_bundle(folder).tasks}
    assert tasks["schemas"].unusable == "eval_data/group/schemas.jsonl is missing"
    assert (tasks["schemas"].rows_found, tasks["schemas"].digest) == (None, "")
    assert count_items(tasks["schemas"], CoreSettings()) == 0
    assert count_items(tasks["picks"], CoreSettings(max_items=3)) == 3
    with pytest.raises(CoreBundleError, match="schemas cannot be asked"):
        tasks["schemas"].lines()


def test_a_task_with_too_few_items_for_its_examples_cannot_be_asked(write_bundle: WriteBundle):
    tasks = read_bundle(write_bundle(shots=16)).tasks
    assert all("16 items, too few for 16 examples" in task.unusable for task in tasks)


def test_a_file_that_changes_while_it_is_used_is_refused(write_bundle: WriteBundle):
    task = read_bundle(write_bundle()).tasks[0]
    task.file.write_bytes(task.file.read_bytes() + b"{}\n")
    with pytest.raises(CoreBundleError, match="was changed while it was in use"):
        task.lines()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"multiple_choice"', '"multiple choice"', r"task 1 \(picks\).*\n.*multiple_choice, schema, language_modeling"),
        ('"dataset_uri"', '"dataset"', r"'dataset'; did you mean 'dataset_uri'\?"),
        ('"group/picks.jsonl"', '"../picks.jsonl"', "a path inside eval_data"),
        ('"group/picks.jsonl"', '"/etc/passwd"', "a path inside eval_data"),
        ('"num_fewshot": [0]', '"num_fewshot": [0, 10]', "one number, 0 or more"),
        ('"num_fewshot": [0]', '"num_fewshot": [-1]', "one number, 0 or more"),
        ('"num_fewshot": [0]', '"num_fewshot": ["x"]', "one number, 0 or more"),
        ('"label": "schemas"', '"label": "picks"', "a label twice"),
        ('"continuation_delimiter": " "', '"continuation_delimiter": 3', "continuation_delimiter: a text"),
        ('"icl_tasks"', '"tasks"', "lists no tasks"),
        ("{", "{[", "is not YAML"),
    ],
)
def test_a_list_that_is_no_list_of_known_tasks_is_refused(write_bundle: WriteBundle, old: str, new: str, message: str):
    folder = write_bundle()
    rewrite(folder / "core.yaml", old, new)
    with pytest.raises(CoreBundleError, match=message):
        read_bundle(folder)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("picks,", "pick,", "no random baseline for picks"),
        ("Random baseline", "Baseline", "is no table of random baselines"),
        (",25,", ",100,", r"row 2 \(picks\) gives no random baseline"),
        (",25,", ",-1,", "from 0 to below 100"),
        (",25,", ",nan,", "from 0 to below 100"),
        (",25,", ",,", "from 0 to below 100"),
        ("schemas,", "picks,", "'picks' a second time"),
    ],
)
def test_a_table_without_a_usable_baseline_is_refused(write_bundle: WriteBundle, old: str, new: str, message: str):
    folder = write_bundle()
    rewrite(folder / "eval_meta_data.csv", old, new)
    with pytest.raises(CoreBundleError, match=message):
        read_bundle(folder)


def test_a_bundle_or_table_that_is_not_there_is_one_error(write_bundle: WriteBundle, tmp_path: Path):
    with pytest.raises(CoreBundleError, match="paribus data fetch core"):
        read_bundle(tmp_path / "nowhere")
    folder = write_bundle()
    (folder / "eval_meta_data.csv").unlink()
    with pytest.raises(CoreBundleError, match="table of random baselines cannot be read"):
        read_bundle(folder)


def test_corrected_baselines_are_unavailable_until_a_copy_is_given(write_bundle: WriteBundle, tmp_path: Path):
    folder = write_bundle()
    bundle = read_bundle(folder)
    assert bundle.baselines_v2 is None
    assert {task.chance_v2 for task in bundle.tasks} == {None}
    copy = tmp_path / "v2.csv"
    copy.write_text("Eval Task,Random baseline\npicks,40.3\nschemas,50\npassages,0\n")
    given = read_bundle(folder, baselines_v2=copy)
    assert [task.chance_v2 for task in given.tasks] == [pytest.approx(0.403, abs=1e-15), 0.5, 0.0]
    assert given.digest != bundle.digest
    shutil.copy(copy, folder / "eval_meta_data_v2.csv")
    beside = read_bundle(folder)
    assert beside.baselines_v2 is not None
    assert beside.baselines_v2.source == "eval_meta_data_v2.csv"
    assert [task.chance_v2 for task in beside.tasks] == [task.chance_v2 for task in given.tasks]
    copy.write_text("Eval Task,Random baseline\npicks,40.3\n")
    with pytest.raises(CoreBundleError, match="no random baseline for schemas, passages"):
        read_bundle(folder, baselines_v2=copy)


def test_restated_corrections_are_taken_by_name_only_and_change_three_tasks(write_bundle: WriteBundle, rows_of: Any):
    tasks = dict.fromkeys((*RESTATED_V2, "copa"), ("language_modeling", rows_of["language_modeling"]))
    folder = write_bundle(tasks, baselines=dict.fromkeys(tasks, 20))
    assert read_bundle(folder).baselines_v2 is None
    found = read_bundle(folder, baselines_v2="restated")
    assert {task.label: round(100 * (task.chance_v2 or 0), 9) for task in found.tasks} == {**RESTATED_V2, "copa": 20}
    assert found.baselines_v2 is not None
    assert "restated" in found.baselines_v2.source


def test_what_is_missing_from_core_is_said_of_every_task(write_bundle: WriteBundle, rows_of: Any):
    bundle = read_bundle(write_bundle({"copa": ("multiple_choice", rows_of["multiple_choice"]), "own": ("schema", [])}))
    missing = bundle.missing()
    assert list(missing) == [*CORE, "own"]
    assert missing["copa"] == "16 of 100 items"
    assert missing["squad"] == "is not in core.yaml"
    assert missing["own"] == "is no task of CORE"
    otherwise = read_bundle(write_bundle({"copa": ("schema", rows_of["schema"])}, shots=2, name="other"))
    assert otherwise.missing()["copa"].startswith("is asked otherwise: schema, 2 examples")


def test_core_has_22_tasks_and_91037_items():
    assert (len(CORE), sum(official.rows for official in CORE.values())) == (22, 91_037)


def test_a_file_of_the_right_length_with_other_content_is_known_to_be_altered(write_bundle: WriteBundle, rows_of: Any):
    task = read_bundle(write_bundle({"copa": ("multiple_choice", rows_of["multiple_choice"])})).tasks[0]
    assert task.altered is True
    assert read_bundle(write_bundle({"own": ("schema", rows_of["schema"])}, name="own")).tasks[0].altered is None
    content = b"what is in it\n"
    # `git hash-object` of this content
    assert Official("schema", 0, 1, git_blob="9e928477a67c").is_altered(content) is False
    assert Official("schema", 0, 1, git_blob="0e928477a67c").is_altered(content) is True
    assert Official("schema", 0, 1, sha256=hashlib.sha256(content).hexdigest()).is_altered(content) is False


BAD_LINES = {
    "multiple_choice": [
        (b'{"query": "q", "choices": ["a", "b"], "gold": 2}', "gold index 2 is out of range: there are 2 answers"),
        (b'{"query": "q", "choices": ["a", "b"], "gold": -1}', "gold index -1 is out of range"),
        (b'{"query": "q", "choices": ["a", "b"], "gold": "1"}', "gold is no whole number"),
        (b'{"query": "q", "choices": ["a", "b"], "gold": true}', "gold is no whole number"),
        (b'{"query": "q", "choices": ["a", "b"]}', "gold is missing"),
        (b'{"query": "q", "choices": ["a"], "gold": 0}', "choices is no list of two texts or more"),
        (b'{"query": "q", "choices": ["a", 3], "gold": 0}', "choices is no list of two texts or more"),
        (b'{"query": 3, "choices": ["a", "b"], "gold": 0}', "query is no text"),
        (b'{"query": "q", "choices": ["a", "b"], "gold": 0', "is no JSON: Expecting"),
        (b'["q"]', "no JSON object"),
        (b"\xff\xfe", "is not UTF-8 from byte 1"),
        (b'{"query": "\\ud83d", "choices": ["a", "b"], "gold": 0}', "half of a character"),
    ],
    "schema": [
        (b'{"context_options": ["a", "b"], "gold": 0}', "continuation is missing"),
        (b'{"context_options": ["a", "b"], "continuation": "c", "gold": 5}', "gold index 5 is out of range"),
    ],
    "language_modeling": [(b'{"context": "a"}', "continuation is missing")],
}


@pytest.mark.parametrize(
    ("kind", "line", "message"), [(kind, *case) for kind, cases in BAD_LINES.items() for case in cases]
)
def test_a_bad_line_costs_one_item_that_is_marked_and_no_other(
    one_task: Callable[..., CoreTask], tokenizer: Any, rows_of: Any, kind: str, line: bytes, message: str
):
    rows = [*rows_of[kind][:7], line, b"", *rows_of[kind][7:]]
    task = one_task(kind, rows, shots=4)
    items = list(core_items(task, tokenizer, context_length=4096, settings=CoreSettings()))
    marked = [item for item in items if item.problem]
    assert [item.item for item in marked] == [7]
    assert message in marked[0].problem
    assert "line 8" in marked[0].problem
    assert marked[0].rows == ()
    assert marked[0].labels[marked[0].gold] == ""
    # The blank line has a number and is no item.
    assert sorted(item.item for item in items) == [number for number in range(18) if number != 8]
    assert all(item.rows for item in items if not item.problem)


def test_a_table_may_begin_with_a_mark_and_have_other_columns(tmp_path: Path):
    path = tmp_path / "table.csv"
    path.write_bytes('\ufeffEval Task,Description,Random baseline\r\na,"x, ""y""\nz",33.3\r\n'.encode())
    assert read_baselines(path).chance == {"a": pytest.approx(0.333, abs=1e-15)}
