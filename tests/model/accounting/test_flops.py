from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from paribus.kernels.compiler import operators
from paribus.mechanisms.contract import ROUTE, MechanismConfig, Seam
from paribus.model.accounting.flops import (
    attended_positions,
    forward_flops_per_token,
    nanochat_flops_per_token,
    training_flops_per_token,
)
from paribus.model.accounting.parameters import scaling_parameters
from paribus.model.backbone import Backbone, geometry_of
from paribus.model.build import abstract_model
from paribus.model.config import ModelConfig, NanochatConfig, PrenormConfig
from paribus.model.lawbench import LawBench

Build = Callable[..., Backbone]
MechanismsOf = Callable[..., dict[Seam, MechanismConfig]]
DrawArm = Callable[[DataObject], tuple[ModelConfig, dict[Seam, MechanismConfig]]]
PARENT, CHILD = ({"routing": {"name": name, "blocks": 3}} for name in ("block-attnres", "role-decoupled"))


def counted_flops(model: Backbone, tokens: Tensor) -> float:
    """FLOPs of a token's matrix products, attention over all pairs."""
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH), torch.no_grad():
        model(tokens, torch.zeros_like(tokens))
    return counter.get_total_flops() / tokens.numel()


@settings(deadline=None, max_examples=20, phases=[Phase.generate])
@given(data=st.data())
def test_backbone_flops_are_the_counted_matrix_products_with_attention_to_earlier_positions_only(
    data: DataObject, arm_at_a_size: DrawArm, mechanisms_of: MechanismsOf
):
    """The counter sees attention over all pairs, whatever a mask leaves of them; pairs are counted one by one here."""
    drawn, _ = arm_at_a_size(data)
    config, mechanisms = drawn.model_copy(update={"compute": "float32"}), mechanisms_of({})
    time = config.context_length
    counted = counted_flops(abstract_model(config, mechanisms), torch.ones(2, time, dtype=torch.long, device="meta"))
    pairs = 0
    for layer in range(config.layers):
        reach = config.window(layer) if isinstance(config, NanochatConfig) else None
        far = time if reach is None else reach
        pairs += sum(1 for query in range(time) for key in range(time) if 0 <= query - key <= far)
    never = 4 * config.heads * config.head_width * (config.layers * time - pairs / time)
    assert forward_flops_per_token(config, mechanisms) == pytest.approx(counted - never, rel=1e-12)
    assert sum(attended_positions(config)) == pytest.approx(pairs / time, rel=1e-12)


@pytest.mark.parametrize("arm", [{}, {"output_map": {"name": "xsa"}}, PARENT, CHILD], ids=["std", "xsa", "block", "rd"])
def test_forward_flops_of_arms_equal_the_counted_matrix_products_up_to_what_is_stated(
    build: Build, config: ModelConfig, tokens: Tensor, mechanisms_of: MechanismsOf, arm: dict
):
    """The counter sees matrix products only, and attention over all pairs. The formula counts causal attention at its
    mean length, and of a mechanism also what is no matrix product: the projection of XSA; the mix (half of a read's
    work for each query and source) and the mean squares of a depth routing."""
    time, geometry_width = config.context_length, config.width
    with operators():
        counted = counted_flops(build(arm), tokens)
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


@pytest.mark.parametrize("backbone", ["prenorm", "nanochat"])
@pytest.mark.parametrize(
    "routing",
    [
        {"name": "block-attnres", "blocks": "full"},
        {"name": "role-decoupled", "blocks": 3},
        {"name": "role-decoupled", "blocks": 3, "routes": "q|k|v"},
    ],
    ids=lambda table: table.get("routes", table["name"]),
)
def test_a_routing_declares_what_its_reads_were_seen_to_mix_on_either_backbone(
    backbone: str, routing: dict[str, Any], mechanisms_of: MechanismsOf
):
    """4 width for each query and source, 2 width for the mean square of each source that is published."""
    bench, mixed = LawBench(backbone), 0

    def tap(site: str, layer: int, **tensors: Tensor) -> None:
        nonlocal mixed
        del layer
        if site.endswith("depth read"):
            mixed += sum(t.shape[-1] for name, t in tensors.items() if name.startswith(ROUTE))

    with torch.no_grad():
        bench.logits(bench.model({"routing": routing}), tap=tap)
    mechanisms = mechanisms_of({"routing": routing})
    declared = mechanisms[Seam.ROUTING].flops_per_token(geometry_of(bench.config, mechanisms))
    assert declared == bench.config.width * (4 * mixed + 2 * (2 * bench.config.layers + 1))


@settings(deadline=None, max_examples=20)
@given(data=st.data())
def test_an_arms_flops_are_its_backbones_and_what_each_mechanism_adds(
    data: DataObject, arm_at_a_size: DrawArm, mechanisms_of: MechanismsOf
):
    config, arm = arm_at_a_size(data)
    added = [mechanism.flops_per_token(geometry_of(config, arm)) for mechanism in arm.values()]
    plain = forward_flops_per_token(config, mechanisms_of({}))
    assert forward_flops_per_token(config, arm) == pytest.approx(plain + sum(added), rel=1e-12)
    assert min(added) >= 0.0


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


def test_training_is_three_forward_passes(config: PrenormConfig, mechanisms_of: MechanismsOf):
    mechanisms = mechanisms_of(CHILD)
    assert training_flops_per_token(config, mechanisms) == 3 * forward_flops_per_token(config, mechanisms)


def stock(layers: int, width: int, head_width: int, **fields: Any) -> NanochatConfig:
    """nanochat's own size: rows of 2048 of 32,768 tokens, an MLP four times as wide."""
    size = {"mlp_width": 4 * width, "vocabulary_size": 32_768, "context_length": 2048}
    return NanochatConfig(layers=layers, width=width, head_width=head_width, **size, **fields)


@pytest.mark.parametrize(
    ("shape", "printed"), [((12, 768, 128), 7.597e8), ((24, 1536, 128), 4.775e9), ((24, 1024, 64), 2.278e9)]
)
def test_nanochats_published_flops_per_token_are_reproduced(shape: tuple[int, int, int], printed: float):
    """To the four digits in which they are printed."""
    assert float(f"{nanochat_flops_per_token(stock(*shape)):.3e}") == printed


def test_nanochats_count_differs_from_ours_in_what_it_says_it_does(mechanisms_of: MechanismsOf):
    """Weights alike, but for the smear gate at a row's first token; attention 12 H Dh times its full window, where ours
    has 12 H Dh times the mean number of positions seen."""
    config = stock(12, 768, 128)
    seen = sum(attended_positions(config))
    assert [config.window(layer) for layer in range(4)] == [512, 512, 512, None]
    windows = 9 * 512 + 3 * 2048
    first_token = 6 * config.smear_channels / config.context_length
    difference = nanochat_flops_per_token(config) - training_flops_per_token(config, mechanisms_of({}))
    assert difference == pytest.approx(12 * config.width * (windows - seen) + first_token, rel=1e-9)
    assert nanochat_flops_per_token(config) == 6 * (scaling_parameters(config) + 24) + 12 * 768 * windows


def test_a_window_that_reaches_over_the_whole_row_is_none(mechanisms_of: MechanismsOf):
    """Rows of 128: a quarter rounds up to 128 earlier positions, which is the row."""
    short, long = (
        stock(4, 128, 64, window_pattern=pattern).model_copy(update={"context_length": 128}) for pattern in "SL"
    )
    assert short.window(0) == 128
    assert forward_flops_per_token(short, mechanisms_of({})) == forward_flops_per_token(long, mechanisms_of({}))
