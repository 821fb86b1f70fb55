"""What is kept of an update that ended a cell: <cell>/trouble/, never read by training.

trouble.json     which update it was, on which batch, and which tensors were not finite
step-<number>/   a checkpoint of the state before it: see `paribus.runs.checkpoints`

`paribus replay` makes that update again from the two.
"""

import math
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from paribus.errors import StudyFolderError
from paribus.runs import layout
from paribus.runs.checkpoints import Checkpoint, write_alone
from paribus.runs.folder import CellFolder
from paribus.runs.records import read_json, write_json
from paribus.runs.verifying import TROUBLE

FORMAT = 1
RECORD = "trouble.json"
UPDATE, HELD_OUT, NOT_SEEN_AGAIN = "update", "held out", "not seen again"
"""what ended a cell: an update; what was measured after one, while every update was finite; an update that was finite
when it was made again"""
_EXPLAINS = "delete the folder: it only explains, and `paribus replay` finds the update again from a checkpoint"


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="allow")


class FoundTensor(_Record):
    """A tensor that was not finite; see `paribus.train.trouble.Finding`"""

    sentence: str


class TroubleRecord(_Record):
    """trouble.json"""

    step: Annotated[int, Field(ge=1)]
    """the update, from 1"""
    seen_at: Annotated[int, Field(ge=1)]
    """update after which training stopped: the same or a later one"""
    kind: str
    """UPDATE, HELD_OUT or NOT_SEEN_AGAIN"""
    batch_digest: str
    findings: list[FoundTensor]
    state: Annotated[str, Field(pattern=r"^step-[0-9]{8,}$")]
    """name of the checkpoint's folder"""


def keep(cell: CellFolder, record: Mapping[str, Any], updates_before: int, files: Mapping[str, bytes]) -> None:
    """Write the state after `updates_before` updates, then the `record` that names it, through the cell's fence."""
    folder = cell.path / TROUBLE
    state = write_alone(folder, updates_before, files, cell.fence)
    write_json(folder / RECORD, {"format": FORMAT, **record, "state": state.name}, cell.fence)


def kept(cell: CellFolder) -> dict[str, Any] | None:
    """The record; None where nothing was kept. StudyFolderError where it is damaged."""
    path = cell.path / TROUBLE / RECORD
    if not path.exists():
        return None
    found = read_json(path, _EXPLAINS)
    if wrong := layout.fault(TroubleRecord, found):
        raise StudyFolderError(f"{path} is not as it was written", received=wrong, remedy=_EXPLAINS)
    return found


def state_before(cell: CellFolder, record: Mapping[str, Any]) -> dict[str, bytes]:
    """Files of the state before the update. StudyFolderError where they are damaged or gone."""
    return Checkpoint(cell.path / TROUBLE / str(record["state"])).read()


def number(value: float | None) -> float | str | None:
    """A float as JSON holds it: "nan", "inf" or "-inf" where it is not finite."""
    return value if value is None or math.isfinite(value) else str(value)


def in_words(told: Mapping[str, Any]) -> str:
    """What DIVERGED says of why a cell ended, in one sentence; of an earlier version's only the reason."""
    reason = str(told.get("reason", "no reason is on record"))
    if isinstance(first := told.get("first"), Mapping) and "sentence" in first:
        found = "" if first.get("step") in (None, told.get("step")) else f"at step {first['step']}, "
        return f"{reason}; first not finite: {found}{first['sentence']}"
    if told.get("kind") == NOT_SEEN_AGAIN:
        return f"{reason}; made again from the nearest checkpoint, the update was finite: suspect the machine"
    if told.get("kind") == HELD_OUT:
        return f"{reason}; every update before it was finite"
    return f"{reason}; not explained: {told['not_explained']}" if told.get("not_explained") else reason
