"""The bench on which laws are shown: a small model of a backbone, named noise for values, fixed random tokens.

Output projections are non-zero from the start, so that a law about a mechanism is a law about a model that it moves.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from paribus.errors import GateError
from paribus.mechanisms import resolve
from paribus.mechanisms.contract import Law, Seam, Tap
from paribus.model.backbone import Backbone
from paribus.model.build import abstract_model, build_model
from paribus.model.config import CONFIGS
from paribus.seeds import generator, unit_noise

BATCH, TIME, VOCABULARY = 2, 12, 31
KV_HEADS, HEAD_WIDTH = 2, 8
SMALL: Mapping[str, Mapping[str, Any]] = {
    "nanochat": {"smear_channels": 6, "value_gate_channels": 4, "short_window_multiple": 4}
}
"""constants that let what a backbone does to wide streams and long rows happen on the bench"""


def wake(model: nn.Module, shared: Collection[str], *stream: str) -> None:
    """Give noise of the fan-in size to every tensor of the standard arm that starts at zero (`shared` names the arm's):
    behind a zero projection every arm looks like every other."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name in shared and not bool((parameter != 0).any()):
                noise = torch.from_numpy(unit_noise(tuple(parameter.shape), *stream, "wake", name))
                parameter.copy_(noise * parameter.shape[-1] ** -0.5)


class LawBench:
    """See `paribus.mechanisms.contract.Bench`. Four layers, so that three blocks leave a remainder.

    Two key-value heads, each of them shared by `query_heads_per_kv_head` query heads. Rows of `time` positions: the
    few of the default do for laws of arithmetic; what reaches across positions shows on rows as long as its reach.
    """

    def __init__(
        self, backbone: str = "prenorm", layers: int = 4, query_heads_per_kv_head: int = 1, time: int = TIME
    ) -> None:
        width = HEAD_WIDTH * KV_HEADS * query_heads_per_kv_head
        self.config = CONFIGS[backbone].model_validate(
            {
                "backbone": backbone,
                "layers": layers,
                "width": width,
                "head_width": HEAD_WIDTH,
                "query_heads_per_kv_head": query_heads_per_kv_head,
                "mlp_width": 3 * width // 2,
                "vocabulary_size": VOCABULARY,
                "context_length": time,
                **SMALL.get(backbone, {}),
            }
        )
        draw = generator("lawbench", "tokens")
        self.tokens = torch.from_numpy(draw.integers(1, VOCABULARY, (BATCH, time)))
        self.targets = torch.from_numpy(draw.integers(1, VOCABULARY, (BATCH, time)))
        # Row 0 holds two documents, the second starting at position 5; row 1 holds one.
        self.document = torch.tensor([[0] * 5 + [1] * (time - 5), [0] * time])

    def model(
        self, arm: Mapping[str, Mapping[str, Any]], *, double: bool = False, norm_eps: float | None = None
    ) -> Backbone:
        config = self.config if norm_eps is None else self.config.model_copy(update={"norm_eps": norm_eps})
        mechanisms = {seam: resolve(seam, dict(arm[seam]) if seam in arm else None, str(seam)) for seam in Seam}
        model = build_model(config, mechanisms, ("lawbench",), torch.float64 if double else torch.float32)
        wake(model, self._shared, "lawbench")
        return model

    @cached_property
    def _shared(self) -> frozenset[str]:
        standard = abstract_model(self.config, {seam: resolve(seam, None, str(seam)) for seam in Seam})
        return frozenset(name for name, _ in standard.named_parameters())

    def disturb(self, model: Backbone, pattern: str, std: float = 0.1) -> None:
        names = [name for name, _ in model.named_parameters() if pattern in name and name not in self._shared]
        if not names:
            raise GateError(
                f"no parameter of the mechanism is called '{pattern}'", remedy="name one of the mechanism's parameters"
            )
        with torch.no_grad():
            for name in names:
                parameter = model.get_parameter(name)
                noise = torch.from_numpy(unit_noise(tuple(parameter.shape), "lawbench", "disturb", name))
                parameter.add_(noise.to(parameter.dtype), alpha=std)

    def wrap_output_maps(self, model: Backbone, wrapper: Callable[[nn.Module], nn.Module]) -> None:
        for module in list(model.modules()):
            inner = getattr(module, Seam.OUTPUT_MAP, None)
            if isinstance(inner, nn.Module):
                setattr(module, Seam.OUTPUT_MAP, wrapper(inner))

    def logits(self, model: Backbone, *, tap: Tap | None = None) -> Tensor:
        return model(self.tokens, self.document, tap)

    def loss_and_gradients(self, model: Backbone) -> dict[str, Tensor]:
        model.zero_grad(set_to_none=True)
        loss = functional.cross_entropy(self.logits(model).flatten(0, 1), self.targets.flatten())
        loss.backward()
        gradients = {
            name: torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            for name, parameter in model.named_parameters()
        }
        return {"loss": loss.detach(), **gradients}


@dataclass(frozen=True)
class Shown:
    """A law, measured as it is and with its perturbation."""

    law: Law
    backbone: str
    found: float
    found_when_perturbed: float

    @property
    def can_fail(self) -> bool:
        return self.found_when_perturbed > self.law.bound

    @property
    def passed(self) -> bool:
        return self.found <= self.law.bound and self.can_fail


def show(law: Law, bench: LawBench) -> Shown:
    return Shown(law, bench.config.backbone, law.measure(bench, False), law.measure(bench, True))
