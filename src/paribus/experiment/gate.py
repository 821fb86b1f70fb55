"""One check before training: what was asked of which arm, and what was found."""

from collections.abc import Iterable
from dataclasses import dataclass

from paribus.errors import GateError


@dataclass(frozen=True)
class Gate:
    """A finished check. Where it failed, `detail` names the tensor and the first differing step, if there is one."""

    name: str
    subject: str
    """"scale/arm" that stands for every arm with the same mechanisms at this depth, a contrast, or a module"""
    passed: bool
    detail: str


def require_all(found: Iterable[Gate]) -> None:
    """Raise GateError naming the first gate that failed."""
    for gate in found:
        if not gate.passed:
            raise GateError(
                f"gate '{gate.name}' failed for {gate.subject}",
                received=gate.detail,
                remedy="nothing was trained; mend the mechanism or the experiment file and run again",
            )
