"""What an update of each arm costs here, measured against the other arms: time from interleaved turns, and memory.

Arms take turns within a round, in an order drawn for the round, so that a slow moment of the machine hits all of them;
a second copy of one arm takes part and shows what the machine cannot resolve. A measurement belongs to one host and
one state of the code; it is repeated when either is another one.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from rich.console import Console
from torch import Tensor

from paribus.data.order import Batch
from paribus.data.progress import Advance
from paribus.experiment import spec
from paribus.experiment.code import code_digest
from paribus.experiment.plan import ArmAtScale, device_of
from paribus.model.build import build_model
from paribus.runs.environment import environment
from paribus.runs.folder import StudyFolder
from paribus.seeds import generator
from paribus.study import prepare_process
from paribus.terminal import steps_of_preparation, table
from paribus.train.state import TrainState
from paribus.train.step import update

DEFAULT_ROUNDS = 20
WARM_UP_ROUNDS = 3
"""first rounds that are not counted: memory is taken, caches fill, kernels are chosen"""
SAME_ARM = " (same arm)"
"""behind the name of the arm that is measured twice"""

Step = Callable[[], float]


def measure_missing_costs(
    experiment: spec.Experiment,
    arms: Mapping[tuple[str, str], ArmAtScale],
    folder: StudyFolder,
    console: Console,
    *,
    again: bool = False,
) -> None:
    """Measure every scale whose arms have no measurement of this code on this host, and put it on record.

    `again` measures whatever there is, also where the file asks for no rounds.
    """
    rounds = experiment.execution.cost_rounds or (DEFAULT_ROUNDS if again else 0)
    if rounds == 0:
        return
    for scale in experiment.scales:
        here = {name: arm for (at, name), arm in arms.items() if at == scale}
        earlier = folder.cost(scale)
        if not again and earlier is not None and identity(experiment, here) == earlier["identity"]:
            continue
        with steps_of_preparation(console) as progress:
            found = measure(
                experiment, here, rounds, lambda done, total, at=scale: progress(Advance(f"timing {at}", done, total))
            )
        folder.write_cost(scale, found)


def identity(experiment: spec.Experiment, arms: Mapping[str, ArmAtScale]) -> dict[str, Any]:
    """What a measurement depends on: the arms, their code, the host, and how it computes."""
    execution, packages = experiment.execution, environment()
    return {
        "arms": {name: spec.declared(experiment, arm.scale, name) for name, arm in arms.items()},
        "code": {name: code_digest(arm.code_roots) for name, arm in arms.items()},
        "host": f"{packages['processor']}, {packages['cores']} cores, {_device_name(experiment)}",
        "torch": packages["torch"],
        "execution": execution.model_dump(include={"mode", "threads", "micro_batch_rows"}),
    }


def measure(
    experiment: spec.Experiment,
    arms: Mapping[str, ArmAtScale],
    rounds: int,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Seconds [round arm] of one update, and bytes kept for the backward pass, as JSON types.

    The primary's baseline (or the first arm) is measured twice.
    """
    prepare_process(experiment.execution)
    device = torch.device(device_of(experiment.execution))
    aside = experiment.compared_with_itself
    twice = aside[1] if aside is not None and aside[1] in arms else next(iter(arms))
    rows = experiment.execution.micro_batch_rows
    steppers = {name: stepper(arm, device, rows) for name, arm in arms.items()}
    memory = {name: bytes_for_backward(step) for name, step in steppers.items()}
    steppers[twice + SAME_ARM] = stepper(arms[twice], device, rows)
    seconds: dict[str, list[float]] = {name: [] for name in steppers}
    order = generator("cost", experiment.study, "order")
    for turn in range(WARM_UP_ROUNDS + rounds):
        for name in order.permutation(list(steppers)):
            took = steppers[name]()
            if turn >= WARM_UP_ROUNDS:
                seconds[name].append(took)
        if progress is not None:
            progress(turn + 1, WARM_UP_ROUNDS + rounds)
    of = identity(experiment, arms)
    return {
        "identity": of,
        "host": of["host"],
        "again": {"arm": twice, "column": twice + SAME_ARM},
        "seconds": seconds,
        "bytes_for_backward": memory,
        "batch_tokens": {name: arm.base.batch_tokens for name, arm in arms.items()},
    }


def stepper(arm: ArmAtScale, device: torch.device, micro_batch_rows: int) -> Step:
    """A function that makes one update of the arm and returns its seconds, the device's work included."""
    model = build_model(arm.model, arm.seam_configs, ("cost", arm.scale, 0)).to(device)
    state, batch = TrainState.fresh(model, arm.base.optimiser), random_batch(arm)
    rows = micro_batch_rows or len(batch.tokens)

    def step() -> float:
        _wait_for(device)
        started = time.perf_counter()
        update(state.model, state.optimisers, batch, state.step, 1.0, rows)
        _wait_for(device)
        state.step += 1
        return time.perf_counter() - started

    return step


def random_batch(arm: ArmAtScale) -> Batch:
    """Uniform tokens of the arm's batch shape: the arithmetic does not depend on them."""
    shape = (arm.base.batch_tokens // arm.base.context_length, arm.base.context_length)
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


def show(cost: Mapping[str, Any], scale: str, console: Console) -> None:
    """Ratios of a measurement as a table."""
    first = cost["again"]["arm"]
    reference = np.array(cost["seconds"][first])
    rows = []
    for name, values in cost["seconds"].items():
        low, middle, high = np.quantile(np.array(values) / reference, [0.25, 0.5, 0.75])
        rate = cost["batch_tokens"][name.removesuffix(SAME_ARM)] / float(np.median(values))
        memory = cost["bytes_for_backward"].get(name)
        shown = "" if memory is None else f"{memory / 2**20:,.1f}"
        rows.append((name, f"{rate:,.0f}", f"{middle:.3f}", f"{low:.3f} to {high:.3f}", shown))
    columns = ("arm", "tokens/s", f"time / {first}", "quartiles", "MiB for backward")
    title = f"Scale {scale}: {len(reference)} interleaved rounds on {cost['host']}"
    console.print(table(title, columns, rows, right=(1, 2, 3, 4)))


def _device_name(experiment: spec.Experiment) -> str:
    return torch.cuda.get_device_name() if device_of(experiment.execution) == "cuda" else "cpu"


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
