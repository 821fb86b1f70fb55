"""The command line of the faults: what is done how often, how far it is, and the table."""

import argparse
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from tests.faults import drains, flips, kills, power, space
from tests.faults.scene import Advance, Row, Scene, Server, build, scratch

SHARES = {"evaluation": 0.15, "preparation": 0.15, "checkpointing": 0.25, "files": 0.10, "run": 0.05}
"""of all kills; the rest is training"""
HEAD = ("fault", "where", "tried", "survived", "seed", "seconds")


@dataclass(frozen=True)
class Amounts:
    """How often each part is done."""

    kills: int = 200
    flips: int = 1000
    resumes: int = 10
    """bytes that stay changed, in a cell that is then trained to its end"""
    full_disks: int = 50
    queues: int = 3
    stops: int = 10
    power_losses: int = 100


PARTS = ("kills", "flips", "full-disks", "queues", "stops", "power-losses")


def do(part: str, amounts: Amounts, seed: int, base: Scene, advance: Advance) -> Iterator[Row]:
    """One of PARTS, on the scene or on one like it."""
    server = base.server
    match part:
        case "kills":
            yield from _kills(base, amounts.kills, seed, advance)
        case "flips":
            found = flips.flip_bytes(base, amounts.flips, seed, advance)
            yield from found
            yield flips.resume_damaged(base, amounts.resumes, seed, advance)
        case "full-disks":
            yield from space.full_disks(base, amounts.full_disks, seed, advance)
        case "queues":
            scene = build(base.home / "queues", server, seeds=8, updates=30)
            yield drains.drain(scene, amounts.queues, seed, advance)
        case "stops":
            lease = f"lease_seconds = {drains.LEASE_SECONDS}"
            scene = build(base.home / "stops", server, execution=lease)
            yield drains.freeze(scene, amounts.stops, seed, advance)
        case _:
            yield power.power_losses(base, amounts.power_losses, seed, advance)


def _kills(base: Scene, count: int, seed: int, advance: Advance) -> Iterator[Row]:
    of = {name: round(count * share) for name, share in SHARES.items()}
    training = count - sum(of.values())
    parts: list[tuple[int, Callable[[int], Row]]] = [
        (training, lambda n: kills.kill_training(base, n, seed, advance)),
        (of["checkpointing"], lambda n: kills.kill_writing(base, n, seed, advance, "checkpoints", "checkpointing")),
        (of["files"], lambda n: kills.kill_writing(base, n, seed, advance, "", "any write of a cell")),
        (of["evaluation"], lambda n: kills.kill_evaluation(base, n, seed, advance)),
        (of["preparation"], lambda n: kills.kill_preparation(base.home, base.home / "corpus", n, seed, advance)),
        (of["run"], lambda n: kills.kill_run(base, n, seed, advance)),
    ]
    yield from (part(number) for number, part in parts if number)


def _total(part: str, amounts: Amounts) -> int:
    return {
        "kills": amounts.kills,
        "flips": amounts.flips + amounts.resumes,
        "full-disks": amounts.full_disks,
        "queues": amounts.queues,
        "stops": amounts.stops,
        "power-losses": amounts.power_losses,
    }[part]


def table(rows: Sequence[Row], seed: int) -> str:
    """Aligned Markdown, and below it what else was counted."""
    lines = [
        (row.fault, row.where, f"{row.tried} {row.unit}", str(row.survived), str(seed), f"{row.seconds:.0f}")
        if not row.skipped
        else (row.fault, row.where, "skipped", "", str(seed), "")
        for row in rows
    ]
    widths = [max(len(line[column]) for line in (HEAD, *lines)) for column in range(len(HEAD))]
    text = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |"
        for line in (HEAD, *lines)
    ]
    text.insert(1, "| " + " | ".join("-" * width for width in widths) + " |")
    for row in rows:
        counted = ", ".join(f"{what} {count}" for what, count in sorted(row.notes.items()))
        if row.skipped or counted:
            text.append(f"\n{row.fault}, {row.where}: {row.skipped or counted}.")
    text.append("\nNot tested: NFS; a disk that says it has written what it has not.")
    return "\n".join(text)


def in_words(row: Row) -> str:
    """As it is said when it is done."""
    return f"{row.fault}, {row.where}: {row.skipped or f'{row.survived} of {row.tried} {row.unit} survived'}"


def main(description: str | None) -> int:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    for name, number in vars(Amounts()).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=number)
    parser.add_argument("--only", choices=PARTS, action="append", help="this part; may be repeated")
    arguments = parser.parse_args()
    amounts = Amounts(**{name: getattr(arguments, name) for name in vars(Amounts())})
    console = Console(stderr=True)
    home = scratch()
    server = Server()
    begun: dict[int, Row] = {}
    stopped = False
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    try:
        base = build(home / "base", server)
        with Progress(*columns, console=console) as progress:
            for part in arguments.only or PARTS:
                task = progress.add_task(part, total=_total(part, amounts))

                def advance(row: Row, task: TaskID = task) -> None:
                    begun[id(row)] = row
                    progress.advance(task)

                for row in do(part, amounts, arguments.seed, base, advance):
                    begun[id(row)] = row
                    progress.console.print(in_words(row), highlight=False, markup=False)
    except KeyboardInterrupt:
        console.print("stopped: this is what was done until then")
        stopped = True
    finally:
        server.end()
    Console(soft_wrap=True, width=400).print(table(list(begun.values()), arguments.seed), highlight=False, markup=False)
    lost = [what for row in begun.values() for what in row.lost]
    for what in lost:
        console.print(f"LOST: {what}", highlight=False, markup=False, soft_wrap=True)
    if lost:
        console.print(f"kept for you: {home}")
        return 1
    shutil.rmtree(home, ignore_errors=stopped)
    return 130 if stopped else 0
