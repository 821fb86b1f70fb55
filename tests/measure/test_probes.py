import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from paribus.measure.probes import BUCKETS, Scoring, probe
from paribus.mechanisms import diagnostics_of, modules
from paribus.mechanisms.contract import Diagnostic, Tap
from paribus.model.backbone import Backbone
from paribus.model.lawbench import LawBench
from paribus.seeds import generator
from paribus.train.step import Consumed

EVERY = list({d.name: d for module in modules() for d in diagnostics_of(module)}.values())
"""every diagnostic that a mechanism of the house declares"""


class Tapped(nn.Module):
    """Shows its token ids as a tensor at two layers of the site "here", and at layer 0 of "there"."""

    def forward(self, tokens: Tensor, document: Tensor, tap: Tap | None = None) -> Tensor:
        del document
        if tap is not None:
            for layer in (0, 1):
                tap("here", layer, x=(layer + 1.0) * tokens)
            tap("there", 0, y=tokens)
        return tokens


def diagnostic(
    observe: Callable[[Mapping[str, Tensor], Tensor], Mapping[str, Tensor]],
    *sites: str,
    derive: Callable[[Mapping[str, float]], Mapping[str, float]] = dict,
    by_bucket: bool = False,
) -> Diagnostic:
    made = Diagnostic(name="d", title="", sentence="", unit="", sites=sites, observe=observe, by_bucket=by_bucket)
    return made if derive is dict else replace(made, derive=derive)


def x_itself(tapped: Mapping[str, Tensor], weight: Tensor) -> Mapping[str, Tensor]:
    del weight
    return {"x": tapped["here/x"]}


def x_and_square(tapped: Mapping[str, Tensor], weight: Tensor) -> Mapping[str, Tensor]:
    del weight
    return {"x": tapped["here/x"], "x^2": tapped["here/x"].double() ** 2}


def spread(means: Mapping[str, float]) -> Mapping[str, float]:
    """Standard deviation over positions: not linear in their means."""
    return {"sd": math.sqrt(means["x^2"] - means["x"] ** 2)}


def scoring(tokens: list[list[int]], weight: list[list[float]], *documents: int) -> Scoring:
    ids = torch.tensor(tokens)
    return Consumed(ids, ids, torch.tensor(weight), torch.zeros_like(ids)), np.array(documents)


# Positions that count, first positions left out: 20, 30 and 50. The second batch has one of the three.
BATCHES = [
    scoring([[900, 20, 30], [900, 800, 800]], [[1.0, 1.0, 1.0], [1.0, 0.0, 0.0]], 0, 2),
    scoring([[900, 50]], [[1.0, 1.0]], 1),
    scoring([[900]], [[1.0]], 2),
]


def drawn_batches(documents: int = 7, longest: int = 1100) -> list[Scoring]:
    """Windows of documents of very different lengths, two rows a batch, padded as the corpus pads them."""
    draw = generator("tests", "probes", "batches")
    lengths = sorted((int(length) for length in draw.integers(3, longest, documents)), reverse=True)
    lengths[0] = longest
    rows = [(d, draw.integers(1, 90, length)) for d, length in enumerate(lengths)] + [(2, draw.integers(1, 90, 5))]
    batches = []
    for begin in range(0, len(rows), 2):
        part = rows[begin : begin + 2]
        width = max(len(ids) for _, ids in part)
        tokens, weight = np.full((len(part), width), 77), np.zeros((len(part), width), np.float32)
        for row, (_, ids) in enumerate(part):
            tokens[row, : len(ids)], weight[row, : len(ids)] = ids, 1.0
        batches.append(scoring(tokens.tolist(), weight.tolist(), *(d for d, _ in part)))
    return batches


def without_document(batches: list[Scoring], left_out: int) -> list[Scoring]:
    kept = []
    for batch, document in batches:
        weight = batch.weight * torch.from_numpy(document != left_out)[:, None]
        kept.append((Consumed(batch.tokens, batch.targets, weight.float(), batch.document), document))
    return kept


def test_means_weigh_every_counted_position_alike_over_batches_of_unequal_size():
    readings = probe(Tapped(), BATCHES, [diagnostic(x_itself, "here")])
    assert [(r.diagnostic, r.layer, r.group, r.bucket) for r in readings] == [
        ("d", 0, "x", "all"),
        ("d", 1, "x", "all"),
    ]
    # Sums of small integers are exact in float64.
    assert [r.value for r in readings] == [100 / 3, 2 * 100 / 3]
    assert [r.documents for r in readings] == [2, 2]


def test_readings_of_every_bucket_are_those_of_a_loop_over_positions():
    batches = drawn_batches()
    found = {(r.group, r.bucket): r for r in probe(Tapped(), batches, [diagnostic(x_itself, "here", by_bucket=True)])}
    seen: dict[str, dict[int, list[int]]] = {}
    for batch, document in batches:
        for row, number in enumerate(document):
            for place, (token, weight) in enumerate(zip(batch.tokens[row], batch.weight[row], strict=True)):
                for bucket, (first, stop) in BUCKETS.items():
                    if weight and place >= 1 and place >= first and (stop is None or place < stop):
                        seen.setdefault(bucket, {}).setdefault(int(number), []).append(2 * int(token))
    assert list(seen) == list(BUCKETS) == ["all", "1-15", "16-63", "64-255", "256-1023", "1024+"]
    assert {bucket for _, bucket in found} == set(BUCKETS)
    for bucket, by_document in seen.items():
        values = [value for of in by_document.values() for value in of]
        assert found["x", bucket].value == sum(values) / len(values)
        assert found["x", bucket].documents == len(by_document)


@pytest.mark.parametrize("derive", [dict, spread])
def test_standard_errors_are_those_of_probing_again_without_each_document(
    derive: Callable[[Mapping[str, float]], Mapping[str, float]],
):
    batches = drawn_batches()
    read = diagnostic(x_and_square, "here", derive=derive, by_bucket=True)
    whole = probe(Tapped(), batches, [read])
    again = [
        {(r.layer, r.group, r.bucket): r.value for r in probe(Tapped(), without_document(batches, d), [read])}
        for d in range(7)
    ]
    checked = 0
    for reading in whole:
        key = (reading.layer, reading.group, reading.bucket)
        left = np.array([one[key] for one in again if key in one])
        n = reading.documents
        if n < 2:
            assert math.isnan(reading.standard_error)
            continue
        # A document without a position in the bucket changes nothing and is not among the n.
        left = np.array([value for d, value in enumerate(left) if _has(batches, d, reading.bucket)])
        assert len(left) == n
        expected = math.sqrt((n - 1) / n * float(((left - left.mean()) ** 2).sum()))
        assert reading.standard_error == pytest.approx(expected, rel=1e-9)
        checked += 1
    assert checked >= 10
    assert {r.group for r in whole} == ({"x", "x^2"} if derive is dict else {"sd"})


def _has(batches: list[Scoring], document: int, bucket: str) -> bool:
    first, stop = BUCKETS[bucket]
    return any(bool(b.weight[row, first:stop].any()) for b, d in batches for row in np.flatnonzero(d == document))


def test_a_value_where_no_position_counts_is_never_read():
    def poisoned(tapped: Mapping[str, Tensor], weight: Tensor) -> Mapping[str, Tensor]:
        return {"x": torch.where(weight > 0, tapped["here/x"], math.nan)}

    readings = probe(Tapped(), BATCHES, [diagnostic(poisoned, "here")])
    assert [r.value for r in readings] == [100 / 3, 2 * 100 / 3]


def test_a_value_that_is_not_a_number_where_a_position_counts_is_shown():
    def broken(tapped: Mapping[str, Tensor], weight: Tensor) -> Mapping[str, Tensor]:
        del weight
        return {"x": tapped["here/x"].where(tapped["here/x"] != 50, math.nan)}

    readings = probe(Tapped(), BATCHES, [diagnostic(broken, "here")])
    assert math.isnan(readings[0].value)


def test_one_document_has_no_standard_error():
    (reading, _) = probe(Tapped(), BATCHES[1:2], [diagnostic(x_itself, "here")])
    assert reading.documents == 1
    assert math.isnan(reading.standard_error)


def test_the_first_position_of_a_row_counts_for_no_diagnostic():
    seen: list[Tensor] = []

    def observe(tapped: Mapping[str, Tensor], weight: Tensor) -> Mapping[str, Tensor]:
        seen.append(weight)
        return x_itself(tapped, weight)

    probe(Tapped(), BATCHES, [diagnostic(observe, "here")])
    assert seen[0].tolist() == [[0.0, 1.0, 1.0], [0.0, 0.0, 0.0]]
    assert BATCHES[0][0].weight[0, 0] == 1.0, "the batch itself was changed"


def test_without_diagnostics_the_model_is_not_run():
    class Unrun(nn.Module):
        def forward(self) -> None:
            raise AssertionError("was run")

    assert probe(Unrun(), BATCHES, []) == []


def test_a_diagnostic_whose_site_is_absent_is_passed_over():
    def refuse(tapped: Mapping[str, Tensor], weight: Tensor) -> Mapping[str, Tensor]:
        raise AssertionError(f"called with {tapped} and {weight}")

    readings = probe(Tapped(), BATCHES, [diagnostic(refuse, "nowhere"), diagnostic(x_itself, "here")])
    assert {reading.diagnostic for reading in readings} == {"d"}


def test_a_diagnostic_of_two_sites_reads_the_layers_that_have_both_and_sees_no_third():
    seen: list[set[str]] = []

    def observe(tapped: Mapping[str, Tensor], weight: Tensor) -> Mapping[str, Tensor]:
        seen.append(set(tapped))
        return {"n": torch.ones_like(weight)}

    both = probe(Tapped(), BATCHES[:1], [diagnostic(observe, "here", "there")])
    probe(Tapped(), BATCHES[:1], [diagnostic(observe, "there")])
    assert [(r.layer, r.value) for r in both] == [(0, 1.0)]
    assert seen == [{"here/x", "there/y"}, {"there/y"}]


def test_a_group_that_one_batch_lacks_is_averaged_over_the_batches_that_have_it():
    def observe(tapped: Mapping[str, Tensor], weight: Tensor) -> Mapping[str, Tensor]:
        long = tapped["here/x"].shape[1] > 2
        return {**x_itself(tapped, weight), **({"long only": 7.0 * torch.ones_like(weight)} if long else {})}

    readings = {(r.layer, r.group): r for r in probe(Tapped(), BATCHES, [diagnostic(observe, "here")])}
    assert (readings[0, "long only"].value, readings[0, "long only"].documents) == (7.0, 1)
    assert readings[0, "x"].documents == 2


def test_what_is_derived_has_no_standard_error_where_a_part_of_it_rests_on_one_document():
    def observe(tapped: Mapping[str, Tensor], weight: Tensor) -> Mapping[str, Tensor]:
        long = tapped["here/x"].shape[1] > 2
        return {**x_itself(tapped, weight), **({"long only": 7.0 * torch.ones_like(weight)} if long else {})}

    def total(means: Mapping[str, float]) -> Mapping[str, float]:
        assert all(map(math.isfinite, means.values())), "derived from a mean of nothing"
        return {"total": means["x"] + means["long only"]}

    (reading, _) = probe(Tapped(), BATCHES, [diagnostic(observe, "here", derive=total)])
    assert reading.value == 100 / 3 + 7
    assert math.isnan(reading.standard_error)


def on_bench(bench: LawBench, *, one_document: bool = False) -> Scoring:
    weight = torch.ones_like(bench.tokens).float()
    document = bench.document * (not one_document)
    return Consumed(bench.tokens, bench.targets, weight, document), np.arange(len(bench.tokens))


def test_the_divergence_of_averaged_routes_does_not_depend_on_how_positions_are_batched():
    bench = LawBench()
    model = bench.model({"routing": {"name": "role-decoupled", "blocks": 3}})
    bench.disturb(model, "query", std=1.0)
    whole, rows = on_bench(bench)
    by_rows = [(whole.rows(0, 1), rows[:1]), (whole.rows(1, 2), rows[1:])]
    together, apart = (
        {(r.diagnostic, r.layer, r.group): r.value for r in probe(model, batches, EVERY)}
        for batches in ([(whole, rows)], by_rows)
    )
    assert together
    # Weights are float32; the divergence is a smooth function of their means, so only their rounding remains.
    assert apart == pytest.approx(together, rel=1e-4)


def test_probing_leaves_logits_and_parameters_as_they_are():
    bench = LawBench()
    model = bench.model({"routing": {"name": "role-decoupled", "blocks": 3}, "output_map": {"name": "xsa"}})
    bench.disturb(model, "")
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    with torch.no_grad():
        plain = bench.logits(model)
    during: list[Tensor] = []
    model.register_forward_hook(lambda *call: during.append(call[-1]))
    readings = probe(model, [on_bench(bench)], EVERY)
    assert torch.equal(during[0], plain)
    assert all(torch.equal(parameter, before[name]) for name, parameter in model.named_parameters())
    # This model reads depth for two roles at attention and for one at the MLP.
    assert {d.name for d in EVERY} - {reading.diagnostic for reading in readings} == {"js_roles_mlp"}


def test_a_full_projection_leaves_no_alignment_a_partial_one_some_and_a_standard_model_claims_nothing():
    bench = LawBench()
    left: dict[str, list[float]] = {}
    for name, strength in (("full", 1.0), ("half", 0.5), ("standard", 0.0)):
        model = bench.model({"output_map": {"name": "xsa", "strength": strength}})
        readings = probe(model, [on_bench(bench, one_document=True)], EVERY)
        left[name] = [
            r.value for r in readings if (r.diagnostic, r.bucket, r.group) == ("cos_z_v", "all", "mean over heads")
        ]
    # Mean |cos| of float32 remainders (6e-8 a rounding) against that of attention's own outputs.
    assert len(left["full"]) == len(left["half"]) == 4
    assert max(left["full"]) < 1e-5
    assert min(left["half"]) > 0.05
    assert left["standard"] == []


def test_a_standard_model_has_no_depth_routes_to_read(model: Backbone):
    bench = LawBench()
    depth = [diagnostic for diagnostic in EVERY if any("depth read" in site for site in diagnostic.sites)]
    assert depth
    assert probe(bench.model({}), [on_bench(bench)], depth) == []
    assert probe(model, [on_bench(bench)], depth) != []
