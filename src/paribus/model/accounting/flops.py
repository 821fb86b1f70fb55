"""FLOPs of a token in closed form: ours, and nanochat's own count."""

from collections.abc import Iterator

from paribus.model.accounting.parameters import Mechanisms, scaling_parameters
from paribus.model.backbone import geometry_of
from paribus.model.config import ModelConfig, NanochatConfig


def window(config: ModelConfig, layer: int) -> int | None:
    """Earlier positions that the attention of a layer sees; None where it sees the whole row, however that is said."""
    reach = config.window(layer) if isinstance(config, NanochatConfig) else None
    return None if reach is None or reach >= config.context_length - 1 else reach


def attended_positions(config: ModelConfig) -> Iterator[float]:
    """Mean number of positions that a query attends to, itself among them, layer by layer: causality and windows are
    counted, masks of documents are not."""
    time = config.context_length
    for layer in range(config.layers):
        reach = window(config, layer)
        most = time if reach is None else reach + 1
        # The first `most` queries see 1, 2, ..., most positions, and all later ones see `most`.
        yield (most * (most + 1) / 2 + (time - most) * most) / time


def forward_flops_per_token(config: ModelConfig, mechanisms: Mechanisms) -> float:
    """FLOPs of one forward pass per token: 2 per multiply-add of every matrix, the head and nanochat's gates among
    them, attention at the mean length that causality and windows leave, and what each mechanism declares. Norms and
    element-wise work of the backbone are left out."""
    inner = config.heads * config.head_width
    attention = sum(2 * 2 * inner * attended for attended in attended_positions(config))
    shortcuts = 0.0
    if isinstance(config, NanochatConfig):  # the gate of the previous token's embedding, which a row's first has not
        shortcuts = 2 * config.smear_channels * (config.context_length - 1) / config.context_length
    geometry = geometry_of(config, mechanisms)
    extra = sum(mechanism.flops_per_token(geometry) for mechanism in mechanisms.values())
    return 2 * scaling_parameters(config) + attention + shortcuts + extra


def training_flops_per_token(config: ModelConfig, mechanisms: Mechanisms) -> float:
    """Forward and backward: three times the forward pass (Kaplan et al. 2001.08361)."""
    return 3.0 * forward_flops_per_token(config, mechanisms)


def nanochat_flops_per_token(config: NanochatConfig) -> int:
    """Training FLOPs per token as nanochat counts them, for its published figures and rules.

    6 for every weight of a matrix product, and for each layer 12 heads * head_width * min(window, context_length). It
    differs from `training_flops_per_token` in three ways: attention has its full length at every position, where ours
    has the mean that causality leaves (about half, in a layer that sees the whole row); a window is the number of
    earlier positions, without one's own; and no mechanism counts.
    """
    time, weights = config.context_length, scaling_parameters(config) + config.smear_channels
    windows = (config.window(layer) for layer in range(config.layers))
    seen = sum(time if reach is None else min(reach, time) for reach in windows)
    return 6 * weights + 12 * config.heads * config.head_width * seen
