"""Fine-tuning from end to end on four tiny cells: pairing, exact resume, refusal of other settings, and the record."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner

from paribus.cli.finetuning import app
from paribus.data.tokenizer import Tokenizer
from paribus.disk import sealed
from paribus.downstream.chat.format import ChatTokenizerError
from paribus.downstream.chat.mixture import Mixture, load_mixture
from paribus.errors import PairCheckError, ParibusError, StudyFolderError
from paribus.finetuning import running
from paribus.finetuning.running import Outcome, finetune_cells
from paribus.runs import holders
from paribus.runs.folder import CellFolder
from paribus.trained import open_model

QUIET = Console(quiet=True)


def digests(outcome: Outcome) -> tuple[str, str]:
    return outcome.summary["batch_digest"], outcome.summary["final_tensors_digest"]


def untimed(folder: CellFolder) -> list[dict[str, Any]]:
    return [
        {key: value for key, value in line.items() if key not in ("wall_seconds", "token")} for line in folder.metrics()
    ]


def test_arms_of_a_seed_read_the_same_batches_and_other_seeds_others(
    done_cells: list[Path], mixture: Mixture, done: Path
):
    outcomes = finetune_cells(done_cells, mixture, done, QUIET)
    seeds = [outcome.base.seed for outcome in outcomes]
    assert seeds == sorted(seeds), "the arms of a seed one after the other"
    assert {outcome.state for outcome in outcomes} == {"complete"}
    by_seed: dict[int, set[str]] = {}
    for outcome in outcomes:
        by_seed.setdefault(outcome.base.seed, set()).add(outcome.summary["batch_digest"])
    assert len(by_seed) == 2
    assert all(len(found) == 1 for found in by_seed.values()), "one digest a seed"
    assert len(set.union(*by_seed.values())) == 2, "another one at another seed"
    assert len({o.summary["final_tensors_digest"] for o in outcomes}) == 4, "each cell becomes a model of its own"
    for outcome in outcomes:
        measured = outcome.summary["validation"]
        first, last = measured["0"], measured[str(outcome.summary["steps"])]
        assert last["bits_per_byte"] < first["bits_per_byte"], "it learns to answer"
    again = finetune_cells(done_cells, mixture, done, QUIET)
    assert all(o.was_done and digests(o) == digests(p) for o, p in zip(again, outcomes, strict=True))


def test_the_result_opens_as_a_model_and_its_record_says_what_made_it(
    done_cells: list[Path], mixture: Mixture, done: Path
):
    (outcome,) = finetune_cells(done_cells[:1], mixture, done, QUIET)
    base, tuned = open_model(done_cells[0]), open_model(outcome.folder)
    assert tuned.folder == done_cells[0] / "finetuned" / "mixture"
    assert tuned.step == outcome.summary["steps"]
    assert "fine-tuned as mixture" in tuned.name
    moved = [name for name, p in tuned.model.named_parameters() if not torch.equal(p, base.model.get_parameter(name))]
    assert moved
    record = json.loads((outcome.folder / "finetune.json").read_text(encoding="utf-8"))
    settings = record["settings"]
    assert settings["base"]["final_tensors_digest"] == CellFolder(done_cells[0]).summary()["final_tensors_digest"]
    assert settings["data"]["tokenizer"] == base.tokenizer.digest
    assert [len(part["files"]) for part in settings["data"]["parts"]] == [1, 1]
    trained_at = CellFolder(done_cells[0]).record()["resolved"]["optimiser"]["matrix_learning_rate"]
    assert settings["recipe"]["optimiser"]["matrix_learning_rate"] == pytest.approx(0.8 * trained_at)
    facts = record["counts"]["parts"][1]
    assert (facts["rows"], facts["malformed"]) == (13, 1), "the row without an answer is left out and counted"
    assert record["counts"]["conversations"] == sum(
        (f["rows"] - f["malformed"] - f["held_out"]) * epochs
        for f, epochs in zip(record["counts"]["parts"], (1, 2), strict=True)
    )
    lines = CellFolder(outcome.folder).metrics()
    assert [line["step"] for line in lines] == list(range(1, outcome.summary["steps"] + 1))
    assert CellFolder(outcome.folder).alterations() == []
    rows = CellFolder(outcome.folder).rows("validation/chat-00000000").to_pydict()
    from_rows = sum(rows["text_nats"]) / (np.log(2) * sum(rows["bytes"]))
    assert outcome.summary["validation"]["0"]["bits_per_byte"] == pytest.approx(from_rows, rel=1e-12)
    assert CellFolder(done_cells[0]).alterations() == [], "the cell itself is as it was"


def test_a_run_that_is_killed_goes_on_to_the_same_bits(cells: list[Path], study: Path):
    """A real process, killed without warning behind its first checkpoint, in the middle of an update."""
    named = load_mixture(study / "mixture.toml", "killed")
    code = f"""
import os, signal
from pathlib import Path
from rich.console import Console
import paribus.finetuning.cell as cell
from paribus.downstream.chat.mixture import load_mixture
from paribus.finetuning.running import finetune_cells
plain = cell.update
def update(model, optimisers, batch, step, *rest):
    if step == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return plain(model, optimisers, batch, step, *rest)
cell.update = update
finetune_cells([Path({str(cells[0])!r})], load_mixture(Path("mixture.toml"), "killed"), Path(), Console(quiet=True))
"""
    killed = subprocess.run([sys.executable, "-c", code], cwd=study, capture_output=True, text=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    folder = CellFolder(cells[0] / "finetuned" / "killed")
    assert folder.state == "started"
    assert folder.checkpoint_steps() == [2]
    (resumed,) = finetune_cells(cells[:1], named, study, QUIET)
    assert resumed.summary["steps"] > 4
    folder.path.rename(study / "resumed")
    (undisturbed,) = finetune_cells(cells[:1], named, study, QUIET)
    assert digests(resumed) == digests(undisturbed)
    assert resumed.summary["validation"] == undisturbed.summary["validation"]
    assert untimed(CellFolder(study / "resumed")) == untimed(folder), "each update has one line"


def test_who_loses_the_claim_writes_nothing_more_and_the_next_one_ends_the_same(
    cells: list[Path], mixture: Mixture, study: Path, monkeypatch: pytest.MonkeyPatch
):
    """A newer claim appears in the middle, as after a long sleep; that holder then goes away."""
    folder = CellFolder(cells[0] / "finetuned" / "mixture")

    def overtaking(*_: Any) -> Any:
        def listen(event: dict[str, Any]) -> None:
            if event["kind"] == "step" and event["step"] == 3:
                holders.claim_file(folder.path, 7).write_bytes(sealed({"token": 7}))

        return contextlib.nullcontext(listen)

    with monkeypatch.context() as patched:
        patched.setattr(running, "live_study", overtaking)
        (lost,) = finetune_cells(cells[:1], mixture, study, QUIET)
    assert (lost.state, folder.state) == ("claimed", "running")
    assert [line["step"] for line in folder.metrics()] == [1, 2, 3]
    assert folder.checkpoint_steps() == [2]
    holders.released_file(folder.path, 7).touch()
    (resumed,) = finetune_cells(cells[:1], mixture, study, QUIET)
    assert {line["token"] for line in folder.metrics()} == {1, 8}
    folder.path.rename(study / "resumed")
    (undisturbed,) = finetune_cells(cells[:1], mixture, study, QUIET)
    assert digests(resumed) == digests(undisturbed)
    assert untimed(CellFolder(study / "resumed")) == untimed(folder)


def test_a_stop_leaves_a_checkpoint_and_the_same_command_ends_the_same(
    cells: list[Path], mixture: Mixture, study: Path, monkeypatch: pytest.MonkeyPatch
):
    def interrupting(*_: Any) -> Any:
        def listen(event: dict[str, Any]) -> None:
            if event["kind"] == "step" and event["step"] == 3:
                os.kill(os.getpid(), signal.SIGINT)

        return contextlib.nullcontext(listen)

    with monkeypatch.context() as patched:
        patched.setattr(running, "live_study", interrupting)
        stopped = finetune_cells(cells[:2], mixture, study, QUIET)
    assert [outcome.state for outcome in stopped] == ["stopped", "missing"]
    folder = CellFolder(stopped[0].folder)
    assert folder.checkpoint_steps()[-1] == 3
    ended = finetune_cells(cells[:2], mixture, study, QUIET)
    other = study / "other"
    (cells[0] / "finetuned").rename(other)
    (fresh,) = finetune_cells(cells[:1], mixture, study, QUIET)
    assert digests(next(o for o in ended if o.base.folder.path == cells[0])) == digests(fresh)
    assert untimed(CellFolder(fresh.folder)) == untimed(CellFolder(other / "mixture"))


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ("batch_tokens = 128", "mixture.training.batch_tokens"),
        ("epochs = 2", "mixture.parts.1.epochs"),
        ("validation_fraction = 0.2", "mixture.validation_fraction"),
    ],
)
def test_other_settings_under_the_same_name_are_refused_by_their_field(
    done_cells: list[Path], done: Path, change: str, field: str
):
    file = done / "mixture.toml"
    text = file.read_text(encoding="utf-8")
    key, value = change.split(" = ")
    other = {"128": "64", "2": "3", "0.2": "0.1"}[value]
    file.write_text(text.replace(change, f"{key} = {other}"), encoding="utf-8")
    with pytest.raises(StudyFolderError, match="other settings") as error:
        finetune_cells(done_cells[:1], load_mixture(file), done, QUIET)
    assert field in str(error.value)


def test_data_that_has_changed_is_other_settings(done_cells: list[Path], mixture: Mixture, done: Path):
    file = done / "talk.jsonl"
    file.write_text(file.read_text(encoding="utf-8").replace("cat", "cow", 1), encoding="utf-8")
    with pytest.raises(StudyFolderError, match=r"data\.parts\.0\.files\.0\.digest"):
        finetune_cells(done_cells[:1], mixture, done, QUIET)


def test_how_often_a_checkpoint_is_written_is_no_setting(done_cells: list[Path], mixture: Mixture, done: Path):
    (first,) = finetune_cells(done_cells[:1], mixture, done, QUIET)
    often = mixture.model_copy(update={"checkpoint_updates": 1})
    (again,) = finetune_cells(done_cells[:1], often, done, QUIET)
    assert digests(again) == digests(first)


def test_micro_batches_change_no_more_than_rounding(cells: list[Path], mixture: Mixture, study: Path):
    found = []
    for rows in (0, 1):
        training = mixture.training.model_copy(update={"micro_batch_rows": rows, "updates": 2})
        named = mixture.model_copy(update={"training": training})
        (outcome,) = finetune_cells(cells[:1], named, study, QUIET)
        found.append(
            (outcome.summary["batch_digest"], [x["loss_nats_per_token"] for x in CellFolder(outcome.folder).metrics()])
        )
        (cells[0] / "finetuned").rename(study / f"rows-{rows}")
    assert found[0][0] == found[1][0], "the same batches"
    # One sum of losses in another order, in float32: a few units in the last place of the loss.
    np.testing.assert_allclose(found[0][1][0], found[1][1][0], rtol=1e-6)


def test_averages_of_pretraining_go_on_unless_the_file_says_otherwise(cells: list[Path], mixture: Mixture, study: Path):
    ends = []
    for warm in (True, False):
        training = mixture.training.model_copy(update={"warm_start": warm, "updates": 1})
        named = mixture.model_copy(update={"training": training})
        (outcome,) = finetune_cells(cells[:1], named, study, QUIET)
        ends.append((outcome.summary["batch_digest"], outcome.summary["final_tensors_digest"]))
        (cells[0] / "finetuned").rename(study / f"warm-{warm}")
    assert ends[0][0] == ends[1][0]
    assert ends[0][1] != ends[1][1]


def test_a_loss_that_is_not_finite_ends_the_cell_as_diverged(cells: list[Path], mixture: Mixture, study: Path):
    training = mixture.training.model_copy(update={"rate_factor": 1e30})
    named = mixture.model_copy(update={"training": training})
    (outcome,) = finetune_cells(cells[:1], named, study, QUIET)
    assert outcome.state == "diverged"
    assert "became" in outcome.summary["reason"]
    with pytest.raises(StudyFolderError, match="holds no finished model"):
        open_model(outcome.folder)


def test_arms_that_read_different_batches_are_found_out(done_cells: list[Path], mixture: Mixture, done: Path):
    outcomes = finetune_cells(done_cells, mixture, done, QUIET)
    pair = [outcome for outcome in outcomes if outcome.base.seed == outcomes[0].base.seed]
    running.require_pairs(pair)
    pair[1].summary["batch_digest"] = "0" * 16
    with pytest.raises(PairCheckError, match="different batches"):
        running.require_pairs(pair)


def test_a_cell_that_is_not_complete_is_refused(cells: list[Path], mixture: Mixture, study: Path):
    (cells[0] / "DONE").unlink()
    with pytest.raises(StudyFolderError, match="cannot be fine-tuned"):
        finetune_cells(cells, mixture, study, QUIET)
    with pytest.raises(StudyFolderError, match="no cell of a study"):
        finetune_cells([study], mixture, study, QUIET)


def test_a_mixture_that_asks_for_more_updates_than_it_fills_says_how_many(
    cells: list[Path], mixture: Mixture, study: Path
):
    training = mixture.training.model_copy(update={"updates": 10_000})
    with pytest.raises(ParibusError, match="does not fill as many updates"):
        finetune_cells(cells[:1], mixture.model_copy(update={"training": training}), study, QUIET)


def test_the_command_takes_a_study_and_skips_what_is_done(done_cells: list[Path]):
    """Every complete cell of the file, with a line each; one of them is fine-tuned again."""
    shutil.rmtree(done_cells[2] / "finetuned")
    written = {file: file.stat().st_mtime_ns for cell in done_cells for file in (cell / "finetuned").rglob("*.*")}
    found = CliRunner().invoke(app, ["study.toml", "--mixture", "mixture.toml"])
    assert found.exit_code == 0, found.output
    assert (found.output.count("complete before"), found.output.count(" complete ")) == (3, 4)
    assert CellFolder(done_cells[2] / "finetuned" / "mixture").state == "complete"
    kept = {file: time for file, time in written.items() if file.name != ".claim"}
    assert kept
    assert all(file.stat().st_mtime_ns == time for file, time in kept.items())


def test_a_tokenizer_without_the_tokens_is_refused_before_anything_is_written(
    cells: list[Path], mixture: Mixture, study: Path, monkeypatch: pytest.MonkeyPatch
):
    plain = Tokenizer.train(["cat dog"], 260)
    monkeypatch.setattr(running, "open_model", lambda _: SimpleNamespace(tokenizer=plain))
    with pytest.raises(ChatTokenizerError, match="pre_tokenizer"):
        finetune_cells(cells, mixture, study, QUIET)
    assert not any((cell / "finetuned").exists() for cell in cells)


def test_all_missing_data_is_named_at_once_with_what_to_fetch(cells: list[Path], study: Path):
    (study / "words_alpha.txt").write_text("cat\n", encoding="utf-8")
    with pytest.raises(ParibusError) as error:
        finetune_cells(cells, load_mixture(Path("nanochat-2026-04")), study, QUIET)
    said = str(error.value)
    assert "7 of the mixture's data sets are not in" in said
    assert "HuggingFaceTB--smol-smoltalk/default/train: the Parquet files of HuggingFaceTB/smol-smoltalk" in said
    assert "openai--gsm8k/main/test" in said
    assert "words_alpha" not in said
