"""The ways in which the same update is computed. Each is timed and reported by itself, and against the first.

A way is a line of `WAYS`. What it needs to run goes into `within`, which every update of it is made in; what becomes of
the model before it runs, into `made`; and `missing` says why it cannot be had on this machine.
"""

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from torch import nn

from paribus.errors import ParibusError, nearest
from paribus.kernels import compiler


@dataclass(frozen=True)
class Way:
    sentence: str
    """what computes, for the page"""
    made: Callable[[nn.Module], nn.Module] = lambda model: model
    within: Callable[[], AbstractContextManager[Any]] = nullcontext
    compiled: bool = False
    """whether the model is one compiled graph"""
    missing: Callable[[], str] = lambda: ""
    """why there is none of it here; empty where there is"""


def _cpp_compiler() -> str | None:
    return next(filter(None, map(shutil.which, (os.environ.get("CXX", ""), "g++", "clang++"))), None)


WAYS: dict[str, Way] = {
    "eager": Way("operation by operation, as cells are trained in proof mode, mechanisms by compiled kernels"),
    "compiled": Way(
        "one compiled graph of the whole model, as cells are trained in fast mode",
        compiled=True,
        missing=lambda: "" if _cpp_compiler() else "no C++ compiler is here: g++, clang++, or the one that CXX names",
    ),
    "operators": Way(
        "the same with PyTorch operators in place of compiled kernels",
        within=compiler.operators,
        missing=lambda: "" if compiler.compiler() else "no C compiler is here, so eager is that already",
    ),
}
OF_MODE: Mapping[str, str] = {"proof": "eager", "fast": "compiled"}
"""how cells are trained in each mode of the file, which is what other ways are compared with"""


def ways_of(names: Sequence[str], mode: str) -> dict[str, Way]:
    """The way of the file's mode, then those of these names in the table's order. ParibusError for one that is not."""
    first = OF_MODE[mode]
    for name in (first, *names):
        if name not in WAYS:
            raise ParibusError(
                f"updates are not computed in a way '{name}'",
                expected=", ".join(WAYS),
                received=name,
                remedy=nearest(name, WAYS),
            )
        if why := WAYS[name].missing():
            raise ParibusError(
                f"updates cannot be computed in the way '{name}' on this machine",
                expected=WAYS[name].sentence,
                received=why,
                remedy="leave it out, or install what is missing",
            )
    return {first: WAYS[first]} | {name: way for name, way in WAYS.items() if name in names}
