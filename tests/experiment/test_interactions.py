"""Contrasts of four arms: what is one, and what its arms may differ in."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from paribus.errors import ExperimentFileError, PairCheckError
from paribus.experiment import loading, spec
from paribus.experiment.pairs import check_contrast
from paribus.planning.machine import describe_json

BOTH = '[arms.both]\noutput_map = { name = "xsa", strength = 1.0 }\nrouting = { name = "role-decoupled", blocks = 2 }\n'
INTERACTION = """\
[contrasts.interaction]
treatment = "both"
baseline = "rd"
minus_treatment = "xsa"
minus_baseline = "standard"
smallest_effect = 0.01
design_effect = 0.03
"""


@pytest.fixture
def factorial(tiny: str) -> str:
    """The small experiment with the fourth arm of a 2 x 2 and its interaction."""
    return tiny.replace("[contrasts.block]", f"{BOTH}\n{INTERACTION}\n[contrasts.block]", 1)


@pytest.fixture
def checked(resolve) -> Callable[[str], None]:
    def check(text: str) -> None:
        experiment, arms = resolve(text)
        check_contrast(experiment, "interaction", arms)

    return check


def test_the_arms_of_an_interaction_are_named_in_the_order_of_its_formula(resolve, factorial: str):
    contrast = resolve(factorial)[0].contrasts["interaction"]
    assert contrast.arms == ("both", "rd", "xsa", "standard")
    assert contrast.formula == "(both minus rd) minus (xsa minus standard)"
    assert resolve(factorial)[0].contrasts["xsa"].formula == "xsa minus standard"


@pytest.mark.parametrize(
    ("arms", "meaningful"),
    [
        (("a", "b", "c", "d"), True),
        (("a", "b", "b", "c"), True),  # second difference of three arms: a - 2 b + c
        (("a", "b", "c", "a"), True),  # 2 a - b - c
        (("a", "b", "a", "c"), False),  # is c - b
        (("a", "b", "c", "b"), False),  # is a - c
        (("a", "b", "b", "a"), False),  # is 2 (a - b)
        (("a", "b", "a", "b"), False),  # is zero
        (("a", "b", "c", "c"), False),
        (("a", "a", "b", "c"), False),
    ],
)
def test_an_interaction_that_is_zero_or_a_simple_contrast_is_refused(arms: tuple[str, ...], meaningful: bool):
    fields = dict(zip(("treatment", "baseline", "minus_treatment", "minus_baseline"), arms, strict=True))
    table = {**fields, "smallest_effect": 0.01, "design_effect": 0.03}
    if meaningful:
        assert spec.Contrast.model_validate(table).arms == arms
    else:
        with pytest.raises(ValueError, match=r"no interaction|the same arm"):
            spec.Contrast.model_validate(table)


@pytest.mark.parametrize("missing", ['minus_treatment = "xsa"\n', 'minus_baseline = "standard"\n'])
def test_half_an_interaction_is_refused(resolve, factorial: str, missing: str):
    with pytest.raises(ExperimentFileError, match=r"contrasts\.interaction: an interaction needs both"):
        resolve(factorial.replace(missing, ""))


def test_an_unknown_arm_of_an_interaction_is_refused_with_the_nearest(resolve, factorial: str):
    with pytest.raises(ExperimentFileError, match=r"contrasts\.interaction\.minus_treatment: no such arm") as caught:
        resolve(factorial.replace('minus_treatment = "xsa"', 'minus_treatment = "xsaa"'))
    assert caught.value.remedy == "did you mean 'xsa'?"


def test_a_two_by_two_of_mechanisms_passes_in_either_direction(checked, factorial: str):
    checked(factorial)
    # The same interaction with its two differences exchanged: now the first pair lacks tensors that the second has.
    swapped = INTERACTION
    for side, arm in (("treatment", "xsa"), ("baseline", "standard")):
        minus = {"treatment": "both", "baseline": "rd"}[side]
        swapped = swapped.replace(f'\n{side} = "{minus}"', f'\n{side} = "{arm}"')
        swapped = swapped.replace(f'minus_{side} = "{arm}"', f'minus_{side} = "{minus}"')
    checked(factorial.replace(INTERACTION, swapped))


@pytest.mark.parametrize(
    ("arms", "named"),
    [
        (("both",), "'both' and 'rd'"),  # inside the first difference
        (("xsa",), "'xsa' and 'standard'"),  # inside the second
        (("xsa", "standard"), "'both' and 'xsa'"),  # each pair is equal in itself, the pairs differ
    ],
)
def test_both_differences_and_what_lies_across_them_must_be_pairs(
    checked, factorial: str, arms: tuple[str, ...], named: str
):
    text = factorial
    for arm in arms:
        text = text.replace(f"[arms.{arm}]", f"[arms.{arm}]\noptimiser = {{ matrix_learning_rate = 0.03 }}")
    with pytest.raises(PairCheckError, match=rf"contrast 'interaction': {named} differ") as caught:
        checked(text)
    assert "optimiser.matrix_learning_rate" in str(caught.value)
    declared = '[contrasts.interaction]\nalso_differs = ["optimiser.matrix_learning_rate"]'
    checked(text.replace("[contrasts.interaction]", declared))


def test_the_plan_says_what_an_interactions_sd_is_about(tmp_path: Path, factorial: str):
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "texts.parquet").touch()
    second = INTERACTION.replace("interaction", "curve").replace("xsa", "half").replace("both", "xsa")
    text = factorial.replace("[arms.rd]", '[arms.half]\noutput_map = { name = "xsa", strength = 0.5 }\n[arms.rd]')
    (tmp_path / "study.toml").write_text(text + second.replace('"rd"', '"half"'), encoding="utf-8")
    plan = describe_json(loading.load(tmp_path / "study.toml"), tmp_path, tmp_path / "runs")
    relative = {name: c["sd_relative_to_a_simple_contrast"] for name, c in plan["contrasts"].items()}
    # Independent cells of equal variance: 2, 4 and (xsa - 2 half + standard) 6 times one cell's.
    assert relative["block"] == 1
    assert relative["interaction"] == pytest.approx(2**0.5)
    assert relative["curve"] == pytest.approx(3**0.5)
    assert plan["contrasts"]["interaction"]["formula"] == "(both minus rd) minus (xsa minus standard)"


UNUSED = {"minus_treatment", "minus_baseline", "assumed_sd", "published", "expected"}


def test_a_rule_without_interactions_keeps_its_identity(resolve, tiny: str, factorial: str):
    """Looks on record compare rules by their digest: a field that a file does not use must not change it."""
    experiment, _ = resolve(tiny)
    contrasts = {
        name: contrast.model_dump_json(exclude=UNUSED) for name, contrast in sorted(experiment.contrasts.items())
    }
    text = f"{contrasts} {experiment.seeds.count} {experiment.seeds.first}"
    assert spec.rule_digest(experiment) == hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
    other, _ = resolve(factorial)
    changed, _ = resolve(factorial.replace('minus_baseline = "standard"', 'minus_baseline = "block"'))
    assert spec.rule_digest(other) != spec.rule_digest(changed)
