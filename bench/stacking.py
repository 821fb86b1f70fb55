"""The most that training several equal cells as one stacked program could gain on this machine.

    python bench/stacking.py experiments/demo.toml [--scale tiny] [--arm standard] [--cells 1 2 4 8] [--threads 1]

A stacked program of S cells does for every cell what the cell does alone, in operations S times as large: it saves what
an operation costs whatever its size, and nothing else. One cell whose batch is S times as large saves that too, and
more: its matrix products are one for S, and its optimisers step once for S batches. So its rate of tokens is above what
stacking S cells can reach; where it does not rise, stacking gains nothing. Sizes take turns within a round, each in
proof and in fast mode; printed are medians over rounds and the ratio of the time for a token to that of one cell.
"""

import argparse
import statistics
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import track

from paribus.costing.allocator import keep_buffers
from paribus.experiment import loading
from paribus.experiment.plan import ArmAtScale, device_of, resolve_arm
from paribus.sample_update import SampleUpdate, random_batch, stepper
from paribus.study import prepare_process
from paribus.terminal import table


def of_cells(arm: ArmAtScale, device: torch.device, cells: int, *, compiled: bool) -> SampleUpdate:
    update = stepper(arm, device, 0, compiled=compiled)
    update.rows *= cells
    update.batch = random_batch(arm, update.rows)
    return update


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--scale", help="by default the first")
    parser.add_argument("--arm", help="by default the first")
    parser.add_argument("--cells", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    given = parser.parse_args()
    experiment = loading.load(given.file)
    execution = experiment.execution.model_copy(update={"threads": given.threads})
    prepare_process(execution)
    keep_buffers()
    scale, name = given.scale or next(iter(experiment.scales)), given.arm or next(iter(experiment.arms))
    arm, device = resolve_arm(experiment, name, scale), torch.device(device_of(execution))
    modes = {"proof": False, "fast": True}
    turns = {
        (mode, cells): of_cells(arm, device, cells, compiled=compiled)
        for mode, compiled in modes.items()
        for cells in given.cells
    }
    for update in track(turns.values(), "compiling", transient=True):
        update()
        update()
    seconds: dict[tuple[str, int], list[float]] = {turn: [] for turn in turns}
    for _ in track(range(given.rounds), "rounds", transient=True):
        for turn, update in turns.items():
            seconds[turn].append(update().wall_seconds / update.batch.tokens.size)
    token = {turn: statistics.median(found) for turn, found in seconds.items()}
    rows = [
        (mode, str(cells), f"{1 / token[mode, cells]:,.0f}", f"{token[mode, cells] / token[mode, given.cells[0]]:.2f}")
        for mode, cells in turns
    ]
    title = f"{scale}/{name}, {given.threads} threads, {device}"
    columns = ("mode", "cells", "tokens/s at most", f"time for a token, of {given.cells[0]}")
    Console().print(table(title, columns, rows, right=(1, 2, 3)))


if __name__ == "__main__":
    main()
