"""What an arm of a study in fast mode must show: compiled, its losses and gradients are those of the eager model.

Both round, so neither is held against the other: each is held against the same model in float64, and the compiled one
may be off by as much as the eager one times `ROOM`. Compiled at the shape that cells are trained at, it is compiled for
them as well: what the compiler makes is kept on disk.
"""

import copy
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from paribus.experiment.gate import Gate
from paribus.experiment.plan import ArmAtScale
from paribus.model.build import build_model
from paribus.model.lawbench import wake
from paribus.seeds import generator
from paribus.train.compiling import compiled_losses
from paribus.train.loop import announce
from paribus.train.step import Consumed, token_losses

COMPILED = "compiled, losses and gradients are the eager model's up to rounding"
SHOWN_TOKENS = 2048
"""of the micro-batch at most: float64 is slow, above all on a GPU. The others weigh nothing"""
ROOM = 16
"""Errors of two orders of summation are draws from one distribution. The norm of many is much the same in both; that of
one scalar may be small by luck in one, hence the median of all tensors beside its own, and four bits above both. An
operation that is wrong is off by far more: float32 has 24."""
ULP = 2.0**-24

Losses = Callable[[nn.Module, Consumed], Tensor]


@dataclass(frozen=True)
class Computed:
    """Of one micro-batch."""

    losses: Tensor
    """float64, on the CPU"""
    gradients: Mapping[str, Tensor]
    """of their weighted mean, float64, on the CPU"""


def compiled_gate(
    subject: str,
    arm: ArmAtScale,
    study: str,
    micro_batch_rows: int,
    device: torch.device,
    recompute: bool = False,
    compiled: Losses | None = None,
) -> Gate:
    """`compiled` is what fast mode computes with, unless a test says otherwise."""
    model = build_model(arm.model, arm.seam_configs, (study, arm.scale, "compiled"))
    wake(model, [name for name, _ in model.named_parameters()], "gates", "compiled")
    model.recompute = recompute
    announce(model, 0, 2)
    consumed, shown = _batch(arm, micro_batch_rows)
    exact = _computed(copy.deepcopy(model).double(), consumed.rows(0, shown), shown, device, token_losses)
    eager = _computed(model, consumed.rows(0, shown), shown, device, token_losses)
    fast = _computed(model, consumed, shown, device, compiled or compiled_losses())
    faults, worst = differences(exact, eager, fast)
    detail = f"{len(exact.gradients)} gradients and the losses, off float64 by at most {worst:.2g} times as much"
    return Gate(COMPILED, subject, not faults, "; ".join(faults[:3]) if faults else detail)


def differences(exact: Computed, eager: Computed, fast: Computed) -> tuple[list[str], float]:
    """(what is off by more than rounding, the largest error as a multiple of what eager computation allows itself)."""
    scale = float(exact.losses.abs().max())
    own = float((eager.losses - exact.losses).abs().max())
    off = float((fast.losses - exact.losses).abs().max())
    ratios = {"a loss": off / max(own, ULP * scale)}
    norms = {name: float(of.norm()) for name, of in exact.gradients.items()}
    errors = {name: float((eager.gradients[name] - of).norm()) for name, of in exact.gradients.items()}
    usual = statistics.median([error / norms[name] for name, error in errors.items() if norms[name]] or [0.0])
    # What cannot move a model as a whole: a tensor without gradient may receive as much by rounding.
    whole = ULP * sum(norm**2 for norm in norms.values()) ** 0.5
    for name, of in exact.gradients.items():
        allowed = max(errors[name], usual * norms[name], whole)
        off = float((fast.gradients[name] - of).norm())
        ratios[f"the gradient of {name}"] = off / allowed if allowed else float("inf") if off else 0.0
    faults = [
        f"{name} is off float64 by {ratio:.3g} times what the eager model's is, {ROOM} allowed"
        for name, ratio in ratios.items()
        if not ratio <= ROOM
    ]
    return faults, max(ratios.values())


def _batch(arm: ArmAtScale, micro_batch_rows: int) -> tuple[Consumed, int]:
    """(a micro-batch of random tokens in documents of half a row, how many of its rows weigh anything)."""
    time = arm.base.context_length
    rows = micro_batch_rows or arm.base.batch_tokens // time
    shown = min(rows, max(1, SHOWN_TOKENS // time))
    draw = generator("gates", "compiled", "tokens")
    tokens = torch.from_numpy(draw.integers(0, arm.model.vocabulary_size, (rows, time)))
    document = (torch.arange(time) >= time // 2).long().expand(rows, -1).contiguous()
    weight = torch.zeros(rows, time)
    weight[:shown] = 1.0
    return Consumed(tokens, tokens.roll(-1, 1), weight, document, torch.zeros_like(document)), shown


def _computed(model: nn.Module, consumed: Consumed, shown: int, device: torch.device, losses_of: Losses) -> Computed:
    model = model.to(device)
    part = None if consumed.slice is None else consumed.slice.to(device)
    whole = (consumed.tokens, consumed.targets, consumed.weight, consumed.document)
    there = Consumed(*(tensor.to(device) for tensor in whole), slice=part)
    losses = losses_of(model, there)
    (losses * there.weight / there.weight.sum()).sum().backward()
    gradients = {name: p.grad.double().cpu() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad(set_to_none=True)
    return Computed(losses[:shown].detach().double().cpu(), gradients)
