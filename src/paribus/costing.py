"""What an update of each arm costs here, measured against the other arms: time from interleaved turns, and memory.

Arms take turns within a round, in an order drawn for the round, so that a slow moment of the machine hits all of them;
a second copy of one arm takes part and shows what the machine cannot resolve. A measurement belongs to one host and
one state of the code; it is repeated when either is another one.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from rich.console import Console

from paribus.data.progress import Advance
from paribus.experiment import spec
from paribus.experiment.code import code_digest
from paribus.experiment.plan import ArmAtScale, device_of
from paribus.probing import frozen_rows
from paribus.runs.environment import environment
from paribus.runs.study_folder import StudyFolder
from paribus.sample_update import bytes_for_backward, stepper
from paribus.seeds import generator
from paribus.study import prepare_process
from paribus.terminal import steps_of_preparation, table

DEFAULT_ROUNDS = 20
WARM_UP_ROUNDS = 3
"""first rounds that are not counted: memory is taken, caches fill, kernels are chosen"""
SAME_ARM = " (same arm)"
"""behind the name of the arm that is measured twice"""


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
        derived = experiment.robustness.derived  # no contrast asks what they cost
        here = {name: arm for (at, name), arm in arms.items() if at == scale and name not in derived}
        earlier = folder.cost(scale)
        if not again and earlier is not None and identity(experiment, here) == earlier["identity"]:
            continue
        with steps_of_preparation(console) as progress:
            found = measure(
                experiment,
                here,
                rounds,
                lambda done, total, at=scale: progress(Advance(f"timing {at}", done, total)),
                micro_batch_rows=frozen_rows(experiment, arms, folder),
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
        "execution": execution.model_dump(include={"mode", "threads", "micro_batch_rows", "activation_checkpointing"}),
    }


def measure(
    experiment: spec.Experiment,
    arms: Mapping[str, ArmAtScale],
    rounds: int,
    progress: Callable[[int, int], None] | None = None,
    micro_batch_rows: int = 0,
) -> dict[str, Any]:
    """Seconds [round arm] of one update, and bytes kept for the backward pass, as JSON types.

    The primary's baseline (or the first arm) is measured twice.
    """
    prepare_process(experiment.execution)
    device = torch.device(device_of(experiment.execution))
    aside = experiment.compared_with_itself
    twice = aside[1] if aside is not None and aside[1] in arms else next(iter(arms))
    recompute = experiment.execution.activation_checkpointing
    steppers = {name: stepper(arm, device, micro_batch_rows, recompute) for name, arm in arms.items()}
    memory = {name: bytes_for_backward(step) for name, step in steppers.items()}
    steppers[twice + SAME_ARM] = stepper(arms[twice], device, micro_batch_rows, recompute)
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
