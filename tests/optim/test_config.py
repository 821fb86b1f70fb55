import pytest
from pydantic import ValidationError

from paribus.optim.config import NOT_READ, OptimiserConfig, at_rates


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {"matrix_update": "adamw", "matrix_scale": "moonshot"},
            'matrix_scale = "moonshot" does nothing beside matrix_update = "adamw"; only "muon" and "nanochat" read '
            'it: leave it at "keller", or choose one of them',
        ),
        (
            {"matrix_update": "adamw", "matrix_momentum": 0.9},
            'matrix_momentum = 0.9 does nothing beside matrix_update = "adamw"; only "muon" and "nanochat" read it: '
            "leave it at 0.95, or choose one of them",
        ),
        (
            {"matrix_row_equilibration": True},
            'matrix_row_equilibration = true does nothing beside matrix_update = "muon"; only "nanochat" read it: '
            "leave it at false, or choose one of them",
        ),
        ({"matrix_unit_norm": True}, 'matrix_unit_norm = true does nothing beside matrix_update = "muon"'),
        ({"matrix_variance_beta2": 0.95}, 'matrix_variance_beta2 = 0.95 does nothing beside matrix_update = "muon"'),
        ({"matrix_update": "sgd"}, "'muon', 'nanochat' or 'adamw'"),
        ({"embedding_betas": (0.9, 1.0)}, "less than 1"),
        ({"embedding_betas": (0.9,)}, "embedding_betas"),
        ({"gradient_clip_norm": 0.0}, "greater than 0"),
        ({"head_weight_decay": -0.1}, "greater than or equal to 0"),
    ],
)
def test_a_recipe_that_cannot_be_meant_is_refused(fields, said):
    with pytest.raises(ValidationError) as caught:
        OptimiserConfig(**fields)
    assert said in str(caught.value)


@pytest.mark.parametrize("update", NOT_READ)
def test_what_an_update_does_not_read_may_stand_at_its_default(update):
    whole = OptimiserConfig(matrix_update=update).model_dump()
    assert OptimiserConfig(**whole) == OptimiserConfig(matrix_update=update)


def test_every_field_of_matrices_that_is_not_read_by_all_is_known():
    for fields in NOT_READ.values():
        assert set(fields) <= set(OptimiserConfig.model_fields)


def test_betas_may_be_written_as_a_toml_array():
    assert OptimiserConfig.model_validate({"head_betas": [0.8, 0.96]}).head_betas == (0.8, 0.96)


def test_other_rates_multiply_every_learning_rate_and_nothing_else():
    one, other = OptimiserConfig().model_dump(), at_rates(OptimiserConfig(), 3.0).model_dump()
    changed = {name for name in one if one[name] != other[name]}
    assert changed == {name for name in one if name.endswith("_learning_rate")}
    assert len(changed) == 10
    assert all(other[name] == 3.0 * one[name] for name in changed)
