"""nanochat's names of tensors beside ours. The values are the same numbers in the same shapes; nothing is transposed.

    transformer.wte, lm_head                 embedding, head
    smear_gate, smear_lambda                 smear_gate, smear_scale
    resid_lambdas, x0_lambdas                routing.stream_scale, routing.embedding_scale
    backout_lambda                           routing.backout_scale
    value_embeds.I                           layers.I.attention.value_embedding
    transformer.h.I.attn.{c_q, c_k, c_v, c_proj, ve_gate}
                                             layers.I.attention.{query, key, value, output, value_gate}
    transformer.h.I.mlp.{c_fc, c_proj}       layers.I.mlp.{up, down}

Those of linear maps and tables end in `.weight` there. Names of a compiled model begin with `_orig_mod.`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from paribus.mechanisms import resolve
from paribus.mechanisms.contract import Seam
from paribus.model.build import abstract_model
from paribus.model.config import NanochatConfig

COMPILED = "_orig_mod."
OF_THE_ERA = ("smear_gate.weight", "smear_lambda", "backout_lambda")
"""tensors that a checkpoint has since the spring of 2026; every shape of model has them"""
_WHOLE: Mapping[str, str] = {
    "embedding": "transformer.wte.weight",
    "head": "lm_head.weight",
    "smear_gate": "smear_gate.weight",
    "smear_scale": "smear_lambda",
    "routing.stream_scale": "resid_lambdas",
    "routing.embedding_scale": "x0_lambdas",
    "routing.backout_scale": "backout_lambda",
}
_OF_A_LAYER: Mapping[str, str] = {
    "attention.query": "transformer.h.{}.attn.c_q.weight",
    "attention.key": "transformer.h.{}.attn.c_k.weight",
    "attention.value": "transformer.h.{}.attn.c_v.weight",
    "attention.output": "transformer.h.{}.attn.c_proj.weight",
    "attention.value_gate": "transformer.h.{}.attn.ve_gate.weight",
    "attention.value_embedding": "value_embeds.{}.weight",
    "mlp.up": "transformer.h.{}.mlp.c_fc.weight",
    "mlp.down": "transformer.h.{}.mlp.c_proj.weight",
}


@dataclass(frozen=True)
class Expected:
    """A tensor that a checkpoint must hold."""

    ours: str
    shape: tuple[int, ...]


def expected_tensors(config: NanochatConfig) -> dict[str, Expected]:
    """Every tensor of a checkpoint of this configuration, by nanochat's name."""
    model = abstract_model(config, {seam: resolve(seam, None, str(seam)) for seam in Seam})
    return {theirs(name): Expected(name, tuple(parameter.shape)) for name, parameter in model.named_parameters()}


def theirs(ours: str) -> str:
    """nanochat's name of one of our parameters. KeyError for one that it does not have."""
    if ours in _WHOLE:
        return _WHOLE[ours]
    _, layer, rest = ours.split(".", 2)
    return _OF_A_LAYER[rest].format(layer)
