"""What the taps saw, from a cell's rows: diagnostics, interventions at evaluation, and how far depth routes move."""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from paribus.reading.cell import ReadCell
from paribus.reading.study import ReadStudy
from paribus.report.content import EVERY_POSITION, DiagnosticValue, InterventionValue, RouteChange
from paribus.stats import documents
from paribus.stats.divergence import RouteKey, between_seeds

_IN_BITS = ", in bits"
"""how a group ends that holds the group before it in another unit"""


def diagnostics(study: ReadStudy, cell: ReadCell) -> list[DiagnosticValue]:
    """Every reading but those of one head in one bucket of positions, or one slice, which stay in the run folder.

    Nor is a reading "in bits" taken beside the same one in nats: tables convert.
    """
    units = {d["diagnostic"]: d["unit"].partition(" (bits")[0] for d in study.plan["diagnostics"]}
    assert cell.folder is not None
    scale, arm, seed, _ = cell.key
    found = []
    for name in cell.folder.row_files("diagnostics"):
        for row in cell.folder.rows(name).to_pylist():
            if row["group"].endswith(_IN_BITS):
                continue
            # "query source:3" is source 3 as the role "query" weighs it.
            role, _, source = row["group"].rpartition(" source:")
            site, group = (role, f"source:{source}") if role else ("", row["group"])
            value = DiagnosticValue(
                diagnostic=row["diagnostic"],
                unit=units.get(row["diagnostic"], ""),
                scale=scale,
                arm=arm,
                seed=seed,
                layer=row["layer"],
                site=site,
                group=group,
                value=row["value"],
                bucket=row.get("bucket", EVERY_POSITION),
                standard_error=_there(row.get("standard_error")),
                documents=row.get("documents"),
            )
            if not (value.of_head and value.bucket != EVERY_POSITION):
                found.append(value)
    return found


def _there(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None


def interventions(cell: ReadCell) -> Iterator[InterventionValue]:
    """The change of each variant, from the rows of its documents."""
    assert cell.folder is not None
    scale, arm, seed, _ = cell.key
    for name in cell.folder.row_files("interventions"):
        rows = cell.folder.rows(name)
        labels = list(zip(rows["intervention"].to_pylist(), rows["variant"].to_pylist(), strict=True))
        before, after, tokens = (rows[c].to_numpy().astype(float) for c in ("nats_before", "nats_after", "tokens"))
        for intervention, variant in dict.fromkeys(labels):
            own = np.array([label == (intervention, variant) for label in labels])
            change = documents.ratio((after - before)[own], tokens[own])
            error = _there(float(change.standard_error))
            what = (intervention, variant, scale, arm, seed)
            yield InterventionValue(*what, float(change.value), error, int(change.documents))


def route_changes(complete: Sequence[ReadCell]) -> tuple[list[RouteChange], list[str]]:
    """How far depth routes move between the seeds of an arm, and a sentence for each cell whose routes lack rows."""
    changes: list[RouteChange] = []
    said: list[str] = []
    for scale, arm in dict.fromkeys(cell.key[:2] for cell in complete):
        routes: dict[int, dict[RouteKey, NDArray[np.floating]]] = {}
        for cell in complete:
            if cell.key[:2] == (scale, arm):
                routes[cell.key[2]], lost = _routes(cell)
                if lost:
                    where = "/".join(map(str, cell.key[:3]))
                    said.append(f"{lost} depth routes of {where} lack rows and are not compared between seeds.")
        changes += [
            RouteChange(scale, arm, found.site, found.layer, found.role, found.seeds, found.nats)
            for found in between_seeds(routes)
        ]
    return changes, said


def _routes(cell: ReadCell) -> tuple[dict[RouteKey, NDArray[np.floating]], int]:
    """Weights [position source] of every route that the cell kept, and how many cannot be laid out again."""
    assert cell.folder is not None
    found, lost = {}, 0
    for name in cell.folder.row_files("routes"):
        rows = cell.folder.rows(name)
        if not len(rows):
            continue
        site, role = (rows[column].dictionary_encode().combine_chunks() for column in ("site", "role"))
        layer, source = rows["layer"].to_numpy(), rows["source"].to_numpy()
        codes = np.stack([site.indices.to_numpy(), layer, role.indices.to_numpy()], -1)
        # Rows of one route stand together, by position and then by source, as they were written.
        starts = np.flatnonzero(np.any(codes[1:] != codes[:-1], axis=1)) + 1
        for first, stop in pairwise([0, *starts.tolist(), len(codes)]):
            s, number, r = codes[first]
            key = (site.dictionary[int(s)].as_py(), int(number), role.dictionary[int(r)].as_py())
            weights = rows["weight"].slice(first, stop - first).to_numpy()
            sources = int(source[first:stop].max()) + 1
            if len(weights) % sources:
                lost += 1
            else:
                found[key] = weights.reshape(-1, sources)
    return found, lost
