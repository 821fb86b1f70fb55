"""The presets' constants against nanochat's, and the page that lists them."""

import json
import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest

from paribus.experiment.spec import Base
from paribus.model.config import NanochatConstants
from paribus.optim.config import OptimiserConfig, ScheduleConfig
from paribus.recipes.origins import ORIGINS, constants, renewed
from paribus.recipes.presets import PRESETS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "recipes.md"
GOLDEN = ROOT.parent / "shared" / "data" / "nanochat_golden" / "2026-07.json"
EACH = pytest.mark.parametrize("name", PRESETS)
NOT_OF_NANOCHAT = ("gain_", "depth_read_", "scalar_", "gradient_clip_norm", "adam_beta1", "adam_beta2")
"""fields of the optimiser that no tensor of the original reads"""
IN_WORDS = {"best fit", "its own", "GPT", "every second", "by shape", "since July", "by update", "half a cosine"}


@EACH
def test_a_preset_says_every_constant_of_backbone_and_schedule_itself(name: str):
    base = PRESETS[name].base
    assert set(base["model"]) == set(NanochatConstants.model_fields)
    assert set(base["schedule"]) == set(ScheduleConfig.model_fields)
    unsaid = set(OptimiserConfig.model_fields) - set(base["optimiser"])
    assert all(field.startswith(NOT_OF_NANOCHAT) for field in unsaid)


@EACH
def test_a_preset_is_valid_and_the_backbones_defaults_are_its_but_for_precision(name: str):
    base = PRESETS[name].base
    precision = {"compute": "bfloat16", "table_storage": "bfloat16"}
    assert NanochatConstants.model_validate(base["model"]) == NanochatConstants.model_validate(precision)
    OptimiserConfig.model_validate(base["optimiser"])
    ScheduleConfig.model_validate(base["schedule"])


def test_the_schema_admits_every_preset_and_no_other():
    literal, _ = get_args(Base.model_fields["preset"].annotation)
    assert get_args(literal) == tuple(PRESETS)


def computed(value: str) -> list[float]:
    """What a reader found: numbers, of which two may be multiplied, divided or one raised to the other."""
    signs: dict[str, Callable[[float, float], float]] = {
        " * ": operator.mul,
        " / ": operator.truediv,
        "**": operator.pow,
    }

    def one(part: str) -> float:
        for sign, joined in signs.items():
            left, found, right = part.partition(sign)
            if found:
                return joined(float(left), float(right))
        return float(part.replace(",", ""))

    return [one(part) for part in value.split(", ")]


@EACH
@pytest.mark.parametrize("key", ORIGINS)
def test_a_constant_is_what_was_read_in_nanochat(name: str, key: str):
    ours: Any = constants(name)[key]
    _, theirs, _ = ORIGINS[key]
    if theirs == "since July":
        assert ours == (name == "nanochat-2026-07")
    elif isinstance(ours, str):
        assert theirs in IN_WORDS | {ours}
    else:
        assert (ours if isinstance(ours, list) else [ours]) == pytest.approx(computed(theirs), rel=1e-15)


@EACH
def test_every_constant_has_an_origin_and_none_is_listed_in_vain(name: str):
    assert set(constants(name)) == set(ORIGINS)


def test_the_two_presets_differ_in_two_switches_alone():
    april, july = (constants(name) for name in PRESETS)
    assert {key for key in april if april[key] != july[key]} == {
        "base.optimiser.matrix_row_equilibration",
        "base.optimiser.matrix_unit_norm",
    }


def test_the_page_of_constants_is_that_of_the_code():
    page = PAGE.read_text(encoding="utf-8")
    assert renewed(page) == page, "docs/recipes.md gives the command that renews its table"


@pytest.mark.shared_data
@pytest.mark.skipif(not GOLDEN.exists(), reason=f"no {GOLDEN}")
def test_the_recorded_groups_of_nanochat_have_the_presets_numbers():
    """Recorded at width 64 and the reference batch; decay and momentum of Muon were set by hand there."""
    groups = json.loads(GOLDEN.read_text(encoding="utf-8"))["groups"]
    optimiser = PRESETS["nanochat-2026-07"].base["optimiser"]
    by_width = (64 / PRESETS["nanochat-2026-07"].reference.width) ** -0.5
    tensors = {"lm_head": "head", "wte": "embedding", "value_embeds": "value_embedding"}
    tensors |= {"resid_lambdas": "stream_scale", "x0_lambdas": "embedding_scale", "smear_lambda": "shortcut"}
    seen = set()
    for group in groups:
        first = group["params"][0]
        if group["kind"] == "muon":
            assert group["lr"] == optimiser["matrix_learning_rate"]
            assert group["beta2"] == optimiser["matrix_variance_beta2"]
            continue
        role = next(role for part, role in tensors.items() if part in first)
        factor = by_width if role in ("head", "embedding", "value_embedding") else 1.0
        assert group["lr"] == pytest.approx(optimiser[f"{role}_learning_rate"] * factor, rel=1e-12)
        assert group["betas"] == optimiser[f"{role}_betas"]
        assert group["weight_decay"] == optimiser[f"{role}_weight_decay"]
        assert group["eps"] == optimiser["adam_eps"]
        seen.add(role)
    assert seen == set(tensors.values())
