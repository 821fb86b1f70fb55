"""What comes out: one row of the verdict table, every number with its unit, and its form in JSON."""

import dataclasses
import math
from dataclasses import dataclass
from enum import Enum

from paribus.stats.words import Word


@dataclass(frozen=True)
class Verdict:
    """One row of the verdict table. Numbers are in the unit of the metric; None where the rules show none."""

    name: str
    treatment: str
    """Of an interaction: the first difference, "(a - b)", with the minus sign of `MINUS`."""
    baseline: str
    """Of an interaction: the second difference, "(c - d)", likewise."""
    scale: str
    metric: str
    unit: str
    primary: bool
    lower_is_better: bool
    smallest_effect: float
    design_effect: float
    seeds: int
    """Pairs that count, the diverged ones included."""
    planned_seeds: int
    word: Word
    looks: tuple[int, ...] = ()
    """Pairs of the planned looks, or of stage 1 and the whole of an extension; empty where there is one test."""
    look: int | None = None
    """Number of the look, or of the stage of an extension, from 1, at which the word is said; None without."""
    extension: bool = False
    """Whether `looks` are the two stages of a declared extension."""
    uncounted_seeds: tuple[int, ...] = ()
    """Seeds of pairs that are there and do not count at this look or stage."""
    futile: bool = False
    """Whether, were the estimate at this early look the truth, the planned seeds would hardly ever bring a word."""
    primary_word: Word | None = None
    """Of a secondary that was not tested: the word of the primary, which kept the gate closed."""
    mean: float | None = None
    """Mean of treatment minus baseline; None when a cell diverged."""
    median: float | None = None
    sd: float | None = None
    standard_error: float | None = None
    unpaired_standard_error: float | None = None
    pair_correlation: float | None = None
    """Over seeds, of the two arms' values, or of the two differences of an interaction."""
    interval: tuple[float, float] | None = None
    interval_confidence: float | None = None
    """Of `interval`: 1 minus the nominal level of this look or stage, for a secondary at its step of Holm's test."""
    equivalence_interval: tuple[float, float] | None = None
    """Inside +-smallest_effect exactly where equivalence is concluded: 90 %, or matched to Holm for a secondary."""
    equivalence_confidence: float | None = None
    p_t: float | None = None
    """Of no mean difference; with looks or an extension the p value that allows for all of them."""
    p_holm: float | None = None
    """Secondaries only: Holm-adjusted `p_t`."""
    p_equivalence: float | None = None
    """Two one-sided tests against the smallest effect, allowing for looks as `p_t` does."""
    p_equivalence_holm: float | None = None
    """Secondaries only: Holm-adjusted `p_equivalence`."""
    p_sign_flip: float | None = None
    wins: int | None = None
    """Pairs, of `seeds`, in which the treatment is better."""
    treatment_diverged: int | None = None
    baseline_diverged: int | None = None
    p_divergence: float | None = None
    """Exact McNemar p value of the two divergence rates; None where nothing diverged."""
    worst_seed: int | None = None
    """The seed worst for the treatment."""
    worst_difference: float | None = None
    """Its difference; None when the treatment diverged there."""
    sentence: str = ""
    notes: tuple[str, ...] = ()
    arms: tuple[str, ...] = ()
    """Names of the arms: treatment and baseline, and of an interaction minus_treatment and minus_baseline."""

    @property
    def interaction(self) -> bool:
        """Whether the difference is one of two differences."""
        return len(self.arms) > 2

    @property
    def early(self) -> bool:
        """Whether the word is said at a look or stage before the last that was declared."""
        return self.look is not None and self.look < len(self.looks)

    def to_dict(self) -> dict[str, object]:
        """For JSON: words as text, tuples as lists, and None for any number that is not finite."""
        return {field.name: _plain(getattr(self, field.name)) for field in dataclasses.fields(self)}


def _plain(value: object) -> object:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
