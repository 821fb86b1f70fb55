"""Where texts come from: files of one kind in a folder, or the documentation of installed packages."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from paribus.data.sources.contract import Source
from paribus.data.sources.folder import file_digest
from paribus.data.sources.gpt2_tokens import gpt2_vocabulary
from paribus.data.sources.jsonl import JsonlSource
from paribus.data.sources.listing import corpus_files
from paribus.data.sources.local_docs import LocalDocsSource
from paribus.data.sources.parquet import ParquetSource
from paribus.data.sources.text import TextSource
from paribus.errors import CorpusError

if TYPE_CHECKING:
    # At run time the declaration takes the default packages from here, so here nothing is taken from it.
    from paribus.data.config import CorpusConfig

_TOKENS_COLUMN = "tokens"


def open_source(
    config: "CorpusConfig",
    *,
    digest_of: Callable[[Path], str] = file_digest,
    vocabulary: Path | None = None,
) -> Source:
    """The declared source. A corpus of the hub is read from its folder, which must hold the files already.

    `digest_of` gives a file's blake2b-256 (remembered ones spare a second reading). `vocabulary` is a file with GPT-2's
    tokens, or a folder with one, for the form `gpt2-tokens`; without it, the corpus folder and tiktoken's cache
    (TIKTOKEN_CACHE_DIR) are searched. The form's column is `tokens` unless another than the default is declared.
    Raises CorpusError for a folder without files of one kind, and for a declaration that its files cannot meet.
    """
    by_host = config.split_by == "host"
    if config.kind == "local-docs":
        if by_host:
            raise _no_hosts("the documentation of packages")
        return LocalDocsSource(tuple(sorted(set(config.packages))), config.minimum_characters)
    if config.folder is None:
        raise CorpusError(
            "the files of the hub are not here yet",
            expected="a folder that holds them",
            received="no folder",
            remedy="fetch them first; `paribus data prepare` does",
        )
    kind, names = corpus_files(config.folder, config.hub.files if config.hub else ("*",))
    if config.hub is not None and config.hub.limit is not None:
        kept = names[: config.hub.limit]
        last = names[len(kept) :][-1:] if config.held_out == "last-file" else ()
        names = kept + last
    refuse_bad = config.bad_documents == "refuse"
    tokens = config.form == "gpt2-tokens"
    if kind == "text":
        if by_host:
            raise _no_hosts("text files")
        if tokens:
            raise CorpusError(
                "text files hold no token ids",
                expected="Parquet or JSON lines, where the form is 'gpt2-tokens'",
                received=f"{len(names)} text files in {config.folder}",
                remedy="declare the form 'text', or name the folder of the token files",
            )
        return TextSource(config.folder, names, refuse_bad, digest_of)
    if tokens:
        cache = os.environ.get("TIKTOKEN_CACHE_DIR")
        found = [config.folder, *([Path(cache)] if cache else [])]
        vocabulary = gpt2_vocabulary(found if vocabulary is None else [vocabulary])
    return (ParquetSource if kind == "parquet" else JsonlSource)(
        config.folder,
        names,
        refuse_bad,
        digest_of,
        text_column=_TOKENS_COLUMN if tokens and config.text_column == "text" else config.text_column,
        source_column=config.source_column,
        url_column=config.url_column if by_host else None,
        vocabulary=vocabulary if tokens else None,
    )


def _no_hosts(what: str) -> CorpusError:
    return CorpusError(
        f"{what} have no web addresses to split by",
        expected="Parquet or JSON lines with a column of addresses, where split_by is 'host'",
        received=what,
        remedy="split by 'document' or 'minhash-cluster'",
    )


__all__ = ["file_digest", "open_source"]
