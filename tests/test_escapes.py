"""What a file says never leads out of the folder that it lies in: names, links, archives and model files from
strangers. Unpacking a zip has tests of its own (tests/downstream/core/test_fetching.py), pickles in tests/interop."""

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paribus.data.store import store_of
from paribus.disk import is_plain_name, require_no_links, sealed
from paribus.downstream.chat.mixture import load_mixture
from paribus.downstream.chat.sources import LONGEST_LINE_BYTES
from paribus.downstream.chat.tasks import spelling_bee
from paribus.downstream.chat.tasks.reading import ChatTaskError
from paribus.downstream.chat.tasks.spelling_bee import read_spelling_bee
from paribus.downstream.core.definitions import parse_list
from paribus.downstream.core.errors import CoreBundleError
from paribus.errors import ExperimentFileError, ParibusError, StorageError, StudyFolderError
from paribus.experiment import loading
from paribus.interop.errors import ForeignModelError
from paribus.interop.llama_weights import read_weights, weight_files
from paribus.model.config import PrenormConfig
from paribus.runs.answers import AnswersFolder, Asked
from paribus.runs.checkpoints import MARKER, Checkpoint
from paribus.runs.folder import CellFolder
from paribus.runs.records import append_line, write_json
from paribus.runs.study_folder import StudyFolder
from paribus.runs.trouble import kept
from paribus.texts import recorded
from paribus.train.state import META, TENSORS, TrainState

HOSTILE = ["../out", "..", ".", "/out", "a/../../out", "a/b", "a\\..\\out", "C:out", "a\nb", "a\0b", ""]
StudyText = Callable[..., str]


def everything_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_that_leads_elsewhere_is_no_plain_name(name: str):
    assert not is_plain_name(name)


@pytest.mark.parametrize("name", ["a", "0-1f3c", "standard.at-0.08", "core.arc_easy+first-500-00000004", "x."])
def test_names_that_paribus_gives_are_plain(name: str):
    assert is_plain_name(name)


TABLES = {
    "study": ('question = "Does it hold?"', 'study = NAME\nquestion = "Does it hold?"'),
    "scale": ("[scales.tiny]", "[scales.NAME]"),
    "arm": ("[arms.standard]", "[arms.NAME]\n[arms.standard]"),
    "contrast": ("[contrasts.xsa]", "[contrasts.NAME]"),
}


@pytest.mark.parametrize("name", [name for name in HOSTILE if "\0" not in name] + [".hidden", "a b", "name\n"])
@pytest.mark.parametrize("table", TABLES)
def test_an_experiment_file_with_a_name_that_leads_elsewhere_is_refused(
    tmp_path: Path, study_text: StudyText, table: str, name: str
):
    before, after = TABLES[table]
    text = study_text()
    assert before in text
    file = tmp_path / "mine.toml"
    file.write_text(text.replace(before, after.replace("NAME", json.dumps(name))), encoding="utf-8")
    with pytest.raises(ExperimentFileError):
        loading.load(file)
    assert everything_in(tmp_path) == {"mine.toml"}


def test_an_experiment_file_with_plain_names_is_taken(tmp_path: Path, study_text: StudyText):
    for table, (before, after) in TABLES.items():
        file = tmp_path / f"{table}.toml"
        file.write_text(study_text().replace(before, after.replace("NAME", '"my-1.5_x"')), encoding="utf-8")
        loading.load(file)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_fine_tuned_model_is_not_called_by_a_name_that_leads_elsewhere(tmp_path: Path, name: str):
    with pytest.raises(ExperimentFileError, match="name"):
        load_mixture(tmp_path / "chat-2026-07", name)


IN_PARTS = [
    (part, name)
    for part in ("scale", "arm", "digest", "variant")
    for name in HOSTILE
    if name and (part in ("scale", "arm") or name.strip("."))  # `0-..` is a name like any other
]


@pytest.mark.parametrize(("part", "name"), IN_PARTS)
def test_a_cell_whose_names_in_an_edited_plan_lead_out_of_the_study_is_refused(tmp_path: Path, part: str, name: str):
    fields: dict[str, Any] = {"scale": "S", "arm": "a", "digest": "d", "variant": "v"} | {part: name}
    with pytest.raises(StudyFolderError, match="leads out of it") as caught:
        StudyFolder(tmp_path / "study").cell(seed=0, **fields)
    assert "plan.json" in caught.value.remedy


@pytest.mark.parametrize("name", HOSTILE)
def test_a_corpus_that_an_edited_link_names_outside_the_store_is_not_opened(tmp_path: Path, name: str):
    study = StudyFolder(tmp_path / "runs" / "mine")
    study.write_corpus({"corpus": name, "key": "k", "digest": "d"})
    store_of(tmp_path / "runs").mkdir()
    with pytest.raises(StudyFolderError, match=r"corpus\.json is damaged") as caught:
        recorded(tmp_path / "runs", study)
    assert "name of a folder" in caught.value.expected


@pytest.mark.parametrize("label", [name for name in HOSTILE if name])
def test_a_task_of_a_bundle_whose_label_leads_elsewhere_is_refused_and_writes_nothing(tmp_path: Path, label: str):
    entry = {"label": label, "dataset_uri": "x.jsonl", "num_fewshot": [0], "icl_task_type": "multiple_choice"}
    with pytest.raises(CoreBundleError, match="no task that is known"):
        parse_list(json.dumps({"icl_tasks": [entry]}).encode(), "core.yaml")
    if label not in ("..", "."):
        with pytest.raises(StudyFolderError, match="name of a task"):
            AnswersFolder(tmp_path / "cell").write(Asked("core", label, 4), {}, {})
    assert everything_in(tmp_path) == set()


@pytest.mark.parametrize("uri", ["../out.jsonl", "/out.jsonl", "a/../../out.jsonl", "a\\..\\out.jsonl"])
def test_questions_of_a_bundle_lie_inside_it(uri: str):
    entry = {"label": "a", "dataset_uri": uri, "num_fewshot": [0], "icl_task_type": "multiple_choice"}
    with pytest.raises(CoreBundleError, match="no task that is known"):
        parse_list(json.dumps({"icl_tasks": [entry]}).encode(), "core.yaml")


def test_a_checkpoint_whose_marker_names_files_elsewhere_is_damaged(tmp_path: Path):
    (tmp_path / "secret").write_bytes(b"s")
    folder = tmp_path / "cell" / "checkpoints" / "step-00000001"
    folder.mkdir(parents=True)
    files = {"../../../secret": {"bytes": 1, "digest": "0" * 32}}
    (folder / MARKER).write_bytes(sealed({"format": 2, "step": 1, "cell": "cell", "files": files}))
    with pytest.raises(StudyFolderError, match="is damaged") as caught:
        Checkpoint(folder).read()
    assert "not as it was written" in caught.value.received


def test_a_state_that_an_edited_record_of_trouble_names_elsewhere_is_not_read(tmp_path: Path):
    record = {"step": 1, "seen_at": 1, "kind": "update", "batch_digest": "", "findings": [], "state": "../../out"}
    write_json(tmp_path / "trouble" / "trouble.json", {"format": 1, **record})
    with pytest.raises(StudyFolderError, match="not as it was written"):
        kept(CellFolder(tmp_path))


def test_lines_are_not_appended_through_a_link_and_a_record_takes_its_place(tmp_path: Path):
    outside = tmp_path / "outside"
    outside.write_text("mine\n")
    cell = tmp_path / "cell"
    cell.mkdir()
    for name, target in (("looks.jsonl", outside), ("rows.jsonl", tmp_path / "not-there")):
        (cell / name).symlink_to(target)
        with pytest.raises(StorageError):
            append_line(cell / name, {"a": 1})
    (cell / "DONE").symlink_to(outside)
    write_json(cell / "DONE", {"a": 1})
    assert not (cell / "DONE").is_symlink()
    assert outside.read_text() == "mine\n"
    assert not (tmp_path / "not-there").exists()


def test_a_link_in_a_cell_or_directly_below_is_an_error_and_a_folder_of_runs_may_be_one(tmp_path: Path):
    elsewhere, cell = tmp_path / "elsewhere", tmp_path / "runs" / "cell"
    (elsewhere / "cell" / "checkpoints").mkdir(parents=True)
    (tmp_path / "runs").symlink_to(elsewhere)
    require_no_links(cell)
    require_no_links(cell / "not-there")
    (cell / "checkpoints" / "step-00000001").symlink_to(tmp_path)
    with pytest.raises(StorageError, match="step-00000001 is a symbolic link"):
        require_no_links(cell)
    (cell / "checkpoints" / "step-00000001").unlink()
    (cell / "likelihood").symlink_to(tmp_path)
    with pytest.raises(StorageError, match="likelihood is a symbolic link") as caught:
        require_no_links(cell)
    assert str(tmp_path) in caught.value.received


HEADERS = {
    "a list of names of exabytes": (2**62).to_bytes(8, "little") + b"{}",
    "a list of names longer than the file": (10**8).to_bytes(8, "little") + b"{}",
    "a pickle": b"\x80\x04\x95\x0b\x00\x00\x00\x00\x00\x00\x00\x8c\x02os\x94.",
    "tensors outside the file": b"".join(
        [
            len(header := b'{"a":{"dtype":"F32","shape":[1000000000],"data_offsets":[0,4000000000]}}').to_bytes(
                8, "little"
            ),
            header,
        ]
    ),
    "nothing": b"",
}


@pytest.mark.parametrize("what", HEADERS)
def test_a_model_file_that_claims_too_much_is_one_error_wherever_it_is_read(tmp_path: Path, what: str):
    with pytest.raises(StudyFolderError, match="state in a checkpoint is damaged"):
        TrainState.restore(object.__new__(TrainState), {TENSORS: HEADERS[what], META: sealed({"step": 1})})
    (tmp_path / "model.safetensors").write_bytes(HEADERS[what])
    config = PrenormConfig(layers=1, width=16, mlp_width=16, vocabulary_size=8, context_length=4, head_width=16)
    with pytest.raises(ForeignModelError, match="does not hold the weights"):
        read_weights(tmp_path, config, tied=True)


@pytest.mark.parametrize("name", ["../other.safetensors", "/other.safetensors", "a/b.safetensors", "model.bin", "x.pt"])
def test_an_index_names_safetensors_files_beside_it_and_nothing_else(tmp_path: Path, name: str):
    index = tmp_path / "model" / "model.safetensors.index.json"
    index.parent.mkdir()
    index.write_text(json.dumps({"weight_map": {"a": name}}))
    with pytest.raises(ForeignModelError) as caught:
        weight_files(index.parent)
    assert "safetensors file beside the index" in caught.value.expected


@pytest.mark.parametrize("name", ["pytorch_model.bin", "pytorch_model.pt", "model.pkl"])
def test_weights_in_a_format_that_runs_code_are_not_read_and_it_is_said(tmp_path: Path, name: str):
    (tmp_path / name).write_bytes(b"\x80\x04.")
    with pytest.raises(ForeignModelError, match="no weights that can be read") as caught:
        weight_files(tmp_path)
    assert "model.safetensors" in caught.value.expected


def test_a_word_list_that_unpacks_to_more_than_its_bound_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(spelling_bee, "LARGEST_BYTES", 10_000)
    (tmp_path / "words.gz").write_bytes(gzip.compress(b"a" * 10_001))
    with pytest.raises(ChatTaskError) as caught:
        read_spelling_bee(tmp_path / "words.gz")
    assert "more than 10,000 bytes" in str(caught.value)


def test_a_line_of_conversations_longer_than_its_bound_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from paribus.downstream.chat import sources

    assert LONGEST_LINE_BYTES > 10**6
    monkeypatch.setattr(sources, "LONGEST_LINE_BYTES", 1000)
    path = tmp_path / "long.jsonl.gz"
    path.write_bytes(gzip.compress(b'"' + b"a" * 1000 + b'"\n'))
    with pytest.raises(ParibusError, match="not readable") as caught:
        list(sources._lines(path))
    assert "more than 1,000 bytes" in caught.value.received


@pytest.mark.parametrize("name", ["../x.jsonl", "/x.jsonl", "a/../../x.jsonl"])
def test_files_that_a_manifest_of_conversations_names_lie_beside_it(tmp_path: Path, name: str):
    from paribus.downstream.chat import sources

    (tmp_path / "x.jsonl").write_text("[]\n")
    folder = tmp_path / "set"
    folder.mkdir()
    (folder / "manifest.json").write_text(json.dumps([os.fspath(name)]))
    with pytest.raises(ParibusError, match="is not readable") as caught:
        sources._listed(folder / "manifest.json", "")
    assert "not beside it" in caught.value.received
