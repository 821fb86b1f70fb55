"""What an arm is made of: text, backbone, recipe, mechanisms, and how much is scored."""

import json
from collections.abc import Collection, Iterator
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from paribus.data import tasks
from paribus.data.tasks.contract import Task
from paribus.experiment.table import Positive, Table
from paribus.optim.config import OptimiserConfig, ScheduleConfig

MechanismTable = dict[str, Any]
SEAM_FIELDS = ("routing", "output_map", "value_map", "mask")
"""What arms exist to change. Any other difference between two arms must be declared by the contrast."""
REPLACED_WHOLE = (*SEAM_FIELDS, "corpus")
"""Tables whose keys belong together: a difference replaces them, it does not add to them."""


class Corpus(Table):
    """What is read: documentation installed on this machine, a folder of Parquet files, or a synthetic task."""

    name: Literal["local-docs"] | None = None
    """"local-docs" (the default) needs no download"""
    path: Annotated[Path, Field(strict=False)] | None = None
    """folder of Parquet files with a column `text`; relative to the experiment file"""
    task: str | None = None
    """a synthetic task by its name, with its knobs beside it: { task = "cross", m = 1 }; rows of context_length tokens,
    never repeated, and a vocabulary of its own"""
    knobs: dict[str, Any] = Field(default_factory=dict)
    """of the task; the keys beside `task` are gathered here"""
    near_duplicate_similarity: Annotated[float, Field(ge=0.7, le=1.0)] = 0.8
    """Jaccard similarity of word shingles from which a document repeats an earlier one and is dropped"""
    test_fraction: Annotated[float, Field(gt=0.0, lt=0.5)] = 0.04
    """share of documents for the verdict"""
    validation_fraction: Annotated[float, Field(gt=0.0, lt=0.5)] = 0.02
    """share of documents for tuning and milestones"""

    @model_validator(mode="before")
    @classmethod
    def _gather_knobs(cls, table: Any) -> Any:
        """Keys beside `task` are its knobs: which there are, the task says."""
        if not isinstance(table, dict):
            return table
        if table.get("task") is None:
            _require_no_knobs(table, cls.model_fields)
            return table
        own = {key: value for key, value in table.items() if key in tasks.TAKEN}
        beside = {key: value for key, value in table.items() if key not in own}
        knobs = own.get("knobs", {})
        if not isinstance(knobs, dict):
            return own
        for twice in sorted(beside.keys() & knobs.keys()):
            raise ValueError(f"the knob '{twice}' is given twice, beside `task` and in `knobs`: keep one of them")
        return {**own, "knobs": {**knobs, **beside}}

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        given = [key for key in ("name", "path", "task") if getattr(self, key) is not None]
        if len(given) > 1:
            raise ValueError(f"give either {given[0]} or {given[1]}, not both")
        return self


def named_in_mechanisms(base: "Base") -> Iterator[str]:
    """Every text in an arm's mechanism tables but the mechanisms' own names: among them the arms that it starts
    from."""
    for seam in SEAM_FIELDS:
        yield from _texts(getattr(base, seam))


def _texts(table: Any) -> Iterator[str]:
    if isinstance(table, dict):
        for key, value in table.items():
            yield from () if key == "name" else _texts(value)
    elif isinstance(table, (list, tuple)):
        for value in table:
            yield from _texts(value)
    elif isinstance(table, str):
        yield table


def _require_no_knobs(table: dict[str, Any], known: Collection[str]) -> None:
    """ValueError where a key of a corpus without a task can only be meant as a task's knob."""
    knobs = table["knobs"] if isinstance(table.get("knobs"), dict) else {}
    for key, value in [*knobs.items(), *((key, table[key]) for key in table if key not in known)]:
        if of := tasks.with_knob(key):
            shown = json.dumps(value) if isinstance(value, (str, bool, int, float)) else "..."
            raise ValueError(
                f"`{key}` is a knob of {', '.join(of)}: name its task too, such as "
                f'{{ task = "{of[0]}", {key} = {shown} }}'
            )


class Tokenizer(Table):
    """Byte-level BPE trained on the train split; a task has tokens of its own and leaves it unused."""

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
    """How much is scored: whole documents in the corpus' order, or rows of a task, until the number is reached."""

    test_tokens: Positive | None = None
    """None scores the whole test split; of a task, 16,384 inputs"""
    validation_tokens: Positive | None = None
    """None scores the whole validation split; of a task, 16,384 inputs"""
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

    @cached_property
    def task(self) -> Task | None:
        """The synthetic task that is read; None for text. ExperimentFileError for an unknown task or knob."""
        if self.corpus.task is None:
            return None
        return tasks.resolve(self.corpus.task, self.corpus.knobs, "base.corpus")

    @property
    def vocabulary_size(self) -> int:
        """Rows of the embedding: the task's tokens, or the tokenizer's."""
        return self.tokenizer.vocabulary_size if self.task is None else self.task.vocabulary_size

    @model_validator(mode="after")
    def _rows_fill_the_batch(self) -> Self:
        if self.batch_tokens % self.context_length:
            raise ValueError(
                f"batch_tokens {self.batch_tokens} is not a multiple of context_length {self.context_length}"
            )
        return self
