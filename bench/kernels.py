"""How near reads and exclusion come to their byte floor: seconds over those of a plain copy of the same bytes.

    python bench/kernels.py [--tokens 4096] [--width 768] [--sources 2 5 9] [--queries 2] [--rounds 15] [--threads 2]

The floor is a copy on the same device that reads and writes, together, as many bytes as the work must: of a read, K
sources and M mixes, and behind them K sources, M upstream gradients and K gradients of sources, with or without a norm
behind the read; of exclusion y, v and z, and behind them y, v, the upstream gradient and the gradients of y and v. All
is float32; a head has 64 numbers and its own value. The compiled kernels (C, on CUDA Triton), PyTorch operators and a
second copy (A/A) take turns within a round, so that what else runs on the machine meets all of them alike; printed are
medians over rounds of the ratio to the first copy of the same round. The slow references, which go token by token, are
left out.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial

import torch
from rich.console import Console
from rich.progress import track
from torch import Tensor

from paribus.costing.allocator import keep_buffers
from paribus.kernels import compiler, passes
from paribus.kernels.depth_read import depth_read, publish
from paribus.kernels.exclude_self import exclude_self
from paribus.kernels.norm import Norm
from paribus.seeds import unit_noise
from paribus.terminal import table

HEAD_WIDTH = 64
Work = Callable[[], object]


def noise(device: str, name: str, *shape: int) -> Tensor:
    return torch.from_numpy(unit_noise(shape, "bench", "kernels", name)).float().to(device)


def apart(t: Tensor) -> Tensor:
    """As sums that a model publishes lie in memory."""
    return passes.placed_apart(t.shape).copy_(t) if t.device.type == "cpu" else t


def copy_of(bytes_moved: int, device: str) -> Work:
    """Reads half of so many bytes and writes the other half."""
    source = torch.zeros(bytes_moved // 8, device=device)
    target = torch.zeros_like(source)
    return lambda: target.copy_(source)


def read(
    device: str, tokens: int, width: int, sources: int, queries: int, *, normed: bool = False
) -> tuple[Work, Work, int, int]:
    """(forward, forward and backward, bytes of either)"""
    values = [apart(noise(device, f"source {k}", 1, tokens, width)).requires_grad_() for k in range(sources)]
    keyed = (noise(device, "queries", queries, width) * width**-0.5).requires_grad_()
    gain = torch.ones(width, device=device, requires_grad=True)
    upstream = [noise(device, f"upstream {m}", 1, tokens, width) for m in range(queries)]
    norm = Norm(gain.detach().clone().requires_grad_(), 1e-6) if normed else None
    learned = [keyed, gain, *values, *([] if norm is None else [norm.gain])]
    published = [publish(value, 1e-6) for value in values]

    def forward() -> object:
        with torch.no_grad():
            return depth_read(published, keyed, gain, norm)

    def both() -> object:
        mixes, _ = depth_read(published, keyed, gain, norm)
        return torch.autograd.grad(mixes, learned, upstream, retain_graph=True)

    row = 4 * tokens * width
    return forward, both, row * (sources + queries), row * (3 * sources + 2 * queries)


def exclusion(device: str, tokens: int, width: int) -> tuple[Work, Work, int, int]:
    shape = (1, tokens, max(1, width // HEAD_WIDTH), 1, HEAD_WIDTH)
    y, v = (noise(device, name, *shape).requires_grad_() for name in ("y", "v"))
    upstream = noise(device, "upstream", *shape)

    def forward() -> object:
        with torch.no_grad():
            return exclude_self(y, v, 1.0)

    def both() -> object:
        return torch.autograd.grad(exclude_self(y, v, 1.0), (y, v), upstream)

    return forward, both, 3 * 4 * y.numel(), 8 * 4 * y.numel()


def seconds(work: Work, device: str) -> float:
    if device == "cpu":
        began = time.perf_counter()
        work()
        return time.perf_counter() - began
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    work()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1000


def over_floor(ways: dict[str, Work], bytes_moved: int, device: str, rounds: int) -> dict[str, float]:
    """Way -> the median over rounds of its seconds over those of the copy, each of which a round takes in turn."""
    copy = copy_of(bytes_moved, device)
    turns: dict[str, Work] = {"floor": copy, **ways, "A/A": copy}
    taken: dict[str, list[float]] = {name: [] for name in turns}
    for turn in range(rounds + 1):
        for name, work in turns.items():
            found = seconds(work, device)
            if turn:  # the first one warms up
                taken[name].append(found)
    floor = taken.pop("floor")
    ratios = {name: [a / b for a, b in zip(found, floor, strict=True)] for name, found in taken.items()}
    return {"floor, ms": 1000 * statistics.median(floor)} | {n: statistics.median(r) for n, r in ratios.items()}


def by_operators(work: Work) -> Work:
    def run() -> object:
        with compiler.operators():
            return work()

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--sources", type=int, nargs="+", default=[2, 5, 9])
    parser.add_argument("--queries", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    keep_buffers()
    last = asked.sources[-1]
    cases: list[tuple[str, Callable[..., tuple[Work, Work, int, int]], tuple[int, ...]]] = [
        *((f"read, {asked.queries} of {k}", read, (k, asked.queries)) for k in asked.sources),
        (f"read, {asked.queries} of {last}, and its norm", partial(read, normed=True), (last, asked.queries)),
        ("exclusion", exclusion, ()),
    ]
    rows = []
    for device in ("cpu", "cuda"):
        for name, case, sizes in track(cases, device, transient=True):
            if device == "cuda" and not torch.cuda.is_available():
                rows.append((device, name, "not measured", "", "", ""))
                continue
            forward, both, *floors = case(device, asked.tokens, asked.width, *sizes)
            for work, bytes_moved, which in zip((forward, both), floors, ("", " + backward"), strict=True):
                ways = {"kernels": work, "operators": by_operators(work)}
                found = over_floor(ways, bytes_moved, device, asked.rounds)
                rows.append((device, name + which, *(f"{number:.2f}" for number in found.values())))
    columns = ("device", "work", "floor, ms", "kernels", "operators", "A/A")
    title = f"time over floor; {asked.tokens} tokens of {asked.width}, {asked.threads} threads; {compiler.in_use()}"
    Console().print(table(title, columns, rows, right=(2, 3, 4, 5)))


if __name__ == "__main__":
    main()
