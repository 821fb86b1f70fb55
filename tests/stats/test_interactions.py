"""Differences of two differences: how a seed counts, and that the verdict is that of any contrast."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paribus.errors import ParibusError
from paribus.seeds import generator
from paribus.stats.paired import interaction_differences
from paribus.stats.rule import Comparison, Rule, Word
from paribus.stats.verdict import decide

Compare = Callable[..., Comparison]
Cells = Mapping[int, float | None]
NAMES = ("both", "xsa", "rd", "parent")
VALUES = st.floats(-10, 10, allow_nan=False, width=32)


def interaction(*arms: Cells, names: Sequence[str] = NAMES, **changes: Any) -> Comparison:
    """The comparison of four arms, each given by seed."""
    pairs = interaction_differences(*arms)
    t, b, mt, mb = (tuple(float(arm[s] or 0.0) for s in pairs.seeds) for arm in arms)
    fields: dict[str, Any] = {
        "name": "interaction",
        "treatment": names[0],
        "baseline": names[1],
        "minus_treatment": names[2],
        "minus_baseline": names[3],
        "scale": "S",
        "metric": "test.nll",
        "unit": "nats per token",
        "primary": True,
        "rule": Rule(1.0, 2.0, planned_seeds=pairs.pairs),
        "differences": pairs,
        "treatment_values": t,
        "baseline_values": b,
        "minus_treatment_values": mt,
        "minus_baseline_values": mb,
    }
    return Comparison(**fields | changes)


def drawn(seeds: int = 5, sd: float = 0.1) -> list[dict[int, float | None]]:
    """Four arms around 5, with a common part of each seed."""
    noise = generator("tests", "interactions").standard_normal((5, seeds))
    return [{s: float(5 + noise[4, s] + sd * noise[arm, s]) for s in range(seeds)} for arm in range(4)]


@given(st.lists(st.tuples(VALUES, VALUES, VALUES, VALUES), min_size=1, max_size=6))
def test_each_seeds_value_is_the_difference_of_two_differences(rows: list[tuple[float, float, float, float]]):
    arms = [{seed: row[arm] for seed, row in enumerate(rows)} for arm in range(4)]
    pairs = interaction_differences(*arms)
    assert pairs.seeds == tuple(range(len(rows)))
    # Float32 values are exact in float64: three roundings of numbers of at most 40.
    exact = [math.fsum((t, -b, -mt, mb)) for t, b, mt, mb in rows]
    assert pairs.differences == pytest.approx(exact, abs=4 * 40 * 2.0**-53)


def test_a_seed_without_one_of_the_four_cells_is_missing_from_the_interaction():
    arms = drawn()
    del arms[2][1], arms[3][4]
    pairs = interaction_differences(*arms)
    assert pairs.seeds == (0, 2, 3)
    assert pairs.pairs == 3


@pytest.mark.parametrize(("arm", "against_treatment"), [(0, True), (1, False), (2, False), (3, True)])
def test_a_diverged_cell_counts_against_the_side_that_it_makes_worse(arm: int, against_treatment: bool):
    # An infinite loss of the treatment or of minus_baseline makes the value plus infinity, lower being better.
    arms = drawn()
    arms[arm][2] = None
    pairs = interaction_differences(*arms)
    assert pairs.pairs == 5
    assert pairs.seeds == (0, 1, 3, 4)
    assert (pairs.treatment_diverged, pairs.baseline_diverged) == (((2,), ()) if against_treatment else ((), (2,)))
    (verdict,) = decide([interaction(*arms)])
    assert verdict.word is Word.DIVERGENCE
    assert (verdict.mean, verdict.interval, verdict.p_divergence) == (None, None, None)
    sides = [f"{NAMES[0]} or {NAMES[3]} diverged at seed 2", f"{NAMES[1]} or {NAMES[2]} diverged at seed 2"]
    (note,) = [note for note in verdict.notes if "diverged" in note]
    assert note.startswith(sides[0] if against_treatment else sides[1])
    won = [dict.fromkeys(range(5), -1.0 if index == 0 else 0.0) | {2: cells[2]} for index, cells in enumerate(arms)]
    assert decide([interaction(*won)])[0].wins == (4 if against_treatment else 5)


def test_a_seed_that_diverged_on_both_sides_says_nothing():
    arms = drawn()
    arms[0][2] = arms[1][2] = None
    pairs = interaction_differences(*arms)
    assert pairs.treatment_diverged == pairs.baseline_diverged == (2,)
    assert pairs.only_treatment_diverged == pairs.only_baseline_diverged == ()


@pytest.mark.parametrize("shift", [-3.0, -1.2, -0.4, 0.0, 0.4, 1.2, 3.0])
@pytest.mark.parametrize("sd", [0.01, 0.2, 1.0])
def test_the_word_and_the_interval_are_those_of_a_contrast_with_the_same_differences(
    compare: Compare, shift: float, sd: float
):
    arms = drawn(sd=sd)
    arms[0] = {seed: (value or 0.0) + shift for seed, value in arms[0].items()}
    (verdict,) = decide([interaction(*arms)])
    (simple,) = decide([compare(interaction_differences(*arms).differences)])
    told = ("treatment", "baseline", "arms", "name", "unit", "sentence", "unpaired_standard_error", "pair_correlation")
    for field in dataclasses.fields(verdict):
        if field.name not in told:
            assert getattr(verdict, field.name) == getattr(simple, field.name), field.name


def test_its_words_and_tables_say_a_difference_of_differences():
    (verdict,) = decide([interaction(*drawn())])
    assert (verdict.treatment, verdict.baseline) == ("(both \N{MINUS SIGN} xsa)", "(rd \N{MINUS SIGN} parent)")
    assert verdict.arms == NAMES
    assert verdict.interaction
    said = "(both \N{MINUS SIGN} xsa) \N{MINUS SIGN} (rd \N{MINUS SIGN} parent) at S on test.nll: "
    assert verdict.sentence.startswith(said)
    assert verdict.to_dict()["arms"] == list(NAMES)


def test_four_equal_programs_are_no_information_though_their_differences_round():
    # 0.1 + 0.2 and 0.3 differ in the last place: equal interactions whose values differ by rounding.
    a, b = (0.1 + 0.2, 5.3), (0.3, 5.3)
    arms = [{s: row[s] for s in range(2)} | {2: 5.1, 3: 1.7} for row in (a, b, b, b)]
    assert len(set(interaction_differences(*arms).differences)) > 1
    (verdict,) = decide([interaction(*arms)])
    assert verdict.word is Word.NO_INFORMATION
    assert verdict.p_t is None
    shifted = [{s: (v or 0.0) + (0.01 * s if arm == 0 else 0.0) for s, v in a.items()} for arm, a in enumerate(arms)]
    assert decide([interaction(*shifted)])[0].word is not Word.NO_INFORMATION


def test_without_pairing_the_variances_of_all_four_arms_add_up():
    arms = drawn()
    columns = [np.array([float(v or 0.0) for v in arm.values()]) for arm in arms]
    (verdict,) = decide([interaction(*arms)])
    assert verdict.unpaired_standard_error == pytest.approx(math.sqrt(sum(c.var(ddof=1) for c in columns) / 5))
    t, b, mt, mb = columns
    assert verdict.pair_correlation == pytest.approx(np.corrcoef(t - b, mt - mb)[0, 1])


def test_without_pairing_an_arm_that_enters_twice_has_four_times_its_variance():
    a, b, c, _ = drawn()
    (verdict,) = decide([interaction(a, b, b, c, names=("a", "b", "b", "c"))])
    variances = [np.var([float(v or 0.0) for v in arm.values()], ddof=1) for arm in (a, b, c)]
    assert verdict.unpaired_standard_error == pytest.approx(
        math.sqrt((variances[0] + 4 * variances[1] + variances[2]) / 5)
    )


def test_an_interactions_sd_is_sqrt_2_of_a_simple_contrasts():
    # 2000 seeds: the ratio of two sds has a relative error of about 1 / sqrt(2000); four of them are 9 %.
    noise = generator("tests", "interactions", "sd").standard_normal((4, 2000))
    arms: list[dict[int, float | None]] = [dict(enumerate(row.tolist())) for row in noise]
    simple = np.std(noise[0] - noise[1], ddof=1)
    assert np.std(interaction_differences(*arms).differences, ddof=1) / simple == pytest.approx(2**0.5, rel=0.09)


@pytest.mark.parametrize(
    "changes",
    [
        {"minus_baseline": None},
        {"minus_treatment": None, "minus_baseline": None},  # the simple difference is another number
        {"minus_baseline_values": (1.0, 2.0)},
        {"minus_baseline_values": ()},
        {"treatment_values": (1.0,) * 5},
    ],
)
def test_values_that_do_not_give_the_differences_are_refused(changes: dict[str, Any]):
    with pytest.raises(ParibusError, match="contrast 'interaction'"):
        interaction(*drawn(), **changes)
