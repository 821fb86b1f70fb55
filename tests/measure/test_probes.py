from collections.abc import Callable, Mapping

import pytest
import torch
from torch import Tensor, nn

from paribus.measure.probes import probe
from paribus.mechanisms.attention_residuals import DIAGNOSTICS as PARENTS
from paribus.mechanisms.contract import Diagnostic, Tap
from paribus.mechanisms.exclusive import DIAGNOSTICS as EXCLUSIVE
from paribus.mechanisms.role_decoupled import DIAGNOSTICS as CHILDS
from paribus.model.lawbench import LawBench
from paribus.model.prenorm import Prenorm
from paribus.train.step import Consumed


class Tapped(nn.Module):
    """Shows its token ids as a tensor at two layers of the site "here", and at layer 0 of "there"."""

    def forward(self, tokens: Tensor, document: Tensor, tap: Tap | None = None) -> Tensor:
        del document
        if tap is not None:
            for layer in (0, 1):
                tap("here", layer, x=(layer + 1.0) * tokens)
            tap("there", 0, y=tokens)
        return tokens


def diagnostic(observe: Callable[[Mapping[str, Tensor], Tensor], Mapping[str, float]], *sites: str) -> Diagnostic:
    return Diagnostic(name="d", title="", sentence="", unit="", sites=sites, observe=observe)


def mean_of_x(tapped: Mapping[str, Tensor], weight: Tensor) -> Mapping[str, float]:
    return {"mean": float((tapped["here/x"] * weight).sum() / weight.sum())}


def batch(tokens: list[list[int]], weight: list[list[float]]) -> Consumed:
    ids = torch.tensor(tokens)
    return Consumed(ids, ids, torch.tensor(weight), torch.zeros_like(ids))


# Positions that count, first positions left out: 20, 30 and 50. The second batch has one of the three.
BATCHES = [
    batch([[900, 20, 30], [900, 800, 800]], [[1.0, 1.0, 1.0], [1.0, 0.0, 0.0]]),
    batch([[900, 50]], [[1.0, 1.0]]),
    batch([[900]], [[1.0]]),
]


def test_means_weigh_every_counted_position_alike_over_batches_of_unequal_size():
    readings = probe(Tapped(), BATCHES, [diagnostic(mean_of_x, "here")])
    assert [(r.diagnostic, r.layer, r.group) for r in readings] == [("d", 0, "mean"), ("d", 1, "mean")]
    # Three float32 numbers a sum.
    assert [r.value for r in readings] == pytest.approx([100 / 3, 2 * 100 / 3], rel=4 * 2.0**-24)


def test_a_diagnostic_whose_site_is_absent_is_passed_over():
    def refuse(tapped: Mapping[str, Tensor], weight: Tensor) -> Mapping[str, float]:
        raise AssertionError(f"called with {tapped} and {weight}")

    readings = probe(Tapped(), BATCHES, [diagnostic(refuse, "nowhere"), diagnostic(mean_of_x, "here")])
    assert {reading.diagnostic for reading in readings} == {"d"}


def test_a_diagnostic_of_two_sites_reads_the_layers_that_have_both_and_sees_no_third():
    seen: list[set[str]] = []

    def observe(tapped: Mapping[str, Tensor], weight: Tensor) -> Mapping[str, float]:
        del weight
        seen.append(set(tapped))
        return {"n": 1.0}

    both = probe(Tapped(), BATCHES[:1], [diagnostic(observe, "here", "there")])
    probe(Tapped(), BATCHES[:1], [diagnostic(observe, "there")])
    assert [(r.layer, r.value) for r in both] == [(0, 1.0)]
    assert seen == [{"here/x", "there/y"}, {"there/y"}]


def test_a_group_that_one_batch_lacks_is_averaged_over_the_batches_that_have_it():
    def observe(tapped: Mapping[str, Tensor], weight: Tensor) -> Mapping[str, float]:
        long = tapped["here/x"].shape[1] > 2
        return {**mean_of_x(tapped, weight), **({"long only": 7.0} if long else {})}

    readings = {(r.layer, r.group): r.value for r in probe(Tapped(), BATCHES, [diagnostic(observe, "here")])}
    assert readings[0, "long only"] == 7.0


def test_the_divergence_of_averaged_routes_does_not_depend_on_how_positions_are_batched():
    bench = LawBench()
    model = bench.model({"routing": {"name": "role-decoupled", "blocks": 3}})
    bench.disturb(model, "query", std=1.0)
    whole = Consumed(bench.tokens, bench.targets, torch.ones_like(bench.tokens).float(), bench.document)
    by_rows = [whole.rows(0, 1), whole.rows(1, 2)]
    together, apart = (
        {(r.layer, r.group): r.value for r in probe(model, batches, CHILDS)} for batches in ([whole], by_rows)
    )
    assert {group for _, group in together} == {"per token, then averaged", "of averaged routes"}
    # Weights are float32; the divergence is a smooth function of their means, so only their rounding remains.
    assert apart == pytest.approx(together, rel=1e-4)
    assert any(together[layer, "of averaged routes"] < 0.9 * together[layer, group] for layer, group in together)


def test_probing_leaves_logits_and_parameters_as_they_are():
    bench = LawBench()
    model = bench.model({"routing": {"name": "role-decoupled", "blocks": 3}, "output_map": {"name": "xsa"}})
    bench.disturb(model, "")
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    with torch.no_grad():
        plain = bench.logits(model)
    during: list[Tensor] = []
    model.register_forward_hook(lambda *call: during.append(call[-1]))
    consumed = Consumed(bench.tokens, bench.targets, torch.ones_like(bench.tokens).float(), bench.document)
    readings = probe(model, [consumed], [*PARENTS, *CHILDS, *EXCLUSIVE])
    assert torch.equal(during[0], plain)
    assert all(torch.equal(parameter, before[name]) for name, parameter in model.named_parameters())
    names = {d.name for d in (*PARENTS, *CHILDS, *EXCLUSIVE)}
    assert {reading.diagnostic for reading in readings} == names


def test_a_full_projection_leaves_no_alignment_a_partial_one_some_and_a_standard_model_claims_nothing():
    bench = LawBench()
    consumed = Consumed(bench.tokens, bench.targets, torch.ones_like(bench.tokens).float(), bench.document * 0)
    left: dict[str, list[float]] = {}
    for name, strength in (("full", 1.0), ("half", 0.5), ("standard", 0.0)):
        model = bench.model({"output_map": {"name": "xsa", "strength": strength}})
        readings = probe(model, [consumed], EXCLUSIVE)
        left[name] = [r.value for r in readings if r.diagnostic == "cos_z_v"]
    # Mean |cos| of float32 remainders (6e-8 a rounding) against that of attention's own outputs.
    assert len(left["full"]) == len(left["half"]) == 4
    assert max(left["full"]) < 1e-5
    assert min(left["half"]) > 0.05
    assert left["standard"] == []


def test_a_standard_model_has_no_depth_routes_to_read(model: Prenorm):
    bench = LawBench()
    consumed = Consumed(bench.tokens, bench.targets, torch.ones_like(bench.tokens).float(), bench.document)
    assert probe(bench.model({}), [consumed], [*PARENTS, *CHILDS]) == []
    assert probe(model, [consumed], [*PARENTS, *CHILDS]) != []
