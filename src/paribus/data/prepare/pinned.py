"""Whether a declaration still is the one that a corpus was frozen from, for a study that has begun."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from paribus.data.config import CorpusConfig, TokenizerConfig
from paribus.data.digests import REMEMBERED, RememberedDigests
from paribus.data.frozen import FrozenCorpus
from paribus.data.prepare.key import declared_tokenizer, loaded_tokenizer
from paribus.data.sources import open_source
from paribus.data.sources.contract import SourceFile
from paribus.errors import CorpusError


def require_same(frozen: FrozenCorpus, corpus: CorpusConfig, tokenizer: TokenizerConfig) -> None:
    """Raise CorpusError where the file now declares another corpus or tokenizer, or the files have changed.

    Files that are not here any more say nothing: the frozen copy is what is read.
    """
    before: dict[str, Any] = {**frozen.config, **_named("tokenizer", frozen.tokenizer_config)}
    now: dict[str, Any] = {**corpus.as_json(), **_named("tokenizer", _tokenizer(tokenizer, frozen))}
    now = json.loads(json.dumps(now))
    different = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
    if different:
        raise CorpusError(
            "this study was planned with another corpus",
            expected=", ".join(f"{name} = {json.dumps(before.get(name))}" for name in different),
            received=", ".join(f"{name} = {json.dumps(now.get(name))}" for name in different),
            remedy="restore the declaration, or give the study a new name",
        )
    folder = corpus.folder
    if folder is None or not folder.is_dir():
        return
    with RememberedDigests(frozen.folder.parent / REMEMBERED) as digests:
        files = open_source(corpus, digest_of=digests.of).files()
    if files != tuple(frozen.source_files):
        raise CorpusError(
            f"the files in {folder} are not the ones this study was planned with",
            expected=_listed(frozen.source_files),
            received=_listed(files),
            remedy="restore the files, move the folder away, or give the study a new name",
        )


def _tokenizer(config: TokenizerConfig, frozen: FrozenCorpus) -> Mapping[str, Any]:
    gone = config.file is not None and not Path(config.file).exists()
    return frozen.tokenizer_config if gone else declared_tokenizer(config, loaded_tokenizer(config))


def _named(table: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{table}.{name}": value for name, value in fields.items()}


def _listed(files: Sequence[SourceFile]) -> str:
    return (
        f"{len(files)} files of {sum(file.bytes for file in files):,} bytes: "
        + ", ".join(f"{file.name} {file.digest[:12]}" for file in files[:5])
        + (", ..." if len(files) > 5 else "")
    )
