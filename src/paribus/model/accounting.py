"""Counting: parameters by role, FLOPs per token in closed form."""

from paribus.mechanisms.contract import MechanismConfig, Seam
from paribus.model.config import ModelConfig
from paribus.model.prenorm import Prenorm, geometry_of
from paribus.roles import Role, declarations


def parameters_by_role(model: Prenorm) -> dict[Role, int]:
    """Trainable parameters by role; roles without any are left out."""
    counts: dict[Role, int] = {}
    for name, declaration in declarations(model).items():
        counts[declaration.role] = counts.get(declaration.role, 0) + model.get_parameter(name).numel()
    return counts


def forward_flops_per_token(config: ModelConfig, mechanisms: dict[Seam, MechanismConfig]) -> float:
    """FLOPs of one forward pass per token: 2 per multiply-add of every matrix, causal attention at its mean length,
    the tied head, and what each mechanism declares. Norms and element-wise work of the backbone are left out."""
    inner = config.heads * config.head_width
    projected = 2 * inner + 2 * config.kv_heads * config.head_width  # query and output, key and value
    matrices = config.width * projected + 3 * config.width * config.mlp_width
    attended = (config.context_length + 1) / 2
    attention = 2 * 2 * inner * attended
    head = 2 * config.width * config.vocabulary_size
    geometry = geometry_of(config, mechanisms)
    extra = sum(mechanism.flops_per_token(geometry) for mechanism in mechanisms.values())
    return config.layers * (2 * matrices + attention) + head + extra


def training_flops_per_token(config: ModelConfig, mechanisms: dict[Seam, MechanismConfig]) -> float:
    """Forward and backward: three times the forward pass (Kaplan et al. 2001.08361)."""
    return 3.0 * forward_flops_per_token(config, mechanisms)
