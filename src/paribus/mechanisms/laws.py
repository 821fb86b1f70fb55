"""Laws that every mechanism obeys, whatever it does, and the list of all laws of the registry.

A universal law is made for an arm's tables and shown on a bench.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn

from paribus.errors import GateError
from paribus.mechanisms import IDENTITY, laws_of, mechanisms, modules
from paribus.mechanisms.contract import Bench, Law, Seam, Values, largest
from paribus.shapes import Documents, GroupedHeads

Arm = Mapping[str, Mapping[str, Any]]


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


def _change_after_token(bench: Bench, model: Any, position: int, *, row: int) -> Tensor:
    """Largest |change| of the logits at each position of `row` when the token at `position` becomes another one."""
    tokens = bench.tokens
    with torch.no_grad():
        before = bench.logits(model)[row]
        kept = tokens[row, position].clone()
        tokens[row, position] = kept % 29 + 1  # another token of the vocabulary, whichever it was
        after = bench.logits(model)[row]
        tokens[row, position] = kept
    return (after - before).abs().amax(-1)


def causality(arm: Arm) -> Law:
    def measure(bench: Bench, perturbed: bool) -> float:
        model = _disturbed(bench, arm)
        if perturbed:
            bench.wrap_output_maps(model, _Leak)
        return largest(float(_change_after_token(bench, model, t, row=1)[:t].max()) for t in (3, 8, 11))

    return Law(
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
        return float(_change_after_token(bench, _disturbed(bench, masked), 2, row=0)[5:].max())

    return Law(
        claim=f"with the document mask on{replaced}, a token changes no logit of the next document",
        measure=measure,
        perturbation="plain causal attention",
        bound=0.0,
        why="masked pairs have weight exactly zero",
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

    return Law(
        claim="logits are the same with taps on and off, bit for bit",
        measure=measure,
        perturbation="a tap that scales what it sees by 1.001",
        bound=0.0,
        why="a tap only looks",
    )


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
        )

    return Law(
        claim="every tensor of the standard arm is there, with bit-identical initial values",
        measure=measure,
        perturbation="one shared matrix scaled by 1 + 1e-6",
        bound=0.0,
        why="each parameter draws from a stream of its own name",
    )


def universal(arm: Arm) -> tuple[Law, ...]:
    """The laws of every mechanism, for an arm that uses it."""
    return (causality(arm), document_boundary(arm), tap_changes_nothing(arm), shared_tensors_equal(arm))


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
