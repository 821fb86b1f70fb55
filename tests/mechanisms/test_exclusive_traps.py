"""Known wrong versions of Exclusive Self-Attention, each caught by the law or the check that is named here.

The letter and number are those of the list of traps in the documentation.
"""

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import jaxtyping
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from paribus.kernels.exclude_self import cosine, exclude_self
from paribus.mechanisms import exclusive_controls, resolve
from paribus.mechanisms.contract import Geometry, Law, MechanismConfig, Seam, Values
from paribus.mechanisms.exclusion import laws, maps, prefix
from paribus.mechanisms.exclusive import DIAGNOSTICS, LAWS
from paribus.mechanisms.laws import causality, document_boundary, shared_tensors_equal
from paribus.model.config import PrenormConfig
from paribus.model.lawbench import LawBench
from paribus.seeds import unit_noise
from paribus.shapes import Documents, GroupedHeads

Install = Callable[[ModuleType], None]
XSA = {"output_map": {"name": "xsa"}}


def law(words: str) -> Law:
    (found,) = [law for law in LAWS if words in law.claim]
    return found


def holds(found: Law, bench: LawBench) -> bool:
    return found.measure(bench, False) <= found.bound


def noise(name: str, *shape: int) -> Tensor:
    return torch.from_numpy(unit_noise(shape, "tests", "traps", name))


@pytest.fixture(scope="module")
def grouped_bench() -> LawBench:
    """Four query heads on two values."""
    bench = LawBench()
    fields = {**bench.config.model_dump(), "width": 32, "query_heads_per_kv_head": 2}
    bench.config = PrenormConfig.model_validate(fields)
    return bench


# G1: a shape crash under grouped queries, because v has fewer heads than y.


def test_g1_grouped_queries_run_where_a_product_of_flat_heads_crashes(grouped_bench: LawBench):
    losses = grouped_bench.loss_and_gradients(grouped_bench.model(XSA))
    assert all(bool(t.isfinite().all()) for t in losses.values())
    y, v = noise("y", 2, 5, 2, 2, 8), noise("v", 2, 5, 2, 1, 8)
    with pytest.raises(RuntimeError, match="must match the size"):
        _ = y.flatten(2, 3) * v.flatten(2, 3)


# G2: heads in tile order (h mod kv_heads) instead of neighbours (h div group): right shapes, wrong values.


def by_tile_order(y: Tensor, v: Tensor, strength: float) -> Tensor:
    heads = y.flatten(2, 3)
    tiled = v.flatten(2, 3).repeat(1, 1, heads.shape[2] // v.shape[2], 1)
    return exclude_self(heads.unsqueeze(3), tiled.unsqueeze(3), strength).view_as(y)


def test_g2_a_group_in_tile_order_is_caught_by_the_law_of_shared_values(
    bench: LawBench, monkeypatch: pytest.MonkeyPatch
):
    assert holds(law("query heads that share a value"), bench)
    monkeypatch.setattr(laws, "exclude_self", by_tile_order)
    assert not holds(law("query heads that share a value"), bench)


# G3: one coefficient for the whole row, and the value before a value map changed it.


class _OneCoefficient(nn.Module):
    def forward(self, y: GroupedHeads, values: Values, document: Documents) -> GroupedHeads:
        del document
        flat_y, flat_v = y.flatten(1), values.aggregated.expand_as(y).flatten(1)
        along = (flat_y * flat_v).sum(-1, keepdim=True) / flat_v.square().sum(-1, keepdim=True)
        return (flat_y - along * flat_v).view_as(y)


class OneCoefficient(MechanismConfig):
    """Projects a whole row of heads as if it were one vector."""

    name = "one-coefficient"
    seam = Seam.OUTPUT_MAP

    def build(self, geometry: Geometry, layer: int) -> nn.Module:
        del geometry, layer
        return _OneCoefficient()


@pytest.mark.parametrize("check", [causality, document_boundary], ids=["causality", "document boundary"])
def test_g3_one_coefficient_for_the_whole_row_is_caught(check: Callable[[Any], Law], bench: LawBench, install: Install):
    install(sys.modules[__name__])
    assert holds(check(XSA), bench)
    assert not holds(check({"output_map": {"name": "one-coefficient"}}), bench)


def test_g3_g7_the_value_before_the_value_map_is_caught_by_the_law_of_the_chosen_value(
    bench: LawBench, monkeypatch: pytest.MonkeyPatch
):
    assert holds(law("the value that the arm chose"), bench)
    monkeypatch.setattr(maps, "excluded", lambda values, _: values.projected)
    assert not holds(law("the value that the arm chose"), bench)


def test_g7_the_choice_of_the_value_is_a_field_of_the_configuration():
    fields = resolve(Seam.OUTPUT_MAP, {"name": "xsa"}, "here").model_dump()
    assert fields["value"] == "aggregated"


# G4: a mean that contains later tokens makes validation loss too good.


class _MeanSubtracted(nn.Module):
    def forward(self, y: GroupedHeads, values: Values, document: Documents) -> GroupedHeads:
        del document
        v = values.aggregated
        return exclude_self(y, v - v.mean(1, keepdim=True), 1.0)


class MeanSubtracted(MechanismConfig):
    """Projects on the value less the row's mean, which later tokens have entered."""

    name = "mean-subtracted"
    seam = Seam.OUTPUT_MAP

    def build(self, geometry: Geometry, layer: int) -> nn.Module:
        del geometry, layer
        return _MeanSubtracted()


def test_g4_a_mean_over_the_whole_row_is_caught_by_causality(bench: LawBench, install: Install):
    install(sys.modules[__name__])
    assert not holds(causality({"output_map": {"name": "mean-subtracted"}}), bench)


def test_g4_a_common_mode_that_sees_later_tokens_is_caught_by_causality(
    bench: LawBench, monkeypatch: pytest.MonkeyPatch
):
    arm = {"output_map": {"name": "xsa-common-mode"}}
    assert holds(causality(arm), bench)
    monkeypatch.setattr(
        exclusive_controls, "document_mean", lambda v, _: v.mean(1, keepdim=True).expand_as(v).contiguous()
    )
    assert not holds(causality(arm), bench)


def test_g4_a_running_sum_less_the_sum_at_the_documents_start_is_caught_at_the_boundary(
    bench: LawBench, monkeypatch: pytest.MonkeyPatch
):
    """Causal, and right up to rounding; but the earlier document's rounding is in it."""

    def by_difference(v: Tensor, document: Tensor) -> Tensor:
        total = v.cumsum(1)
        before = torch.stack(
            [
                torch.stack([total[b, s - 1] if s > 0 else 0 * total[b, 0] for s in starts])
                for b, starts in enumerate((document[:, :, None] == document[:, None]).int().argmax(-1).tolist())
            ]
        )
        return total - before  # the direction of the mean is that of the sum

    arm = {"output_map": {"name": "xsa-common-mode"}}
    assert holds(document_boundary(arm), bench)
    monkeypatch.setattr(exclusive_controls, "document_mean", by_difference)
    assert holds(causality(arm), bench)
    assert not holds(document_boundary(arm), bench)


# G5: a cached call that sees other values than those of the current tokens.


def prefix_difference(bench: LawBench, model: Any) -> float:
    """Largest difference between the logits of a prefix and those of the whole row, as decoding would see them."""
    with torch.no_grad():
        whole = model(bench.tokens, bench.document)
        found = []
        for time in range(1, bench.tokens.shape[1] + 1):
            prefix = model(bench.tokens[:, :time], bench.document[:, :time])
            found.append(float((prefix - whole[:, :time]).abs().max()))
    return max(found)


def test_g5_a_prefix_has_the_logits_of_the_whole_row_and_a_last_value_for_all_does_not(
    bench: LawBench, monkeypatch: pytest.MonkeyPatch
):
    # Attention over fewer keys may add in another order: some hundred float32 roundings through four layers.
    assert prefix_difference(bench, bench.model(XSA)) < 1e-5
    monkeypatch.setattr(maps, "excluded", lambda values, _: values.aggregated[:, -1:].expand_as(values.aggregated))
    assert prefix_difference(bench, bench.model(XSA)) > 1e-2
    assert not holds(causality(XSA), bench)


# G6: layouts of y and v that differ, and a requested layer that is silently ignored.


def test_g6_a_value_of_another_layout_is_refused_and_not_broadcast():
    y, v = noise("y", 2, 6, 4, 1, 8), noise("v", 2, 3, 8, 1, 8)
    with pytest.raises((RuntimeError, jaxtyping.TypeCheckError)):
        exclude_self(y, v, 1.0)


def test_g6_a_requested_layer_that_the_model_lacks_is_refused(geometry: Geometry):
    problem = resolve(Seam.OUTPUT_MAP, {"name": "xsa", "layers": [1, 7]}, "here").validate_for(geometry)
    assert problem is not None
    assert "valid layer indices are 0 to 3" in problem


# G8: an eps that removes a part where the value is small.

EPS = {
    "1e-12 on |v|": lambda v: v.norm(dim=-1, keepdim=True).clamp_min(1e-12).square(),
    "1e-8 on |v|^2": lambda v: v.square().sum(-1, keepdim=True).clamp_min(1e-8),
    "1e-8 added to |v|^2": lambda v: v.square().sum(-1, keepdim=True) + 1e-8,
    "1e-4 on |v|": lambda v: v.norm(dim=-1, keepdim=True).clamp_min(1e-4).square(),
}


@pytest.mark.parametrize("name", EPS)
def test_g8_an_absolute_eps_is_caught_by_the_law_that_the_values_size_does_not_matter(
    name: str, bench: LawBench, monkeypatch: pytest.MonkeyPatch
):
    def with_eps(y: Tensor, v: Tensor, strength: float) -> Tensor:
        return y - strength * (y * v).sum(-1, keepdim=True) / EPS[name](v) * v

    size = law("whatever the size of the value")
    assert holds(size, bench)
    monkeypatch.setattr(laws, "exclude_self", with_eps)
    assert not holds(size, bench)


def test_g8_a_dot_product_in_bfloat16_is_caught_by_the_first_token(bench: LawBench, monkeypatch: pytest.MonkeyPatch):
    def in_its_own_dtype(y: Tensor, v: Tensor, strength: float) -> Tensor:
        unit = functional.normalize(v, dim=-1, eps=1e-12)
        return y - strength * (y * unit).sum(-1, keepdim=True) * unit

    first = law("first token of a document gives z = 0")
    assert holds(first, bench)
    monkeypatch.setattr(laws, "exclude_self", in_its_own_dtype)
    assert not holds(first, bench)


# G9: nothing is left of a first token; a later norm would make rounding noise of size one, and its cosine is no number.


def test_g9_a_norm_after_the_removal_is_caught_by_the_first_token(bench: LawBench, monkeypatch: pytest.MonkeyPatch):
    def then_normed(y: Tensor, v: Tensor, strength: float) -> Tensor:
        return functional.rms_norm(exclude_self(y, v, strength), y.shape[-1:], None, 1e-30)

    first = law("first token of a document gives z = 0")
    monkeypatch.setattr(maps, "exclude_self", then_normed)
    assert not holds(first, bench)


@pytest.mark.parametrize("mask", ["causal", "document"])
def test_g9_diagnostics_are_numbers_at_first_tokens_too(mask: str, bench: LawBench):
    tapped: dict[str, Tensor] = {}

    def tap(site: str, layer: int, **tensors: Tensor) -> None:
        if layer == 1:
            tapped.update({f"{site}/{name}": tensor for name, tensor in tensors.items()})

    with torch.no_grad():
        bench.logits(bench.model({**XSA, "mask": {"name": mask}}), tap=tap)
    tapped["attention output/z"] = tapped["attention output/z"].clone()
    tapped["attention output/z"][:, 0] = 0.0  # as exact arithmetic would have it
    y, z = tapped["attention output/y"], tapped["attention output/z"]
    unguarded = (z * y).sum(-1) / (z.norm(dim=-1) * y.norm(dim=-1))
    assert unguarded[:, 0].isnan().all()
    assert not cosine(z, y)[:, 0].any()
    weight = torch.ones_like(bench.tokens).float()
    for diagnostic in DIAGNOSTICS:
        own = {k: t for k, t in tapped.items() if k.rpartition("/")[0] in diagnostic.sites}
        assert all(bool(t.isfinite().all()) for t in diagnostic.observe(own, weight).values()), diagnostic.name


# G30: conclusions from one initial strength.


@pytest.mark.parametrize("start", [0.0, 0.9])
def test_g30_a_learned_strength_starts_at_standard_attention_or_near_full_removal(start: float, bench: LawBench):
    model = bench.model({"output_map": {"name": "xsa", "strength": "learned", "initial_strength": start}})
    gradients = bench.loss_and_gradients(model)
    own = [gradient for name, gradient in gradients.items() if "strength" in name]
    assert len(own) == 4
    assert all(bool((gradient != 0).all()) for gradient in own)


# G32: an arm's own parameter shifts everybody else's initial values.


@pytest.mark.parametrize(
    "arm",
    [
        {"output_map": {"name": "xsa", "strength": "learned"}},
        {"output_map": {"name": "xsa-random-direction"}},
        {"value_map": {"name": "value-embedding"}},
    ],
    ids=["learned strength", "random direction", "value embedding"],
)
def test_g32_own_parameters_leave_all_shared_initial_values_as_they_are(arm: Any, bench: LawBench):
    assert holds(shared_tensors_equal(arm), bench)


# G35: z is orthogonal to v before an element-wise gate, and not after it.


@pytest.mark.parametrize(("shape", "still"), [((8,), False), ((2, 1, 1), True)], ids=["per element", "per head"])
def test_g35_a_gate_inside_the_map_is_caught_unless_it_is_one_number_a_head(
    shape: tuple[int, ...], still: bool, bench: LawBench, monkeypatch: pytest.MonkeyPatch
):
    gate = torch.sigmoid(noise("gate", *shape))
    monkeypatch.setattr(maps, "exclude_self", lambda y, v, strength: gate * exclude_self(y, v, strength))
    assert holds(law("z is orthogonal to v at strength 1"), bench) is still


def test_values_of_other_documents_that_are_masked_by_position_only_are_caught(
    bench: LawBench, monkeypatch: pytest.MonkeyPatch
):
    """The wrong-token control without the document: the last token of one document is projected on by the next."""
    arm = {"output_map": {"name": "xsa-wrong-token"}}
    assert holds(document_boundary(arm), bench)
    monkeypatch.setattr(exclusive_controls, "earlier_value", lambda v, _, offset: prefix.shifted(v, offset))
    # The law moves token 2 of a document that ends at 4; layers carry the change to the last token and over the edge.
    assert not holds(document_boundary(arm), bench)
