"""Arms that a file asks for in one line: what they are made of, which cells they have, and what is refused."""

import copy
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from rich.console import Console

from paribus.costing import running as costing
from paribus.errors import ExperimentFileError, PairCheckError
from paribus.experiment import loading, spec
from paribus.experiment.control import LEAST_CHANGE, SCHEDULE_ARM, with_longer_decay
from paribus.experiment.gates import planned_gates
from paribus.experiment.pairs import check_derived, check_pairs
from paribus.experiment.plan import cells, resolve_arms
from paribus.experiment.seeds import written
from paribus.experiment.sweeps import described, expanded
from paribus.experiment.tuning import trial_experiment, with_values
from paribus.optim.config import ScheduleConfig
from paribus.runs.study_folder import StudyFolder

WHERE = Path("study.toml")
STRENGTHS = 'sweep = { "output_map.strength" = [0.25, 0.5, 1.0] }'
CONTROL = "[robustness]\nschedule = true\n"


@pytest.fixture
def load(tiny: str, tmp_path: Path) -> Callable[..., spec.Experiment]:
    """The small experiment with each first occurrence replaced and `more` at the end."""

    def loaded(*changes: tuple[str, str], more: str = "", scale: str | None = None) -> spec.Experiment:
        text = tiny
        for old, new in changes:
            assert old in text
            text = text.replace(old, new, 1)
        file = tmp_path / "study.toml"
        file.write_text(text + more, encoding="utf-8")
        return loading.load(file, scale)

    return loaded


def swept(sweep: str, arm: str = "xsa") -> tuple[str, str]:
    return f"[arms.{arm}]\n", f"[arms.{arm}]\nsweep = {sweep}\n"


def keys_of(experiment: spec.Experiment, arm: str) -> list[spec.Key]:
    return [key for key in experiment.cell_keys() if key[1] == arm]


def test_a_sweep_stands_for_one_arm_a_value_and_the_arms_own_value_for_itself(load: Callable) -> None:
    experiment = load(swept('{ "output_map.strength" = [0.25, 0.5, 1.0] }'))
    assert list(experiment.arms) == ["standard", "xsa", "block", "rd", "xsa.strength-0.25", "xsa.strength-0.5"]
    assert experiment.arm("xsa.strength-0.25").output_map == {"name": "xsa", "strength": 0.25}
    assert experiment.arm("xsa").output_map == {"name": "xsa", "strength": 1.0}
    (group,) = described(experiment)
    assert (group.of, group.knob, group.own, group.values) == ("xsa", "output_map.strength", 1.0, (0.25, 0.5))
    assert group.sentence == "xsa with output_map.strength 0.25, 0.5 in place of 1"


def test_a_swept_field_of_the_recipe_changes_that_field_alone(load: Callable) -> None:
    experiment = load(swept('{ optimiser.matrix_learning_rate = [1e-2, 2e-2], "model.rotary_base" = [500.0, 1e4] }'))
    own = experiment.arm("xsa").model_dump()
    for name, table, field, value in (
        ("xsa.matrix_learning_rate-0.01", "optimiser", "matrix_learning_rate", 0.01),
        ("xsa.rotary_base-500", "model", "rotary_base", 500.0),
    ):
        other = experiment.arm(name).model_dump()
        assert other[table].pop(field) == value
        expected = copy.deepcopy(own)
        expected[table].pop(field)
        assert other == expected
    assert list(experiment.robustness.derived) == ["xsa.matrix_learning_rate-0.01", "xsa.rotary_base-500"], (
        "0.02 is written in [base], 10,000 is the default: both are the arm itself"
    )


def test_fields_of_one_name_are_told_apart_by_their_tables() -> None:
    table = tables('{ "mask.width" = [4, 8], "value_map.width" = [4, 8] }', mask={"name": "m", "width": 1})
    table["arms"]["xsa"]["value_map"] = {"name": "v", "width": 2}
    names = list(expanded(table, WHERE)["robustness"]["derived"])
    assert names == [f"xsa.{seam}.width-{value}" for seam in ("mask", "value_map") for value in (4, 8)]


def test_a_whole_number_is_the_arms_own_float_and_true_is_no_number() -> None:
    table = tables('{ "mask.on" = [true, 1], "output_map.strength" = [1, 2] }', mask={"name": "m", "on": True})
    assert list(expanded(table, WHERE)["robustness"]["derived"]) == ["xsa.on-1", "xsa.strength-2"]


def test_the_schedule_control_is_the_primarys_baseline_with_half_as_long_a_decay_again(load: Callable) -> None:
    experiment = load(("schedule = { warmup = 0.05 }", "schedule = { warmup = 0.05, decay = 0.3 }"), more=CONTROL)
    control, baseline = experiment.arm(SCHEDULE_ARM), experiment.arm("standard")
    assert control.schedule.decay == 0.45
    assert control.model_copy(update={"schedule": baseline.schedule}) == baseline
    assert experiment.beside(SCHEDULE_ARM) == ("block", "standard")
    # The default decay of 0.4 counts like one that is written.
    assert load(more=CONTROL).arm(SCHEDULE_ARM).schedule.decay == 0.6


@given(st.floats(0.01, 1.0), st.floats(0.0, 0.99))
def test_the_longer_decay_never_reaches_into_the_warmup(decay: float, warmup: float) -> None:
    schedule = ScheduleConfig(decay=decay, warmup=warmup)
    base = spec.Base(context_length=2, batch_tokens=2, schedule=schedule)
    gained = min(1.5 * decay, 1.0 - warmup) - decay
    assume(abs(gained - LEAST_CHANGE) > 1e-9)
    if gained < LEAST_CHANGE:
        with pytest.raises(ExperimentFileError, match="cannot be longer"):
            with_longer_decay(base)
        return
    found = with_longer_decay(base)
    longer = found.schedule.decay
    assert found.model_copy(update={"schedule": schedule}) == base
    # Rounded to 12 digits, so that 1.5 times 0.4 is 0.6.
    assert longer == pytest.approx(min(1.5 * decay, 1.0 - warmup), abs=1e-12)
    assert decay < longer <= 1.0 - warmup + 1e-12


def test_a_scales_own_schedule_is_the_one_that_is_lengthened(load: Callable) -> None:
    own = ("[scales.tiny]\n", "[scales.tiny]\nbase = { schedule = { decay = 0.2 } }\n")
    assert load(own, more=CONTROL).arm(SCHEDULE_ARM).schedule.decay == 0.3
    second = "[scales.other]\nlayers = 1\nwidth = 32\nmlp_width = 48\nbudget_tokens = 10_000\n"
    for scale, decay in (("tiny", 0.3), ("other", 0.6)):
        experiment = load(own, more=second + CONTROL, scale=scale)
        assert experiment.arm(SCHEDULE_ARM).schedule.decay == decay
        assert described(experiment)[0].sentence.endswith(f"{decay} in place of {decay / 1.5:g}")


def test_a_value_is_the_arm_itself_at_the_scale_where_it_is_the_arms_own(load: Callable) -> None:
    second = "[scales.other]\nlayers = 1\nwidth = 32\nmlp_width = 48\nbudget_tokens = 10_000\n"
    text = swept('{ "optimiser.matrix_learning_rate" = [0.02, 0.04] }')
    rate = second + "base = { optimiser = { matrix_learning_rate = 0.04 } }\n"
    for scale, own, other in (("tiny", "0.02", "0.04"), ("other", "0.04", "0.02")):
        experiment = load(text, more=rate, scale=scale)
        assert [group.arms for group in described(experiment)] == [(f"xsa.matrix_learning_rate-{other}",)]
        assert keys_of(experiment, f"xsa.matrix_learning_rate-{own}") == []
        assert len(keys_of(experiment, f"xsa.matrix_learning_rate-{other}")) == 3


def test_a_decay_that_cannot_be_longer_is_refused_with_the_file_named(load: Callable) -> None:
    with pytest.raises(ExperimentFileError, match="the decay of the primary's baseline cannot be longer") as caught:
        load(("schedule = { warmup = 0.05 }", "schedule = { warmup = 0.2, decay = 0.8 }"), more=CONTROL)
    assert "study.toml: robustness.schedule" in caught.value.what
    assert caught.value.received == "warmup = 0.2, decay = 0.8"


def test_derived_arms_have_the_first_seeds_alone_and_no_copies_budgets_or_rates(load: Callable) -> None:
    budgets = ("milestones_tokens = [5_000]", "budgets_tokens = [3_000, 6_000]\nbudget_cells = 'branches'")
    copies = ("repeats = 1", "repeats = 2\ntwins = 2\nother_seeds = 2")
    rates = "[robustness]\nschedule = true\nrate_factors = [0.5, 2.0]\nseeds = 3\n"
    many = load(
        swept('{ "output_map.strength" = [0.5, 1.0] }'), ("count = 3", "count = 6"), copies, budgets, more=rates
    )
    few = load(("count = 3", "count = 6"), copies, budgets, more=rates.replace("schedule = true\n", ""))
    for arm in (SCHEDULE_ARM, "xsa.strength-0.5"):
        assert keys_of(many, arm) == [("tiny", arm, seed, "") for seed in (0, 1, 2)]
    assert [key for key in many.cell_keys() if key[1] in few.arms] == few.cell_keys(), "no other cell comes or goes"


def test_derived_cells_are_trained_last_and_leave_every_other_cell_as_it_is(load: Callable) -> None:
    plain, many = load(), load(swept('{ "output_map.strength" = [0.5, 1.0] }'), more=CONTROL)
    before, after = (cells(of, resolve_arms(of), "corpus") for of in (plain, many))
    assert [cell.key for cell in after[: len(before)]] == [cell.key for cell in before]
    assert [cell.digest for cell in after[: len(before)]] == [cell.digest for cell in before]
    assert {cell.arm for cell in after[len(before) :]} == {SCHEDULE_ARM, "xsa.strength-0.5"}
    assert spec.rule_digest(plain) == spec.rule_digest(many), "nothing that decides a verdict is changed"
    assert len({cell.digest for cell in after}) == len(after) - 1, "but the A/A repeat, no cell is another one again"


def test_a_longer_decay_asks_no_branch_of_the_full_run(load: Callable) -> None:
    # The decay of 0.6 would leave at update 8 * 0.4 = 3, before the warm-up of 0.2 * 20 = 4 updates is over.
    branches = ("milestones_tokens = [5_000]", "budgets_tokens = [4_000]\nbudget_cells = 'branches'")
    experiment = load(branches, ("warmup = 0.05", "warmup = 0.2"), more=CONTROL)
    arms = resolve_arms(experiment)
    control = [cell for cell in cells(experiment, arms, "corpus") if cell.arm == SCHEDULE_ARM]
    assert [(cell.variant, cell.branches_at) for cell in control] == [("", ())] * 3
    with pytest.raises(ExperimentFileError, match="cannot be branches"):
        resolve_arms(load(branches, ("warmup = 0.05", "warmup = 0.2, decay = 0.6")))


def test_the_experiment_that_workers_are_sent_is_the_same(load: Callable) -> None:
    experiment = load(swept('{ "output_map.strength" = [0.5, 1.0], "model.qk_norm" = [true, false] }'), more=CONTROL)
    again = spec.Experiment.model_validate_json(experiment.model_dump_json(exclude_unset=True))
    assert again == experiment
    assert again.arm("xsa.qk_norm-false").model.model_dump()["qk_norm"] is False
    assert again.cell_keys() == experiment.cell_keys()


def test_derived_arms_are_tuned_with_the_arm_that_they_are_derived_from_and_never_searched(load: Callable) -> None:
    knobs = '[tuning]\n[tuning.knobs]\nblock = "optimiser.depth_read_learning_rate"\n'
    knobs += "".join(f'{arm} = "optimiser.matrix_learning_rate"\n' for arm in ("standard", "xsa", "rd"))
    sweep = swept('{ "output_map.strength" = [0.5, 1.0], "optimiser.matrix_learning_rate" = [0.01, 0.02] }')
    experiment = load(sweep, more=CONTROL + knobs)
    tuned = with_values(experiment, {"standard": 0.08, "xsa": 0.005})
    rate = {name: tuned.arm(name).optimiser.matrix_learning_rate for name in tuned.arms}
    assert rate[SCHEDULE_ARM] == rate["standard"] == 0.08
    assert rate["xsa.strength-0.5"] == rate["xsa"] == 0.005
    assert rate["xsa.matrix_learning_rate-0.01"] == 0.01, "what is swept stays where the sweep put it"
    assert tuned.arm(SCHEDULE_ARM).schedule.decay == 0.6
    trials = trial_experiment(experiment, dict.fromkeys(("standard", "xsa", "block", "rd"), (-1, 0, 1)))
    assert not set(trials.arms) & set(experiment.robustness.derived)
    assert trials.robustness == spec.Robustness()
    check_pairs(tuned, resolve_arms(tuned))


def test_the_pair_check_admits_the_swept_field_and_nothing_else(load: Callable) -> None:
    sweep = '{ "optimiser.matrix_learning_rate" = [0.01, 0.02] }'
    experiment = load(swept(sweep), swept(sweep, "standard"), more=CONTROL)
    arms = resolve_arms(experiment)
    check_pairs(experiment, arms)
    subjects = [job().subject for job in planned_gates(experiment, arms)[: 3 + 3]]
    names = [SCHEDULE_ARM, "standard.matrix_learning_rate-0.01", "xsa.matrix_learning_rate-0.01"]
    assert sorted(subjects) == sorted(["block", "xsa", "rd", *names])
    for name in names:
        changed = dict(experiment.arms)
        changed[name] = spec.merged(changed[name], {"optimiser": {"embedding_learning_rate": 0.3}})
        other = experiment.model_copy(update={"arms": changed})
        with pytest.raises(PairCheckError, match=re.escape("optimiser.embedding_learning_rate: 0.3")):
            check_pairs(other, resolve_arms(other))
        with pytest.raises(PairCheckError):
            [job() for job in planned_gates(other, resolve_arms(other))[: 3 + 3]]


def test_a_sweep_inherits_what_its_contrast_declares_and_the_control_does_not(load: Callable) -> None:
    rate = "[arms.block]\noptimiser = { embedding_learning_rate = 0.3 }\n"
    declared = 'treatment = "block"\nalso_differs = ["optimiser.embedding_learning_rate"]\n'
    blocks = "sweep = { routing.blocks = [1, 2] }\n"
    experiment = load(("[arms.block]\n", rate + blocks), ('treatment = "block"\n', declared), more=CONTROL)
    with pytest.raises(PairCheckError, match="rd"):  # the file's own contrast of rd and block declares no rate
        check_pairs(experiment, resolve_arms(experiment))
    check_derived(experiment, "block.blocks-1", resolve_arms(experiment))
    changed = {
        **experiment.arms,
        SCHEDULE_ARM: experiment.arms[SCHEDULE_ARM] | {"optimiser": {"embedding_learning_rate": 0.3}},
    }
    other = experiment.model_copy(update={"arms": changed})
    with pytest.raises(PairCheckError, match="embedding_learning_rate"):
        check_derived(other, SCHEDULE_ARM, resolve_arms(other))


@pytest.mark.parametrize(
    ("arm", "place"),
    [
        ("block", ("block", "standard")),  # the primary, though it is the baseline of another one
        ("standard", ("block", "standard")),  # a changed baseline beside itself
        ("rd", ("rd", "block")),
    ],
)
def test_a_swept_arm_is_compared_with_its_contrasts_baseline(load: Callable, arm: str, place: tuple[str, str]) -> None:
    experiment = load(swept('{ "optimiser.matrix_learning_rate" = [0.01, 0.02] }', arm))
    assert experiment.beside(f"{arm}.matrix_learning_rate-0.01") == place


def tables(sweep: str = "", **arm: Any) -> dict[str, Any]:
    """A file's tables with one swept arm, as far as sweeps read them."""
    text = '[arms.standard]\n[arms.xsa]\noutput_map = { name = "x", strength = 1.0 }\n' + (
        sweep and f"sweep = {sweep}\n"
    )
    text += '[contrasts.main]\nprimary = true\ntreatment = "xsa"\nbaseline = "standard"\n'
    found = tomllib.loads(text)
    found["arms"]["xsa"] |= arm
    return found


def refused(table: Mapping[str, Any]) -> ExperimentFileError:
    with pytest.raises(ExperimentFileError) as caught:
        expanded(dict(table), WHERE)
    assert str(caught.value).startswith("study.toml: ")
    return caught.value


@pytest.mark.parametrize(
    ("sweep", "what", "remedy"),
    [
        ('{ "output_map.strenght" = [0.5, 1.0] }', "no such field as 'output_map.strenght'", "'output_map.strength'"),
        ('{ "optimiser.matrix_rate" = [0.5, 1.0] }', "no such field as", "optimiser.matrix_"),
        ('{ "output_map.name" = ["a", "b"] }', "no such field as 'output_map.name'", "output_map.strength"),
        ('{ "model.backbone" = ["a", "b"] }', "no such field as 'model.backbone'", "model."),
        ('{ "batch_tokens" = [512, 1024] }', "no such field as 'batch_tokens'", ""),
        ('{ "routing.blocks" = [2, 4] }', "no such field as 'routing.blocks'", ""),
        ('{ "output_map.strength" = [0.5] }', "a sweep of one value", "an arm of its own"),
        ('{ "output_map.strength" = [] }', "a sweep of no value", ""),
        ('{ "output_map.strength" = [0.5, 0.5] }', "a value stands twice", ""),
        ('{ "output_map.strength" = [1, 1.0] }', "a value stands twice", ""),
        ('{ "output_map.strength" = [0.5, nan] }', "a value is not finite", ""),
        ('{ "output_map.strength" = 0.5 }', "not a list of values", ""),
        ('{ "output_map.strength" = [[0.5], [1.0]] }', "not a list of values", ""),
        ("{}", "not a sweep", ""),
        ("0.5", "not a sweep", ""),
        (f'{{ "output_map.strength" = {[n / 64 for n in range(21)]} }}', "too many arms", "fewer values"),
        (f'{{ "output_map.strength" = ["{"a" * 60}", 1.0] }}', "too long", "rename"),
    ],
)
def test_a_sweep_that_cannot_be_made_is_refused_by_name(sweep: str, what: str, remedy: str) -> None:
    error = refused(tables(sweep))
    assert what in error.what
    assert "arms.xsa.sweep" in error.what or "arms.*.sweep" in error.what
    assert remedy in error.remedy


def test_twenty_arms_are_not_too_many() -> None:
    values = [n / 64 for n in range(20)]
    found = expanded(tables(f'{{ "output_map.strength" = {values} }}') | {"robustness": {"schedule": True}}, WHERE)
    assert len(found["robustness"]["derived"]) == 21, "the schedule's control is none of them"


def test_names_that_are_there_already_are_refused() -> None:
    table = tables('{ "output_map.strength" = [0.5, 1.0] }')
    table["arms"]["xsa.strength-0.5"] = {}
    assert "'xsa.strength-0.5' is there already" in refused(table).what
    control: dict[str, Any] = tables() | {"robustness": {"schedule": True}}
    control["arms"][SCHEDULE_ARM] = {}
    assert f"robustness.schedule: an arm called '{SCHEDULE_ARM}' is there already" in refused(control).what
    # Two values that only differ in what a name cannot hold.
    twins = tables('{ "output_map.strength" = ["a b", "ab"] }')
    assert "'xsa.strength-ab' is there already" in refused(twins).what


def test_nobody_else_may_use_a_derived_arm() -> None:
    sweep = '{ "output_map.strength" = [0.5, 1.0] }'
    for section, value, key in (
        ("contrasts", {"other": {"treatment": "xsa.strength-0.5", "baseline": "xsa"}}, "contrasts.other.treatment"),
        ("tuning", {"knobs": {"xsa.strength-0.5": "optimiser.x"}}, "tuning.knobs.xsa.strength-0.5"),
        ("arms", {"taker": {"routing": {"name": "r", "donor": "xsa.strength-0.5"}}}, "arms.taker.routing.donor"),
    ):
        table = tables(sweep)
        table[section] = table.get(section, {}) | value
        assert f"{key}: 'xsa.strength-0.5' stands for a value of a sweep" in refused(table).what
    lonely = tables(sweep)
    lonely["arms"]["other"] = {"sweep": lonely["arms"]["xsa"].pop("sweep"), "output_map": {"name": "x", "strength": 1}}
    assert "no contrast compares 'other'" in refused(lonely).what
    assert "paribus fills this in" in refused(tables() | {"robustness": {"derived": {}}}).what


def test_primaries_with_several_baselines_have_no_one_control() -> None:
    table: dict[str, Any] = tables() | {"robustness": {"schedule": True}}
    table["contrasts"]["second"] = {"primary": True, "treatment": "standard", "baseline": "xsa"}
    assert refused(table).received == "standard, xsa"


def test_a_file_that_asks_for_nothing_is_given_back_and_none_is_changed() -> None:
    plain = tables()
    assert expanded(plain, WHERE) is plain
    table = tables('{ "output_map.strength" = [0.5, 1.0] }') | {"robustness": {"schedule": True}}
    before = copy.deepcopy(table)
    expanded(table, WHERE)
    assert table == before


@pytest.mark.parametrize(
    "table",
    [
        {},
        {"arms": 3},
        {"arms": {"a": 3}, "robustness": {"schedule": True}},
        {"arms": {"a": {}}, "robustness": {"schedule": True}, "contrasts": {"c": {"primary": True, "baseline": "b"}}},
        {"arms": {"a": {}}, "robustness": 3},
    ],
)
def test_what_is_wrong_otherwise_is_left_for_the_schema_to_say(table: dict[str, Any]) -> None:
    assert expanded(table, WHERE).get("arms") == table.get("arms")


@given(st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.integers(), st.booleans()))
def test_a_written_value_reads_back_as_itself(value: float | int | bool) -> None:
    again = tomllib.loads(f"x = {written(value)}")["x"]
    assert again == value


def test_the_cost_of_derived_arms_is_not_measured(
    load: Callable, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    experiment = load(swept('{ "output_map.strength" = [0.5, 1.0] }'), more=CONTROL)
    timed: list[list[str]] = []

    def note(_: spec.Experiment, arms: Mapping[str, Any], *__: Any, **___: Any) -> dict[str, Any]:
        timed.append(list(arms))
        return {}

    monkeypatch.setattr(costing, "measure", note)
    (tmp_path / "tiny").mkdir()
    costing.measure_missing_costs(experiment, resolve_arms(experiment), StudyFolder(tmp_path), Console(quiet=True))
    assert timed == [["standard", "xsa", "block", "rd"]]
