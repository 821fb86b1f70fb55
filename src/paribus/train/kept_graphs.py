"""Compiled graphs on disk, each with its guards, so that a process need not trace a model whose graph is kept.

A graph is found by what the model says of itself and of what it computes on, and taken only where the sources it was
traced from are still the same. Its guards, which look at the model's attributes and tensors, come with it and are asked
at every call. What they cannot hold in another process is the identity of functions, classes and globals: hence whole
packages of sources count, and nothing is kept for a model with attributes other than plain values.

The files are written and read by torch, beside the code that it compiles and as trusted: they run as they are loaded.
They are this user's and this machine's, and no part of a run.
"""

import contextlib
import hashlib
import io
import json
import platform
import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol, runtime_checkable

import torch
from pydantic import BaseModel
from torch import Tensor, nn

import paribus
from paribus.disk import make_folder, whole

MOST = 128
"""graphs on disk, of some MB each; those that were not used for longest go first"""
_OF_EVERY_MODULE = vars(nn.Module())
_OF_THEIR_OWN = ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set", "training")
_COMPUTING = ("kernels", "mechanisms", "model", "train", "roles.py", "shapes.py")
"""of this package: whatever a loss is computed by"""
_BY_VERSION = {torch.__name__, *sys.stdlib_module_names}
"""packages whose sources need no look: their version is a part of the description"""


@runtime_checkable
class Graph(Protocol):
    """A compiled function that can say whether it was compiled for what it is to be called with."""

    def __call__(self, *arguments: Any) -> Tensor: ...

    def guard_check(self, *arguments: Any) -> bool: ...


class _NotPlainError(Exception):
    """Something whose values do not say what it does."""


def describe(model: nn.Module, tensors: Mapping[str, Tensor], settings: str) -> str | None:
    """A digest of all that a graph of the model depends on, as far as it can be known before it is traced; None where
    that cannot be told: of a module with a hook, or with an attribute that is not made of plain values. `tensors` are
    what it computes on, `settings` the compiler's."""
    given = (f"{name} {_of_tensor(tensor)}" for name, tensor in tensors.items())
    try:
        said = "\n".join((settings, *_surroundings(), *given, *_of_modules(model)))
    except _NotPlainError:
        return None
    return _digest(said.encode())


def is_refused(description: str, folder: Path) -> bool:
    """Whether a model of this description turned out to be none whose graph can be kept."""
    return _path(description, folder).with_suffix(".refused").exists()


def refuse(description: str, folder: Path) -> None:
    with contextlib.suppress(OSError):
        make_folder(folder / "whole")
        _path(description, folder).with_suffix(".refused").touch()


def find(description: str, folder: Path) -> Graph | None:
    """What was kept under a description, where the sources it was traced from are as they were; None where nothing can
    be had, for whatever reason: it is compiled again."""
    path = _path(description, folder)
    try:
        header, _, body = path.read_bytes().partition(b"\n")
        stated = json.loads(header)
        if stated["body"] != _digest(body) or stated["sources"] != {name: _sources(name) for name in stated["sources"]}:
            return None
        path.touch()
        return torch.compiler.load_compiled_function(io.BytesIO(body))  # pyright: ignore[reportReturnType] - says less
    except Exception:  # an interface that torch calls experimental may raise anything
        return None


def keep(graph: Any, description: str, folder: Path) -> None:
    """Write what `aot_compile` returned, and let the oldest go. Nothing is kept where that fails: on a full disk."""
    path = _path(description, folder)
    try:
        traced = {source.module.partition(".")[0] for source in graph.source_info().inlined_sources} - _BY_VERSION
        with TemporaryDirectory() as aside:  # torch writes to a path of its own; others may be keeping the same graph
            graph.save_compiled_function(f"{aside}/graph")
            body = Path(aside, "graph").read_bytes()
        header = {"body": _digest(body), "sources": {name: _sources(name) for name in sorted(traced)}}
        make_folder(path.parent)
        with whole(path) as stream:
            stream.write(json.dumps(header).encode() + b"\n" + body)
        used = sorted(path.parent.glob("*.graph"), key=lambda kept: kept.stat().st_mtime, reverse=True)
        for old in used[MOST:]:
            old.unlink(missing_ok=True)
    except Exception:  # as above; and what is kept only saves time
        return


def _path(description: str, folder: Path) -> Path:
    return folder / "whole" / f"{description}.graph"


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=20).hexdigest()


@cache
def _sources(package: str) -> str:
    """A digest of the Python files of a package, or of a module without one and its neighbours in the folder.

    Of this package only what computes a loss. _NotPlainError where there are none to be found.
    """
    try:
        module = import_module(package)
        roots = [Path(root) for root in getattr(module, "__path__", ())]
        files = [path for root in roots for path in root.rglob("*.py")]
        files = files or list(Path(str(module.__file__)).parent.glob("*.py"))
    except (ImportError, AttributeError) as error:
        raise _NotPlainError from error
    if package == paribus.__name__:
        files = [path for path in files if path.relative_to(roots[0]).parts[0] in _COMPUTING]
    return _digest(b"".join(hashlib.blake2b(path.read_bytes()).digest() for path in sorted(files)))


def _surroundings() -> Iterator[str]:
    """What a graph depends on beside the model and its tensors."""
    yield f"paribus {_sources(paribus.__name__)}"
    yield f"Python {sys.version}, torch {torch.__version__}"
    yield f"{platform.machine()}, {torch.backends.cpu.get_cpu_capability()}, {torch.get_num_threads()} threads"
    yield f"deterministic {torch.are_deterministic_algorithms_enabled()}, gradients {torch.is_grad_enabled()}"
    yield f"products {torch.get_float32_matmul_precision()}, autocast on CPU {torch.is_autocast_enabled('cpu')}"
    if torch.cuda.is_available():
        yield f"{torch.cuda.get_device_name()}, CUDA {torch.version.cuda}, {torch.is_autocast_enabled('cuda')}"


def _of_modules(model: nn.Module) -> Iterator[str]:
    names: dict[int, str] = {}
    packages = {type(module).__module__.partition(".")[0] for module in model.modules()}
    yield from (f"{package} {_sources(package)}" for package in sorted(packages - _BY_VERSION - {paribus.__name__}))
    for name, module in model.named_modules():
        kind = type(module)
        if "<locals>" in kind.__qualname__:
            raise _NotPlainError
        yield f"{name}: {kind.__module__}.{kind.__qualname__}, training {module.training}"
        for tensor_name, tensor in (*module._parameters.items(), *module._buffers.items()):
            if tensor is not None:
                first = names.setdefault(id(tensor), f"{name}.{tensor_name}")
                yield f"{tensor_name} {_of_tensor(tensor)} {first}"
        for attribute, value in vars(module).items():
            if attribute not in _OF_EVERY_MODULE:
                yield f"{attribute} = {_plain(value)}"
            elif attribute not in _OF_THEIR_OWN and value != _OF_EVERY_MODULE[attribute]:
                raise _NotPlainError  # a hook


def _of_tensor(tensor: Tensor) -> str:
    return f"{tensor.dtype} {list(tensor.shape)} {tensor.stride()} {tensor.device} {tensor.requires_grad}"


def _plain(value: Any) -> str:
    """The value in words that are the same in every process. _NotPlainError where it is more than values."""
    kind = type(value).__qualname__
    match value:
        case None | bool() | int() | float() | str() | bytes() | torch.dtype() | torch.device():
            said = repr(value)
        case tuple() | list():
            said = ", ".join(map(_plain, value))
        case set() | frozenset():
            said = ", ".join(sorted(map(_plain, value)))
        case dict():
            said = ", ".join(f"{_plain(key)}: {_plain(of)}" for key, of in value.items())
        case BaseModel():
            said = _plain(dict(value))
        case _ if is_dataclass(value) and not isinstance(value, type):
            said = _plain({field.name: getattr(value, field.name) for field in fields(value)})
        case _:
            raise _NotPlainError
    return f"{kind}({said})"
