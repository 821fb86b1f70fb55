"""`paribus work`, parked cells and `--retry-parked`, as a person meets them on the command line."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from paribus.runs.folder import CellFolder
from paribus.runs.holders import history

Cli = Callable[..., tuple[int, str, str]]
TINY = {"arms": ("standard", "xsa"), "seeds": 1, "execution": "workers = 1\ncost_rounds = 0"}
# Passes every gate, which are checked by the command's own process, and fails in the worker that it starts.
FRAGILE = '''
"""A map that changes nothing, and that no worker can train as long as a file says so."""

import multiprocessing
from pathlib import Path

from torch import nn

from paribus.mechanisms.contract import MechanismConfig, Seam


class Fragile(nn.Module):
    def forward(self, y, values, document):
        if multiprocessing.parent_process() is not None and Path("raising").exists() and y.device.type != "meta":
            raise RuntimeError("on purpose")
        return y


class FragileConfig(MechanismConfig):
    name = "fragile"
    seam = Seam.OUTPUT_MAP

    def build(self, geometry, layer):
        return Fragile()
'''


def cells(folder: Path) -> dict[str, CellFolder]:
    return {path.parent.name: CellFolder(path) for path in (folder / "runs" / "tiny" / "tiny").glob("*/*")}


def test_a_worker_without_a_parent_drains_the_study_and_refuses_to_train_other_cells(
    fresh: Path, text: Callable[..., str], cli: Cli
):
    (fresh / "study.toml").write_text(text(**TINY), encoding="utf-8")
    code, out, err = cli("work", "study.toml")
    assert (code, err) == (0, "")
    assert "one more worker for 2 of 2 cells that are not finished" in out
    plan = json.loads((fresh / "runs" / "tiny" / "plan.json").read_text(encoding="utf-8"))
    assert plan["gates"], "nobody had planned it, so it checked the gates"
    assert all(gate["passed"] for gate in plan["gates"])
    assert [cell.state for cell in cells(fresh).values()] == ["complete", "complete"]
    assert not (fresh / "runs" / "tiny" / "looks.jsonl").exists(), "it shows no outcome"
    code, out, err = cli("work", "study.toml")
    assert (code, err) == (0, "")
    assert "nothing to train: all 2 cells are finished" in out

    (fresh / "study.toml").write_text(text(**TINY, batch_tokens="256"), encoding="utf-8")
    code, _, err = cli("work", "study.toml")
    assert code == 1
    assert "2 of 2 cells are not those that this study is planned with" in err
    assert "remedy: use the same file" in err
    assert len(cells(fresh)) == 2, "nothing was begun"


def test_a_parked_cell_is_named_the_report_is_written_and_retrying_trains_it(
    fresh: Path, text: Callable[..., str], cli: Cli, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sys, "path", [str(fresh), *sys.path])
    broken = '[arms.broken]\noutput_map = { name = "fragile:fragile" }\n[seeds]'
    (fresh / "study.toml").write_text(text(**TINY).replace("[seeds]", broken), encoding="utf-8")
    (fresh / "fragile.py").write_text(FRAGILE, encoding="utf-8")
    (fresh / "raising").touch()
    code, out, err = cli("run", "study.toml")
    assert code == 1
    assert err.startswith("error: 1 cell is parked after too many failed attempts: tiny/broken/0\n")
    assert "received: tiny/broken/0: RuntimeError: on purpose" in err
    assert "--retry-parked" in err
    assert out.count("tiny/broken/0 failed and will be tried again: RuntimeError: on purpose") == 2
    assert {name: cell.state for name, cell in cells(fresh).items()}["xsa"] == "complete"
    assert (fresh / "runs" / "tiny" / "report.html").exists(), "what is there is shown"
    assert len(history(cells(fresh)["broken"].path)) == 3

    (fresh / "raising").unlink()
    code, _, err = cli("work", "study.toml")
    assert code == 1, "it stays parked until somebody says so"
    assert "tiny/broken/0" in err
    code, out, err = cli("work", "study.toml", "--retry-parked")
    assert (code, err) == (0, "")
    assert "no longer parked: tiny/tiny/broken/0-" in out
    assert [cell.state for cell in cells(fresh).values()] == ["complete"] * 3
