"""How a cell that ends in NaN or infinity is explained: the update is made again, looked into, and kept.

What is kept is in `paribus.runs.trouble`, how the update is found in `paribus.train.trouble`. A cell that diverged is
never dropped or replaced, whatever is found: an update that is finite when it is made again is told as that, and the
cell stays lost.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from paribus.disk import require_space
from paribus.errors import DivergenceError
from paribus.runs import trouble
from paribus.runs.folder import CellFolder
from paribus.runs.trouble import HELD_OUT, NOT_SEEN_AGAIN, UPDATE
from paribus.train.loop import BrokenUpdateError, Course, StepFinished
from paribus.train.state import TrainState
from paribus.train.trouble import Finding, Located, locate


def explain(
    folder: CellFolder,
    start: Callable[[], TrainState],
    course: Course,
    error: DivergenceError,
    failed: int,
    of: Mapping[str, Any],
    on_step: Callable[[int], None],
) -> dict[str, Any]:
    """Find what went wrong in or before update `failed`, keep it in the cell's folder, and tell it for DIVERGED.

    `start` gives the state of the nearest checkpoint, anew each time; `of` says which cell it is, where and on what it
    was trained. `on_step` may raise to end it. Errors of the disk and of a lost claim are raised; whatever else goes
    wrong is told instead of the explanation.
    """
    told: dict[str, Any] = {"reason": error.what, "step": failed, **_numbers(_update_of(error))}
    ended: list[Exception] = []

    def heard(step: int) -> None:
        try:
            on_step(step)
        except Exception as wish:
            ended.append(wish)
            raise

    try:
        located = locate(start, course, failed, heard)
    except Exception as wrong:
        # A mechanism may do anything with what is not finite, and a disk may have lost the checkpoint: the cell has
        # diverged all the same, and is not to be tried again.
        if wrong in ended:
            raise
        return told | {"not_explained": f"{type(wrong).__name__}: {wrong}".partition("\n")[0]}
    size = sum(map(len, located.before.values()))
    require_space(folder.path, size, f"the state before the update that diverged, in {folder.path}")
    record = _record(located, course, error, failed, of)
    trouble.keep(folder, record, located.updates_before, located.before)
    first = next(({"step": record["step"], **found} for found in record["findings"]), None)
    return told | {"kind": record["kind"], "first": first}


def _record(
    located: Located, course: Course, error: DivergenceError, failed: int, of: Mapping[str, Any]
) -> dict[str, Any]:
    watched = located.watched
    seen = isinstance(error, BrokenUpdateError)
    kind = UPDATE if watched.findings or watched.broken else NOT_SEEN_AGAIN if seen else HELD_OUT
    return {
        "kind": kind,
        "step": watched.event.step,
        "seen_at": failed,
        "seen": error.what,
        **_numbers(watched.event),
        "gradient_size": trouble.number(watched.gradient_size),
        "rows_per_batch": course.order.rows_per_batch,
        "micro_batch_rows": course.micro_batch_rows,
        "findings": [_finding(found) for found in watched.findings],
        **of,
    }


def _finding(found: Finding) -> dict[str, Any]:
    return {**asdict(found), "sentence": found.sentence}


def _update_of(error: DivergenceError) -> StepFinished | None:
    return error.update if isinstance(error, BrokenUpdateError) else None


def _numbers(event: StepFinished | None) -> dict[str, Any]:
    if event is None:
        return {}
    return {
        "batch_digest": event.batch_digest,
        "tokens_seen": event.tokens_seen,
        "loss_nats_per_token": trouble.number(event.loss_nats_per_token),
        "gradient_norm": trouble.number(event.gradient_norm),
        "learning_rate_multiplier": event.learning_rate_multiplier,
    }
