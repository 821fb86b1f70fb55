"""A measurement of updates in the terminal and as JSON: the A/A intervals first, and no claim within them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console

from paribus.costing.running import widest
from paribus.costing.ways import WAYS
from paribus.reading.times import (
    TimeRatio,
    against_themselves,
    compared,
    median_seconds,
    shares_of_parts,
    tokens_per_second,
)
from paribus.stats.rounding import MISSING
from paribus.stats.step_ratio import FEWEST_BLOCKS, TURNS_OF_A_BLOCK, StepRatio
from paribus.terminal import table

SHARED_BELOW = 0.9
"""CPU time over wall time of an update on a CPU, where one thread that nobody disturbs has 1"""


def show(record: Mapping[str, Any], scale: str, console: Console, target: float | None = None) -> None:
    """Tables and sentences of one scale."""
    rounds = len(next(iter(record["wall_seconds"].values())))
    where = f"Scale {scale}: {rounds} rounds in {rounds // TURNS_OF_A_BLOCK} mirrored blocks on {record['host']}"
    console.print(where, style="bold", highlight=False, markup=False, soft_wrap=True)
    for times in _times(record, target):
        console.print()
        console.print(times)
    console.print()
    for line in (*sentences(record, rounds), *([] if target is None else [_judged(record, target)])):
        console.print(line, highlight=False, markup=False)
    plain = [name for name, column in record["columns"].items() if not column["again"]]
    console.print()
    console.print(_updates(record, plain))
    for way in record["ways"]:
        console.print()
        console.print(_parts(record, way, [name for name in plain if record["columns"][name]["way"] == way]))
    for way in record["ways"]:
        if way in WAYS:
            console.print(f"{way}: {WAYS[way].sentence}", highlight=False, markup=False, style="dim")


def as_json(record: Mapping[str, Any], target: float | None = None) -> dict[str, Any]:
    """The record, with what follows from it."""
    told = {
        "against_themselves": [_told(found, None) for found in against_themselves(record)],
        "compared": [_told(found, target) for found in compared(record)],
        "tokens_per_second": {name: tokens_per_second(record, name) for name in record["parts"]},
        "shares": {name: shares_of_parts(record, name) for name in record["parts"]},
    }
    return {**record, "read": told}


def misses(record: Mapping[str, Any], target: float) -> list[str]:
    """Comparisons that do not meet the target, by treatment and baseline."""
    return [_title(record, found) for found in compared(record) if not found.wall.meets(target)]


def sentences(record: Mapping[str, Any], rounds: int) -> Iterator[str]:
    """Whether the intervals are as narrow as was asked for, and what disturbed the measurement."""
    asked, width, narrower = record.get("resolution"), widest(record), widest(record, "cpu")
    of = f"±{width:.2%} of wall time" + (f", ±{narrower:.2%} of CPU time" if narrower < float("inf") else "")
    if rounds < TURNS_OF_A_BLOCK * FEWEST_BLOCKS:
        yield f"{rounds} rounds: no interval below {TURNS_OF_A_BLOCK * FEWEST_BLOCKS}, so nothing is claimed."
    elif not asked:
        yield f"All {rounds} rounds that were asked for; the widest interval is {of}."
    elif width <= asked:
        yield f"Resolution {asked:.2%} reached in {rounds} rounds: the widest interval is {of}."
    else:
        yield (
            f"Resolution {asked:.2%} NOT reached in {rounds} rounds, the most that were asked for: the widest interval "
            f"is {of}. More rounds or a quieter machine would narrow it."
        )
    columns = record["wall_seconds"]
    busy = sum(median_seconds(record, name, "cpu_seconds") for name in columns)
    share = busy / sum(median_seconds(record, name) for name in columns)
    if record["parts_in"] != "wall time" and share < SHARED_BELOW:  # beside a GPU the processor waits
        yield f"The processor was at work for {share:.0%} of the wall time: others share this machine."
    for found in (*against_themselves(record), *compared(record)):
        for kind, ratio in (("wall", found.wall), ("CPU", found.cpu)):
            for note in ratio.notes:
                yield f"{_title(record, found)}, {kind} time: {note}."


def _times(record: Mapping[str, Any], target: float | None) -> Iterator[Any]:
    """A table for each way, then one of each way against the first. A baseline against itself stands before what is
    compared with it."""
    same = {found.baseline: found for found in against_themselves(record)}
    ordered: list[TimeRatio] = []
    for found in compared(record):
        if found.baseline in same:
            ordered.append(same.pop(found.baseline))
        ordered.append(found)
    ordered += same.values()
    tables: dict[str, list[tuple[str, ...]]] = {}
    for found in ordered:
        treatment, baseline = record["columns"][found.treatment], record["columns"][found.baseline]
        across = treatment["way"] != baseline["way"]
        title = f"{treatment['way']} against {baseline['way']}" if across else treatment["way"]
        rows = tables.setdefault(title, [])
        is_same = record["columns"][found.treatment]["again"]
        judged = [] if target is None else ["" if is_same else "met" if found.wall.meets(target) else "not met"]
        rows.append(
            (
                treatment["arm"] if across else f"{treatment['arm']} / {baseline['arm']}",
                *_numbers(found.wall),
                *_numbers(found.cpu),
                "A/A" if is_same else found.wall.reading.value,
                *judged,
            )
        )
    columns = ["update of", "wall time", "95 %", "CPU time", "95 %", "wall time is"]
    columns += [] if target is None else [f"target {target:g}"]
    yield from (table(title, columns, rows, right=(1, 2, 3, 4)) for title, rows in tables.items())


def _updates(record: Mapping[str, Any], plain: Sequence[str]) -> Any:
    rows = [
        (
            _arm(record, name),
            f"{tokens_per_second(record, name):,.0f}",
            f"{1e3 * median_seconds(record, name):,.1f}",
            f"{1e3 * median_seconds(record, name, 'cpu_seconds'):,.1f}",
            f"{record['bytes_for_backward'][name] / 2**20:,.1f}",
            f"{record['peak_bytes'][name] / 2**20:,.1f}",
        )
        for name in plain
    ]
    columns = ("arm", "tokens/s", "wall ms", "CPU ms", "MiB kept for backward", "MiB at the peak")
    return table("An update", columns, rows, right=(1, 2, 3, 4, 5))


def _parts(record: Mapping[str, Any], way: str, plain: Sequence[str]) -> Any:
    shares = {name: shares_of_parts(record, name) for name in plain}
    parts = dict.fromkeys(part for of in shares.values() for part in of)
    rows = [(part, *(f"{100 * of[part]:.1f}" if part in of else "" for of in shares.values())) for part in parts]
    columns = ("% of an update", *(record["columns"][name]["arm"] for name in plain))
    return table(
        f"{way}: share of the step by part ({record['parts_in']} of further updates)",
        columns,
        rows,
        right=range(1, len(columns)),
    )


def _numbers(ratio: StepRatio) -> tuple[str, str]:
    if (bounds := ratio.interval()) is None:
        return MISSING, MISSING
    return f"{ratio.ratio:.3f}", f"{bounds[0]:.3f}\N{EN DASH}{bounds[1]:.3f}"


def _arm(record: Mapping[str, Any], name: str) -> str:
    column = record["columns"][name]
    return f"{column['arm']}, {column['way']}"


def _title(record: Mapping[str, Any], found: TimeRatio) -> str:
    """Treatment over baseline; the way once where they share it."""
    treatment, baseline = record["columns"][found.treatment], record["columns"][found.baseline]
    if treatment["way"] == baseline["way"]:
        return f"{treatment['arm']} / {baseline['arm']}, {baseline['way']}"
    return f"{treatment['arm']}, {treatment['way']} / {baseline['way']}"


def _judged(record: Mapping[str, Any], target: float) -> str:
    missed = misses(record, target)
    rule = "the upper end of its interval of wall time is at most the target plus half the A/A interval"
    said = f"not met by {', '.join(missed)}" if missed else "met by every comparison"
    return f"Target {target:g}: {said}. A ratio meets it when {rule}."


def _told(found: TimeRatio, target: float | None) -> dict[str, Any]:
    def numbers(ratio: StepRatio) -> dict[str, Any]:
        bounds = ratio.interval()
        return {
            "ratio": None if bounds is None else ratio.ratio,
            "interval": bounds,
            "reading": ratio.reading.value,
            "refusal": ratio.refusal,
            "notes": list(ratio.notes),
        }

    told = {
        "treatment": found.treatment,
        "baseline": found.baseline,
        "wall": numbers(found.wall),
        "cpu": numbers(found.cpu),
    }
    return told if target is None else {**told, "target": target, "met": found.wall.meets(target)}
