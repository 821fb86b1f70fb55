"""What drawing a task's rows costs beside the update that reads them, in interleaved turns.

    python bench/task_generation.py --turns 20

Each task of the full set at its own sizes: a turn draws the rows of 32 steps (they are drawn together in training) and
makes one update of the standard arm. Printed: milliseconds a step for both, medians, and the share.
"""

import argparse
import time
from importlib.resources import files
from pathlib import Path
from statistics import median

import numpy as np
import torch
from rich.progress import track

from paribus.experiment import loading
from paribus.experiment.plan import resolve_arm
from paribus.sample_update import stepper

STEPS_AT_ONCE = 32


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=20)
    turns = parser.parse_args().turns
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    folder = Path(str(files("paribus.tunnel"))) / "suites" / "full"
    print(f"{'task':8} {'rows, ms':>10} {'update, ms':>11} {'share':>8}")
    for path in sorted(folder.glob("*.toml")):
        experiment = loading.load(path)
        (scale,), base = experiment.scales, experiment.base
        assert base.task is not None
        update = stepper(resolve_arm(experiment, "standard", scale), torch.device("cpu"), 0)
        rows = base.batch_tokens // base.context_length
        number = np.tile(np.arange(rows), STEPS_AT_ONCE)
        drawn, updated = [], []
        for turn in track(range(turns + 2), description=path.stem, transient=True):
            steps = np.repeat(np.arange(turn * STEPS_AT_ONCE, (turn + 1) * STEPS_AT_ONCE), rows)
            started = time.perf_counter()
            base.task.rows(1, steps, number, base.context_length)
            took = (time.perf_counter() - started) / STEPS_AT_ONCE
            seconds = update().wall_seconds
            if turn >= 2:  # the first turns warm caches
                drawn.append(took)
                updated.append(seconds)
        share = median(a / b for a, b in zip(drawn, updated, strict=True))
        print(f"{path.stem:8} {1e3 * median(drawn):10.2f} {1e3 * median(updated):11.1f} {share:8.2%}")


if __name__ == "__main__":
    main()
