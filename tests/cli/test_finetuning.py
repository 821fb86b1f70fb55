"""`paribus finetune`: what it prints, what it exits with, and what of it is one clear error."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from paribus.cli.finetuning import app
from paribus.errors import DivergenceError, ParibusError

TALK = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
MIXTURE = '[[parts]]\nsource = "conversations"\npath = "talk.jsonl"\n'


@pytest.fixture
def invoke(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mix.toml").write_text(MIXTURE, encoding="utf-8")
    (tmp_path / "talk.jsonl").write_text(json.dumps(TALK) + "\n", encoding="utf-8")
    return lambda *arguments: CliRunner().invoke(app, list(arguments))


def outcome(tmp_path: Path, state: str, **summary: Any) -> Any:
    base = SimpleNamespace(name="tiny/xsa/0")
    return SimpleNamespace(
        base=base, state=state, folder=tmp_path / "finetuned" / "mix", was_done=False, summary=summary
    )


DONE = {"steps": 7, "validation": {"0": {"bits_per_byte": 3.5}, "7": {"bits_per_byte": 2.25}}}


def test_a_line_a_cell_says_what_it_came_to(invoke: Callable[..., Result], tmp_path: Path, monkeypatch: Any):
    asked: list[Any] = []

    def finetune_cells(folders: list[Path], mixture: Any, data: Path, console: Any) -> list[Any]:
        asked.append((folders, mixture.name, data))
        del console
        return [outcome(tmp_path, "complete", **DONE)]

    monkeypatch.setattr("paribus.finetuning.running.finetune_cells", finetune_cells)
    found = invoke("cell", "--mixture", "mix.toml", "--data", "sets", "--name", "mine")
    assert found.exit_code == 0, found.output
    assert asked == [([Path("cell")], "mine", Path("sets"))]
    for said in ("tiny/xsa/0", "complete", "7", "3.5000", "2.2500"):
        assert said in found.output
    found = invoke("cell", "--mixture", "mix.toml", "--json")
    assert json.loads(found.stdout)[0]["summary"] == DONE
    assert asked[-1] == ([Path("cell")], "mix", Path())


@pytest.mark.parametrize(("state", "code"), [("stopped", 75), ("missing", 75), ("claimed", 0)])
def test_the_exit_code_says_whether_something_is_left(
    invoke: Callable[..., Result], tmp_path: Path, monkeypatch: Any, state: str, code: int
):
    monkeypatch.setattr("paribus.finetuning.running.finetune_cells", lambda *_: [outcome(tmp_path, state)])
    assert invoke("cell", "--mixture", "mix.toml").exit_code == code


def test_a_diverged_cell_is_an_error_that_names_it(invoke: Callable[..., Result], tmp_path: Path, monkeypatch: Any):
    ended = outcome(tmp_path, "diverged", reason="the loss became nan")
    monkeypatch.setattr("paribus.finetuning.running.finetune_cells", lambda *_: [ended])
    found = invoke("cell", "--mixture", "mix.toml")
    assert isinstance(found.exception, DivergenceError)
    assert "tiny/xsa/0" in str(found.exception)


def test_what_cannot_be_fine_tuned_is_said(invoke: Callable[..., Result]):
    found = invoke("nowhere", "--mixture", "mix.toml")
    assert isinstance(found.exception, ParibusError)
    assert "nowhere cannot be fine-tuned" in str(found.exception)
    found = invoke("nowhere", "--mixture", "nanochat-2026-8")
    assert "name a file, or a preset" in str(found.exception)
