"""The experiment file: a strict TOML schema that reads like a methods section. Torch-free.

Unknown keys, wrong types, NaN and infinity are refused. Coercions from what TOML can write: arrays to tuples, strings
to paths. Mechanism tables are checked here for their shape only and by `paribus.mechanisms` for their contents.

A file may hold several scales. `paribus.experiment.loading` restricts it to one, which then is an experiment of its
own: what the scale declares under `base`, `seeds` and `execution` is laid over the tables of these names, and its
`margins` over those of the contrasts.
"""

import hashlib
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from paribus.model.config import ModelConfig
from paribus.optim.config import OptimiserConfig, ScheduleConfig

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=60)]
AT = "@"
"""between a study's name and the scale that its file is restricted to; no name in a file can contain it"""
StudyName = Annotated[
    str, Field(pattern=rf"^[A-Za-z0-9][A-Za-z0-9_.-]*({AT}[A-Za-z0-9][A-Za-z0-9_.-]*)?$", max_length=121)
]
Positive = Annotated[int, Field(ge=1)]
Effect = Annotated[float, Field(gt=0.0)]
MechanismTable = dict[str, Any]
MetricName = Literal["test.nll", "test.bits_per_byte", "validation.nll", "validation.bits_per_byte"]
UNITS: dict[str, str] = {"nll": "nats per token", "bits_per_byte": "bits per byte"}
SEAM_FIELDS = ("routing", "output_map", "value_map", "mask")
"""What arms exist to change. Any other difference between two arms must be declared by the contrast."""
REPLACED_WHOLE = (*SEAM_FIELDS, "corpus")
"""Tables whose keys belong together: a difference replaces them, it does not add to them."""


class Table(BaseModel):
    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


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


class Margins(Table):
    """What matters, and what power is computed for, where that depends on the scale."""

    smallest_effect: Effect
    """replaces a contrast's, in its metric's unit"""
    design_effect: Effect
    """replaces a contrast's; larger than smallest_effect"""


class Scale(Table):
    """A size and a budget."""

    layers: Positive
    """Transformer layers; each is an attention and an MLP sublayer"""
    width: Annotated[int, Field(ge=2)]
    """features of the stream; a multiple of head_width"""
    mlp_width: Positive
    """hidden features of the SwiGLU"""
    budget_tokens: Positive
    """training tokens of one cell"""
    milestones_tokens: Annotated[tuple[Positive, ...], Field(strict=False)] = ()
    """budgets below the last at which held-out text is scored, labelled mid-schedule"""
    base: dict[str, Any] = {}
    """differences from [base] for all arms at this scale alike: corpus, tokenizer, context_length, optimiser, ..."""
    seeds: dict[str, Any] = {}
    """differences from [seeds] at this scale"""
    execution: dict[str, Any] = {}
    """differences from [execution] at this scale"""
    margins: Margins | None = None
    """in place of those of every contrast that names no scale of its own"""

    @model_validator(mode="after")
    def _milestones_lie_inside(self) -> Self:
        if any(m >= self.budget_tokens for m in self.milestones_tokens):
            raise ValueError(f"milestones_tokens must lie below budget_tokens = {self.budget_tokens}")
        return self


class Contrast(Table):
    """Treatment minus baseline, or the difference of two such differences, and the rule that turns it into a word."""

    treatment: Name
    """the arm that the question is about"""
    baseline: Name
    """the arm that it is compared with"""
    minus_treatment: Name | None = None
    """interaction: seed by seed, (treatment - baseline) - (minus_treatment - minus_baseline)"""
    minus_baseline: Name | None = None
    """interaction: the arm that minus_treatment is compared with; both or neither"""
    primary: bool = False
    """exactly one contrast at one scale is; the others get words only after it"""
    metric: MetricName = "test.nll"
    """lower is better; the verdict uses the test split, validation is for tuning"""
    smallest_effect: Effect
    """what matters, in the metric's unit"""
    design_effect: Effect
    """what power is computed for; larger than smallest_effect"""
    scale: Name | None = None
    """the scale that it is decided at; None: the one that is run"""
    also_differs: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """field paths besides mechanisms in which the arms may differ, such as optimiser.matrix_learning_rate, and
    "tensor:NAME" for tensors of the baseline that the treatment lacks or declares otherwise; * stands for any text"""

    @model_validator(mode="after")
    def _design_exceeds_margin(self) -> Self:
        if self.design_effect <= self.smallest_effect:
            raise ValueError(f"design_effect {self.design_effect} must exceed smallest_effect {self.smallest_effect}")
        if self.treatment == self.baseline:
            raise ValueError("treatment and baseline are the same arm")
        return self

    @model_validator(mode="after")
    def _interaction_compares_two_differences(self) -> Self:
        a, b, c, d = self.treatment, self.baseline, self.minus_treatment, self.minus_baseline
        if c is None and d is None:
            return self
        if c is None or d is None:
            raise ValueError("an interaction needs both minus_treatment and minus_baseline")
        # a = d or b = c alone is a second difference, such as of three strengths; both together are 2 (a - b).
        if c in (a, d) or b == d or (a == d and b == c):
            raise ValueError(
                f"({a} - {b}) - ({c} - {d}) is no interaction: it is zero, or a simple contrast of two arms"
            )
        return self

    @property
    def arms(self) -> tuple[str, ...]:
        """The two arms, or the four of an interaction, in the order of the formula."""
        found = (self.treatment, self.baseline, self.minus_treatment, self.minus_baseline)
        return tuple(arm for arm in found if arm is not None)

    def declares_tensor(self, name: str) -> bool:
        """Whether `also_differs` names this tensor."""
        return any(fnmatchcase(f"tensor:{name}", declared) for declared in self.also_differs)

    @property
    def formula(self) -> str:
        """What is compared, in words: "a minus b", or "(a minus b) minus (c minus d)"."""
        if self.minus_treatment is None:
            return f"{self.treatment} minus {self.baseline}"
        return f"({self.treatment} minus {self.baseline}) minus ({self.minus_treatment} minus {self.minus_baseline})"


class Seeds(Table):
    """The units of replication."""

    count: Positive
    """planned pairs; before them no verdict words are printed"""
    first: Annotated[int, Field(ge=0)] = 0
    """seeds are first, first + 1, ..."""
    repeats: Annotated[int, Field(ge=0)] = 0
    """A/A: so many cells of the primary's baseline are trained a second time (kernel noise; exactly 0 in proof mode)"""

    @property
    def numbers(self) -> tuple[int, ...]:
        return tuple(range(self.first, self.first + self.count))


class Execution(Table):
    """How cells run on this machine.

    `mode`, `threads`, `micro_batch_rows` and the device that was found belong to a cell's identity; the rest does not.
    """

    mode: Literal["proof"] = "proof"
    """"proof": eager, deterministic algorithms, fixed threads; the same cell twice gives identical bits"""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """where cells are trained; "auto" takes CUDA where there is one"""
    threads: Positive = 1
    """threads of each worker"""
    workers: Annotated[int, Field(ge=0)] = 0
    """processes that train cells side by side; 0 takes one for each core, divided by threads, or one for each GPU"""
    micro_batch_rows: Annotated[int, Field(ge=0)] = 0
    """rows of one forward pass; 0 takes the whole batch"""
    checkpoint_steps: Positive = 50
    """updates between checkpoints"""


class Experiment(Table):
    """One study."""

    study: StudyName
    """name of the run folder, and part of every random stream; the file's name where it is not given, and "@" with
    the scale's name behind it where the file holds several scales and is restricted to one"""
    question: Annotated[str, Field(min_length=1)]
    """what the study wants to know, in one sentence"""
    base: Base
    """what all arms share"""
    scales: Annotated[dict[Name, Scale], Field(min_length=1)]
    """sizes with their budgets, by name"""
    arms: Annotated[dict[Name, dict[str, Any]], Field(min_length=1)]
    """differences from the base, by name; an empty table is the base itself"""
    contrasts: Annotated[dict[Name, Contrast], Field(min_length=1)]
    """comparisons with their rule, by name; exactly one is primary"""
    seeds: Seeds
    """how many pairs"""
    execution: Execution = Execution()
    """how cells run on this machine"""

    def arm(self, name: str) -> Base:
        """The base with the arm's differences."""
        return Base.model_validate(merged(self.base.model_dump(exclude_unset=True), self.arms[name]))

    def model_config_of(self, arm: Base, scale: str) -> ModelConfig:
        size = self.scales[scale]
        return ModelConfig(
            **arm.model.model_dump(),
            layers=size.layers,
            width=size.width,
            mlp_width=size.mlp_width,
            vocabulary_size=arm.tokenizer.vocabulary_size,
            context_length=arm.context_length,
        )

    @property
    def option(self) -> str:
        """What a command needs beside the file to mean this experiment: "" or "--scale NAME"."""
        return f"--scale {next(iter(self.scales))}" if AT in self.study else ""

    def contrast_scale(self, contrast: Contrast) -> str:
        return contrast.scale if contrast.scale is not None else next(iter(self.scales))

    def cell_keys(self) -> list[tuple[str, str, int, int]]:
        """(scale, arm, seed, repeat) of every cell, seed by seed, so that pairs complete early."""
        primary = self.contrasts[self.primary]
        repeated = (self.contrast_scale(primary), primary.baseline)
        return [
            (scale, arm, seed, repeat)
            for position, seed in enumerate(self.seeds.numbers)
            for scale in self.scales
            for arm in self.arms
            for repeat in range(1 + ((scale, arm) == repeated and position < self.seeds.repeats))
        ]

    @property
    def primary(self) -> str:
        return next(name for name, contrast in self.contrasts.items() if contrast.primary)


def merged(base: dict[str, Any], difference: dict[str, Any]) -> dict[str, Any]:
    """`base` with `difference` laid over it. A mechanism or corpus is replaced whole; other tables merge by key."""
    result = dict(base)
    for key, value in difference.items():
        below = result.get(key)
        if isinstance(value, dict) and isinstance(below, dict) and key not in REPLACED_WHOLE:
            result[key] = merged(below, value)
        else:
            result[key] = value
    return result


def rule_digest(experiment: Experiment) -> str:
    """Identity of everything that decides a verdict: contrasts and planned seeds. Changing it is recorded and shown."""
    contrasts = {
        name: contrast.model_dump_json(
            exclude=set() if len(contrast.arms) > 2 else {"minus_treatment", "minus_baseline"}
        )
        for name, contrast in sorted(experiment.contrasts.items())
    }
    text = f"{contrasts} {experiment.seeds.count} {experiment.seeds.first}"
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def declared(experiment: Experiment, scale: str, arm: str) -> str:
    """What the file says about an arm at a scale, as one text: a changed file is noticed without resolving it."""
    execution = experiment.execution.model_dump(include={"mode", "device", "threads", "micro_batch_rows"})
    return f"{experiment.arm(arm).model_dump_json()} {experiment.scales[scale].model_dump_json()} {execution}"
