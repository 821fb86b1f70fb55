"""From a configuration and four mechanisms to a model with values."""

import importlib
from types import ModuleType

import torch

from paribus.mechanisms.contract import MechanismConfig, Seam
from paribus.model.backbone import Backbone
from paribus.model.config import ModelConfig
from paribus.roles import Role, declarations, initialise


def backbone_module(config: ModelConfig) -> ModuleType:
    """The file that is the backbone, loaded by its name: its source is part of the digest of its own cells only."""
    return importlib.import_module(f"paribus.model.{config.backbone}")


def abstract_model(config: ModelConfig, mechanisms: dict[Seam, MechanismConfig]) -> Backbone:
    """The model on the meta device: shapes, roles and names without memory."""
    kind = getattr(backbone_module(config), config.backbone.capitalize())
    with torch.device("meta"):
        return kind(config, mechanisms)


def build_model(
    config: ModelConfig,
    mechanisms: dict[Seam, MechanismConfig],
    stream: tuple[str | int, ...],
    dtype: torch.dtype = torch.float32,
) -> Backbone:
    """A model on the CPU whose every parameter was drawn from (*stream, "init", its name)."""
    model = abstract_model(config, mechanisms).to(dtype).to_empty(device="cpu")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(torch.nan)  # a parameter that no initial law writes must not pass for a value
    initialise(model, *stream)
    if config.stored_tables == "bfloat16" and dtype == torch.float32:
        store_tables(model, torch.bfloat16)
    return model


def store_tables(model: Backbone, dtype: torch.dtype) -> None:
    """Round the tables that token ids look up to a smaller type. They are drawn in float32, like everything."""
    for name, declaration in declarations(model).items():
        if declaration.role in (Role.EMBEDDING, Role.VALUE_EMBEDDING):
            parameter = model.get_parameter(name)
            parameter.data = parameter.data.to(dtype)
