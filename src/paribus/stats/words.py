"""The words of a verdict (rules of evidence, sections 1 and 2). `paribus.stats.verdict` says when each is due."""

from enum import Enum


class Word(Enum):
    """The verdict words of the rules of evidence. Nothing else may be said of a contrast."""

    BETTER_BY_SMALLEST_EFFECT = "better by at least the smallest effect"
    BETTER = "better"
    WORSE_BY_SMALLEST_EFFECT = "worse by at least the smallest effect"
    WORSE = "worse"
    BELOW_SMALLEST_EFFECT = "real but below the smallest effect"
    EQUIVALENT_NOT_ZERO = "equivalent and not zero"
    EQUIVALENT = "equivalent"
    INCONCLUSIVE = "inconclusive"
    SKEWED = "inconclusive, skewed"
    EXPLORATORY = "exploratory"
    EXPLORATORY_EXTENSION = "exploratory extension"
    RULE_CHANGED = "exploratory: rule changed"
    NO_INFORMATION = "no information"
    NOT_INFORMATIVE = "not informative"
    DIVERGENCE = "withheld: divergence"
    WAITING = "waiting for the planned seeds"
    FUTILE = "stop for futility"
    NOT_TESTED = "not tested: primary not rejected"

    @property
    def better(self) -> bool:
        """A win of the treatment."""
        return self in (Word.BETTER, Word.BETTER_BY_SMALLEST_EFFECT)

    @property
    def worse(self) -> bool:
        """A win of the baseline."""
        return self in (Word.WORSE, Word.WORSE_BY_SMALLEST_EFFECT)

    @property
    def not_zero(self) -> bool:
        """The null of no difference was rejected."""
        return self.better or self.worse or self in (Word.BELOW_SMALLEST_EFFECT, Word.EQUIVALENT_NOT_ZERO)

    @property
    def settled(self) -> bool:
        """A test rejected something: a difference, or a difference that matters."""
        return self.not_zero or self is Word.EQUIVALENT
