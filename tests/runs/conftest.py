"""A study that was really trained, and one that drawn files stand for, with every kind of file of a run folder."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from paribus.report.files import digest_of
from paribus.runs.answers import SCHEMA, AnswersFolder, Asked
from paribus.runs.checkpoints import write_alone
from paribus.runs.folder import CellFolder
from paribus.runs.records import sealed, write_json
from paribus.runs.study_folder import StudyFolder
from tests.shared import process_as_it_was

ENVIRONMENT = {"python": "3"}
CHECKPOINT = {"state.safetensors": bytes(range(256)) * 20, "state.json": sealed({})}


def answer(folder: Path, task: str = "easy") -> None:
    """A task that was asked of the model in a folder."""
    columns = {name: [None, None] for name in SCHEMA.names} | {"item": [0, 1], "correct": [True, False]}
    record = {"kind": "choices", "chance": 0.25, "settings": {"shots": 0}}
    AnswersFolder(folder).write(Asked("core", task, 4), columns, record)


def train(cell: CellFolder, steps: int = 4, *, name: str = "cell.json") -> None:
    """What training leaves of a cell that is not finished: lines, rows and checkpoints of every second update."""
    seed, digest, *variant = cell.path.name.split("-", 2)
    record = {"scale": cell.path.parents[1].name, "arm": cell.path.parent.name, "variant": "".join(variant)}
    if name == "cell.json":
        record |= {"seed": int(seed), "digest": digest, "initial_digests": {"embedding": "0"}}
        cell.write_record({**record, "environment": ENVIRONMENT, "code_version": "x"})
    else:
        write_json(cell.path / name, {"from": digest})
    for step in range(1, steps + 1):
        line = {"step": step, "tokens_seen": 512 * step, "loss_nats_per_token": 5.0 + int(seed) / step}
        cell.append_metrics({**line, "token": 1})
        if step % 2 == 0:
            rows = {"document": ["a", "b"], "nats": [1.5 * step, 2.5 + int(seed)], "tokens": [3, 4], "bytes": [12, 16]}
            cell.write_rows(f"likelihood/test-{step:08d}", rows)
            cell.write_checkpoint(step, CHECKPOINT | {"state.json": sealed({"step": step})})


def end(cell: CellFolder, steps: int = 4) -> None:
    digests = {"batch_digest": "0", "final_tensors_digest": "0"}
    cell.finish({"steps": steps, "tokens_seen": 512 * steps, "train_seconds": 1.0, **digests})


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every kind of file: finished, running, diverged, parked and fine-tuned cells, answers, costs, a report."""
    folder = StudyFolder(tmp_path_factory.mktemp("written") / "mine")
    folder.claim_for("mine")
    plan = {"cells": [], "arms": [], "gates": [], "diagnostics": [], "environment": ENVIRONMENT}
    folder.write_plan(plan)
    folder.write_corpus({"corpus": "texts-1", "key": "k", "digest": "d"})
    folder.write_micro_batches({"cpu": 4})
    for scale in ("S", "M"):
        seconds = {"a/eager": [1.0, 1.1], "a/eager/again": [1.0, 1.2]}
        columns = {name: {"arm": "a", "way": "eager", "again": name.endswith("again")} for name in seconds}
        cost = {
            "format": 2,
            "identity": {"arms": {"a": scale}, "code": {"a": "x"}},
            "host": "h",
            "ways": ["eager"],
            "columns": columns,
            "comparisons": [["a/eager/again", "a/eager"]],
            "wall_seconds": seconds,
            "cpu_seconds": seconds,
            "bytes_for_backward": {"a/eager": 1000},
            "peak_bytes": {"a/eager": 1000},
            "parts": {"a/eager": {"loss": 1.0}},
            "part_order": ["loss"],
            "parts_in": "wall time",
            "batch_tokens": {"a": 512},
        }
        folder.write_cost(scale, cost)
    for number in range(2):
        folder.append_look("report", {"main": number}, {"main": "exploratory"}, "r")
    digests = {}
    for name in ("report.html", "report.md", "verdict.svg", "verdict.md", "tables/a.csv", "figures/a.svg"):
        (folder.path / name).parent.mkdir(exist_ok=True)
        (folder.path / name).write_text("shown", encoding="utf-8")
        digests[name] = digest_of("shown")
    write_json(folder.path / "report.json", {"digests": digests})
    for arm in ("standard", "other"):
        for seed in (1, 2):
            cell = folder.cell("S", arm, seed, f"{seed}abc")
            train(cell)
            if arm == "standard":
                end(cell)
    done = folder.cell("S", "standard", 1, "1abc")
    answer(done.path)
    answer(done.path, "hard")
    tuned = CellFolder(done.path / "finetuned" / "7-chat")
    train(tuned, name="finetune.json")
    end(tuned)
    answer(tuned.path)
    diverged = folder.cell("S", "other", 3, "3abc", "twin")
    train(diverged)
    diverged.finish({"reason": "the loss became nan", "step": 4}, diverged=True)
    write_alone(diverged.path / "trouble", 3, CHECKPOINT)
    write_json(diverged.path / "trouble" / "trouble.json", {"step": 4})
    parked = folder.cell("S", "other", 2, "2abc").path
    write_json(parked / "PARKED", {"reasons": []})
    write_json(parked / ".claims" / "00000001.json", {"token": 1})
    (parked / ".claims" / "00000001.released").touch()
    (done.path / ".claim").touch()
    return folder.path


@pytest.fixture
def study(written: Path, tmp_path: Path) -> Path:
    return shutil.copytree(written, tmp_path / "runs" / "mine")


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folder of a study of two arms and one seed that was trained in this process."""
    from paribus.draining import train_missing
    from paribus.experiment import loading
    from paribus.study import open_study, write_plan
    from tests.study.conftest import experiment_text, write_corpus

    folder = tmp_path_factory.mktemp("trained")
    text = experiment_text(write_corpus(folder / "corpus"), arms=("block", "rd"), seeds=1)
    (folder / "study.toml").write_text(text, encoding="utf-8")
    study = open_study(loading.load(folder / "study.toml"), folder, folder / "runs")
    write_plan(study, [])
    with process_as_it_was():
        train_missing(study, lambda _: None, lambda: False)
    return folder / "runs" / "tiny"


@pytest.fixture
def copied(trained: Path, tmp_path: Path) -> Path:
    return shutil.copytree(trained, tmp_path / "runs" / "tiny")


@pytest.fixture
def flip() -> Callable[[Path, int, int], None]:
    """Change one byte of a file by exclusive or."""

    def one(path: Path, place: int, by: int) -> None:
        content = bytearray(path.read_bytes())
        content[place] ^= by
        path.write_bytes(content)

    return one
