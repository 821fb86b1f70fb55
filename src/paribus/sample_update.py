"""One update of an arm on random tokens: how long it takes here, and how much memory."""

import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.optim import Optimizer
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from paribus.data.order import Batch
from paribus.experiment.plan import ArmAtScale
from paribus.model.build import build_model
from paribus.optim.groups import build_optimisers
from paribus.optim.schedule import PEAK
from paribus.seeds import generator
from paribus.train.step import update

Step = Callable[[], object]
"""makes one update; what it returns is its own affair"""


class Spent(NamedTuple):
    """What one update took here, the device's work included."""

    wall_seconds: float
    cpu_seconds: float
    """of this process on all of its threads; a GPU's work is no part of it"""


@dataclass
class SampleUpdate:
    """An arm that makes one update of the same random batch at every call, and says what it took."""

    model: nn.Module
    optimisers: list[Optimizer]
    batch: Batch
    rows: int
    """of one forward pass"""
    gradient_clip_norm: float | None
    device: torch.device
    within: Callable[[], AbstractContextManager[Any]] = nullcontext
    """entered around every update"""
    finished: int = 0

    def __call__(self) -> Spent:
        with self.within():
            wait_for(self.device)
            wall, cpu = time.perf_counter(), time.process_time()
            update(
                self.model,
                self.optimisers,
                self.batch,
                self.finished,
                PEAK,
                self.rows,
                gradient_clip_norm=self.gradient_clip_norm,
            )
            wait_for(self.device)
            spent = Spent(time.perf_counter() - wall, time.process_time() - cpu)
        self.finished += 1
        return spent


def stepper(
    arm: ArmAtScale,
    device: torch.device,
    micro_batch_rows: int,
    recompute: bool = False,
    *,
    compiled: bool = False,
    made: Callable[[nn.Module], nn.Module] = lambda model: model,
    within: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> SampleUpdate:
    """An arm ready to make updates, from the same initial values at every call.

    `micro_batch_rows` of 0 takes the whole batch; `recompute` keeps no activations inside layers; `compiled` computes
    as in fast mode. `made` is what the model is turned into before it runs, and `within` what every update runs in.
    """
    model = build_model(arm.model, arm.seam_configs, ("cost", arm.scale, 0)).to(device)
    model.recompute, model.compiled = recompute, compiled
    optimiser, batch = arm.base.optimiser, random_batch(arm)
    optimisers = build_optimisers(model, optimiser)
    rows = micro_batch_rows or len(batch.tokens)
    return SampleUpdate(made(model), optimisers, batch, rows, optimiser.gradient_clip_norm, device, within)


def micro_batch(arm: ArmAtScale, device: torch.device, rows: int, recompute: bool = False) -> Step:
    """The same of the gradients of one micro-batch of `rows` rows, without what the optimisers do with them."""
    model = build_model(arm.model, arm.seam_configs, ("cost", arm.scale, 0)).to(device)
    model.recompute = recompute
    batch = random_batch(arm, rows)

    def step() -> None:
        update(model, [], batch, 0, PEAK, rows)
        wait_for(device)

    return step


def random_batch(arm: ArmAtScale, rows: int | None = None) -> Batch:
    """Uniform tokens of the arm's batch shape, or of fewer rows: the arithmetic does not depend on them."""
    shape = (rows or arm.base.batch_tokens // arm.base.context_length, arm.base.context_length)
    tokens = generator("cost", "tokens").integers(1, arm.model.vocabulary_size, shape)
    zeros = np.zeros(shape, np.int32)
    return Batch(tokens, np.roll(tokens, -1, axis=1), np.ones(shape, np.float32), zeros, zeros.astype(np.int16))


def bytes_for_backward(step: Step) -> int:
    """Bytes of the distinct tensors that an update keeps for its backward pass at one time, parameters included.

    Of an update in several micro-batches that is the largest of them: each gives its memory back to the next.
    """
    holders: dict[int, int] = {}
    now = most = 0

    class Kept:
        """A tensor for as long as the graph holds it; where it is freed, its address is free for another one."""

        def __init__(self, tensor: Tensor) -> None:
            nonlocal now, most
            self.tensor, storage = tensor, tensor.untyped_storage()
            self.address, self.bytes = storage.data_ptr(), storage.nbytes()
            now += 0 if holders.get(self.address) else self.bytes
            holders[self.address] = holders.get(self.address, 0) + 1
            most = max(most, now)

        def __del__(self) -> None:
            nonlocal now
            holders[self.address] -= 1
            now -= 0 if holders[self.address] else self.bytes

    with torch.autograd.graph.saved_tensors_hooks(Kept, lambda kept: kept.tensor):
        step()
    return most


def peak_bytes(step: Step, device: torch.device) -> int:
    """The most bytes of tensors that an update allocates and holds at one time, beyond what was there before it."""
    if device.type == "cuda":
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        step()
        return torch.cuda.max_memory_allocated(device) - before
    with _Allocations() as allocations:
        step()
    return allocations.most


def profiled_peak_bytes(step: Step, device: torch.device) -> int:
    """As `peak_bytes`, by the allocator's own account: also what kernels allocate inside one operation.

    On a GPU the allocator keeps the peak itself; on a CPU torch's profiler records every allocation.
    """
    if device.type == "cuda":
        return peak_bytes(step, device)
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # otherwise it says on stderr that it starts and stops
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        step()
    results = profile.profiler.kineto_results if profile.profiler is not None else None
    assert results is not None
    events: list[Any] = results.events()  # whose stub lacks their size
    changes = [(event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]"]
    now = most = 0
    for _, size in sorted(changes, key=lambda change: change[0]):  # a stable sort: what is simultaneous keeps its order
        now += size
        most = max(most, now)
    return most


class _Allocations(TorchDispatchMode):
    """Adds up the storages that operations return, for as long as anything holds them."""

    def __init__(self) -> None:
        super().__init__()
        self.alive: dict[int, tuple[StorageWeakRef, int]] = {}
        self.now = self.most = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        returned = func(*args, **(kwargs or {}))
        given = {leaf.untyped_storage()._cdata for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)}
        for leaf in tree_leaves(returned):
            if isinstance(leaf, Tensor):
                self._note(leaf.untyped_storage(), given)
        return returned

    def _note(self, storage: torch.UntypedStorage, given: set[int]) -> None:
        known = self.alive.get(storage._cdata)
        if storage._cdata in given or (known is not None and not known[0].expired()):
            return  # a view, or an operation in place
        self.now += storage.nbytes() - (0 if known is None else known[1])
        self.alive[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
        if self.now > self.most:  # only then it matters which of them are gone
            self.alive = {key: held for key, held in self.alive.items() if not held[0].expired()}
            self.now = sum(size for _, size in self.alive.values())
            self.most = max(self.most, self.now)


def wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
