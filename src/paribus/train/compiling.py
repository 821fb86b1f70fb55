"""Fast mode: the losses of a micro-batch, and their gradients, from one compiled graph of the whole model each.

A graph serves models of one description and one shape of batch. It is kept on disk (`kept_graphs.py`), so that only the
first cell of a shape on a machine waits for it.
"""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn

from paribus.disk import user_cache
from paribus.errors import ParibusError
from paribus.shapes import TokenLosses
from paribus.train.kept_graphs import Graph, describe, find, is_refused, keep, refuse
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
    from torch._dynamo.exc import TorchDynamoException
    from torch._inductor.runtime.cache_dir_utils import default_cache_dir

    # Torch sets it itself, to a folder of temporary files, as soon as a process has an optimiser.
    if os.environ.get(KEPT_IN, default_cache_dir()) == default_cache_dir():
        os.environ[KEPT_IN] = str(user_cache() / "graphs")

    def losses(model: nn.Module, consumed: Consumed) -> TokenLosses:
        try:
            with _around(model, consumed):
                return _graph_for(model, consumed)(model, consumed)
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


_graphs: WeakKeyDictionary[nn.Module, dict[torch.Size, Graph | None]] = WeakKeyDictionary()
"""of a model for each shape of batch; None where torch follows its calls instead"""
_graphs_by_description: dict[str, Graph] = {}


def _graph_for(model: nn.Module, consumed: Consumed) -> Callable[[nn.Module, Consumed], TokenLosses]:
    known = _graphs.setdefault(model, {})
    shape = consumed.tokens.shape
    if shape not in known:
        with torch.no_grad():
            token_losses(model, consumed.rows(0, 1))  # fills the tables that a graph is given (`paribus.model.tables`)
        known[shape] = _whole_graph(model, consumed)
    graph = known[shape]
    if graph is not None and graph.guard_check(model, consumed):
        return graph
    known[shape] = None  # the model is not what it was when the graph was made
    return _followed()


def _whole_graph(model: nn.Module, consumed: Consumed) -> Graph | None:
    """One that serves every model of the same description, here and in other processes; None where none can be made."""
    from torch._inductor import config

    tensors = {field.name: t for field in fields(consumed) if (t := getattr(consumed, field.name)) is not None}
    description = describe(model, tensors, config.get_hash().hex())
    if description is None:
        return None
    if description not in _graphs_by_description:
        folder = Path(os.environ[KEPT_IN])
        if is_refused(description, folder):
            return None
        graph = find(description, folder)
        if graph is None:
            compiler: Any = torch.compile(token_losses, fullgraph=True, dynamic=False)
            try:
                graph = compiler.aot_compile(((model, consumed), {}))
            except Exception:  # torch calls it experimental
                _followed()(model, consumed)  # where the model or the machine is at fault, this says so
                refuse(description, folder)
                return None
            keep(graph, description, folder)
        _graphs_by_description[description] = graph
    return _graphs_by_description[description]


@cache
def _followed() -> Callable[[nn.Module, Consumed], TokenLosses]:
    """Traced at its first call, and again whenever something in the model has changed; only its parts are kept."""
    from torch._dynamo import config

    config.recompile_limit = max(config.recompile_limit, GRAPHS)
    return torch.compile(token_losses, fullgraph=True, dynamic=False)


def _reason(error: Exception) -> str:
    """What stopped the compiler, and at which line of which file."""
    lines = [line.strip() for line in str(getattr(error, "inner_exception", error)).splitlines() if line.strip()]
    frames = [frame for frame in getattr(error, "real_stack", None) or () if "torch" not in Path(frame.filename).parts]
    place = f"; at {frames[-1].filename}:{frames[-1].lineno}: {frames[-1].line}" if frames else ""
    return "; ".join(lines[:2]) + place
