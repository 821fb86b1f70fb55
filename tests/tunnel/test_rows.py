"""What a row says, recomputed from the lines of the cells' metrics with plain loops."""

import json
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import scipy

from paribus.experiment import loading
from paribus.reading import evidence
from paribus.reading.informative import informative_about
from paribus.reading.study import ReadStudy, read_study
from paribus.report.of_tasks import AGAINST, AGREES, NOT_INFORMATIVE, OPEN
from paribus.reporting import task_differences as differences
from paribus.reporting.task_differences import Family, describe_contrast
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
    family = Family((-1.0, 1.0), 0.99, None)
    row = describe_contrast(study_of(flown, "tally"), "xsa", family=family).difference
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


def test_the_full_set_gives_every_contrast_a_row_and_the_familys_p(flown: Path, monkeypatch: pytest.MonkeyPatch):
    del flown
    # Twelve updates teach nobody anything: here the rows are tested as if they did.
    monkeypatch.setattr(evidence, "why_not_informative", lambda *_: "")
    suite = load_suite("smoke")
    content = tunnel_content("full", {s.task: s.experiment for s in suite.studies}, Path("runs/tunnel-smoke"))
    raw = []
    for row in content.rows:
        values = [value for value in row.difference.differences if value is not None]
        raw.append(float(scipy.stats.ttest_1samp(values, 0.0).pvalue))
    least = min(raw)
    by_hand = [min(1.0, 2 * p) if p == least else max(min(1.0, 2 * least), p) for p in raw]
    assert [row.p_holm for row in content.rows] == pytest.approx(by_hand, rel=1e-6)
    assert all(row.word for row in content.rows)


def test_a_row_that_measured_nothing_is_in_the_full_set_without_a_p(flown: Path):
    del flown
    suite = load_suite("smoke")
    content = tunnel_content("full", {s.task: s.experiment for s in suite.studies}, Path("runs/tunnel-smoke"))
    assert {row.word for row in content.rows} == {Word.NOT_INFORMATIVE.value}, "above chance after twelve updates"
    assert [row.p_holm for row in content.rows] == [None, None]
    assert {row.difference.agreement for row in content.rows} == {NOT_INFORMATIVE}
    assert not any(row.difference.informative for row in content.rows)


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
    assert differences._agreement(contrast, PAIRS, interval, True, None) == agreement


@pytest.mark.parametrize(
    ("margin", "interval", "agreement"),
    # The 90 % interval of PAIRS is 0.0091 to 0.0194.
    [(0.05, (0.007, 0.021), AGREES), (0.019, (0.007, 0.021), AGAINST), (0.019, (-0.01, 0.04), OPEN)],
)
def test_no_sign_is_agreed_with_inside_the_smallest_effect_only(margin: float, interval: Any, agreement: str):
    contrast: Any = SimpleNamespace(expected="0", smallest_effect=margin)
    assert differences._agreement(contrast, PAIRS, interval, True, None) == agreement


@pytest.mark.parametrize(
    ("bounds", "agreement"), [((-0.04, 0.04), AGREES), ((-0.04, 0.06), OPEN), ((-0.06, 0.04), OPEN), (None, OPEN)]
)
def test_in_a_family_no_sign_is_agreed_with_at_the_level_of_the_family_alone(bounds: Any, agreement: str):
    # Unadjusted, two one-sided tests of PAIRS lie within 0.05 by far.
    contrast: Any = SimpleNamespace(expected="0", smallest_effect=0.05)
    family = Family((-0.1, 0.1), 0.99, bounds)
    assert differences._agreement(contrast, PAIRS, family.interval, True, family) == agreement


def test_a_mark_is_judged_in_the_contrasts_own_metric_and_no_other_row_has_one(flown: Path):
    study = study_of(flown, "tally")
    (name, contrast), *_ = study.experiment.contrasts.items()
    of_loss = contrast.model_copy(update={"metric": "test.nll", "smallest_effect": 1e-9, "expected": "-"})
    study = replace(study, experiment=study.experiment.model_copy(update={"contrasts": {name: of_loss}}))
    row = describe_contrast(study, name).difference

    def loss(arm: str, seed: int) -> float:
        found = study.cells["tally", arm, seed, ""].final("test.nll")
        assert found is not None
        return found

    by_hand = [loss("xsa", seed) - loss("standard", seed) for seed in range(3)]
    assert (row.metric, row.metric_unit) == ("test.nll", "nats per target")
    assert row.metric_difference == pytest.approx(math.fsum(by_hand) / 3, rel=1e-9)
    assert row.metric_interval == pytest.approx(t_interval(by_hand), rel=1e-9)
    low, high = row.metric_interval or (0.0, 0.0)
    judged = AGREES if high < 0 else AGAINST if low > 0 else OPEN
    assert row.agreement == (judged if row.informative else NOT_INFORMATIVE)
    assert row.area_difference != row.metric_difference
    other = describe_contrast(study, name, slices="one", expected=False).difference
    assert (other.expected, other.agreement, other.metric, other.metric_difference) == ("", "", "", None)


def test_nothing_agrees_where_the_task_could_not_tell():
    contrast: Any = SimpleNamespace(expected="+", smallest_effect=0.1)
    assert differences._agreement(contrast, PAIRS, (0.1, 0.2), False, None) == NOT_INFORMATIVE


def at(level: float, smallest_effect: float | None = 0.1) -> Plateau:
    return plateau([level] * 3, chance=2.0, shortcuts={"a part": 1.0}, smallest_effect=smallest_effect)


class Arms:
    """Two arms at these mean excess losses of their whole curves and these at the end."""

    interaction, budget = False, 300

    def __init__(self, area: tuple[float, float], end: tuple[float, float], acquired: tuple[str, ...] = ()) -> None:
        self.area, self.end, self.acquired = area, end, acquired

    def plateaus(self, name: str, smallest_effect: float) -> dict[str, Plateau] | None:
        return None if name == "unknown" else {n: at(x, smallest_effect) for n, x in zip("ab", self.end, strict=True)}

    def area_plateaus(self, name: str, smallest_effect: float) -> dict[str, Plateau]:
        del name
        return {n: at(x, smallest_effect) for n, x in zip("ab", self.area, strict=True)}

    def acquired_by(self, name: str) -> tuple[str, ...]:
        del name
        return self.acquired

    def any_acquired(self, name: str) -> bool:
        return bool(self.acquired_by(name))

    def all_in_first_window(self, name: str) -> bool:
        return name == "at once"


NOISE = (-0.01, 0.012, -0.003)
"""differences whose interval includes 0"""


@pytest.mark.parametrize(
    ("area", "end", "informative"),
    [
        ((2.0, 2.0), (2.0, 2.0), False),
        ((2.6, 2.4), (2.0, 2.0), False),
        ((2.6, 2.4), (2.5, 2.4), False),
        ((1.0, 1.0), (1.0, 1.0), False),
        ((0.0, 0.0), (0.0, 0.0), False),
        ((1.1, 1.1), (1.0, 1.0), True),
        ((0.8, 0.2), (0.0, 0.0), True),
        ((2.0, 2.0), (0.0, 2.0), True),
        ((2.0, 2.0), (1.5, 1.5), True),
    ],
)
def test_a_contrast_of_areas_tells_nothing_only_where_whole_curves_and_ends_lie_on_one_plateau(
    area: tuple[float, float], end: tuple[float, float], informative: bool
):
    arms: Any = Arms(area, end)

    def told(*slices: str, differences: tuple[float, ...] = NOISE, quantity: str = "area") -> bool:
        return informative_about(arms, slices, differences, quantity=quantity, smallest_effect=0.1).informative

    assert told("x") == told("x", "y") == informative
    assert told("x", differences=(0.2, 0.21, 0.22)), "a difference was measured"
    assert told("x", "unknown"), "where one slice cannot be told nothing is called so"
    end_alone = any(arms.plateaus("x", 0.1)[name].at != arms.plateaus("x", 0.1)["a"].at for name in "ab")
    if informative and not end_alone and end != (1.5, 1.5):
        assert not told("x", quantity="nll"), "what is held out is told apart by where the arms end"


def test_updates_to_a_threshold_are_told_apart_by_when_cells_acquired_it():
    def told(arms: Any, name: str = "x") -> tuple[bool, str]:
        found = informative_about(arms, (name,), (0.0, 0.0, 0.0), quantity="log2_updates", smallest_effect=0.1)
        return found.informative, found.reason

    level = (2.0, 2.0)
    assert told(Arms(level, level)) == (False, "no cell acquired it within 300 updates")
    assert told(Arms(level, level, ("a",)), "at once") == (
        False,
        "every cell acquired it in the first window of its curve",
    )
    assert told(Arms((0.0, 0.0), (0.0, 0.0), ("a",)))[0], "arms that end on the floor may differ in when they came"


def test_the_ratio_of_an_interaction_is_never_called_bounded():
    arms: Any = Arms((2.0, 1.0), (2.0, 0.0), ("b",))
    assert informative_about(arms, ("x",), NOISE, quantity="area", smallest_effect=0.1).ratio_bounded
    arms.interaction = True
    assert not informative_about(arms, ("x",), NOISE, quantity="area", smallest_effect=0.1).ratio_bounded


def test_a_sentence_begins_with_an_arms_name_as_its_file_writes_it():
    assert differences._sentence("xsa above every level", ("xsa", "standard")) == "xsa above every level."
    assert differences._sentence("both sit on chance", ("xsa", "standard")) == "Both sit on chance."
