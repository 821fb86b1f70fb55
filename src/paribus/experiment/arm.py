"""What an arm is made of: text, backbone, recipe, mechanisms, and how much is scored."""

from collections.abc import Iterator
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import Discriminator, Field, Tag, model_validator

from paribus.data import tasks
from paribus.data.tasks.contract import Task
from paribus.experiment.corpus import Corpus, Tokenizer
from paribus.experiment.table import Positive, Table
from paribus.model.config import CONFIGS, NanochatConstants, PrenormConstants
from paribus.optim.config import OptimiserConfig, ScheduleConfig

MechanismTable = dict[str, Any]
SEAM_FIELDS = ("routing", "output_map", "value_map", "mask")
"""What arms exist to change. Any other difference between two arms must be declared by the contrast."""
REPLACED_WHOLE = (*SEAM_FIELDS, "corpus")
"""Tables whose keys belong together: a difference replaces them, it does not add to them."""


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


def _backbone_of(table: Any) -> str:
    named = table.get("backbone", "prenorm") if isinstance(table, dict) else getattr(table, "backbone", "prenorm")
    return str(named)


ModelFields = Annotated[
    Annotated[PrenormConstants, Tag("prenorm")] | Annotated[NanochatConstants, Tag("nanochat")],
    Discriminator(
        _backbone_of,
        custom_error_type="unknown_backbone",
        custom_error_message="Input should be a table with backbone = " + " or ".join(f"'{name}'" for name in CONFIGS),
    ),
]
"""Constants of the backbone that every scale shares, by `backbone`."""


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

    preset: Annotated[
        Literal["nanochat-2026-04", "nanochat-2026-07"] | None, Field(exclude_if=lambda value: value is None)
    ] = None
    """the recipe that completes this table, key by key, where the file says nothing: `paribus plan` shows what it
    says"""
    context_length: Annotated[int, Field(ge=2)]
    """tokens of a training row"""
    batch_tokens: Positive
    """tokens of one optimiser update; a multiple of context_length"""
    corpus: Corpus = Corpus()
    """documents to train and test on"""
    tokenizer: Tokenizer = Tokenizer()
    """learnt from the train split, or loaded"""
    model: ModelFields = PrenormConstants()
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
