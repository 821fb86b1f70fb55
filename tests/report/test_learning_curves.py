"""Learning curves of a task: every seed and level drawn, labels apart, no mean over survivors."""

import math
import re
from dataclasses import replace
from functools import cache
from itertools import pairwise
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paribus.report.learning_curves import apart, learning_curves, mean_at_shared_updates, named_levels
from paribus.report.of_tasks import LearningCurve, SliceLevels
from paribus.seeds import generator

SVG = "{http://www.w3.org/2000/svg}"
LEVELS = (
    SliceLevels("deep", 3.47, 0.0, 1.73, {"any content of the row": 2.08, "any content but its own": 2.05}),
    SliceLevels("raw", 2.77, 0.0, 1.39, {}),
)


def curve(arm: str, seed: int, name: str, updates: int = 40) -> LearningCurve:
    x = np.arange(1, updates + 1) * 10
    noise = generator("learning", arm, seed, name).normal(0, 0.02, updates)
    loss = 2.0 / (1 + np.exp((x - 150 - 20 * seed) / 20)) + noise
    return LearningCurve("S", arm, seed, name, tuple(map(int, x)), tuple(map(float, loss)), (0.0,) * updates)


def study() -> list[LearningCurve]:
    return [curve(arm, seed, name) for arm in ("base", "new") for seed in range(3) for name in ("raw", "deep")]


@cache
def drawn() -> str:
    return learning_curves(study(), LEVELS, "base", "curves").svg


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def strokes(svg: str, style: str) -> int:
    """Curves of a stroke's width (and opacity), keys included."""
    return len(re.findall(rf"<path [^>]*{style}[^\d.]", svg))


THIN, THICK = "stroke-opacity: 0.4; stroke-width: 0.7", "stroke-width: 2.2"


def test_a_panel_a_slice_in_the_tasks_order_with_every_level_named() -> None:
    told = texts(drawn())
    assert told.index("deep") < told.index("raw")
    assert [text for text in told if text.startswith("chance")] == ["chance 3.47", "chance 2.77"]
    assert told.count("floor 0.00") == 2
    whole = " ".join(told)
    assert "any content of the row 2.08, any content but its own 2.05" in whole, "one line to the eye, one label"


def test_levels_that_can_be_told_apart_have_labels_of_their_own() -> None:
    far = replace(LEVELS[0], shortcuts={"any content of the row": 2.08, "any content but its own": 1.95})
    told = " ".join(texts(learning_curves(study(), (far,), "base", "curves").svg))
    assert "any content of the row 2.08" in told
    assert "any content but its own 1.95" in told
    assert "2.08, any" not in told


def test_every_seed_is_a_thin_line_and_every_arm_a_thick_one() -> None:
    svg = drawn()
    assert strokes(svg, THIN) == 12
    assert strokes(svg, THICK) == 4


def test_an_arm_that_lacks_a_seed_of_another_has_no_mean() -> None:
    lacking = [one for one in study() if (one.arm, one.seed) != ("new", 2)]
    assert strokes(learning_curves(lacking, LEVELS, "base", "curves").svg, THICK) == 2


def test_a_mean_ends_where_a_seed_ends_and_skips_windows_without_a_target() -> None:
    short, whole = curve("new", 0, "deep", 10), curve("new", 1, "deep")
    gap = replace(whole, loss_nats_per_target=(math.nan, *whole.loss_nats_per_target[1:]))
    updates, mean = mean_at_shared_updates([short, gap])
    assert updates == list(range(20, 101, 10))
    expected = [(a + b) / 2 for a, b in zip(short.loss_nats_per_target[1:], gap.loss_nats_per_target[1:], strict=False)]
    assert mean == pytest.approx(expected, abs=1e-15)  # one addition and one division


def test_a_run_that_ended_early_is_marked_with_a_cross() -> None:
    ended = [one if (one.arm, one.seed) != ("new", 0) else curve("new", 0, one.slice, 10) for one in study()]

    svg = learning_curves(ended, LEVELS, "base", "curves").svg
    assert svg.count("<use ") == drawn().count("<use ") + 2


def test_levels_stand_from_the_highest_down() -> None:
    assert [level.text for level in named_levels(LEVELS[0])] == [
        "chance",
        "any content of the row",
        "any content but its own",
        "floor",
    ]


@given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(0.05, 0.3)), min_size=1, max_size=8).map(
        lambda pairs: sorted(pairs, key=lambda pair: pair[0])
    )
)
def test_labels_never_overlap_and_stay_where_they_may(pairs: list[tuple[float, float]]) -> None:
    places, heights = [place for place, _ in pairs], [height for _, height in pairs]
    found = apart(places, heights)
    for i in range(len(found) - 1):
        # eight additions of numbers of order 1
        assert found[i + 1] - found[i] >= (heights[i] + heights[i + 1]) / 2 - 1e-12
    roomy = all(b - a >= (p + q) / 2 for (a, p), (b, q) in pairwise(pairs))
    if roomy:
        assert found == pytest.approx(places, abs=1e-12)
    assert np.mean(found) == pytest.approx(np.mean(places), abs=1e-9)  # each block keeps the mean of its wishes


def test_a_slice_without_levels_is_drawn_and_nothing_at_all_is_still_a_figure() -> None:
    assert "all targets" in texts(learning_curves([curve("base", 0, "all")], LEVELS, "base", "curves").svg)
    assert "No cell has trained yet." in learning_curves([], LEVELS, "base", "curves").svg


def test_the_same_records_give_the_same_bytes_on_linear_axes() -> None:
    assert learning_curves(study(), LEVELS, "base", "curves").svg == drawn()
    assert "updates" in texts(drawn())
    ticks = [float(text) for text in texts(drawn()) if re.fullmatch(r"\d+", text)]
    assert ticks[:6] == [0, 80, 160, 240, 320, 400]


def test_a_narrow_figure_sets_its_panels_below_each_other() -> None:
    svg = learning_curves(study(), LEVELS, "base", "curves", narrow=True).svg
    _, _, width, height = map(float, re.findall(r'viewBox="([^"]+)"', svg)[0].split())
    assert width < 310 < height


def test_the_figure_speaks_of_every_arm_and_level() -> None:
    words = learning_curves(study(), LEVELS, "base", "curves").description
    for part in ("deep:", "raw:", "base ends between", "new ends between", "any content of the row 2.08"):
        assert part in words


def test_labels_of_near_levels_are_drawn_apart() -> None:
    near = {"any content but its own": 3.3, "any content of the row": 3.2, "the most frequent answer": 3.1}
    svg = learning_curves([curve("base", 0, "deep")], (replace(LEVELS[0], shortcuts=near),), "base", "curves").svg
    small = re.findall(r'<text style="font-size: 7px[^>]*?(?:translate\([\d.]+ | y=")([\d.]+)[^>]*>([^<]+)', svg)
    assert {"chance 3.47", "floor 0.00"} < {text for _, text in small}
    heights = sorted(float(y) for y, _ in small)
    # a line of 7 points is at least 7 points high
    assert min(b - a for a, b in pairwise(heights)) >= 7
