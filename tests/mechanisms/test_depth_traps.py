"""Known faults of depth routings, each built on purpose and caught by name.

A wrong variant replaces one piece of the right one; the laws are then measured on it. Where all laws of Attention
Residuals are measured, the set of those that break is exact, so each fault is told from the rest. Numbers such as G14
are those of the table of known faults in the documentation.
"""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from paribus.kernels.depth_read import Source, depth_read, depth_read_reference, publish
from paribus.kernels.norm import Norm
from paribus.mechanisms import attention_residuals, mlp_decoupled, resolve, role_decoupled
from paribus.mechanisms.attention_residuals import BlockResiduals
from paribus.mechanisms.contract import Geometry, Law, Reads, Seam, Site, Tap
from paribus.mechanisms.depth import reads
from paribus.mechanisms.depth.block_layout import BlockedConfig, BlockLayout
from paribus.mechanisms.depth.reads import DepthRead, Memory
from paribus.mechanisms.role_decoupled import UntyingResiduals
from paribus.model.backbone import Backbone, geometry_of
from paribus.model.lawbench import LawBench
from paribus.optim.config import OptimiserConfig
from paribus.optim.groups import groups, route
from paribus.roles import Init, Role, initialise
from paribus.seeds import unit_noise

PARITY = "zero queries: loss and every non-routing gradient equal PreNorm's (float64, eps -> 0)"
ZERO_START = "queries start at exactly zero and key gains at exactly one, and every parameter was written"
SUM = "sources sum to the PreNorm stream at every read"
ON_RECORD = "the sources on record are the sources that each read mixes"
ONE_SOURCE = "the read of one source returns it bit for bit, with a query and gain gradient of exactly zero"
ALL_LEARN = "every read of several sources, the output's too, trains its query and gain; one of one source none"
FLOAT32 = "depth sources are float32 whatever the sublayers write, and add up in it"
Read = Callable[..., tuple[tuple[Tensor, ...], Tensor]]


def broken(laws: Sequence[Law] = attention_residuals.LAWS) -> set[str]:
    """Claims that do not hold."""
    bench = LawBench()
    return {law.claim for law in laws if not law.measure(bench, False) <= law.bound}


def about(laws: Sequence[Law], *words: str) -> tuple[Law, ...]:
    """The laws whose claim contains one of the words."""
    return tuple(law for law in laws if any(word in law.claim for word in words))


def plain_read(
    change: Callable[[Tensor], Tensor] = lambda scores: scores,
    weigh: Callable[[Tensor], Tensor] = lambda scores: torch.softmax(scores, dim=-1),
) -> Read:
    """A depth read in plain operators, with a fault in its scores or in how it weighs."""

    def read(
        sources: Sequence[Source], queries: Tensor, gain: Tensor, norm: Norm | None = None
    ) -> tuple[tuple[Tensor, ...], Tensor]:
        values = torch.stack([source.value for source in sources])  # [source batch time width]
        norms = (values.square().mean(-1, keepdim=True) + 1e-30).rsqrt()
        scores = change(torch.einsum("kbtd,md->mbtk", values * norms, queries * gain))
        mixes = torch.einsum("mbtk,kbtd->mbtd", weigh(scores), values).unbind(0)
        return mixes if norm is None else tuple(map(norm, mixes)), scores.movedim(0, -2).detach()

    return read


def sources_of(values: Sequence[Tensor]) -> list[Source]:
    return [publish(v, 1e-30) for v in values]


def install(monkeypatch: pytest.MonkeyPatch, read: Read) -> None:
    monkeypatch.setattr(reads, "depth_read", read)


def test_the_right_routing_breaks_no_law_and_neither_does_a_right_read_in_plain_operators(
    monkeypatch: pytest.MonkeyPatch,
):
    """The proof that what is caught below is the fault and not the replacement."""
    assert broken() == set()
    install(monkeypatch, plain_read())
    assert broken() == set()


def test_a_bypass_of_the_read_of_one_source_that_normalises_it_is_caught(monkeypatch: pytest.MonkeyPatch):
    """G10: one source took a special path, on which the norm was applied twice or not at all."""
    general = DepthRead.forward

    def bypassing(
        self: DepthRead,
        sources: tuple[Source, ...],
        layer: int,
        site: Site,
        tap: Tap | None,
        norm: Norm | None = None,
    ) -> tuple[Tensor, ...]:
        if len(sources) == 1 and tap is None and norm is None:
            return (sources[0].value * sources[0].inverse_rms,)
        return general(self, sources, layer, site, tap, norm)

    monkeypatch.setattr(DepthRead, "forward", bypassing)
    assert broken() == {ONE_SOURCE}


def test_a_spurious_query_gradient_at_one_source_is_caught(monkeypatch: pytest.MonkeyPatch):
    """G11: the weight of one source came from reductions that cancel only approximately."""

    def nearly_softmax(scores: Tensor) -> Tensor:
        exponentials = torch.exp(scores)
        return exponentials / (exponentials.sum(-1, keepdim=True) + 1e-6)

    install(monkeypatch, plain_read(weigh=nearly_softmax))
    assert broken() == {ONE_SOURCE, ALL_LEARN}


def test_queries_with_random_initial_values_are_caught(monkeypatch: pytest.MonkeyPatch):
    """G14: a generic initialiser, or a module's default, drew the queries from N(0, 0.02)."""
    monkeypatch.setattr(reads, "ZEROS", Init(std=0.02))
    assert broken() == {ZERO_START, PARITY}
    for laws in (role_decoupled.LAWS, mlp_decoupled.LAWS):
        assert len(broken(about(laws, "start at exactly zero"))) == 1


def test_an_initialiser_that_runs_after_the_zeros_is_caught(monkeypatch: pytest.MonkeyPatch):
    """G14: the global pass over all parameters came last."""

    def then_everything_again(model: Backbone, *stream: str | int) -> None:
        initialise(model, *stream)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if name.endswith("query") and parameter.ndim == 1:
                    parameter.copy_(0.02 * torch.from_numpy(unit_noise(tuple(parameter.shape), *stream, name)))

    monkeypatch.setattr("paribus.model.build.initialise", then_everything_again)
    assert broken() == {ZERO_START, PARITY}


def test_a_query_that_nobody_wrote_is_caught(monkeypatch: pytest.MonkeyPatch):
    """G14: memory that happens to hold zeros is no initial value."""

    def forgetful(model: Backbone, *stream: str | int) -> None:
        unwritten = dict(model.named_parameters()).get("routing.output.query")
        initialise(model, *stream)
        if unwritten is not None:
            unwritten.data.fill_(torch.nan)

    monkeypatch.setattr("paribus.model.build.initialise", forgetful)
    assert broken(about(attention_residuals.LAWS, "every parameter was written")) == {ZERO_START}


def test_cumulative_states_as_sources_are_caught(monkeypatch: pytest.MonkeyPatch):
    """G15 and G17: each block's source was the stream at its end. The mean of those is no multiple of the stream."""

    def cumulative(self: BlockResiduals, memory: Memory, delta: Tensor, layer: int, site: Site) -> Memory:
        sublayer = 2 * layer + (site is Site.MLP)
        before = memory.running or memory.finished[-1]
        stream = publish(before.value + delta.to(before.value.dtype), self.eps)
        if self.layout.ends_block(sublayer):
            return Memory((*memory.finished, stream), None)
        return Memory(memory.finished, stream)

    monkeypatch.setattr(BlockResiduals, "write", cumulative)
    assert broken() == {SUM, PARITY, FLOAT32, ON_RECORD}


def test_a_record_with_the_right_number_of_wrong_names_is_caught(monkeypatch: pytest.MonkeyPatch):
    """Counts agree: newest first, and the running sum under the finished block's name."""
    source_lists = BlockLayout.source_lists

    def newest_first(self: BlockLayout) -> list[dict[str, Any]]:
        entries = source_lists(self)
        return [{**entry, "sources": [*reversed(entry["sources"][:-1]), entry["sources"][-1]]} for entry in entries]

    monkeypatch.setattr(BlockLayout, "source_lists", newest_first)
    assert broken() == {ON_RECORD}


def test_a_query_that_is_copied_again_at_every_announcement_is_caught(monkeypatch: pytest.MonkeyPatch):
    """It agrees with one that is copied once until an update has moved the two apart."""
    at_step = UntyingResiduals.at_step

    def copying(self: UntyingResiduals, step: int, steps: int) -> None:
        with torch.no_grad():
            self.get_parameter("untied").zero_()
        at_step(self, step, steps)

    monkeypatch.setattr(UntyingResiduals, "at_step", copying)
    about_untying = about(role_decoupled.LAWS, "untie_at")
    assert broken(about_untying) == {law.claim for law in about_untying}


def test_a_list_that_takes_both_the_stream_and_the_output_is_caught(monkeypatch: pytest.MonkeyPatch):
    """G29: x and f(x) were both appended, so a model of 3 layers had twice as many sources and counted x repeatedly."""
    write = BlockResiduals.write

    def both(self: BlockResiduals, memory: Memory, delta: Tensor, layer: int, site: Site) -> Memory:
        stream = publish(torch.stack([source.value for source in memory.sources]).sum(0), self.eps)
        written = write(self, memory, delta, layer, site)
        if not self.layout.ends_block(2 * layer + (site is Site.MLP)):
            return written
        return Memory((*written.finished[:-1], stream, written.finished[-1]), None)

    monkeypatch.setattr(BlockResiduals, "write", both)
    assert broken() == {SUM, PARITY, ON_RECORD, FLOAT32}


def test_a_final_sum_instead_of_the_learned_output_read_is_caught(monkeypatch: pytest.MonkeyPatch):
    """G16 and G24: at zero queries sum and mean differ by a factor that the final norm removes, so parity is blind to
    it; the output's query and gain, which nothing then trains, are not."""

    def summed(self: BlockResiduals, memory: Memory, tap: Tap | None) -> Tensor:
        del self, tap
        return torch.stack([source.value for source in memory.sources]).sum(0)

    monkeypatch.setattr(BlockResiduals, "close", summed)
    assert broken() == {ALL_LEARN, ON_RECORD}


def test_an_output_read_from_the_last_block_only_is_caught(monkeypatch: pytest.MonkeyPatch):
    """G24: the output read was lost where the model was cut into stages."""

    def last_only(self: BlockResiduals, memory: Memory, tap: Tap | None) -> Tensor:
        del self, tap
        return memory.sources[-1].value

    monkeypatch.setattr(BlockResiduals, "close", last_only)
    assert broken() == {ALL_LEARN, ON_RECORD, PARITY}


def test_an_undocumented_bias_on_the_newest_source_is_caught(monkeypatch: pytest.MonkeyPatch):
    """G27: 3.0 was added to the last score, a prior that no document stated."""

    def recent(scores: Tensor) -> Tensor:
        bias = torch.zeros_like(scores)
        bias[..., -1] = 3.0
        return scores + bias

    install(monkeypatch, plain_read(recent))
    assert broken() == {PARITY}


def test_changing_the_scores_in_place_after_they_were_saved_is_caught():
    """G27: the last score was changed in place on a tensor that the backward pass needs."""
    sources = [torch.ones(1, 2, 4, dtype=torch.float64) * k for k in (1, 2)]
    query = torch.ones(1, 4, dtype=torch.float64, requires_grad=True)
    mixes, scores = depth_read(sources_of(sources), query, torch.ones_like(query[0]))
    scores[..., -1] += 3.0
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        mixes[0].sum().backward()


def test_a_block_size_in_the_wrong_unit_is_caught(monkeypatch: pytest.MonkeyPatch):
    """G36: layers taken for sublayers give blocks of half the size, and nearly twice as many sources."""

    def wrong_unit(self: BlockedConfig, geometry: Geometry) -> BlockLayout:
        return BlockLayout.of_size(geometry.sublayers, int(self.block_layers or 0))

    def output_sources(layers: int, size: int) -> int:
        config = resolve(Seam.ROUTING, {"name": "block-attnres", "block_layers": size}, "here")
        model = LawBench(layers=layers).model({"routing": {"name": "block-attnres", "block_layers": size}})
        geometry = geometry_of(model.config, {seam: resolve(seam, None, "here") for seam in Seam})
        built: Any = config.build(geometry, -1)
        return len(built.source_lists()[-1]["sources"])

    right = {(layers, size): (layers - 1) // size + 2 for layers, size in ((6, 3), (5, 2), (4, 4), (3, 1))}
    assert {case: output_sources(*case) for case in right} == right
    monkeypatch.setattr(BlockedConfig, "layout", wrong_unit)
    assert all(output_sources(*case) > count for case, count in right.items())


@pytest.mark.parametrize("name", ["block-attnres", "role-decoupled", "mlp-decoupled"])
def test_a_query_is_never_orthogonalised_whatever_its_shape(name: str, bench: LawBench):
    """G18: "two or more axes go to Muon" takes a stack of queries [layer width] or a Linear(width, 1) for a matrix."""
    model = bench.model({"routing": {"name": name, "blocks": 3}})
    read = model.get_submodule("routing.attention.1")
    assert isinstance(read, DepthRead)
    read.declare("stacked_queries", (4, bench.config.width), Role.DEPTH_READ, Init())
    read.declare("row_query", (1, bench.config.width), Role.DEPTH_READ, Init())
    routed = route(model, OptimiserConfig())
    by_dimension = {name for name, parameter in model.named_parameters() if parameter.ndim >= 2}
    wrong = {name for name in by_dimension if name.startswith("routing.")}
    assert {name.rpartition(".")[2] for name in wrong} == {"stacked_queries", "row_query"}
    own = [group for name, group in routed.items() if name.startswith("routing.")]
    assert {(group.optimiser, group.weight_decay) for group in own} == {("AdamW", 0.0)}
    assert groups(OptimiserConfig())[Role.MATRIX].optimiser == "Muon"


@pytest.mark.parametrize(
    "rounded",
    [
        lambda scores: scores.bfloat16().to(scores.dtype),
        lambda scores: scores + (scores.bfloat16().to(scores.dtype) - scores).detach(),
    ],
    ids=["scores in bfloat16", "scores rounded on the way forward only"],
)
def test_a_bfloat16_score_path_is_caught(rounded: Callable[[Tensor], Tensor]):
    """G13 and G23: rounding the scores moves the weights by up to 2^-9 of a score, far outside the bound of float32."""
    sources = [torch.from_numpy(unit_noise((1, 3, 16), "traps", k)) for k in range(5)]
    queries = torch.from_numpy(unit_noise((2, 16), "traps", "queries"))
    gain = torch.ones(16)
    published = sources_of(sources)
    expected, _ = depth_read_reference(sources, queries, gain, 1e-30)
    largest = float(torch.stack(sources).abs().max())
    # Scores of 16 products, each below 4 here, then five weights and their mix.
    bound = 2 * (2 * 16 + 8) * 4 * 2.0**-24 * 5 * largest
    assert (torch.stack(depth_read(published, queries, gain)[0]) - expected).abs().max() <= bound
    assert (torch.stack(plain_read()(published, queries, gain)[0]) - expected).abs().max() <= bound
    assert (torch.stack(plain_read(rounded)(published, queries, gain)[0]) - expected).abs().max() > 4 * bound


def test_the_noise_that_a_bfloat16_score_path_leaves_in_the_query_gradient_is_caught():
    """G13: the score gradient is a difference of nearly equal terms, so rounding it leaves noise of its own size."""
    sources = [torch.from_numpy(unit_noise((1, 64, 16), "traps", k)) + 8.0 for k in range(5)]
    upstream = torch.from_numpy(unit_noise((1, 1, 64, 16), "traps", "upstream")) + 8.0

    def query_gradient(read: Read, dtype: torch.dtype) -> Tensor:
        query = torch.zeros(1, 16, dtype=dtype, requires_grad=True)
        values = [v.to(dtype) for v in sources]
        mixes, _ = read(sources_of(values), query, torch.ones(16, dtype=dtype))
        return torch.autograd.grad(torch.stack(mixes), query, upstream.to(dtype))[0].double()

    def in_bfloat16(sources: Sequence[Source], query: Tensor, gain: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
        halves = [Source(source.value.bfloat16(), source.inverse_rms) for source in sources]
        mixes, scores = plain_read()(halves, query.bfloat16(), gain.bfloat16())
        return tuple(mix.to(query.dtype) for mix in mixes), scores

    exact = query_gradient(depth_read, torch.float64)
    error = {
        name: float((query_gradient(read, torch.float32) - exact).norm() / exact.norm())
        for name, read in (("float32", depth_read), ("bfloat16", in_bfloat16))
    }
    # 5 x 64 x 16 products and their cancellation, each rounded at 2^-24.
    assert error["float32"] < 1e-3
    assert error["bfloat16"] > 100 * error["float32"]


def test_a_frozen_route_that_trains_after_all_is_caught(monkeypatch: pytest.MonkeyPatch):
    """A frozen route whose query an optimiser takes is uniform at step 0 and nowhere else."""
    right = role_decoupled.RoleDecoupledAttentionResiduals.attention_plan

    def thawed(self: role_decoupled.RoleDecoupledAttentionResiduals) -> reads.ReadPlan:
        plan = right(self)
        queries = tuple(reads.DepthQuery(q.name, q.feeds, own_gain=q.own_gain) for q in plan.queries)
        return reads.ReadPlan(queries, plan.inputs, plan.average)

    monkeypatch.setattr(role_decoupled.RoleDecoupledAttentionResiduals, "attention_plan", thawed)
    found = broken(about(role_decoupled.LAWS, "frozen_v:", "frozen_qk:", "frozen_v_from:"))
    assert {claim.partition(":")[0] for claim in found} == {"frozen_v", "frozen_qk", "frozen_v_from"}


def test_a_tied_arm_that_computes_its_two_mixes_is_caught(monkeypatch: pytest.MonkeyPatch):
    """Two equal mixes are the parent only up to rounding: the bitwise law wants the parent's own path."""
    plan = role_decoupled.RoleDecoupledAttentionResiduals.attention_plan

    def twice(self: role_decoupled.RoleDecoupledAttentionResiduals) -> reads.ReadPlan:
        found = plan(self)
        if not self.tied:
            return found
        return reads.ReadPlan((*found.queries, reads.DepthQuery("second_query")), (0, 0, 1))

    monkeypatch.setattr(role_decoupled.RoleDecoupledAttentionResiduals, "attention_plan", twice)
    assert len(broken(about(role_decoupled.LAWS, "tied is Block AttnRes"))) == 1


def test_a_second_mix_that_nothing_consumes_is_caught(monkeypatch: pytest.MonkeyPatch):
    """The value consuming the query-key mix is the parent in disguise: its query then never learns."""

    def everything_from_the_first(self: reads.ReadPlan, mixes: tuple[Tensor, ...]) -> Reads:
        del self
        return Reads.shared(mixes[0])

    monkeypatch.setattr(reads.ReadPlan, "assign", everything_from_the_first)
    assert len(broken(about(role_decoupled.LAWS, "trains its queries and gain"))) == 1


def test_the_parity_law_needs_a_scale_invariant_consumer(monkeypatch: pytest.MonkeyPatch):
    """G15: zero queries give a mean and not a sum; where nothing normalises what is read, step 0 is another model."""
    monkeypatch.setattr("paribus.model.prenorm.Norm.forward", lambda self, x: x * self.get_parameter("gain"))
    assert broken() == {PARITY}
