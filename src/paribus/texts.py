"""From what an experiment file says of its texts to the frozen corpus that a study reads.

Corpora lie in one store, `<runs>/corpora`, each under a name that ends in the beginning of its key. A study remembers
which one it was planned with (`corpus.json`) and reads no other: neither an upgrade of a package that local-docs reads
nor another file in a folder changes a study that has begun.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from paribus.data.config import NANOCHAT_SPECIAL_TOKENS, CorpusConfig, HubFiles, TokenizerConfig
from paribus.data.frozen import FrozenCorpus, open_frozen
from paribus.data.prepare.pinned import require_same
from paribus.data.prepare.pipeline import prepare
from paribus.data.progress import Progress, silent
from paribus.data.sources import open_source
from paribus.data.sources.known import KNOWN, known_corpus, require_last_file
from paribus.data.store import store_of
from paribus.data.tokenizer import Tokenizer
from paribus.errors import CorpusError
from paribus.experiment import spec
from paribus.preparing.declaring import Declared
from paribus.preparing.fetching import with_files, with_places
from paribus.runs.study_folder import StudyFolder


def declared_corpus(base: spec.Base, file_folder: Path) -> Declared:
    """The data branch's description of the corpus and the tokenizer that a file declares, and the corpus' name.

    Paths are relative to the file's folder. Nothing is read. Raises CorpusError for a dataset without a revision.
    """
    corpus = base.corpus
    assert corpus.task is None
    path = None if corpus.path is None else (file_folder / corpus.path).resolve()
    if corpus.hub is not None or corpus.name in KNOWN:
        declared, name = _of_the_hub(corpus, path)
    elif path is not None:
        declared, name = CorpusConfig(kind="folder", folder=path), path.name.lstrip(".") or "corpus"
    else:
        declared, name = CorpusConfig(), "local-docs"
    drops = corpus.near_duplicates == "drop" or (corpus.near_duplicates is None and declared.kind != "hub")
    of_files = {} if declared.kind == "local-docs" else _of_files(corpus)
    declared = replace(
        declared,
        near_duplicate_similarity=corpus.near_duplicate_similarity if drops else None,
        split_by=corpus.split_by,
        test_fraction=corpus.test_fraction,
        validation_fraction=corpus.validation_fraction,
        decontaminate=tuple((file_folder / path).resolve() for path in corpus.decontaminate),
        **of_files,
    )
    tokenizer = base.tokenizer
    if tokenizer.hub is None or tokenizer.revision is None:
        return Declared(declared, _tokenizer(tokenizer, file_folder), name)
    of = HubFiles(tokenizer.hub, tokenizer.revision)
    return Declared(declared, TokenizerConfig(beginning=tokenizer.beginning), name, of)


def require_texts(base: spec.Base, file_folder: Path) -> None:
    """Raise CorpusError for a declaration that cannot be read here: no such folder, tokenizer or vocabulary,
    no revision.

    What the hub has is not asked for.
    """
    declared = declared_corpus(base, file_folder)
    if declared.corpus.folder is not None:
        open_source(declared.corpus)
        require_last_file(declared.corpus)
    if declared.tokenizer.file is not None:
        Tokenizer.load(declared.tokenizer.file, declared.tokenizer.beginning)


def prepared(
    base: spec.Base, file_folder: Path, runs: Path, progress: Progress = silent, workers: int | None = None
) -> FrozenCorpus:
    """The declared corpus, downloaded and prepared where it is not yet. Raises CorpusError and StorageError."""
    store = store_of(runs)
    found = with_files(declared_corpus(base, file_folder), store, progress)
    return prepare(found.corpus, found.tokenizer, store, name=found.name, progress=progress, workers=workers)


def corpus_of(
    base: spec.Base, file_folder: Path, runs: Path, folder: StudyFolder, progress: Progress = silent
) -> FrozenCorpus:
    """The corpus of a study: the one it was planned with, or the declared one, which it is planned with from now on.

    Raises CorpusError where the file now declares another, or the files it was made of are here and have changed.
    """
    found = recorded(runs, folder)
    if found is None:
        found = prepared(base, file_folder, runs, progress)
        folder.write_corpus({"corpus": found.folder.name, "key": found.key, "digest": found.digest})
    else:
        require_declared(found, base, file_folder, runs)
    found.verify()
    loaded = base.tokenizer.path is not None or base.tokenizer.hub is not None
    if loaded and found.vocabulary_size != base.vocabulary_size:
        raise CorpusError(
            "the tokenizer has another number of tokens than the file says",
            expected=f"tokenizer.vocabulary_size = {found.vocabulary_size}",
            received=str(base.vocabulary_size),
            remedy="correct it: the embedding has a row for each token",
        )
    return found


def require_declared(found: FrozenCorpus, base: spec.Base, file_folder: Path, runs: Path) -> None:
    """Raise CorpusError where the file declares another corpus, or the files of this one are here and have changed."""
    declared = with_places(declared_corpus(base, file_folder), store_of(runs))
    require_same(found, declared.corpus, declared.tokenizer)


def recorded(runs: Path, folder: StudyFolder) -> FrozenCorpus | None:
    """The corpus that a study was planned with; None where it was planned with none yet.

    Raises CorpusError where it is gone or another one stands in its place.
    """
    link = folder.read_corpus()
    if link is None:
        return None
    found = open_frozen(store_of(runs) / link["corpus"])
    if found.digest != link["digest"]:
        raise CorpusError(
            f"{found.folder} is not the corpus that the study was planned with",
            expected=f"digest {link['digest']}",
            received=f"digest {found.digest}",
            remedy="restore the corpus from a copy, or give the study a new name",
        )
    return found


def _of_the_hub(corpus: spec.Corpus, path: Path | None) -> tuple[CorpusConfig, str]:
    if corpus.hub is None:
        assert corpus.name is not None
        name = corpus.name
        declared = known_corpus(
            name,
            revision=corpus.revision,
            limit=corpus.first_files,
            form=corpus.form,
            last_file_held_out=corpus.held_out == "last-file",
        )
    else:
        assert corpus.revision is not None
        hub = HubFiles(corpus.hub, corpus.revision, limit=corpus.first_files)
        declared, name = CorpusConfig(kind="hub", hub=hub), corpus.hub.rsplit("/", 1)[-1]
    if corpus.files is not None and declared.hub is not None:
        declared = replace(declared, hub=replace(declared.hub, files=corpus.files))
    return replace(declared, folder=path), name


def _tokenizer(tokenizer: spec.Tokenizer, file_folder: Path) -> TokenizerConfig:
    if tokenizer.path is not None:
        return TokenizerConfig(file=(file_folder / tokenizer.path).resolve(), beginning=tokenizer.beginning)
    special = NANOCHAT_SPECIAL_TOKENS if tokenizer.pre_tokenizer == "nanochat" else TokenizerConfig.special_tokens
    return TokenizerConfig(
        vocabulary_size=tokenizer.vocabulary_size,
        pre_tokenizer=tokenizer.pre_tokenizer,
        special_tokens=special,
        train_characters=tokenizer.train_characters,
        train_document_characters=tokenizer.train_document_characters,
    )


def _of_files(corpus: spec.Corpus) -> dict[str, Any]:
    found: dict[str, Any] = {
        "source_column": corpus.source_column,
        "url_column": corpus.url_column,
        "bad_documents": corpus.bad_documents,
        "held_out": corpus.held_out,
    }
    if corpus.name in KNOWN and corpus.source_column == CorpusConfig.source_column:
        del found["source_column"]  # none of them has a column of this name
    # A dataset knows its own form and column.
    given = {"form": corpus.form, "text_column": corpus.text_column}
    return found | {key: value for key, value in given.items() if value is not None}
