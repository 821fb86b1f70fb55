"""How a task is asked, and the name of what differs from the plain way."""

from dataclasses import dataclass
from typing import Any, Literal

from paribus.downstream.core.errors import CoreBundleError

ShotsFrom = Literal["all", "truncated"]
TooLong = Literal["crop-shots", "keep"]
COUNTERFACTUAL = "counterfactual"
"""in the name of a variant: every question is another item's"""


@dataclass(frozen=True)
class CoreSettings:
    """The plain way is the default: every item, examples from all items, whole examples left out where it is too long.

    nanochat's way is `shots_from="truncated", too_long="keep"`; without a limit on items its prompts are ours, but for
    those that are longer than the context.
    """

    max_items: int | None = None
    """ask so many items at most, the first in the fixed order; None: all"""
    shots_from: ShotsFrom = "all"
    """examples are drawn from all other items, or from those among the first `max_items`, so that the same item has
    other examples under another limit"""
    too_long: TooLong = "crop-shots"
    """prompts longer than the context lose whole examples, oldest first, then tokens at the left; or are kept"""
    counterfactual: bool = False
    """ask the answers under another item's question: the score should fall to chance"""

    def __post_init__(self) -> None:
        if self.max_items is not None and self.max_items < 1:
            raise CoreBundleError(
                "no item would be asked", expected="max_items of 1 or more", received=str(self.max_items)
            )

    @property
    def variant(self) -> str:
        """Empty for the default; else what differs, joined by +: "first-500+nanochat+counterfactual"."""
        parts = [] if self.max_items is None else [f"first-{self.max_items}"]
        if (self.shots_from, self.too_long) == ("truncated", "keep"):
            parts.append("nanochat")
        else:
            parts += ["nanochat-shots"] if self.shots_from == "truncated" else []
            parts += ["keep-long"] if self.too_long == "keep" else []
        return "+".join([*parts, *([COUNTERFACTUAL] if self.counterfactual else [])])

    def as_json(self) -> dict[str, Any]:
        return {
            "max_items": self.max_items,
            "shots_from": self.shots_from,
            "too_long": self.too_long,
            "counterfactual": self.counterfactual,
        }
