"""Measurements that the laws of several depth routings share. Each compares models on a bench: a discrepancy.

Identities that hold up to the eps of a norm are shown in float64 with a vanishing eps: a norm's input of root mean
square r, read as the mean of K sources, changes by eps K^2 / r^2 relative to the sum.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from paribus.mechanisms.contract import Bench, Reads, Site, Tap, largest
from paribus.mechanisms.depth.reads import DepthRead

Arm = Mapping[str, Mapping[str, Any]]
FINITE_RANGE = "for bfloat16 sublayer outputs from 1e-38 to 1e18, whose float32 squares and their sums are finite"
FINITE_PERTURBATION = "no eps in the norm of the keys, so that the smallest square, which is zero, is divided by"
FINITE_WHY = (
    "a count; squares of 1e18 are within float32, those of 1e-38 vanish beside eps. Above 1e19 squares overflow: the "
    "norm then makes a key zero, so a read stays finite but is not the mix that its query asks for"
)
NO_EPS = 1e-30
"""an eps that no float64 mean square of the bench notices"""
GRADIENT_BOUND = 1e-12
GRADIENT_WHY = "relative float64 rounding of 1e-16, grown through some thousand operations in a row"


def routing(name: str, **fields: Any) -> Arm:
    """An arm with this depth routing and nothing else; three blocks where no unit is given."""
    units = {"blocks", "block_sublayers", "block_layers"}
    return {"routing": {"name": name, **({} if units & fields.keys() else {"blocks": 3}), **fields}}


def relative(a: Mapping[str, Tensor], b: Mapping[str, Tensor], names: Iterable[str]) -> float:
    """Largest |a - b| over the largest |b| of a tensor, over the named tensors."""
    return largest(float((a[n] - b[n]).abs().max() / (1e-12 + b[n].abs().max())) for n in names)


def disturb_trained(bench: Bench, model: Any, pattern: str) -> None:
    """Named noise on the mechanism's own parameters, but not on those that are never trained."""
    fixed = {name: p.clone() for name, p in model.named_parameters() if not p.requires_grad}
    bench.disturb(model, pattern)
    with torch.no_grad():
        for name, value in fixed.items():
            model.get_parameter(name).copy_(value)


def descend(bench: Bench, model: Any, rate: float = 0.3) -> dict[str, Tensor]:
    """One step of plain gradient descent on every trained parameter; the loss and gradients it used."""
    found = bench.loss_and_gradients(model)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                parameter.sub_(found[name], alpha=rate)
    return found


def zero_query_parity(bench: Bench, arms: Iterable[Arm], perturbed: bool) -> float:
    """Loss and every gradient that PreNorm has, of arms at their initial values, relative to PreNorm's."""
    plain = bench.loss_and_gradients(bench.model({}, double=True, norm_eps=NO_EPS))
    found = []
    for arm in arms:
        model = bench.model(arm, double=True, norm_eps=NO_EPS)
        if perturbed:
            bench.disturb(model, "query")
        found.append(relative(bench.loss_and_gradients(model), plain, plain))
    return min(found) if perturbed else largest(found)


def untouched_initial_values(bench: Bench, arms: Iterable[Arm], perturbed: bool) -> float:
    """Largest |query| and |key gain - 1| right after building; NaN where nothing wrote a parameter."""
    found = []
    for arm in arms:
        model = bench.model(arm)
        if perturbed:
            bench.disturb(model, "query", std=1e-6)
        own = dict(model.routing.named_parameters())
        assert any(name.endswith("query") for name in own)
        found += [float((p.detach() - float(name.endswith("key_gain"))).abs().max()) for name, p in own.items()]
    return largest(found)


def unlearning_reads(bench: Bench, model: Any) -> int:
    """Trained tensors without a gradient at reads of several sources, and with one at reads of a single source."""
    gradients = bench.loss_and_gradients(model)
    return sum(
        bool(gradients[f"routing.{place}.{name}"].any()) != (len(read.source_names) > 1)
        for place, read in model.routing.named_modules()
        if isinstance(read, DepthRead)
        for name in read.trained()
    )


def with_equal_queries(
    bench: Bench, arm: Arm, parent: Arm, perturbed: bool
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Loss and gradients of a child whose queries of a read all equal the parent's, and the parent's. Float64."""
    child, single = bench.model(arm, double=True), bench.model(parent, double=True)
    bench.disturb(single, "")
    with torch.no_grad():
        for name, parameter in child.named_parameters():
            of_parent = f"{name.rpartition('.')[0]}.query" if name.endswith("_query") else name
            parameter.copy_(single.get_parameter(of_parent))
    if perturbed:
        bench.disturb(child, "_query", std=1e-2)
    return bench.loss_and_gradients(child), bench.loss_and_gradients(single)


def equal_queries_are_the_parent(bench: Bench, arms: Iterable[Arm], parent: Arm, perturbed: bool) -> float:
    """Loss and every gradient but the queries'."""
    found = []
    for arm in arms:
        child, single = with_equal_queries(bench, arm, parent, perturbed)
        found.append(relative(child, single, (name for name in single if not name.endswith(".query"))))
    return min(found) if perturbed else largest(found)


def query_gradient_is_the_sum(bench: Bench, arms: Iterable[Arm], parent: Arm, perturbed: bool) -> float:
    """The parent's query gradient against the sum over the child's queries of the same read."""
    found = []
    for arm in arms:
        child, single = with_equal_queries(bench, arm, parent, perturbed)
        queries = [name for name in single if name.startswith("routing.") and name.endswith(".query")]
        of_read = {
            name: [child[n] for n in child if n.startswith(name.removesuffix("query")) and n.endswith("query")]
            for name in queries
        }
        sums = {name: torch.stack(gradients).sum(0) for name, gradients in of_read.items()}
        found.append(relative(sums, single, queries))
    return min(found) if perturbed else largest(found)


@contextmanager
def watched_reads(model: Any, see: Callable[[Any, int, Site, Reads], None]) -> Iterator[None]:
    """Call `see(memory, layer, site, reads)` at every read of a sublayer."""
    read = model.routing.read

    def watching(memory: Any, layer: int, site: Site, tap: Tap | None) -> Reads:
        reads = read(memory, layer, site, tap)
        see(memory, layer, site, reads)
        return reads

    model.routing.read = watching
    try:
        yield
    finally:
        del model.routing.read


def normalised_input_is_the_stream(bench: Bench, arm: Arm, role: str, updates: int = 3) -> float:
    """Largest |norm(what `role` reads) - norm(sum of the sources)| at every attention read, over some updates."""
    model = bench.model(arm, double=True, norm_eps=NO_EPS)
    disturb_trained(bench, model, "")
    found: list[float] = []

    def see(memory: Any, layer: int, site: Site, reads: Reads) -> None:
        if site is Site.ATTENTION:
            norm = model.layers[layer].attention_norm
            stream = torch.stack([source.value for source in memory.sources]).sum(0)
            found.append(float((norm(getattr(reads, role)) - norm(stream)).detach().abs().max()))

    for _ in range(updates):
        descend(bench, model)
        with watched_reads(model, see), torch.no_grad():
            bench.logits(model)
    return largest(found)


def written(model: Any, scales: tuple[float, float], dtype: torch.dtype) -> tuple[Any, list[Tensor]]:
    """The memory after sublayers wrote ones of alternating scale, and everything that was read on the way."""
    read = []
    ones = torch.ones(1, 2, model.routing.output.key_gain.numel(), dtype=dtype)
    memory = model.routing.open(ones)
    for layer in range(len(model.layers)):
        for site, scale in zip((Site.ATTENTION, Site.MLP), scales, strict=True):
            read += model.routing.read(memory, layer, site, None)
            memory = model.routing.write(memory, scale * ones, layer, site)
    return memory, [*read, model.routing.close(memory, None)]


def reads_that_are_not_finite(bench: Bench, arms: Iterable[Arm], perturbed: bool) -> float:
    """Number of tensors, read or gradients, that are not finite, over outputs as small and as large as claimed, in
    turns too; perturbed, of the arm that has the fewest."""
    by_arm = []
    for arm in arms:
        bad = 0
        for scales in ((1e-38, 1e-38), (1e18, 1e18), (1e-38, 1e18)):
            model = bench.model(arm)
            bench.disturb(model, "")
            if perturbed:
                model.routing.eps = 0.0
            _, read = written(model, scales, torch.bfloat16)
            torch.stack(read).mean().backward()
            gradients = [p.grad for p in model.routing.parameters() if p.grad is not None]
            bad += sum(not bool(t.isfinite().all()) for t in (*read, *gradients))
        by_arm.append(float(bad))
    return min(by_arm) if perturbed else largest(by_arm)
