"""Every command that reads an experiment file finds the modules that lie in the working folder."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Cli = Callable[..., tuple[int, str, str]]
COMMANDS = ("plan", "power", "check", "run", "work", "calibrate", "bench", "status", "report")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_that_reads_a_file_looks_for_modules_in_the_working_folder(
    command: str, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path != str(tmp_path)])
    Path("none.toml").write_text("", encoding="utf-8")  # refused, after the folder has been put on the path
    code, _, _ = cli(command, "none.toml")
    assert code == 2
    assert str(tmp_path) in sys.path
