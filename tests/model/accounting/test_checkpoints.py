from collections.abc import Callable
from typing import Any, Literal

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

from paribus.mechanisms.contract import MechanismConfig, Seam
from paribus.model.accounting.checkpoints import checkpoint_bytes
from paribus.model.accounting.parameters import parameters_by_role
from paribus.model.build import build_model
from paribus.model.config import ModelConfig, NanochatConfig
from paribus.optim.config import OptimiserConfig
from paribus.roles import Role
from paribus.train.state import TENSORS, TrainState

Drawn = tuple[ModelConfig, dict[Seam, MechanismConfig]]
DrawArm = Callable[[DataObject], Drawn]
MechanismsOf = Callable[..., dict[Seam, MechanismConfig]]
MatrixUpdate = Literal["muon", "nanochat", "adamw"]


def bytes_of_tensors(file: bytes) -> int:
    """Of a safetensors file without its list of names, whose length its first eight bytes say."""
    return len(file) - 8 - int.from_bytes(file[:8], "little")


def agree(config: ModelConfig, arm: dict[Seam, MechanismConfig], matrix_update: MatrixUpdate) -> None:
    """The closed form and the file that a state writes behind an update of every parameter."""
    state = TrainState.fresh(build_model(config, arm, ("accounting",)), OptimiserConfig(matrix_update=matrix_update))
    for parameter in state.model.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.ones_like(parameter)
    for optimiser in state.optimisers:
        optimiser.step()
    assert checkpoint_bytes(config, arm, matrix_update) == bytes_of_tensors(state.to_files()[TENSORS])


def test_the_closed_form_is_the_size_of_a_checkpoint_for_every_mechanism_on_every_backbone(
    mechanism_on_a_backbone: Drawn,
):
    agree(*mechanism_on_a_backbone, "muon")


@settings(deadline=None, max_examples=20)
@given(data=st.data(), matrix_update=st.sampled_from(["muon", "nanochat", "adamw"]))
def test_the_closed_form_is_the_size_of_a_checkpoint_for_every_optimiser_at_any_size(
    data: DataObject, matrix_update: MatrixUpdate, arm_at_a_size: DrawArm
):
    agree(*arm_at_a_size(data), matrix_update)


def stock(**fields: Any) -> NanochatConfig:
    """nanochat's 12 layers."""
    size = {"layers": 12, "width": 768, "mlp_width": 3072, "vocabulary_size": 32_768, "context_length": 2048}
    return NanochatConfig(**size, **fields)


def test_a_checkpoint_of_nanochat_holds_two_moments_of_what_adamw_takes_and_one_of_matrices(
    mechanisms_of: MechanismsOf,
):
    """12 bytes a parameter, 8 a weight of a matrix; a count for each tensor of AdamW's; the digest; and for nanochat's
    Muon a number for each place of a matrix's longer axis."""
    config, mechanisms = stock(), mechanisms_of({})
    counts = parameters_by_role(config, mechanisms)
    adamw_tensors = 2 + 6 + 2 + 3  # embedding and head, value embeddings, smear, the residual path
    plain = 12 * sum(counts.values()) - 4 * counts[Role.MATRIX] + 4 * adamw_tensors + 8
    longer_axes = 12 * (4 * 768 + 2 * 3072) + 6 * 12
    assert checkpoint_bytes(config, mechanisms) == plain
    assert checkpoint_bytes(config, mechanisms, "nanochat") == plain + 4 * longer_axes
    assert checkpoint_bytes(config, mechanisms, "adamw") == plain + 4 * counts[Role.MATRIX] + 4 * (12 * 6 + 6)


def test_tables_in_bfloat16_halve_what_is_kept_of_them(mechanisms_of: MechanismsOf):
    wide, narrow = (stock(table_storage=kind) for kind in ("float32", "bfloat16"))
    counts = parameters_by_role(wide, mechanisms_of({}))
    halved = 6 * (counts[Role.EMBEDDING] + counts[Role.VALUE_EMBEDDING])
    assert checkpoint_bytes(wide, mechanisms_of({})) - checkpoint_bytes(narrow, mechanisms_of({})) == halved


def test_values_that_no_optimiser_touches_are_kept_once(mechanisms_of: MechanismsOf):
    config = stock()
    control = mechanisms_of({"output_map": {"name": "xsa-random-direction"}})
    added = checkpoint_bytes(config, control) - checkpoint_bytes(config, mechanisms_of({}))
    assert added == 4 * 12 * 768 == 4 * parameters_by_role(config, control)[Role.FIXED]
