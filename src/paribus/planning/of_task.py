"""What a synthetic task asks, and the losses that need no training to know."""

from collections.abc import Iterator

from rich.console import Console

from paribus.data.tasks.contract import Rows, Task, sample
from paribus.experiment.spec import Experiment
from paribus.terminal import table

ROWS_COUNTED = 256
"""rows of a task from which its targets a row are counted"""


def describe_task(task: Task, row_length: int, console: Console) -> None:
    """What is asked, and the losses that need no training to know."""
    asked = sample(task, 0, 0, ROWS_COUNTED, row_length)
    rows = []
    for name, levels in task.levels(row_length).items():
        share = ((asked.slice == task.slices.index(name)) & asked.asked).sum() / ROWS_COUNTED
        shortcuts = ", ".join(f"{what} {nats:.3f}" for what, nats in levels.shortcuts.items())
        known = (f"{number:.3f}" for number in (levels.chance, levels.floor, levels.threshold))
        rows.append((name, f"{share:.1f}", *known, shortcuts))
    knobs = ", ".join(f"{name} = {value}" for name, value in task.model_dump().items())
    console.print(f"{task.name} ({knobs}): {task.sentence}", highlight=False, soft_wrap=True)
    columns = ("slice", "targets a row", "chance", "floor", "acquired below", "shortcuts")
    console.print(table("What is asked, in nats per target", columns, rows, right=range(1, 5)))
    if share := padding_share(asked):
        console.print(
            f"{share:.0%} of a row of {row_length} tokens is padding that nobody scores: an example needs "
            f"{task.least_row_length} tokens",
            highlight=False,
            soft_wrap=True,
        )


def padding_share(rows: Rows) -> float:
    """Share of the places that belong to the end of a row behind its examples, where nothing is asked."""
    last = rows.document == rows.document[:, -1:]
    nothing_asked = ~(rows.asked & last).any(axis=1)
    return float((last & nothing_asked[:, None] & (rows.document > 0)).mean())


def unused(experiment: Experiment) -> Iterator[str]:
    """What the file declares and a study of a task does not read."""
    if "tokenizer" in experiment.base.model_fields_set:
        yield "[base.tokenizer] is not used: a task has tokens of its own"
