"""What a backbone is made of, in numbers. Torch-free, so that planning and reporting can read it."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class ModelConfig(BaseModel):
    """The constant of a study: everything about the network that no mechanism changes."""

    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    backbone: Literal["prenorm"] = "prenorm"
    """the file of `paribus.model` that holds it"""
    layers: Annotated[int, Field(ge=1)]
    """Transformer layers; each is an attention and an MLP sublayer"""
    width: Annotated[int, Field(ge=2)]
    """features of the stream"""
    head_width: Annotated[int, Field(ge=2, multiple_of=2)]
    """features of one head; width / head_width heads"""
    query_heads_per_kv_head: Annotated[int, Field(ge=1)] = 1
    """query heads that share one key-value head, 1 to all of them (grouped queries, Ainslie et al. 2305.13245)"""
    mlp_width: Annotated[int, Field(ge=1)]
    """hidden features of the SwiGLU"""
    vocabulary_size: Annotated[int, Field(ge=2)]
    """rows of the tied embedding"""
    context_length: Annotated[int, Field(ge=2)]
    """tokens of a training row"""
    rotary_base: Annotated[float, Field(gt=1.0)] = 10_000.0
    """base of the rotary frequencies (Su et al. 2104.09864)"""
    norm_eps: Annotated[float, Field(gt=0.0, le=1e-6)] = 1e-6
    """added to the mean square in every RMS norm; larger values would break step-0 parity of depth routings"""
    qk_norm: bool = True
    """RMS-normalise queries and keys per head, without gain"""
    embedding_std: Annotated[float, Field(gt=0.0)] = 0.02
    """standard deviation of the tied embedding's initial rows"""

    @model_validator(mode="after")
    def _heads_divide_width(self) -> "ModelConfig":
        if self.width % self.head_width:
            raise ValueError(f"width {self.width} is not a multiple of head_width {self.head_width}")
        if self.heads % self.query_heads_per_kv_head:
            raise ValueError(
                f"{self.heads} heads do not form groups of query_heads_per_kv_head = {self.query_heads_per_kv_head}"
            )
        return self

    @property
    def heads(self) -> int:
        return self.width // self.head_width

    @property
    def kv_heads(self) -> int:
        return self.heads // self.query_heads_per_kv_head
