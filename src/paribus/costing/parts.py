"""Which part of an update takes how long. Measured in updates of its own: looking on costs time.

Hooks from outside say when a part begins and ends; `paribus.train.step` and the models know nothing of it. Every moment
of an update belongs to exactly one part (the innermost that is open), so that parts add up to the update:

    batch and digest    from the arrays of the batch to the model, the digest included
    forward: ...        attention and MLP of all layers, each seam by itself, and the rest (embedding, norms, head)
    loss                cross-entropy, forwards and back to the logits
    backward            from there to the last gradient, not divided further
    gradient norm       and clipping
    Muon, AdamW         each optimiser's step
    other               gradients dropped, what is between optimisers

A compiled graph has no borders inside: everything before the optimisers is then one part.

Layers that are computed again in the backward pass count as forward. On a CPU it is processor time: a part is short
beside the slice of time that another process takes, and would now and then be given all of it. On a GPU it is wall
time, and every border waits for the device, which takes away what would overlap.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from paribus.model.backbone import offers_normed_reads
from paribus.sample_update import SampleUpdate, wait_for

COMPILED = "compiled: forward, loss, backward"
BATCH, LOSS, BACKWARD, NORM, OTHER = "batch and digest", "loss", "backward", "gradient norm", "other"
REST = "forward: rest"
SUBLAYERS = {"attention": "forward: attention", "mlp": "forward: MLP"}
SEAMS = ("value_map", "mask", "output_map")
"""modules of an attention (`paribus.model.backbone.Backbone`)"""
ROUTING = "forward: routing"
ROUTED = ("open", "read", "read_normed", "write", "close")
"""methods of the routing that a backbone calls (`paribus.mechanisms.contract.DepthRouting`, `NormingRouting`); a norm
in the pass of a read counts as routing"""
FORWARD = (*SUBLAYERS.values(), *(f"forward: {seam}" for seam in SEAMS), ROUTING, REST)
UPDATES = 15
"""of each column"""


def measured_parts(updates: Mapping[str, SampleUpdate]) -> dict[str, dict[str, float]]:
    """Seconds by column and part: medians over updates that the columns make in turns."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in updates}
    for _ in range(UPDATES):
        for name, update in updates.items():
            found[name].append(parts_of(update))
    return {
        name: {part: statistics.median(seconds[part] for seconds in every) for part in every[0]}
        for name, every in found.items()
    }


def clock_of(device: torch.device) -> str:
    """What the parts are measured in, for the page."""
    return "processor time" if device.type == "cpu" else "wall time"


def parts_of(update: SampleUpdate, clock: Callable[[], float] | None = None) -> dict[str, float]:
    """Seconds of each part of one update. `clock`: by default the one that suits the device."""
    clock = clock or (time.process_time if update.device.type == "cpu" else time.perf_counter)
    steps = [type(optimiser).__name__ for optimiser in update.optimisers]
    compiled = getattr(update.model, "compiled", False)
    before = (COMPILED,) if compiled else (BATCH, *FORWARD, LOSS, BACKWARD, NORM)
    watch = _Watch(update.device, clock, (*before, *steps, OTHER))
    with _optimisers(update, watch, COMPILED) if compiled else _watched(update, watch):
        watch.begin()
        update()
        watch.charge(OTHER)
    return watch.seconds


class _Watch:
    """Gives the time since the last border to a part; of parts inside each other to the innermost."""

    def __init__(self, device: torch.device, clock: Callable[[], float], parts: tuple[str, ...]) -> None:
        self.seconds = dict.fromkeys(parts, 0.0)
        self._device, self._clock, self._last = device, clock, 0.0
        self._open: list[str] = []

    def begin(self) -> None:
        wait_for(self._device)
        self._last = self._clock()

    def charge(self, part: str) -> None:
        """What passed since the last border goes to the innermost open part, or to `part` where none is open."""
        wait_for(self._device)
        now = self._clock()
        self.seconds[self._open[-1] if self._open else part] += now - self._last
        self._last = now

    def enter(self, part: str, before: str) -> None:
        """A part begins; what came before it goes to `before` where no part is open around it."""
        self.charge(before)
        self._open.append(part)

    def leave(self) -> None:
        self.charge(OTHER)
        self._open.pop()


@contextmanager
def _watched(update: SampleUpdate, watch: _Watch) -> Iterator[None]:
    model = update.model
    with ExitStack() as hooks:

        def around(module: nn.Module, part: str) -> None:
            # Outside of any other part only where layers are computed again, which happens in the backward pass, and
            # which an exception ends as soon as it has what it needs: a part is left however it ends.
            hooks.enter_context(module.register_forward_pre_hook(lambda *_: watch.enter(part, BACKWARD)))
            hooks.enter_context(module.register_forward_hook(lambda *_: watch.leave(), always_call=True))

        def given(_: nn.Module, __: Any, logits: Tensor | None) -> None:
            watch.leave()
            if logits is not None:
                logits.register_hook(lambda _: watch.charge(LOSS))

        for layer in model.layers if isinstance(model.layers, nn.ModuleList) else ():
            for name, part in SUBLAYERS.items():
                around(layer.get_submodule(name), part)
            for seam in SEAMS:
                around(layer.get_submodule(f"attention.{seam}"), f"forward: {seam}")
        hooks.enter_context(_methods(model.get_submodule("routing"), watch))
        hooks.enter_context(model.register_forward_pre_hook(lambda *_: watch.enter(REST, BATCH)))
        hooks.enter_context(model.register_forward_hook(given, always_call=True))
        for parameter in model.parameters():
            if parameter.requires_grad:
                # The last of them ends the backward pass.
                hooks.enter_context(parameter.register_post_accumulate_grad_hook(lambda _: watch.charge(BACKWARD)))
        hooks.enter_context(_optimisers(update, watch, NORM))
        yield


@contextmanager
def _optimisers(update: SampleUpdate, watch: _Watch, before_them: str) -> Iterator[None]:
    with ExitStack() as hooks:
        for number, optimiser in enumerate(update.optimisers):
            name, before = type(optimiser).__name__, OTHER if number else before_them
            hooks.enter_context(
                optimiser.register_step_pre_hook(lambda *_, name=name, before=before: watch.enter(name, before))
            )
            hooks.enter_context(optimiser.register_step_post_hook(lambda *_: watch.leave()))
        yield


@contextmanager
def _methods(routing: nn.Module, watch: _Watch) -> Iterator[None]:
    """The routing is called by its methods, to which torch has no hooks: they are covered on the instance meanwhile."""

    def covered(method: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any, **keywords: Any) -> Any:
            watch.enter(ROUTING, BACKWARD)
            try:
                return method(*arguments, **keywords)
            finally:
                watch.leave()

        return timed

    there = [name for name in ROUTED if name != "read_normed" or offers_normed_reads(routing)]
    for name in there:
        setattr(routing, name, covered(getattr(routing, name)))
    try:
        yield
    finally:
        for name in there:
            delattr(routing, name)
