"""What an update costs: how it is measured, when a measurement still holds, and what is put on record."""

import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from paribus.costing import running, ways
from paribus.costing.running import (
    FEWEST_BLOCKS_BEFORE_STOPPING,
    WARM_UP_BLOCKS,
    Choice,
    Effort,
    bench,
    identity,
    measure,
    measure_missing_costs,
    pairs,
)
from paribus.costing.ways import Way
from paribus.errors import ParibusError
from paribus.experiment.plan import ArmAtScale, resolve_arms
from paribus.experiment.spec import Experiment
from paribus.kernels import compiler
from paribus.reading.times import compared
from paribus.runs.layout import COST_FORMAT, cost_fault
from paribus.runs.study_folder import StudyFolder
from paribus.sample_update import Spent, bytes_for_backward, peak_bytes, profiled_peak_bytes, stepper
from paribus.seeds import generator

THIRD = ("[contrasts.main]", '[arms.third]\noutput_map = { name = "xsa", strength = 0.5 }\n[contrasts.main]')
AGAINST_TRICK = (
    "[seeds]",
    '[contrasts.more]\ntreatment = "third"\nbaseline = "trick"\nsmallest_effect = 0.01\ndesign_effect = 0.03\n[seeds]',
)


@pytest.fixture
def folder(tmp_path: Path) -> StudyFolder:
    found = StudyFolder(tmp_path / "runs" / "tiny")
    found.claim_for("tiny")
    return found


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[Effort]:
    """The effort of every measurement that was asked for; none of them trains. Their records are whole."""
    asked: list[Effort] = []

    def pretend(
        experiment: Experiment, arms: Mapping[str, ArmAtScale], effort: Effort, *_: object, **rows: int
    ) -> dict[str, Any]:
        assert rows == {"micro_batch_rows": experiment.execution.declared_rows}
        asked.append(effort)
        return {**record(list(arms)), "identity": identity(experiment, arms)}

    monkeypatch.setattr(running, "measure", pretend)
    return asked


def record(arms: list[str]) -> dict[str, Any]:
    columns = {f"{arm}/eager": {"arm": arm, "way": "eager", "again": False} for arm in arms}
    return {
        "format": COST_FORMAT,
        "identity": {"arms": {}, "code": {}},
        "host": "a made host",
        "ways": ["eager"],
        "columns": columns,
        "comparisons": [],
        "wall_seconds": {name: [1.0, 1.0] for name in columns},
        "cpu_seconds": {name: [1.0, 1.0] for name in columns},
        "bytes_for_backward": dict.fromkeys(columns, 1),
        "peak_bytes": dict.fromkeys(columns, 1),
        "parts": {name: {"loss": 1.0} for name in columns},
        "part_order": ["loss"],
        "parts_in": "wall time",
        "batch_tokens": dict.fromkeys(arms, 256),
    }


def quiet() -> Console:
    return Console(file=io.StringIO())


def at_small(experiment: Experiment) -> dict[str, ArmAtScale]:
    return {name: arm for (_, name), arm in resolve_arms(experiment).items()}


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The order in which updates were made, one letter each; an update takes as many seconds of wall time as updates
    were made before, and half of it of processor time."""
    order: list[str] = []

    def made(arm: ArmAtScale, *_: object, **__: object) -> Callable[[], Spent]:
        letter = chr(ord("a") + len(letters))
        letters.append(arm.arm)

        def update() -> Spent:
            order.append(letter)
            return Spent(float(len(order)), len(order) / 2)

        return update

    letters: list[str] = []
    monkeypatch.setattr(running, "stepper", made)
    monkeypatch.setattr(running, "bytes_for_backward", lambda _: 7)
    monkeypatch.setattr(running, "profiled_peak_bytes", lambda *_: 9)
    monkeypatch.setattr(running, "measured_parts", lambda updates: {name: {"loss": 1.0} for name in updates})
    return order


def test_arms_take_turns_in_mirrored_blocks_and_the_baseline_is_there_twice(load, turns: list[str]) -> None:
    experiment = load()
    found = measure(experiment, at_small(experiment), Effort(most_rounds=12))
    blocks = ["".join(turns[i : i + 6]) for i in range(0, len(turns), 6)]
    assert len(blocks) == WARM_UP_BLOCKS + 6
    assert all(block[:3] == block[:2:-1] for block in blocks), "the second half runs backwards"
    assert {"".join(sorted(block[:3])) for block in blocks} == {"abc"}
    for first in range(0, 6, 3):
        for place in range(3):
            assert {block[place] for block in blocks[first : first + 3]} == {*"abc"}, (
                "each is in every place equally often"
            )
    assert found["columns"] == {
        "plain/eager": {"arm": "plain", "way": "eager", "again": False},
        "trick/eager": {"arm": "trick", "way": "eager", "again": False},
        "plain/eager/again": {"arm": "plain", "way": "eager", "again": True},
    }
    assert found["comparisons"] == [["trick/eager", "plain/eager"]]
    assert cost_fault(json.loads(json.dumps(found))) == ""


def test_warm_up_is_not_counted_and_both_clocks_are_kept(load, turns: list[str]) -> None:
    experiment = load()
    found = measure(experiment, at_small(experiment), Effort(most_rounds=4))
    walls = sorted(second for seconds in found["wall_seconds"].values() for second in seconds)
    assert walls == [6.0 * WARM_UP_BLOCKS + i for i in range(1, 13)]
    assert {name: [2 * second for second in seconds] for name, seconds in found["cpu_seconds"].items()} == found[
        "wall_seconds"
    ]
    assert len(turns) == 6 * (WARM_UP_BLOCKS + 2)


def test_the_order_of_turns_is_the_studys_own_stream(load, turns: list[str]) -> None:
    def order_of(study: str) -> list[str]:
        turns.clear()
        experiment = load(('study = "tiny"', f'study = "{study}"'))
        measure(experiment, at_small(experiment), Effort(most_rounds=12))
        return [letter_of[letter] for letter in turns]

    letter_of = dict(zip("abcdefghi", "abcabcabc", strict=True))
    assert order_of("tiny") == order_of("tiny") != order_of("other")


@pytest.mark.usefixtures("turns")
def test_progress_counts_every_round_warm_up_included_and_an_odd_one_makes_its_block_whole(load) -> None:
    seen: list[tuple[int, int]] = []
    experiment = load()
    arms = at_small(experiment)
    measure(experiment, arms, Effort(most_rounds=3), progress=lambda done, total: seen.append((done, total)))
    total = 2 * (WARM_UP_BLOCKS + 2)
    assert seen == [(done, total) for done in range(2, total + 1, 2)]


def paced(monkeypatch: pytest.MonkeyPatch, seconds: Callable[[int], float]) -> None:
    """Update number n of any arm takes `seconds(n)`."""
    count = 0

    def made(*_: object, **__: object) -> Callable[[], Spent]:
        def update() -> Spent:
            nonlocal count
            count += 1
            return Spent(seconds(count), seconds(count))

        return update

    monkeypatch.setattr(running, "stepper", made)


@pytest.mark.usefixtures("turns")
def test_rounds_go_on_until_every_interval_is_within_the_resolution_or_to_the_most(
    load, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = load()

    def blocks(seconds: Callable[[int], float], effort: Effort) -> int:
        paced(monkeypatch, seconds)
        found = measure(experiment, at_small(experiment), effort)
        assert (found["resolution"], found["most_rounds"]) == (effort.resolution, effort.most_rounds)
        return len(found["wall_seconds"]["plain/eager"]) // 2

    def steady(_: int) -> float:
        return 0.1

    noise = generator("tests", "costing", "restless").lognormal(0.0, 0.3, 20_000)

    def restless(count: int) -> float:
        return 0.1 * noise[count]

    assert blocks(steady, Effort(400, 0.01)) == FEWEST_BLOCKS_BEFORE_STOPPING
    assert blocks(restless, Effort(120, 0.0001)) == 60
    assert blocks(steady, Effort(120, None)) == 60, "where no resolution is asked for, all of them"
    few, many = (blocks(restless, Effort(2000, resolution)) for resolution in (0.2, 0.06))
    assert FEWEST_BLOCKS_BEFORE_STOPPING <= few < many < 1000


def test_contrasts_say_what_is_compared_and_every_baseline_is_measured_twice(load, turns: list[str]) -> None:
    del turns
    experiment = load(THIRD, AGAINST_TRICK)
    arms = at_small(experiment)
    assert pairs(experiment, arms) == [("trick", "plain"), ("third", "trick")]
    found = measure(experiment, arms, Effort(2))
    assert [name for name, column in found["columns"].items() if column["again"]] == [
        "plain/eager/again",
        "trick/eager/again",
    ]
    without = load(THIRD)
    assert pairs(without, arms) == [("trick", "plain"), ("third", "plain")], "an arm of no contrast is not forgotten"
    assert pairs(without, arms, "third") == [("plain", "third"), ("trick", "third")]


def test_another_baseline_of_a_contrast_measures_anew_and_another_contrast_alike_does_not(
    load, folder: StudyFolder, measured: list[Effort]
) -> None:
    for experiment in (load(THIRD), load(THIRD, (*AGAINST_TRICK[:1], AGAINST_TRICK[1].replace('"trick"', '"plain"')))):
        measure_missing_costs(experiment, resolve_arms(experiment), folder, quiet())
    assert len(measured) == 1
    experiment = load(THIRD, AGAINST_TRICK)
    measure_missing_costs(experiment, resolve_arms(experiment), folder, quiet())
    assert len(measured) == 2


def test_a_further_way_is_a_line_and_is_timed_by_itself_and_against_the_first(
    load, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered: list[str] = []

    class Noted:
        def __enter__(self) -> None:
            entered.append("within")

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setitem(
        ways.WAYS, "other", Way("another", within=Noted, made=lambda model: entered.append("made") or model)
    )
    experiment = load()
    found = measure(experiment, at_small(experiment), Effort(2), Choice(ways=("other",)))
    assert found["ways"] == ["eager", "other"]
    assert found["comparisons"] == [
        ["trick/eager", "plain/eager"],
        ["trick/other", "plain/other"],
        ["plain/other", "plain/eager"],
        ["trick/other", "trick/eager"],
    ]
    again = [name for name, column in found["columns"].items() if column["again"]]
    assert again == ["plain/eager/again", "plain/other/again", "trick/eager/again"], "A/A in every comparison"
    assert entered.count("made") == 3
    assert entered.count("within") > 3 * 2 * (WARM_UP_BLOCKS + 1), "every update runs in it"
    assert len(compared(found)) == 4


def test_only_ways_that_are_asked_for_are_timed_beside_the_first(load) -> None:
    experiment = load()
    assert measure(experiment, at_small(experiment), Effort(2))["ways"] == ["eager"]


def test_other_ways_are_compared_with_that_of_the_files_mode() -> None:
    assert list(ways.ways_of([], "fast")) == ["compiled"]
    assert list(ways.ways_of(["eager", "compiled"], "fast")) == ["compiled", "eager"]
    assert list(ways.ways_of(["operators", "compiled"], "proof")) == ["eager", "compiled", "operators"]


def test_without_compiled_kernels_an_update_computes_with_operators(load) -> None:
    seen: list[str] = []
    with ways.WAYS["operators"].within():
        seen.append(compiler.in_use())
    assert seen == ["PyTorch operators"]
    experiment = load()
    found = measure(experiment, at_small(experiment), Effort(2), Choice(ways=("operators",)))
    assert ["plain/operators", "plain/eager"] in found["comparisons"]


def test_a_way_that_does_not_exist_or_is_not_here_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ParibusError, match="updates are not computed in a way 'operator'"):
        ways.ways_of(["operator"], "proof")
    monkeypatch.setitem(ways.WAYS, "absent", Way("none here", missing=lambda: "no compiler"))
    with pytest.raises(ParibusError, match="cannot be computed in the way 'absent'") as refused:
        ways.ways_of(["absent"], "proof")
    assert refused.value.received == "no compiler"


def test_a_measurement_holds_for_the_same_arms_code_and_host(load, folder: StudyFolder, measured: list[Effort]) -> None:
    experiment = load()
    for _ in range(2):
        measure_missing_costs(experiment, resolve_arms(experiment), folder, quiet())
    assert measured == [Effort(2)]
    bench(experiment, resolve_arms(experiment), folder, quiet(), Effort(8, 0.1), Choice())
    assert measured == [Effort(2), Effort(8, 0.1)], "bench measures whatever there is"
    measure_missing_costs(experiment, resolve_arms(experiment), folder, quiet())
    assert len(measured) == 2, "and what it found holds"


def test_a_record_of_an_earlier_format_is_measured_anew(load, folder: StudyFolder, measured: list[Effort]) -> None:
    experiment = load()
    old = {
        "identity": identity(experiment, at_small(experiment)),
        "host": "h",
        "again": {"arm": "plain", "column": "plain (same arm)"},
        "seconds": {"plain": [1.0, 2.0], "trick": [1.0, 2.0], "plain (same arm)": [1.0, 2.0]},
        "bytes_for_backward": {"plain": 7, "trick": 7},
        "batch_tokens": {"plain": 256, "trick": 256},
    }
    folder.write_cost("small", old)
    assert "of an earlier version, which timed no blocks" in cost_fault(folder.cost("small"))
    measure_missing_costs(experiment, resolve_arms(experiment), folder, quiet())
    assert len(measured) == 1
    assert cost_fault(folder.cost("small")) == ""


def test_the_record_of_another_machine_is_replaced_and_never_compared(
    load, folder: StudyFolder, measured: list[Effort]
) -> None:
    del measured
    experiment = load()
    folder.write_cost("small", {**record(["plain"]), "host": "elsewhere"})
    console = Console(file=io.StringIO(), width=200)
    bench(experiment, resolve_arms(experiment), folder, console, Effort(2), Choice())
    assert isinstance(console.file, io.StringIO)
    said = "the record of another machine (elsewhere) is replaced and not compared"
    assert said in console.file.getvalue()
    bench(experiment, resolve_arms(experiment), folder, console, Effort(2), Choice())
    assert console.file.getvalue().count(said) == 1
    assert (folder.cost("small") or {})["host"] == "a made host"


def test_a_choice_of_arms_goes_not_on_record_and_a_misspelt_one_measures_nothing(
    load, folder: StudyFolder, measured: list[Effort]
) -> None:
    experiment = load()
    arms = resolve_arms(experiment)
    for choice in (Choice(("trick",)), Choice(baseline="trick")):
        bench(experiment, arms, folder, quiet(), Effort(2), choice)
    assert (len(measured), folder.cost("small")) == (2, None)
    with pytest.raises(ParibusError, match="no arm 'trik'") as caught:
        bench(experiment, arms, folder, quiet(), Effort(2), Choice(("trik",)))
    assert "trick" in str(caught.value)
    assert len(measured) == 2


@pytest.mark.parametrize("where", ["budgets_tokens = [4_000, 7_000]", "milestones_tokens = [5_000]"])
def test_a_further_budget_costs_no_further_measurement_but_another_full_run_does(
    load, folder: StudyFolder, measured: list[Effort], where: str
) -> None:
    before, after = load(), load(("mlp_width = 48", f"mlp_width = 48\n{where}"), ("count = 3", "count = 5"))
    for experiment in (before, after):
        measure_missing_costs(experiment, resolve_arms(experiment), folder, quiet())
    assert len(measured) == (1 if "budgets" in where else 2)


def test_changed_code_of_one_arm_measures_anew(
    load, folder: StudyFolder, measured: list[Effort], monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment, digest = load(), running.code_digest
    arms = resolve_arms(experiment)
    own = {*arms["small", "trick"].code_roots} - {*arms["small", "plain"].code_roots}
    measure_missing_costs(experiment, arms, folder, quiet())
    monkeypatch.setattr(
        running, "code_digest", lambda roots: f"other-{digest(roots)}" if own & {*roots} else digest(roots)
    )
    for _ in range(2):
        measure_missing_costs(experiment, arms, folder, quiet())
    assert len(measured) == 2


@pytest.mark.parametrize("field", ["processor", "cores", "torch"])
def test_another_host_or_torch_measures_anew(
    load, folder: StudyFolder, measured: list[Effort], monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    experiment, here = load(), running.environment()
    measure_missing_costs(experiment, resolve_arms(experiment), folder, quiet())
    monkeypatch.setattr(running, "environment", lambda: {**here, field: "another"})
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
    load, folder: StudyFolder, measured: list[Effort]
) -> None:
    experiment = load(("cost_rounds = 2", "cost_rounds = 0"))
    measure_missing_costs(experiment, resolve_arms(experiment), folder, quiet())
    assert (measured, folder.cost("small")) == ([], None)
    bench(experiment, resolve_arms(experiment), folder, quiet(), Effort(4), Choice())
    assert measured == [Effort(4)]


def test_bytes_for_backward_counts_each_storage_once_while_the_graph_holds_it() -> None:
    weights = torch.ones(1000, requires_grad=True)

    def update() -> None:
        result = weights.exp()  # keeps its result: 4,000 bytes
        (result * result).sum().backward()  # keeps the same result, twice

    def with_a_view() -> None:
        (weights.exp() * weights[:10].sin().sum()).sum().backward()  # sin keeps a view: the whole storage of weights

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


def test_the_profilers_peak_is_that_of_the_storages_that_operations_return(load) -> None:
    for arm in at_small(load()).values():
        step, device = stepper(arm, torch.device("cpu"), 0), torch.device("cpu")
        step()  # the state of the optimisers
        # Two accounts of the same: every allocation, and every result of an operation. Kernels may need more inside.
        assert profiled_peak_bytes(step, device) >= peak_bytes(step, device) > bytes_for_backward(step) / 2


def test_the_profilers_peak_counts_what_is_there_at_one_time() -> None:
    def step() -> None:
        for _ in range(3):
            torch.empty(1000)  # given back each time
        held = torch.empty(2000), torch.empty(500)
        del held

    assert profiled_peak_bytes(step, torch.device("cpu")) == 10_000
