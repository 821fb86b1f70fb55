"""The arm that gates work on: the study's depth, wiring and mechanisms, on a stream of a few heads.

Laws and wiring do not depend on the width; time and memory do. The size of a group of query heads is kept.
"""

from paribus.model.config import ModelConfig

KV_HEADS = 2
VOCABULARY = 61


def narrowed(model: ModelConfig, head_width: int) -> ModelConfig:
    """`model` with at most KV_HEADS key-value heads of at most `head_width` features, and a small vocabulary."""
    head = min(model.head_width, head_width)
    width = head * model.query_heads_per_kv_head * min(model.kv_heads, KV_HEADS)
    channels = [name for name in ("smear_channels", "value_gate_channels") if hasattr(model, name)]
    return model.model_copy(
        update={
            **{name: min(getattr(model, name), width // 2) for name in channels},
            "head_width": head,
            "width": width,
            "mlp_width": min(model.mlp_width, 2 * width),
            "vocabulary_size": min(model.vocabulary_size, VOCABULARY),
        }
    )
