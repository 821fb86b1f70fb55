"""How a cell's training went: its losses as they were logged, also of one that diverged; their spikes; why it ended."""

from typing import Any

from paribus.errors import StudyFolderError
from paribus.reading.cell import ENDED, ReadCell
from paribus.runs import layout
from paribus.runs.trouble import in_words
from paribus.stats.spikes import Spike, spikes


def logged(cell: ReadCell) -> list[dict[str, Any]]:
    """Lines of the updates of a cell that ended, one after another; of one that diverged those that are sound."""
    if cell.state == "complete":
        return cell.metrics
    if cell.folder is None or cell.state not in ENDED:
        return []
    try:
        lines = cell.folder.metrics()
    except StudyFolderError:
        return []  # a cell that diverged is evidence without its curve, which is then not drawn
    return [] if lines and layout.metrics_fault(lines, lines[-1].get("step", 0)) else lines


def spikes_of(cell: ReadCell) -> list[tuple[Spike, dict[str, Any]]]:
    """Each spike with the line of its first update."""
    lines = logged(cell)
    return [(found, lines[found.begins]) for found in spikes([line["loss_nats_per_token"] for line in lines])]


def why_diverged(cell: ReadCell) -> str:
    """What is on record of why a cell diverged, in words."""
    return in_words(cell.summary)
