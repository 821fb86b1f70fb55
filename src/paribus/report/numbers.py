"""How numbers are written: a fixed number of significant digits, a true minus sign, the unit always said."""

import math

from paribus.stats.rounding import MINUS, MISSING, fixed


def significant(value: float | None, digits: int = 3) -> str:
    """`value` to `digits` significant digits, as a decimal where that is short, else as a power of ten."""
    if value is None or not math.isfinite(value):
        return fixed(value, 0)
    if value == 0:
        return "0"
    exponent = math.floor(math.log10(abs(float(f"{value:.{digits - 1}e}"))))
    if -4 <= exponent < 6:
        return fixed(value, max(digits - 1 - exponent, 0))
    mantissa, _, power = f"{value:.{digits - 1}e}".partition("e")
    return f"{mantissa.replace('-', MINUS)} \N{MULTIPLICATION SIGN} 10{str(int(power)).translate(_SUPERSCRIPT)}"


_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def count(value: int | float | None) -> str:
    """A whole number with thin spaces between thousands: 12 345 678."""
    if value is None or not math.isfinite(value):
        return MISSING
    return f"{round(value):,}".replace(",", "\u202f").replace("-", MINUS)


def short_count(value: float) -> str:
    """A whole number as an axis has room for it: 950, 12k, 1.25M, 3B."""
    value = float(f"{value:.3g}")  # rounded first: 999 999 is 1M, not 1000k
    for size, suffix in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{suffix}".replace("-", MINUS)
    return f"{value:.3g}".replace("-", MINUS)


def duration(seconds: float | None) -> str:
    """Wall time as people say it: 42 s, 3 min 05 s, 2 h 10 min."""
    if seconds is None or not math.isfinite(seconds):
        return MISSING
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def interval(bounds: tuple[float, float] | None, decimals: int) -> str:
    """`[-0.012, -0.004]`, with true minus signs, or a dash where none is due."""
    if bounds is None:
        return MISSING
    return f"[{fixed(bounds[0], decimals, signed=True)}, {fixed(bounds[1], decimals, signed=True)}]"
