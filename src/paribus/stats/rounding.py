"""How a number of a verdict is rounded: one function for sentences and tables, so that the two cannot disagree."""

import math

MINUS = "\N{MINUS SIGN}"
MISSING = "\N{EN DASH}"


def decimals_for(spread: float | None, *, otherwise: int = 4) -> int:
    """Decimals that show `spread` (a standard error, a margin) to two significant digits: 0.0123 gives 3."""
    if spread is None or not math.isfinite(spread) or spread <= 0:
        return otherwise
    return min(max(1 - math.floor(math.log10(spread)), 0), 9)


def fixed(value: float | None, decimals: int, *, signed: bool = False) -> str:
    """`value` with `decimals` decimals; `signed` writes a plus too. None is a dash; NaN and infinity say so."""
    if value is None:
        return MISSING
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else f"{MINUS}∞"
    text = f"{value:{'+' if signed else ''}.{decimals}f}"
    if float(text) == 0:
        text = text.lstrip("+-")  # no sign on a zero: -0.000 would claim a direction
    return text.replace("-", MINUS)


def declared(value: float | None) -> str:
    """A number as somebody wrote it into a file: 0.003, not 0.00300."""
    return fixed(value, 0) if value is None or not math.isfinite(value) else f"{value:.6g}".replace("-", MINUS)


def probability(p: float | None) -> str:
    """A p value: never 0, never more digits than anyone can use."""
    if p is None:
        return MISSING
    if not math.isfinite(p):
        return "not defined"
    return "< 0.001" if p < 0.001 else f"{p:.4f}".rstrip("0").ljust(5, "0") if p < 0.1 else f"{p:.2f}"


def percent(share: float | None) -> str:
    """0.95 is `95 %`, 0.975 is `97.5 %`."""
    if share is None or not math.isfinite(share):
        return MISSING
    return f"{100 * share:.2f}".rstrip("0").rstrip(".") + " %"


def whole_percent(share: float) -> str:
    """A simulated or computed share, of which no decimal matters: 0.803 is `80 %`."""
    return f"{100 * share:.0f} %"


def tokens_text(tokens: float) -> str:
    """A number of training tokens in full: `10,000`, never `1e+04`."""
    return f"{tokens:,.0f}"
