"""A prepared corpus in one table, or as JSON."""

from typing import Any

from rich.console import Console

from paribus.data.frozen import FrozenCorpus
from paribus.data.split import SPLITS
from paribus.terminal import table


def show_prepared(frozen: FrozenCorpus, console: Console, *, new: bool) -> None:
    """Splits, what was left out and why, where the corpus lies and its digest."""
    rows = []
    for split in SPLITS:
        counts = frozen.counts[split]
        rows.append((split, f"{counts.documents:,}", f"{counts.bytes:,}", f"{counts.tokens:,}", _ratio(counts)))
    title = f"{frozen.name}, {'prepared' if new else 'prepared before'}"
    columns = ("split", "documents", "bytes", "tokens", "bytes per token")
    console.print(table(title, columns, rows, right=(1, 2, 3, 4)))
    left_out = {reason.replace("_", " "): count for reason, count in frozen.dropped.items() if count}
    lines = ["left out: " + (", ".join(f"{count:,} {reason}" for reason, count in left_out.items()) or "nothing")]
    lines += [f"tokenizer: {frozen.vocabulary_size:,} token ids, beginning of a document {frozen.bos_id}"]
    lines += [f"folder: {frozen.folder}", f"digest: {frozen.digest}"]
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def as_json(frozen: FrozenCorpus) -> dict[str, Any]:
    """The same as JSON types."""
    return {
        "name": frozen.name,
        "folder": str(frozen.folder),
        "digest": frozen.digest,
        "vocabulary_size": frozen.vocabulary_size,
        "bos_id": frozen.bos_id,
        "splits": {
            split: {"documents": counts.documents, "bytes": counts.bytes, "tokens": counts.tokens}
            for split, counts in frozen.counts.items()
        },
        "left_out": dict(frozen.dropped),
    }


def _ratio(counts: Any) -> str:
    return f"{counts.bytes / counts.tokens:.3f}" if counts.tokens else "-"
