"""Records about synthetic tasks: what a task is, what its learning curves did, and what differs between two arms.

A loss "per target" is the mean over the places at which a task asks something. A difference is treatment minus
baseline, so that a negative one says that the treatment lost less (rules of evidence, section 8).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from paribus.errors import ParibusError
from paribus.report.of_robustness import RateRow
from paribus.stats.chance import AgainstChance
from paribus.stats.rounding import MINUS

CAUTION = (
    "A synthetic task shows which behaviour a change of the architecture alters, and when in training. It does not "
    "predict bits per byte: nothing here says how much a language model would gain or lose."
)
"""said on every page and in every terminal that shows a task"""

AGREES, AGAINST, OPEN, NOT_INFORMATIVE = "agrees", "against", "open", "not informative"
MARKS: Mapping[str, str] = {
    AGREES: "✓ agrees",
    AGAINST: "✗ against",
    OPEN: "○ open",
    NOT_INFORMATIVE: "∅ not informative",
    "": "",
}
"""how a comparison with the declared sign is written; "" where no sign was declared"""
MARKS_IN_WORDS = (
    "✓ agrees: the difference is as declared. ✗ against: it is not. ○ open: the interval leaves it undecided. ∅ not "
    "informative: every arm sits on one plateau, so the task could not tell."
)
EXPECTED: Mapping[str, str] = {"+": "+", "-": MINUS, "0": "0", "": ""}
"""how a declared sign is written"""
ALL_TARGETS = "all"
"""the slice of a metric that names none"""


def mark(agreement: str) -> str:
    """The mark of an agreement. ParibusError where there is no such agreement."""
    return _known(agreement, MARKS, "agreement with a declared sign")


def sign(expected: str) -> str:
    """The declared sign of a difference. ParibusError where there is no such sign."""
    return _known(expected, EXPECTED, "declared sign of a difference")


def declared(expected: str) -> str:
    """The declared sign as a cell of its own, where a bare minus would read as a dash for nothing."""
    return f"expected {sign(expected)}" if sign(expected) else "none"


def legend(marks: Iterable[str]) -> str:
    """What the marks say where there are any, as a note ends with it; `marks` are agreements."""
    return MARKS_IN_WORDS if any(mark(one) for one in marks) else ""


def asked(name: str) -> str:
    """A slice as people read it; "acted-control" is a difference of two."""
    return "all targets" if name == ALL_TARGETS else f" {MINUS} ".join(name.split("-"))


def _known(value: str, known: Mapping[str, str], what: str) -> str:
    if value not in known:
        raise ParibusError(
            f"there is no such {what}",
            expected=", ".join(repr(name) for name in known),
            received=repr(value),
            remedy="give one of these, '' where nothing was declared",
        )
    return known[value]


@dataclass(frozen=True)
class TaskText:
    """A task of one study, in words and knobs."""

    name: str
    title: str
    sentence: str
    """what a row is and what is asked"""
    knobs: Mapping[str, Any]
    primary: str
    """the slice that the study's primary is about, "acted-control" for a difference of two, or `ALL_TARGETS`"""
    budget_updates: int
    """optimiser updates of a training run; an area under a curve depends on it"""
    targets_per_update: float
    """places of a batch at which something is asked, on average"""
    row_length: int
    """tokens"""
    budget_updates_by_scale: Mapping[str, int] = field(default_factory=dict)
    """where scales differ in it; `budget_updates` is that of any other"""

    def updates_at(self, scale: str) -> int:
        """Optimiser updates of a training run at a scale."""
        return self.budget_updates_by_scale.get(scale, self.budget_updates)


@dataclass(frozen=True)
class SliceLevels:
    """Losses on one slice that are known without training, nats per target."""

    slice: str
    chance: float
    floor: float
    """of the best predictor"""
    threshold: float
    """below it the slice counts as acquired"""
    shortcuts: Mapping[str, float]
    """of predictors that solve a part, by what they do"""


@dataclass(frozen=True)
class CalibrationText:
    """How the difficulty of a task was set."""

    on_baseline: bool
    """whether it was set on the baseline alone, before any treatment ran"""
    seeds: int
    """calibration seeds, none of which is a seed of the study"""
    crossed_at_shares: tuple[float | None, ...]
    """share of the budget at which each of them crossed the threshold; None: not within the budget"""
    sentence: str


@dataclass(frozen=True)
class TaskDefinition:
    """What a reader must know of a task before its results."""

    text: TaskText
    levels: tuple[SliceLevels, ...]
    """in the order of the task's slices"""
    calibration: CalibrationText | None = None
    """None: nobody calibrated it, and the page says so"""


@dataclass(frozen=True)
class LearningCurve:
    """Training loss of one cell on one slice. Rows never repeat, so it is a test loss."""

    scale: str
    arm: str
    seed: int
    slice: str
    updates: tuple[int, ...]
    """last update of each window"""
    loss_nats_per_target: tuple[float, ...]
    """mean over the targets of each window; NaN where it has none"""
    floor_nats_per_target: tuple[float, ...]
    """of the best predictor on the same targets"""


@dataclass(frozen=True)
class AcquisitionRow:
    """How one arm fared on one slice, over its seeds."""

    scale: str
    arm: str
    slice: str
    seeds: tuple[int, ...]
    area_nats_per_target: float | None
    """mean over seeds and updates of the loss above the best predictor's; None where a seed has none"""
    final_nats_per_target: float | None
    """mean over seeds of the loss in the last window; None where a seed has none"""
    acquired_at_updates: tuple[int | None, ...]
    """one a seed; None: not within the budget"""
    plateau: str
    """where the arm ends, such as "sits on 'any content of the row' (2.08 nats)" """
    diverged: tuple[int, ...] = ()
    """seeds that diverged, none of which is among `seeds`"""


@dataclass(frozen=True)
class ChanceRow:
    """How one arm fared where nothing can be learned: chance is the floor, so that below chance it has read targets."""

    scale: str
    arm: str
    slice: str
    seeds: tuple[int, ...]
    losses_nats_per_target: tuple[float, ...]
    """on held-out inputs, one a seed"""
    inputs: tuple[int, ...]
    """that were scored, one a seed"""
    found: AgainstChance


@dataclass(frozen=True)
class LearntRow:
    """What the held-out loss of one arm amounts to in the task's own unit, on one slice."""

    scale: str
    arm: str
    slice: str
    seeds: tuple[int, ...]
    unit: str
    whole: float
    """all there is to learn, in `unit`"""
    amounts: tuple[float, ...]
    """one a seed, in `unit`; below 0: worse than knowing nothing"""


@dataclass(frozen=True)
class MilestoneDifference:
    """Treatment minus baseline around one update."""

    update: int
    mean: float | None
    """nats per target"""
    interval: tuple[float, float] | None


@dataclass(frozen=True)
class SliceDifference:
    """A contrast on one slice, or on a difference of two. It describes: no verdict word is ever part of it."""

    contrast: str
    compared: str
    """what is subtracted from what: the names of the two arms with a minus sign between, of an interaction both
    differences in brackets"""
    scale: str
    slice: str
    area_difference: float | None
    """nats per target, mean over seeds"""
    interval: tuple[float, float] | None
    interval_confidence: float
    """of `interval` and `metric_interval`; those of milestones and of updates to the threshold are at 95 %"""
    seeds: tuple[int, ...]
    differences: tuple[float | None, ...]
    """of the areas, one a seed; None where a cell of the pair diverged"""
    milestones: tuple[MilestoneDifference, ...]
    """three: the first third of the budget, the second, the end"""
    log2_updates_difference: float | None
    """of the updates to the threshold, restricted to the budget; -1 is half of the updates. None on two slices, of an
    interaction, and where no cell acquired the slice: all stand at the budget then"""
    log2_updates_interval: tuple[float, float] | None
    censored: tuple[int, int]
    """seeds of the treatment and of the baseline that did not acquire the slice within the budget"""
    ratio_sentence: str
    """the ratio of updates in words, bounded where an arm never acquires the slice"""
    informative: bool
    """False where every arm of the contrast sits on one plateau"""
    informative_sentence: str
    expected: str
    """declared sign: "+", "-", "0", or "" where none was declared"""
    agreement: str
    """a key of `MARKS`"""
    rate_sentence: str = ""
    """that the sign depends on the learning rate, where it does"""
    metric: str = ""
    """the contrast's own metric where `agreement` is about another quantity than the area; empty otherwise"""
    metric_unit: str = ""
    metric_difference: float | None = None
    """in that metric, mean over seeds"""
    metric_interval: tuple[float, float] | None = None
    """in that metric, which `agreement` was judged by; at `interval_confidence`"""


@dataclass(frozen=True)
class TaskContent:
    """Everything the section of one study's task is made of."""

    definition: TaskDefinition
    curves: tuple[LearningCurve, ...] = ()
    acquisitions: tuple[AcquisitionRow, ...] = ()
    differences: tuple[SliceDifference, ...] = ()
    rates: tuple[RateRow, ...] = ()
    """the contrasts at other learning rates, where the file declares them"""
    at_chance: tuple[ChanceRow, ...] = ()
    """every arm on the slices whose chance is their floor"""
    learnt: tuple[LearntRow, ...] = ()
    """every arm on the slices for which the task declares a unit of what is learnt"""


@dataclass(frozen=True)
class TunnelRow:
    """One task and contrast of a set of tasks, on the task's primary slice."""

    task: str
    """the task's name: one of the set's definitions, or of a variant with other knobs"""
    title: str
    difference: SliceDifference
    planned_seeds: int
    """before as many pairs are there, nothing about the difference is shown"""
    budget_updates: int
    acquired_baseline: tuple[int | None, ...]
    """updates, one a seed; None: not within the budget; empty for a difference of slices"""
    acquired_treatment: tuple[int | None, ...]
    plateau: str
    """where the arms end, in a sentence"""
    word: str = ""
    """verdict word of the full set; a smoke set has none"""
    p_holm: float | None = None
    """p of the row adjusted over the suite by Holm's procedure; None in a smoke set"""
    report: str = ""
    """the task's own report, relative to the page; empty: none"""

    @property
    def marks(self) -> tuple[str, ...]:
        """The agreements whose marks stand beside the row, as far as it is shown."""
        if self.waiting:
            return ()
        return self.difference.agreement, "" if self.difference.informative else NOT_INFORMATIVE

    @property
    def waiting(self) -> bool:
        """Whether planned pairs are missing."""
        return len(self.difference.seeds) < self.planned_seeds


SMOKE, FULL = "smoke", "full"


@dataclass(frozen=True)
class TunnelContent:
    """Everything the page of a set of tasks is made of."""

    question: str
    set: str
    """`SMOKE` or `FULL`"""
    planned_seeds: int
    """a task"""
    rows: tuple[TunnelRow, ...]
    definitions: tuple[TaskDefinition, ...]
    seconds: float | None
    """wall time of the whole set"""
    environment: Mapping[str, str]
    caveats: tuple[str, ...] = ()
    repeat_command: str = ""
    arms: Mapping[str, str] = field(default_factory=dict)
    """what each arm declares, by name: the settings of its mechanisms; where tasks differ in them, by name and task"""
    difficulty: Mapping[str, str] = field(default_factory=dict)
    """how the difficulty of each task was set, by task"""
