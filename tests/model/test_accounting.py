from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from paribus.mechanisms.contract import MechanismConfig, Seam
from paribus.model.accounting import forward_flops_per_token, parameters_by_role, training_flops_per_token
from paribus.model.build import abstract_model
from paribus.model.config import ModelConfig
from paribus.model.prenorm import Prenorm
from paribus.roles import Role

Build = Callable[..., Prenorm]
MechanismsOf = Callable[..., dict[Seam, MechanismConfig]]
PARENT, CHILD = ({"routing": {"name": name, "blocks": 3}} for name in ("block-attnres", "role-decoupled"))


@pytest.mark.parametrize(("arm", "reads"), [({}, 0), (PARENT, 2 * 7), (CHILD, 2 * 7 + 3)])
def test_parameters_by_role_follow_the_closed_form(build: Build, config: ModelConfig, arm: dict, reads: int):
    """Hidden matrices: 4 d^2 + 3 d m a layer. Depth reads: a query and a gain at each of 2 L + 1 sites, and one query
    more a layer where the value has its own."""
    d, m, layers, vocabulary = config.width, config.mlp_width, config.layers, config.vocabulary_size
    expected = {Role.EMBEDDING: vocabulary * d, Role.MATRIX: layers * (4 * d * d + 3 * d * m)}
    expected |= {Role.GAIN: (2 * layers + 1) * d} | ({Role.DEPTH_READ: reads * d} if reads else {})
    assert parameters_by_role(build(arm)) == expected
    assert sum(expected.values()) == sum(p.numel() for p in build(arm).parameters())


@pytest.mark.parametrize("arm", [{}, {"output_map": {"name": "xsa"}}, PARENT, CHILD], ids=["std", "xsa", "block", "rd"])
def test_forward_flops_equal_the_counted_matrix_products_up_to_what_is_stated(
    build: Build, config: ModelConfig, tokens: Tensor, mechanisms_of: MechanismsOf, arm: dict
):
    """The counter sees matrix products only, and attention over all pairs. The formula counts causal attention at its
    mean length, and of a mechanism also what is no matrix product: the projection of XSA; the mix (half of a read's
    work for each query and source) and the mean squares of a depth routing."""
    time, geometry_width = config.context_length, config.width
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH), torch.no_grad():
        build(arm)(tokens, torch.zeros_like(tokens))
    counted = counter.get_total_flops() / tokens.numel()
    mechanisms = mechanisms_of(arm)
    formula = forward_flops_per_token(config, mechanisms)
    acausal = config.layers * 4 * config.width * (time - (time + 1) / 2)
    # The removal: a dot product and a scaled subtraction a head, and four operations on each element of the value.
    unseen = 8 * config.layers * config.width if "output_map" in arm else 0
    if "routing" in arm:
        added = formula - forward_flops_per_token(config, mechanisms_of({}))
        mean_squares = 2 * geometry_width * (2 * config.layers + 1)
        unseen = mean_squares + (added - mean_squares) / 2
    assert counted == formula + acausal - unseen


def test_grouped_queries_count_the_smaller_key_and_value_matrices(
    build: Build, config: ModelConfig, mechanisms_of: MechanismsOf
):
    grouped = config.model_copy(update={"query_heads_per_kv_head": 3})
    d, layers = config.width, config.layers
    smaller = layers * 2 * d * (d - config.head_width)  # key and value keep one head of three
    full, fewer = (sum(p.numel() for p in build({}, config=c).parameters()) for c in (config, grouped))
    assert full - fewer == smaller
    flops = [forward_flops_per_token(c, mechanisms_of({})) for c in (config, grouped)]
    assert flops[0] - flops[1] == 2 * smaller


def test_training_is_three_forward_passes(config: ModelConfig, mechanisms_of: MechanismsOf):
    mechanisms = mechanisms_of(CHILD)
    assert training_flops_per_token(config, mechanisms) == 3 * forward_flops_per_token(config, mechanisms)


def test_an_abstract_model_has_the_names_and_shapes_of_the_real_one_and_no_memory(
    build: Build, config: ModelConfig, mechanisms_of: MechanismsOf
):
    abstract = dict(abstract_model(config, mechanisms_of(CHILD)).named_parameters())
    assert {name: p.shape for name, p in abstract.items()} == {n: p.shape for n, p in build(CHILD).named_parameters()}
    assert all(p.is_meta for p in abstract.values())
