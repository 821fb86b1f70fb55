"""Published corpora by name, with what must be known before one is chosen.

None comes with a revision: a branch moves, and a commit that was not looked up would be made up. Each preset therefore
asks for one and says how to find it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from paribus.data.config import CorpusConfig, Form, HubFiles
from paribus.data.sources.listing import corpus_files
from paribus.errors import CorpusError, nearest


@dataclass(frozen=True)
class KnownCorpus:
    """A dataset repository of the Hugging Face hub."""

    repository: str
    files: tuple[str, ...]
    """patterns of the files that are read"""
    columns: str
    """as far as they matter here"""
    licence: str
    """as the repository states it; read its terms before use"""
    facts: str
    form: Form = "text"
    text_column: str = "text"
    last_file: str | None = None
    """which its users take as the validation split"""


KNOWN: Mapping[str, KnownCorpus] = {
    "fineweb-edu": KnownCorpus(
        repository="HuggingFaceFW/fineweb-edu",
        files=("sample/10BT/*.parquet",),
        columns="text, id, dump, url, file_path, language, language_score, token_count, score, int_score",
        licence="ODC-By 1.0, and Common Crawl's terms of use for the texts",
        facts="Web pages that a classifier holds educational; the sample of about 10 billion GPT-2 tokens "
        "(token_count). Every page has its address, so split_by = 'host' works.",
    ),
    "climbmix": KnownCorpus(
        repository="karpathy/climbmix-400b-shuffle",
        files=("shard_*.parquet",),
        columns="text",
        licence="of nvidia/Nemotron-ClimbMix, from which it is made: CC BY-NC 4.0 (no commercial use)",
        facts="Nemotron-ClimbMix decoded to text and shuffled as a whole (seed 42): shard_00000 to shard_06542 of "
        "about 100 MB, row groups of 1,024 documents, about 86,000 documents and 43 to 47 million trained tokens a "
        "shard (vocabulary 32,768, best-fit rows of 2,048). nanochat validates on the last shard, 06542; a partial "
        "copy must hold it for that.",
        last_file="shard_06542.parquet",
    ),
    "climbmix-gpt2": KnownCorpus(
        repository="nvidia/Nemotron-ClimbMix",
        files=("climbmix_small/*.parquet",),
        columns="tokens (lists of GPT-2 token ids), token_count, cluster_id",
        licence="CC BY-NC 4.0 (no commercial use)",
        facts="The original of climbmix, stored as GPT-2 token ids. The Parquet files (100, about 40 GB) are a smaller "
        "part; the whole is JSON lines with the same key, part_*.jsonl, and is read the same way. Decoding needs "
        "GPT-2's vocabulary beside the files or in tiktoken's cache.",
        form="gpt2-tokens",
        text_column="tokens",
    ),
}


def known_corpus(
    name: str,
    *,
    revision: str | None,
    folder: Path | None = None,
    limit: int | None = None,
    form: Form | None = None,
    last_file_held_out: bool = False,
) -> CorpusConfig:
    """The declaration of a published corpus at one commit of its repository.

    `folder` holds its files already, in whole or in part; `limit` takes only the first so many.
    `last_file_held_out` makes the last file the validation split where that is the corpus' convention.
    No revision is built in. Raises CorpusError for an unknown name, without a revision that is a commit (and says how
    to find one), for another `form` than the corpus has, and where the last file is no convention of it.
    """
    known = KNOWN.get(name)
    if known is None:
        raise CorpusError(
            "no published corpus of this name is known",
            expected=", ".join(sorted(KNOWN)),
            received=repr(name),
            remedy=nearest(name, KNOWN),
        )
    if revision is None or not re.fullmatch("[0-9a-f]{40}", revision):
        raise CorpusError(
            f"{name} needs the commit of {known.repository} that the study reads",
            expected="revision = 40 hexadecimal digits, so that no later push changes the study",
            received="none" if revision is None else repr(revision),
            remedy=f"take the newest of https://huggingface.co/datasets/{known.repository}/commits/main, or what "
            f"`git ls-remote https://huggingface.co/datasets/{known.repository} main` prints",
        )
    if form is not None and form != known.form:
        raise CorpusError(
            f"{name} is of another form",
            expected=f"form '{known.form}', or none: it is known",
            received=repr(form),
            remedy="leave the form out, or name a folder or repository of files of this form",
        )
    if last_file_held_out and known.last_file is None:
        raise CorpusError(
            f"the last file of {name} is no validation split by anybody's convention",
            expected="last_file_held_out only for "
            + ", ".join(key for key, corpus in sorted(KNOWN.items()) if corpus.last_file),
            received=name,
            remedy='leave it out: held_out = "hash" holds out documents by their text',
        )
    return CorpusConfig(
        kind="hub",
        folder=folder,
        hub=HubFiles(known.repository, revision, known.files, limit),
        form=known.form,
        text_column=known.text_column,
        source_column=None,
        held_out="last-file" if last_file_held_out else "hash",
    )


def require_last_file(corpus: CorpusConfig) -> None:
    """CorpusError where the last file is to be held out of a folder that lacks the one that this corpus' users take.

    In a partial copy another file would be last, and its figures would be compared with those of the real one.
    """
    if corpus.hub is None or corpus.folder is None or corpus.held_out != "last-file":
        return
    for name, known in KNOWN.items():
        if (known.repository, known.files) != (corpus.hub.repository, corpus.hub.files) or known.last_file is None:
            continue
        _, names = corpus_files(corpus.folder, known.files)
        if names[-1].rpartition("/")[2] != known.last_file:
            raise CorpusError(
                f"the copy of {name} lacks the file that is held out",
                expected=f"{known.last_file}, which everybody validates on",
                received=f"{corpus.folder} with {names[-1]} as the last",
                remedy=f"put {known.last_file} there, hold out documents by the hash, or read the folder as one of "
                "your own, by its path alone: then its own last file is held out",
            )
