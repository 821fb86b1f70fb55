"""Records of downstream tasks: two arms on the same items, CORE scores, predicted letters, swapped questions.

None of them decides anything: seeds are the replicates, and the verdict is made elsewhere. What compares arms, or would
if laid side by side, passes `answers_door`. Bits per byte are those of the right answer, lower is better.
"""

from dataclasses import dataclass

VERSIONS = ("v1", "v2")
"""tables of random baselines: the bundle's own, and the corrected one"""


@dataclass(frozen=True)
class TaskRow:
    """One task at one moment under one contrast: means over the items of each seed, then over seeds."""

    contrast: str
    scale: str
    suite: str
    task: str
    variant: str
    """what differs from the plain way of asking; empty for none"""
    after: str
    """name of what the cells were fine-tuned with; empty for the cells themselves"""
    step: int
    """updates of the baseline"""
    mid_schedule: bool
    kind: str
    """choices, exact, letters or generated"""
    items: int
    chance: float | None
    gold_bits_baseline: float | None = None
    """bits per byte of the right answer, mean over items; None where no likelihood was taken of a text"""
    gold_bits_treatment: float | None = None
    gold_bits_difference: float | None = None
    gold_bits_interval: tuple[float, float] | None = None
    """t interval over seeds, as every interval of this record; None below three seeds"""
    accuracy_baseline: float | None = None
    accuracy_treatment: float | None = None
    accuracy_difference: float | None = None
    accuracy_interval: tuple[float, float] | None = None
    centred_baseline: float | None = None
    """(accuracy - chance)/(1 - chance)"""
    centred_treatment: float | None = None
    centred_difference: float | None = None
    centred_interval: tuple[float, float] | None = None
    margin_baseline: float | None = None
    """nats by which the right answer leads the best other one, mean over items"""
    margin_treatment: float | None = None
    margin_difference: float | None = None
    margin_interval: tuple[float, float] | None = None
    confidence: float = 0.95
    seeds: tuple[int, ...] = ()
    """of the pairs that are compared"""
    admitted: bool | None = None
    """whether the baseline clears chance by two standard errors and is below 0.98; None where that is not known"""
    admission: str = ""
    """why, or why not"""
    not_admitted: str = ""
    """the same in a word or two: at chance, saturated, one seed"""
    note: str = ""
    """which pairs are not compared, and why"""


@dataclass(frozen=True)
class TaskPairRow:
    """One pair of checkpoints on the items of one task: about these two models, never about the mechanism."""

    contrast: str
    scale: str
    suite: str
    task: str
    variant: str
    after: str
    step: int
    mid_schedule: bool
    seed: int
    items: int
    only_treatment: int
    """b: items that the treatment alone answers rightly"""
    only_baseline: int
    """c: items that the baseline alone answers rightly"""
    mcnemar_p: float
    """exact, two-sided"""
    accuracy_difference: float
    gold_items: int
    """items with a likelihood in both arms"""
    gold_bits_difference: float | None
    gold_bits_interval: tuple[float, float] | None
    """95 % t interval over items"""
    margin_difference: float | None
    near_ties_treatment: int
    """items of which rounding may decide"""
    near_ties_baseline: int
    problems_treatment: int
    """items that could not be asked or judged; they count as wrong"""
    problems_baseline: int
    cropped: int
    """items whose prompt was longer than the context; the same in both arms"""


@dataclass(frozen=True)
class CoreRow:
    """CORE, or ChatCORE, of one model: the mean of centred accuracies; or why it is not printed."""

    scale: str
    arm: str
    seed: int
    suite: str
    variant: str
    after: str
    step: int
    mid_schedule: bool
    tasks: int
    """complete tasks"""
    of_tasks: int | None
    """tasks that the score is made of; None where no record says"""
    v1: float | None
    v2: float | None
    """under the corrected table; None where it was not given"""
    reason: str = ""
    """why there is no number"""


@dataclass(frozen=True)
class CoreDifferenceRow:
    """A difference of CORE, or of ChatCORE, over seeds."""

    contrast: str
    scale: str
    suite: str
    variant: str
    after: str
    step: int
    seeds: tuple[int, ...]
    v1_difference: float | None
    v1_interval: tuple[float, float] | None
    """t interval over seeds; None below three"""
    v2_difference: float | None
    v2_interval: tuple[float, float] | None
    confidence: float
    note: str = ""


@dataclass(frozen=True)
class CoreShareRow:
    """What one task adds to a difference of CORE, mean over seeds."""

    contrast: str
    scale: str
    suite: str
    variant: str
    after: str
    step: int
    task: str
    accuracy_difference: float
    """not centred"""
    v1_contribution: float
    """the contributions of a contrast add up to its difference"""
    v2_contribution: float | None
    v1_share: float | None
    """of the difference; None where that is 0"""
    v2_share: float | None


@dataclass(frozen=True)
class LettersRow:
    """Which choices one model names, and which are right."""

    scale: str
    arm: str
    seed: int
    suite: str
    task: str
    variant: str
    after: str
    step: int
    letters: tuple[str, ...]
    """every choice that is right or predicted at some item"""
    gold: tuple[int, ...]
    """items by right answer"""
    predicted: tuple[int, ...]
    """items by prediction"""
    unanswered: int
    """items without a prediction"""

    @property
    def favourite(self) -> tuple[str, float]:
        """The letter that is said most often, and its share of all predictions; NaN without a prediction."""
        most = max(range(len(self.letters)), key=lambda i: self.predicted[i])
        total = sum(self.predicted)
        return self.letters[most], self.predicted[most] / total if total else float("nan")


@dataclass(frozen=True)
class CounterfactualRow:
    """One arm with each question swapped for another item's: what it still scores, it scores without the question."""

    scale: str
    arm: str
    suite: str
    task: str
    variant: str
    """what differs from the plain way of asking, beside the swap"""
    after: str
    step: int
    seeds: tuple[int, ...]
    items: int
    chance: float
    plain: float | None
    """accuracy with the item's own question, mean over the same seeds; None where it was not asked"""
    swapped: float
    """accuracy with another item's question, mean over seeds"""
    standard_error: float
    """of `swapped`, over seeds or over items, whichever is larger"""
    above_chance: bool
    """whether `swapped` clears chance by two standard errors"""


def named(suite: str, task: str, variant: str = "") -> str:
    """A task as tables name it: the suite only where it is not CORE, the variant behind a plus."""
    return ("" if suite == "core" else f"{suite} ") + task + (f" +{variant}" if variant else "")
