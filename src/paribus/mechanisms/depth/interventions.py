"""Changes of a trained model's depth reads at evaluation. A mean weight says what a read attends to, the change in
likelihood says what the model needs: a source may carry weight and no information, and the reverse (2606.13168)."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import permutations

from torch import nn

from paribus.mechanisms.contract import Intervention
from paribus.mechanisms.depth.reads import DepthRead, ReadPlan

Context = Callable[[], AbstractContextManager[None]]


@contextmanager
def _changed(reads: Sequence[DepthRead], attribute: str, value: object) -> Iterator[None]:
    before = [getattr(read, attribute) for read in reads]
    for read in reads:
        setattr(read, attribute, value)
    try:
        yield
    finally:
        for read, kept in zip(reads, before, strict=True):
            setattr(read, attribute, kept)


def _without_each_source(model: nn.Module) -> Mapping[str, Context]:
    """One context for each finished source that several reads mix with others."""
    reads = [module for module in model.modules() if isinstance(module, DepthRead)]
    mixed = Counter(name for read in reads if len(read.source_names) > 1 for name in read.source_names)
    names = [name for name, count in mixed.items() if count > 1 and not name.startswith("running")]
    return {name: partial(_changed, reads, "without", name) for name in names}


def _with_each_others_query(model: nn.Module) -> Mapping[str, Context]:
    """One context for each ordered pair of queries whose mixes different projections consume."""
    reads_by_plan: dict[ReadPlan, list[DepthRead]] = {}
    for module in model.modules():
        if isinstance(module, DepthRead) and not module.plan.average and not module.tied:
            reads_by_plan.setdefault(module.plan, []).append(module)
    return {
        f"{taker.feeds} reads with the {giver.feeds} query": partial(
            _changed, reads, "exchanged", {taker.name: giver.name}
        )
        for plan, reads in reads_by_plan.items()
        for taker, giver in permutations(plan.queries, 2)
    }


SOURCE_ABLATED = Intervention(
    name="source_ablated",
    title="A depth source taken away",
    sentence="The weight of the embedding or of a finished block is removed from every read that has another source, "
    "and the other weights are renormalised. A rise is what the trained model loses without it; near zero, its weight "
    "carried nothing. The last block, which only the output reads, and running sums are never taken away.",
    variants=_without_each_source,
)
ROUTES_EXCHANGED = Intervention(
    name="routes_exchanged",
    title="A projection reads with another role's query",
    sentence="All reads of one role use another role's trained query. Near zero, the two routes do the same work, "
    "whatever their divergence; a rise says that the model uses their difference.",
    variants=_with_each_others_query,
)
