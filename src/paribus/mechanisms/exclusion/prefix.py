"""Values of other tokens that a token may know: earlier ones of its own document. Causal and bit-exact at boundaries.

A running sum minus the sum at the document's start would carry rounding of one document into the next. The scan by
doubling (Hillis and Steele 1986) stays within documents: after step n each position holds the mean of the last 2^n
values of its document, so it takes log2(time) roundings and no other document's number enters it at all. Two means are
weighed by their counts, so that no sum is formed that is larger than the values are.
"""

import torch
from torch import Tensor

from paribus.shapes import Documents, GroupValues


def shifted(t: Tensor, offset: int) -> Tensor:
    """t of `offset` positions earlier along axis 1, zero where there is none."""
    if offset == 0:
        return t
    return torch.cat([torch.zeros_like(t[:, :offset]), t[:, :-offset]], dim=1)[:, : t.shape[1]]


def earlier_value(v: GroupValues, document: Documents, offset: int) -> GroupValues:
    """v of the token `offset` positions earlier, zero where that is no token of the same document."""
    same = shifted(document, offset) == document  # whatever stands before the row, its value is zero
    return shifted(v, offset) * same[:, :, None, None, None].to(v.dtype)


def document_mean(v: GroupValues, document: Documents) -> GroupValues:
    """Mean of v over the token's document up to and including the token."""
    mean, count = v, torch.ones_like(v[..., :1])
    for step in range(scan_steps(v.shape[1])):
        before, of_before = (earlier_value(t, document, 2**step) for t in (mean, count))
        both = count + of_before
        mean = mean * (count / both) + before * (of_before / both)
        count = both
    return mean


def earlier_sum(t: Tensor) -> Tensor:
    """Sum of t over all earlier positions of the row (axis 1), by the same scan: `torch.cumsum` of floats is refused on
    CUDA where algorithms have to be deterministic."""
    total = shifted(t, 1)
    for step in range(scan_steps(t.shape[1])):
        total = total + shifted(total, 2**step)
    return total


def scan_steps(time: int) -> int:
    """Doublings until every position has seen its whole past."""
    return (time - 1).bit_length()
