"""Whether a task is what it says: names, shapes, determinism, causality, levels, and nothing to be read off one token.

`check_task` runs on every task of the tree in the tests, and on a user's before its first run. What only enumeration
can show is looked for in the tiny instance; what knobs and row length change, in rows of the size that is asked for.
"""

import itertools
import math
import re
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from paribus.data.tasks.contract import ALL, Learnt, Rows, Task, sample
from paribus.data.tasks.faults import broken, refuse_leak
from paribus.data.tasks.levels import check_labels, check_levels
from paribus.data.tasks.readers import one_token_leak
from paribus.data.tasks.steps import FIRST_STEP
from paribus.errors import ParibusError
from paribus.refusal import refusal
from paribus.seeds import stream_key

_ONE_SEED_ROWS, _ORACLE_ROWS, _FULL_SIZE_ORACLE_ROWS = 4096, 512, 4
_FAR_STEPS = (0, 1, 999, 1000, 10**6)
"""of training, where a count that goes round may meet itself"""
_ORACLE_TOLERANCE = 1e-9
"""of probabilities that are computed twice in float64"""
_DECLARED = ("name", "title", "sentence", "slices", "primary", "tiny", "tiny_row_length")
_DEFINED = ("vocabulary_size", "least_row_length", "rows", "levels")
_DTYPES: Mapping[str, type] = {
    "tokens": np.int64,
    "targets": np.int64,
    "asked": np.bool_,
    "slice": np.int16,
    "floor_nats": np.float64,
    "answer": np.int64,
    "document": np.int32,
}


def check_task(task: Task, row_length: int) -> None:
    """Raise CorpusError with reason and remedy where the task breaks its contract in rows of `row_length` tokens, where
    its levels are not those of its rows, or where it, or its tiny instance, shows a target before it must be predicted.
    """
    check_declaration(task)
    with answering(task):
        check_learnt(task, row_length)
        check_rows(task, row_length)
        check_fresh(task, row_length)
    tiny = tiny_instance(task)
    with answering(tiny):
        check_rows(tiny, task.tiny_row_length)
        check_readers(tiny, task.tiny_row_length)
        check_causality(tiny, task.tiny_row_length)
    with answering(task):
        check_levels(task, row_length)
        check_oracle(task, row_length)


@contextmanager
def answering(task: Task) -> Iterator[None]:
    """Whatever the task's own code raises within becomes a CorpusError that names the task, and where it happened; a
    refusal of its own stays as it is."""
    try:
        yield
    except ParibusError:
        raise
    except Exception as error:  # whatever a user's code raises
        last = traceback.extract_tb(error.__traceback__)[-1]
        raise broken(
            task,
            f"its own code raises {type(error).__name__} in `{last.name}`, {Path(last.filename).name}:{last.lineno}",
            "arrays, levels and probabilities, or a CorpusError that says what is refused and why",
            received=f"{type(error).__name__}: {error}",
            remedy="mend it, or refuse these knobs and this row length there",
        ) from error


def check_declaration(task: Task) -> None:
    """Names that everything else relies on. Raises CorpusError."""
    missing = [name for name in _DECLARED if not hasattr(task, name)]
    if missing:
        raise broken(
            task,
            f"no {', '.join(missing)}",
            "class variables " + ", ".join(_DECLARED),
            remedy="declare them, as docs/howto/add-a-task.md does",
        )
    undefined = [name for name in _DEFINED if getattr(type(task), name) is getattr(Task, name)]
    if undefined:
        raise broken(
            task, f"no {', '.join(undefined)}", ", ".join(_DEFINED), remedy="define them; Task says what each returns"
        )
    bad = [name for name in task.slices if not re.fullmatch(r"\w+", name, re.ASCII) or name == ALL]
    if bad or not task.slices or len(set(task.slices)) != len(task.slices):
        expected = f"at least one; different names of letters, digits and '_', none of them '{ALL}'"
        raise broken(task, "bad names of slices", expected, received=str(task.slices), remedy="rename the slices")
    primary = task.primary.split("-")
    if task.primary != ALL and (len(primary) > 2 or not set(primary) <= set(task.slices)):
        expected = f"'{ALL}', a slice, or the difference of two as in 'a-b'"
        raise broken(
            task,
            "no such primary",
            expected,
            received=f"'{task.primary}'",
            remedy=f"name it by the slices {', '.join(task.slices)}",
        )


def check_learnt(task: Task, row_length: int) -> None:
    """Units of what is learnt, where the task declares any. Raises CorpusError."""
    slices = task.levels(row_length)
    for name, found in task.learnt().items():
        if name not in slices and name in task.slices:
            continue  # without targets in these rows
        sound = isinstance(found, Learnt) and math.isfinite(found.whole) and 0 < found.per_nat < math.inf
        if name in slices and sound and found.unit.strip():
            continue
        raise broken(
            task,
            f"its unit of what is learnt on '{name}' is none",
            f"a Learnt with a unit, a finite `whole` and `per_nat` above 0, on one of {', '.join(slices)}",
            received=repr(found),
            remedy="correct `learnt`, or leave it out",
        )


def tiny_instance(task: Task) -> Task:
    """The task with the knobs of its class's `tiny`. Raises CorpusError where the task refuses them."""
    try:
        return type(task).model_validate(dict(task.tiny))
    except ValidationError as error:
        found = refusal(error, "tiny", type(task))
        remedy = found.remedy or "correct `tiny`, the knobs of the smallest instance"
        raise broken(task, found.what, found.expected, received=found.received, remedy=remedy) from None


def check_rows(task: Task, row_length: int) -> None:
    """Shapes, types, ranges, slices, and that a row is a function of its own numbers. Raises CorpusError."""
    seed, rows = stream_key("task checks", "rows"), 24
    found = sample(task, seed, 3, rows, row_length)
    _check_arrays(task, found, (rows, row_length))
    _check_ranges(task, found, row_length)
    again = sample(task, seed, 3, rows, row_length)
    number = np.arange(rows)
    order = number[::-1]
    backwards = task.rows(seed, np.where(order % 2 == 0, 3, 4), order, row_length)
    alone = [task.rows(seed, np.array([3]), number[r : r + 1], row_length) for r in range(0, rows, 6)]
    for name in _DTYPES:
        here = getattr(found, name)
        if not np.array_equal(here, getattr(again, name)):
            raise broken(
                task,
                f"`{name}` of the same rows differs from call to call",
                "a pure function",
                remedy="draw every number from `self.draws`, and keep nothing between calls",
            )
        mixed = np.array_equal(here[::2], getattr(backwards, name)[::-1][::2])
        if not mixed or any(not np.array_equal(here[6 * i], getattr(a, name)[0]) for i, a in enumerate(alone)):
            raise broken(
                task,
                f"`{name}` of a row depends on the rows it is drawn with",
                "a function of the row's own (seed, step, row)",
                remedy="draw every number from `self.draws(seed, step, row)`, whose first axis is the row",
            )
    _check_fresh(task, found, sample(task, seed, 4, rows, row_length), "the step")
    _check_fresh(task, found, sample(task, seed + 1, 3, rows, row_length), "the seed")


def check_fresh(task: Task, row_length: int) -> None:
    """Raise CorpusError where all rows of a step are equal, or where steps far from each other, or held-out steps and
    training steps, have the same rows: what such a task measures is a memory of its rows.

    A generator that forgets the row, counts steps round, or cuts their number short is of this kind.
    """
    seed, rows = stream_key("task checks", "fresh"), 24
    drawn = {step: sample(task, seed, step, rows, row_length) for step in (*_FAR_STEPS, *FIRST_STEP.values())}
    for step, found in drawn.items():
        if (found.tokens == found.tokens[0]).all() and (found.targets == found.targets[0]).all():
            raise broken(
                task,
                f"all rows of step {step:,} are equal",
                "fresh rows for every (seed, step, row)",
                received=f"{rows} times the same row of {row_length} tokens",
                remedy="hand seed, step and row to `self.draws`",
            )
    for earlier, later in itertools.combinations(drawn, 2):
        one, other = drawn[earlier], drawn[later]
        if np.array_equal(one.tokens, other.tokens) and np.array_equal(one.targets, other.targets):
            raise broken(
                task,
                f"the rows of {_in_words(later)} are those of {_in_words(earlier)}",
                "fresh rows for every (seed, step, row)",
                remedy="hand the step to `self.draws` as it is, never a part of it or a remainder",
            )


def _in_words(step: int) -> str:
    held_out = [split for split in ("validation", "test") if FIRST_STEP[split] == step]
    return f"the {held_out[0]} split" if held_out else f"training step {step:,}"


def _check_fresh(task: Task, found: Rows, other: Rows, of: str) -> None:
    """A task that forgets a part of the key repeats its rows: what a model then learns is the rows."""
    if np.array_equal(found.tokens, other.tokens) and np.array_equal(found.targets, other.targets):
        raise broken(
            task,
            f"the rows do not depend on {of}",
            "fresh rows for every (seed, step, row)",
            remedy="hand all three to `self.draws`",
        )


def _check_arrays(task: Task, found: Rows, shape: tuple[int, int]) -> None:
    for name in (field.name for field in fields(Rows)):
        array = getattr(found, name)
        if not isinstance(array, np.ndarray) or array.shape != shape or array.dtype != _DTYPES[name]:
            what = f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
            raise broken(
                task,
                f"`{name}` has the wrong shape or type",
                f"{np.dtype(_DTYPES[name])} {shape}",
                received=what,
                remedy="one entry for every token, converted with .astype",
            )


def _check_ranges(task: Task, found: Rows, row_length: int) -> None:
    asked, vocabulary = found.asked, task.vocabulary_size
    if not asked.any():
        raise broken(
            task,
            f"nothing is asked in rows of {row_length} tokens",
            "at least one target",
            remedy=f"refuse rows that are too short, below {task.least_row_length} tokens as `least_row_length` says",
        )
    for name in ("tokens", "targets"):
        array = getattr(found, name)
        if array.min() < 0 or array.max() >= vocabulary:
            raise broken(
                task,
                f"`{name}` lie outside the vocabulary",
                f"0 to {vocabulary - 1}",
                received=f"{array.min()} to {array.max()}",
                remedy="number tokens and answers from 0, and count all of them in `vocabulary_size`",
            )
    levels = task.levels(row_length)
    if [name for name in task.slices if name in levels] != list(levels) or not levels:
        expected = f"some of {', '.join(task.slices)}, in this order"
        raise broken(
            task,
            "`levels` names other slices",
            expected,
            received=", ".join(levels) or "none",
            remedy="give the slices that occur, in the order of `slices`",
        )
    for name, level in levels.items():
        losses = {"chance": level.chance, "floor": level.floor, **level.shortcuts}
        if not all(math.isfinite(loss) and loss >= 0 for loss in losses.values()):
            raise broken(
                task,
                f"a level of '{name}' is not a loss",
                "finite, 0 or more",
                received=str(losses),
                remedy="losses are -ln p of the target, nats per target",
            )
    check_labels(task, found.slice[asked], levels)
    if not np.isfinite(found.floor_nats).all() or found.floor_nats.min() < 0:
        raise broken(
            task,
            "`floor_nats` is not a loss",
            "finite, 0 or more",
            received=str(found.floor_nats.min()),
            remedy="-ln p of the target by the best predictor, 0 where nothing is asked",
        )
    place = np.arange(row_length)
    if ((found.answer < -1) | (found.answer > place)).any():
        raise broken(
            task,
            "`answer` points behind the place that asks",
            "-1, or a place up to the target's own",
            remedy="-1 where no single token that was read holds the answer",
        )
    if (np.diff(found.document, axis=1) < 0).any() or found.document.min() < 0:
        raise broken(
            task,
            "`document` falls along a row",
            "0, then the same or more",
            remedy="number the examples of a row from 0; `one_document` where there is one",
        )


def check_readers(task: Task, row_length: int) -> None:
    """Raise CorpusError where one token of the row says more of a target than the task declares, with a table for every
    place: for instances so small that some thousand rows fill it."""
    refuse_leak(task, one_token_leak(task, row_length))


def check_causality(task: Task, row_length: int) -> None:
    """Raise CorpusError where rows that agree up to a target's place disagree in what is asked, in a target without
    uncertainty, or in the oracle's answer; and where the oracle does not give the target exp(-floor_nats)."""
    seed = stream_key("task checks", "causality")
    rows = sample(task, seed, 0, _ONE_SEED_ROWS, row_length)
    try:
        oracle = task.oracle(rows.tokens[:_ORACLE_ROWS], seed)
    except NotImplementedError:
        oracle = None
    for t in range(row_length):
        _, first, group = np.unique(rows.tokens[:, : t + 1], axis=0, return_index=True, return_inverse=True)
        twin = first[group.reshape(-1)]  # of each row the first row with the same prefix
        if (rows.asked[:, t] != rows.asked[twin, t]).any():
            raise broken(
                task,
                f"whether place {t} is asked depends on later tokens",
                "on the tokens up to it alone",
                remedy="show in a token that has been read that something is asked, or ask always",
            )
        settled = rows.asked[:, t] & (rows.floor_nats[:, t] == 0) & (rows.floor_nats[twin, t] == 0)
        if (rows.targets[:, t] != rows.targets[twin, t])[settled].any():
            raise broken(
                task,
                f"the target at place {t} is not settled by the tokens up to it, yet `floor_nats` is 0",
                "one target for equal tokens, or the loss of the best predictor",
                remedy="show what settles it before it is asked, or state in `floor_nats` what cannot be known",
            )
        if oracle is not None:
            few = rows.asked[:_ORACLE_ROWS, t]
            if np.abs(oracle[:, t] - oracle[twin[:_ORACLE_ROWS], t])[few].max(initial=0.0) > _ORACLE_TOLERANCE:
                raise broken(
                    task,
                    f"the oracle's answer at place {t} depends on later tokens",
                    "a causal reader",
                    remedy="let it answer at a place from row[: place + 1] alone",
                )
    if oracle is not None:
        _check_oracle(task, oracle, rows, row_length)


def check_oracle(task: Task, row_length: int) -> None:
    """Raise CorpusError where the oracle does not give the targets of a few rows of this length exp(-floor_nats).

    A task without an oracle passes.
    """
    seed = stream_key("task checks", "oracle")
    rows = sample(task, seed, 0, _FULL_SIZE_ORACLE_ROWS, row_length)
    try:
        oracle = task.oracle(rows.tokens, seed)
    except NotImplementedError:
        return
    _check_oracle(task, oracle, rows, row_length)


def _check_oracle(task: Task, oracle: NDArray[np.float64], rows: Rows, row_length: int) -> None:
    """`oracle` is of the first of the rows, `[row time vocab]`."""
    count = min(len(rows.tokens), _ORACLE_ROWS)
    shape = (count, row_length, task.vocabulary_size)
    if oracle.shape != shape:
        remedy = "a probability for every token of the vocabulary after every place: [row time vocab]"
        raise broken(task, "the oracle has the wrong shape", str(shape), received=str(oracle.shape), remedy=remedy)
    r, t = np.nonzero(rows.asked[:count])
    total = oracle[r, t].sum(axis=-1)
    if (oracle[r, t] < 0).any() or np.abs(total - 1).max(initial=0.0) > _ORACLE_TOLERANCE:
        raise broken(
            task,
            "the oracle's answers are no probabilities",
            "0 or more each, 1 together, wherever something is asked",
            received=f"sums of {total.min():.6g} to {total.max():.6g}",
            remedy="normalise them over the vocabulary",
        )
    off = np.abs(oracle[r, t, rows.targets[r, t]] - np.exp(-rows.floor_nats[r, t]))
    worst = int(off.argmax())
    if off[worst] > _ORACLE_TOLERANCE:
        raise broken(
            task,
            f"oracle and `floor_nats` disagree on the target at place {t[worst]}",
            f"probability {np.exp(-rows.floor_nats[r[worst], t[worst]]):.6g}",
            received=f"{oracle[r[worst], t[worst], rows.targets[r[worst], t[worst]]]:.6g}",
            remedy="one of `rows`, `floor_nats` and `oracle` is not the definition: work one row out by hand",
        )
