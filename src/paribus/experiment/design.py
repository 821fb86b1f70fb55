"""What is compared, at which sizes, with how many seeds, and how it is run: everything of a study but its arms."""

from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from paribus.experiment.metrics import MetricName
from paribus.experiment.seeds import Calibration
from paribus.experiment.table import Effect, Name, Positive, Table
from paribus.published import PublishedFigure
from paribus.recipes.config import Derive


class Margins(Table):
    """What matters, and what power is computed for, where that depends on the scale."""

    smallest_effect: Effect
    """replaces a contrast's, in its metric's unit"""
    design_effect: Effect
    """replaces a contrast's; larger than smallest_effect"""


def _is_none(value: object) -> bool:
    """Of a key that is younger than studies: where it is not given, what they wrote down stays as it was."""
    return value is None


class TwinOf(Table):
    """The scale of another file that a smaller one stands for, as related evidence and never as its replication."""

    file: Annotated[Path, Field(strict=False)]
    """the other experiment file; relative to this one"""
    scale: Name | None = None
    """of that file; needed where it has several"""


class Scale(Table):
    """A size and a budget."""

    derive: Annotated[Derive | None, Field(exclude_if=_is_none)] = None
    """the depth from which the preset of [base] makes this table, and the part of `base` that depends on size; what is
    written beside it wins"""
    twin_of: Annotated[TwinOf | None, Field(exclude_if=_is_none)] = None
    """the scale that this one is a smaller twin of: `paribus plan` compares the two"""

    layers: Positive
    """Transformer layers; each is an attention and an MLP sublayer"""
    width: Annotated[int, Field(ge=2)]
    """features of the stream; a multiple of head_width"""
    mlp_width: Positive
    """hidden features of the MLP"""
    budget_tokens: Positive
    """training tokens of one cell"""
    milestones_tokens: Annotated[tuple[Positive, ...], Field(strict=False)] = ()
    """budgets below the last at which held-out text is scored, labelled mid-schedule"""
    budgets_tokens: Annotated[tuple[Positive, ...], Field(strict=False)] = ()
    """smaller budgets at which every arm also ends a schedule of its own: what a claim about budgets needs, two or
    more below budget_tokens"""
    budget_cells: Literal["separate", "branches"] = "separate"
    """"separate": each budget trains from the start; "branches": each is a cool-down from the constant-rate part of the
    full run, cheaper and dependent on it"""
    base: dict[str, Any] = Field(default_factory=dict)
    """differences from [base] for all arms at this scale alike: corpus, tokenizer, context_length, optimiser, ..."""
    seeds: dict[str, Any] = Field(default_factory=dict)
    """differences from [seeds] at this scale"""
    noise: dict[str, Any] = Field(default_factory=dict)
    """differences from [noise] at this scale"""
    execution: dict[str, Any] = Field(default_factory=dict)
    """differences from [execution] at this scale"""
    margins: Margins | None = None
    """in place of those of every contrast that names no scale of its own"""
    calibration: Calibration | None = None
    """in place of the file's [calibration] at this scale; `paribus calibrate FILE --scale NAME` prints it"""

    @model_validator(mode="after")
    def _milestones_lie_inside(self) -> Self:
        for field in ("milestones_tokens", "budgets_tokens"):
            budgets: tuple[int, ...] = getattr(self, field)
            if any(budget >= self.budget_tokens for budget in budgets):
                raise ValueError(f"{field} must lie below budget_tokens = {self.budget_tokens}")
            if list(budgets) != sorted(set(budgets)):
                raise ValueError(f"{field} must increase")
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
    """lower is better; the verdict uses the test split, validation is for tuning. test.nll, test.bits_per_byte,
    validation.nll, validation.bits_per_byte; for a task train.area and train.log2_updates too, and a slice or the
    difference of two behind any of them, such as train.area.QD or test.nll.same-different"""
    smallest_effect: Effect
    """what matters, in the metric's unit"""
    design_effect: Effect
    """what power is computed for; larger than smallest_effect"""
    expected: Literal["+", "-", "0"] | None = None
    """the sign of the difference that was expected beforehand; "0": none of either sign. It decides nothing and is
    shown beside what came out"""
    scale: Name | None = None
    """the scale that it is decided at; None: the one that is run"""
    assumed_sd: Effect | None = None
    """of the paired difference, in the metric's unit: a guess for planning, marked as assumed wherever it is used"""
    published: PublishedFigure | None = None
    """a public figure that the difference is shown beside"""
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
