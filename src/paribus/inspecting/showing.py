"""Findings in the terminal, and as JSON."""

import dataclasses
from typing import Any

from rich.console import Console

from paribus.inspecting import tables
from paribus.inspecting.findings import Findings, Lengths, Sample
from paribus.report.tables import Table, to_text, without_empty_columns

_BAR_CHARACTERS = 24
_LINE_CHARACTERS = 76
"""of a document, so that the line fits into 80"""
_SAMPLE_LINES = 5


def show(found: Findings, console: Console) -> None:
    """Tables, the lengths as bars of text, and the beginnings of some documents."""
    frozen = found.frozen
    _say(console, f"{frozen.name} in {frozen.folder}: every file is as its digest says\n")
    _table(console, tables.splits_table(found))
    if hostless := tables.hostless_sentence(found):
        _say(console, f"{hostless}\n")
    _table(console, tables.left_out_table(found), "Nothing that was read was left out.")
    _say(console, "\n".join(["Lengths: documents of all splits by their tokens", *length_lines(found.lengths), ""]))
    if len(found.sources) > 1:
        _table(console, tables.sources_table(found))
    _table(console, tables.waste_table(found))
    _table(console, tables.overlap_table(found))
    if note := tables.evaluation_note(found):
        # Names of files are paths, which the columns of a table would break.
        lines = [f"{documents:>9,}  {name}" for name, documents in found.frozen.contaminated_by.items() if documents]
        _say(console, "\n".join(["Documents that share a 13-gram with evaluation sets", *lines, f"{note}\n"]))
    for sample in found.samples:
        _say(console, "\n".join(_sample_lines(sample)))
    _say(console, f"digest {frozen.digest}")
    _say(console, f"key    {frozen.key}")


def length_lines(lengths: Lengths) -> list[str]:
    """A line a bin: its range of tokens, a bar of its documents, how many, and its share of all tokens."""
    inner = [int(edge) if edge == int(edge) else int(edge) + 1 for edge in lengths.edges.tolist()]
    most, tokens = max(lengths.documents.tolist(), default=0), int(lengths.tokens.sum())
    lines = []
    for place, documents in enumerate(lengths.documents.tolist()):
        first, last = inner[place], inner[place + 1] - 1
        if last < first or (not documents and not lines):
            continue
        bar = "█" * round(_BAR_CHARACTERS * documents / most) or ("▏" if documents else "")
        within = tables.share(int(lengths.tokens[place]) / tokens if tokens else None)
        span = f"{first:,}" if first == last else f"{first:,} to {last:,}"
        lines.append(f"{span:>18}  {bar:<{_BAR_CHARACTERS}}  {documents:>9,}  {within:>8} of the tokens")
    return lines


def as_json(found: Findings) -> dict[str, Any]:
    """Everything that is shown, as JSON types."""
    frozen = found.frozen
    return {
        "name": frozen.name,
        "folder": str(frozen.folder),
        "digest": frozen.digest,
        "key": frozen.key,
        "files": dict(frozen.files),
        "corpus": dict(frozen.config),
        "tokenizer": {
            **frozen.tokenizer_config,
            "token_ids": frozen.vocabulary_size,
            "bos_id": frozen.bos_id,
        },
        "split_rule": dict(frozen.split_rule),
        "splits": {
            facts.split: {**dataclasses.asdict(facts), "bytes_per_token": facts.bytes_per_token}
            for facts in found.splits
        },
        "left_out": dict(frozen.dropped),
        "overlap": dict(frozen.overlap),
        "contaminated_by": dict(frozen.contaminated_by),
        "documents_without_host": frozen.hostless,
        "lengths": {
            "edges_tokens": found.lengths.edges.tolist(),
            "documents": found.lengths.documents.tolist(),
            "tokens": found.lengths.tokens.tolist(),
        },
        "sources": [dataclasses.asdict(source) for source in found.sources],
        "waste": [dataclasses.asdict(waste) for waste in found.wastes],
        "samples": [dataclasses.asdict(sample) for sample in found.samples],
    }


def headline(sample: Sample) -> str:
    """Split, source, size and id of a sample, in one line."""
    marked = f"{sample.split}, held out" if sample.split != "train" else sample.split
    overlap = {True: ", no 13-gram of the training texts", False: ", shares a 13-gram with the training texts"}
    free = "" if sample.overlap_free is None else overlap[sample.overlap_free]
    size = f"{sample.tokens:,} tokens, {sample.bytes:,} bytes"
    return f"{marked}: {sample.source}, {size}, {sample.document[:12]}{free}"


def _sample_lines(sample: Sample) -> list[str]:
    lines = [line for line in map(_printable, sample.text.splitlines()) if line]
    shown = [f"  {line if len(line) <= _LINE_CHARACTERS else f'{line[:_LINE_CHARACTERS]}…'}" for line in lines]
    goes_on = sample.cut or len(lines) > _SAMPLE_LINES
    return [_printable(headline(sample)), *shown[:_SAMPLE_LINES], *(["  …"] if goes_on else []), ""]


def _printable(line: str) -> str:
    """A terminal obeys control characters that a document may hold."""
    return "".join(c if c.isprintable() else " " for c in line).rstrip()


def _table(console: Console, table: Table, without: str = "") -> None:
    if not table.rows:
        _say(console, f"{without}\n")
        return
    # A line that is wider than the terminal is broken; a column that is left out would be missed.
    text = to_text(without_empty_columns(table, keep=1))
    _say(console, f"{table.caption}\n{text}")


def _say(console: Console, line: str) -> None:
    console.print(line, highlight=False, markup=False, soft_wrap=True)
