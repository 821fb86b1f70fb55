"""Whether metrics and calibration belong to what the study reads: slices and curves to a task, bytes to text."""

from collections.abc import Mapping, Sequence

from paribus.data.tasks.checks import answering
from paribus.data.tasks.contract import ALL, Levels
from paribus.errors import ExperimentFileError, nearest
from paribus.experiment.metrics import BITS_PER_BYTE, LOG2_UPDATES, parse
from paribus.experiment.spec import Experiment


def check_metrics(experiment: Experiment) -> None:
    """ExperimentFileError, naming contrast or table, for a metric or a calibrated slice that the corpus cannot have,
    and for rows too short for the task."""
    task = experiment.base.task
    levels = _levels(experiment)
    valid = list(levels)
    _check_calibrations(experiment, valid)
    for name, contrast in experiment.contrasts.items():
        metric, where = parse(contrast.metric), f"contrasts.{name}.metric"
        if task is None and (metric.of_training or metric.slices):
            raise ExperimentFileError(
                f"{where}: only a synthetic task has slices and a learning curve without repetition",
                expected="test.nll or test.bits_per_byte",
                received=f"'{contrast.metric}'",
                remedy='read a task, such as base.corpus = { task = "cross" }, or take a metric of text',
            )
        if task is not None and metric.quantity == BITS_PER_BYTE:
            raise ExperimentFileError(
                f"{where}: the targets of a task have no bytes",
                expected="train.area, train.log2_updates or test.nll, with a slice where one is meant",
                received=f"'{contrast.metric}'",
                remedy="take test.nll",
            )
        for part in metric.slices:
            if task is not None and part not in valid:
                raise ExperimentFileError(
                    f"{where}: the task '{task.name}' has no targets in a slice of this name",
                    expected=", ".join(valid),
                    received=f"'{part}'",
                    remedy=nearest(part, valid),
                )
        if task is not None and metric.quantity == LOG2_UPDATES:
            # Of all targets together there is something to acquire where one of their slices has it.
            asked = [[part] for part in metric.slices] or [valid]
            nothing = [parts for parts in asked if not any(levels[part].teaches for part in parts)]
            if nothing:
                taught = [part for part in valid if levels[part].teaches]
                raise ExperimentFileError(
                    f"{where}: chance is the best predictor on {', '.join(nothing[0])}, so no update acquires it",
                    expected=", ".join(f"train.log2_updates.{part}" for part in taught) or "train.area or test.nll",
                    received=f"'{contrast.metric}'",
                    remedy="take train.area or test.nll there, which compare losses without a threshold",
                )


def _levels(experiment: Experiment) -> Mapping[str, Levels]:
    """Of the task by slice; none of text. CorpusError where the task's own code fails."""
    task, row_length = experiment.base.task, experiment.base.context_length
    if task is None:
        return {}
    with answering(task):
        least = task.least_row_length
        if row_length >= least:
            return task.levels(row_length)
    raise ExperimentFileError(
        f"base.context_length: rows too short for the task '{task.name}' with these knobs",
        expected=f"at least {least} tokens",
        received=str(row_length),
        remedy=f"raise base.context_length to {least} or more, or take knobs that need fewer tokens",
    )


def _check_calibrations(experiment: Experiment, valid: Sequence[str]) -> None:
    """A share of a slice that is not there was measured on something else, or misspelt."""
    tables = {"calibration": experiment.calibration}
    tables |= {f"scales.{name}.calibration": scale.calibration for name, scale in experiment.scales.items()}
    for where, table in tables.items():
        for part in (table and table.slices) or {}:
            if part in (*valid, ALL):
                continue
            task = experiment.base.task
            raise ExperimentFileError(
                f"{where}.slices.{part}: "
                + ("text has no slices" if task is None else f"the task '{task.name}' has no such slice"),
                expected=", ".join([*valid, ALL]) if task is not None else "no calibration: it belongs to a task",
                received=f"'{part}'",
                remedy=nearest(part, [*valid, ALL]) if task is not None else f"leave [{where}] out",
            )
