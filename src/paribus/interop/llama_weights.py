"""The weights of a Llama decoder: safetensors by Hugging Face's names -> tensors by ours, unchanged.

    model.embed_tokens, model.norm                          embedding (also the head), output_norm.gain
    model.layers.I.{input_layernorm, post_attention_layernorm}
                                                            layers.I.{attention_norm, mlp_norm}.gain
    model.layers.I.self_attn.{q,k,v,o}_proj                 layers.I.attention.{query, key, value, output}
    model.layers.I.mlp.{gate,up,down}_proj                  layers.I.mlp.{gate, up, down}

Every name there ends in `.weight`. Both rotate feature pairs (i, i + head_width/2), so that no row is permuted.
"""

import json
import re
from collections.abc import Collection, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from paribus.interop.errors import ForeignModelError
from paribus.mechanisms import resolve
from paribus.mechanisms.contract import Seam
from paribus.model.build import abstract_model
from paribus.model.config import PrenormConfig

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"
NAMED = 6
"""tensors that an error names"""
_DERIVED = re.compile(r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq")
"""what old files store beside the parameters, though it follows from `rope_theta`"""
_WHOLE: Mapping[str, str] = {"embedding": EMBEDDING, "output_norm.gain": "model.norm.weight"}
_OF_A_LAYER: Mapping[str, str] = {
    "attention_norm.gain": "input_layernorm",
    "mlp_norm.gain": "post_attention_layernorm",
    "attention.query": "self_attn.q_proj",
    "attention.key": "self_attn.k_proj",
    "attention.value": "self_attn.v_proj",
    "attention.output": "self_attn.o_proj",
    "mlp.gate": "mlp.gate_proj",
    "mlp.up": "mlp.up_proj",
    "mlp.down": "mlp.down_proj",
}


def theirs(ours: str) -> str:
    """Hugging Face's name of one of our parameters. KeyError for one that a Llama decoder does not have."""
    if ours in _WHOLE:
        return _WHOLE[ours]
    _, layer, rest = ours.split(".", 2)
    return f"model.layers.{layer}.{_OF_A_LAYER[rest]}.weight"


def weight_files(folder: Path) -> tuple[Path, ...]:
    """The safetensors files of a folder, by name, and the index where there is one. ForeignModelError without them."""
    if (folder / WEIGHTS).exists():
        return (folder / WEIGHTS,)
    if not (folder / INDEX).exists():
        pickles = sorted(path.name for path in folder.glob("*.bin"))
        raise ForeignModelError(
            f"{folder} holds no weights that can be read",
            expected=f"{WEIGHTS}, or {INDEX} and the files that it names",
            received=", ".join(pickles[:NAMED]) or "neither",
            remedy="save the model again with safe_serialization" if pickles else "copy the weights beside config.json",
        )
    names = sorted(set(_places(folder).values()))
    return (folder / INDEX, *(folder / name for name in names))


def read_weights(folder: Path, config: PrenormConfig, *, tied: bool) -> dict[str, Tensor]:
    """Every parameter in float32 by our name. A head that is not `tied` must be there, with the embedding's values.

    ForeignModelError names what is missing, what is there beside it, a wrong shape, values that are not finite, and a
    head that is not the embedding.
    """
    files = [path for path in weight_files(folder) if path.name != INDEX]
    tensors: dict[str, Tensor] = {}
    for path in files:
        found = _loaded(path)
        if twice := sorted(found.keys() & tensors.keys()):
            raise _wrong(path, "every tensor in one file", f"{_few(twice)} in another one too")
        tensors |= found
    if len(files) > 1 and (lost := sorted(_places(folder).keys() - tensors.keys())):
        raise _wrong(folder / INDEX, "the tensors that the index names", f"without {_few(lost)}")
    tensors = {name: tensor for name, tensor in tensors.items() if not _DERIVED.fullmatch(name)}
    head = tensors.pop(HEAD, None)
    model = abstract_model(config, {seam: resolve(seam, None, str(seam)) for seam in Seam})
    expected = {theirs(name): (name, tuple(parameter.shape)) for name, parameter in model.named_parameters()}
    _require_names(folder, expected.keys(), tensors.keys())
    found = {name: _values(folder, theirs, tensors[theirs], shape) for theirs, (name, shape) in expected.items()}
    if not tied and head is None:
        raise _wrong(folder, f"{HEAD}, as config.json does not tie it to the embedding", "no such tensor")
    if head is not None and not torch.equal(head.float(), found["embedding"]):
        raise ForeignModelError(
            f"{folder}: the head is not the embedding",
            expected=f"a tied head: no {HEAD}, or the values of {EMBEDDING}",
            received=f"{HEAD} {list(head.shape)} with other values",
            remedy="import a model whose head is tied; the backbone has one table for both",
        )
    return found


def _places(folder: Path) -> Mapping[str, str]:
    """File of each tensor, by the index."""
    path = folder / INDEX
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
        places = dict(table["weight_map"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _wrong(path, "a JSON table with weight_map: file of each tensor", repr(error)[:160]) from error
    for name, file in places.items():
        if not isinstance(file, str) or Path(file).name != file or not file.endswith(".safetensors"):
            raise _wrong(path, f"{name}: a safetensors file beside the index", json.dumps(file)[:80])
    return places


def _loaded(path: Path) -> dict[str, Tensor]:
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (no mapping)
    except (OSError, SafetensorError) as error:
        raise _wrong(path, "a whole safetensors file", f"{type(error).__name__}: {error}"[:160]) from error


def _require_names(folder: Path, expected: Collection[str], found: Collection[str]) -> None:
    missing, extra = [name for name in expected if name not in found], [name for name in found if name not in expected]
    parts = (f"{what} {_few(names)}" for what, names in (("without", missing), ("and beyond it", extra)) if names)
    if missing or extra:
        raise _wrong(folder, f"{len(expected)} tensors of a Llama decoder", "; ".join(parts))


def _values(folder: Path, name: str, tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    if tuple(tensor.shape) != shape:
        raise _wrong(folder, f"{name}: {list(shape)}, by config.json", str(list(tensor.shape)))
    if not tensor.is_floating_point():
        raise _wrong(folder, f"{name}: numbers in float32, bfloat16 or float16", str(tensor.dtype))
    values = tensor.float().contiguous()
    if not bool(torch.isfinite(values).all()):
        raise _wrong(folder, f"{name}: finite numbers", "NaN or infinity")
    return values


def _few(names: list[str]) -> str:
    return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")


def _wrong(path: Path, expected: str, received: str) -> ForeignModelError:
    return ForeignModelError(
        f"{path} does not hold the weights of its config.json",
        expected=expected,
        received=received,
        remedy="copy the folder again from where the model comes from",
    )
