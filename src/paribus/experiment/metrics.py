"""What a contrast may be about: a loss at the end of the schedule or, for a task, a property of the learning curve.

    test.nll, validation.nll                nats per token at the end, on what is held out
    test.bits_per_byte, ...                 the same in bits per byte of text
    train.area                              mean over all updates of the training loss above the best predictor's
    train.log2_updates                      log2 of the updates until the loss is below the task's threshold, the budget
                                            where it never is

The threshold is half-way from chance to the floor or, where a shortcut is as low as that, half-way from the lowest
shortcut to the floor (`Levels.threshold`). A task's data never repeats, so that its training loss is a test loss.
Behind each of a task's metrics may stand a slice (`train.area.QD`) or two whose difference counts
(`train.area.same-different`). Lower is better in all of them.
"""

import re
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

from paribus.errors import nearest

AREA, LOG2_UPDATES, NLL, BITS_PER_BYTE = "area", "log2_updates", "nll", "bits_per_byte"
OF_SPLITS, OF_TRAINING = (NLL, BITS_PER_BYTE), (AREA, LOG2_UPDATES)
_UNITS = {
    NLL: "nats per token",
    BITS_PER_BYTE: "bits per byte",
    AREA: "nats per target",
    LOG2_UPDATES: "log2 updates",
}
_NAMES = [f"{split}.{quantity}" for split in ("test", "validation") for quantity in OF_SPLITS]
_NAMES += [f"train.{quantity}" for quantity in OF_TRAINING]
_SLICES = re.compile(r"[A-Za-z0-9_]+(-[A-Za-z0-9_]+)?")


@dataclass(frozen=True)
class Metric:
    """A metric's name, taken apart."""

    split: str
    """test, validation or train"""
    quantity: str
    slices: tuple[str, ...]
    """none for all targets, one, or two: the first minus the second"""

    @property
    def unit(self) -> str:
        return _UNITS[self.quantity]

    @property
    def of_training(self) -> bool:
        """Whether it is read off the learning curve instead of held-out rows."""
        return self.split == "train"

    @property
    def held_out_split(self) -> str:
        """The split whose end-of-schedule loss belongs beside it."""
        return "test" if self.of_training else self.split


def parse(name: str) -> Metric:
    """The metric of this name. PydanticCustomError, with what to do, where there is none."""
    split, _, rest = name.partition(".")
    quantity, _, slices = rest.partition(".")
    if f"{split}.{quantity}" not in _NAMES:
        raise _refused(", ".join(f"'{known}'" for known in _NAMES), nearest(f"{split}.{quantity}", _NAMES))
    if "." in rest and not _SLICES.fullmatch(slices):
        raise _refused("a slice of the task behind the second point, or two joined by '-'", "such as 'train.area.QD'")
    if len(set(slices.split("-"))) < len(slices.split("-")):
        raise _refused("two different slices joined by '-'", "a slice minus itself is zero: name another control slice")
    if slices and quantity == BITS_PER_BYTE:
        raise _refused(f"'{split}.{quantity}' without a slice", "only a task has slices, and a task has no bytes")
    return Metric(split, quantity, tuple(slices.split("-")) if slices else ())


def _refused(expected: str, remedy: str) -> PydanticCustomError:
    return PydanticCustomError("metric", "{expected}", {"expected": expected, "remedy": remedy})


def unit_of(name: str) -> str:
    """The unit of the metric of this name."""
    return parse(name).unit


def _checked(name: str) -> str:
    parse(name)
    return name


MetricName = Annotated[str, AfterValidator(_checked)]
