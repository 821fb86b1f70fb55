"""What an update of each arm costs here, measured against the other arms: one protocol for `run` and for `bench`.

Arms take turns in mirrored blocks (`paribus.costing.blocks`) within one process, and every baseline takes part twice:
what it shows against itself (A/A) is what the machine cannot resolve. Warm-up, compilation, memory and the parts of an
update are other updates than those that are timed. A measurement belongs to one host and one state of the code; it is
repeated when either is another one, and nothing is ever put together from two machines.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from rich.console import Console

from paribus.costing.allocator import keep_buffers
from paribus.costing.blocks import Turns, orders
from paribus.costing.parts import clock_of, measured_parts
from paribus.costing.ways import Way, ways_of
from paribus.data.progress import Advance
from paribus.errors import ParibusError, StudyFolderError, nearest
from paribus.experiment import spec
from paribus.experiment.code import code_digest
from paribus.experiment.plan import ArmAtScale, device_of
from paribus.probing import frozen_rows
from paribus.reading.times import against_themselves, column_name, compared
from paribus.runs.environment import environment
from paribus.runs.layout import COST_FORMAT, cost_fault
from paribus.runs.study_folder import StudyFolder
from paribus.sample_update import SampleUpdate, bytes_for_backward, profiled_peak_bytes, stepper
from paribus.seeds import generator
from paribus.stats.step_ratio import FEWEST_BLOCKS, TURNS_OF_A_BLOCK
from paribus.study import prepare_process
from paribus.terminal import steps_of_preparation

DEFAULT_RESOLUTION = 0.01
DEFAULT_MOST_ROUNDS = 400
FEWEST_ROUNDS = TURNS_OF_A_BLOCK * FEWEST_BLOCKS
BATCH_BLOCKS = 10
"""between two looks at how wide the intervals are"""
FEWEST_BLOCKS_BEFORE_STOPPING = 20
"""of fewer the width is itself too uncertain to stop by"""
WARM_UP_BLOCKS = 2
"""first blocks that are not counted: caches fill, kernels are chosen and compiled"""

Arms = Mapping[str, ArmAtScale]
Pair = tuple[str, str]


@dataclass(frozen=True)
class Effort:
    """How long is measured."""

    most_rounds: int
    """turns of every column; an odd number is rounded up to whole blocks of two"""
    resolution: float | None = None
    """relative half-width below which every interval must be to stop earlier; None takes all rounds"""

    @property
    def blocks(self) -> int:
        return max(1, -(-self.most_rounds // TURNS_OF_A_BLOCK))


@dataclass(frozen=True)
class Choice:
    """A part of what could be measured; what is left empty is chosen by the file."""

    arms: tuple[str, ...] = ()
    baseline: str | None = None
    ways: tuple[str, ...] = ()
    """beside that of the file's mode"""

    @property
    def is_part(self) -> bool:
        return bool(self.arms or self.baseline)


def measure_missing_costs(
    experiment: spec.Experiment, arms: Mapping[tuple[str, str], ArmAtScale], folder: StudyFolder, console: Console
) -> None:
    """Measure every scale whose arms have no measurement of this code on this host, and put it on record."""
    rounds = experiment.execution.cost_rounds
    if rounds == 0:
        return
    for scale in experiment.scales:
        here = arms_at(experiment, arms, scale)
        earlier = folder.cost(scale)
        if earlier is not None and not cost_fault(earlier) and identity(experiment, here) == earlier["identity"]:
            continue
        rows = frozen_rows(experiment, arms, folder)
        folder.write_cost(scale, _shown(experiment, here, Effort(rounds), Choice(), rows, console))


def bench(
    experiment: spec.Experiment,
    arms: Mapping[tuple[str, str], ArmAtScale],
    folder: StudyFolder,
    console: Console,
    effort: Effort,
    choice: Choice,
) -> dict[str, dict[str, Any]]:
    """The record of every scale, measured anew. On record goes what covers every arm; a choice of them does not."""
    ways_of(choice.ways, experiment.execution.mode)
    for scale in experiment.scales:
        chosen(arms_at(experiment, arms, scale), choice)  # what is misspelt is said before anything is measured
    found = {}
    for scale in experiment.scales:
        here = arms_at(experiment, arms, scale)
        rows = frozen_rows(experiment, arms, folder)
        found[scale] = _shown(experiment, here, effort, choice, rows, console)
        if not choice.is_part:
            _say_what_is_replaced(folder, scale, found[scale]["host"], console)
            folder.write_cost(scale, found[scale])
    return found


def _say_what_is_replaced(folder: StudyFolder, scale: str, host: str, console: Console) -> None:
    try:
        earlier = (folder.cost(scale) or {}).get("host", host)
    except StudyFolderError:
        return  # it cannot be read, and gives way to one that can
    if earlier != host:
        console.print(
            f"{scale}: the record of another machine ({earlier}) is replaced and not compared: seconds are compared on "
            "one host only",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )


def arms_at(experiment: spec.Experiment, arms: Mapping[tuple[str, str], ArmAtScale], scale: str) -> Arms:
    """By name; no contrast asks what a derived arm costs."""
    derived = experiment.robustness.derived
    return {name: arm for (at, name), arm in arms.items() if at == scale and name not in derived}


def chosen(arms: Arms, choice: Choice) -> Arms:
    """The arms that are measured. ParibusError where one is named that the file does not have."""
    asked = (*choice.arms, *([choice.baseline] if choice.baseline else []))
    for name in asked:
        if name not in arms:
            raise ParibusError(
                f"no arm '{name}' is timed in this file",
                expected=", ".join(arms),
                received=name,
                remedy=nearest(name, arms),
            )
    return {name: arm for name, arm in arms.items() if not choice.arms or name in asked}


def pairs(experiment: spec.Experiment, arms: Arms, baseline: str | None = None) -> list[Pair]:
    """(treatment, baseline) of what is compared: the file's contrasts, and every arm that is in none of them with the
    primary's baseline; with a `baseline` every other arm with it."""
    if baseline is not None:
        return [(name, baseline) for name in arms if name != baseline]
    of_file = [(contrast.treatment, contrast.baseline) for contrast in experiment.contrasts.values()]
    found = [pair for pair in dict.fromkeys(of_file) if {*pair} <= arms.keys()]
    reference = _reference(experiment, arms)
    alone = [name for name in arms if name != reference and not any(name in pair for pair in found)]
    return found + [(name, reference) for name in alone]


def _reference(experiment: spec.Experiment, arms: Arms) -> str:
    aside = experiment.compared_with_itself
    return aside[1] if aside is not None and aside[1] in arms else next(iter(arms))


def identity(experiment: spec.Experiment, arms: Arms) -> dict[str, Any]:
    """What a measurement depends on: the arms, their code, what is compared, the host, and how it computes."""
    execution, packages = experiment.execution, environment()
    baselines = {baseline for _, baseline in pairs(experiment, arms)}
    return {
        "arms": {name: spec.declared(experiment, arm.scale, name) for name, arm in arms.items()},
        "code": {name: code_digest(arm.code_roots) for name, arm in arms.items()},
        "baselines": sorted(baselines),
        "host": f"{packages['processor']}, {packages['cores']} cores, {_device_name(experiment)}",
        "torch": packages["torch"],
        "execution": execution.model_dump(include={"mode", "threads", "micro_batch_rows", "activation_checkpointing"}),
    }


def measure(
    experiment: spec.Experiment,
    arms: Arms,
    effort: Effort,
    choice: Choice = Choice(),
    progress: Callable[[int, int], None] | None = None,
    micro_batch_rows: int = 0,
) -> dict[str, Any]:
    """A record as `paribus.runs.layout.CostRecord` has it, in JSON types."""
    prepare_process(experiment.execution)
    keep_buffers()
    arms, ways = chosen(arms, choice), ways_of(choice.ways, experiment.execution.mode)
    comparisons = list(_comparisons(pairs(experiment, arms, choice.baseline), arms, list(ways)))
    baselines = dict.fromkeys(baseline for _, baseline in comparisons) or {
        (_reference(experiment, arms), way): None for way in ways
    }

    def ready(arm: str, way: str) -> SampleUpdate:
        return _ready(experiment, arms[arm], ways[way], micro_batch_rows)

    plain = {column_name(arm, way): ready(arm, way) for way in ways for arm in arms}
    device = torch.device(device_of(experiment.execution))
    kept = {name: bytes_for_backward(update) for name, update in plain.items()}
    peak = {name: profiled_peak_bytes(update, device) for name, update in plain.items()}
    again = {column_name(arm, way, again=True): ready(arm, way) for arm, way in baselines}
    columns = {column_name(arm, way): {"arm": arm, "way": way, "again": False} for way in ways for arm in arms}
    columns |= {column_name(arm, way, again=True): {"arm": arm, "way": way, "again": True} for arm, way in baselines}
    of = identity(experiment, arms)
    record: dict[str, Any] = {
        "format": COST_FORMAT,
        "identity": of,
        "host": of["host"],
        "ways": list(ways),
        "columns": columns,
        "comparisons": [[column_name(*treatment), column_name(*baseline)] for treatment, baseline in comparisons],
        "bytes_for_backward": kept,
        "peak_bytes": peak,
        "batch_tokens": {name: arm.base.batch_tokens for name, arm in arms.items()},
        "resolution": effort.resolution,
        "most_rounds": TURNS_OF_A_BLOCK * effort.blocks,
    }
    stream = generator("cost", experiment.study, "order")
    for found in _in_batches({**plain, **again}, effort, stream, progress):
        record |= {"wall_seconds": found.wall_seconds, "cpu_seconds": found.cpu_seconds}
        blocks = len(next(iter(found.wall_seconds.values()))) // TURNS_OF_A_BLOCK
        if effort.resolution and blocks >= FEWEST_BLOCKS_BEFORE_STOPPING and widest(record) <= effort.resolution:
            break
    parts = measured_parts(plain)
    order = dict.fromkeys(part for of_column in parts.values() for part in of_column)
    record |= {"parts": parts, "part_order": list(order), "parts_in": clock_of(device)}
    return record


def _comparisons(named: Sequence[Pair], arms: Arms, ways: Sequence[str]) -> Iterator[tuple[Pair, Pair]]:
    """(arm, way) of treatment and baseline: the pairs in each way, and each arm in every further way against the
    first."""
    for way in ways:
        for treatment, baseline in named:
            yield (treatment, way), (baseline, way)
    for way in ways[1:]:
        for arm in arms:
            yield (arm, way), (arm, ways[0])


def widest(record: Mapping[str, Any], clock: str = "wall") -> float:
    """The largest relative half-width of an interval of wall or cpu time, A/A included; infinite where there is none
    yet."""
    ratios = [getattr(found, clock) for found in (*against_themselves(record), *compared(record))]
    return max((ratio.half_width for ratio in ratios if not ratio.refusal), default=float("inf"))


def _in_batches(
    updates: Mapping[str, SampleUpdate],
    effort: Effort,
    stream: Any,
    progress: Callable[[int, int], None] | None,
) -> Iterator[Turns]:
    """What was timed so far, whenever a batch of blocks is done."""
    order, turns = orders(list(updates), stream), Turns()
    total = TURNS_OF_A_BLOCK * (WARM_UP_BLOCKS + effort.blocks)
    for block in range(WARM_UP_BLOCKS + effort.blocks):
        counted = block - WARM_UP_BLOCKS + 1
        (turns if counted > 0 else Turns()).take_block(updates, next(order))
        if progress is not None:
            progress(TURNS_OF_A_BLOCK * (block + 1), total)
        if counted > 0 and (counted % BATCH_BLOCKS == 0 or counted == effort.blocks):
            yield turns


def _ready(experiment: spec.Experiment, arm: ArmAtScale, way: Way, micro_batch_rows: int) -> SampleUpdate:
    device = torch.device(device_of(experiment.execution))
    recompute = experiment.execution.activation_checkpointing
    return stepper(arm, device, micro_batch_rows, recompute, compiled=way.compiled, made=way.made, within=way.within)


def _shown(
    experiment: spec.Experiment, here: Arms, effort: Effort, choice: Choice, rows: int, console: Console
) -> dict[str, Any]:
    """`measure` with its progress in the terminal."""
    scale = next(iter(here.values())).scale
    with steps_of_preparation(console) as progress:
        return measure(
            experiment,
            here,
            effort,
            choice,
            lambda done, total: progress(Advance(f"timing {scale}", done, total)),
            micro_batch_rows=rows,
        )


def _device_name(experiment: spec.Experiment) -> str:
    return torch.cuda.get_device_name() if device_of(experiment.execution) == "cuda" else "cpu"
