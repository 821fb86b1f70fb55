"""What `paribus power` prints: each sd with its origin, the powers that follow, what the design cannot conclude."""

import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from scipy import stats

from paribus.errors import ParibusError
from paribus.experiment import loading
from paribus.experiment.spec import Experiment
from paribus.powering.page import describe, describe_json
from paribus.seeds import generator
from paribus.stats import power
from paribus.stats.looks import nominal_levels
from paribus.stats.noise import Noise, measured_sds, relative_sd, sd_from_cells
from paribus.stats.paired import PairedDifferences
from paribus.stats.rule import Comparison, Rule

FILE = """\
question = "Does it hold?"

[base]
context_length = 32
batch_tokens = 512
corpus = { name = "local-docs" }

[scales.tiny]
layers = 2
width = 32
mlp_width = 48
budget_tokens = 10_000

[arms.a]
[arms.b]
[arms.c]
[arms.d]

[contrasts.main]
primary = true
treatment = "b"
baseline = "a"
smallest_effect = 0.010
design_effect = 0.030

[contrasts.other]
treatment = "d"
baseline = "a"
smallest_effect = 0.010
design_effect = 0.030

[contrasts.interaction]
treatment = "d"
baseline = "c"
minus_treatment = "b"
minus_baseline = "a"
smallest_effect = 0.010
design_effect = 0.030

[contrasts.second-difference]
treatment = "c"
baseline = "b"
minus_treatment = "b"
minus_baseline = "a"
smallest_effect = 0.010
design_effect = 0.030

[seeds]
count = 5
"""
TWINS = {("tiny", "test.nll"): (0.005, 4)}


def load(folder: Path, text: str = FILE) -> Experiment:
    path = folder / "study.toml"
    path.write_text(text)
    return loading.load(path)


@pytest.fixture
def experiment(tmp_path: Path) -> Experiment:
    return load(tmp_path)


def printed(experiment: Experiment, noise: Noise, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width)
    describe(experiment, noise, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def described(experiment: Experiment, noise: Noise, name: str = "main") -> dict[str, Any]:
    found = describe_json(experiment, noise)
    return json.loads(json.dumps(found, allow_nan=False))["contrasts"][name]


def test_a_measured_sd_is_shown_with_its_upper_bound_and_doubled(experiment: Experiment) -> None:
    shown = described(experiment, Noise(measured={"main": (0.01, 5)}))["scenarios"]
    assert [each["kind"] for each in shown] == ["measured", "80 % upper bound", "doubled"]
    upper = 0.01 * math.sqrt(4 / stats.chi2.ppf(0.2, 4))
    assert [each["sd"] for each in shown] == pytest.approx([0.01, upper, 0.02])
    assert {each["pairs"] for each in shown} == {5}


def test_an_assumed_sd_is_shown_with_its_double_and_called_assumed(experiment: Experiment) -> None:
    shown = described(experiment, Noise(assumed_sd=0.004))["scenarios"]
    assert [(each["kind"], each["sd"], each["pairs"]) for each in shown] == [
        ("assumed", 0.004, None),
        ("assumed, doubled", 0.008, None),
    ]
    assert "assumed " in printed(experiment, Noise(assumed_sd=0.004))


def test_the_sd_of_the_file_is_used_and_that_of_the_command_line_takes_its_place(tmp_path: Path) -> None:
    text = FILE.replace("[contrasts.other]\n", "[contrasts.other]\nassumed_sd = 0.006\n")
    experiment = load(tmp_path, text)
    assert described(experiment, Noise(), "main")["scenarios"] == []
    assert described(experiment, Noise(), "other")["scenarios"][0]["sd"] == 0.006
    assert described(experiment, Noise(assumed_sd=0.004), "other")["scenarios"][0]["sd"] == 0.004
    # The interaction has none of its own: the file's one of a simple contrast at its scale stands in.
    derived = described(experiment, Noise(), "interaction")["scenarios"][0]
    assert derived["sd"] == pytest.approx(0.006 * math.sqrt(2))
    assert "the sd of other times 1.41" in derived["origin"]


def test_the_powers_are_those_of_the_whole_rule_at_that_sd(experiment: Experiment) -> None:
    found = described(experiment, Noise(measured={"main": (0.012, 5)}))["scenarios"][0]["power"]
    margin, effect = 0.01 / 0.012, 0.03 / 0.012
    assert found["at_design_effect"] == power.rule_power(5, effect, margin)
    assert found["at_smallest_effect"] == power.rule_power(5, margin, margin)
    assert found["equivalence"] == power.equivalence_power(5, margin)
    assert found["seeds_for_design_effect"] == power.seeds_needed(effect, margin)
    assert found["seeds_for_equivalence"] == power.seeds_needed_for_equivalence(margin)
    assert power.rule_power(5, found["seen_effect_sd"], margin) == pytest.approx(0.8, abs=1e-9)
    assert found["seen_effect"] == pytest.approx(found["seen_effect_sd"] * 0.012)


def test_power_at_the_smallest_effect_stays_below_one_half_and_the_page_says_so(experiment: Experiment) -> None:
    for sd in (1e-5, 0.003, 0.1):
        for scenario in described(experiment, Noise(assumed_sd=sd))["scenarios"]:
            assert scenario["power"]["at_smallest_effect"] <= 0.5 + 1e-12  # the integral's own error
        assert "called better or worse in at most 50 %" in printed(experiment, Noise(assumed_sd=sd))


def test_the_printed_row_holds_the_figures_of_the_json(experiment: Experiment) -> None:
    noise = Noise(measured={"main": (0.012, 5)})
    found = described(experiment, noise)["scenarios"][0]["power"]
    row = next(line for line in printed(experiment, noise).splitlines() if line.startswith("measured, 5 pairs"))
    assert row.split()[3:] == [
        "0.012",
        f"{found['seen_effect']:.3g}",
        f"{found['seen_effect_sd']:.2f}",
        f"{100 * found['at_design_effect']:.0f}",
        "%",
        f"{100 * found['at_smallest_effect']:.0f}",
        "%",
        str(found["seeds_for_design_effect"]),
        f"{100 * found['equivalence']:.0f}",
        "%",
        str(found["seeds_for_equivalence"]),
    ]


def test_no_table_is_wider_than_eighty_columns(experiment: Experiment) -> None:
    text = printed(experiment, Noise(measured={"main": (0.0123456, 500)}, assumed_sd=0.00456789))
    rows = [
        line for line in text.splitlines() if line.startswith(("sd from", "measured", "80 %", "doubled", "assumed"))
    ]
    assert len(rows) == 4 + 5 + 2 + 5 + 5  # heads; a contrast with nothing measured, and two interactions that borrow
    assert all("%" in row or "seen" in row for row in rows)  # nothing was folded into a second line


def test_an_interaction_borrows_the_sd_of_one_of_its_own_differences(experiment: Experiment) -> None:
    noise = Noise(measured={"main": (0.01, 5), "other": (0.03, 7)})
    first = described(experiment, noise, "interaction")["scenarios"][0]
    assert first["sd"] == pytest.approx(0.01 * math.sqrt(2))  # main is b - a, one of its sides; other is neither
    assert first["pairs"] == 5
    assert "the sd of main times 1.41" in first["origin"]
    second = described(experiment, noise, "second-difference")["scenarios"][0]
    assert second["sd"] == pytest.approx(0.01 * math.sqrt(3))
    own = described(experiment, Noise(measured={"main": (0.01, 5), "interaction": (0.02, 4)}), "interaction")
    assert own["scenarios"][0]["sd"] == 0.02
    assert own["scenarios"][0]["origin"] == ""


def test_of_two_known_sides_the_interaction_takes_the_larger_sd(tmp_path: Path) -> None:
    beside = '[contrasts.beside]\ntreatment = "d"\nbaseline = "c"\nsmallest_effect = 0.01\ndesign_effect = 0.03\n\n'
    experiment = load(tmp_path, FILE.replace("[seeds]", f"{beside}[seeds]"))
    for larger, smaller in (("main", "beside"), ("beside", "main")):
        noise = Noise(measured={larger: (0.02, 6), smaller: (0.01, 5)})
        first = described(experiment, noise, "interaction")["scenarios"][0]
        assert first["sd"] == pytest.approx(0.02 * math.sqrt(2))
        assert first["pairs"] == 6


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("arms", [("a", "b"), ("a", "b", "c", "d"), ("c", "b", "b", "a")])
def test_the_sd_from_cells_is_that_of_simulated_cells(arms: tuple[str, ...], correlation: float) -> None:
    rng, studies = generator("tests", "powering", 0, "cells", f"{arms} {correlation}"), 100_000
    shared = rng.standard_normal(studies)
    cells = {
        arm: 0.3 * (math.sqrt(correlation) * shared + math.sqrt(1 - correlation) * rng.standard_normal(studies))
        for arm in "abcd"
    }
    signs = (1, -1, -1, 1)[: len(arms)]
    difference = np.sum([sign * cells[arm] for sign, arm in zip(signs, arms, strict=True)], axis=0)
    expected = sd_from_cells(0.3, correlation) * relative_sd(arms)
    # The standard error of an sd is sd/sqrt(2 n): 0.22 %; four of them.
    assert difference.std() == pytest.approx(expected, rel=0.009)


def test_cells_and_their_correlation_give_the_sd_of_a_difference(experiment: Experiment) -> None:
    shown = described(experiment, Noise(cell_sd=0.01, correlation=0.5))
    assert shown["scenarios"][0]["sd"] == pytest.approx(0.01)
    assert "0.01 sqrt(2 (1 - 0.5))" in shown["scenarios"][0]["origin"]
    interaction = described(experiment, Noise(cell_sd=0.01, correlation=0.5), "interaction")
    assert interaction["scenarios"][0]["sd"] == pytest.approx(0.01 * math.sqrt(2))


def test_a_measured_sd_below_the_floor_is_called_suspicious(experiment: Experiment) -> None:
    below = described(experiment, Noise(measured={"main": (0.001, 5)}, floors=TWINS))
    assert below["floor"] == {"sd": 0.005, "pairs": 4}
    p = stats.f.cdf((0.001 / 0.005) ** 2, 4, 3)
    assert any(s.startswith("Suspicious") and f"F test p {p:.2g}" in s for s in below["limits"])
    above = described(experiment, Noise(measured={"main": (0.006, 5)}, floors=TWINS))
    assert any(s.startswith("Floor: perturbed twins") for s in above["limits"])
    assert not any(s.startswith("Suspicious") for s in above["limits"])
    interaction = described(experiment, Noise(assumed_sd=0.001, floors=TWINS), "interaction")
    assert interaction["floor"]["sd"] == pytest.approx(0.005 * math.sqrt(2))
    assert any("assumed sd 0.00141 lies below the floor" in s for s in interaction["limits"])


def test_a_floor_of_another_metric_is_not_compared(experiment: Experiment) -> None:
    floors = {("tiny", "test.bits_per_byte"): (0.005, 4), ("S", "test.nll"): (0.005, 4)}
    assert described(experiment, Noise(measured={"main": (0.001, 5)}, floors=floors))["floor"] is None


def test_looks_are_decided_at_the_nominal_level_of_the_last(tmp_path: Path) -> None:
    experiment = load(tmp_path, FILE.replace("count = 5", "count = 8\nlooks = [5, 8]"))
    noise = Noise(assumed_sd=0.02)
    whole = describe_json(experiment, noise)
    confidence = 1 - nominal_levels((5, 8), 0.05)[-1]
    assert whole["looks"] == [5, 8]
    assert whole["confidence"] == pytest.approx(confidence)
    found = whole["contrasts"]["main"]["scenarios"][0]["power"]
    assert found["at_design_effect"] == pytest.approx(power.rule_power(8, 1.5, 0.5, confidence))
    assert found["at_design_effect"] < power.rule_power(8, 1.5, 0.5)
    assert "Power is that of the last look alone" in printed(experiment, noise)
    assert "Looks: 5 pairs at the level 0.0107, 8 pairs at the level 0.0436." in printed(experiment, noise)
    futile = load(tmp_path, FILE.replace("count = 5", "count = 8\nlooks = [4, 8]"))
    assert "4 pairs for futility only, 8 pairs at the level 0.05" in printed(futile, noise)


def test_a_declared_extension_shows_the_power_of_its_first_stage(tmp_path: Path) -> None:
    text = f"{FILE}\n[seeds.extension]\nstage_1_seeds = 5\nstage_1_alpha = 0.01\n"
    for count in (5, 10):
        experiment = load(tmp_path, text.replace("count = 5", f"count = {count}"))
        found = describe_json(experiment, Noise(assumed_sd=0.012))
        assert found["seeds"] == 5
        assert found["first_stage_of_a_declared_extension"]
        shown = found["contrasts"]["main"]["scenarios"][0]["power"]
        assert shown["at_design_effect"] == power.rule_power(5, 2.5, 0.01 / 0.012, 0.99)
        text_10 = printed(experiment, Noise(assumed_sd=0.012))
        assert "stage 1 alone (5 pairs at the level 0.01)" in text_10
        assert ("Power over both stages (10 pairs in all)" in text_10) == (count == 10)
        both = found["contrasts"]["main"]["scenarios"][0]["both_stages"]
        assert (both is None) == (count == 5)
        if both is not None:
            assert both > shown["at_design_effect"]
            assert f"{100 * both:.0f} % (sd 0.012, assumed)" in text_10


@pytest.mark.parametrize("count", [1, 2])
def test_up_to_two_seeds_no_power_is_printed(tmp_path: Path, count: int) -> None:
    experiment = load(tmp_path, FILE.replace("count = 5", f"count = {count}"))
    found = described(experiment, Noise(measured={"main": (0.01, 5)}))
    assert [each["power"] for each in found["scenarios"]] == [None] * 3
    assert any("can only be exploratory" in s for s in found["limits"])
    assert "exploratory" in printed(experiment, Noise(measured={"main": (0.01, 5)}))


def test_without_any_sd_the_page_says_how_to_get_one_and_how_small_it_must_be(experiment: Experiment) -> None:
    text = printed(experiment, Noise())
    assert "No sd of the paired difference is known: give --sd" in text
    assert "assumed_sd under [contrasts.main]" in text  # brackets are text, not markup
    assert "unless the sd of the paired difference is at most" in text
    assert "seen:" not in text  # no table, no legend


def test_a_contrast_that_a_run_folder_says_nothing_about_is_named(experiment: Experiment) -> None:
    text = described(experiment, Noise(measured={"main": (0.01, 5)}, assumed_sd=0.004), "other")["limits"]
    assert any("The run folder gives no sd" in s for s in text)


def test_a_run_folder_that_gives_no_sd_is_said_and_measuring_one_is_not_advised(experiment: Experiment) -> None:
    text = printed(experiment, Noise(of_study=True))
    assert "The run folder gives no sd: not due yet" in text
    assert "No sd of the paired difference is known: give --sd" in text
    assert "or measure one" not in text
    assert "The run folder gives no sd" in printed(experiment, Noise(of_study=True, assumed_sd=0.004))
    without = printed(experiment, Noise())
    assert "The run folder" not in without
    assert "or measure one on two seeds or more" in without


def test_the_gate_opens_behind_a_rejected_primary_and_the_design_says_so(experiment: Experiment) -> None:
    text = printed(experiment, Noise(assumed_sd=0.004))
    assert "only behind a primary whose null of no difference is rejected" in text
    assert "decided primary" not in text


def test_what_holds_for_every_contrast_is_said_once(experiment: Experiment) -> None:
    text = printed(experiment, Noise(assumed_sd=0.05))
    assert text.count("The exact sign-flip p cannot fall below 0.0625") == 1
    assert text.count("Cannot conclude equivalence at 5 seeds") == 1
    assert text.index("Of every contrast:") < text.index("The exact sign-flip p")


def test_limits_name_the_sds_at_which_the_design_falls_short(experiment: Experiment) -> None:
    limits = described(experiment, Noise(measured={"main": (0.012, 5)}))["limits"]
    missed = next(s for s in limits if "is missed in more than 20 %" in s)
    assert "80 % upper bound" in missed
    assert "doubled" in missed
    assert "(measured)" not in missed
    fine = described(experiment, Noise(assumed_sd=0.0005))["limits"]
    assert not any("missed" in s or "equivalence" in s for s in fine)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"assumed_sd": 0.0}, "no standard deviation"),
        ({"assumed_sd": math.nan}, "no standard deviation"),
        ({"cell_sd": -1.0, "correlation": 0.0}, "no standard deviation"),
        ({"measured": {"main": (math.inf, 5)}}, "no standard deviation"),
        ({"measured": {"main": (0.01, 1)}}, "no estimate"),
        ({"cell_sd": 0.01}, "in half or twice"),
        ({"correlation": 0.5}, "in half or twice"),
        ({"cell_sd": 0.01, "correlation": 0.5, "assumed_sd": 0.01}, "in half or twice"),
        ({"cell_sd": 0.01, "correlation": 1.0}, "outside its range"),
        ({"cell_sd": 0.01, "correlation": -1.5}, "outside its range"),
        ({"cell_sd": 0.01, "correlation": math.nan}, "outside its range"),
    ],
)
def test_noise_that_cannot_be_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ParibusError, match=message):
        Noise(**fields)


def test_an_sd_of_an_unknown_contrast_is_refused(experiment: Experiment) -> None:
    for show in (printed, described):
        with pytest.raises(ParibusError, match="which the file does not have"):
            show(experiment, Noise(measured={"mian": (0.01, 5)}))


def of_pairs(name: str, differences: tuple[float, ...]) -> Comparison:
    seeds = tuple(range(len(differences)))
    return Comparison(
        name=name,
        treatment="b",
        baseline="a",
        scale="tiny",
        metric="test.nll",
        unit="nats per token",
        primary=True,
        rule=Rule(0.01, 0.03, 5),
        differences=PairedDifferences(seeds, differences),
        treatment_values=differences,
        baseline_values=(0.0,) * len(seeds),
    )


def test_sds_are_measured_where_pairs_carry_information() -> None:
    found = measured_sds(
        [
            of_pairs("spread", (0.1, 0.25, 0.4)),
            of_pairs("identical", (0.1, 0.1, 0.1)),
            of_pairs("one", (0.1,)),
            of_pairs("none", ()),
        ]
    )
    assert found == {"spread": (pytest.approx(np.std([0.1, 0.25, 0.4], ddof=1)), 3)}
