"""Value embeddings: a token's id adds a learned vector to its own value before attention aggregates it.

    v_l[t] = W_v x_l[t] + E_l[token t]        one table E_l per chosen layer, zero at the start

Found in modded-nanogpt and nanochat ("value embeddings"); a cheap way to let values see the token itself at depth, and
so the rival of any mechanism that routes values through depth. What it recovers: zero tables are standard attention.
Free choices: which layers (nanochat takes the last and every second before it); the original scales E by a gate of the
stream, which is left out here. Parameters: vocabulary * kv_heads * head_width per chosen layer, and hardly any FLOPs.
"""

from typing import Annotated

from torch import nn
from torch.nn import functional

from paribus.mechanisms.contract import Bench, Geometry, Law, MechanismConfig, Seam, Tensors, largest
from paribus.mechanisms.exclusion.layer_choice import layer_choice, outside
from paribus.mechanisms.standard import OwnValue
from paribus.roles import ZEROS, DeclaredModule, Role
from paribus.shapes import Heads, Tokens


class TokenValue(DeclaredModule):
    """own + E[token]."""

    def __init__(self, geometry: Geometry) -> None:
        super().__init__()
        shape = (geometry.vocabulary_size, geometry.kv_heads * geometry.head_width)
        self.declare("table", shape, Role.EMBEDDING, ZEROS)

    def forward(self, own: Heads, first: Heads, tokens: Tokens) -> Heads:
        del first
        return own + functional.embedding(tokens, self.get_parameter("table")).view_as(own).to(own.dtype)


class ValueEmbedding(MechanismConfig):
    """Add an embedding of the token to its value."""

    name = "value-embedding"
    seam = Seam.VALUE_MAP

    layers: Annotated[str | tuple[int, ...], layer_choice("all", "alternating")] = "all"
    """"all", "alternating" (the last layer and every second before it), or a list of layer indices from 0"""

    def value_embedding_layers(self, geometry: Geometry) -> frozenset[int]:
        if isinstance(self.layers, str):
            return frozenset(range(geometry.layers - 1, -1, -1 if self.layers == "all" else -2))
        return frozenset(self.layers)

    def validate_for(self, geometry: Geometry) -> str | None:
        return outside(self.value_embedding_layers(geometry), geometry.layers)

    def build(self, geometry: Geometry, layer: int) -> nn.Module:
        return TokenValue(geometry) if layer in self.value_embedding_layers(geometry) else OwnValue()

    def parameters(self, geometry: Geometry) -> tuple[Tensors, ...]:
        table = (geometry.vocabulary_size, geometry.kv_heads * geometry.head_width)
        return (Tensors(Role.EMBEDDING, table, len(self.value_embedding_layers(geometry))),)

    def flops_per_token(self, geometry: Geometry) -> float:
        """One addition per element of a value."""
        return float(len(self.value_embedding_layers(geometry)) * geometry.kv_heads * geometry.head_width)


def _zero_tables(bench: Bench, perturbed: bool) -> float:
    model = bench.model({Seam.VALUE_MAP: {"name": "value-embedding"}})
    if perturbed:
        bench.disturb(model, "table", std=1e-3)
    a, b = bench.loss_and_gradients(model), bench.loss_and_gradients(bench.model({}))
    return largest(float((a[name] - b[name]).abs().max()) for name in b)


def _same_token_same_addition(bench: Bench, perturbed: bool) -> float:
    """What the map added, against the row of the table, wherever a token stands."""
    model = bench.model({Seam.VALUE_MAP: {"name": "value-embedding"}}, double=True)
    bench.disturb(model, "table")
    found = []

    def note(module: nn.Module, arguments: tuple[Heads, Heads, Tokens], result: Heads) -> None:
        own, _, tokens = arguments
        rows = module.get_parameter("table").detach()[tokens.roll(1, dims=1) if perturbed else tokens]
        found.append(float(((result - own).detach().flatten(-2) - rows).abs().max()))

    for module in model.modules():
        if isinstance(module, TokenValue):
            module.register_forward_hook(note)
    bench.logits(model)
    return largest(found)


LAWS = (
    Law(
        claim="zero tables are standard attention: loss and every shared gradient, bit for bit",
        measure=_zero_tables,
        perturbation="noise of 0.001 on the tables",
        bound=0.0,
        why="v + 0 = v is exact, and its gradient is the value's own",
    ),
    Law(
        claim="a value grows by its token's row of the table, at every position (float64)",
        measure=_same_token_same_addition,
        perturbation="rows of the tokens before",
        bound=64 * 2.0**-53,
        why="one rounded sum of values below 10 and its difference",
    ),
)
