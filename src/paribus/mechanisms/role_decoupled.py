"""Role-Decoupled Attention Residuals, RD-AttnRes (Wang, arXiv 2608.01075): the value reads depth by its own query.

    h_QK = read(w_QK; sources)     h_V = read(w_V; the same sources)     W_q, W_k consume h_QK and W_v consumes h_V

What stays: the parent's sources, blocks, norms, MLP reads, output read and write-back (Block Attention Residuals).
What it adds: one vector of the stream's width per layer. What it recovers: equal queries are the parent exactly, and
the parent's query gradient is the sum of the two. Queries start at zero and share the read's key gain; the first
attention read has one source, so its queries are dead by construction.
Free choices the paper leaves open: optimiser and learning rate of the queries, number of blocks, whose gains.

The paper's controls are `tied`, `average` and `frozen_v`. Ours: other `routes` (is it the value that matters, or any
second read?), `frozen_qk` (with `frozen_v` the 2x2 of {query-key, value} x {routed, serial}; a uniform mix is the
serial stream up to the norm, and where both are frozen the MLP and output reads still route), `frozen_v_from` (a fixed
route that another arm learned) and `untie_at` (is the early or the late part of the run where the second route pays?).
"""

import math
from collections.abc import Mapping
from itertools import combinations
from typing import Annotated, Any, Literal

import torch
from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError
from torch import Tensor, nn

from paribus.errors import ExperimentFileError
from paribus.mechanisms.attention_residuals import BlockAttentionResiduals, BlockResiduals
from paribus.mechanisms.contract import Equivalence, Geometry, Site, Tensors
from paribus.mechanisms.depth.block_layout import BlockLayout
from paribus.mechanisms.depth.decoupled_laws import ROLE_DECOUPLED_LAWS
from paribus.mechanisms.depth.diagnostics import js_of_roles
from paribus.mechanisms.depth.interventions import ROUTES_EXCHANGED
from paribus.mechanisms.depth.reads import DepthQuery, DepthRead, Memory, ReadPlan, depth_read_flops
from paribus.roles import ZEROS, Role
from paribus.shapes import Stream

PROJECTIONS = {"q": "query", "k": "key", "v": "value"}
TOGETHER = ({"frozen_v", "frozen_qk"}, {"frozen_v_from", "frozen_qk"})
"""the controls that may be combined"""


def _fraction(value: Any) -> Any:
    """One sentence for every value that is none, with both ends."""
    if value is None or (isinstance(value, float) and 0.0 < value < 1.0):
        return value
    raise PydanticCustomError("fraction", "a number greater than 0 and less than 1")


def queries_of(routes: str) -> tuple[tuple[DepthQuery, ...], tuple[int, int, int]]:
    """The pseudo-queries of routes such as "qk|v", that of the query projection first under the parent's name, and
    which of them q, k and v read with. The others are called after what they feed: `value_query`, `key_value_query`."""
    groups = sorted(routes.split("|"), key=lambda group: "q" not in group)
    words = [[PROJECTIONS[projection] for projection in group] for group in groups]
    names = ["query", *("_".join([*of_group, "query"]) for of_group in words[1:])]
    queries = tuple(DepthQuery(name, "-".join(of_group)) for name, of_group in zip(names, words, strict=True))
    q, k, v = (next(i for i, group in enumerate(groups) if projection in group) for projection in "qkv")
    return queries, (q, k, v)


def untie_step(fraction: float, steps: int) -> int:
    """The first update with routes of their own: ceil(fraction * steps), at most the last update."""
    # 0.07 * 100 is 7.000000000000001.
    return min(math.ceil(round(fraction * steps, 9)), steps - 1)


class UntyingResiduals(BlockResiduals):
    """Tied until a fraction of the run. `untied` is 1 from then on, so that a saved model says how it reads."""

    def __init__(
        self, geometry: Geometry, layout: BlockLayout, attention: ReadPlan, mlp: ReadPlan, fraction: float
    ) -> None:
        super().__init__(geometry, layout, attention, mlp)
        self.fraction, self.announced = fraction, False
        self.declare("untied", (), Role.FIXED, ZEROS)
        self._tie(True)

    def at_step(self, step: int, steps: int) -> None:
        """Untie if it is time: the other queries then start where the first one is."""
        untied, flag = step >= untie_step(self.fraction, steps), self.get_parameter("untied")
        with torch.no_grad():
            if untied and not float(flag):
                for read in self.attention:
                    assert isinstance(read, DepthRead)
                    for query in read.plan.queries[1:]:
                        read.get_parameter(query.name).copy_(read.get_parameter("query"))
            flag.fill_(float(untied))
        self.announced = True
        self._tie(not untied)

    def open(self, x0: Stream) -> Memory:
        if not self.announced:  # a model that was loaded, not trained, here
            self._tie(not float(self.get_parameter("untied")))
        return super().open(x0)

    def _tie(self, tied: bool) -> None:
        for read in self.attention:
            assert isinstance(read, DepthRead)
            read.tied = tied


class RoleDecoupledAttentionResiduals(BlockAttentionResiduals):
    """Let the value projection read a depth mix of its own."""

    name = "role-decoupled"

    routes: Literal["qk|v", "q|kv", "k|qv", "q|k|v"] = "qk|v"
    """which of the query, key and value projections share a depth query; the bar separates queries"""
    tied: bool = False
    """True: one query for all roles, which is the parent by the parent's own code path (a control)"""
    average: bool = False
    """True: the mean of the mixes of all routes feeds query, key and value alike (the paper's control: more reads, one
    input). Queries that start equal get equal gradients and never part: under AdamW this is the parent up to rounding,
    and cannot show whether a second read helps"""
    frozen_v: bool = False
    """True: the value's query stays zero, the uniform mix, which is the serial stream up to the norm; routes "qk|v" """
    frozen_qk: bool = False
    """True: the query-key query stays zero and only the value is routed; with frozen_v neither is; routes "qk|v" """
    frozen_v_from: Annotated[str, Field(min_length=1)] | None = None
    """name of an arm of this study: the value keeps that arm's learned attention route, query and key gain; "qk|v" """
    untie_at: Annotated[float | None, BeforeValidator(_fraction)] = None
    """fraction of the run, above 0 and below 1, until which all roles share the first query"""

    @model_validator(mode="after")
    def _controls_agree(self) -> "RoleDecoupledAttentionResiduals":
        given = [
            name
            for name in ("tied", "average", "frozen_v", "frozen_qk", "frozen_v_from", "untie_at")
            if self._has(name)
        ]
        for first, second in combinations(given, 2):
            if {first, second} not in TOGETHER:
                raise ValueError(
                    f"'{first}' contradicts '{second}'; valid: one of tied, average, frozen_v, frozen_qk, "
                    "frozen_v_from and untie_at, or frozen_qk with frozen_v or with frozen_v_from"
                )
        for name in given:
            if self.routes != "qk|v" and name not in ("average", "untie_at"):
                raise ValueError(
                    f"'{name}' contradicts routes = '{self.routes}'; "
                    "valid with other routes than 'qk|v': average, untie_at"
                )
        return self

    def _has(self, control: str) -> bool:
        return getattr(self, control) not in (False, None)

    def attention_plan(self) -> ReadPlan:
        if self.tied:
            return super().attention_plan()
        queries, inputs = queries_of(self.routes)
        if self.frozen_v or self.frozen_qk or self.frozen_v_from is not None:
            copied = self.frozen_v_from is not None
            [first, value] = queries
            queries = (
                DepthQuery(first.name, first.feeds, fixed=self.frozen_qk),
                DepthQuery(value.name, value.feeds, fixed=self.frozen_v or copied, own_gain=copied),
            )
        return ReadPlan(queries, inputs, average=self.average)

    def build(self, geometry: Geometry, layer: int) -> nn.Module:
        if self.untie_at is None:
            return super().build(geometry, layer)
        plans = self.attention_plan(), self.mlp_plan()
        return UntyingResiduals(geometry, self.layout(geometry), *plans, fraction=self.untie_at)

    def flops_per_token(self, geometry: Geometry) -> float:
        untied = super().flops_per_token(geometry)
        if self.untie_at is None:
            return untied
        tied = depth_read_flops(geometry, self.layout(geometry), ReadPlan(), self.mlp_plan())
        return self.untie_at * tied + (1 - self.untie_at) * untied  # the mean over the run

    def further_parameters(self) -> tuple[Tensors, ...]:
        return () if self.untie_at is None else (Tensors(Role.FIXED, ()),)  # whether the routes are untied

    def donor(self) -> str | None:
        return self.frozen_v_from

    def adopt(self, module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
        assert isinstance(module, BlockResiduals)
        with torch.no_grad():
            for layer, read in enumerate(module.attention):
                assert isinstance(read, DepthRead)
                query, gain = donated_route(tensors, layer, str(self.frozen_v_from))
                read.get_parameter("value_query").copy_(query)
                read.get_parameter("value_key_gain").copy_(gain)

    def equivalences(self) -> tuple[Equivalence, ...]:
        blocks = self.block_fields()
        return (
            Equivalence(
                claim="tied trains like Block Attention Residuals",
                arm={"routing": {"name": self.name, **blocks, "tied": True}},
                twin={"routing": {"name": BlockAttentionResiduals.name, **blocks}},
                perturbed={"routing": {"name": self.name, **blocks}},
                perturbation="a query of its own for the value",
                why="a tied arm runs the parent's code path on the parent's parameters",
            ),
        )


def donated_route(tensors: Mapping[str, Tensor], layer: int, donor: str) -> tuple[Tensor, Tensor]:
    """(query, key gain) with which the donor's value projection reads: the only route where it has one."""
    for query in ("value_query", "key_value_query", "query"):
        for gain in (query.replace("query", "key_gain"), "key_gain"):
            found = (tensors.get(f"attention.{layer}.{query}"), tensors.get(f"attention.{layer}.{gain}"))
            if found[0] is not None and found[1] is not None:
                return found[0], found[1]
    raise ExperimentFileError(
        f"frozen_v_from = '{donor}': that arm has no attention route at layer {layer}",
        expected=f"a trained depth query and its key gain, attention.{layer}.query and attention.{layer}.key_gain",
        received=", ".join(sorted(tensors)[:4]) or "a routing without parameters",
        remedy="name an arm whose routing reads depth at every attention",
    )


DIAGNOSTICS = (js_of_roles(Site.ATTENTION),)
INTERVENTIONS = (ROUTES_EXCHANGED,)
LAWS = ROLE_DECOUPLED_LAWS
