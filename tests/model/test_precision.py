"""What the precision of a configuration changes, and what it must not; and layers computed twice to save memory."""

import copy
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from paribus.mechanisms import resolve
from paribus.mechanisms.contract import BACKBONES, Seam
from paribus.model.backbone import Backbone
from paribus.model.build import build_model
from paribus.model.config import CONFIGS
from paribus.model.lawbench import LawBench
from paribus.roles import Role, declarations
from paribus.sample_update import peak_bytes

ROUTINGS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "plain": {},
    "blocks": {"routing": {"name": "block-attnres", "blocks": 3}},
    "full": {"routing": {"name": "block-attnres", "blocks": "full"}},
    "role-decoupled": {"routing": {"name": "role-decoupled", "blocks": 3}, "output_map": {"name": "xsa"}},
}
every_routing = pytest.mark.parametrize("arm", ROUTINGS.values(), ids=ROUTINGS.keys())
every_backbone = pytest.mark.parametrize("backbone", BACKBONES)


def bench_in(backbone: str, compute: str) -> LawBench:
    bench = LawBench(backbone, time=24)
    bench.config = type(bench.config).model_validate(bench.config.model_dump() | {"compute": compute})
    return bench


def awake(bench: LawBench, arm: Mapping[str, Mapping[str, Any]]) -> Backbone:
    model = bench.model(arm)
    if arm:
        bench.disturb(model, "")
    return model


@every_backbone
@every_routing
def test_what_adds_up_stays_float32_when_products_are_bfloat16(backbone: str, arm: Mapping[str, Any]):
    bench = bench_in(backbone, "bfloat16")
    model: Any = awake(bench, arm)
    seen: dict[str, set[torch.dtype]] = {"stream": set(), "mixed": set()}
    read, close = model.routing.read, model.routing.close

    def watching_read(*arguments: Any) -> Any:
        reads = read(*arguments)
        seen["stream"].update(t.dtype for t in reads)
        return reads

    def watching_close(*arguments: Any) -> Tensor:
        x = close(*arguments)
        seen["stream"].add(x.dtype)
        return x

    def tap(site: str, layer: int, **tensors: Tensor) -> None:
        del layer
        seen["mixed"].update(t.dtype for name, t in tensors.items() if site == "attention output" and name == "y")

    model.routing.read, model.routing.close = watching_read, watching_close
    assert bench.logits(model, tap=tap).dtype == torch.float32
    assert seen == {"stream": {torch.float32}, "mixed": {torch.bfloat16}}


@every_backbone
@every_routing
def test_bfloat16_products_change_the_logits_by_their_rounding_and_no_more(backbone: str, arm: Mapping[str, Any]):
    with torch.no_grad():
        exact, rounded = (
            bench.logits(awake(bench, arm)) for bench in (bench_in(backbone, "float32"), bench_in(backbone, "bfloat16"))
        )
    # A bfloat16 rounds at 2^-9 of a value, and some thirty products stand in a row: their roundings add up like noise.
    assert 0.0 < float((exact - rounded).norm() / exact.norm()) < 30**0.5 * 2.0**-8


def test_tables_of_smaller_storage_hold_the_rounded_draws_and_nothing_else_is_rounded():
    config = CONFIGS["nanochat"].model_validate(
        {"layers": 2, "width": 32, "head_width": 16, "mlp_width": 64, "vocabulary_size": 70, "context_length": 16}
    )
    mechanisms = {seam: resolve(seam, None, str(seam)) for seam in Seam}
    full = build_model(config, mechanisms, ("study",))
    small = build_model(config.model_copy(update={"table_storage": "bfloat16"}), mechanisms, ("study",))
    roles = {name: declaration.role for name, declaration in declarations(full).items()}
    for name, parameter in full.named_parameters():
        stored = small.get_parameter(name)
        if roles[name] in (Role.EMBEDDING, Role.VALUE_EMBEDDING):
            assert torch.equal(stored, parameter.to(torch.bfloat16))
        else:
            assert stored.dtype == torch.float32
            assert torch.equal(stored, parameter)
    assert {role for name, role in roles.items() if small.get_parameter(name).dtype == torch.bfloat16} == {
        Role.EMBEDDING,
        Role.VALUE_EMBEDDING,
    }


@every_backbone
@every_routing
@pytest.mark.parametrize("compute", ["float32", "bfloat16"])
def test_layers_computed_twice_give_the_same_bits(backbone: str, arm: Mapping[str, Any], compute: str):
    bench = bench_in(backbone, compute)
    model = awake(bench, arm)
    kept = {name: tensor.clone() for name, tensor in bench.loss_and_gradients(model).items()}
    model.recompute = True
    again = bench.loss_and_gradients(model)
    assert all(torch.equal(kept[name], again[name]) for name in kept)
    with torch.no_grad():
        model.get_parameter("layers.0.mlp.down").mul_(1.001)  # proof that the comparison can fail
    other = bench.loss_and_gradients(model)
    assert not all(torch.equal(kept[name], other[name]) for name in kept)


@every_backbone
@every_routing
def test_layers_computed_twice_need_a_fraction_of_the_memory_whatever_the_routing(
    backbone: str, arm: Mapping[str, Any]
):
    layers, batch, time, width = 8, 2, 64, 32
    config = CONFIGS[backbone].model_validate(
        {
            "backbone": backbone,
            "layers": layers,
            "width": width,
            "head_width": 16,
            "mlp_width": 96,
            "vocabulary_size": 64,
            "context_length": time,
        }
    )
    model = build_model(config, {s: resolve(s, dict(arm[s]) if s in arm else None, str(s)) for s in Seam}, ("study",))
    tokens = torch.arange(batch * time).view(batch, time) % 64

    def peak(*, recompute: bool) -> int:
        twin = copy.deepcopy(model)
        twin.recompute = recompute

        def step() -> float:
            logits = twin(tokens, torch.zeros_like(tokens))
            functional.cross_entropy(logits.flatten(0, 1), tokens.flatten()).backward()
            return 0.0

        return peak_bytes(step, torch.device("cpu"))

    kept, again = peak(recompute=False), peak(recompute=True)
    stream = 4 * batch * time * width
    # Kept: what one layer computes, the stream (or a source) at the entry of each layer and its gradient, and the head.
    assert again < kept / 2
    assert kept - again > (layers - 1) * 6 * stream


def test_the_peak_counts_what_is_held_at_one_time():
    held: list[Tensor] = []

    def step() -> float:
        one = torch.zeros(1000)  # 4,000 bytes, freed when the next takes its name
        for _ in range(2):
            one = torch.zeros(1000)
        held.append(torch.ones(500) + 1.0)  # two of 2,000 beside the last of them
        held.append(held[0].view(5, 100))  # a view takes nothing
        held[0].mul_(2.0)
        del one
        return 0.0

    # The name keeps the old tensor until the new one is there.
    assert peak_bytes(step, torch.device("cpu")) == 8_000
