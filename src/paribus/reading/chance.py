"""Held-out losses where nothing can be learned, beside chance: from the rows of a study's cells.

Which slices those are follows from the planned levels alone: chance is the floor there.
"""

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any

import numpy as np

from paribus.data.tasks.contract import Levels
from paribus.experiment import spec
from paribus.reading.cell import ReadCell
from paribus.reading.study import ReadStudy
from paribus.stats.chance import AgainstChance, HeldOutLoss, against_chance, held_out_loss

SPLIT = "test"
"""the held-out inputs that are scored"""


@dataclass(frozen=True)
class ArmAtChance:
    """One arm on one slice that teaches nothing."""

    scale: str
    arm: str
    slice: str
    losses: Mapping[int, HeldOutLoss]
    """by seed"""
    found: AgainstChance


def hopeless_slices(corpus: Mapping[str, Any]) -> dict[str, float]:
    """Slices of the planned task on which chance is the floor, with their chance, nats per target; empty for text."""
    slices = corpus.get("task", {}).get("slices", {})
    return {name: of["chance"] for name, of in slices.items() if not Levels(of["chance"], of["floor"], {}).teaches}


def arms_at_chance(study: ReadStudy, seeds: Set[int]) -> Iterator[ArmAtChance]:
    """Every arm with complete cells among `seeds`, on every slice where chance is the floor."""
    hopeless = hopeless_slices(study.plan["corpus"])
    cells = [
        cell
        for cell in study.cells.values()
        if hopeless and cell.state == "complete" and cell.key[3] == spec.STUDY and cell.key[2] in seeds
    ]
    for scale, arm in dict.fromkeys(cell.key[:2] for cell in cells):
        own = [cell for cell in cells if cell.key[:2] == (scale, arm)]
        for name, chance in hopeless.items():
            losses = {cell.key[2]: loss for cell in own if (loss := _loss(cell, name)) is not None}
            if losses:
                yield ArmAtChance(scale, arm, name, losses, against_chance(list(losses.values()), chance))


def _loss(cell: ReadCell, name: str) -> HeldOutLoss | None:
    """None where fewer than two inputs of the slice were scored: they have no error."""
    rows = cell.document_rows(SPLIT, ("source", "tokens", "nats"))
    if rows is None:
        return None
    here = np.asarray(rows["source"].to_pylist(), dtype=object) == name
    if here.sum() < 2:
        return None
    return held_out_loss(rows["nats"].to_numpy()[here], rows["tokens"].to_numpy()[here])
