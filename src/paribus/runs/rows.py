"""Which rows of a finished cell can be evidence, whatever their digests say.

Training never leaves a likelihood that is not finite: such a cell has diverged and has no rows. Rows that hold one were
changed, and a NaN must neither become a number nor stop a report.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

LIKELIHOOD = ("document", "nats", "tokens", "bytes", "tokens_seen", "mid_schedule")
READINGS = {
    "diagnostics": ("diagnostic", "layer", "group", "value"),
    "interventions": ("intervention", "variant", "tokens", "nats_before", "nats_after"),
    "routes": ("site", "layer", "role", "source", "weight"),
}
"""columns that a report cannot do without, by group of row files"""


ROUNDING_NATS = 1e-3
"""A token's nats are a logarithm of a sum less one of its terms: below 0 by no more than rounding of float32 logits."""


def without_bytes(rows: pa.Table) -> bool:
    """Whether what was scored is no text: the targets of a task have no bytes, and every one of them is null."""
    return rows["bytes"].null_count == len(rows)


def rows_fault(rows: pa.Table) -> str:
    """Why the rows of a likelihood file, with the columns LIKELIHOOD, are no evidence; empty where they are."""
    if not len(rows):
        return "holds no document"
    return next(_faults(rows), "")


def _faults(rows: pa.Table) -> Iterator[str]:
    for name in ("nats", "tokens", *(() if without_bytes(rows) else ("bytes",))):
        kind = rows.schema.field(name).type
        if not (pa.types.is_floating(kind) or pa.types.is_integer(kind)):
            yield f"holds {name} that are no numbers ({kind})"
            return
        values = rows[name].to_numpy().astype(float)  # a null becomes NaN
        unknown = int((~np.isfinite(values)).sum())
        if unknown:
            yield f"holds no finite {name} for {unknown} of {len(rows)} documents"
        elif name == "nats" and (values < -ROUNDING_NATS * rows["tokens"].to_numpy()).any():
            yield "holds nats below 0"
        elif name != "nats" and (values <= 0).any():
            yield f"holds {name} that are not above 0"
    for name, kinds in (("tokens_seen", int), ("mid_schedule", bool)):
        if rows[name].null_count or len(rows[name].unique()) != 1:
            yield f"holds different values of {name}"
        elif not isinstance(rows[name][0].as_py(), kinds):
            yield f"holds a {name} of another kind"
    if len(rows["document"].unique()) != len(rows):
        yield "holds a document twice"
