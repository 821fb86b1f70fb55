"""Depth reads: ours, the paper's listing, and those of other packages, each called as its own documentation has it.

None of these packages has the key gain, M queries and a list of sources at once, so each adapter says what it bridges:
a gain folded into the query (their product is all that enters), one call a query, sources stacked.
"""

from collections.abc import Sequence
from importlib import import_module

import torch
from problems import EPS, QUERIES, Peer, Problem, Solver
from torch import Tensor
from torch.nn import functional

from paribus.kernels import compiler
from paribus.kernels.depth_read import Source, depth_read, inverse_rms, publish
from paribus.seeds import unit_noise


def paribus(problem: Problem) -> Solver:
    sources, queries, gain = problem.sources, problem.inputs["queries"], problem.inputs["key gain"]
    return lambda: depth_read([publish(v, EPS) for v in sources], queries, gain)[0]


def paribus_with_statistics(problem: Problem) -> Solver:
    sources = [Source(v, inverse_rms(v, EPS)) for v in problem.sources]
    return lambda: depth_read(sources, problem.inputs["queries"], problem.inputs["key gain"])[0]


def paribus_compiled(problem: Problem) -> Solver:
    return torch.compile(paribus(problem), dynamic=False)


def listing(sources: Sequence[Tensor], queries: Tensor, gain: Tensor) -> list[Tensor]:
    """Softmax over sources of queries against normalised keys, in the tensors' own dtype."""
    values = torch.stack(list(sources))
    keys = functional.rms_norm(values, (values.shape[-1],), gain, EPS)
    weights = torch.softmax(torch.einsum("m d, k b t d -> m k b t", queries, keys), dim=1)
    return list(torch.einsum("m k b t, k b t d -> m b t d", weights, values))


def plain(problem: Problem) -> Solver:
    return lambda: listing(problem.sources, problem.inputs["queries"], problem.inputs["key gain"])


def plain_compiled(problem: Problem) -> Solver:
    compiled = torch.compile(listing, dynamic=False)
    return lambda: compiled(problem.sources, problem.inputs["queries"], problem.inputs["key gain"])


def attn_res(problem: Problem) -> Solver:
    read = import_module("attn_res").AttnResOperator(problem.width, eps=EPS)

    def solve() -> list[Tensor]:
        values, keyed = torch.stack(problem.sources), problem.inputs["queries"] * problem.inputs["key gain"]
        return [torch.func.functional_call(read, {"pseudo_query": query}, (values,)) for query in keyed]

    return solve


def x_transformers(problem: Problem) -> Solver:
    module = import_module("x_transformers.x_transformers")
    read = module.AttentionResidual(problem.width, num_views=QUERIES)
    with torch.no_grad():
        for name, parameter in read.named_parameters():
            if parameter.ndim == 2:
                noise = unit_noise(tuple(parameter.shape), "bench", "peers", "x-transformers", name)
                parameter.copy_(torch.from_numpy(noise) / parameter.shape[1] ** 0.5)
    read.to(problem.upstream[0])
    return lambda: list(read(problem.sources))


def fla(problem: Problem) -> Solver:
    read, gain = import_module("fla.ops.attnres").fused_attnres, problem.inputs["key gain"]
    return lambda: [read(query, problem.sources, gain, rms_eps=EPS) for query in problem.inputs["queries"]]


def liger(problem: Problem) -> Solver:
    read, gain = import_module("liger_kernel.transformers.functional").liger_attn_res, problem.inputs["key gain"]

    def solve() -> list[Tensor]:
        values = torch.stack(problem.sources)
        return [read(values, query, gain, EPS) for query in problem.inputs["queries"]]

    return solve


def fast_attnres(problem: Problem) -> Solver:
    read = import_module("attnres").attnres_multi
    return lambda: list(read(problem.sources, problem.inputs["queries"] * problem.inputs["key gain"], eps=EPS))


def flash_attn_res(problem: Problem) -> Solver:
    read = import_module("flash_attn_res").phase_1_batched_attention_triton_op

    def solve() -> list[Tensor]:
        keyed = problem.inputs["queries"] * problem.inputs["key gain"]
        return list(read(torch.stack(problem.sources), keyed, EPS)[0])

    return solve


F32, BF16 = (torch.float32,), (torch.bfloat16,)

PEERS = (
    Peer(
        "paribus",
        "publishes every source (its statistic; a copy in float32 where it is narrower), then one read of all "
        "queries. Computes in float32 and returns float32. In a model a source is published once and read many times",
        paribus,
    ),
    Peer("paribus, statistics at hand", "the read alone, as for every later read of a source", paribus_with_statistics,
         dtypes=F32),
    Peer("paribus, operators", "the same without compiled kernels (on a GPU there are none)", paribus, on_gpu=False,
         within=compiler.operators),
    Peer("paribus under torch.compile", "the operators that paribus hands to a compiler", paribus_compiled,
         compiles=True),
    Peer("plain, eager", "the paper's listing, keys and stack shared by the queries; in the tensors' own dtype", plain),
    Peer("plain under torch.compile", "the same, compiled", plain_compiled, compiles=True),
    Peer("attn-res", "no gain on keys (here folded into the query); one call a query. Its models end in a plain sum in "
         "place of a learned read, which is not timed here", attn_res, "attn-res", "attn_res"),
    Peer("x-transformers", "another read: its queries are computed from the latest source by a low-rank layer and "
         "normalised, scores are divided by sqrt(width), eps is the dtype's. The problem's queries and gain take no "
         "part and get no gradient", x_transformers, "x-transformers", "x_transformers"),
    Peer("fla-core", "one call a query, whose gradients autograd adds up", fla, "fla-core", "fla", on_gpu=True),
    Peer("liger-kernel", "sources stacked; one call a query; the gradients of query and gain are added up by atomics, "
         "so their last bits vary", liger, "liger-kernel", "liger_kernel", on_gpu=True),
    Peer("fast-attnres", "all queries in one call; no gain on keys (here folded into the query); bfloat16 alone, at "
         "most 129 sources, 16 queries and width 8192", fast_attnres, "fast-attnres", "attnres", on_gpu=True,
         dtypes=BF16),
    Peer("flash-attn-res", "its first phase, all queries in one call; sources stacked; no gain on keys (here folded "
         "into the query); bfloat16 results; the width must be a power of two", flash_attn_res, "flash-attn-res",
         "flash_attn_res", on_gpu=True, dtypes=BF16, power_of_two=True),
)  # fmt: skip
