"""A study in fast mode says whether each arm equals itself in proof mode, in the mean and within a quarter of what
matters."""

from collections.abc import Callable

import pytest

from paribus.experiment.spec import PROOF, Key
from paribus.report.content import HeldEqual
from paribus.seeds import generator
from tests.reporting.conftest import Filled

FAST = {"[noise]": "[noise]\nproof_seeds = 4", "[execution]": '[execution]\nmode = "fast"'}
MARGIN = 0.01
"""smallest_effect of the contrasts"""


def losses(off: float, spread: float = 1e-4) -> Callable[[Key], float]:
    """Fast mode is off by so much on xsa."""

    def of(key: Key) -> float:
        seed_and_arm = float(generator("tests", "modes", *key[:3]).normal(3.0, 0.05))
        fast = 0.0 if key[3] == PROOF else float(generator("tests", "modes", "noise", *key[:3]).normal(0.0, spread))
        return seed_and_arm + fast + off * (key[1] == "xsa" and key[3] != PROOF)

    return of


def said(filled: Filled) -> dict[str, HeldEqual]:
    content, _ = filled.content()
    return {held.what: held for held in content.held_equal if "proof mode" in held.what}


def test_arms_are_equal_in_both_modes_where_the_whole_interval_is_within_a_quarter_of_the_margin(
    fill: Callable[..., Filled],
):
    found = said(fill(losses(0.0), FAST, arms=("standard", "xsa"), seeds=4, repeats=1))
    assert list(found) == [f"tiny/{arm}: test.nll in fast and proof mode" for arm in ("xsa", "standard")]
    assert all(held.holds for held in found.values())
    assert "a quarter of the smallest effect is 0.0025" in found["tiny/xsa: test.nll in fast and proof mode"].proof


@pytest.mark.parametrize(("off", "spread"), [(MARGIN / 3, 1e-4), (-MARGIN / 3, 1e-4), (0.0, MARGIN)])
def test_an_arm_that_is_off_or_scatters_too_much_is_not_shown_to_be_equal(
    fill: Callable[..., Filled], off: float, spread: float
):
    filled = fill(losses(off, spread), FAST, arms=("standard", "xsa"), seeds=4, repeats=1)
    found = said(filled)
    assert not found["tiny/xsa: test.nll in fast and proof mode"].holds
    assert any("tiny/xsa: test.nll in fast and proof mode" in caveat for caveat in filled.content()[0].caveats)


def test_a_study_in_fast_mode_without_proof_mode_beside_it_says_that_nothing_shows_it(fill: Callable[..., Filled]):
    fast_alone = {"[execution]": '[execution]\nmode = "fast"'}
    [held] = said(fill(losses(0.0), fast_alone, arms=("standard", "xsa"), seeds=3, repeats=1)).values()
    assert not held.holds
    assert held.what == "every arm: fast and proof mode"


def test_cells_that_are_missing_are_counted(fill: Callable[..., Filled]):
    missing = tuple(("tiny", "xsa", seed, PROOF) for seed in (1, 3))
    found = said(fill(losses(0.0), FAST, arms=("standard", "xsa"), seeds=4, repeats=1, skip=missing))
    assert "complete in both at 2 seeds" in found["tiny/xsa: test.nll in fast and proof mode"].proof
    assert not found["tiny/xsa: test.nll in fast and proof mode"].holds


def test_proof_mode_says_nothing_of_fast_mode(fill: Callable[..., Filled]):
    assert said(fill(losses(0.0), arms=("standard", "xsa"), seeds=3)) == {}
