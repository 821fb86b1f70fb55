"""Laws that every mechanism obeys, whatever it does. Each is made for a mechanism's table and shown on a bench."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from paribus.mechanisms.contract import Bench, Law, Seam, largest
from paribus.shapes import Heads

Arm = Mapping[str, Mapping[str, Any]]


class _Leak(nn.Module):
    """The perturbation of causality: a trace of the next position's output."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, y: Heads, v: Heads) -> Heads:
        return self.inner(y + 1e-3 * y.roll(-1, dims=1), v)


def _disturbed(bench: Bench, arm: Arm) -> Any:
    """A model in which parameters that start at zero are not: a dormant mechanism obeys everything."""
    model, plain = bench.model(arm), bench.model({})
    if len(list(model.parameters())) > len(list(plain.parameters())):
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
            for layer in model.layers:
                layer.attention.output_map = _Leak(layer.attention.output_map)
        return largest(float(_change_after_token(bench, model, t, row=1)[:t].max()) for t in (3, 8, 11))

    return Law(
        claim="a token changes no earlier logit, bit for bit",
        measure=measure,
        perturbation="0.001 of the next position's attention output leaks in",
        bound=0.0,
        why="earlier positions run the same arithmetic on the same numbers",
    )


def document_boundary(arm: Arm) -> Law:
    def measure(bench: Bench, perturbed: bool) -> float:
        masked = {**arm, Seam.MASK: {"name": "causal" if perturbed else "document"}}
        # Row 0's second document starts at 5; token 2 belongs to the first.
        return float(_change_after_token(bench, _disturbed(bench, masked), 2, row=0)[5:].max())

    return Law(
        claim="with the document mask on, a token changes no logit of the next document",
        measure=measure,
        perturbation="the mask is off",
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
            with torch.no_grad():
                model.layers[0].attention.query.mul_(1 + 1e-6)
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
