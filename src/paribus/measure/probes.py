"""Diagnostics: run a trained model on held-out documents with a tap on, and average what it shows by layer."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from paribus.mechanisms.contract import Diagnostic
from paribus.train.step import Consumed


@dataclass(frozen=True)
class Reading:
    """The mean of one diagnostic at one layer, over the positions that count."""

    diagnostic: str
    layer: int
    group: str
    value: float


class _Collector:
    """A tap that keeps one batch's tensors by layer."""

    def __init__(self) -> None:
        self.by_layer: dict[int, dict[str, Tensor]] = {}

    def __call__(self, site: str, layer: int, **tensors: Tensor) -> None:
        kept = self.by_layer.setdefault(layer, {})
        kept.update({f"{site}/{name}": tensor for name, tensor in tensors.items()})


def probe(model: nn.Module, batches: Iterable[Consumed], diagnostics: Sequence[Diagnostic]) -> list[Reading]:
    """Every diagnostic whose sites the model has, weighted by scored positions over all batches.

    The first position of every row is left out: it attends to itself alone, so its output is its own value.
    """
    sums: dict[tuple[str, int, str], float] = {}
    weights: dict[tuple[str, int, str], float] = {}
    model.eval()
    with torch.no_grad():
        for batch in batches:
            weight = batch.weight.clone()
            weight[:, 0] = 0.0
            positions = float(weight.sum())
            if positions == 0.0:
                continue
            collector = _Collector()
            model(batch.tokens, batch.document, collector)
            for layer, tapped in collector.by_layer.items():
                for diagnostic in diagnostics:
                    if not all(any(key.startswith(f"{site}/") for key in tapped) for site in diagnostic.sites):
                        continue
                    own = {k: t for k, t in tapped.items() if k.rpartition("/")[0] in diagnostic.sites}
                    for group, value in diagnostic.observe(own, weight).items():
                        key = (diagnostic.name, layer, group)
                        sums[key] = sums.get(key, 0.0) + positions * value
                        weights[key] = weights.get(key, 0.0) + positions
    means: dict[tuple[str, int], dict[str, float]] = {}
    for (name, layer, group), total in sums.items():
        means.setdefault((name, layer), {})[group] = total / weights[name, layer, group]
    derive = {diagnostic.name: diagnostic.derive for diagnostic in diagnostics}
    return [
        Reading(name, layer, group, value)
        for (name, layer), found in sorted(means.items())
        for group, value in derive[name](found).items()
    ]
