"""The key of a corpus: everything that was declared and every file it is made of. Another of either is another folder.

Versions of packages do not enter for local-docs: what they hold is not known before they are read, so a corpus of
them is found again by its declaration and stays what it was when it was frozen.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paribus.data.config import CorpusConfig, TokenizerConfig
from paribus.data.digests import RememberedDigests
from paribus.data.frozen import FORMAT_VERSION
from paribus.data.prepare.scan import split_number
from paribus.data.sources.contract import SourceFile
from paribus.data.tokenizer import Tokenizer
from paribus.errors import CorpusError

KEY_DIGITS = 12
"""of the key, in the folder's name"""
_PROBES = 4096


def key_of(
    corpus: CorpusConfig,
    tokenizer: dict[str, Any],
    source_files: Sequence[SourceFile],
    evaluation_files: Sequence[SourceFile],
) -> str:
    """blake2b-256 over the canonical JSON of all that decides which tokens are frozen, hexadecimal."""
    content = {
        "format_version": FORMAT_VERSION,
        "corpus": corpus.as_json(),
        "tokenizer": tokenizer,
        "split_rule": split_rule(corpus),
        "source_files": [[file.name, file.bytes, file.digest] for file in source_files],
        "evaluation_files": [[file.name, file.bytes, file.digest] for file in evaluation_files],
    }
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
    return hashlib.blake2b(canonical, digest_size=32).hexdigest()


def split_rule(corpus: CorpusConfig) -> dict[str, Any]:
    """What decides the splits, and a digest of what it decides for 4,096 fixed keys, in the last file and before it."""
    decided = [
        split_number(corpus, f"probe {number}".encode(), in_last_file)
        for in_last_file in (False, True)
        for number in range(_PROBES)
    ]
    return {
        "split_by": corpus.split_by,
        "held_out": corpus.held_out,
        "test_fraction": corpus.test_fraction,
        "validation_fraction": corpus.validation_fraction,
        "digest": hashlib.blake2b(bytes(decided), digest_size=32).hexdigest(),
    }


def declared_tokenizer(config: TokenizerConfig, loaded: Tokenizer | None) -> dict[str, Any]:
    """The declaration; of one that exists, with the digest of what it is in the place of where it lies."""
    return config.as_json() | ({} if loaded is None else {"digest": loaded.digest})


def loaded_tokenizer(config: TokenizerConfig) -> Tokenizer | None:
    """The declared tokenizer where it exists already; None for one that has to be learnt.

    Raises CorpusError where its file is missing, damaged, or not here yet.
    """
    if config.file is not None:
        return Tokenizer.load(config.file, config.beginning)
    return None


def beginning_of(tokenizer: dict[str, Any]) -> str | None:
    """The declared name of the token for the beginning of a document; None: the usual names are tried."""
    special = tokenizer.get("special_tokens")
    return special[0] if special else tokenizer.get("beginning")


def evaluation_files(paths: Sequence[Path], digests: RememberedDigests) -> tuple[SourceFile, ...]:
    """Every file of the evaluation sets with its size and digest. Raises CorpusError for one that cannot be read."""
    found = []
    for path in paths:
        inside = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
        for file in inside:
            name = file.relative_to(path.parent).as_posix()
            try:
                found.append(SourceFile(name, file.stat().st_size, digests.of(file)))
            except OSError as error:
                raise CorpusError(
                    f"the evaluation set {name} cannot be read",
                    expected=f"a file at {file}",
                    received=f"{type(error).__name__}: {error}",
                    remedy="correct the path in decontaminate, or restore the file",
                ) from error
    return tuple(found)
