"""The findings as tables, for the terminal and the page alike."""

import json
from collections.abc import Mapping

from paribus.data.packing import Waste
from paribus.inspecting.findings import Findings
from paribus.report.numbers import count
from paribus.report.tables import Column, Table, facts_table
from paribus.stats.rounding import MISSING, fixed

SOURCES_SHOWN = 20
FILES_SHOWN = 50


def splits_table(found: Findings) -> Table:
    """A row a split: sizes, and lengths of documents."""
    columns = (
        Column("split"),
        *(Column(heading, numeric=True) for heading in ("documents", "bytes", "tokens")),
        Column("bytes", "per token", numeric=True),
        *(Column(heading, "tokens", numeric=True) for heading in ("median", "90 %", "longest")),
    )
    rows = [
        (
            facts.split,
            count(facts.documents),
            count(facts.bytes),
            count(facts.tokens),
            MISSING if facts.bytes_per_token is None else fixed(facts.bytes_per_token, 3),
            count(facts.median),
            count(facts.ninetieth),
            count(facts.longest),
        )
        for facts in found.splits
    ]
    note = "Tokens are without special tokens. Median, 90 % and longest: of the documents' lengths."
    return Table("Splits", columns, tuple(rows), note)


def left_out_table(found: Findings) -> Table:
    """What was read and is in no split, and why."""
    columns = (Column("why"), Column("left out", "documents", numeric=True))
    rows = tuple((reason, count(number)) for reason, number in found.left_out.items())
    return Table("Read and left out", columns, rows)


def overlap_table(found: Findings) -> Table:
    """Test documents by whether they share a 13-gram with training texts."""
    names = {"free": "sharing none", "shared": "sharing some", "not_checked": "not checked"}
    rows = tuple((text, count(found.frozen.overlap[key])) for key, text in names.items())
    columns = (Column("test documents"), Column("documents", numeric=True))
    return Table("13-grams that test documents share with training texts", columns, rows)


def evaluation_table(found: Findings) -> Table:
    """What was read and shares a 13-gram with an evaluation set; no row for a set that shares none."""
    shared = found.frozen.contaminated_by
    rows = tuple((name, count(documents)) for name, documents in shared.items() if documents)
    columns = (Column("evaluation set"), Column("documents", numeric=True))
    caption = "13-grams that documents share with evaluation sets"
    return Table(caption, columns, rows, evaluation_note(found) if rows else "")


def evaluation_note(found: Findings) -> str:
    """How many evaluation sets were compared, and how many of them share nothing; empty where there were none."""
    compared = len(found.frozen.contaminated_by)
    if not compared:
        return ""
    free = compared - sum(documents > 0 for documents in found.frozen.contaminated_by.values())
    sets = "1 file of evaluation sets" if compared == 1 else f"{count(compared)} files of evaluation sets"
    sharing = "none of them shares" if free == compared else f"{count(free)} of them share none"
    return (
        f"All that was read was compared with {sets}; {sharing}{' a 13-gram' if free == compared else ''}. Training "
        "documents that share one were dropped."
    )


def hostless_sentence(found: Findings) -> str:
    """How many documents a split by host could not group; empty where there are none."""
    hostless = found.frozen.hostless
    return f"{count(hostless)} documents have no web address: each is split by its own text." if hostless else ""


def sources_table(found: Findings) -> Table:
    """The largest sources, over all splits."""
    columns = (
        Column("source"),
        *(Column(heading, numeric=True) for heading in ("documents", "bytes", "tokens", "share of tokens")),
    )
    rows = [
        (
            source.source,
            count(source.documents),
            count(source.bytes),
            count(source.tokens),
            share(source.tokens / found.tokens if found.tokens else None),
        )
        for source in found.sources[:SOURCES_SHOWN]
    ]
    rest = found.sources[SOURCES_SHOWN:]
    if rest:
        documents, size, tokens = (sum(getattr(s, name) for s in rest) for name in ("documents", "bytes", "tokens"))
        others = f"{len(rest)} others"
        rows.append((others, count(documents), count(size), count(tokens), share(tokens / max(found.tokens, 1))))
    return Table("Sources, over all splits", columns, tuple(rows))


def waste_table(found: Findings) -> Table:
    """What either packing wastes of the train split."""
    columns = (
        Column("packing"),
        Column("rows", numeric=True),
        Column("cropped", "of tokens", numeric=True),
        Column("cropped", "of documents", numeric=True),
        Column("left over", "of tokens", numeric=True),
        Column("mid-document", "of rows", numeric=True),
        Column("BOS", "of inputs", numeric=True),
    )
    note = (
        "stream: documents lie end to end and are cut every row. best-fit: every row begins a document, and what goes "
        "beyond the row is cropped. Mid-document: rows that do not begin with a document. BOS marks where a document "
        "begins. Measured on one order of the training documents that is read once."
    )
    rows = tuple((waste.packing, count(waste.rows), *_shares(waste)) for waste in found.wastes)
    return Table(f"Waste in rows of {count(found.context_length)} tokens", columns, rows, note)


def _shares(waste: Waste) -> tuple[str, ...]:
    return tuple(
        share(value)
        for value in (
            waste.cropped_tokens,
            waste.cropped_documents,
            waste.rest_tokens,
            waste.rows_mid_document,
            waste.bos,
        )
    )


def digests_table(found: Findings) -> Table:
    """What names the corpus, and every file."""
    frozen = found.frozen
    facts = {"corpus": frozen.digest, "key": frozen.key, "split rule": str(frozen.split_rule["digest"])}
    return Table(
        "Digests, blake2b-256",
        (Column("of"), Column("digest")),
        tuple({**facts, **dict(sorted(frozen.files.items()))}.items()),
        "The corpus' digest is of the tokenizer, all token ids and the document tables, and equal on every machine. "
        "The key is of everything declared and every file read.",
    )


def files_table(found: Findings) -> Table:
    """The files that were read."""
    files = found.frozen.source_files
    more = f"{count(len(files) - FILES_SHOWN)} more are in manifest.json." if len(files) > FILES_SHOWN else ""
    rows = tuple((file.name, count(file.bytes), file.digest) for file in files[:FILES_SHOWN])
    return Table("Files that were read", (Column("file"), Column("bytes", numeric=True), Column("digest")), rows, more)


def declaration_table(found: Findings) -> Table:
    """The declared corpus, tokenizer and split rule, and what made it."""
    frozen = found.frozen
    facts = {
        **_written("corpus", frozen.config),
        **_written("tokenizer", frozen.tokenizer_config),
        "tokenizer: token ids": f"{frozen.vocabulary_size}",
        "tokenizer: id of a beginning": f"{frozen.bos_id}",
        **_written("made with", frozen.made_with),
        **_written("package", frozen.versions),
    }
    return facts_table("As declared", facts)


def share(value: float | None) -> str:
    """A share of 0.0123 as `1.23 %`."""
    return MISSING if value is None else f"{fixed(100 * value, 2)} %"


def _written(table: str, fields: Mapping[str, object]) -> dict[str, str]:
    return {
        f"{table}: {name.replace('_', ' ')}": value if isinstance(value, str) else json.dumps(value)
        for name, value in fields.items()
        if value is not None
    }
