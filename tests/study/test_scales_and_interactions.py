"""A run folder read back: contrasts of four arms, and two scales of one file side by side."""

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from paribus.draining import train_missing
from paribus.experiment import loading
from paribus.reading.evidence import comparisons, contrast_differences, verdicts_of
from paribus.reading.study import read_study
from paribus.runs.folder import CellFolder
from paribus.stats.rule import Word
from paribus.study import open_study, write_plan

INTERACTION = """
[contrasts.interaction]
treatment = "rd"
baseline = "block"
minus_treatment = "xsa"
minus_baseline = "standard"
smallest_effect = 0.01
design_effect = 0.03
"""
ARMS = ("rd", "block", "xsa", "standard")
Cli = Callable[..., tuple[int, str, str]]


def train(folder: Path, scale: str | None = None) -> None:
    study = open_study(loading.load(folder / "study.toml", scale), folder, folder / "runs")
    write_plan(study, None)
    train_missing(study, lambda _: None, lambda: False)


def place(folder: Path, arm: str, seed: int) -> CellFolder:
    return CellFolder(next((folder / "runs" / "tiny" / "tiny" / arm).glob(f"{seed}-*")))


@pytest.fixture
def factorial(fresh: Path, text: Callable[..., str]) -> Path:
    """A finished study of four arms and three seeds with their interaction."""
    (fresh / "study.toml").write_text(text() + INTERACTION, encoding="utf-8")
    train(fresh)
    return fresh


def test_an_interaction_is_read_decided_and_shown_from_its_four_cells_a_seed(factorial: Path, cli: Cli):
    loss = {}
    for arm in ARMS:
        for seed in range(3):
            rows = place(factorial, arm, seed).rows("likelihood/test-00000020").to_pydict()
            loss[arm, seed] = math.fsum(rows["nats"]) / sum(rows["tokens"])
    expected = [(loss["rd", s] - loss["block", s]) - (loss["xsa", s] - loss["standard", s]) for s in range(3)]
    study = read_study(loading.load(factorial / "study.toml"), factorial / "runs")
    comparison = next(c for c in comparisons(study) if c.name == "interaction")
    assert comparison.differences.differences == pytest.approx(expected, abs=1e-12)
    assert comparison.arms == ARMS
    assert cli("report", "study.toml")[0] == 0
    data = json.loads((factorial / "runs" / "tiny" / "report.json").read_text(encoding="utf-8"))
    verdict = next(v for v in data["verdicts"] if v["name"] == "interaction")
    assert verdict["mean"] == pytest.approx(math.fsum(expected) / 3)
    assert verdict["arms"] == list(ARMS)
    table = (factorial / "runs" / "tiny" / "verdict.md").read_text(encoding="utf-8")
    assert "(rd \N{MINUS SIGN} block) \N{MINUS SIGN} (xsa \N{MINUS SIGN} standard)" in table

    # A seed without one of the cells is missing from the contrasts that need it, and from no other.
    shutil.rmtree(place(factorial, "xsa", 1).path)
    study = read_study(loading.load(factorial / "study.toml"), factorial / "runs")
    seeds = {name: contrast_differences(study, c).seeds for name, c in study.experiment.contrasts.items()}
    assert seeds == {"block": (0, 1, 2), "rd": (0, 1, 2), "xsa": (0, 2), "interaction": (0, 2)}

    # A diverged cell is a pair that counts: here against the side that the baseline's arms stand on.
    lost = place(factorial, "block", 0)
    (lost.path / "DONE").unlink()
    lost.finish({"reason": "the training loss became nan at step 3", "step": 3}, diverged=True)
    study = read_study(loading.load(factorial / "study.toml"), factorial / "runs")
    pairs = contrast_differences(study, study.experiment.contrasts["interaction"])
    assert (pairs.seeds, pairs.treatment_diverged, pairs.baseline_diverged) == ((2,), (), (0,))


def test_two_scales_of_a_file_have_folders_plans_looks_and_reports_of_their_own(
    fresh: Path, cli: Cli, text: Callable[..., str]
):
    file = text(arms=("standard", "xsa"), seeds=1).replace('study = "tiny"\n', "")
    wide = "[scales.wide]\nlayers = 1\nwidth = 32\nmlp_width = 32\nbudget_tokens = 5_000\nseeds = { count = 2 }\n"
    own = wide + "base = { tokenizer = { vocabulary_size = 280 }, context_length = 64 }\n"
    (fresh / "study.toml").write_text(file.replace("[arms.standard]", f"{own}[arms.standard]"), encoding="utf-8")
    for scale in ("tiny", "wide"):
        train(fresh, scale)
        code, out, err = cli("run", "study.toml", "--scale", scale)
        assert (code, err) == (0, "")
        assert out.startswith("nothing to train")
        assert f"report: runs/study@{scale}/report.html" in out
    folders = {scale: fresh / "runs" / f"study@{scale}" for scale in ("tiny", "wide")}
    for scale, folder in folders.items():
        plan = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
        assert {cell["scale"] for cell in plan["cells"]} == {scale}
        assert len(plan["cells"]) == {"tiny": 2, "wide": 4}[scale]
        assert plan["corpus"]["vocabulary_size"] == {"tiny": 300, "wide": 280}[scale]
        assert len((folder / "looks.jsonl").read_text(encoding="utf-8").splitlines()) == 1
        assert f"paribus run study.toml --scale {scale}" in (folder / "report.html").read_text(encoding="utf-8")
        study = read_study(loading.load(fresh / "study.toml", scale), fresh / "runs")
        assert study.count("complete") == len(study.cells)
        assert {verdict.word for verdict in verdicts_of(study)} == {Word.EXPLORATORY}
        assert {verdict.scale for verdict in verdicts_of(study)} == {scale}
    code, out, _ = cli("status", "study.toml", "--scale", "wide", "--json")
    assert code == 0
    assert json.loads(out)["study"] == "study@wide"
