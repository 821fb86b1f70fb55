"""Records about one contrast: treatment minus baseline, estimated, extrapolated, priced and set beside other figures.

Each may tell an outcome, and passes `door.due` before anything is made of it. Losses are nats per token, of a
task nats per target.
"""

from dataclasses import dataclass


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
class BudgetGap:
    """The difference at one budget whose cells finished their own schedule."""

    contrast: str
    scale: str
    budget_tokens: int
    seeds: tuple[int, ...]
    differences: tuple[float, ...]
    """treatment minus baseline, nats per token (of a task per target), one a seed"""
    mean: float | None
    interval: tuple[float, float] | None
    """t interval at the level of the verdict's"""


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
    """t interval over seeds, at the level of the verdict's"""
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
    """time of an update, treatment over baseline, from mirrored blocks of turns"""
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
    backward_memory_ratio: float | None = None
    """memory kept for the backward pass, treatment over baseline; not the peak of an update"""
    way: str = ""
    """how updates were computed, such as "eager"; empty where nothing was measured"""
    step_time_reading: str = ""
    """slower, faster or not resolved; empty where nothing was measured"""
    same_arm_interval: tuple[float, float] | None = None
    """of the second copy: nothing within it is claimed"""
    cpu_time_ratio: float | None = None
    """of the processor time of an update, treatment over baseline"""
    cpu_time_ratio_interval: tuple[float, float] | None = None
    cpu_same_arm_interval: tuple[float, float] | None = None
    peak_memory_ratio: float | None = None
    """peak of what an update allocates, treatment over baseline"""


@dataclass(frozen=True)
class UpdateRow:
    """What an update of one arm takes on the machine on which it was measured beside the others."""

    scale: str
    arm: str
    way: str
    """how it was computed, such as "eager" """
    host: str
    rounds: int
    tokens_per_second: float
    wall_seconds: float
    """median over rounds; likewise the next one"""
    cpu_seconds: float
    bytes_for_backward: int
    """of the tensors that are kept for the backward pass, parameters included"""
    peak_bytes: int
    """most that an update allocates at one time, beyond what was there before it"""
    parts: tuple[str, ...] = ()
    """of an update"""
    shares: tuple[float, ...] = ()
    """of each part; they add up to 1"""
    parts_in: str = ""
    """the clock of the parts: processor time or wall time"""


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
