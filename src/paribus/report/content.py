"""What a report is made of: plain frozen records, assembled by `paribus.study` from the run folder's rows.

Nothing here is computed by the page: a figure or a table only shows these records. Losses are nats per token.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from paribus.stats.verdict import Verdict


@dataclass(frozen=True)
class PairRow:
    """One seed of one contrast: a point of the paired-difference figure."""

    contrast: str
    """the verdict's name"""
    scale: str
    seed: int
    difference: float | None
    """treatment minus baseline, unit of the verdict's metric; None where a cell of the pair diverged"""


@dataclass(frozen=True)
class Curve:
    """Training loss of one cell, raw: one value per optimiser update."""

    scale: str
    arm: str
    seed: int
    tokens: tuple[int, ...]
    loss_nats_per_token: tuple[float, ...]


@dataclass(frozen=True)
class Measurement:
    """Likelihood of one split under one cell at one token budget; `mid_schedule` while the learning rate still runs."""

    scale: str
    arm: str
    seed: int
    tokens_seen: int
    split: str
    nats_per_token: float
    bits_per_byte: float
    mid_schedule: bool


EVERY_POSITION = "all"
"""the bucket that holds every counted position"""
_HEAD = re.compile(r"(?:^|\s)head:\d+$")


@dataclass(frozen=True)
class DiagnosticValue:
    """One number that a tap read: `group` is what it was read for (a role, a pair of roles, a depth source, a head)."""

    diagnostic: str
    unit: str
    scale: str
    arm: str
    seed: int
    layer: int
    site: str
    group: str
    value: float
    bucket: str = EVERY_POSITION
    """positions in the row that it was averaged over"""
    standard_error: float | None = None
    """over documents, by the jackknife; None where there are too few"""
    documents: int | None = None

    @property
    def summary(self) -> bool:
        """Whether it stands for all heads and all positions, and so belongs into a figure."""
        return self.bucket == EVERY_POSITION and not self.of_head

    @property
    def of_head(self) -> bool:
        return _HEAD.search(self.group) is not None


@dataclass(frozen=True)
class RouteChange:
    """How far one depth route of an arm moves from one seed to another: the null of a divergence between routes."""

    scale: str
    arm: str
    site: str
    layer: int
    role: str
    seeds: tuple[int, int]
    nats: float
    """Jensen-Shannon divergence per token, then averaged"""


@dataclass(frozen=True)
class InterventionValue:
    """Change in NLL that one variant of an intervention makes to one trained model on the probed documents."""

    intervention: str
    variant: str
    scale: str
    arm: str
    seed: int
    change: float
    """nats per token, changed model minus model as trained"""
    standard_error: float | None
    """over documents, by the jackknife; None below two"""
    documents: int


@dataclass(frozen=True)
class InterventionText:
    """What an intervention is, for the caption."""

    intervention: str
    title: str
    sentence: str


@dataclass(frozen=True)
class DiagnosticText:
    """What a diagnostic is, for the caption: one sentence, and whether it is only a correctness check."""

    diagnostic: str
    title: str
    sentence: str
    correctness_only: bool


@dataclass(frozen=True)
class HeldEqual:
    """One thing that the arms of the study share, and how that was proven."""

    what: str
    proof: str
    holds: bool
    gate: bool = False
    """checked before training started, on a small model or on the plan; shown folded"""


@dataclass(frozen=True)
class CellRow:
    """One training run as the seeds table shows it."""

    scale: str
    arm: str
    seed: int
    state: str
    """complete, missing, stale, running, diverged or failed"""
    digest: str
    test_nats_per_token: float | None
    test_bits_per_byte: float | None
    validation_nats_per_token: float | None
    final_training_loss_nats_per_token: float | None
    train_seconds: float | None
    tokens_per_second: float | None
    code_version: str


@dataclass(frozen=True)
class Look:
    """One time that somebody saw the study's state of evidence (a line of the append-only ledger)."""

    time: str
    command: str
    pairs: Mapping[str, int]
    """complete pairs per contrast"""
    words: Mapping[str, str]
    """verdict word shown per contrast; empty where none was due"""
    rule_digest: str


@dataclass(frozen=True)
class ArmParameters:
    """Trainable parameters of an arm at a scale, by role."""

    scale: str
    arm: str
    by_role: Mapping[str, int]
    total: int
    flops_per_token: float


@dataclass(frozen=True)
class EstimateRow:
    """One more way to estimate a contrast, beside the headline; it never gets a word."""

    contrast: str
    scale: str
    estimand: str
    """what is random and what is fixed, such as "new documents" or "test documents without overlap with training" """
    unit: str
    mean: float | None
    """treatment minus baseline"""
    standard_error: float | None
    degrees_of_freedom: float | None
    interval: tuple[float, float] | None
    confidence: float
    note: str = ""
    """what the reader must know, or why there is no number"""


@dataclass(frozen=True)
class NoiseRow:
    """One kind of A/A: the same architecture against itself."""

    kind: str
    """"repeat" (kernel noise), "perturbed twin" (the floor of sd_D) or "other seed" (unpaired noise)"""
    scale: str
    arm: str
    metric: str
    unit: str
    differences: tuple[float, ...]
    """one a pair; of other seeds every cell's value minus their mean"""
    sd_of_difference: float | None
    """of a paired difference of this kind, unit of the metric; None where one pair says nothing"""
    contrast_sd: float | None
    """sd_D of the primary contrast, to stand beside it; None where it is not due"""


@dataclass(frozen=True)
class BudgetGap:
    """The difference at one budget whose cells finished their own schedule."""

    contrast: str
    scale: str
    budget_tokens: int
    seeds: tuple[int, ...]
    differences: tuple[float, ...]
    """treatment minus baseline, nats per token, one a seed"""
    mean: float | None
    interval: tuple[float, float] | None
    """95 % t interval"""


@dataclass(frozen=True)
class GapForm:
    """One form fitted to the gap over budgets, seed by seed, at a grid of budgets."""

    contrast: str
    scale: str
    form: str
    """as it is written, such as "c B^-g" """
    budgets_tokens: tuple[float, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    """95 % t interval over seeds"""
    note: str = ""


@dataclass(frozen=True)
class BudgetSummary:
    """What budgets allow to say of a contrast: the compute multiplier, or why there is none."""

    contrast: str
    scale: str
    dependent: bool
    """whether the smaller budgets are cool-down branches of one trunk"""
    largest_budget_tokens: int
    furthest_budget_tokens: float
    """nothing is extrapolated beyond it"""
    compute_multiplier: float | None
    interval: tuple[float | None, float | None] | None
    """None at an end means unbounded on that side"""
    method: str
    sentence: str


@dataclass(frozen=True)
class CostRow:
    """What a contrast costs, and what is left of its gain at equal FLOPs and at equal time. Nats per token."""

    contrast: str
    scale: str
    host: str
    rounds: int
    step_time_ratio: float | None
    """time of an update, treatment over baseline, from interleaved rounds"""
    step_time_ratio_interval: tuple[float, float] | None
    same_arm_ratio: float | None
    """a second copy of the baseline against the baseline: what this machine cannot resolve"""
    flop_ratio: float
    iso_step: float | None
    iso_step_interval: tuple[float, float] | None
    iso_flop: float | None
    iso_flop_interval: tuple[float, float] | None
    iso_time: float | None
    iso_time_interval: tuple[float, float] | None
    break_even_ratio: float | None
    """time ratio at which the gain vanishes; depends on no kernel and no machine"""
    break_even_interval: tuple[float | None, float | None] | None
    """None at an end means unbounded on that side"""
    sentence: str
    """what follows, or why a number is not there"""
    peak_memory_ratio: float | None = None


@dataclass(frozen=True)
class TrialRow:
    """One value of a tuned field, tried on the tuning seeds and scored on the validation split."""

    scale: str
    arm: str
    knob: str
    value: float
    scores: tuple[float | None, ...]
    """nats per token of each tuning seed, lower is better; None where it diverged or is missing"""
    chosen: bool


@dataclass(frozen=True)
class TuningSummary:
    """How an arm was tuned."""

    scale: str
    arm: str
    knob: str
    trials: int
    chosen: float | None
    interior: bool
    """whether both neighbours of the chosen value were tried and are no better"""
    sentence: str


@dataclass(frozen=True)
class PublishedRow:
    """A contrast beside a public figure, by the replication rule (rules of evidence, section 10)."""

    contrast: str
    scale: str
    unit: str
    source: str
    published: float
    published_standard_error: float | None
    published_seeds: int | None
    ours: float | None
    ours_interval: tuple[float, float] | None
    word: str
    """replicated, smaller, contradicted, related evidence or not settled; empty before ours is due"""
    sentence: str
    caveats: tuple[str, ...] = ()


@dataclass(frozen=True)
class TaskRow:
    """One downstream task under one contrast; tasks never get a verdict word here unless a contrast is about them."""

    contrast: str
    scale: str
    task: str
    metric: str
    chance: float | None
    baseline_mean: float | None
    treatment_mean: float | None
    difference: float | None
    interval: tuple[float, float] | None
    """95 % t interval over seeds; None below three"""
    seeds: int
    mcnemar_p: tuple[float, ...]
    """exact, one a checkpoint pair, never pooled; empty without items"""
    admitted: bool
    """whether the baseline clears chance by two standard errors and is below 0.98"""
    note: str = ""


@dataclass(frozen=True)
class ReportContent:
    """Everything `paribus.report.page.render` needs for one study."""

    study: str
    question: str
    verdicts: tuple[Verdict, ...]
    curves: tuple[Curve, ...]
    measurements: tuple[Measurement, ...]
    diagnostics: tuple[DiagnosticValue, ...]
    diagnostic_texts: tuple[DiagnosticText, ...]
    held_equal: tuple[HeldEqual, ...]
    parameters: tuple[ArmParameters, ...]
    cells: tuple[CellRow, ...]
    looks: tuple[Look, ...]
    environment: Mapping[str, str]
    corpus: Mapping[str, str]
    caveats: tuple[str, ...]
    """what could still be wrong: stale code, mixed versions, untuned rates, failed cells, changed rule"""
    repeat_command: str
    pairs: tuple[PairRow, ...] = ()
    """per-seed differences of the contrasts; those of a waiting contrast are never shown"""
    interventions: tuple[InterventionValue, ...] = ()
    intervention_texts: tuple[InterventionText, ...] = ()
    route_changes: tuple[RouteChange, ...] = ()
    estimates: tuple[EstimateRow, ...] = ()
    noise: tuple[NoiseRow, ...] = ()
    budget_gaps: tuple[BudgetGap, ...] = ()
    gap_forms: tuple[GapForm, ...] = ()
    budget_summaries: tuple[BudgetSummary, ...] = ()
    costs: tuple[CostRow, ...] = ()
    trials: tuple[TrialRow, ...] = ()
    tuning: tuple[TuningSummary, ...] = ()
    published: tuple[PublishedRow, ...] = ()
    tasks: tuple[TaskRow, ...] = ()
