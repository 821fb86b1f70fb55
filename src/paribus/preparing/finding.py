"""Which prepared corpus a declaration or a folder of files means, without preparing anything."""

from pathlib import Path

from paribus.data.digests import REMEMBERED, RememberedDigests
from paribus.data.frozen import MANIFEST, open_frozen
from paribus.data.prepare import key
from paribus.data.sources import open_source
from paribus.data.sources.listing import corpus_files
from paribus.data.store import store_of, told_apart
from paribus.errors import CorpusError, ParibusError
from paribus.preparing.declaring import Declared
from paribus.preparing.fetching import with_places


def prepared_as(declared: Declared, runs: Path, command: str) -> Path:
    """The folder of the corpus that `prepare` would make of the declaration. CorpusError where it is not there.

    Reads every source file once, unless its digest is remembered. `command` prepares it.
    """
    store = store_of(runs)
    missing = CorpusError(
        "this corpus is not prepared yet",
        expected=f"{declared.name}-... in {store}",
        received="another declaration, other files, or nothing",
        remedy=f"prepare it: `{command}`",
    )
    if not store.is_dir():
        raise missing
    declared = with_places(declared, store)
    corpus, tokenizer = declared.corpus, declared.tokenizer
    loaded = key.loaded_tokenizer(tokenizer)
    with RememberedDigests(store / REMEMBERED) as digests:
        files = open_source(corpus, digest_of=digests.of).files()
        evaluation = key.evaluation_files(corpus.decontaminate, digests)
    found = key.key_of(corpus, key.declared_tokenizer(tokenizer, loaded), files, evaluation)
    folder = store / f"{declared.name}-{found[: key.KEY_DIGITS]}"
    if not (folder / MANIFEST).exists():
        raise missing
    return folder


def prepared_from(folder: Path, runs: Path, command: str) -> Path:
    """The one prepared corpus that was made of exactly the files of this folder, whatever else was declared.

    Compares names and sizes first, then digests. CorpusError where there is none, or more than one.
    """
    store = store_of(runs)
    _, names = corpus_files(folder)
    sizes = {name: (folder / name).stat().st_size for name in names}
    found = []
    for manifest in sorted(store.glob(f"*/{MANIFEST}")):
        try:
            frozen = open_frozen(manifest.parent)
        except ParibusError:
            continue  # what another version wrote, or what is damaged, cannot be shown either
        files = {file.name: file.bytes for file in frozen.source_files}
        # A corpus of some of the files is another one, but a limit or a pattern may have chosen them.
        if files and files.items() <= sizes.items():
            with RememberedDigests(store / REMEMBERED) as digests:
                if all(digests.of(folder / file.name) == file.digest for file in frozen.source_files):
                    found.append(manifest.parent)
    if len(found) == 1:
        return found[0]
    if found:
        raise CorpusError(
            f"several corpora were prepared from the files of {folder}",
            expected="the name of one",
            received="; ".join(told_apart(found)),
            remedy="name one of them in the place of the folder",
        )
    raise CorpusError(
        f"no corpus was prepared from the files of {folder}",
        expected=f"one in {store}",
        received=f"{len(names)} files that none was made of",
        remedy=f"prepare it: `{command}`",
    )
