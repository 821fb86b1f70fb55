"""Depth reads and exclusions side by side: paribus, plain PyTorch, and other packages where they are installed.

    python bench/peers/table.py
    python bench/peers/table.py --device cuda --rounds 100

Every way of computing a mechanism gets the same tensors. First its outputs and gradients are compared with the float64
reference; a way that computes something else is timed all the same, and called that. Then all take turns, in an order
that is drawn for every round; `paribus` takes part twice, and what it shows against itself (A/A) these rounds cannot
resolve. Times are medians over rounds, ratios are medians of the ratio to paribus within a round. Compilation is over
before the first turn. Packages are installed by name, each by itself: `pip install attn-res x-transformers`.
"""

import argparse
import importlib.metadata
import importlib.util
import math
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import depth_reads
import exclusions
import numpy as np
import torch
from problems import (
    CHECKED,
    GROUP,
    HEAD_WIDTH,
    QUERIES,
    SOURCES,
    Deviation,
    Peer,
    Problem,
    Reference,
    Solver,
    clear,
    depth_problem,
    exclusion_problem,
)
from rich.console import Console
from rich.progress import track

from paribus.errors import ParibusError
from paribus.kernels import compiler
from paribus.sample_update import wait_for
from paribus.seeds import generator
from paribus.terminal import bytes_in_words, table

WIDTHS = (128, 768)
DTYPES = (torch.float32, torch.bfloat16)
MECHANISMS = ((depth_problem, depth_reads.PEERS), (exclusion_problem, exclusions.PEERS))
AGAIN = "paribus again (A/A)"
SAME = {torch.float32: 1e-4, torch.bfloat16: 0.05}
"""relative deviation up to which a way computes the same: rounding, in bfloat16 of scores and their gradient too"""
CONSOLE = Console() if sys.stdout.isatty() else Console(width=185)
WARM_UP = 2
"""turns of each that are not counted"""
COLUMNS = (
    "",
    "output off",
    "gradients off",
    "forward",
    "and backward",
    "/ paribus",
    "/ paribus",
    "kept",
    "compiled in",
)
UNITS = ("", "", "", "ms", "ms", "forward", "and backward", "for backward", "in s")


@dataclass
class Entry:
    """One way of computing one problem, and what was found."""

    peer: Peer
    solve: Solver
    deviation: Deviation
    kept_bytes: int
    compile_seconds: float | None
    forward: list[float] = field(default_factory=list)
    """seconds, a turn each"""
    both: list[float] = field(default_factory=list)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--tokens", type=int, help="2048 on a CPU, 65536 on a GPU")
    parser.add_argument("--no-compile", action="store_true", help="without torch.compile, whose first calls take long")
    arguments = parser.parse_args()
    tokens = arguments.tokens if arguments.tokens is not None else {"cpu": 2048, "cuda": 65536}[arguments.device]
    try:
        # An earlier run's compiled graphs would hide what compiling takes.
        with tempfile.TemporaryDirectory() as folder:
            os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
            measure(torch.device(arguments.device), arguments.rounds, tokens, compiling=not arguments.no_compile)
    except ParibusError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)


def measure(device: torch.device, rounds: int, tokens: int, *, compiling: bool) -> None:
    if rounds < 1 or tokens < 1:
        raise ParibusError(
            "nothing to measure",
            expected="at least one round and one token",
            received=f"--rounds {rounds} --tokens {tokens}",
            remedy="leave both out for the defaults",
        )
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ParibusError(
            "there is no GPU to measure on",
            expected="a GPU that this build of torch sees, for --device cuda",
            received=f"torch {torch.__version__}, which sees none",
            remedy="leave --device out, or install a build of torch for the GPU",
        )
    if compiling:
        _load_compiler(device)
    rows: list[Sequence[str]] = [(*UNITS, "")]
    for problem_of, peers in MECHANISMS:
        found, missing = _installed(peers, device)
        if not compiling:
            found = [peer for peer in found if not peer.compiles]
        for width in WIDTHS:
            for dtype in DTYPES:
                problem = problem_of(width, dtype, tokens, device)
                rows += [(f"[bold]{problem}[/]", *[""] * len(COLUMNS)), *_rows_of(problem, found, rounds, device)]
        rows += [(peer.name, *[""] * (len(COLUMNS) - 1), why) for peer, why in missing]
    title = (
        f"{device.type}, {torch.get_num_threads()} threads, torch {torch.__version__}, {compiler.in_use()}; "
        f"{tokens:,} tokens, {SOURCES} sources, {QUERIES} queries; heads of {HEAD_WIDTH}, {GROUP} to a value; "
        f"{rounds} rounds; deviations on {min(tokens, CHECKED)} tokens"
    )
    CONSOLE.print(table(title, (*COLUMNS, ""), rows, right=range(1, len(COLUMNS))))
    for problem_of, peers in MECHANISMS:
        name = problem_of.__name__.replace("depth_problem", "depth_read").replace("exclusion_problem", "exclude_self")
        CONSOLE.print(table(f"\nWhat each computes: {name}", ("", ""), [(p.name, p.computes) for p in peers]))


def _load_compiler(device: torch.device) -> None:
    """The first compilation of a process loads torch's compiler; that is nobody's own."""
    with suppress(Exception):  # where it fails, it fails again for those that need it, and their lines say how
        torch.compile(torch.exp, dynamic=False)(torch.ones(1, device=device))


def _installed(peers: Iterable[Peer], device: torch.device) -> tuple[list[Peer], list[tuple[Peer, str]]]:
    """Those that can be measured here, with the version of their package; and the others, with the reason."""
    found, missing = [], []
    for peer in peers:
        if peer.on_gpu is False and device.type == "cuda":
            continue
        if peer.on_gpu and device.type == "cpu":
            missing.append((peer, "needs a GPU: not measured"))
        elif peer.module and importlib.util.find_spec(peer.module) is None:
            missing.append((peer, f"not installed: pip install {peer.package}"))
        elif peer.module:
            version = importlib.metadata.version(peer.package)
            found.append(replace(peer, name=f"{peer.name} {version}"))
        else:
            found.append(peer)
    return found, missing


def _rows_of(problem: Problem, peers: Sequence[Peer], rounds: int, device: torch.device) -> list[Sequence[str]]:
    reference = Reference(problem)
    torch.compiler.reset()
    entries, refused = [], []
    for peer in track(
        peers, f"{problem}: against the reference", transient=True, console=CONSOLE, disable=not CONSOLE.is_terminal
    ):
        why = _refuses(peer, problem)
        if not why:
            try:
                entries.append(_entry(peer, problem, reference))
            except Exception as error:
                if not (peer.package or peer.compiles):
                    raise
                # Whatever goes wrong in another's package or compiler is a line of the table.
                why = f"not measured: {type(error).__name__}: {' '.join(str(error).split())[:200]}"
        if why:
            refused.append((f"  {peer.name}", *[""] * (len(COLUMNS) - 1), why))
    entries.insert(1, replace(entries[0], peer=replace(entries[0].peer, name=AGAIN), forward=[], both=[]))
    _take_turns(problem, entries, rounds, device)
    return [*(_row(entry, entries, problem.dtype) for entry in entries), *refused]


def _refuses(peer: Peer, problem: Problem) -> str:
    if problem.dtype not in peer.dtypes:
        only = ", ".join(str(dtype).removeprefix("torch.") for dtype in peer.dtypes)
        return f"not measured: {only} alone"
    if peer.power_of_two and problem.width & (problem.width - 1):
        return "not measured: the width is no power of two"
    return ""


def _entry(peer: Peer, problem: Problem, reference: Reference) -> Entry:
    with peer.within():
        started = time.perf_counter()
        solve = peer.prepare(problem)
        if peer.compiles:
            torch.autograd.backward(list(solve()), problem.upstream)
        compiled_in = time.perf_counter() - started if peer.compiles else None
        return Entry(peer, solve, reference.deviation(solve), _kept_bytes(problem, solve), compiled_in)


def _kept_bytes(problem: Problem, solve: Solver) -> int:
    """Bytes of the distinct tensors that are kept for backward beyond the problem's own, which others hold anyway."""
    given = {t.untyped_storage().data_ptr() for t in problem.inputs.values()}
    kept: dict[int, int] = {}

    def keep(t: torch.Tensor) -> torch.Tensor:
        storage = t.untyped_storage()
        if storage.data_ptr() not in given:
            kept[storage.data_ptr()] = storage.nbytes()
        return t

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        outputs = solve()  # while it is there, nothing that is kept is freed and no address comes twice
    del outputs
    return sum(kept.values())


def _take_turns(problem: Problem, entries: Sequence[Entry], rounds: int, device: torch.device) -> None:
    order = generator("bench", "peers", "turns", str(problem))
    for number in track(
        range(-WARM_UP, rounds), f"{problem}: rounds", transient=True, console=CONSOLE, disable=not CONSOLE.is_terminal
    ):
        for index in order.permutation(len(entries)):
            entry = entries[index]
            forward, both = _turn(problem, entry, device)
            if number >= 0:
                entry.forward.append(forward)
                entry.both.append(both)


def _turn(problem: Problem, entry: Entry, device: torch.device) -> tuple[float, float]:
    """Seconds of a forward pass that keeps its graph, and of that and the backward pass."""
    clear(problem)
    with entry.peer.within():
        wait_for(device)
        started = time.perf_counter()
        outputs = entry.solve()
        wait_for(device)
        between = time.perf_counter()
        torch.autograd.backward(list(outputs), problem.upstream)
        wait_for(device)
        return between - started, time.perf_counter() - started


def _row(entry: Entry, entries: Sequence[Entry], dtype: torch.dtype) -> Sequence[str]:
    ours, again = entries[0], entries[1]
    compiled_in = "" if entry.compile_seconds is None else f"{entry.compile_seconds:.1f}"
    same = entry.deviation.outputs <= SAME[dtype] and entry.deviation.gradients <= SAME[dtype]
    remarks = [] if same else ["computes something else"]
    if entry not in (ours, again):
        passes = (("forward", entry.forward, ours.forward, again.forward), ("both", entry.both, ours.both, again.both))
        faster = [name for name, times, base, twin in passes if _faster(times, base, twin)]
        remarks += [f"faster than paribus: {', '.join(faster)}"] if faster else []
    return (
        f"  {entry.peer.name}",
        f"{entry.deviation.outputs:.0e}",
        f"{entry.deviation.gradients:.0e}",
        _milliseconds(entry.forward),
        _milliseconds(entry.both),
        f"{_ratio(entry.forward, ours.forward):.2f}",
        f"{_ratio(entry.both, ours.both):.2f}",
        bytes_in_words(entry.kept_bytes),
        compiled_in,
        "; ".join(remarks),
    )


def _ratio(times: Sequence[float], base: Sequence[float]) -> float:
    return float(np.median(np.array(times) / base))


def _faster(times: Sequence[float], base: Sequence[float], twin: Sequence[float]) -> bool:
    """In at least three rounds of four, and by more than two copies of the base differ."""
    upper = float(np.quantile(np.array(times) / base, 0.75))
    return upper < 1 and abs(math.log(_ratio(times, base))) > abs(math.log(_ratio(twin, base)))


def _milliseconds(times: Sequence[float]) -> str:
    middle = 1e3 * float(np.median(times))
    return f"{middle:,.0f}" if middle >= 100 else f"{middle:.3g}"


if __name__ == "__main__":
    main()
