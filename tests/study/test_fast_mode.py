"""A study in fast mode, by real processes: gates, cells, costs, the report, an update made again."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from paribus.costing.parts import COMPILED
from paribus.costing.ways import WAYS

pytestmark = pytest.mark.skipif(bool(WAYS["compiled"].missing()), reason=WAYS["compiled"].missing())


def test_a_study_in_fast_mode_runs_from_its_gates_to_its_report(
    prepared: Path,
    tmp_path: Path,
    text: Callable[..., str],
    paribus: Callable[..., subprocess.Popen[str]],
):
    def ran(*arguments: str) -> str:
        process = paribus(tmp_path, *arguments)
        out, err = process.communicate(timeout=600)
        assert (process.returncode, err) == (0, "")
        return out

    shutil.copytree(prepared, tmp_path, dirs_exist_ok=True)
    fast = text(arms=("standard", "xsa"), seeds=2, repeats=1, execution='mode = "fast"\ncost_rounds = 2')
    (tmp_path / "study.toml").write_text(fast, encoding="utf-8")
    ran("run", "study.toml")
    study = tmp_path / "runs" / "tiny"
    plan = json.loads((study / "plan.json").read_text())
    compiled = [gate for gate in plan["gates"] if gate["name"].startswith("compiled, ")]
    assert [(gate["subject"], gate["passed"]) for gate in compiled] == [("tiny/standard", True), ("tiny/xsa", True)]
    cost = json.loads((study / "cost" / "tiny.json").read_text())
    assert cost["ways"] == ["compiled"]
    assert set(cost["parts"]["xsa/compiled"]) == {COMPILED, "Muon", "AdamW", "other"}
    assert cost["bytes_for_backward"]["xsa/compiled"] > cost["bytes_for_backward"]["standard/compiled"] > 0
    report = json.loads((study / "report.json").read_text())
    [repeat] = [entry for entry in report["noise"] if entry["kind"] == "repeat"]
    assert len(repeat["differences"]) == 1
    assert any("mode fast" in caveat for caveat in report["caveats"])
    [cell] = (study / "tiny" / "xsa").glob("1-*")
    assert json.loads((cell / "cell.json").read_text())["resolved"]["execution"]["mode"] == "fast"
    # On a CPU, with the same threads, a graph from the disk gives the same bits again: from a checkpoint as well.
    again = json.loads(ran("replay", str(cell), "--step", "18", "--json"))
    assert again["same"] is True
    assert again["begun_at"] != "its beginning"
    assert any("fast mode" in note for note in again["notes"])
