"""Rows that hold one example and then padding: what the tasks of this shape share.

Padding repeats token 0, asks nothing and counts as one more document, so that no vocabulary grows by a symbol that
carries nothing.
"""

import numpy as np
from numpy.typing import NDArray

from paribus.data.tasks.contract import Rows, Task
from paribus.errors import CorpusError


def refuse_short(task: Task, row_length: int) -> None:
    """Raise CorpusError where a row of `row_length` tokens holds no example of the task."""
    if row_length < task.least_row_length:
        raise CorpusError(
            f"the task '{task.name}' does not fit into a row of {row_length} tokens",
            expected=f"a row length of at least {task.least_row_length}",
            received=str(row_length),
            remedy="make base.context_length longer, or ask for less with the knobs "
            + ", ".join(type(task).model_fields),
        )


def padded(
    row_length: int,
    tokens: NDArray[np.int64],
    first: int,
    width: int,
    targets: NDArray[np.int64],
    labels: NDArray[np.int64],
    answer: NDArray[np.int64],
) -> Rows:
    """Rows of `row_length` tokens, each one example of `tokens` `[row length_of_the_example]`.

    The example ends in queries of `width` tokens from place `first` on; the target of query j stands at the last of
    them. `targets`, `labels` (index of the slice) and `answer` are `[row query]`.
    """
    rows, used = tokens.shape
    asked_at = first + width - 1 + width * np.arange(targets.shape[1])

    def spread(values: NDArray[np.int64] | int, fill: int, kind: type = np.int64) -> NDArray:
        array = np.full((rows, row_length), fill, dtype=kind)
        array[:, asked_at] = values
        return array

    every = np.zeros((rows, row_length), dtype=np.int64)
    every[:, :used] = tokens
    document = np.zeros((rows, row_length), dtype=np.int32)
    document[:, used:] = 1
    return Rows(
        tokens=every,
        targets=spread(targets, 0),
        asked=spread(1, 0, np.bool_),
        slice=spread(labels, 0, np.int16),
        floor_nats=np.zeros((rows, row_length)),
        answer=spread(answer, -1),
        document=document,
    )
