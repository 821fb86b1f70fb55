"""What a row says, recomputed from the lines of the cells' metrics with plain loops."""

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import scipy

from paribus.experiment import loading
from paribus.reading.informative import informative_about
from paribus.reading.study import ReadStudy, read_study
from paribus.report.of_tasks import AGAINST, AGREES, NOT_INFORMATIVE, OPEN
from paribus.reporting import task_differences as differences
from paribus.reporting.task_differences import describe_contrast
from paribus.stats.paired import PairedDifferences
from paribus.stats.plateaus import Plateau, plateau
from paribus.stats.rounding import MINUS
from paribus.stats.words import Word
from paribus.tunnel import suites
from paribus.tunnel.rows import tunnel_content
from paribus.tunnel.suites import load_suite

UPDATES = 12


def study_of(flown: Path, task: str) -> ReadStudy:
    del flown
    return read_study(loading.load(suites.SUITES / "smoke" / f"{task}.toml"), Path("runs/tunnel-smoke"))


def lines(task: str, arm: str, seed: int) -> list[dict[str, Any]]:
    (path,) = Path(f"runs/tunnel-smoke/micro-{task}/{task}/{arm}").glob(f"{seed}-*/metrics.jsonl")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def excess(line: dict[str, Any], names: tuple[str, ...]) -> float | None:
    """Of one update, over the targets of these slices together."""
    parts = [line["slices"][name] for name in names if name in line["slices"]]
    targets = sum(part["targets"] for part in parts)
    if targets == 0:
        return None
    return math.fsum(part["targets"] * (part["loss_nats"] - part["floor_nats"]) for part in parts) / targets


def area(task: str, arm: str, seed: int, names: tuple[str, ...]) -> float:
    values = [value for line in lines(task, arm, seed) if (value := excess(line, names)) is not None]
    return math.fsum(values) / len(values)


def t_interval(values: list[float]) -> tuple[float, float]:
    mean, count = math.fsum(values) / len(values), len(values)
    error = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (count - 1) / count)
    half = float(scipy.stats.t.ppf(0.975, count - 1)) * error
    return mean - half, mean + half


def test_the_area_of_all_targets_is_the_mean_over_updates_of_the_loss_above_the_floor(flown: Path):
    row = describe_contrast(study_of(flown, "tally"), "xsa").difference
    every = ("one", "few", "many")
    by_hand = [area("tally", "xsa", seed, every) - area("tally", "standard", seed, every) for seed in range(3)]
    assert row.differences == pytest.approx(by_hand, rel=1e-9)
    assert row.area_difference == pytest.approx(math.fsum(by_hand) / 3, rel=1e-9)
    assert row.interval == pytest.approx(t_interval(by_hand), rel=1e-9)
    assert (row.seeds, row.slice, row.compared) == ((0, 1, 2), "all", f"xsa {MINUS} standard")


def test_the_area_of_a_difference_of_slices_is_that_of_the_acted_less_that_of_the_control(flown: Path):
    row = describe_contrast(study_of(flown, "twin"), "xsa").difference

    def interaction(arm: str, seed: int) -> float:
        return area("twin", arm, seed, ("same",)) - area("twin", arm, seed, ("different",))

    by_hand = [interaction("xsa", seed) - interaction("standard", seed) for seed in range(3)]
    assert row.differences == pytest.approx(by_hand, rel=1e-9)
    assert row.slice == "same-different"
    assert row.log2_updates_difference is None
    assert row.ratio_sentence == ""


def test_three_milestones_stand_at_thirds_of_the_budget(flown: Path):
    row = describe_contrast(study_of(flown, "tally"), "xsa").difference
    assert [one.update for one in row.milestones] == [4, 8, 12]
    for one in row.milestones:
        values = []
        for seed in range(3):
            treatment, baseline = (
                excess(lines("tally", arm, seed)[one.update - 1], ("one", "few", "many")) for arm in ("xsa", "standard")
            )
            assert treatment is not None
            assert baseline is not None
            values.append(treatment - baseline)
        assert one.mean == pytest.approx(math.fsum(values) / 3, rel=1e-9)
        assert one.interval == pytest.approx(t_interval(values), rel=1e-9)


def test_updates_to_the_threshold_are_told_for_each_seed_of_each_arm(flown: Path):
    found = describe_contrast(study_of(flown, "tally"), "xsa")
    assert found.acquired_treatment == found.acquired_baseline == (None,) * 3, "twelve updates teach nobody to count"
    assert found.difference.censored == (3, 3)
    assert found.difference.ratio_sentence.startswith("No ratio of updates: no cell of either arm acquired it")


def test_an_interval_of_the_family_takes_the_place_of_the_95_percent_one(flown: Path):
    row = describe_contrast(study_of(flown, "tally"), "xsa", interval=(-1.0, 1.0), confidence=0.99).difference
    assert (row.interval, row.interval_confidence) == ((-1.0, 1.0), 0.99)


def test_the_content_of_a_set_defines_every_task_with_its_levels(flown: Path):
    del flown
    suite = load_suite("smoke")
    content = tunnel_content("smoke", {s.task: s.experiment for s in suite.studies}, Path("runs/tunnel-smoke"))
    assert [row.task for row in content.rows] == ["tally", "twin"]
    assert [definition.text.name for definition in content.definitions] == ["tally", "twin"]
    tally, twin = content.definitions
    assert tally.text.budget_updates == UPDATES
    assert tally.text.targets_per_update == 128, "tally asks everywhere"
    assert 0 < twin.text.targets_per_update < 128
    assert {level.slice for level in twin.levels} == {"same", "different"}
    assert all(row.word == "" and row.p_holm is None for row in content.rows)
    assert content.planned_seeds == 3
    assert content.arms == {"xsa": 'output_map = { name = "xsa" }'}
    assert content.difficulty.keys() == {"tally", "twin"}
    assert all(said.startswith("the task's difficulty was not calibrated") for said in content.difficulty.values())


def test_the_full_set_gives_every_contrast_a_row_and_the_familys_p(flown: Path):
    del flown
    suite = load_suite("smoke")
    content = tunnel_content("full", {s.task: s.experiment for s in suite.studies}, Path("runs/tunnel-smoke"))
    raw = []
    for row in content.rows:
        values = [value for value in row.difference.differences if value is not None]
        untested = row.word == Word.NOT_INFORMATIVE.value
        raw.append(1.0 if untested else float(scipy.stats.ttest_1samp(values, 0.0).pvalue))
        assert (row.p_holm is None) == untested
    least = min(raw)
    by_hand = [min(1.0, 2 * p) if p == least else max(min(1.0, 2 * least), p) for p in raw]
    tested = [(row.p_holm, p) for row, p in zip(content.rows, by_hand, strict=True) if row.p_holm is not None]
    assert tested
    assert [found for found, _ in tested] == pytest.approx([p for _, p in tested], rel=1e-6)
    assert all(row.word for row in content.rows)


PAIRS = PairedDifferences((0, 1, 2, 3), (0.01, 0.02, 0.015, 0.012))


@pytest.mark.parametrize(
    ("expected", "interval", "agreement"),
    [
        ("+", (0.1, 0.2), AGREES),
        ("+", (-0.2, -0.1), AGAINST),
        ("+", (-0.1, 0.2), OPEN),
        ("-", (-0.2, -0.1), AGREES),
        ("-", (0.1, 0.2), AGAINST),
        ("-", (-0.2, 0.1), OPEN),
        ("+", None, OPEN),
        (None, (0.1, 0.2), ""),
    ],
)
def test_a_declared_sign_is_compared_with_the_interval(expected: str | None, interval: Any, agreement: str):
    contrast: Any = SimpleNamespace(expected=expected, smallest_effect=0.5)
    assert differences._agreement(contrast, PAIRS, 0.014, interval, True) == agreement


@pytest.mark.parametrize(
    ("margin", "interval", "agreement"),
    # The 90 % interval of PAIRS is 0.0091 to 0.0194.
    [(0.05, (0.007, 0.021), AGREES), (0.019, (0.007, 0.021), AGAINST), (0.019, (-0.01, 0.04), OPEN)],
)
def test_no_sign_is_agreed_with_inside_the_smallest_effect_only(margin: float, interval: Any, agreement: str):
    contrast: Any = SimpleNamespace(expected="0", smallest_effect=margin)
    assert differences._agreement(contrast, PAIRS, 0.014, interval, True) == agreement


def test_nothing_agrees_where_the_task_could_not_tell():
    contrast: Any = SimpleNamespace(expected="+", smallest_effect=0.1)
    assert differences._agreement(contrast, PAIRS, 0.014, (0.1, 0.2), False) == NOT_INFORMATIVE


def at(level: float) -> Plateau:
    return plateau([level] * 3, chance=2.0, shortcuts={"a part": 1.0})


@pytest.mark.parametrize(
    ("early", "end", "informative"),
    [
        ((2.0, 2.0), (2.0, 2.0), False),
        ((2.6, 2.4), (2.0, 2.0), False),
        ((1.0, 1.0), (1.0, 1.0), False),
        ((0.0, 0.0), (0.0, 0.0), False),
        ((2.0, 2.0), (0.0, 0.0), True),
        ((0.0, 1.0), (0.0, 0.0), True),
        ((2.0, 2.0), (0.0, 2.0), True),
        ((2.0, 2.0), (1.5, 1.5), True),
    ],
    ids=[
        "chance",
        "above chance",
        "shortcut",
        "floor throughout",
        "both arrive",
        "one arrives sooner",
        "one leaves",
        "on the way",
    ],
)
def test_a_contrast_of_areas_tells_nothing_only_on_one_plateau_from_the_first_milestone_to_the_end(
    early: tuple[float, float], end: tuple[float, float], informative: bool
):
    def plateaus(name: str, place: int) -> dict[str, Plateau]:
        del name
        treatment, baseline = early if place == 0 else end
        return {"a": at(treatment), "b": at(baseline)}

    acquired = min(end) < 1.0
    arms: Any = SimpleNamespace(plateaus=plateaus, any_acquired=lambda _: acquired)
    assert informative_about(arms, ("x",)).informative == informative
    assert informative_about(arms, ("x", "y")).informative == informative
