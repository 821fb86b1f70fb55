"""Where an update went wrong: the first tensor that is not finite, in the order in which the update computes.

An update is applied before anybody knows whether it was finite (`paribus.train.step.apply_gradients`): on a GPU the
host reads loss and gradient once an update, and to wait for them before the optimisers start would leave the device
idle in every update of every cell for the sake of one in a cell that ends. Nor would it find what an optimiser breaks,
which shows in a later loss. What was before is made again: updates are bit-exact, so from the nearest checkpoint the
same update comes again, and is then watched from inside. That costs a healthy run nothing.

    before the update   parameters, then optimiser states
    forward             what each module is given and returns, and what taps see, as they are computed; then the loss
    backward            gradients by the same tensors and by each parameter, as they are computed; then their size
    after the update    parameters, then optimiser states
"""

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from paribus.optim.clipping import gradient_norm
from paribus.optim.groups import state_tensors
from paribus.train.loop import BrokenUpdateError, Course, StepFinished, advance, announce
from paribus.train.state import TrainState
from paribus.train.step import Consumed, token_losses

BEFORE, FORWARD, BACKWARD, AFTER = "before the update", "forward", "backward", "after the update"
FINDINGS_KEPT = 8
"""of one update: what went wrong first, and where it went next"""


@dataclass(frozen=True)
class Finding:
    """A tensor that is not finite."""

    phase: str
    """BEFORE, FORWARD, BACKWARD or AFTER"""
    tensor: str
    """what it is and whose: "output of layers.1.mlp", "gradient of parameter embedding" """
    shape: tuple[int, ...]
    nan: int
    """values that are no number"""
    infinite: int
    largest_finite: float | None
    """absolute value; None where no value is finite"""
    rows: tuple[int, int] | None = None
    """of the batch, first and behind the last: the micro-batch it was computed of; None of a state"""

    @property
    def sentence(self) -> str:
        count = math.prod(self.shape)
        parts = [f"{number:,} {word}" for number, word in ((self.nan, "NaN"), (self.infinite, "infinite")) if number]
        rest = "" if self.largest_finite is None else f", largest finite value {self.largest_finite:.4g}"
        place = "" if self.rows is None else f", rows {self.rows[0]} to {self.rows[1] - 1} of the batch"
        values = " and ".join(parts) or "0 not finite"
        return f"{self.tensor} ({self.phase}{place}): {values} of {count:,} values{rest}"


@dataclass
class Magnitude:
    """How large the values of one named tensor are over a whole batch."""

    largest: float = 0.0
    """absolute value; NaN once a value is no number"""
    squares: float = 0.0
    count: int = 0

    def add(self, tensor: Tensor) -> None:
        values = tensor.detach().double()
        largest = float(values.abs().max()) if values.numel() else 0.0
        self.largest = math.nan if math.isnan(largest) else max(self.largest, largest)
        self.squares += float(values.square().sum())
        self.count += values.numel()

    @property
    def rms(self) -> float:
        return math.sqrt(self.squares / self.count) if self.count else 0.0


class Sizes(NamedTuple):
    """Of one named tensor of the model."""

    activation: Magnitude
    gradient: Magnitude
    """of the batch's mean loss by that tensor"""


@dataclass(frozen=True)
class Watched:
    """One update, looked at from inside and then made."""

    event: StepFinished
    gradient_size: float
    """Euclidean norm of the gradient of all parameters before it was clipped"""
    broken: bool
    """whether the loss or the gradient was not finite, so that training stops here"""
    findings: tuple[Finding, ...]
    """in the order in which they were computed; empty where all is finite"""
    sizes: Mapping[str, Sizes] = field(default_factory=dict)
    """by tensor, in the order of the forward pass; empty where nobody asked"""
    weights: Mapping[str, Sizes] = field(default_factory=dict)
    """the same of the parameters before the update, by name"""


def first_not_finite(state: TrainState, phase: str = BEFORE) -> Finding | None:
    """The first parameter, or else the first tensor of an optimiser, that holds a value that is not finite.

    One wait for the device where all is well.
    """
    named = _named_state(state)
    if not named or bool(torch.stack([t.isfinite().all().to(named[0][1].device) for _, t in named]).all()):
        return None
    name, tensor = next((name, tensor) for name, tensor in named if not bool(tensor.isfinite().all()))
    return _finding(phase, name, tensor)


def _named_state(state: TrainState) -> list[tuple[str, Tensor]]:
    named = [(f"parameter {name}", parameter.detach()) for name, parameter in state.model.named_parameters()]
    kept = state_tensors(state.model, state.optimisers)
    return named + [
        (f"{key} of parameter {name}", tensor)
        for (name, _, key), tensor in ((n.rpartition("/"), t) for n, t in kept.items())
        if tensor.is_floating_point()
    ]


def _finding(phase: str, name: str, tensor: Tensor, rows: tuple[int, int] | None = None) -> Finding:
    values = tensor.detach()
    finite = values[values.isfinite()]
    return Finding(
        phase,
        name,
        tuple(values.shape),
        int(values.isnan().sum()),
        int(values.isinf().sum()),
        float(finite.abs().max()) if finite.numel() else None,
        rows,
    )


def watch(state: TrainState, course: Course, *, sizes: bool = False) -> Watched:
    """Look at the next update from inside, then make it as training makes it; `state` has moved by it.

    `sizes` asks for the magnitudes of every named tensor as well.
    """
    view = _View(state.model, sizes)
    if (found := first_not_finite(state)) is not None:
        view.findings.append(found)
    weights = {}
    if sizes:
        weights = {name: Sizes(Magnitude(), Magnitude()) for name, _ in state.model.named_parameters()}
        for name, parameter in state.model.named_parameters():
            weights[name].activation.add(parameter)
    _run(state, course, view)
    size = float(gradient_norm(state.model.parameters()))
    for name, parameter in state.model.named_parameters():
        if parameter.grad is not None:
            if sizes:
                weights[name].gradient.add(parameter.grad)
            parameter.grad = None
    try:
        event, broken = advance(state, course), False
    except BrokenUpdateError as error:
        event, broken = error.update, True
        if not view.findings and math.isfinite(event.loss_nats_per_token):
            # Every value is finite, and their squares are not.
            view.findings.append(Finding(BACKWARD, "norm of the gradient of all parameters", (), 0, 1, None))
    if not view.findings and (found := first_not_finite(state, AFTER)) is not None:
        view.findings.append(found)
    return Watched(event, size, broken, tuple(view.findings[:FINDINGS_KEPT]), view.sizes, weights)


def _run(state: TrainState, course: Course, view: "_View") -> None:
    """Forward and backward of the next update under the view; gradients stay, nothing else changes."""
    announce(state.model, state.step, course.length.steps_of_schedule(state.step))
    device = next(state.model.parameters()).device
    whole = Consumed.from_batch(course.order.batch(state.step), device)
    total_weight = whole.weight.sum()
    with view:
        for start in range(0, len(whole.tokens), course.micro_batch_rows):
            part = whole.rows(start, start + course.micro_batch_rows)
            view.rows = (start, start + len(part.tokens))
            view.phase = FORWARD
            losses = token_losses(state.model, part, view.tap)
            view.see("loss of each target", losses)
            loss = (losses * part.weight).sum() / total_weight
            view.see("loss of the micro-batch", loss)
            view.phase = BACKWARD
            loss.backward()


class _View:
    """Hooks on every module and parameter, in force as a context."""

    def __init__(self, model: nn.Module, sizes: bool) -> None:
        self.model = model
        self.findings: list[Finding] = []
        self.sizes: dict[str, Sizes] = {}
        self.rows: tuple[int, int] = (0, 0)
        self.phase = FORWARD
        self._keeps_sizes = sizes
        self._handles: list[RemovableHandle] = []

    def __enter__(self) -> "_View":
        for name, module in self.model.named_modules():
            place = name or "the model"
            self._handles.append(module.register_forward_pre_hook(self._given(place, module), with_kwargs=True))
            self._handles.append(module.register_forward_hook(self._returned(place)))
        for name, parameter in self.model.named_parameters():
            if parameter.requires_grad:
                self._handles.append(parameter.register_post_accumulate_grad_hook(self._accumulated(name)))
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def see(self, name: str, tensor: Tensor) -> None:
        """Look at a tensor, for as long as findings are kept."""
        if len(self.findings) >= FINDINGS_KEPT or bool(tensor.isfinite().all()):
            return
        if all(found.tensor != name for found in self.findings):
            self.findings.append(_finding(self.phase, name, tensor, self.rows))

    def tap(self, site: str, layer: int, **tensors: Tensor) -> None:
        """See `paribus.mechanisms.contract.Tap`."""
        place = f"{site} of layer {layer}" if layer >= 0 else site
        for name, tensor in tensors.items():
            if tensor.is_floating_point():
                self._see_both_ways(f"{name}, {place}", tensor)

    def _given(self, place: str, module: nn.Module) -> Callable[..., None]:
        declared = tuple(inspect.signature(module.forward).parameters)

        def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            names = (*declared, *map(str, range(len(declared), len(args))))
            seen: set[int] = set()
            for name, tensor in _tensors({**dict(zip(names, args, strict=False)), **kwargs}):
                if self.phase == FORWARD and id(tensor) not in seen:
                    self.see(_named("input", name, place), tensor)
                seen.add(id(tensor))

        return hook

    def _returned(self, place: str) -> Callable[..., None]:
        def hook(_: nn.Module, __: object, output: Any) -> None:
            for name, tensor in _tensors(output):
                self._see_both_ways(_named("output", name, place), tensor)

        return hook

    def _see_both_ways(self, name: str, tensor: Tensor) -> None:
        if self.phase != FORWARD:  # a layer that is computed again for its gradient was seen before
            return
        self.see(name, tensor)
        if self._keeps_sizes:
            kept = self.sizes.setdefault(name, Sizes(Magnitude(), Magnitude()))
            kept.activation.add(tensor)
        if not tensor.requires_grad:
            return

        def hook(gradient: Tensor) -> None:
            self.see(f"gradient of {name}", gradient)
            if self._keeps_sizes:
                self.sizes[name].gradient.add(gradient)

        tensor.register_hook(hook)

    def _accumulated(self, name: str) -> Callable[[Tensor], None]:
        def hook(parameter: Tensor) -> None:
            if parameter.grad is not None:
                self.see(f"gradient of parameter {name}", parameter.grad)

        return hook


def _named(what: str, path: Sequence[str], place: str) -> str:
    inside = ".".join(path)
    return f"{what} {inside} of {place}" if inside else f"{what} of {place}"


def _tensors(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Tensor]]:
    """Every floating-point tensor inside what a module is given or returns, with the way to it."""
    if isinstance(value, Tensor):
        if value.is_floating_point():
            yield path, value
    elif isinstance(value, Mapping):
        for name, each in value.items():
            yield from _tensors(each, (*path, str(name)))
    elif isinstance(value, tuple | list):
        names = getattr(value, "_fields", None) or [str(place) if len(value) > 1 else "" for place in range(len(value))]
        for name, each in zip(names, value, strict=True):
            yield from _tensors(each, (*path, name) if name else path)
    elif is_dataclass(value):
        for each in fields(value):
            yield from _tensors(getattr(value, each.name), (*path, each.name))


class Located(NamedTuple):
    """The first update that went wrong, found by making updates again."""

    before: dict[str, bytes]
    """files of the state before it"""
    updates_before: int
    watched: Watched


def locate(start: Callable[[], TrainState], course: Course, failed: int, on_step: Callable[[int], None]) -> Located:
    """Make the updates up to number `failed` (from 1) again, and look at the first that leaves something not finite,
    which may be an earlier one: what an optimiser broke shows in a later loss.

    `start` gives the state of the nearest checkpoint, anew each time. `on_step` gets the updates made so far, and may
    raise to end it.
    """
    state = start()
    until = failed - 1
    while state.step < until:
        on_step(state.step)
        if _breaks(state, course):
            until = state.step - 1
            state = start()
            while state.step < until:
                on_step(state.step)
                advance(state, course)
    before, updates = state.to_files(), state.step
    return Located(before, updates, watch(state, course))


def _breaks(state: TrainState, course: Course) -> bool:
    """Make one update; whether it leaves something that is not finite."""
    try:
        advance(state, course)
    except BrokenUpdateError:
        return True
    return first_not_finite(state) is not None
