"""What a declaration needs from elsewhere before it can be prepared: files and tokenizers of the hub.

All of it is kept in the store, so that it is fetched once, and not at all where a folder that is named holds it.
"""

import os
import shutil
from dataclasses import replace
from pathlib import Path

from paribus.data.config import CorpusConfig, HubFiles
from paribus.data.progress import Progress, silent
from paribus.data.sources.gpt2_tokens import gpt2_vocabulary
from paribus.data.sources.hub import GPT2_COMMIT, GPT2_REPOSITORY, fetch, fetch_file
from paribus.data.sources.known import require_last_file
from paribus.data.store import hub_folder
from paribus.disk import storing
from paribus.errors import CorpusError
from paribus.preparing.declaring import Declared

_TOKENIZER = "tokenizer.json"


def with_files(declared: Declared, store: Path, progress: Progress = silent) -> Declared:
    """The declaration with the places where its files lie, after fetching what does not.

    A folder that the declaration names is used as it is, however few of the files it holds: nothing is fetched into it.
    Errors: as `paribus.data.sources.hub.fetch`, and CorpusError for a named folder without the file that is held out.
    """
    corpus = declared.corpus
    require_last_file(corpus)
    if corpus.hub is not None and corpus.folder is None:
        _fetch_corpus(corpus, corpus.hub, store, progress)
    if declared.tokenizer_of is not None:
        _fetch_tokenizer(declared.tokenizer_of, store, progress)
    return with_places(declared, store)


def with_places(declared: Declared, store: Path) -> Declared:
    """The declaration with the places where `with_files` would put what it fetches; fetches nothing."""
    corpus = declared.corpus
    if corpus.hub is not None and corpus.folder is None:
        declared = replace(declared, corpus=replace(corpus, folder=hub_folder(store, corpus.hub)))
    if declared.tokenizer_of is not None:
        file = hub_folder(store, declared.tokenizer_of) / _TOKENIZER
        declared = replace(declared, tokenizer=replace(declared.tokenizer, file=file))
    return declared


def _fetch_corpus(corpus: CorpusConfig, hub: HubFiles, store: Path, progress: Progress) -> None:
    folder = hub_folder(store, hub)
    fetch(hub, folder, last_file=corpus.held_out == "last-file", progress=progress)
    if corpus.form == "gpt2-tokens" and not _has_vocabulary(folder):
        gpt2 = _fetch_tokenizer(HubFiles(GPT2_REPOSITORY, GPT2_COMMIT), store, progress)
        with storing(folder):
            shutil.copyfile(gpt2, folder / f".{_TOKENIZER}.{os.getpid()}")
            (folder / f".{_TOKENIZER}.{os.getpid()}").replace(folder / _TOKENIZER)


def _has_vocabulary(folder: Path) -> bool:
    cache = os.environ.get("TIKTOKEN_CACHE_DIR")
    try:
        gpt2_vocabulary([folder, *([Path(cache)] if cache else [])])
    except CorpusError:
        return False
    return True


def _fetch_tokenizer(hub: HubFiles, store: Path, progress: Progress) -> Path:
    return fetch_file(hub.repository, hub.revision, _TOKENIZER, hub_folder(store, hub), progress=progress)
