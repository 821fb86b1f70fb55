"""Records about fetching: in which layer an arm attends to the answer of a task, and what was read there.

The names of diagnostics and groups below are those under which their rows are written. Nothing here carries a verdict.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from paribus.report.of_cells import DiagnosticValue

ANSWER_MASS, LARGEST_HEAD = "answer_mass", "largest head"
"""attention of the answering places on the token from which the target can be read; the head that has most of it"""
ALL_HEADS = "mean over heads"
OWN_SHARE, OWN_COSINE = "own_share", "cos_y_v"
"""what of the mix lies along the token's own value: share of the squared norm, and cosine"""
EMBEDDING_MASS, DIVERGENCE = "depth_embedding_mass_attention", "js_roles_attention"
"""weight of a depth route on the embedding, and how far the routes of one attention read lie apart"""
FIRST_ROLE = "query"
"""the route of the query projection: every attention read has it, and it feeds what no other route is called after"""


@dataclass(frozen=True)
class RetrievalRow:
    """One arm on one slice, at the layer that attends most to the answer on the task's primary slice.

    Every reading is the mean over the arm's seeds; None where no seed has it.
    """

    scale: str
    arm: str
    slice: str
    seeds: tuple[int, ...]
    layer: int
    """counted from 0; of the layers, the one whose largest head has the largest mean over seeds"""
    layer_of_seeds: tuple[int, ...]
    """the same by each seed alone"""
    answer_mass: float
    """attention weight of the largest head on the answer"""
    answer_mass_of_seeds: tuple[float, ...]
    own_share: float | None
    """share of the squared norm of the mix along the own value, mean over heads"""
    own_cosine: float | None
    """cosine of the mix with the own value, mean over heads"""
    value_route_on_embedding: float | None
    """weight of the value's depth route on the embedding; None without depth routes"""
    route_divergence_nats: float | None
    """Jensen-Shannon divergence of the query-key route from the value's, per token; None where they are one route"""


def retrieval_rows(values: Sequence[DiagnosticValue], primary: str) -> list[RetrievalRow]:
    """A row a scale, arm and slice of `primary` ("QD", or "acted-control"), in the order of the values.

    The layer is chosen on the first slice. An arm without a reading of attention on the answer there has no row.
    """
    rows = []
    slices = primary.split("-")
    for scale, arm in dict.fromkeys((value.scale, value.arm) for value in values):
        own = [value for value in values if (value.scale, value.arm) == (scale, arm)]
        on_answer = [v for v in own if (v.diagnostic, v.group) == (ANSWER_MASS, LARGEST_HEAD)]
        masses = [value for value in on_answer if value.bucket == slices[0]]
        if not masses:
            continue
        layer = _largest(masses)
        seeds = tuple(dict.fromkeys(value.seed for value in masses))
        of_seeds = tuple(_largest([value for value in masses if value.seed == seed]) for seed in seeds)
        for part in slices:
            here = {v.seed: v.value for v in on_answer if (v.layer, v.bucket) == (layer, part)}
            if not here:
                continue
            read = [value for value in own if (value.layer, value.bucket) == (layer, part)]
            role = _value_role(read)
            rows.append(
                RetrievalRow(
                    scale=scale,
                    arm=arm,
                    slice=part,
                    seeds=seeds,
                    layer=layer,
                    layer_of_seeds=of_seeds,
                    answer_mass=float(np.mean(list(here.values()))),
                    answer_mass_of_seeds=tuple(here.values()),
                    own_share=_mean(read, OWN_SHARE, ALL_HEADS),
                    own_cosine=_mean(read, OWN_COSINE, ALL_HEADS),
                    value_route_on_embedding=_mean(read, EMBEDDING_MASS, role),
                    route_divergence_nats=_mean(read, DIVERGENCE, f"{FIRST_ROLE} vs {role}: per token, then averaged"),
                )
            )
    return rows


def _largest(masses: Sequence[DiagnosticValue]) -> int:
    """The layer with the largest mean; the earliest of equal ones."""
    means = {
        layer: float(np.mean([value.value for value in masses if value.layer == layer]))
        for layer in sorted({value.layer for value in masses})
    }
    return max(means, key=means.__getitem__)


def _value_role(read: Sequence[DiagnosticValue]) -> str:
    """The depth route that feeds the value: the one called after it, else the first."""
    roles = [value.group for value in read if value.diagnostic == EMBEDDING_MASS]
    return next((role for role in roles if "value" in role), FIRST_ROLE)


def _mean(read: Sequence[DiagnosticValue], diagnostic: str, group: str) -> float | None:
    found = [value.value for value in read if (value.diagnostic, value.group) == (diagnostic, group)]
    return float(np.mean(found)) if found else None
