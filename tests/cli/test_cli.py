import json
import math
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import paribus.cli
from paribus import __version__
from paribus.cli import FAMILIES
from paribus.experiment import loading
from paribus.runs.study_folder import StudyFolder

DEMO = str(Path(__file__).parents[2] / "experiments" / "demo.toml")
CELLS = len(loading.load(Path(DEMO)).cell_keys())
COMMANDS = ("plan", "check", "run", "status", "report")
Cli = Callable[..., tuple[int, str, str]]

LOADED = """
import sys
from paribus.cli import main

sys.argv = ["paribus", *sys.argv[1:]]
try:
    main()
except SystemExit as ended:
    code = ended.code
heavy = {"torch", "tokenizers", "safetensors"} & sys.modules.keys()
sys.stderr.write(f"{code} {sorted(heavy)}")
"""


@pytest.fixture
def cli(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cli:
    """The entry point in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return cli


@pytest.fixture
def started(tmp_path: Path) -> Path:
    """A run folder of the demo in which nothing was trained."""
    StudyFolder(tmp_path / "runs" / "demo").claim_for("demo")
    return tmp_path / "runs" / "demo"


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["status", DEMO], ["report", DEMO]])
def test_help_status_and_report_load_no_torch(started: Path, arguments: list[str]):
    command = [sys.executable, "-c", LOADED, *arguments]
    done = subprocess.run(command, cwd=started.parents[1], capture_output=True, text=True, check=False)
    assert done.stderr in ("0 []", "None []")
    assert done.stdout


def test_help_names_every_command_and_every_command_has_help(cli: Cli):
    code, out, _ = cli("--help")
    assert code == 0
    for command in COMMANDS:
        assert f" {command} " in out
        code, own, _ = cli(command, "--help")
        assert code == 0
        assert "FILE" in own


def test_help_shows_the_commands_in_the_order_in_which_a_study_uses_them(cli: Cli, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "200")
    listed = re.findall(r"^│ ([a-z]+) ", cli("--help")[1], re.MULTILINE)
    assert (
        " ".join(listed)
        == "plan power check laws fields tasks try run work calibrate bench status report replay doctor gc move "
        "compare adopt tunnel data diagnose import evaluate finetune generate"
    )


def test_every_file_of_commands_is_a_family_of_the_command_line():
    files = Path(paribus.cli.__file__).parent.glob("*.py")
    assert {path.stem for path in files} == {*FAMILIES, "__init__", "options", "output"}


def test_the_version_is_the_packages(cli: Cli):
    assert cli("--version")[1] == f"paribus {__version__}\n"


@pytest.mark.parametrize("arguments", [["plna"], ["plan"], ["plan", DEMO, "--jsno"]])
def test_a_wrong_call_is_exit_code_2_and_an_error_on_stderr(cli: Cli, arguments: list[str]):
    code, out, err = cli(*arguments)
    assert (code, out) == (2, "")
    assert err


@pytest.mark.parametrize("command", COMMANDS)
def test_a_missing_file_is_one_error_on_stderr_and_exit_code_2(cli: Cli, command: str):
    code, out, err = cli(command, "absent.toml")
    assert (code, out) == (2, "")
    assert err.startswith("error: absent.toml: no such file\n")


@pytest.mark.parametrize("command", ["status", "report"])
def test_reading_a_study_that_was_never_run_names_the_folder_and_the_remedy(cli: Cli, tmp_path: Path, command: str):
    code, out, err = cli(command, DEMO)
    assert (code, out) == (1, "")
    assert "study 'demo' has no run folder yet" in err
    assert "remedy: start it with `paribus run`, or name its folder with --runs" in err
    assert list(tmp_path.iterdir()) == [], "reading writes nothing"


def test_plan_as_json_is_json_and_nothing_else_and_writes_nothing(cli: Cli, tmp_path: Path):
    code, out, err = cli("plan", DEMO, "--json")
    assert (code, err) == (0, "")
    plan = json.loads(out)
    assert plan["study"] == "demo"
    demo = loading.load(Path(DEMO))
    assert len(plan["cells"]) == CELLS
    assert {cell["state"] for cell in plan["cells"]} == {"missing"}
    assert [arm["arm"] for arm in plan["arms"]] == ["standard", "xsa", "block", "rd"]
    for arm in plan["arms"]:
        assert arm["parameters"] == sum(arm["parameters_by_role"].values())
        assert set(arm["optimiser_by_tensor"].values()) == {"Muon", "AdamW"}
        assert arm["steps"] == math.ceil(demo.scales["tiny"].budget_tokens / demo.base.batch_tokens)
    assert plan["arms"][0]["parameters"] == plan["arms"][1]["parameters"] < plan["arms"][2]["parameters"]
    assert plan["minimum_detectable_effect_in_sd"] == pytest.approx(1.68, abs=0.01)
    assert all(contrast["cannot_conclude"] for contrast in plan["contrasts"].values())
    assert list(tmp_path.iterdir()) == []


def test_plan_prints_cells_roles_optimisers_and_what_the_design_cannot_conclude(cli: Cli):
    code, out, _ = cli("plan", DEMO)
    assert code == 0
    for words in ("Cells", "FLOPs", "Parameters by role", "Which optimiser gets which tensor", "Muon", "AdamW"):
        assert words in out
    assert "Cannot conclude" in out
    assert "found with 80 %" in out


def test_status_as_json_is_json_and_nothing_else_and_is_no_look(cli: Cli, started: Path):
    code, out, err = cli("status", DEMO, "--json")
    assert (code, err) == (0, "")
    status = json.loads(out)
    assert {cell["state"] for cell in status["cells"]} == {"missing"}
    assert len(status["cells"]) == CELLS
    assert status["stale_folders"] == []
    assert not (started / "looks.jsonl").exists()


def test_report_as_json_is_json_and_nothing_else_and_is_a_look(cli: Cli, started: Path):
    code, out, err = cli("report", DEMO, "--json")
    assert (code, err) == (0, "")
    assert [verdict["name"] for verdict in json.loads(out)["verdicts"]] == ["block", "xsa", "rd"]
    assert out == (started / "report.json").read_text(encoding="utf-8")
    (look,) = [json.loads(line) for line in (started / "looks.jsonl").read_text(encoding="utf-8").splitlines()]
    assert (look["words"], look["command"]) == ({}, "report")
    assert look["pairs"] == {"block": 0, "xsa": 0, "rd": 0}


def test_reports_of_an_empty_study_give_no_word(cli: Cli, started: Path):
    code, out, _ = cli("report", DEMO)
    assert code == 0
    assert out.count("waiting for the") == 3
    assert f"report: {Path('runs') / 'demo' / 'report.html'}" in out
    assert f"{CELLS} cells are not complete" in out
    assert (started / "report.html").exists()


@pytest.mark.parametrize("command", ["run", "status", "report"])
def test_a_folder_that_is_not_a_studys_is_refused_and_left_alone(cli: Cli, tmp_path: Path, command: str):
    (tmp_path / "runs" / "demo").mkdir(parents=True)
    (tmp_path / "runs" / "demo" / "thesis.tex").write_text("years of work", encoding="utf-8")
    code, _, err = cli(command, DEMO)
    assert code == 1
    assert err.startswith("error: ")
    assert [path.name for path in (tmp_path / "runs" / "demo").iterdir()] == ["thesis.tex"]


def test_the_runs_folder_can_be_named(cli: Cli, tmp_path: Path):
    StudyFolder(tmp_path / "elsewhere" / "demo").claim_for("demo")
    assert cli("status", DEMO, "--runs", "elsewhere", "--json")[0] == 0


def test_watching_refuses_to_print_json(cli: Cli, started: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("paribus.publishing.watch", lambda *_: None)  # which does not end by itself
    code, out, err = cli("report", DEMO, "--watch", "--json")
    assert (code, out) == (2, "")
    assert "--json" in err
    assert "--watch" in err
    assert [path.name for path in started.iterdir()] == ["study.json"], "and writes nothing"
