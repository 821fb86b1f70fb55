"""How far rounding may move a -ln p: the same item asked in another batch, or on another machine, is another rounding.

Sharing a prefix, padding and batching only choose the order in which numbers are added, and every order is off the
exact value by as much. How much that is depends on the weights: norms and softmaxes amplify what the layers before them
rounded, by factors that no count of operations knows. So it is measured, on some of the very rows that are asked: they
pass through the model as it is, and once more with every parameter and every operation in float64.

    rounding = 8 * max |-ln p - its value in float64|   over the tokens of those rows, and the likeliest in their places

Eight, because the largest of a million errors of one shape is not many times that of the some thousand that were looked
at. The mean over a span moves by no more than one of its tokens, the difference of two by twice that. The tests compare
every row of real and of random models with float64, and none is beyond it.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call

from paribus.model.backbone import Backbone

TOKENS, OF_A_ROW = 1024, 512
"""that are looked at, about, and of one row at most"""
SAFETY = 8.0


def measured_rounding(model: Backbone, rows: Sequence[NDArray[np.int32]]) -> float:
    """Largest move of a token's -ln p in nats, from some of the rows, evenly spread over them.

    At least two units of rounding of a number of its size. Memory: the parameters in float64.
    """
    exact = _in_float64(model)
    usual = sum(min(len(row), OF_A_ROW) for row in rows) / len(rows)
    places = np.linspace(0, len(rows) - 1, min(math.ceil(TOKENS / usual), len(rows))).astype(int)
    found = 0.0
    for row in (rows[place] for place in places):
        tokens = torch.from_numpy(row[:OF_A_ROW].astype(np.int64))[None].to(next(model.parameters()).device)
        inputs = (tokens, torch.zeros_like(tokens))
        with torch.no_grad():
            logits, wide = model(*inputs)[0], functional_call(model, exact, inputs)[0]
        # The first token stands in for what follows the last one.
        asked = torch.stack([tokens[0].roll(-1), wide.argmax(-1)], -1)
        off = (_log_probabilities(logits, asked) - _log_probabilities(wide, asked)).abs().max()
        unit = torch.finfo(logits.dtype).eps * wide.abs().max()
        found = max(found, float(unit), SAFETY * float(off))
    return found


def _in_float64(model: Backbone) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {
        name: nn.Parameter(value.detach().double(), requires_grad=False) for name, value in model.named_parameters()
    }
    return found | {name: t.double() if t.is_floating_point() else t for name, t in model.named_buffers()}


def _log_probabilities(logits: Tensor, asked: Tensor) -> Tensor:
    """Of the asked tokens [token n] under logits [token vocab], with the arithmetic of `answers_scores`."""
    return (logits.gather(-1, asked) - logits.logsumexp(-1, keepdim=True)).double()
