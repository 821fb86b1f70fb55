"""How much of what its matrix products alone would allow an update reaches, in proof and in fast mode.

    python bench/matmul_share.py experiments/demo.toml [--scale tiny] [--arm standard] [--threads 1] [--rounds 21]

The products are those of every linear map of the arm, forwards and twice backwards, at the shapes of its micro-batches
and in its type, and nothing else; their FLOP/s is this machine's matmul rate for the arm. An update's FLOP/s counts the
arm's own closed form (`paribus plan`: linear maps, and attention over the positions that a token may read), over the
whole update, optimisers included. Updates and products take turns within a round; printed are medians over rounds.
"""

import argparse
import statistics
import time
from collections import Counter
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import track
from torch import Tensor, nn

from paribus.costing.allocator import keep_buffers
from paribus.experiment import loading
from paribus.experiment.plan import device_of, resolve_arm
from paribus.roles import Role, declarations
from paribus.sample_update import Step, stepper, wait_for
from paribus.study import prepare_process
from paribus.terminal import table

FLOPS_OF_A_MULTIPLICATION = 2


def linear_maps(model: nn.Module) -> Counter[tuple[int, int]]:
    """How many of each (features out, features in): matrices, and the head, tied or not."""
    found: Counter[tuple[int, int]] = Counter()
    roles = {name: declaration.role for name, declaration in declarations(model).items()}
    head = Role.HEAD if Role.HEAD in roles.values() else Role.EMBEDDING
    for name, parameter in model.named_parameters():
        if roles[name] in (Role.MATRIX, head) and parameter.ndim == 2:
            found[parameter.shape[0], parameter.shape[1]] += 1
    return found


def products(maps: Counter[tuple[int, int]], tokens: int, times: int, dtype: torch.dtype, device: torch.device) -> Step:
    """Multiplies what one update multiplies."""

    def noise(*shape: int) -> Tensor:
        return torch.ones(shape, dtype=dtype, device=device)

    shapes = [(count, noise(tokens, wide), noise(out, wide), noise(tokens, out)) for (out, wide), count in maps.items()]

    def step() -> None:
        for _ in range(times):
            for count, x, weight, gradient in shapes:
                for _ in range(count):
                    torch.mm(x, weight.T)
                    torch.mm(gradient, weight)
                    torch.mm(gradient.T, x)
        wait_for(device)

    return step


def seconds(step: Step) -> float:
    started = time.perf_counter()
    step()
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--scale", help="by default the first")
    parser.add_argument("--arm", help="by default the first")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=21)
    given = parser.parse_args()
    experiment = loading.load(given.file)
    execution = experiment.execution.model_copy(update={"threads": given.threads})
    prepare_process(execution)
    keep_buffers()
    scale, name = given.scale or next(iter(experiment.scales)), given.arm or next(iter(experiment.arms))
    arm, device = resolve_arm(experiment, name, scale), torch.device(device_of(execution))
    tokens = execution.declared_rows * arm.base.context_length or arm.base.batch_tokens
    fast = stepper(arm, device, execution.declared_rows, compiled=True)
    maps = linear_maps(fast.model)
    dtype = torch.bfloat16 if arm.model.compute == "bfloat16" else torch.float32
    turns = {
        "matrix products alone": products(maps, tokens, arm.base.batch_tokens // tokens, dtype, device),
        "proof mode": stepper(arm, device, execution.declared_rows),
        "fast mode": fast,
    }
    for step in turns.values():
        step()
        step()
    found: dict[str, list[float]] = {what: [] for what in turns}
    for _ in track(range(given.rounds), "rounds", transient=True):
        for what, step in turns.items():
            found[what].append(seconds(step))
    of_products = sum(3 * FLOPS_OF_A_MULTIPLICATION * count * a * b for (a, b), count in maps.items())
    flops = dict.fromkeys(turns, arm.training_flops_per_token) | {"matrix products alone": of_products}
    rate = {what: flops[what] * arm.base.batch_tokens / statistics.median(times) for what, times in found.items()}
    rows = [
        (
            what,
            f"{arm.base.batch_tokens / statistics.median(times):,.0f}",
            f"{rate[what] / 1e9:.1f}",
            f"{rate[what] / rate['matrix products alone']:.2f}",
        )
        for what, times in found.items()
    ]
    console = Console()
    title = f"{scale}/{name}, {given.threads} threads, {dtype}, {device}"
    columns = ("update of", "tokens/s", "GFLOP/s", "of the products' rate")
    console.print(table(title, columns, rows, right=(1, 2, 3)))
    listed = ", ".join(f"{count} x [{tokens} {wide}] @ [{wide} {out}]" for (out, wide), count in maps.items())
    console.print(f"products: {listed}, and two more for the gradients of each", highlight=False)


if __name__ == "__main__":
    main()
