"""Which cells an arm has at a seed: the study's, copies of it, smaller budgets, and other learning rates."""

Variant = str
"""Which cell of an arm at a seed: `STUDY`, `REPEAT`, `TWIN`, `PROOF`, `budget_variant(...)` or `rate_variant(...)`."""
STUDY: Variant = ""
"""the cell that contrasts are made of"""
REPEAT: Variant = "repeat"
"""A/A: the same cell again"""
TWIN: Variant = "twin"
"""A/A: the same cell with one tensor changed by a millionth"""
PROOF: Variant = "proof"
"""the cell of a study in fast mode, trained in proof mode"""
BUDGET: Variant = "budget-"
"""before the tokens of a smaller budget with its own schedule"""
RATE: Variant = "rate-"
"""before the factor of every learning rate"""
Key = tuple[str, str, int, Variant]
"""(scale, arm, seed, variant) of a cell"""


def budget_variant(budget_tokens: int) -> Variant:
    """The cell that ends its own schedule at a smaller budget."""
    return f"{BUDGET}{budget_tokens}"


def variant_budget(variant: Variant) -> int | None:
    """The smaller budget that a variant ends at; None for one that runs to the scale's."""
    return int(variant.removeprefix(BUDGET)) if variant.startswith(BUDGET) else None


def rate_variant(factor: float) -> Variant:
    """The cell with every learning rate multiplied by a factor."""
    return f"{RATE}{factor!r}"


def variant_rate(variant: Variant) -> float | None:
    """The factor of every learning rate of a variant; None for one at the declared rates."""
    return float(variant.removeprefix(RATE)) if variant.startswith(RATE) else None
