"""What an update costs: how it is measured, when a measurement still holds, and what is put on record."""

import io
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from paribus import costing
from paribus.costing import SAME_ARM, WARM_UP_ROUNDS, identity, measure, measure_missing_costs
from paribus.experiment import loading
from paribus.experiment.plan import ArmAtScale, resolve_arms
from paribus.experiment.spec import Experiment
from paribus.runs.study_folder import StudyFolder
from paribus.sample_update import bytes_for_backward, stepper

EXPERIMENT = """
study = "tiny"
question = "What does it cost?"
[base]
context_length = 32
batch_tokens = 256
tokenizer = { vocabulary_size = 300 }
model = { head_width = 16 }
[scales.small]
layers = 2
width = 32
mlp_width = 48
budget_tokens = 10_000
[arms.plain]
[arms.trick]
output_map = { name = "xsa" }
[contrasts.main]
treatment = "trick"
baseline = "plain"
primary = true
smallest_effect = 0.01
design_effect = 0.03
[seeds]
count = 3
[execution]
threads = 1
cost_rounds = 2
"""
SEEN_ON = "a made host"


@pytest.fixture
def load(tmp_path: Path) -> Callable[..., Experiment]:
    """The experiment, with texts of the file replaced."""

    def loaded(*changes: tuple[str, str]) -> Experiment:
        text = EXPERIMENT
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        (tmp_path / "study.toml").write_text(text, encoding="utf-8")
        return loading.load(tmp_path / "study.toml")

    return loaded


@pytest.fixture
def folder(tmp_path: Path) -> StudyFolder:
    found = StudyFolder(tmp_path / "runs" / "tiny")
    found.claim_for("tiny")
    return found


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Rounds of every measurement that was asked for; none of them trains."""
    asked: list[int] = []

    def pretend(
        experiment: Experiment, arms: Mapping[str, ArmAtScale], rounds: int, _: object, **rows: int
    ) -> dict[str, Any]:
        assert rows == {"micro_batch_rows": experiment.execution.declared_rows}
        asked.append(rounds)
        return {"identity": identity(experiment, arms)}

    monkeypatch.setattr(costing, "measure", pretend)
    return asked


def quiet() -> Console:
    return Console(file=io.StringIO())


def at_small(experiment: Experiment) -> dict[str, ArmAtScale]:
    return {name: arm for (_, name), arm in resolve_arms(experiment).items()}


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The order in which steps were made, one letter a step; a step takes as many seconds as steps were made before."""
    order: list[str] = []

    def made(arm: ArmAtScale, *_: object) -> Callable[[], float]:
        letter = chr(ord("a") + len(letters))
        letters.append(arm.arm)

        def step() -> float:
            order.append(letter)
            return float(len(order))

        return step

    letters: list[str] = []
    monkeypatch.setattr(costing, "stepper", made)
    monkeypatch.setattr(costing, "bytes_for_backward", lambda _: 7)
    return order


def test_arms_take_turns_in_rounds_of_a_drawn_order(load, turns: list[str]) -> None:
    experiment = load()
    found = measure(experiment, at_small(experiment), rounds=12)
    rounds = ["".join(turns[i : i + 3]) for i in range(0, len(turns), 3)]
    assert len(rounds) == WARM_UP_ROUNDS + 12
    assert {"".join(sorted(turn)) for turn in rounds} == {"abc"}, "every stepper once a round"
    assert len(set(rounds)) > 1, "the same order every round would confound the arm with its place"
    assert list(found["seconds"]) == ["plain", "trick", "plain" + SAME_ARM], "the primary's baseline is there twice"
    assert found["again"] == {"arm": "plain", "column": "plain" + SAME_ARM}


def test_warm_up_rounds_are_not_counted(load, turns: list[str]) -> None:
    experiment = load()
    seconds = measure(experiment, at_small(experiment), rounds=4)["seconds"]
    assert {len(values) for values in seconds.values()} == {4}
    assert sorted(s for values in seconds.values() for s in values) == [3.0 * WARM_UP_ROUNDS + i for i in range(1, 13)]
    assert len(turns) == 3 * (WARM_UP_ROUNDS + 4)


def test_the_order_of_turns_is_the_studys_own_stream(load, turns: list[str]) -> None:
    def order_of(study: str) -> list[str]:
        turns.clear()
        experiment = load(('study = "tiny"', f'study = "{study}"'))
        measure(experiment, at_small(experiment), rounds=6)
        return [letter_of[letter] for letter in turns]

    letter_of = dict(zip("abcdefghi", "abcabcabc", strict=True))
    assert order_of("tiny") == order_of("tiny") != order_of("other")


@pytest.mark.usefixtures("turns")
def test_progress_counts_every_round_warm_up_included(load) -> None:
    seen: list[tuple[int, int]] = []
    experiment = load()
    measure(experiment, at_small(experiment), 2, lambda done, total: seen.append((done, total)))
    total = WARM_UP_ROUNDS + 2
    assert seen == [(done, total) for done in range(1, total + 1)]


def test_a_measurement_holds_for_the_same_arms_code_and_host(load, folder: StudyFolder, measured: list[int]) -> None:
    experiment = load()
    for _ in range(2):
        measure_missing_costs(experiment, resolve_arms(experiment), folder, quiet())
    assert measured == [2]
    measure_missing_costs(experiment, resolve_arms(experiment), folder, quiet(), again=True)
    assert measured == [2, 2], "again measures whatever there is"


@pytest.mark.parametrize("where", ["budgets_tokens = [4_000, 7_000]", "milestones_tokens = [5_000]"])
def test_a_further_budget_costs_no_further_measurement_but_another_full_run_does(
    load, folder: StudyFolder, measured: list[int], where: str
) -> None:
    before, after = load(), load(("mlp_width = 48", f"mlp_width = 48\n{where}"), ("count = 3", "count = 5"))
    for experiment in (before, after):
        measure_missing_costs(experiment, resolve_arms(experiment), folder, quiet())
    assert len(measured) == (1 if "budgets" in where else 2)


def test_changed_code_of_one_arm_measures_anew(
    load, folder: StudyFolder, measured: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment, digest = load(), costing.code_digest
    arms = resolve_arms(experiment)
    own = {*arms["small", "trick"].code_roots} - {*arms["small", "plain"].code_roots}
    measure_missing_costs(experiment, arms, folder, quiet())
    monkeypatch.setattr(
        costing, "code_digest", lambda roots: f"other-{digest(roots)}" if own & {*roots} else digest(roots)
    )
    for _ in range(2):
        measure_missing_costs(experiment, arms, folder, quiet())
    assert len(measured) == 2


@pytest.mark.parametrize("field", ["processor", "cores", "torch"])
def test_another_host_or_torch_measures_anew(
    load, folder: StudyFolder, measured: list[int], monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    experiment, here = load(), costing.environment()
    measure_missing_costs(experiment, resolve_arms(experiment), folder, quiet())
    monkeypatch.setattr(costing, "environment", lambda: {**here, field: "another"})
    measure_missing_costs(experiment, resolve_arms(experiment), folder, quiet())
    assert len(measured) == 2


@pytest.mark.parametrize(
    ("old", "new"), [("threads = 1", "threads = 2"), ("width = 32", "width = 64"), ('"xsa"', '"xsa", strength = 0.5')]
)
def test_the_identity_says_what_a_measurement_depends_on(load, old: str, new: str) -> None:
    one, other = load(), load((old, new))
    assert identity(one, at_small(one)) == identity(one, at_small(one))
    assert identity(one, at_small(one)) != identity(other, at_small(other))
    assert json.loads(json.dumps(identity(one, at_small(one)))) == identity(one, at_small(one)), "as it is read back"


def test_a_file_that_asks_for_no_rounds_is_measured_only_when_asked(
    load, folder: StudyFolder, measured: list[int]
) -> None:
    experiment = load(("cost_rounds = 2", "cost_rounds = 0"))
    measure_missing_costs(experiment, resolve_arms(experiment), folder, quiet())
    assert (measured, folder.cost("small")) == ([], None)
    measure_missing_costs(experiment, resolve_arms(experiment), folder, quiet(), again=True)
    assert measured == [costing.DEFAULT_ROUNDS]


def test_bytes_for_backward_counts_each_storage_once_while_the_graph_holds_it() -> None:
    weights = torch.ones(1000, requires_grad=True)

    def update() -> float:
        result = weights.exp()  # keeps its result: 4,000 bytes
        (result * result).sum().backward()  # keeps the same result, twice
        return 0.0

    def with_a_view() -> float:
        (weights.exp() * weights[:10].sin().sum()).sum().backward()  # sin keeps a view: the whole storage of weights
        return 0.0

    assert bytes_for_backward(update) == 4000
    assert bytes_for_backward(with_a_view) == 2 * 4000 + 4  # the scalar factor as well


def test_bytes_for_backward_of_micro_batches_are_those_of_the_largest(load) -> None:
    arm = at_small(load())["plain"]

    def kept(rows: int) -> int:
        step = stepper(arm, torch.device("cpu"), rows)
        first, second = bytes_for_backward(step), bytes_for_backward(step)
        assert first == second, "the addresses that the allocator hands out say nothing"
        return first

    whole, half, quarter = (kept(rows) for rows in (8, 4, 2))
    assert kept(0) == whole, "0 is all rows at once"
    # Activations grow with the rows, parameters do not: an affine function of the rows, with integers exactly.
    assert whole - half == 2 * (half - quarter) > 0
    assert quarter > half - quarter, "what does not grow with the rows is the parameters"


def test_cost_prints_json_and_puts_the_same_on_record(cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("study.toml").write_text(EXPERIMENT, encoding="utf-8")
    code, out, _ = cli("cost", "study.toml", "--json")
    assert code == 0
    assert json.loads(out) == {"small": StudyFolder(Path("runs") / "tiny").cost("small")}
    found = json.loads(out)["small"]
    assert {name: len(values) for name, values in found["seconds"].items()} == dict.fromkeys(
        ("plain", "trick", "plain" + SAME_ARM), 2
    )
    assert all(seconds > 0 for values in found["seconds"].values() for seconds in values)
    assert found["bytes_for_backward"].keys() == {"plain", "trick"}
    assert found["bytes_for_backward"]["trick"] > found["bytes_for_backward"]["plain"], "it keeps the values it removes"
    assert found["batch_tokens"] == {"plain": 256, "trick": 256}


def test_the_table_gives_ratios_round_by_round() -> None:
    cost = {
        "host": SEEN_ON,
        "again": {"arm": "plain", "column": "plain" + SAME_ARM},
        # A round that is slow for both arms leaves their ratio alone; the ratio of medians would be 1.
        "seconds": {"plain": [1.0, 2.0, 4.0], "trick": [1.5, 3.0, 2.0], "plain" + SAME_ARM: [1.0, 2.0, 4.0]},
        "bytes_for_backward": {"plain": 2**20, "trick": 3 * 2**20},
        "batch_tokens": {"plain": 512, "trick": 512},
    }
    console = Console(file=io.StringIO(), width=160)
    costing.show(cost, "small", console)
    assert isinstance(console.file, io.StringIO)
    lines = {" ".join(re.split(r"\W{2,}", line.strip(" │┃"))) for line in console.file.getvalue().splitlines()}
    text = console.file.getvalue()
    assert f"Scale small: 3 interleaved rounds on {SEEN_ON}" in text
    trick = next(line for line in lines if line.startswith("trick"))
    assert re.findall(r"[\d.]+", trick) == ["256", "1.500", "1.000", "1.500", "3.0"]
