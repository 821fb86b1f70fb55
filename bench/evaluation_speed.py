"""Seconds for whole tasks of CORE, and how near they come to what the tokens cost that cannot be shared.

    python bench/evaluation_speed.py MODEL BUNDLE [--tasks arc_easy piqa lambada_openai] [--items N] [--threads 2]

MODEL is a folder of a Llama decoder, such as ../shared/data/models/stories260K, BUNDLE one of the CORE bundle. The
bound is (tokens that are left when prefixes are shared) / (tokens per second of a plain forward pass over full batches
of the same lengths, with logits at every place). Every few batches such a pass over rows of the batch's prefix length
is made in between, while the clock of the evaluation stands still, so that what else runs on the machine meets both
alike. Printed for each task: items, tokens without and with sharing, seconds of preparing the items and of asking them,
and the bound's share of the latter by wall clock and by processor time.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from rich.progress import track

from paribus.downstream.core.bundle import read_bundle
from paribus.downstream.core.items import core_items, count_items
from paribus.downstream.core.settings import CoreSettings
from paribus.downstream.items import Item
from paribus.interop.llama import import_llama
from paribus.measure.answers import BATCH_TOKENS, LOGITS_AT_ONCE, answer
from paribus.measure.answers_plan import Unit, batches_of, inputs, units_of
from paribus.seeds import generator
from paribus.trained import Trained, open_model

Seconds = np.ndarray  # wall clock, processor


def now() -> Seconds:
    return np.array([time.perf_counter(), time.process_time()])


class Turns:
    """Plain passes in between, and the time that they took."""

    def __init__(self, trained: Trained, batches: list[list[Unit]], every: int) -> None:
        self.model, self.batches, self.every = trained.model, batches, every
        self.batch = self.tokens = 0
        self.plain, self.aside = np.zeros(2), np.zeros(2)
        self.draw = generator("evaluation speed")

    def __call__(self, finished: int) -> None:
        """After each batch, and once before the first."""
        del finished
        started = now()
        if self.batch < len(self.batches) and self.batch % self.every == 0:
            units = self.batches[self.batch]
            shape = (max(1, BATCH_TOKENS // units[0].prefix), units[0].prefix)
            rows = torch.from_numpy(self.draw.integers(3, self.model.config.vocabulary_size, shape))
            plain = now()
            self.model(rows, torch.zeros_like(rows))
            self.plain += now() - plain
            self.tokens += rows.numel()
        self.batch += 1
        self.aside += now() - started


def timed(trained: Trained, items: list[Item], every: int) -> tuple[int, int, Seconds, Seconds]:
    """Inputs of all rows, tokens with sharing, seconds of the evaluation, and the share of the bound."""
    asked = [item for item in items if not item.problem]
    units = [unit for place, item in enumerate(asked) for unit in units_of(place, item)]
    most = LOGITS_AT_ONCE // trained.model.config.vocabulary_size
    turns = Turns(trained, list(batches_of(units, BATCH_TOKENS, most)), every)
    started = now()
    list(answer(trained.model, items, trained.tokenizer.decode, progress=turns))
    took = now() - started - turns.aside
    tokens = sum(unit.tokens for unit in units)
    bound = tokens * turns.plain / turns.tokens
    return sum(inputs(row) for item in asked for row in item.rows), tokens, took, bound / took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--list-file", default="core.yaml")
    parser.add_argument("--tasks", nargs="+", default=["arc_easy", "piqa", "lambada_openai"])
    parser.add_argument("--items", type=int, default=None, help="of each task; default: all")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--every", type=int, default=8, help="batches from one plain pass to the next")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    settings = CoreSettings(max_items=options.items)
    with tempfile.TemporaryDirectory() as place:
        import_llama(options.model, to=Path(place) / "model")
        trained = open_model(Path(place) / "model")
    length = trained.model.config.context_length
    tasks = {task.label: task for task in read_bundle(options.bundle, options.list_file).tasks}
    print(
        f"{'task':16} {'items':>6} {'unshared':>9} {'tokens':>9} {'prepare s':>9} {'ask s':>7} {'wall':>6} {'cpu':>6}"
    )
    spent = 0.0
    for name in options.tasks:
        started = time.perf_counter()
        made = core_items(tasks[name], trained.tokenizer, context_length=length, settings=settings)
        items = list(track(made, description=name, total=count_items(tasks[name], settings), transient=True))
        prepared = time.perf_counter() - started
        unshared, tokens, took, share = timed(trained, items, options.every)
        spent += prepared + took[0]
        numbers = f"{unshared:9,} {tokens:9,} {prepared:9.1f} {took[0]:7.1f} {share[0]:6.2f} {share[1]:6.2f}"
        print(f"{name:16} {len(items):6,} {numbers}", flush=True)
    print(f"{spent:.0f} seconds together, {options.threads} threads")


if __name__ == "__main__":
    main()
