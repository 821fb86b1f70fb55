"""Reading a nanochat checkpoint: `model_<step>.pt` and `meta_<step>.json` in the folder of a model tag.

The weights are read by torch's weights-only loader, which builds tensors and plain containers and nothing else, so a
file from anywhere can be opened. Optimiser states (`optim_*`) are not looked at.
"""

import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from paribus.data.sources.folder import file_digest
from paribus.interop.errors import ForeignModelError
from paribus.interop.nanochat_meta import ERA, Meta, read_meta
from paribus.interop.nanochat_names import COMPILED, OF_THE_ERA, Expected, expected_tensors

_WEIGHTS = re.compile(r"model_(\d+)\.pt")
NAMED = 6
"""tensors that an error names"""


@dataclass(frozen=True)
class Checkpoint:
    """The files of one step, and what their meta file says. The tensors are read by `read_tensors`."""

    tag: str
    """name of the folder"""
    weights: Path
    meta_file: Path
    meta: Meta
    digests: Mapping[str, str]
    """blake2b-256 of both files, hexadecimal, by name"""


def open_checkpoint(folder: Path, step: int | None = None) -> Checkpoint:
    """The checkpoint of a step, by default the last. ForeignModelError for a folder without it."""
    weights = _weights(folder, step)
    found = int(_number(weights))
    meta_file = folder / f"meta_{_number(weights)}.json"
    meta = read_meta(meta_file, found)
    try:
        digests = {path.name: file_digest(path) for path in (weights, meta_file)}
    except OSError as error:
        raise ForeignModelError(
            f"{weights} cannot be read", expected="a whole file", received=f"{type(error).__name__}: {error}"
        ) from error
    return Checkpoint(folder.resolve().name, weights, meta_file, meta, digests)


def read_tensors(checkpoint: Checkpoint) -> dict[str, Tensor]:
    """Every parameter in float32 by our name.

    ForeignModelError names what is missing, what is there beside it, a wrong shape, and values that are not finite.
    """
    path = checkpoint.weights
    loaded = _loaded(path)
    tensors: dict[str, Tensor] = {}
    for name, value in loaded.items():
        if not isinstance(name, str) or not isinstance(value, Tensor):
            raise _wrong(path, "tensors by name, and nothing else", f"{name!r} is a {type(value).__name__}")
        tensors[name.removeprefix(COMPILED)] = value
    if len(tensors) != len(loaded):
        raise _wrong(path, f"every tensor once, with or without '{COMPILED}'", "both for one tensor")
    expected = expected_tensors(checkpoint.meta.config)
    _require_names(path, expected, tensors)
    return {own.ours: _values(path, name, tensors[name], own) for name, own in expected.items()}


def _weights(folder: Path, step: int | None) -> Path:
    try:
        names = [path for path in folder.iterdir() if _WEIGHTS.fullmatch(path.name)]
    except OSError as error:
        raise ForeignModelError(
            "no checkpoint folder of nanochat is there",
            expected="the folder of a model tag, such as base_checkpoints/d12, with model_<step>.pt in it",
            received=f"{folder} ({error.strerror or error})",
        ) from error
    by_step = {int(_number(path)): path for path in sorted(names)}
    if not by_step or (step is not None and step not in by_step):
        below = sorted(path.name for path in folder.iterdir() if path.is_dir() and any(path.glob("model_*.pt")))
        raise ForeignModelError(
            f"{folder} holds no checkpoint" + ("" if step is None or not by_step else f" of step {step}"),
            expected="model_<step>.pt and meta_<step>.json"
            if not by_step
            else "one of the steps " + ", ".join(map(str, sorted(by_step))),
            received=f"the folders {', '.join(below)}" if below else "none" if step is None else f"--step {step}",
            remedy=f"name the folder of one model: {folder / below[0]}" if below else "",
        )
    return by_step[max(by_step) if step is None else step]


def _number(weights: Path) -> str:
    found = _WEIGHTS.fullmatch(weights.name)
    assert found is not None
    return found[1]


def _loaded(path: Path) -> Mapping[object, object]:
    try:
        mapped = zipfile.is_zipfile(path)  # only this layout can be mapped into memory
        found = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except Exception as error:  # a file from anywhere: torch raises whatever its parts do
        detail = str(error).strip().splitlines()[0][:160] if str(error).strip() else ""
        raise ForeignModelError(
            f"{path.name} cannot be read as weights alone",
            expected="the state dict that nanochat saves: tensors by name",
            received=f"{type(error).__name__}: {detail}",
            remedy="copy the file again; one that holds other Python objects is not opened",
        ) from error
    if not isinstance(found, Mapping):
        raise _wrong(path, "tensors by name", type(found).__name__)
    return found


def _require_names(path: Path, expected: Mapping[str, Expected], tensors: Mapping[str, Tensor]) -> None:
    missing = [name for name in expected if name not in tensors]
    old = [name for name in OF_THE_ERA if name in missing]
    if old:
        raise ForeignModelError(
            f"{path.name} is of another nanochat: it lacks {_few(missing)}",
            expected=f"{ERA}, whose models have {', '.join(OF_THE_ERA)}",
            received=f"{len(tensors)} tensors without them",
            remedy="train it again with a nanochat of that time, or here from the preset: an older model computes "
            "something else",
        )
    extra = [name for name in tensors if name not in expected]
    if missing or extra:
        raise ForeignModelError(
            f"{path.name} does not hold the tensors of its model_config: "
            + "; ".join(
                f"{what} {_few(names)}" for what, names in (("missing are", missing), ("beyond it are", extra)) if names
            ),
            expected=f"{len(expected)} tensors, those of {ERA}",
            received=f"{len(tensors)} tensors",
            remedy="a fork's model is another one; import a checkpoint of nanochat itself",
        )


def _values(path: Path, name: str, tensor: Tensor, own: Expected) -> Tensor:
    if tuple(tensor.shape) != own.shape:
        raise ForeignModelError(
            f"{path.name}: {name} has the wrong shape",
            expected=f"{list(own.shape)}, by model_config and {ERA}",
            received=str(list(tensor.shape)),
            remedy="use the meta file that was written with these weights",
        )
    if not tensor.is_floating_point():
        raise _wrong(path, f"{name}: numbers in float32, bfloat16 or float16", str(tensor.dtype))
    values = tensor.detach().float().contiguous()
    if not bool(torch.isfinite(values).all()):
        raise _wrong(path, f"{name}: finite numbers", "NaN or infinity: the training had diverged")
    return values


def _few(names: list[str]) -> str:
    return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")


def _wrong(path: Path, expected: str, received: str) -> ForeignModelError:
    return ForeignModelError(f"{path.name} is no checkpoint that can be used", expected=expected, received=received)
