"""Tokens a second of the nanochat backbone on nanochat's own CPU recipe, beside what its matrix products alone allow.

    python bench/nanochat_speed.py [--rounds N] [--threads N] [--fast] [--nanochat CHECKOUT]

The recipe: depth 6, width 384, six heads of 64, every window the whole row, rows of 512 tokens, 32,768 token ids,
updates of 16,384 tokens, float32. Turns alternate: one update of ours; the products of its linear maps, both forward
and backward, and nothing else; where a checkout is named, one update of the original in a process of its own, which
prepares before the turns begin. Printed: tokens a second, and the share of the products' rate that each reaches, with
the original's own count of operations for a token. All of it runs with the allocator set as it is for training.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import torch
from rich.console import Console
from rich.progress import track

from paribus import mechanisms
from paribus.data.order import Batch
from paribus.launch.local import MALLOC_TUNABLES
from paribus.mechanisms.contract import Seam
from paribus.model.build import build_model
from paribus.model.config import NanochatConfig
from paribus.optim.config import OptimiserConfig
from paribus.optim.schedule import PEAK
from paribus.seeds import generator
from paribus.terminal import table
from paribus.train.state import TrainState
from paribus.train.step import update

ROW, UPDATE_TOKENS, VOCABULARY = 512, 16_384, 32_768
CONFIG = NanochatConfig(
    layers=6,
    width=384,
    head_width=64,
    mlp_width=1536,
    vocabulary_size=VOCABULARY,
    context_length=ROW,
    window_pattern="L",
)
LINEAR_MAPS = {
    "query, key, value, output": (4 * CONFIG.layers, CONFIG.width, CONFIG.width),
    "up": (CONFIG.layers, CONFIG.width, CONFIG.mlp_width),
    "down": (CONFIG.layers, CONFIG.mlp_width, CONFIG.width),
    "head": (1, CONFIG.width, VOCABULARY),
}
"""how many, features in, features out"""
OPERATIONS_PER_TOKEN = 6 * sum(
    count * features_in * features_out for count, features_in, features_out in LINEAR_MAPS.values()
) + 12 * (CONFIG.layers * CONFIG.width * ROW)
"""nanochat's count: six for each weight of a linear map, and attention over whole rows; gates are left out"""
ORIGINAL = """
import json, sys, time, torch
sys.path.insert(0, sys.argv[1])
torch.set_num_threads(int(sys.argv[2]))
from nanochat.gpt import GPT, GPTConfig
rows, micro = 32, int(sys.argv[3])
config = GPTConfig(sequence_len=512, vocab_size=32768, n_layer=6, n_head=6, n_kv_head=6, n_embd=384, window_pattern="L")
with torch.device("meta"):
    model = GPT(config)
model.to_empty(device="cpu")
model.init_weights()
optimizer = model.setup_optimizer()
draw = torch.Generator().manual_seed(0)
compiled = torch.compile(model, dynamic=False)
def one():
    for _ in range(rows // micro):
        x = torch.randint(32768, (micro, 513), generator=draw)
        (compiled(x[:, :-1].contiguous(), x[:, 1:].contiguous()) / (rows // micro)).backward()
    optimizer.step()
    model.zero_grad(set_to_none=True)
one()
print("ready", flush=True)
for _ in sys.stdin:
    started = time.perf_counter()
    one()
    print(json.dumps(time.perf_counter() - started), flush=True)
"""
"""an update of the original, timed whenever a line arrives"""


def ours(micro_batch_rows: int, fast: bool) -> Callable[[], float]:
    """A function that makes one update and returns its seconds."""
    identities = {seam: mechanisms.resolve(seam, None, str(seam)) for seam in Seam}
    model = build_model(CONFIG, identities, ("bench",))
    state = TrainState.fresh(model, OptimiserConfig())
    model.compiled = fast
    draw = generator("bench", "tokens")

    def turn() -> float:
        tokens = draw.integers(0, VOCABULARY, (UPDATE_TOKENS // ROW, ROW + 1))
        zeros = torch.zeros(len(tokens), ROW).numpy()
        batch = Batch(
            tokens[:, :-1].copy(), tokens[:, 1:].copy(), zeros + 1, zeros.astype("int32"), zeros.astype("int16")
        )
        started = time.perf_counter()
        update(state.model, state.optimisers, batch, state.step, PEAK, micro_batch_rows)
        state.step += 1
        return time.perf_counter() - started

    return turn


def products(micro_batch_rows: int) -> Callable[[], float]:
    """A function that multiplies what one update multiplies, and returns the seconds."""
    tokens = micro_batch_rows * ROW
    shapes = [
        (count, torch.randn(tokens, a), torch.randn(b, a), torch.randn(tokens, b))
        for count, a, b in LINEAR_MAPS.values()
    ]

    def turn() -> float:
        started = time.perf_counter()
        for _ in range(UPDATE_TOKENS // tokens):
            for count, x, weight, gradient in shapes:
                for _ in range(count):
                    torch.mm(x, weight.T)
                    torch.mm(gradient, weight)
                    torch.mm(gradient.T, x)
        return time.perf_counter() - started

    return turn


@contextlib.contextmanager
def original(checkout: Path, threads: int, micro_batch_rows: int) -> Iterator[Callable[[], float]]:
    """The same of a nanochat checkout, in a process of its own."""
    command = [sys.executable, "-c", ORIGINAL, str(checkout), str(threads), str(micro_batch_rows)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    for line in process.stdout:
        if line.strip() == "ready":
            break
    else:
        raise SystemExit("the checkout could not make an update; see its error above")

    def turn() -> float:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("go\n")
        process.stdin.flush()
        return float(json.loads(process.stdout.readline()))

    try:
        yield turn
    finally:
        process.stdin.close()
        process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--micro-batch-rows", type=int, default=4, help="rows of one forward pass")
    parser.add_argument("--fast", action="store_true", help="compile our model, as the original does with its own")
    parser.add_argument("--nanochat", type=Path, help="a checkout whose package nanochat can be imported here")
    given = parser.parse_args()
    if "GLIBC_TUNABLES" not in os.environ:  # read when a process starts
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "GLIBC_TUNABLES": MALLOC_TUNABLES})
    torch.set_num_threads(given.threads)
    turns = {
        "paribus": ours(given.micro_batch_rows, given.fast),
        "matrix products alone": products(given.micro_batch_rows),
    }
    seconds: dict[str, list[float]] = {}
    with contextlib.ExitStack() as stack:
        if given.nanochat is not None:
            turns["nanochat"] = stack.enter_context(original(given.nanochat, given.threads, given.micro_batch_rows))
        for turn in turns.values():
            turn()  # what is allocated or compiled the first time is not timed
        for _ in track(range(given.rounds), "rounds", transient=True):
            for name, turn in turns.items():
                seconds.setdefault(name, []).append(turn())
    weights = sum(count * a * b for count, a, b in LINEAR_MAPS.values())
    peak = 6 * weights * UPDATE_TOKENS / median(seconds["matrix products alone"])
    rows = []
    for name, taken in seconds.items():
        rate = UPDATE_TOKENS / median(taken)
        alone = name == "matrix products alone"
        share = 1.0 if alone else rate * OPERATIONS_PER_TOKEN / peak
        rows.append((name, f"{rate:,.0f}", f"{UPDATE_TOKENS / min(taken):,.0f}", f"{share:.2f}"))
    console = Console()
    columns = ("", "tokens/s, median", "fastest", "share of the products' rate")
    console.print(table(f"{given.threads} threads, {peak / 1e9:.0f} GFLOP/s", columns, rows, right=range(1, 4)))


if __name__ == "__main__":
    main()
