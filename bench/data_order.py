"""What drawing a batch costs beside the update that reads it, and how long the order takes to make.

    python bench/data_order.py experiments/demo.toml

A corpus of a million documents (lengths log-normal, a little under a thousand tokens in the mean, as web pages have)
lies in a file of the disk; batches of both packings are drawn at random steps, the first version's way of drawing
them beside. Turns of them and updates of the file's first arm at its first scale alternate. Printed: medians and the
fastest, and how many batches one update lasts.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track

from paribus.data.frozen import FrozenCorpus
from paribus.data.order import Order
from paribus.data.packing import PACKINGS, Packing
from paribus.experiment import loading
from paribus.experiment.plan import resolve_arm
from paribus.sample_update import stepper
from paribus.seeds import generator
from paribus.terminal import table

SHAPES = ((128, 16), (1024, 32))
"""context length, rows"""
BATCHES_A_TURN = 20


@dataclass(frozen=True)
class Documents:
    tokens: NDArray[np.int64]
    offset: NDArray[np.int64]
    source: NDArray[np.int16]

    def __len__(self) -> int:
        return len(self.tokens)


def corpus(folder: Path, documents: int) -> FrozenCorpus:
    """A train split of random tokens in a file, written in parts."""
    draw = generator("bench", "documents")
    lengths = np.exp(draw.normal(6.4, 1.0, documents)).astype(np.int64) + 1
    path, tokens = folder / "train.tokens", int(lengths.sum())
    part = draw.integers(1, 2**15, 2**24).astype(np.uint16)
    with path.open("wb") as stream:
        for begin in track(range(0, tokens, len(part)), "tokens", transient=True):
            stream.write(part[: tokens - begin].tobytes())
    table = Documents(lengths, np.cumsum(lengths) - lengths, np.zeros(documents, np.int16))
    train = SimpleNamespace(tokens=np.memmap(path, dtype=np.uint16, mode="r"), documents=table)
    return cast("FrozenCorpus", SimpleNamespace(bos_id=0, split={"train": train}.__getitem__))


def drawer(order: Order) -> Callable[[], float]:
    """A function that draws batches of random steps and returns the seconds of one."""
    draw, batches = generator("bench", "steps"), order.batches

    def turn() -> float:
        steps = draw.integers(0, batches, BATCHES_A_TURN).tolist()
        started = time.perf_counter()
        for step in steps:
            order.batch(step)
        return (time.perf_counter() - started) / BATCHES_A_TURN

    return turn


def searched(frozen: FrozenCorpus, context_length: int, rows: int) -> Callable[[], float]:
    """The first version's way: every position of the batch is looked up among the documents' beginnings."""
    train, draw = frozen.split("train"), generator("bench", "steps")
    documents = train.documents
    permuted = draw.permutation(len(documents))
    ends = np.cumsum(documents.tokens[permuted] + 1)
    start, token_start = ends - documents.tokens[permuted] - 1, documents.offset[permuted]
    source = documents.source[permuted]
    order = draw.permutation((int(ends[-1]) - 1) // context_length)

    def batch(step: int) -> tuple[NDArray[np.generic], ...]:
        row = order[step * rows : (step + 1) * rows]
        position = row[:, None] * context_length + np.arange(context_length + 1)
        document = np.searchsorted(start, position, side="right") - 1
        place = position - start[document]
        stored = train.tokens[np.where(place == 0, 0, token_start[document] + place - 1)]
        weight = np.where(place[:, 1:] == 0, np.float32(0), np.float32(1))
        within = (document[:, :-1] - document[:, :1]).astype(np.int32)
        return np.where(place == 0, 0, stored.astype(np.int64)), weight, within, source[document[:, :-1]]

    def turn() -> float:
        steps = draw.integers(0, len(order) // rows, BATCHES_A_TURN).tolist()
        started = time.perf_counter()
        for step in steps:
            batch(step)
        return (time.perf_counter() - started) / BATCHES_A_TURN

    return turn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--turns", type=int, default=60)
    parser.add_argument("--folder", type=Path, help="where the tokens are written for the time of the run")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    experiment = loading.load(arguments.file)
    arm = resolve_arm(experiment, next(iter(experiment.arms)), next(iter(experiment.scales)))
    console = Console()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        frozen = corpus(Path(folder), arguments.documents)
        turns: dict[tuple[str, str], Callable[[], float]] = {}
        made: list[tuple[str, ...]] = []
        for context_length, rows in SHAPES:
            shape = f"{rows} x {context_length}"
            for packing in PACKINGS:
                order, took = timed_order(frozen, context_length, rows, packing)
                found = order.waste()
                made.append((packing, shape, f"{took:.2f}", f"{found.rows:,}", f"{found.cropped_tokens:.1%}"))
                turns[packing, shape] = drawer(order)
            turns["first version", shape] = searched(frozen, context_length, rows)
        update = stepper(arm, torch.device("cpu"), experiment.execution.declared_rows)
        seconds: dict[tuple[str, str], list[float]] = {name: [] for name in turns}
        updates: list[float] = []
        for number in track(range(arguments.turns + 2), "turns", transient=True):
            drawn = {name: turn() for name, turn in turns.items()}
            step = update().wall_seconds
            if number >= 2:  # the first turns warm caches
                updates.append(step)
                for name, value in drawn.items():
                    seconds[name].append(value)
    title = f"the order of {arguments.documents:,} documents"
    console.print(table(title, ("packing", "batch", "made in, s", "rows", "cropped"), made, right=(2, 3, 4)))
    tokens = arm.base.batch_tokens
    rows_of_table = [
        (
            packing,
            shape,
            f"{1e6 * median(found):,.0f}",
            f"{1e6 * min(found):,.0f}",
            f"{median(a / b for a, b in zip(updates, found, strict=True)):.0f}",
        )
        for (packing, shape), found in seconds.items()
    ]
    title = f"a batch; an update of {tokens:,} tokens: {1e3 * median(updates):.1f} ms, fastest {1e3 * min(updates):.1f}"
    columns = ("packing", "batch", "us, median", "us, fastest", "batches in the time of an update")
    console.print(table(title, columns, rows_of_table, right=(2, 3, 4)))


def timed_order(frozen: FrozenCorpus, context_length: int, rows: int, packing: Packing) -> tuple[Order, float]:
    started = time.perf_counter()
    order = Order(frozen, context_length, rows, study="bench", scale="S", seed=0, packing=packing)
    return order, time.perf_counter() - started


if __name__ == "__main__":
    main()
