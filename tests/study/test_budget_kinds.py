from collections.abc import Callable
from pathlib import Path

from paribus.draining import train_missing
from paribus.experiment import loading
from paribus.experiment.spec import STUDY, budget_variant
from paribus.reading.study import read_study
from paribus.study import open_study, write_plan


def test_a_budget_of_the_other_kind_is_stale_and_the_full_run_is_not(fresh: Path, text: Callable[..., str]) -> None:
    before = text(arms=("standard", "xsa"), seeds=1)
    after = before.replace(
        "milestones_tokens = [5_000]", "milestones_tokens = [5_000]\nbudgets_tokens = [4_000, 7_000]"
    )
    other = after.replace("[4_000, 7_000]", '[4_000, 7_000]\nbudget_cells = "branches"')

    def states(written: str) -> dict[tuple[str, str], str]:
        Path("study.toml").write_text(written, encoding="utf-8")
        study = read_study(loading.load(Path("study.toml")), Path("runs"))
        return {(arm, variant): cell.state for (_, arm, _, variant), cell in study.cells.items()}

    Path("study.toml").write_text(after, encoding="utf-8")
    study = open_study(loading.load(Path("study.toml")), fresh, Path("runs"))
    write_plan(study, [])
    train_missing(study, lambda _: None, lambda: False)
    assert set(states(after).values()) == {"complete"}
    assert set(states(before).values()) == {"complete"}
    found = states(other)
    assert {found[arm, STUDY] for arm in ("standard", "xsa")} == {"complete"}
    assert {found[arm, budget_variant(4_000)] for arm in ("standard", "xsa")} == {"stale"}
