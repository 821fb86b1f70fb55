"""Shape factors: how the step of an orthogonalised matrix depends on its shape."""

from collections.abc import Callable, Mapping


def keller(rows: int, columns: int) -> float:
    """sqrt(max(1, rows / columns)): a tall matrix moves its larger output by as much per feature (Jordan et al.
    2024)."""
    return max(1.0, rows / columns) ** 0.5


def moonshot(rows: int, columns: int) -> float:
    """0.2 sqrt(max(rows, columns)): entries of an exact polar factor then have root mean square 0.2, about that of an
    AdamW step, so that its rates and decays carry over (Liu et al. 2502.16982, equation 4)."""
    return 0.2 * max(rows, columns) ** 0.5


SCALES: Mapping[str, Callable[[int, int], float]] = {"keller": keller, "moonshot": moonshot}
"""by the name that a recipe gives"""
