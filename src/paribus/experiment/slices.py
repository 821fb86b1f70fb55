"""Whether a contrast's metric belongs to what the study reads: slices and learning curves to a task, bytes to text."""

from paribus.errors import ExperimentFileError, nearest
from paribus.experiment.metrics import BITS_PER_BYTE, parse
from paribus.experiment.spec import Experiment


def check_metrics(experiment: Experiment) -> None:
    """ExperimentFileError, naming the contrast, for a metric that the corpus cannot have."""
    task = experiment.base.task
    valid = [] if task is None else list(task.levels(experiment.base.context_length))
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
