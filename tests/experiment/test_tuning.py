"""The search of a knob's value, and the study that its trials are: what is tried, what is chosen, what is refused."""

import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paribus.errors import ExperimentFileError, PairCheckError
from paribus.experiment import loading
from paribus.experiment.pairs import check_pairs
from paribus.experiment.plan import resolve_arms, resolved_fields
from paribus.experiment.spec import Experiment, rule_digest
from paribus.experiment.tuning import (
    best_step,
    declare_knobs,
    declared_values,
    is_interior,
    next_steps,
    trial_arm,
    trial_experiment,
    value_at,
    with_values,
)
from paribus.tuning.running import require_knobs_used

KNOBS = """
[tuning]
seeds = 2
knobs.standard = "optimiser.matrix_learning_rate"
knobs.xsa = "optimiser.matrix_learning_rate"
knobs.block = "optimiser.depth_read_learning_rate"
knobs.rd = "optimiser.depth_read_learning_rate"
"""
HOWTO = Path(__file__).parents[2] / "docs" / "howto" / "tune.md"
Objective = Callable[[int], float]
Load = Callable[[str], Experiment]


def search(objectives: Mapping[str, Objective], max_trials: int = 9) -> dict[str, dict[int, float]]:
    """Every score, by arm and step, of a search of these objectives. The arms have equally many after every round."""
    scores: dict[str, dict[int, float]] = {arm: {} for arm in objectives}
    while steps := next_steps(max_trials, scores):
        for arm, more in steps.items():
            assert not set(more) & scores[arm].keys(), "a value is tried once"
            scores[arm] |= {step: objectives[arm](step) for step in more}
        assert len({len(tried) for tried in scores.values()}) == 1
        assert max(map(len, scores.values())) <= max_trials
    return scores


def valley(optimum: float) -> Objective:
    return lambda step: 4.0 + abs(step - optimum)


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def from_text(text: str) -> Experiment:
        (tmp_path / "study.toml").write_text(text, encoding="utf-8")
        return loading.load(tmp_path / "study.toml")

    return from_text


@pytest.fixture
def experiment(load: Load, tiny: str) -> Experiment:
    return load(tiny + KNOBS)


def test_the_search_begins_with_the_declared_value_and_both_its_neighbours():
    assert next_steps(9, {"a": {}, "b": {}}) == {"a": (-1, 0, 1), "b": (-1, 0, 1)}


def test_three_values_are_enough_where_the_declared_one_is_best():
    assert {arm: sorted(tried) for arm, tried in search({"a": valley(0), "b": valley(0)}).items()} == {
        "a": [-1, 0, 1],
        "b": [-1, 0, 1],
    }


@given(st.lists(st.integers(-4, 4), min_size=1, max_size=4))
def test_every_single_valley_is_found_and_its_neighbours_are_tried_and_no_better(optima: list[int]):
    found = search({f"arm {index}": valley(optimum) for index, optimum in enumerate(optima)}, max_trials=15)
    for optimum, tried in zip(optima, found.values(), strict=True):
        best = best_step(tried)
        assert best == optimum
        assert is_interior(tried)
        assert tried[optimum - 1] >= tried[optimum] <= tried[optimum + 1]
        assert sorted(tried) == list(range(min(tried), max(tried) + 1)), "without holes"
    # As many trials as the arm that needed most: one that moves by k needs 3 and k more.
    assert {len(tried) for tried in found.values()} == {3 + max(map(abs, optima))}


@given(st.lists(st.floats(0, 1), min_size=41, max_size=41), st.integers(3, 12))
def test_any_objective_ends_interior_or_at_the_limit_with_the_lowest_score_of_what_was_tried(
    noise: list[float], max_trials: int
):
    found = search({"rough": lambda step: noise[step + 20], "smooth": valley(1)}, max_trials)
    for tried in found.values():
        best = best_step(tried)
        assert best is not None
        assert tried[best] == min(tried.values())
        assert is_interior(tried) or len(tried) == max_trials


def test_an_optimum_beyond_the_limit_is_left_at_the_edge_and_every_arm_had_as_many_trials():
    found = search({"far": valley(-20), "near": valley(0)}, max_trials=6)
    assert sorted(found["far"]) == [-4, -3, -2, -1, 0, 1]
    assert not is_interior(found["far"])
    assert len(found["near"]) == 6
    assert is_interior(found["near"])


def test_a_better_value_met_in_an_additional_trial_is_pursued():
    second = {-2: 3.0, -3: 2.0, -4: 1.0, -5: 1.5}
    found = search({"moving": valley(2), "two valleys": lambda step: second.get(step, 4.0 + abs(step) / (3 - step))})
    assert best_step(found["two valleys"]) == -4
    assert is_interior(found["two valleys"])


def test_a_diverged_value_is_worse_than_any_finite_one():
    found = search({"a": lambda step: math.inf if step > -2 else 9.0 + abs(step + 3)})
    assert best_step(found["a"]) == -3
    assert is_interior(found["a"])


def test_where_everything_diverges_the_search_goes_down_gives_up_and_finds_no_best():
    found = search({"a": lambda _: math.inf}, max_trials=5)
    assert sorted(found["a"]) == [-3, -2, -1, 0, 1]
    assert best_step(found["a"]) is None
    assert not is_interior(found["a"])


def test_of_equal_scores_the_one_closest_to_the_declared_value_is_chosen():
    assert best_step({-1: 1.0, 0: 1.0, 1: 1.0}) == 0
    assert best_step({-1: 1.0, 0: 2.0, 1: 1.0}) == -1
    assert best_step({0: 2.0, 1: 1.0, 2: 1.0}) == 1


def test_values_go_in_factors_from_the_declared_one_and_come_back_to_it():
    assert [value_at(0.02, 4.0, step) for step in range(-3, 3)] == [0.0003125, 0.00125, 0.005, 0.02, 0.08, 0.32]
    assert value_at(0.012345678, 4.0, 0) == 0.012345678
    assert value_at(0.012345678, 4.0, -1) == 0.00308642


@given(st.floats(1e-12, 1e3), st.floats(1.5, 100.0))
def test_the_names_of_trials_differ_and_are_names(declared: float, factor: float):
    names = [trial_arm("a" * 44, declared, factor, step) for step in range(-9, 10)]
    assert len(set(names)) == len(names)
    for name in names:
        assert len(name) <= 60
        assert all(character.isalnum() or character in "_.-" for character in name)
    assert trial_arm("arm", declared, factor, 0) == "arm"


def test_declared_values_are_the_arms_own(load: Load, tiny: str):
    own = tiny.replace("[arms.block]\n", "[arms.block]\noptimiser = { depth_read_learning_rate = 0.05 }\n")
    found = declared_values(load(own + KNOBS))
    assert found == {"standard": 0.02, "xsa": 0.02, "block": 0.05, "rd": 0.005}
    assert declared_values(load(tiny)) == {}


@pytest.mark.parametrize(
    ("change", "what", "remedy"),
    [
        (("knobs.xsa", "knobs.xas"), "tuning.knobs.xas: no such arm", "did you mean 'xsa'?"),
        (
            ('knobs.xsa = "optimiser.matrix_learning_rate"\n', ""),
            "tuning.knobs: no field for arm 'xsa', which contrasts.xsa compares",
            'add xsa = "optimiser...", the field that it depends on most',
        ),
        (
            ('xsa = "optimiser.matrix_learning_rate"', 'xsa = "optimiser.matrix_learing_rate"'),
            "tuning.knobs.xsa: no such field of the recipe",
            "did you mean 'optimiser.matrix_learning_rate'?",
        ),
        (
            ('xsa = "optimiser.matrix_learning_rate"', 'xsa = "output_map.strength"'),
            "tuning.knobs.xsa: no such field of the recipe",
            "valid: ",
        ),
        (
            ('xsa = "optimiser.matrix_learning_rate"', 'xsa = "optimiser.adam_beta1"'),
            "tuning.knobs.xsa: this field cannot be searched in factors",
            "",
        ),
        (
            ('xsa = "optimiser.matrix_learning_rate"', 'xsa = "optimiser.matrix_weight_decay"'),
            "tuning.knobs.xsa: this field cannot be searched in factors",
            "",
        ),
        (
            ("seeds = 2", "seeds = 2\nfactor = 1e60"),
            "tuning.knobs.standard: this field cannot be searched in factors",
            "",
        ),
        (("[arms.standard]", "[arms.standard]\n[arms.'standard.at-3']"), "arms.standard.at-3: '.at-'", "rename"),
    ],
)
def test_a_tuning_that_cannot_be_done_is_refused_by_name(
    load: Load, tiny: str, change: tuple[str, str], what: str, remedy: str
):
    text = tiny + KNOBS
    assert change[0] in text
    with pytest.raises(ExperimentFileError) as refused:  # when it is loaded, or when it is asked for
        declared_values(load(text.replace(*change)))
    assert what in refused.value.what
    assert remedy in refused.value.remedy


def test_the_table_of_the_howto_is_a_tuning_that_can_be_done(load: Load, tiny: str):
    (table,) = re.findall(r"```toml\n(.*?)```", HOWTO.read_text(encoding="utf-8"), re.DOTALL)
    without_others = "".join(re.findall(r"(?s)(.*?)\[contrasts\.xsa\].*?(\[seeds\].*)", tiny)[0])
    found = load(f"{without_others}\n{table}")
    assert found.tuning is not None
    assert declared_values(found) == {"block": 0.005, "standard": 0.02}
    require_knobs_used(found, resolve_arms(found))


def test_a_name_that_leaves_no_room_for_a_value_is_refused(load: Load, tiny: str):
    with pytest.raises(ExperimentFileError, match="too long"):
        declared_values(load((tiny + KNOBS).replace("xsa", "x" * 45).replace(f'name = "{"x" * 45}"', 'name = "xsa"')))


def test_several_scales_in_one_study_are_refused(experiment: Experiment):
    two = experiment.model_copy(update={"scales": dict.fromkeys(("tiny", "large"), experiment.scales["tiny"])})
    with pytest.raises(ExperimentFileError, match="one scale"):
        declared_values(two)


def test_trials_differ_from_the_files_arms_in_their_knob_and_in_nothing_else_that_trains(experiment: Experiment):
    trials = trial_experiment(experiment, dict.fromkeys(("standard", "xsa", "block", "rd"), (-1, 0, 1)))
    declared, tried = resolve_arms(experiment), resolve_arms(trials)
    assert len(tried) == 12
    knobs = {"standard": "matrix_learning_rate", "xsa": "matrix_learning_rate"}
    for arm in experiment.arms:
        knob = knobs.get(arm, "depth_read_learning_rate")
        original = resolved_fields(experiment, declared["tiny", arm], "corpus")
        for step in (-1, 0, 1):
            fields = resolved_fields(
                trials, tried["tiny", trial_arm(arm, original["optimiser"][knob], 4.0, step)], "corpus"
            )
            assert fields["optimiser"] == original["optimiser"] | {knob: original["optimiser"][knob] * 4.0**step}
            assert {key for key in fields if fields[key] != original[key]} <= {
                "study",
                "optimiser",
                "evaluation",
                "milestones_tokens",
            }
            assert fields["evaluation"]["validation_tokens"] == 800
            assert fields["evaluation"]["test_tokens"] == 1, "the test split is the verdict's"


def test_the_tuning_study_has_streams_and_seeds_of_its_own_and_no_cells_but_trials(experiment: Experiment):
    trials = trial_experiment(experiment, dict.fromkeys(("standard", "xsa", "block", "rd"), (0,)))
    assert trials.study == "study+tuning"
    assert trials.cell_keys() == [
        ("tiny", arm, seed, "") for seed in (0, 1) for arm in ("standard", "block", "xsa", "rd")
    ], "arms that others are compared with come first"
    assert trials.execution.cost_rounds == 0


def test_the_tuning_study_survives_its_way_to_a_worker(experiment: Experiment):
    trials = trial_experiment(experiment, dict.fromkeys(("standard", "xsa", "block", "rd"), (-1, 0, 1, 2)))
    arrived = Experiment.model_validate_json(trials.model_dump_json(exclude_unset=True))
    assert arrived == trials
    check_pairs(arrived, resolve_arms(arrived))


def test_an_arm_that_is_not_tuned_is_trained_only_where_another_one_takes_from_it(load: Load, tiny: str):
    donor = '[arms.giver]\nrouting = { name = "block-attnres", blocks = 2 }\n[arms.idle]\n[arms.rd]'
    text = tiny.replace("[arms.rd]", donor).replace(
        'name = "role-decoupled", blocks = 2', 'name = "role-decoupled", blocks = 2, frozen_v_from = "giver"'
    )
    experiment = load(text + KNOBS)
    trials = trial_experiment(experiment, dict.fromkeys(("standard", "xsa", "block", "rd"), (0, 1)))
    assert "giver" in trials.arms
    assert "idle" not in trials.arms
    assert resolve_arms(trials)["tiny", "rd.at-0.02"].donors == {"routing": "giver"}


def test_chosen_values_are_laid_over_the_file_and_declared_by_the_contrasts_that_see_them(experiment: Experiment):
    tuned = with_values(experiment, {"block": 0.02, "xsa": 0.005})
    assert tuned.arm("block").optimiser.depth_read_learning_rate == 0.02
    assert tuned.arm("xsa").optimiser.matrix_learning_rate == 0.005
    assert tuned.arm("xsa").output_map == experiment.arm("xsa").output_map
    for untouched in ("standard", "rd"):
        assert tuned.arm(untouched) == experiment.arm(untouched)
    both = ("optimiser.depth_read_learning_rate", "optimiser.matrix_learning_rate")
    assert {name: contrast.also_differs for name, contrast in tuned.contrasts.items()} == {
        "block": both,
        "xsa": both[1:],
        "rd": both[:1],
    }
    check_pairs(tuned, resolve_arms(tuned))


def test_the_pair_check_refuses_chosen_values_that_no_contrast_declares(experiment: Experiment):
    tuned = with_values(experiment, {"xsa": 0.005})
    silent = {name: contrast.model_copy(update={"also_differs": ()}) for name, contrast in tuned.contrasts.items()}
    with pytest.raises(PairCheckError, match=r"optimiser\.matrix_learning_rate"):
        check_pairs(tuned.model_copy(update={"contrasts": silent}), resolve_arms(tuned))


def test_another_difference_between_tuned_arms_is_still_refused(experiment: Experiment):
    arms = dict(experiment.arms) | {"xsa": experiment.arms["xsa"] | {"optimiser": {"embedding_learning_rate": 0.01}}}
    tuned = with_values(experiment.model_copy(update={"arms": arms}), {"xsa": 0.005})
    with pytest.raises(PairCheckError, match=r"optimiser\.embedding_learning_rate"):
        check_pairs(tuned, resolve_arms(tuned))


def test_the_rule_is_the_same_before_and_after_tuning(experiment: Experiment):
    declared = declare_knobs(experiment)
    assert declare_knobs(declared) == declared
    assert rule_digest(with_values(experiment, {"block": 0.02, "xsa": 0.005})) == rule_digest(declared)
