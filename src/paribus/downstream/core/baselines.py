"""Tables of random baselines: what accuracy is subtracted before a task's score is stretched to reach 1.

v1 is the bundle's own `eval_meta_data.csv`. DCLM corrected it in September 2025 (mlfoundations/dclm, issue 114 and
pull request 115) and calls the mean over the corrected table Core_v2; nanochat's bundle kept v1. The corrected table is
used where a copy of it is given; `RESTATED_V2` is what public projects restate of it, used only by that name.
"""

import csv
import hashlib
import io
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from paribus.downstream.core.errors import CoreBundleError

TASK_COLUMN, BASELINE_COLUMN = "Eval Task", "Random baseline"
RESTATED = "restated"
RESTATED_V2: Mapping[str, float] = {
    "commonsense_qa": 40.3,
    "agi_eval_lsat_ar": 25.0,
    "bigbench_language_identification": 25.0,
}
"""In percent: the three of the 22 tasks whose baseline pull request 115 changed, as two public projects state them
independently (2026). The items agree: four choices each, and of commonsense_qa 492 of 1,221 gold answers are one
letter (40.3 %)."""


@dataclass(frozen=True)
class Baselines:
    """Random baselines of tasks."""

    chance: Mapping[str, float]
    """by label, as a fraction of 1"""
    digest: str
    """blake2b-128 of the table's file, hexadecimal; of a restated table, of labels and values"""
    source: str
    """the file's name, or what the values are taken from"""

    def require(self, labels: Iterable[str]) -> None:
        """CoreBundleError naming the labels that the table does not have."""
        if absent := [label for label in labels if label not in self.chance]:
            raise CoreBundleError(
                f"{self.source} has no random baseline for {', '.join(absent)}",
                expected=f"a row of each task, with the columns {TASK_COLUMN!r} and {BASELINE_COLUMN!r}",
                remedy="add the rows, or take the tasks out of the list",
            )

    def as_json(self) -> dict[str, str]:
        return {"digest": self.digest, "source": self.source}


def read_baselines(path: Path) -> Baselines:
    """A table with a row a task; baselines are percent, at least 0 and below 100.

    CoreBundleError for a file that is missing, has other columns, a task twice, or a value that is no such number.
    """
    try:
        content = path.read_bytes()
        rows = list(csv.DictReader(io.StringIO(content.decode("utf-8-sig"), newline=""), skipinitialspace=True))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise CoreBundleError(
            f"the table of random baselines cannot be read: {path}",
            expected=f"a CSV file with the columns {TASK_COLUMN!r} and {BASELINE_COLUMN!r}",
            received=str(error),
            remedy="fetch the bundle again, or name another table",
        ) from error
    if not rows or not {TASK_COLUMN, BASELINE_COLUMN} <= set(rows[0]):
        raise CoreBundleError(
            f"{path.name} is no table of random baselines",
            expected=f"the columns {TASK_COLUMN!r} and {BASELINE_COLUMN!r}, and a row a task",
            received=", ".join(str(column) for column in (rows[0] if rows else ())) or "no rows",
        )
    chance: dict[str, float] = {}
    for number, row in enumerate(rows, 2):
        label, percent = (row[TASK_COLUMN] or "").strip(), _number(row[BASELINE_COLUMN])
        if not label or label in chance or not 0 <= percent < 100:
            raise CoreBundleError(
                f"{path.name}, row {number} ({label or 'no task'}) gives no random baseline",
                expected="each task once, with a number of percent from 0 to below 100",
                received=f"{label!r} a second time" if label in chance else repr(row[BASELINE_COLUMN]),
            )
        chance[label] = percent / 100
    return Baselines(chance, _digest(content), path.name)


def restated_v2(v1: Baselines) -> Baselines:
    """v1 with the corrections of DCLM as other projects restate them; of v1 only tasks that it has."""
    changed = {label: percent / 100 for label, percent in RESTATED_V2.items() if label in v1.chance}
    chance = {**v1.chance, **changed}
    spelled = "".join(f"{label},{value!r}\n" for label, value in sorted(chance.items()))
    return Baselines(
        chance, _digest(spelled.encode()), f"{v1.source} with DCLM pull request 115, as restated by others"
    )


def _number(text: str | None) -> float:
    try:
        return float(text or "")
    except ValueError:
        return math.nan


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()
