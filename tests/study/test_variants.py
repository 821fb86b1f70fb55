"""Cells beside those that contrasts are made of: perturbed twins, other seeds, and smaller budgets of two kinds."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.torch import load

from paribus.draining import train_missing
from paribus.errors import ExperimentFileError
from paribus.experiment import loading
from paribus.experiment.spec import STUDY, TWIN, budget_variant, rule_digest
from paribus.reading.study import read_study
from paribus.study import Study, open_study, write_plan
from paribus.train.state import TENSORS
from paribus.training import train_cell

LARGEST = "milestones_tokens = [5_000]"
BUDGETS = "budgets_tokens = [4_000, 7_000]"
KINDS = "[noise]\nrepeats = 1\ntwins = 2\nother_seeds = 1\n"
Text = Callable[..., str]


def opened(tmp_path: Path, prepared: Path, changed: str) -> Study:
    """The study of a changed file, on the corpus that is already frozen."""
    (tmp_path / "study.toml").write_text(changed, encoding="utf-8")
    runs = tmp_path / "runs" / "tiny"
    runs.mkdir(parents=True)
    for name in ("study.json", "corpus"):
        (runs / name).symlink_to(prepared / "runs" / "tiny" / name)
    return open_study(loading.load(tmp_path / "study.toml"), tmp_path, tmp_path / "runs")


def trained(study: Study) -> Study:
    write_plan(study, [])
    train_missing(study, lambda _: None, lambda: False)
    return study


def final_nll(study: Study, tmp_path: Path) -> dict[tuple[str, int, str], float]:
    cells = read_study(study.experiment, tmp_path / "runs").cells
    found = {(arm, seed, variant): cell.final("test.nll") for (_, arm, seed, variant), cell in cells.items()}
    return {key: value for key, value in found.items() if value is not None}


@pytest.fixture
def two_arms(text: Text) -> str:
    return text(arms=("standard", "xsa"), seeds=2, execution="threads = 1").replace("[noise]\nrepeats = 0\n", KINDS)


def test_a_twin_parts_from_its_cell_by_rounding_that_grows_and_a_repeat_by_nothing(
    tmp_path: Path, prepared: Path, two_arms: str
) -> None:
    study = trained(opened(tmp_path, prepared, two_arms))
    found = final_nll(study, tmp_path)
    assert len(found) == 2 * 2 + 1 + 2 + 1
    assert found["standard", 0, "repeat"] == found["standard", 0, STUDY]
    for seed in (0, 1):
        twin, original = found["standard", seed, TWIN], found["standard", seed, STUDY]
        assert 0 < abs(twin - original) < 0.01
    folders = {(cell.arm, cell.seed, cell.variant): study.cell_folder(cell) for cell in study.cells}
    initial = {key: folder.record()["initial_digests"] for key, folder in folders.items()}
    unequal = {
        name for name, digest in initial["standard", 0, TWIN].items() if digest != initial["standard", 0, STUDY][name]
    }
    assert unequal == {"embedding"}
    same_batches = {folders["standard", 0, v].summary()["batch_digest"] for v in (STUDY, TWIN, "repeat")}
    assert len(same_batches) == 1


def test_the_seeds_behind_the_planned_ones_belong_to_no_pair(tmp_path: Path, prepared: Path, two_arms: str) -> None:
    study = opened(tmp_path, prepared, two_arms)
    assert study.experiment.other_seeds == (2,)
    assert [cell.key for cell in study.cells if cell.seed == 2] == [("tiny", "standard", 2, STUDY)]
    more = replace(study, experiment=study.experiment)  # raising the count later takes the cell as it is
    raised = two_arms.replace("count = 2", "count = 3")
    (tmp_path / "more.toml").write_text(raised, encoding="utf-8")
    later = open_study(loading.load(tmp_path / "more.toml"), tmp_path, tmp_path / "runs")
    digests = {cell.key: cell.digest for cell in later.cells}
    assert {cell.key: cell.digest for cell in more.cells}.items() <= digests.items()


def test_a_smaller_budget_ends_a_schedule_of_its_own(tmp_path: Path, prepared: Path, text: Text) -> None:
    changed = text(arms=("standard", "xsa"), seeds=1).replace(LARGEST, BUDGETS)
    study = trained(opened(tmp_path, prepared, changed))
    for cell in study.cells:
        lines = study.cell_folder(cell).metrics()
        assert [line["step"] for line in lines] == list(range(1, cell.length.steps + 1))
        assert lines[-1]["learning_rate_multiplier"] < 0.2
    found = final_nll(study, tmp_path)
    by_budget = [found["standard", 0, v] for v in (budget_variant(4_000), budget_variant(7_000), STUDY)]
    assert by_budget == sorted(by_budget, reverse=True)


def test_a_branch_leaves_its_trunk_bit_for_bit_where_it_would_have_come_by_itself(
    tmp_path: Path, prepared: Path, text: Text
) -> None:
    branches = f'{BUDGETS}\nbudget_cells = "branches"'
    changed = text(arms=("standard", "xsa"), seeds=1).replace(LARGEST, branches)
    study = trained(opened(tmp_path, prepared, changed))
    branch = next(cell for cell in study.cells if cell.key == ("tiny", "standard", 0, budget_variant(7_000)))
    assert branch.trunk is not None
    folder = study.cell_folder(branch)
    steps = [line["step"] for line in folder.metrics()]
    assert steps == list(range(branch.length.leaves_after + 1, branch.length.steps + 1)), "the rest is the trunk's"
    # The trunk at the branch's last shared update has the full rate; from there on the branch cools down alone.
    rates = [line["learning_rate_multiplier"] for line in folder.metrics()]
    assert rates[0] > rates[-1]
    trunk_rates = [line["learning_rate_multiplier"] for line in study.cell_folder(branch.trunk).metrics()]
    assert trunk_rates[branch.length.leaves_after - 1] == 1.0
    left = load(folder.latest_checkpoint()[1][TENSORS])  # pyright: ignore[reportOptionalSubscript]

    alone = tmp_path / "alone"
    alone.mkdir()
    again = opened(alone, prepared, changed)
    same = next(cell for cell in again.cells if cell.key == branch.key)
    train_cell(again, replace(same, trunk=None), lambda _: None, lambda: False)
    by_itself = again.cell_folder(same)
    assert [line["step"] for line in by_itself.metrics()] == list(range(1, branch.length.steps + 1))
    tensors = load(by_itself.latest_checkpoint()[1][TENSORS])  # pyright: ignore[reportOptionalSubscript]
    assert tensors.keys() == left.keys()
    assert all(tensors[name].equal(left[name]) for name in left)
    assert by_itself.summary()["batch_digest"] == folder.summary()["batch_digest"]


SCHEDULED = 'routing = { name = "role-decoupled", blocks = 2, untie_at = 0.5 }'


@pytest.mark.parametrize(
    ("schedule", "arm", "said"),
    [
        (
            "schedule = { warmup = 0.5, decay = 0.4 }",
            'output_map = { name = "xsa" }',
            "before the full run has warmed up",
        ),
        ("", SCHEDULED, "follows the share of the run that is done"),
    ],
    ids=("too early", "a scheduled mechanism"),
)
def test_branches_that_would_not_have_the_schedule_of_a_run_are_refused(
    tmp_path: Path, prepared: Path, text: Text, schedule: str, arm: str, said: str
) -> None:
    changed = text(arms=("standard", "xsa"), seeds=1).replace(LARGEST, f'{BUDGETS}\nbudget_cells = "branches"')
    changed = changed.replace("[scales.tiny]", f"{schedule}\n[scales.tiny]")
    changed = changed.replace('output_map = { name = "xsa" }', arm)
    with pytest.raises(ExperimentFileError, match="cannot be branches") as caught:
        opened(tmp_path, prepared, changed)
    assert said in str(caught.value)


def test_a_row_file_changed_by_hand_is_noticed_and_its_cell_is_not_used(
    tmp_path: Path, prepared: Path, text: Text
) -> None:
    study = trained(opened(tmp_path, prepared, text(arms=("standard", "xsa"), seeds=2)))
    assert len(final_nll(study, tmp_path)) == 4
    cell = next(cell for cell in study.cells if cell.key == ("tiny", "xsa", 1, STUDY))
    folder = study.cell_folder(cell)
    name = folder.row_files("likelihood")[0]
    rows = folder.rows(name).to_pydict()
    rows["nats"][0] -= 1.0
    folder.write_rows(name, rows)
    read = read_study(study.experiment, tmp_path / "runs")
    assert read.cells[cell.key].state == "altered"
    assert read.cells[cell.key].alterations == (f"{name}.parquet was changed",)
    assert ("xsa", 1, STUDY) not in final_nll(study, tmp_path)
    (folder.path / f"{name}.parquet").unlink()
    assert read_study(study.experiment, tmp_path / "runs").cells[cell.key].alterations == (
        f"{name}.parquet is missing",
    )


def test_the_first_stage_of_a_declared_extension_and_the_second_are_one_rule(tmp_path: Path, text: Text) -> None:
    def digest(count: int, extension: str) -> str:
        changed = text(seeds=3).replace("count = 3", f"count = {count}\n{extension}")
        (tmp_path / "study.toml").write_text(changed, encoding="utf-8")
        return rule_digest(loading.load(tmp_path / "study.toml"))

    declared = "extension = { stage_1_seeds = 3, stage_1_alpha = 0.01 }"
    assert digest(3, declared) == digest(6, declared)
    assert digest(3, "") != digest(6, "")
    assert digest(3, declared) != digest(3, declared.replace("0.01", "0.02"))
