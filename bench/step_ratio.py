"""Tokens per second of each arm of an experiment, as ratios of interleaved runs.

    python bench/step_ratio.py experiments/demo.toml --rounds 20

Arms take turns within a round, in an order drawn for the round, so that a slow moment of the machine hits all of them.
A copy of the first arm takes part as A/A: the spread of its ratio is what this machine cannot resolve.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.progress import track

from paribus.data.order import Batch
from paribus.experiment import loading
from paribus.experiment.plan import ArmAtScale, resolve_arm
from paribus.model.build import build_model
from paribus.seeds import generator
from paribus.study import prepare_process
from paribus.terminal import table
from paribus.train.state import TrainState
from paribus.train.step import update


def random_batch(arm: ArmAtScale) -> Batch:
    """Uniform tokens of the arm's batch shape: the arithmetic does not depend on them."""
    shape = (arm.base.batch_tokens // arm.base.context_length, arm.base.context_length)
    tokens = generator("bench", "tokens").integers(1, arm.model.vocabulary_size, shape)
    zeros = np.zeros(shape, np.int32)
    return Batch(tokens, np.roll(tokens, -1, axis=1), np.ones(shape, np.float32), zeros, zeros.astype(np.int16))


def stepper(arm: ArmAtScale) -> Callable[[], float]:
    """A function that makes one update and returns its seconds."""
    model = build_model(arm.model, arm.seam_configs, ("bench", arm.scale, 0))
    state, batch = TrainState.fresh(model, arm.base.optimiser), random_batch(arm)

    def step() -> float:
        started = time.perf_counter()
        update(state.model, state.optimisers, batch, state.step, 1.0, len(batch.tokens))
        state.step += 1
        return time.perf_counter() - started

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--scale", help="default: the first")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--warm-up", type=int, default=2, help="rounds that are not counted")
    arguments = parser.parse_args()
    experiment = loading.load(arguments.file)
    prepare_process(experiment.execution)
    scale = arguments.scale or next(iter(experiment.scales))
    arms = {name: resolve_arm(experiment, name, scale) for name in experiment.arms}
    first = next(iter(arms))
    steppers = {name: stepper(arm) for name, arm in arms.items()} | {f"{first} (A/A)": stepper(arms[first])}
    seconds: dict[str, list[float]] = {name: [] for name in steppers}
    order = generator("bench", "order")
    for turn in track(range(arguments.warm_up + arguments.rounds), "rounds", transient=True):
        for name in order.permutation(list(steppers)):
            took = steppers[name]()
            if turn >= arguments.warm_up:
                seconds[name].append(took)
    rows = []
    tokens = arms[first].base.batch_tokens
    for name, values in seconds.items():
        low, middle, high = np.quantile(np.array(values) / np.array(seconds[first]), [0.25, 0.5, 0.75])
        rate = tokens / float(np.median(values))
        rows.append((name, f"{rate:,.0f}", f"{middle:.3f}", f"{low:.3f} to {high:.3f}"))
    title = f"{arguments.file.name}, scale {scale}, torch {torch.__version__}, {torch.get_num_threads()} thread(s)"
    columns = ("arm", "tokens/s", f"step time / {first}", "quartiles")
    Console().print(table(title, columns, rows, right=(1, 2, 3)))


if __name__ == "__main__":
    main()
