"""How many rows a forward pass takes where the file leaves it to the machine."""

from pathlib import Path
from typing import Any

import pytest
import torch

from paribus import probing
from paribus.errors import ExperimentFileError, StudyFolderError
from paribus.experiment import loading
from paribus.experiment.plan import ArmAtScale, resolve_arms
from paribus.experiment.spec import Experiment
from paribus.probing import frozen_rows, largest_that_fits
from paribus.runs.folder import MICRO_BATCHES
from paribus.runs.records import read_json
from paribus.runs.study_folder import StudyFolder

EXPERIMENT = """
study = "tiny"
question = "How many rows?"
[base]
context_length = 32
batch_tokens = 512
tokenizer = { vocabulary_size = 300 }
model = { head_width = 16 }
[scales.small]
layers = 2
width = 32
mlp_width = 48
budget_tokens = 10_000
[arms.plain]
[arms.xsa]
output_map = { name = "xsa" }
[contrasts.main]
treatment = "xsa"
baseline = "plain"
primary = true
smallest_effect = 0.01
design_effect = 0.03
[seeds]
count = 3
[execution]
threads = 1
workers = 1
micro_batch_rows = ROWS
"""


def load(tmp_path: Path, rows: str = '"probe"') -> Experiment:
    path = tmp_path / "tiny.toml"
    path.write_text(EXPERIMENT.replace("ROWS", rows), encoding="utf-8")
    return loading.load(path)


@pytest.fixture
def folder(tmp_path: Path) -> StudyFolder:
    folder = StudyFolder(tmp_path / "runs" / "tiny")
    folder.claim_for("tiny")
    return folder


def with_memory(monkeypatch: pytest.MonkeyPatch, available: int) -> None:
    monkeypatch.setattr(probing, "memory_bytes", lambda *_: available)


@pytest.mark.parametrize(("free", "rows"), [(1600, 16), (1599, 8), (800, 8), (799, 4), (100, 1), (99, 0), (-5, 0)])
def test_the_batch_is_halved_until_its_rows_fit(free: int, rows: int):
    assert largest_that_fits(free, 100, 16) == rows


def test_a_batch_of_odd_rows_is_halved_rounding_up():
    assert [largest_that_fits(free, 1, 7) for free in (7, 6, 4, 3, 2, 1)] == [7, 4, 4, 2, 2, 1]


def test_what_the_file_says_is_taken_without_measuring(tmp_path: Path, folder: StudyFolder):
    experiment = load(tmp_path, "4")
    assert frozen_rows(experiment, resolve_arms(experiment), folder) == 4
    assert not (folder.path / MICRO_BATCHES).exists()


def test_rows_are_measured_on_the_hungriest_arm_once_and_then_frozen(
    tmp_path: Path, folder: StudyFolder, monkeypatch: pytest.MonkeyPatch
):
    experiment = load(tmp_path)
    arms = resolve_arms(experiment)
    with_memory(monkeypatch, 2**33)
    assert frozen_rows(experiment, arms, folder) == 16, "the whole batch fits into eight gigabytes"
    [(kind, record)] = read_json(folder.path / MICRO_BATCHES).items()
    assert (kind, record["arm"]) == ("cpu", "small/xsa")
    # The streams, what attention keeps and the logits alone are more than this.
    assert record["bytes_per_row"] > 4 * 32 * (32 * 4 + 300)
    with_memory(monkeypatch, 1)
    assert frozen_rows(experiment, arms, folder) == 16, "less memory later changes nothing: the cells were trained so"


def test_rows_follow_the_memory_that_there_is(tmp_path: Path, folder: StudyFolder, monkeypatch: pytest.MonkeyPatch):
    experiment = load(tmp_path)
    arms = resolve_arms(experiment)
    xsa = arms["small", "xsa"]
    with_memory(monkeypatch, 2**33)
    per_row = probing._measured(experiment.execution, arms, torch.device("cpu"))["bytes_per_row"]
    fixed = probing.COPIES_OF_PARAMETERS * 4 * sum(xsa.parameters_by_role.values())
    with_memory(monkeypatch, int((fixed + 5 * int(per_row)) / probing.SHARE_OF_MEMORY))
    assert frozen_rows(experiment, arms, folder) == 4


def test_where_not_one_row_fits_the_study_is_refused_and_nothing_is_written(
    tmp_path: Path, folder: StudyFolder, monkeypatch: pytest.MonkeyPatch
):
    experiment = load(tmp_path)
    with_memory(monkeypatch, 1000)
    with pytest.raises(ExperimentFileError, match="not one row of small/xsa fits") as refused:
        frozen_rows(experiment, resolve_arms(experiment), folder)
    assert "activation_checkpointing" in refused.value.remedy
    assert not (folder.path / MICRO_BATCHES).exists()


def test_another_kind_of_device_is_measured_for_itself(
    tmp_path: Path, folder: StudyFolder, monkeypatch: pytest.MonkeyPatch
):
    experiment = load(tmp_path)
    folder.write_micro_batches({"a large one": {"rows": 512}})
    with_memory(monkeypatch, 2**33)
    assert frozen_rows(experiment, resolve_arms(experiment), folder) == 16
    assert {kind: record["rows"] for kind, record in folder.micro_batches().items()} == {"a large one": 512, "cpu": 16}


def test_a_record_that_cannot_be_read_is_named(tmp_path: Path, folder: StudyFolder):
    (folder.path / MICRO_BATCHES).write_text("{", encoding="utf-8")
    experiment = load(tmp_path)
    with pytest.raises(StudyFolderError, match=MICRO_BATCHES):
        frozen_rows(experiment, resolve_arms(experiment), folder)


def test_the_rows_belong_to_the_identity_of_a_cell(tmp_path: Path):
    from paribus.experiment.plan import cells

    experiment = load(tmp_path)
    arms: Any = resolve_arms(experiment)
    digests = [{cell.digest for cell in cells(experiment, arms, "corpus", rows)} for rows in (4, 8)]
    assert not digests[0] & digests[1]
    same = load(tmp_path, "4")
    assert {cell.digest for cell in cells(same, resolve_arms(same), "corpus")} == digests[0]


def test_arms_share_the_rows(tmp_path: Path, folder: StudyFolder, monkeypatch: pytest.MonkeyPatch):
    experiment = load(tmp_path)
    arms: dict[tuple[str, str], ArmAtScale] = resolve_arms(experiment)
    with_memory(monkeypatch, 2**33)
    measured = {frozen_rows(experiment, dict([pair]), folder) for pair in arms.items()}
    assert measured == {16}
