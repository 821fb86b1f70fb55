"""A study that was really trained, with its corpus, and one that drawn files stand for, each in a folder of runs."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from paribus.runs.folder import CellFolder
from paribus.runs.study_folder import StudyFolder
from tests.runs.conftest import answer, end, train
from tests.shared import process_as_it_was

HOURS = 3600.0
HOLDING = """
import os, sys, time
from pathlib import Path
from paribus.runs.claims import claim

with claim(Path(sys.argv[1])) as held:
    print(held.token, flush=True)
    if sys.argv[2:] == ["die"]:
        os._exit(9)
    time.sleep(600)
"""


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with study.toml and runs/, which holds the study "tiny" of two arms and one seed and its corpus."""
    from paribus.draining import train_missing
    from paribus.experiment import loading
    from paribus.study import open_study, write_plan
    from tests.study.conftest import experiment_text, write_corpus

    folder = tmp_path_factory.mktemp("keeping")
    text = experiment_text(write_corpus(folder / "corpus"), arms=("standard", "xsa"), seeds=1)
    (folder / "study.toml").write_text(text, encoding="utf-8")
    study = open_study(loading.load(folder / "study.toml"), folder, folder / "runs")
    write_plan(study, [])
    with process_as_it_was():
        train_missing(study, lambda _: None, lambda: False)
    return folder


@pytest.fixture
def here(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the trained study's folder, as the working folder."""
    shutil.copytree(trained, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The study "mine": a finished cell with answers and a fine-tuned one, one that is not finished, a diverged one."""
    folder = StudyFolder(tmp_path_factory.mktemp("written") / "mine")
    folder.claim_for("mine")
    cells = [("standard", 1), ("standard", 2), ("other", 1), ("other", 2)]
    planned = [{"scale": "S", "arm": arm, "seed": seed, "variant": "", "digest": f"{seed}abc"} for arm, seed in cells]
    folder.write_plan({"cells": planned, "arms": [], "gates": [], "diagnostics": [], "environment": {"python": "3"}})
    folder.append_look("report", {"main": 1}, {}, "r")
    for arm, seed in cells:
        cell = folder.cell("S", arm, seed, f"{seed}abc")
        train(cell)
        if (arm, seed) == ("other", 2):
            cell.finish({"reason": "the loss became nan", "step": 4}, diverged=True)
        elif arm == "standard":
            end(cell)
    done = folder.cell("S", "standard", 1, "1abc")
    answer(done.path)
    tuned = CellFolder(done.path / "finetuned" / "7-chat")
    train(tuned, name="finetune.json")
    return folder.path


@pytest.fixture
def study(written: Path, tmp_path: Path) -> Path:
    """A copy of the drawn study, in a folder of runs of its own."""
    return shutil.copytree(written, tmp_path / "runs" / "mine")


@pytest.fixture
def contents() -> Callable[[Path], dict[str, bytes]]:
    """Every file below a folder but those of claims, with its bytes."""

    def of(folder: Path) -> dict[str, bytes]:
        files = [path for path in sorted(folder.rglob("*")) if path.is_file() and ".claims" not in path.parts]
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}

    return of


@pytest.fixture
def aged() -> Callable[[Path], Path]:
    """Let a file, and what is in it, look as if nobody had written it for two hours."""

    def old(path: Path) -> Path:
        then = time.time() - 2 * HOURS
        for each in (path, *path.rglob("*")):
            os.utime(each, (then, then))
        return path

    return old


@pytest.fixture
def hold() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Another process that holds a folder, or that has died holding it ("die"); `kill` ends it."""
    started: list[subprocess.Popen[str]] = []

    def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", HOLDING, str(folder), *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline().strip().isdigit()
        if arguments:
            process.wait()
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()
