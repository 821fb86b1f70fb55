"""Fast mode: the losses of a micro-batch, and their gradients, from one compiled graph of the whole model each.

A graph serves one model and one shape of batch. What the compiler makes of it is kept on disk by its content, so that
only the first cell of a shape on a machine waits for it.
"""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

from paribus.disk import user_cache
from paribus.errors import ParibusError
from paribus.shapes import TokenLosses
from paribus.train.step import Consumed, token_losses

KEPT_IN = "TORCHINDUCTOR_CACHE_DIR"
"""environment variable of torch's: where compiled graphs are kept, the user's cache folder where it is not set"""
GRAPHS = 64
"""graphs in a process at most: one that compares arms has a graph for each of them and each shape of batch"""


class CompilationError(ParibusError):
    """A model, or a mechanism in it, cannot be compiled as one graph."""


def compiled_losses() -> Callable[[nn.Module, Consumed], TokenLosses]:
    """`token_losses` of any model, the same up to rounding. It raises CompilationError where it cannot be had.

    Loads torch's compiler, which takes seconds.
    """
    # Before the import, which looks at it.
    os.environ.setdefault(KEPT_IN, str(user_cache() / "graphs"))
    from torch._dynamo.exc import TorchDynamoException

    graph = _graph()

    def losses(model: nn.Module, consumed: Consumed) -> TokenLosses:
        for table in getattr(model, "tables", ()):
            torch.compiler.assume_constant_result(table)
        try:
            with _around(model, consumed):
                return graph(model, consumed)
        except TorchDynamoException as error:
            raise CompilationError(
                "the model cannot be compiled as one graph",
                expected="operations on tensors that do not depend on their values, and a C++ compiler",
                received=_reason(error),
                remedy='mode = "proof" trains without a compiler; or change what the compiler stops at',
            ) from error

    return losses


def _around(model: nn.Module, consumed: Consumed) -> AbstractContextManager[Any]:
    """The model's precision, entered outside: a graph that changes it cannot be kept whole on disk."""
    precision = getattr(model, "precision", None)
    return nullcontext() if precision is None else precision(consumed.tokens.device)


@cache
def _graph() -> Callable[[nn.Module, Consumed], TokenLosses]:
    from torch._dynamo import config

    config.recompile_limit = max(config.recompile_limit, GRAPHS)
    return torch.compile(token_losses, fullgraph=True, dynamic=False)


def _reason(error: Exception) -> str:
    """What stopped the compiler, and at which line of which file."""
    lines = [line.strip() for line in str(getattr(error, "inner_exception", error)).splitlines() if line.strip()]
    frames = [frame for frame in getattr(error, "real_stack", None) or () if "torch" not in Path(frame.filename).parts]
    place = f"; at {frames[-1].filename}:{frames[-1].lineno}: {frames[-1].line}" if frames else ""
    return "; ".join(lines[:2]) + place
