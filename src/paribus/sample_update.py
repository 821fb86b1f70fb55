"""One update of an arm on random tokens: how long it takes here, and how much memory."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from paribus.data.order import Batch
from paribus.experiment.plan import ArmAtScale
from paribus.model.build import build_model
from paribus.optim.schedule import PEAK
from paribus.seeds import generator
from paribus.train.state import TrainState
from paribus.train.step import update

Step = Callable[[], float]


def stepper(arm: ArmAtScale, device: torch.device, micro_batch_rows: int, recompute: bool = False) -> Step:
    """A function that makes one update of the arm and returns its seconds, the device's work included.

    `micro_batch_rows` of 0 takes the whole batch; `recompute` keeps no activations inside layers.
    """
    model = build_model(arm.model, arm.seam_configs, ("cost", arm.scale, 0)).to(device)
    model.recompute = recompute
    state, batch = TrainState.fresh(model, arm.base.optimiser), random_batch(arm)
    rows, clip = micro_batch_rows or len(batch.tokens), arm.base.optimiser.gradient_clip_norm

    def step() -> float:
        _wait_for(device)
        started = time.perf_counter()
        update(state.model, state.optimisers, batch, state.step, PEAK, rows, gradient_clip_norm=clip)
        _wait_for(device)
        state.step += 1
        return time.perf_counter() - started

    return step


def micro_batch(arm: ArmAtScale, device: torch.device, rows: int, recompute: bool = False) -> Step:
    """The same of the gradients of one micro-batch of `rows` rows, without what the optimisers do with them."""
    model = build_model(arm.model, arm.seam_configs, ("cost", arm.scale, 0)).to(device)
    model.recompute = recompute
    batch = random_batch(arm, rows)

    def step() -> float:
        started = time.perf_counter()
        update(model, [], batch, 0, PEAK, rows)
        _wait_for(device)
        return time.perf_counter() - started

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


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
