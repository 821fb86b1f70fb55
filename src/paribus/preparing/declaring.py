"""What a command line means by a corpus: a folder of files, the local docs, a published name, or a repository.

An experiment file declares its corpus itself, and then no option may say otherwise.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from paribus.data.config import (
    NANOCHAT_SPECIAL_TOKENS,
    CorpusConfig,
    Form,
    HubFiles,
    PreTokenizer,
    SplitBy,
    TokenizerConfig,
)
from paribus.data.sources.hub import GPT2_COMMIT, GPT2_REPOSITORY
from paribus.data.sources.known import KNOWN, known_corpus
from paribus.errors import CorpusError, nearest

LOCAL_DOCS = "local-docs"
GPT2 = "gpt2"
_GPT2 = HubFiles(GPT2_REPOSITORY, GPT2_COMMIT)


@dataclass(frozen=True)
class Declared:
    """All that `paribus.data.prepare.prepare` asks for."""

    corpus: CorpusConfig
    tokenizer: TokenizerConfig
    name: str
    """of the folder in the store, before the digits of its key"""
    tokenizer_of: HubFiles | None = None
    """the model repository whose tokenizer.json is used, which `preparing.fetching` brings"""


@dataclass(frozen=True)
class Options:
    """What is said beside a folder or a name; None is not said. Fields are named as those of the declaration."""

    name: str | None = None
    revision: str | None = None
    files: tuple[str, ...] | None = None
    limit: int | None = None
    folder: Path | None = None
    form: Form | None = None
    text_column: str | None = None
    source_column: str | None = None
    url_column: str | None = None
    bad_documents: str | None = None
    near_duplicate_similarity: float | None = None
    """0: near duplicates are kept"""
    split_by: SplitBy | None = None
    held_out: str | None = None
    test_fraction: float | None = None
    validation_fraction: float | None = None
    decontaminate: tuple[Path, ...] | None = None
    tokenizer: str | None = None
    """`gpt2`, or the path of a tokenizer.json or of its folder"""
    beginning: str | None = None
    vocabulary: int | None = None
    pre_tokenizer: PreTokenizer | None = None

    def given(self) -> Mapping[str, Any]:
        """Those that are said, by name."""
        said = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: value for name, value in said.items() if value is not None}


_OF_HUB = ("revision", "files", "limit", "folder")
_OF_CORPUS = (
    *("form", "text_column", "source_column", "url_column", "bad_documents"),
    *("near_duplicate_similarity", "split_by", "held_out", "test_fraction", "validation_fraction", "decontaminate"),
)
_OF_FILES = ("form", "text_column", "source_column", "url_column", "bad_documents", "held_out")
"""which say nothing of local-docs"""


def require_none(options: Options, file: Path) -> None:
    """CorpusError where options stand beside an experiment file, which declares all of it."""
    if given := options.given():
        raise CorpusError(
            f"{file} declares its corpus itself",
            expected="no option that says something else of it",
            received=", ".join(map(flag, given)),
            remedy="write it into [base.corpus] or [base.tokenizer], or name a folder in the place of the file",
        )


def declare(target: str, options: Options) -> Declared:
    """What a folder, `local-docs`, a published name or a repository means with these options.

    A name is the hub's where a revision is given, also where a folder is called the same. CorpusError for a target that
    is none of them, and for options that do not belong to it.
    """
    tokenizer, path = _tokenizer(options), Path(target)
    of_hub = options.revision is not None
    if path.is_dir() and not (of_hub and (target in KNOWN or _is_repository(target))):
        _refuse(options, _OF_HUB, f"the folder {target}")
        corpus, name = CorpusConfig(kind="folder", folder=path.resolve()), path.resolve().name.lstrip(".") or "corpus"
    elif target == LOCAL_DOCS:
        _refuse(options, (*_OF_HUB, *_OF_FILES), LOCAL_DOCS)
        corpus, name = CorpusConfig(), LOCAL_DOCS
    elif target in KNOWN:
        corpus, name = _known(target, options), target
    elif of_hub and _is_repository(target):
        corpus, name = _repository(target, options), target.rpartition("/")[2]
    else:
        raise _no_corpus(target, path)
    given = options.given()
    said = {name: given[name] for name in _OF_CORPUS if name in given}
    if corpus.kind == "hub":
        # As an experiment file has it: what is published was mostly deduplicated by those who made it.
        said.setdefault("near_duplicate_similarity", None)
    if said.get("near_duplicate_similarity") == 0:
        said["near_duplicate_similarity"] = None
    if "decontaminate" in said:
        said["decontaminate"] = tuple(each.resolve() for each in said["decontaminate"])
    return Declared(replace(corpus, **said), tokenizer, options.name or name, _GPT2 if _is_gpt2(options) else None)


def flag(name: str) -> str:
    """How a field of `Options` is written on the command line."""
    return _FLAGS.get(name, f"--{name.replace('_', '-')}")


_FLAGS = {"near_duplicate_similarity": "--near-duplicates"}


def _known(name: str, options: Options) -> CorpusConfig:
    found = known_corpus(
        name,
        revision=options.revision,
        folder=None if options.folder is None else options.folder.resolve(),
        limit=options.limit,
        form=options.form,
        last_file_held_out=options.held_out == "last-file",
    )
    if options.files is None or found.hub is None:
        return found
    return replace(found, hub=replace(found.hub, files=options.files))


def _repository(name: str, options: Options) -> CorpusConfig:
    assert options.revision is not None
    files = options.files or HubFiles.files
    folder = None if options.folder is None else options.folder.resolve()
    return CorpusConfig(kind="hub", folder=folder, hub=HubFiles(name, options.revision, files, options.limit))


def _tokenizer(options: Options) -> TokenizerConfig:
    loaded, learnt = options.tokenizer is not None, options.vocabulary is not None or options.pre_tokenizer is not None
    if loaded and learnt:
        raise CorpusError(
            "a tokenizer is either loaded or learnt",
            expected="--tokenizer, or --vocabulary and --pre-tokenizer",
            received="both",
            remedy="leave one out",
        )
    if options.beginning is not None and not loaded:
        raise CorpusError(
            "--beginning belongs to a tokenizer that is loaded",
            expected="--tokenizer beside it",
            received=f"--beginning {options.beginning} alone",
        )
    if options.tokenizer is None:
        found = TokenizerConfig()
        if options.vocabulary is not None:
            found = replace(found, vocabulary_size=options.vocabulary)
        if options.pre_tokenizer is not None:
            found = replace(found, pre_tokenizer=options.pre_tokenizer)
        if options.pre_tokenizer == "nanochat":
            found = replace(found, special_tokens=NANOCHAT_SPECIAL_TOKENS)
        return found
    if _is_gpt2(options):
        return TokenizerConfig(beginning=options.beginning)
    path = Path(options.tokenizer)
    if not path.exists():
        raise CorpusError(
            "there is no such tokenizer",
            expected="a tokenizer.json, a folder that holds one, or gpt2",
            received=options.tokenizer,
            remedy="correct the path, or let one be learnt with --vocabulary",
        )
    return TokenizerConfig(file=path.resolve(), beginning=options.beginning)


def _is_gpt2(options: Options) -> bool:
    return options.tokenizer == GPT2 and not Path(GPT2).exists()


def _refuse(options: Options, names: tuple[str, ...], what: str) -> None:
    wrong = [flag(name) for name in names if name in options.given()]
    if wrong:
        raise CorpusError(
            f"{', '.join(wrong)}: not for {what}",
            expected="of the hub: " + ", ".join(map(flag, _OF_HUB)),
            received=what,
            remedy="leave it out" if len(wrong) == 1 else "leave them out",
        )


def _is_repository(target: str) -> bool:
    return re.fullmatch(r"[\w.-]+/[\w.-]+", target) is not None


def _no_corpus(target: str, path: Path) -> CorpusError:
    names = [*KNOWN, LOCAL_DOCS]
    if _is_repository(target):
        remedy = "correct the path; for a repository of the hub, add --revision with its commit"
    else:
        remedy = f"correct the path, or name a published corpus: {nearest(target, names)}"
    return CorpusError(
        f"there is no corpus {target}",
        expected=f"an experiment file, a folder, or one of {', '.join(names)}",
        received="a file that is no experiment file (.toml)" if path.exists() else "no file, folder or name",
        remedy=remedy,
    )
