"""How many workers of how many threads: total tokens per second of an arm, layouts interleaved.

    python bench/workers.py experiments/demo.toml --layouts 1x1 1x2 2x1 2x1+fast --rounds 3 --seconds 10

A layout WxT is W processes of T threads that train copies of the first arm side by side, with the allocator set as for
workers; `+fast` compiles, `+plain` leaves the allocator as it is. Layouts take turns; each turn's processes warm up and
compile before the clock starts. What a study of many cells takes in one layout over another is the inverse of the ratio
of their rates.
"""

import argparse
import multiprocessing
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import track

from paribus.experiment import loading
from paribus.experiment.plan import device_of, resolve_arm
from paribus.launch.local import MALLOC_TUNABLES
from paribus.sample_update import stepper
from paribus.seeds import generator
from paribus.study import prepare_process
from paribus.terminal import table


def work(file: Path, threads: int, fast: bool, seconds: float, ready: Any, rates: Any) -> None:
    experiment = loading.load(file)
    prepare_process(experiment.execution.model_copy(update={"threads": threads}))
    arm = resolve_arm(experiment, next(iter(experiment.arms)), next(iter(experiment.scales)))
    step = stepper(
        arm, torch.device(device_of(experiment.execution)), experiment.execution.declared_rows, compiled=fast
    )
    step()
    ready.wait()
    started, steps = time.perf_counter(), 0
    while time.perf_counter() - started < seconds:
        step()
        steps += 1
    rates.put(steps * arm.base.batch_tokens / (time.perf_counter() - started))


def total_rate(file: Path, layout: str, seconds: float) -> float:
    shape, *more = layout.split("+")
    workers, threads = map(int, shape.split("x"))
    fast = "fast" in more
    context = multiprocessing.get_context("spawn")
    ready, rates = context.Barrier(workers), context.Queue()
    if "plain" not in more:
        os.environ["GLIBC_TUNABLES"] = MALLOC_TUNABLES
    processes = [
        context.Process(target=work, args=(file, threads, fast, seconds, ready, rates)) for _ in range(workers)
    ]
    for process in processes:
        process.start()
    os.environ.pop("GLIBC_TUNABLES", None)
    found = sum(rates.get() for _ in processes)
    for process in processes:
        process.join()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--layouts", nargs="+", default=["1x1", "1x2", "2x1", "1x2+fast", "2x1+fast"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0)
    arguments = parser.parse_args()
    rates: dict[str, list[float]] = {layout: [] for layout in arguments.layouts}
    order = generator("bench", "layouts")
    for _ in track(range(arguments.rounds), "rounds", transient=True):
        for layout in order.permutation(arguments.layouts):
            rates[layout].append(total_rate(arguments.file, str(layout), arguments.seconds))
    first = np.array(rates[arguments.layouts[0]])
    rows = [
        (layout, f"{np.median(found):,.0f}", f"{np.median(np.array(found) / first):.2f}", f"{min(found):,.0f}")
        for layout, found in rates.items()
    ]
    columns = ("layout", "tokens/s, all workers", f"/ {arguments.layouts[0]}", "slowest round")
    Console().print(table(f"{arguments.file.name}: workers x threads", columns, rows, right=(1, 2, 3)))


if __name__ == "__main__":
    main()
