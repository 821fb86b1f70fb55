"""From a configuration and four mechanisms to a model with values."""

import importlib
from types import ModuleType

import torch

from paribus.mechanisms.contract import MechanismConfig, Seam
from paribus.model.config import ModelConfig
from paribus.model.prenorm import Prenorm
from paribus.roles import initialise

BACKBONES: dict[str, type[Prenorm]] = {"prenorm": Prenorm}


def backbone_module(config: ModelConfig) -> ModuleType:
    """The file that is the backbone; its source is part of every cell's digest."""
    return importlib.import_module(BACKBONES[config.backbone].__module__)


def abstract_model(config: ModelConfig, mechanisms: dict[Seam, MechanismConfig]) -> Prenorm:
    """The model on the meta device: shapes, roles and names without memory."""
    with torch.device("meta"):
        return BACKBONES[config.backbone](config, mechanisms)


def build_model(
    config: ModelConfig,
    mechanisms: dict[Seam, MechanismConfig],
    stream: tuple[str | int, ...],
    dtype: torch.dtype = torch.float32,
) -> Prenorm:
    """A model on the CPU whose every parameter was drawn from (*stream, "init", its name)."""
    model = abstract_model(config, mechanisms).to(dtype).to_empty(device="cpu")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(torch.nan)  # a parameter that no initial law writes must not pass for a value
    initialise(model, *stream)
    return model
