"""`paribus check` and `paribus laws`: what they print, and that they see mechanisms of installed packages."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from paribus import checking
from paribus.errors import GateError
from paribus.experiment.gate import Gate
from paribus.mechanisms.contract import PRENORM, Bench, Law

Cli = Callable[..., tuple[int, str, str]]

LOOKS_AHEAD = '''
"""An output map from outside the project, in which each token sees a trace of the next one's value."""

from torch import nn

from paribus.mechanisms.contract import MechanismConfig, Seam


class Peek(nn.Module):
    def forward(self, y, values, document):
        return y + {trace} * values.aggregated.roll(-1, dims=1)


class PeekConfig(MechanismConfig):
    name = "crystal-ball"
    seam = Seam.OUTPUT_MAP

    def build(self, geometry, layer):
        return Peek()
'''


@pytest.fixture
def study(study_text: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """The name of an experiment file with the arm `tried`, in the current folder."""
    monkeypatch.chdir(tmp_path)

    def write(table: str) -> str:
        Path("study.toml").write_text(study_text("tried", table, scale={"layers": "2"}), encoding="utf-8")
        return "study.toml"

    return write


def test_check_prints_one_table_and_how_many_gates_passed(cli: Cli, study: Callable[[str], str]):
    file = study('mask = { name = "document" }')
    code, out, err = cli("check", file)
    assert (code, err) == (0, "")
    assert "FAILED" not in out
    code, as_json, err = cli("check", file, "--json")
    assert (code, err) == (0, "")
    found = json.loads(as_json)
    assert out.endswith(f"all {len(found)} gates passed\n")
    assert {gate["subject"] for gate in found} == {"tried", "tiny/standard", "tiny/tried"}
    assert all(gate.keys() == {"name", "subject", "passed", "detail"} for gate in found)
    assert list(Path().iterdir()) == [Path("study.toml")], "checking writes nothing"


@pytest.fixture
def installed(tmp_path: Path) -> Callable[[str], Path]:
    """A folder with a package as an installer leaves it: the module, and metadata with its entry point."""

    def install(source: str) -> Path:
        site = tmp_path / "site"
        metadata = site / "crystal_ball-0.1.dist-info"
        metadata.mkdir(parents=True)
        (site / "crystal_ball.py").write_text(source, encoding="utf-8")
        (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: crystal-ball\nVersion: 0.1\n")
        (metadata / "entry_points.txt").write_text("[paribus.mechanisms]\ncrystal-ball = crystal_ball\n")
        return site

    return install


def check_with(site: Path, file: str) -> "subprocess.CompletedProcess[str]":
    """`paribus check` in a process that finds the package of `site`."""
    return subprocess.run(
        [sys.executable, "-c", "from paribus.cli import main; main()", "check", file],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(site), *sys.path]), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(("trace", "passes"), [("1e-4", False), ("0.0", True)], ids=["looks ahead", "does not"])
def test_check_catches_an_installed_package_that_looks_into_the_future(
    study: Callable[[str], str], installed: Callable[[str], Path], trace: str, passes: bool
):
    file, site = study('output_map = { name = "crystal-ball" }'), installed(LOOKS_AHEAD.format(trace=trace))
    done = check_with(site, file)
    if passes:
        assert (done.returncode, done.stderr) == (0, "")
        assert "gates passed" in done.stdout
        return
    assert done.returncode == 1
    assert done.stderr.startswith("error: study.toml: 1 of ")
    assert "received: a token changes no earlier logit, bit for bit (tiny/tried: " in done.stderr
    first_row = done.stdout.splitlines()[2]
    assert first_row.startswith("FAILED  a token changes no earlier logit, bit for bit")
    assert "tiny/tried" in first_row


def test_check_of_a_package_that_crashes_is_a_table_and_no_traceback(
    study: Callable[[str], str], installed: Callable[[str], Path]
):
    source = LOOKS_AHEAD.format(trace="self.missing")
    line = next(n for n, text in enumerate(source.splitlines(), 1) if "self.missing" in text)
    done = check_with(installed(source), study('output_map = { name = "crystal-ball" }'))
    assert done.returncode == 1
    assert done.stderr.startswith("error: study.toml: ")
    assert "AttributeError: 'Peek' object has no attribute 'missing' (" in done.stderr
    assert f"crystal_ball.py:{line})" in done.stderr
    assert "Traceback" not in done.stderr + done.stdout
    assert done.stdout.splitlines()[2].startswith("FAILED  outputs are finite at step 0")


def test_axes_in_brackets_are_printed_and_an_arm_that_crashes_everywhere_is_described_once():
    crash = "expected [batch time] = [2, 3]"
    found = [Gate(name, "tiny/a", False, crash) for name in ("finite", "written")]
    found.append(Gate("finite", "tiny/b", True, "all"))
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(checking.gate_table(found))
    printed = console.export_text()
    assert printed.count(crash) == 1
    assert [line.split()[-2:] for line in printed.splitlines() if "written" in line] == [["as", "above"]]
    with pytest.raises(GateError) as caught:
        checking.require_gates(found, "study.toml")
    assert caught.value.received == f"finite + written (tiny/a: {crash})"


def test_failures_come_first_and_arms_of_which_the_same_is_said_share_a_row():
    found = [
        Gate("causal", "tiny/a", True, "bit for bit"),
        Gate("causal", "tiny/b", True, "bit for bit"),
        Gate("causal", "tiny/c", False, "1e-3"),
        Gate("written", "tiny/a", True, "all"),
    ]
    columns = [list(column.cells) for column in checking.gate_table(found).columns]
    assert columns[0] == ["FAILED", "passed", "passed"]
    assert columns[2] == ["tiny/c", "tiny/a, tiny/b", "tiny/a"]


def law(claim: str, found: float, broken: float) -> Law:
    def measure(bench: Bench, perturbed: bool) -> float:
        del bench
        return broken if perturbed else found

    return Law(claim, measure, "a push", 0.5, "a half", PRENORM)


def test_laws_lists_what_one_mechanism_declares_and_obeys(cli: Cli):
    code, out, err = cli("laws", "document", "--json")
    assert (code, err) == (0, "")
    rows = json.loads(out)
    assert {row["mechanism"] for row in rows} == {"document"}
    assert all(row["passed"] and row["found"] <= row["bound"] < row["found_when_perturbed"] for row in rows)
    code, out, _ = cli("laws", "document")
    assert code == 0
    assert f"all {len(rows)} laws hold, and every perturbation breaks its law" in out


def test_a_mechanism_stands_for_the_laws_of_its_module_too(cli: Cli, monkeypatch: pytest.MonkeyPatch):
    listed = [("document_mask", law("own", 0.0, 1.0)), ("document", law("all", 0.0, 1.0)), ("xsa", law("x", 0.0, 1.0))]
    monkeypatch.setattr(checking, "all_laws", lambda: iter(listed))
    assert [row["law"] for row in json.loads(cli("laws", "document", "--json")[1])] == ["own", "all"]
    assert [row["law"] for row in json.loads(cli("laws", "document_mask", "--json")[1])] == ["own"]
    assert len(json.loads(cli("laws", "--json")[1])) == 3


@pytest.mark.parametrize(("found", "broken"), [(0.6, 1.0), (0.0, 0.5), (float("nan"), 1.0)])
def test_a_law_that_fails_or_cannot_fail_is_an_error_that_names_it(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, found: float, broken: float
):
    listed = [("one", law("it holds", 0.0, 1.0)), ("other", law("it should hold", found, broken))]
    monkeypatch.setattr(checking, "all_laws", lambda: iter(listed))
    code, out, err = cli("laws")
    assert code == 1
    assert err.startswith("error: 1 of 2 laws failed\n  received: it should hold (other)")
    rows = [line.split() for line in out.splitlines() if line.startswith(("FAILED", "passed"))]
    assert [row[:2] for row in rows] == [["FAILED", "other"], ["passed", "one"]]
    code, out, _ = cli("laws", "--json")
    assert (code, [row["passed"] for row in json.loads(out)]) == (1, [True, False])


def test_an_unknown_name_of_laws_gets_the_nearest_one(cli: Cli):
    code, out, err = cli("laws", "documnt")
    assert (code, out) == (2, "")
    assert "did you mean 'document'?" in err


def test_the_page_of_laws_is_a_table_with_one_row_a_law(cli: Cli, monkeypatch: pytest.MonkeyPatch):
    listed = [("one", law("|a| is b", 0.0, 1.0)), ("two", law("c", 0.25, 2.0))]
    monkeypatch.setattr(checking, "all_laws", lambda: iter(listed))
    code, out, err = cli("laws", "--markdown")
    assert (code, err) == (0, "")
    rows = [line for line in out.splitlines() if line.startswith("|")]
    assert (
        rows[0] == "| mechanism | backbone | law | found | bound | perturbation that broke it | found then "
        "| where the bound comes from |"
    )
    assert rows[2:] == [
        "| one | prenorm | \\|a\\| is b | 0 | 5.0e-01 | a push | 1.0e+00 | a half |",
        "| two | prenorm | c | 2.5e-01 | 5.0e-01 | a push | 2.0e+00 | a half |",
    ]
