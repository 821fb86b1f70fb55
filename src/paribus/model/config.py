"""What a backbone is made of, in numbers. Torch-free, so that planning and reporting can read it.

A backbone's constants are what an experiment file may say about it under [base.model]; its size comes from the scale.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Compute = Literal["float32", "bfloat16"]
Positive = Annotated[float, Field(gt=0.0)]


class _Numbers(BaseModel):
    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


class PrenormConstants(_Numbers):
    """The PreNorm decoder: RMS norms with gains, rotary positions, SwiGLU, tied head."""

    backbone: Literal["prenorm"] = "prenorm"
    """the file of `paribus.model` that holds it"""
    head_width: Annotated[int, Field(ge=2, multiple_of=2)] = 32
    """features of one head; width / head_width heads"""
    query_heads_per_kv_head: Annotated[int, Field(ge=1)] = 1
    """query heads that share one key-value head, 1 to all of them (grouped queries, Ainslie et al. 2305.13245)"""
    rotary_base: Annotated[float, Field(gt=1.0)] = 10_000.0
    """base of the rotary frequencies (Su et al. 2104.09864)"""
    norm_eps: Annotated[float, Field(gt=0.0, le=1e-5)] = 1e-6
    """added to the mean square in every RMS norm; depth routings take at most 1e-6, or step-0 parity would break"""
    qk_norm: bool = True
    """RMS-normalise queries and keys per head, without gain"""
    normalise_embedding: Annotated[bool, Field(exclude_if=lambda value: value is True)] = True
    """RMS-normalise the embedding before the first layer, without gain; models of others may not"""
    embedding_std: Positive = 0.02
    """standard deviation of the tied embedding's initial rows"""
    compute: Compute = "float32"
    """type of matrix products and attention; stream, depth sources, norms, sums and the loss are float32 in any case"""


class NanochatConstants(_Numbers):
    """The decoder of nanochat (github.com/karpathy/nanochat, April to July 2026), constant by constant.

    Norms have no gains, the head is not tied, and the tokens reach the layers by four shortcuts of its own.
    """

    backbone: Literal["nanochat"] = "nanochat"
    """the file of `paribus.model` that holds it"""
    head_width: Annotated[int, Field(ge=2, multiple_of=2)] = 128
    """features of one head; width / head_width heads"""
    query_heads_per_kv_head: Annotated[int, Field(ge=1)] = 1
    """query heads that share one key-value head; nanochat trains with 1"""
    rotary_base: Annotated[float, Field(gt=1.0)] = 100_000.0
    """base of the rotary frequencies, since March 2026"""
    norm_eps: Annotated[float, Field(gt=0.0, le=1e-6)] = 2.0**-23
    """added to the mean square in every RMS norm; nanochat takes torch's default, which is this for a float32 stream"""
    qk_gain: Positive = 1.2
    """factor of queries and of keys after their norm"""
    window_pattern: Annotated[str, Field(pattern=r"^[SL]+$")] = "SSSL"
    """attention of layer 0, 1, ...: S a short window, L the whole row; repeated, and the last layer is L in any case"""
    short_window_divisor: Annotated[int, Field(ge=1)] = 4
    """a short window is the context length divided by this, rounded up to a multiple of the next"""
    short_window_multiple: Annotated[int, Field(ge=1)] = 128
    """positions; a window is how many earlier ones are seen beside one's own"""
    value_embeddings: Literal["alternating", "none"] = "alternating"
    """layers whose values get an embedding of the token: the last, and every second before it"""
    value_gate_channels: Annotated[int, Field(ge=1)] = 12
    """first features of the layer's input that gate the value embedding, one gate for each key-value head"""
    value_gate_scale: Positive = 3.0
    """the gate is this times a sigmoid"""
    smear_channels: Annotated[int, Field(ge=1)] = 24
    """first features of a token's embedding that gate how much of the previous token's joins it"""
    logit_softcap: Positive = 15.0
    """logits are this times tanh(logits / this)"""
    compute: Compute = "float32"
    """type of matrix products and attention; stream, depth sources, norms, sums and the loss are float32 in any case"""
    table_storage: Compute = "float32"
    """type in which the token embedding and the value embeddings, and their optimiser's moments, are stored"""
    vocabulary_multiple: Annotated[int, Field(ge=1)] = 64
    """rows of the tables are the vocabulary rounded up to a multiple of this"""
    embedding_std: Positive = 0.8
    """normal law of the token embedding's initial rows"""
    head_std: Positive = 0.001
    """normal law of the output head's initial rows"""
    projection_gain: Positive = 1.0
    """queries, keys, values and value embeddings start uniform with a standard deviation of this over sqrt(width)"""
    mlp_up_gain: Positive = 0.4
    """the same of the first matrix of the MLP; both output projections start at zero"""
    gate_initial_max: Positive = 0.02
    """weights of both gates start uniform from 0 to this"""
    stream_scale_first: float = 1.15
    """initial factor of the stream before layer 0"""
    stream_scale_last: float = 1.05
    """the same before the last layer; linear between"""
    embedding_scale_first: float = 0.20
    """initial share of the embedding that enters before layer 0"""
    embedding_scale_last: float = 0.05
    """the same before the last layer; linear between"""
    backout_initial: float = 0.2
    """initial share of the stream behind the middle layer that is taken out before the head"""


Constants = PrenormConstants | NanochatConstants


class Size(_Numbers):
    """What a scale, the tokenizer and the rows say."""

    layers: Annotated[int, Field(ge=1)]
    """Transformer layers; each is an attention and an MLP sublayer"""
    width: Annotated[int, Field(ge=2)]
    """features of the stream"""
    mlp_width: Annotated[int, Field(ge=1)]
    """hidden features of the MLP"""
    vocabulary_size: Annotated[int, Field(ge=2)]
    """token ids"""
    context_length: Annotated[int, Field(ge=2)]
    """tokens of a training row"""


class ModelConfig(Size):
    """The constant of a study: everything about the network that no mechanism changes. A backbone's own class adds its
    constants; what all of them have is named here."""

    backbone: str
    """the file of `paribus.model` that holds it"""
    head_width: int
    """features of one head"""
    query_heads_per_kv_head: int
    """query heads that share one key-value head"""
    rotary_base: float
    """base of the rotary frequencies"""
    norm_eps: float
    """added to the mean square in every RMS norm"""
    embedding_std: float
    """standard deviation of the token embedding's initial rows"""
    compute: Compute
    """type of matrix products and attention"""

    @model_validator(mode="after")
    def _heads_divide_width(self) -> "ModelConfig":
        if self.width % self.head_width:
            raise ValueError(
                f"width {self.width} is not a multiple of head_width {self.head_width}{self._other_head_widths()}"
            )
        if self.heads % self.query_heads_per_kv_head:
            raise ValueError(
                f"{self.heads} heads do not form groups of query_heads_per_kv_head = {self.query_heads_per_kv_head}"
            )
        return self

    def _other_head_widths(self) -> str:
        near = [w for w in range(16, 257, 2) if self.width % w == 0]
        return f" (head_width could be {', '.join(map(str, near))})" if near else ""

    @property
    def stored_tables(self) -> Compute:
        """Type in which the tables that token ids look up are stored."""
        return "float32"

    @property
    def value_embedding_layers(self) -> frozenset[int]:
        """Layers in which the backbone itself adds something to the projected value."""
        return frozenset()

    @property
    def heads(self) -> int:
        return self.width // self.head_width

    @property
    def kv_heads(self) -> int:
        return self.heads // self.query_heads_per_kv_head


class PrenormConfig(PrenormConstants, ModelConfig):  # pyright: ignore[reportIncompatibleVariableOverride]
    """A PreNorm decoder of a size."""


class NanochatConfig(NanochatConstants, ModelConfig):  # pyright: ignore[reportIncompatibleVariableOverride]
    """A nanochat decoder of a size."""

    @model_validator(mode="after")
    def _shortcuts_fit(self) -> "NanochatConfig":
        if self.value_embeddings == "alternating" and self.layers % 2:
            raise ValueError(
                f"{self.layers} layers: every second layer back from the last has a value embedding, which leaves "
                'layer 0 without one only where layers is even; take an even number, or value_embeddings = "none"'
            )
        for field in ("value_gate_channels", "smear_channels"):
            if getattr(self, field) > self.width:
                raise ValueError(f"{field} {getattr(self, field)} exceeds width {self.width}")
        return self

    @property
    def value_embedding_layers(self) -> frozenset[int]:
        return frozenset(range(self.layers - 1, -1, -2)) if self.value_embeddings == "alternating" else frozenset()

    @property
    def stored_tables(self) -> Compute:
        return self.table_storage

    @property
    def table_rows(self) -> int:
        """Rows of the embedding, the head and the value embeddings."""
        return -(-self.vocabulary_size // self.vocabulary_multiple) * self.vocabulary_multiple

    def window(self, layer: int) -> int | None:
        """Earlier positions that layer `layer` sees beside the own one; None for all of the row."""
        letter = self.window_pattern[layer % len(self.window_pattern)]
        if letter == "L" or layer == self.layers - 1:
            return None
        unit = self.short_window_multiple
        return -(-self.context_length // (self.short_window_divisor * unit)) * unit


CONFIGS: Mapping[str, type[ModelConfig]] = {"prenorm": PrenormConfig, "nanochat": NanochatConfig}
"""by backbone"""
