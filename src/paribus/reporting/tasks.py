"""Downstream tasks of a contrast, from the rows of their items: paired by item, never pooled over seeds.

A cell keeps one row file a task, `tasks/<task>-<step>`, with the columns `item`, `correct`, `chance` and, where the
gold answer was scored, `gold_nats` and `gold_bytes`.
"""

from collections.abc import Iterator, Mapping
from itertools import chain

import numpy as np
import pyarrow as pa

from paribus.errors import ParibusError
from paribus.reading.cell import ReadCell
from paribus.reading.study import ReadStudy
from paribus.report.content import TaskRow
from paribus.reporting.due import confidence_of, due, groups
from paribus.stats.items import PairedAccuracy, PairedMean, accuracy_by_seed, admitted, over_seeds, paired_gold_bits
from paribus.stats.paired import t_critical
from paribus.stats.rule import Verdict, Word

GROUP = "tasks"


def tasks(study: ReadStudy, verdicts: tuple[Verdict, ...]) -> Iterator[TaskRow]:
    """Accuracy and bits per byte of the gold answer of every task that both arms of a simple contrast have."""
    for contrast, verdict in due(study, verdicts):
        if len(contrast.arms) > 2 or verdict.word is Word.DIVERGENCE:
            continue
        cells = groups(study, contrast, verdict)
        names = dict.fromkeys(chain.from_iterable(_names(cell) for pair in cells.values() for cell in pair))
        for name in names:
            pairs = {s: (_rows(t, name), _rows(b, name)) for s, (t, b) in cells.items()}
            found = {seed: (t, b) for seed, (t, b) in pairs.items() if t is not None and b is not None}
            try:
                yield from _of_task(verdict, name, found)
            except ParibusError as error:
                what = (verdict.name, verdict.scale, name, "accuracy")
                yield TaskRow(*what, None, None, None, None, None, len(found), (), False, str(error.what))


def _names(cell: ReadCell) -> list[str]:
    if cell.folder is None:
        return []
    return [file.partition("/")[2].rpartition("-")[0] for file in cell.folder.row_files(GROUP)]


def _rows(cell: ReadCell, task: str) -> pa.Table | None:
    """Items of the task at the last step that scored it."""
    if cell.folder is None:
        return None
    files = [f for f in cell.folder.row_files(GROUP) if f.partition("/")[2].rpartition("-")[0] == task]
    return cell.folder.rows(files[-1]) if files else None


def _of_task(verdict: Verdict, task: str, pairs: dict[int, tuple[pa.Table, pa.Table]]) -> Iterator[TaskRow]:
    for seed, (treatment, baseline) in pairs.items():
        if not treatment["item"].equals(baseline["item"]):
            raise ParibusError(f"the arms did not answer the same items at seed {seed}")
    chance = float(next(iter(pairs.values()))[1]["chance"][0].as_py())
    correct = [{seed: pair[side]["correct"].to_numpy() for seed, pair in pairs.items()} for side in (0, 1)]
    by_seed = accuracy_by_seed(*correct, chance=chance)
    means = [float(np.mean(values)) for values in correct[1].values()]
    admission = admitted(means, chance, items=len(next(iter(correct[1].values()))))
    difference, interval = _over_seeds(verdict, by_seed)
    yield TaskRow(
        contrast=verdict.name,
        scale=verdict.scale,
        task=task,
        metric="accuracy",
        chance=chance,
        baseline_mean=float(np.mean(means)),
        treatment_mean=float(np.mean([found.treatment for found in by_seed.values()])),
        difference=difference,
        interval=interval,
        seeds=len(by_seed),
        mcnemar_p=tuple(found.p_mcnemar for found in by_seed.values()),
        admitted=admission.admitted,
        note=admission.reason,
    )
    if all({"gold_nats", "gold_bytes"} <= {*table.column_names} for pair in pairs.values() for table in pair):
        yield _gold(verdict, task, pairs)


def _gold(verdict: Verdict, task: str, pairs: dict[int, tuple[pa.Table, pa.Table]]) -> TaskRow:
    """Bits per byte of the gold answer, which says more than accuracy at small scale; lower is better."""
    bits = {
        seed: paired_gold_bits(t["gold_nats"].to_numpy(), b["gold_nats"].to_numpy(), b["gold_bytes"].to_numpy())
        for seed, (t, b) in pairs.items()
    }
    difference, interval = _over_seeds(verdict, bits)
    what = (verdict.name, verdict.scale, task, "bits per byte of the gold answer")
    return TaskRow(*what, None, None, None, difference, interval, len(bits), (), True)


def _over_seeds(
    verdict: Verdict, results: Mapping[int, PairedAccuracy] | Mapping[int, PairedMean]
) -> tuple[float, tuple[float, float] | None]:
    """Mean over seeds of the paired means, and its t interval; none below three seeds or without a spread."""
    values = [found.difference for found in results.values()]
    if len(values) < 3 or len(set(values)) == 1:
        return float(np.mean(values)), None
    test = over_seeds({**results})
    half = t_critical(test.degrees_of_freedom, confidence_of(verdict)) * test.standard_error
    return test.mean, (test.mean - half, test.mean + half)
