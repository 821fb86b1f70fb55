"""The laws of Full and Block Attention Residuals (2603.15031)."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from paribus.kernels.depth_read import Source, inverse_rms
from paribus.mechanisms.contract import PRENORM, Bench, Law, Reads, Site, Tap, largest
from paribus.mechanisms.depth.laws import (
    FINITE_PERTURBATION,
    FINITE_RANGE,
    FINITE_WHY,
    GRADIENT_BOUND,
    GRADIENT_WHY,
    reads_that_are_not_finite,
    routing,
    unlearning_reads,
    untouched_initial_values,
    watched_reads,
    written,
    zero_query_parity,
)
from paribus.mechanisms.depth.reads import DepthRead, Memory

NAME = "block-attnres"
LAYOUTS = tuple(routing(NAME, **unit) for unit in ({}, {"blocks": "full"}, {"block_sublayers": 3}, {"block_layers": 2}))
"""Blocks with a remainder in the last, Full, a shorter last block, and whole layers."""


def _sources_sum_to_stream(bench: Bench, perturbed: bool) -> float:
    found: list[float] = []
    for arm in LAYOUTS:
        model = bench.model(arm, double=True)
        bench.disturb(model, "query")
        residuals = model.routing
        total: list[Tensor] = []
        opened, write = residuals.open, residuals.write

        def watching_open(x0: Tensor, total: list[Tensor] = total, opened: Any = opened) -> Memory:
            total[:] = [x0]
            return opened(x0)

        def watching_write(
            memory: Memory, delta: Tensor, layer: int, site: Site, total: list[Tensor] = total, write: Any = write
        ) -> Memory:
            total[0] = total[0] + delta
            return write(memory, delta * (1.001 if perturbed else 1.0), layer, site)

        def see(memory: Memory, layer: int, site: Site, reads: Reads, total: list[Tensor] = total) -> None:
            del layer, site, reads
            stream = torch.stack([source.value for source in memory.sources]).sum(0)
            found.append(float((stream - total[0]).abs().max() / total[0].abs().max()))

        residuals.open, residuals.write = watching_open, watching_write
        with watched_reads(model, see), torch.no_grad():
            bench.logits(model)
    return largest(found)


def _newest_block(sources: Sequence[str]) -> int:
    """The number in the name of the newest source: the block of the sublayer that wrote last; 0 where it has none."""
    number = sources[-1].rpartition(" ")[2]
    return int(number) if number.isdigit() else 0


def _recorded_sources(bench: Bench, perturbed: bool) -> float:
    """Largest difference of a source from what its name on record says, over all reads; infinite where a read has more
    sources than names, or the record more reads."""
    by_layout = []
    for arm in LAYOUTS:
        model, found = bench.model(arm, double=True), []
        bench.disturb(model, "query")
        residuals = model.routing
        on_record = [entry["sources"] for entry in residuals.source_lists()]
        named: dict[str, Tensor] = {}
        reads = iter(on_record)
        opened, write = residuals.open, residuals.write

        def watching_open(x0: Tensor, opened: Any = opened, named: dict[str, Tensor] = named) -> Memory:
            named["embedding"] = x0
            return opened(x0)

        def watching_write(
            memory: Memory,
            delta: Tensor,
            layer: int,
            site: Site,
            write: Any = write,
            named: dict[str, Tensor] = named,
            on_record: list[list[str]] = on_record,
        ) -> Memory:
            block = _newest_block(on_record[2 * layer + (site is Site.MLP) + 1])
            so_far = named.get(f"block {block}")
            total = delta if so_far is None else so_far + delta
            named[f"block {block}"] = named[f"running block {block}"] = total
            return write(memory, delta, layer, site)

        def see(
            module: nn.Module,
            arguments: tuple[Any, ...],
            reads: Iterator[list[str]] = reads,
            named: dict[str, Tensor] = named,
            found: list[float] = found,
        ) -> None:
            del module
            sources, names = arguments[0], next(reads, [])
            found.extend(
                float((source.value - named[name]).abs().max()) if name in named else torch.inf
                for source, name in zip(sources, reversed(names) if perturbed else names, strict=False)
            )
            found.append(0.0 if len(sources) == len(names) else torch.inf)

        residuals.open, residuals.write = watching_open, watching_write
        for module in residuals.modules():
            if isinstance(module, DepthRead):
                module.register_forward_pre_hook(see)
        with torch.no_grad():
            bench.logits(model)
        by_layout.append(largest([*found, *(torch.inf for _ in reads)]))
    return min(by_layout) if perturbed else largest(by_layout)


def _full_is_as_many_blocks_as_sublayers(bench: Bench, perturbed: bool) -> float:
    full = bench.model(routing(NAME, blocks="full"))
    blocks = 2 * len(full.layers) - perturbed
    models = (full, bench.model(routing(NAME, blocks=blocks)))
    for model in models:
        bench.disturb(model, "query")
    a, b = (bench.loss_and_gradients(model) for model in models)
    return largest(float((a[name] - b[name]).abs().max()) for name in b)


def _one_source_is_returned(bench: Bench, perturbed: bool) -> float:
    model = bench.model(routing(NAME))
    bench.disturb(model, "")
    # Perturbed: the read after it, which has a second source.
    where = Site.MLP if perturbed else Site.ATTENTION
    found: list[float] = []

    def see(memory: Memory, layer: int, site: Site, reads: Reads) -> None:
        if (layer, site) == (0, where):
            found.append(float((reads.only - memory.sources[0].value).detach().abs().max()))

    with watched_reads(model, see):
        gradients = bench.loss_and_gradients(model)
    of_queries = [gradients[f"routing.{where}.0.{name}"] for name in ("query", "key_gain")]
    return largest((*found, *(float(gradient.abs().max()) for gradient in of_queries)))


def _sum_of_sources(memory: Memory, tap: Tap | None) -> Tensor:
    del tap
    return torch.stack([source.value for source in memory.sources]).sum(0)


def _unlearning_reads(bench: Bench, perturbed: bool) -> float:
    """Number of trained tensors whose gradient is zero where it should not be, or the reverse."""
    wrong = 0
    for arm in LAYOUTS:
        model = bench.model(arm)
        bench.disturb(model, "")
        if perturbed:
            model.routing.close = _sum_of_sources
        wrong += unlearning_reads(bench, model)
    return float(wrong)


def _sources_are_float32(bench: Bench, perturbed: bool) -> float:
    model = bench.model(routing(NAME))
    if perturbed:
        model.routing.open = lambda x0: Memory((Source(x0, inverse_rms(x0, 1e-6)),), None)
    memory, _ = written(model, (1.0, 2.0**-9), torch.bfloat16)
    half = sum(source.value.dtype != torch.float32 for source in memory.sources)
    total = torch.stack([source.value for source in memory.sources]).sum(0)
    return half + float((total - (1 + len(model.layers) * (1 + 2.0**-9))).abs().max())


ATTENTION_RESIDUALS_LAWS = (
    Law(
        claim="zero queries: loss and every non-routing gradient equal PreNorm's (float64, eps -> 0)",
        measure=lambda bench, perturbed: zero_query_parity(bench, LAYOUTS, perturbed),
        perturbation="noise of 0.1 on the queries",
        bound=GRADIENT_BOUND,
        why=GRADIENT_WHY,
        backbones=PRENORM,
    ),
    Law(
        claim="queries start at exactly zero and key gains at exactly one, and every parameter was written",
        measure=lambda bench, perturbed: untouched_initial_values(bench, LAYOUTS, perturbed),
        perturbation="queries drawn with a standard deviation of 1e-6",
        bound=0.0,
        why="a constant is written, and no later initialiser touches it",
    ),
    Law(
        claim="sources sum to the PreNorm stream at every read",
        measure=_sources_sum_to_stream,
        perturbation="each write scaled by 1.001",
        bound=1e-14,
        why="a float64 sum of at most nine terms in another order",
    ),
    Law(
        claim="the sources on record are the sources that each read mixes",
        measure=_recorded_sources,
        perturbation="the names in reversed order",
        bound=0.0,
        why="the same sums of the same sublayer outputs, in the same order",
    ),
    Law(
        claim="Full Attention Residuals are as many blocks as there are sublayers, bit for bit",
        measure=_full_is_as_many_blocks_as_sublayers,
        perturbation="one block fewer",
        bound=0.0,
        why="they run one code path over the same sources",
    ),
    Law(
        claim="the read of one source returns it bit for bit, with a query and gain gradient of exactly zero",
        measure=_one_source_is_returned,
        perturbation="the next read, which has two sources",
        bound=0.0,
        why="a softmax over one score is exactly 1 and its derivative exactly 0, on the path of every other read",
    ),
    Law(
        claim="every read of several sources, the output's too, trains its query and gain; one of one source none",
        measure=_unlearning_reads,
        perturbation="the output is the sum of its sources",
        bound=0.0,
        why="a count",
    ),
    Law(
        claim="depth sources are float32 whatever the sublayers write, and add up in it",
        measure=_sources_are_float32,
        perturbation="the embedding keeps bfloat16, and so do the sums",
        bound=0.0,
        why="ones and powers of two, which float32 adds exactly",
    ),
    Law(
        claim=f"reads and their gradients are finite {FINITE_RANGE}",
        measure=lambda bench, perturbed: reads_that_are_not_finite(bench, LAYOUTS, perturbed),
        perturbation=FINITE_PERTURBATION,
        bound=0.0,
        why=FINITE_WHY,
    ),
)
