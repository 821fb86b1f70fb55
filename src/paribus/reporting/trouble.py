"""What went wrong in training: loss spikes, and runs that diverged with what is on record of why."""

from collections.abc import Iterator, Sequence

from paribus.reading.cell import ReadCell
from paribus.reading.study import ReadStudy
from paribus.reading.trouble import logged, spikes_of, why_diverged
from paribus.report.content import Curve, DivergedRow, SpikeRow
from paribus.reporting.records import variant_in_words

_NAMED = 3
"""cells that a sentence names"""


def spike_rows(cells: Sequence[ReadCell]) -> Iterator[SpikeRow]:
    """Every spike of every cell that ended, in the order of the cells."""
    for cell in cells:
        scale, arm, seed, variant = cell.key
        for spike, line in spikes_of(cell):
            yield SpikeRow(
                scale=scale,
                arm=arm,
                seed=seed,
                variant=variant_in_words(variant),
                step=line["step"],
                tokens_seen=line["tokens_seen"],
                height=spike.height,
                z=spike.z,
                recovered_after_updates=spike.lasts,
            )


def curve_until_divergence(cell: ReadCell) -> Curve | None:
    """Training loss of a cell that diverged up to its last finite update; None where none is on record."""
    lines = logged(cell)
    if not lines:
        return None
    scale, arm, seed, _ = cell.key
    losses = tuple(line["loss_nats_per_token"] for line in lines)
    return Curve(scale, arm, seed, tuple(line["tokens_seen"] for line in lines), losses)


def diverged_rows(study: ReadStudy) -> Iterator[DivergedRow]:
    """Every cell that diverged, whichever kind of cell."""
    for cell in study.cells.values():
        if cell.state != "diverged" or cell.folder is None:
            continue
        scale, arm, seed, variant = cell.key
        told, lines = cell.summary, logged(cell)
        first = told.get("first")
        yield DivergedRow(
            scale=scale,
            arm=arm,
            seed=seed,
            variant=variant_in_words(variant),
            step=told.get("step"),
            reason=str(told.get("reason", "no reason is on record")),
            first_tensor=str(first["sentence"]) if isinstance(first, dict) and "sentence" in first else "",
            batch_digest=str(told.get("batch_digest", "")),
            folder=str(cell.folder.path.relative_to(study.folder.path)),
            last_loss_nats_per_token=lines[-1]["loss_nats_per_token"] if lines else None,
        )


def trouble_caveats(study: ReadStudy, spikes: Sequence[SpikeRow]) -> Iterator[str]:
    """What went wrong in training, a sentence a kind and the first cells by name; nothing about an outcome."""
    lost = [cell for cell in study.cells.values() if cell.state == "diverged"]
    for cell in lost[:_NAMED]:
        yield f"Cell {_named(cell.key)} diverged and stays in: {why_diverged(cell).rstrip('.')}."
    if len(lost) > _NAMED:
        yield f"{len(lost) - _NAMED} more cells diverged and stay in; the table of runs that diverged has all."
    stuck = list(dict.fromkeys((row.scale, row.arm, row.seed, row.variant) for row in spikes if _stuck(row)))
    if stuck:
        named = ", ".join(_named(key) for key in stuck[:_NAMED])
        more = f" and {len(stuck) - _NAMED} more" if len(stuck) > _NAMED else ""
        yield f"The training loss of {named}{more} spiked and was not back at the end; see the loss curves."


def _stuck(row: SpikeRow) -> bool:
    return row.recovered_after_updates is None


def _named(key: tuple[str, str, int, str]) -> str:
    scale, arm, seed, variant = key
    return f"{scale}/{arm}/{seed}" + (f" ({variant})" if variant else "")
