"""One check before training: what was asked of which arm, and what was found.

A mechanism that crashes has failed the gate in which it did: the finding is the error and the line, not a traceback.
"""

import sysconfig
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from paribus import mechanisms
from paribus.errors import GateError, ParibusError
from paribus.mechanisms import NOT_MECHANISMS

OURS = Path(mechanisms.__file__).parents[1]
OURS_WITHOUT_MECHANISMS = tuple(OURS / "mechanisms" / f"{name}.py" for name in ("__init__", *NOT_MECHANISMS))
ELSEWHERE = (Path(torch.__file__).parents[1], Path(sysconfig.get_path("stdlib")))
"""libraries: an installed mechanism is known by the registry"""

Place = tuple[Path, int | None]


@dataclass(frozen=True)
class Gate:
    """A finished check. Where it failed, `detail` names the tensor and the first differing step, if there is one."""

    name: str
    subject: str
    """"scale/arm" that stands for every arm with the same mechanisms at this depth, a contrast, or a module"""
    passed: bool
    detail: str


@dataclass(frozen=True)
class Job:
    """A gate that has not run yet. Called, it runs; an error on the way is a failed gate."""

    name: str
    subject: str
    run: Callable[[], Gate]

    def __call__(self) -> Gate:
        try:
            return self.run()
        except Exception as error:  # whatever a mechanism raises
            return Gate(self.name, self.subject, False, crash(error))


def crash(error: Exception) -> str:
    """The error in one line, with the file and line of the mechanism's code that it came through."""
    frames = [(Path(frame.filename), frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    place = _place_in_a_mechanism(frames)
    if isinstance(error, ParibusError):
        labelled = (("", error.what), ("expected ", error.expected), ("received ", error.received))
        said = "; ".join(label + text for label, text in labelled if text)
    else:
        first = (str(error).strip().splitlines() or [""])[0]
        said = f"{type(error).__name__}: {first}" if first else type(error).__name__
        place = place or next(
            (frame for frame in reversed(frames) if frame[0].is_relative_to(OURS / "model")), frames[-1]
        )
    if place is None:
        return said
    file, line = place
    shown = file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file
    return f"{said} ({shown}:{line})"


def _place_in_a_mechanism(frames: Sequence[Place]) -> Place | None:
    """The last frame in a mechanism from outside, else in code from outside that is no library of ours or Python's,
    else in a mechanism of ours."""
    registered = {Path(module.__file__ or "") for module in mechanisms.modules()}
    for ours, known in ((False, True), (False, False), (True, False)):
        for place in reversed(frames):
            if _may_be_a_mechanism(place[0], ours) and (not known or place[0] in registered):
                return place
    return None


def _may_be_a_mechanism(file: Path, ours: bool) -> bool:
    if file.is_relative_to(OURS):
        return ours and file.is_relative_to(OURS / "mechanisms") and file not in OURS_WITHOUT_MECHANISMS
    return not ours and file.is_file() and not any(file.is_relative_to(folder) for folder in ELSEWHERE)


def require_all(found: Iterable[Gate]) -> None:
    """Raise GateError naming the first gate that failed."""
    for gate in found:
        if not gate.passed:
            raise GateError(
                f"gate '{gate.name}' failed for {gate.subject}",
                received=gate.detail,
                remedy="nothing was trained; mend the mechanism or the experiment file and run again",
            )
