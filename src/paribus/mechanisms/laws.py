"""Laws that every mechanism obeys, whatever it does, and the list of all laws of the registry.

A universal law is made for an arm's tables and shown on a bench. What a mechanism does across positions shows only on
rows as long as it reaches: these laws ask for longer rows than laws of arithmetic do.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from paribus.errors import GateError
from paribus.mechanisms import IDENTITY, laws_of, mechanisms, modules, resolve
from paribus.mechanisms.contract import BACKBONES, Bench, Law, Seam, Values, largest
from paribus.shapes import Documents, GroupedHeads

Arm = Mapping[str, Mapping[str, Any]]
ROW = 48
"""positions of a row on which universal laws are shown where no study says how long its rows are"""


@dataclass(frozen=True)
class UniversalLaw(Law):
    """A law of every mechanism: it depends on the length of a row, and its discrepancies say where they are."""


class Located(float):
    """A discrepancy that knows where it was found."""

    where: str

    def __new__(cls, value: float, where: str) -> "Located":
        located = super().__new__(cls, value)
        located.where = where
        return located


class _Leak(nn.Module):
    """The perturbation of causality: a trace of the next position's output."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, y: GroupedHeads, values: Values, document: Documents) -> GroupedHeads:
        return self.inner(y + 1e-3 * y.roll(-1, dims=1), values, document)


def _disturbed(bench: Bench, arm: Arm) -> Any:
    """A model in which parameters that start at zero are not: a dormant mechanism obeys everything."""
    model = bench.model(arm)
    with suppress(GateError):  # it has no parameters of its own
        bench.disturb(model, "")
    return model


class _Mixed(nn.Module):
    """The perturbation of the law of rows: a trace of the neighbouring row's output."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, y: GroupedHeads, values: Values, document: Documents) -> GroupedHeads:
        return self.inner(y + 1e-3 * y.roll(1, dims=0), values, document)


def _changes(bench: Bench, model: Any, places: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int, Tensor]]:
    """(row, position, [batch time] largest |change| of the logits when the token there becomes another one)."""
    tokens = bench.tokens
    with torch.no_grad():
        before = bench.logits(model)
        for row, position in places:
            kept = tokens[row, position].clone()
            try:
                tokens[row, position] = kept % 29 + 1  # another token of the vocabulary, whichever it was
                after = bench.logits(model)
            finally:
                tokens[row, position] = kept
            yield row, position, (after - before).abs().amax(-1)


def _worst(found: Iterable[Located]) -> Located:
    """The first that is not a number, otherwise the largest."""
    return max(found, key=lambda located: (math.isnan(located), located))


def _located(change: Tensor, start: int, cause: str, of: str = "") -> Located:
    """The largest of `change` ([time], from position `start` on)."""
    at, size = int(change.argmax()), float(change.max())
    return Located(size, f"{cause} changes the logits at {start + at}{of} ({size:.1e})")


def causality(arm: Arm) -> Law:
    def measure(bench: Bench, perturbed: bool) -> float:
        model = _disturbed(bench, arm)
        if perturbed:
            bench.wrap_output_maps(model, _Leak)
        time = bench.tokens.shape[1]
        # The last position is as far ahead as a token can be; the others are for what looks a fixed distance ahead.
        places = [(1, position) for position in sorted({3, 8, time // 2, time - 1})]
        return _worst(
            _located(change[row, :position], 0, f"the token at {position}")
            for row, position, change in _changes(bench, model, places)
        )

    return UniversalLaw(
        claim="a token changes no earlier logit, bit for bit",
        measure=measure,
        perturbation="0.001 of the next position's attention output leaks in",
        bound=0.0,
        why="earlier positions run the same arithmetic on the same numbers",
    )


def document_boundary(arm: Arm) -> Law:
    # The arm's other seams are what this law is about; its own mask, if it has one, is not in place.
    own_mask = arm.get(Seam.MASK, {}).get("name")
    replaced = "" if own_mask in (None, "document") else f" in place of the arm's '{own_mask}'"

    def measure(bench: Bench, perturbed: bool) -> float:
        masked = {**arm, Seam.MASK: {"name": "causal" if perturbed else "document"}}
        # Row 0's second document starts at 5; token 2 belongs to the first.
        [(row, position, change)] = _changes(bench, _disturbed(bench, masked), [(0, 2)])
        return _located(change[row, 5:], 5, f"the token at {position}", " of the next document")

    return UniversalLaw(
        claim=f"with the document mask on{replaced}, a token changes no logit of the next document",
        measure=measure,
        perturbation="plain causal attention",
        bound=0.0,
        why="masked pairs have weight exactly zero",
    )


def rows_apart(arm: Arm) -> Law:
    def measure(bench: Bench, perturbed: bool) -> float:
        model = _disturbed(bench, arm)
        if perturbed:
            bench.wrap_output_maps(model, _Mixed)
        # A row's first token moves every later position of its row, so that all of them are seen from the other row.
        places = [(row, position) for row in (0, 1) for position in (0, bench.tokens.shape[1] - 1)]
        return _worst(
            _located(change[1 - row], 0, f"the token at {position} of row {row}", f" of row {1 - row}")
            for row, position, change in _changes(bench, model, places)
        )

    return UniversalLaw(
        claim="a row changes no logit of another row, bit for bit",
        measure=measure,
        perturbation="0.001 of another row's attention output leaks in",
        bound=0.0,
        why="rows run the same arithmetic on their own numbers",
    )


def tap_changes_nothing(arm: Arm) -> Law:
    def measure(bench: Bench, perturbed: bool) -> float:
        model = _disturbed(bench, arm)

        def tap(site: str, layer: int, **tensors: Tensor) -> None:
            del site, layer
            if perturbed:
                for tensor in tensors.values():
                    if tensor.is_floating_point():
                        tensor.mul_(1.001)

        with torch.no_grad():
            return float((bench.logits(model, tap=tap) - bench.logits(model)).abs().max())

    return UniversalLaw(
        claim="logits are the same with taps on and off, bit for bit",
        measure=measure,
        perturbation="a tap that scales what it sees by 1.001",
        bound=0.0,
        why="a tap only looks",
    )


def belongs_to_routing(name: str, arm: Iterable[str]) -> bool:
    """Whether a tensor of the standard arm is part of the residual path that an arm, given by its seams, replaces."""
    return Seam.ROUTING in arm and name.startswith(f"{Seam.ROUTING}.")


def shared_tensors_equal(arm: Arm) -> Law:
    def measure(bench: Bench, perturbed: bool) -> float:
        model, plain = bench.model(arm), bench.model({})
        if perturbed:
            first = next(
                name for name, parameter in plain.named_parameters() if "layers" in name and parameter.ndim > 1
            )
            with torch.no_grad():
                model.get_parameter(first).mul_(1 + 1e-6)
        own = dict(model.named_parameters())
        return largest(
            float((own[name] - parameter).detach().abs().max()) if name in own else float("inf")
            for name, parameter in plain.named_parameters()
            if not belongs_to_routing(name, arm)
        )

    return UniversalLaw(
        claim="every tensor of the standard arm is there, with bit-identical initial values",
        measure=measure,
        perturbation="one shared matrix scaled by 1 + 1e-6",
        bound=0.0,
        why="each parameter draws from a stream of its own name; a routing has its own in place of a residual path's",
    )


def universal(arm: Arm) -> tuple[Law, ...]:
    """The laws of every mechanism, for an arm that uses it."""
    laws = (causality, document_boundary, rows_apart, tap_changes_nothing, shared_tensors_equal)
    return tuple(replace(law(arm), backbones=backbones_of(arm)) for law in laws)


def backbones_of(arm: Arm) -> tuple[str, ...]:
    """Backbones that have what each of the arm's mechanisms needs."""
    configs = [resolve(Seam(seam), dict(table), seam) for seam, table in arm.items()]
    return tuple(name for name in BACKBONES if all(name in config.backbones for config in configs))


def example_arms() -> Iterator[tuple[str, Arm]]:
    """An arm with each mechanism of the registry that is not a seam's identity, by the mechanism's name."""
    for seam in Seam:
        for name, config in mechanisms(seam).items():
            if name != IDENTITY[seam]:
                yield name, {seam: {"name": name, **config.example}}


def all_laws() -> Iterator[tuple[str, Law]]:
    """(subject, law): what each module declares, by the module's name, then what every mechanism obeys, by its name."""
    for module in modules():
        for law in laws_of(module):
            yield module.__name__.rpartition(".")[2], law
    for name, arm in [("standard", {}), *example_arms()]:
        for law in universal(arm):
            yield name, law
