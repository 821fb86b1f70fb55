"""What is on record of a fine-tuning before its first update, and that a folder is gone on with by the same settings
alone."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from paribus.downstream.chat.mixture import Mixture
from paribus.errors import StudyFolderError
from paribus.finetuning.base import RECORD, BaseCell, Recipe
from paribus.runs.differences import differences, short
from paribus.runs.environment import code_version, environment
from paribus.runs.folder import CellFolder
from paribus.runs.records import read_json, write_json

FORMAT = 1


def settings_of(
    base: BaseCell, mixture: Mixture, recipe: Recipe, steps: int, device: str, data: Mapping[str, Any]
) -> dict[str, Any]:
    """Everything that decides what comes out, as JSON types. `data` says which files and which tokenizer."""
    optimiser = recipe.optimiser.model_dump(mode="json")
    return {
        "mixture": mixture.as_json(),
        "base": {
            "study": base.study,
            "cell": base.name,
            "digest": base.digest,
            "final_tensors_digest": base.final_tensors_digest,
        },
        "data": dict(data),
        "recipe": {
            "context_length": recipe.context_length,
            "batch_tokens": recipe.batch_tokens,
            "micro_batch_rows": recipe.micro_batch_rows,
            "optimiser": {name: optimiser[name] for name in base.resolved["optimiser"]},
            "threads": recipe.threads,
            "device": device,
            "steps": steps,
        },
    }


def keep_record(
    folder: CellFolder, base: BaseCell, settings: Mapping[str, Any], counts: Mapping[str, Any], device_name: str
) -> None:
    """Write the record, or make sure that the one that is there has these settings.

    StudyFolderError where it has others, naming the field. Code that has changed meanwhile is noted beside them.
    """
    path = folder.path / RECORD
    version = code_version()
    if path.exists():
        found = read_json(path, f"delete {folder.path} to fine-tune again")
        require_same(folder, found.get("settings", {}), settings)
        versions = list(found.get("code_versions", []))
        if not folder.finished and version not in versions:
            write_json(path, {**found, "code_versions": [*versions, version]})
        return
    write_json(
        path,
        {
            "format": FORMAT,
            "name": folder.path.name,
            "study": base.study,
            "scale": base.scale,
            "arm": base.arm,
            "seed": base.seed,
            "variant": base.variant,
            "settings": settings,
            "counts": counts,
            "environment": {**environment(), "device": device_name},
            "code_versions": [version],
        },
    )


def require_same(folder: CellFolder, recorded: Any, settings: Any) -> None:
    """StudyFolderError naming the first field that differs."""
    differing = next(differences(recorded, json.loads(json.dumps(settings))), None)
    if differing is None:
        return
    raise StudyFolderError(
        f"{folder.path} was fine-tuned by other settings: {differing.field}",
        expected=short(differing.before, 200),
        received=short(differing.now, 200),
        remedy="give these settings another name (--name), or delete this folder",
    )


def digest_of_values(model: nn.Module) -> str:
    """Of every parameter's name, shape, type and bytes; 32 hexadecimal digits."""
    total = hashlib.blake2b(digest_size=16)
    for name, parameter in sorted(model.named_parameters()):
        value = parameter.detach().cpu().contiguous()
        total.update(f"{name} {tuple(value.shape)} {value.dtype} ".encode())
        total.update(value.reshape(-1).view(torch.uint8).numpy().tobytes())  # numpy has no bfloat16
    return total.hexdigest()
