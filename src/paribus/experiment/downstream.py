"""Evaluation sets that trained cells are asked, beside their held-out likelihood. Part of no cell's identity."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from paribus.experiment.table import Name, Positive, Table


class Downstream(Table):
    """What `paribus run` asks every cell once it is trained; `paribus evaluate` asks more at any time."""

    core: Annotated[Path, Field(strict=False)]
    """folder of a CORE bundle, as `paribus data fetch core` leaves it; relative to the file"""
    tasks_listed_in: str = "core.yaml"
    """the list of tasks inside that folder; from another list than CORE's own no CORE score is made"""
    tasks: Annotated[tuple[Name, ...], Field(strict=False)] = ()
    """labels of the list; empty asks all of them"""
    first_items: Positive | None = None
    """of each task in a seeded order; None asks all. Examples in prompts come from the whole set in any case"""
    counterfactual: bool = False
    """also asks every task with the question of another item, which should leave chance"""
    at: Literal["end", "milestones"] = "end"
    """of the schedule, or also in the middle of it: then the checkpoints of milestones are kept"""
