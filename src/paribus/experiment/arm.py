"""What an arm is made of: text, backbone, recipe, mechanisms, and how much is scored."""

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from paribus.experiment.table import Positive, Table
from paribus.optim.config import OptimiserConfig, ScheduleConfig

MechanismTable = dict[str, Any]
SEAM_FIELDS = ("routing", "output_map", "value_map", "mask")
"""What arms exist to change. Any other difference between two arms must be declared by the contrast."""
REPLACED_WHOLE = (*SEAM_FIELDS, "corpus")
"""Tables whose keys belong together: a difference replaces them, it does not add to them."""


class Corpus(Table):
    """Where documents come from: a folder of Parquet files, or the documentation installed on this machine."""

    name: Literal["local-docs"] | None = None
    """"local-docs" (the default) needs no download"""
    path: Annotated[Path, Field(strict=False)] | None = None
    """folder of Parquet files with a column `text`; relative to the experiment file"""
    near_duplicate_similarity: Annotated[float, Field(ge=0.7, le=1.0)] = 0.8
    """Jaccard similarity of word shingles from which a document repeats an earlier one and is dropped"""
    test_fraction: Annotated[float, Field(gt=0.0, lt=0.5)] = 0.04
    """share of documents for the verdict"""
    validation_fraction: Annotated[float, Field(gt=0.0, lt=0.5)] = 0.02
    """share of documents for tuning and milestones"""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.name is not None and self.path is not None:
            raise ValueError("give either name or path, not both")
        return self


class Tokenizer(Table):
    """Byte-level BPE trained on the train split."""

    vocabulary_size: Annotated[int, Field(ge=257)] = 2048
    """256 bytes, one special token, and the merges"""


class ModelFields(Table):
    """Fields of the backbone that every scale shares; see `paribus.model.config.ModelConfig`."""

    backbone: Literal["prenorm"] = "prenorm"
    """the network that mechanisms enter"""
    head_width: Annotated[int, Field(ge=2, multiple_of=2)] = 32
    """features of one attention head"""
    query_heads_per_kv_head: Annotated[int, Field(ge=1)] = 1
    """query heads that share one key-value head (grouped queries)"""
    rotary_base: Annotated[float, Field(gt=1.0)] = 10_000.0
    """base of the rotary frequencies"""
    norm_eps: Annotated[float, Field(gt=0.0, le=1e-6)] = 1e-6
    """added to the mean square in every RMS norm"""
    qk_norm: bool = True
    """RMS-normalise queries and keys per head"""
    embedding_std: Annotated[float, Field(gt=0.0)] = 0.02
    """standard deviation of the tied embedding's initial rows"""


class Evaluation(Table):
    """How much held-out text is scored: whole documents, in the corpus' order, until the number is reached."""

    test_tokens: Positive | None = None
    """None scores the whole test split"""
    validation_tokens: Positive | None = None
    """None scores the whole validation split"""
    probe_tokens: Positive = 8192
    """validation tokens that the diagnostics look at"""


class Base(Table):
    """What all arms share unless an arm says otherwise."""

    context_length: Annotated[int, Field(ge=2)]
    """tokens of a training row"""
    batch_tokens: Positive
    """tokens of one optimiser update; a multiple of context_length"""
    corpus: Corpus = Corpus()
    """documents to train and test on"""
    tokenizer: Tokenizer = Tokenizer()
    """trained on the train split"""
    model: ModelFields = ModelFields()
    """the backbone"""
    optimiser: OptimiserConfig = OptimiserConfig()
    """learning rates by role"""
    schedule: ScheduleConfig = ScheduleConfig()
    """warm-up and decay as shares of the run"""
    evaluation: Evaluation = Evaluation()
    """how much held-out text is scored"""
    routing: MechanismTable | None = None
    """what a sublayer reads and where its result goes: { name = ..., ... }"""
    output_map: MechanismTable | None = None
    """after the attention mix, before heads merge: { name = ..., ... }"""
    value_map: MechanismTable | None = None
    """what attention aggregates: { name = ..., ... }"""
    mask: MechanismTable | None = None
    """who may attend to whom: { name = ..., ... }"""

    @model_validator(mode="after")
    def _rows_fill_the_batch(self) -> Self:
        if self.batch_tokens % self.context_length:
            raise ValueError(
                f"batch_tokens {self.batch_tokens} is not a multiple of context_length {self.context_length}"
            )
        return self
