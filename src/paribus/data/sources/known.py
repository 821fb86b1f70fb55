"""Published corpora by name, with what must be known before one is chosen.

None comes with a revision: a branch moves, and a commit that was not looked up would be made up. Each preset therefore
asks for one and says how to find it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from paribus.data.config import CorpusConfig, Form, HubFiles
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
    last_file_held_out: bool = False
    """whether its users take the last file as the validation split"""


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
        last_file_held_out=True,
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
    last_file_held_out: bool = False,
) -> CorpusConfig:
    """The declaration of a published corpus at one commit of its repository.

    `folder` holds its files already, in whole or in part; `limit` takes only the first so many.
    `last_file_held_out` makes the last file the validation split where that is the corpus' convention.
    No revision is built in. Raises CorpusError for an unknown name, without a revision that is a commit (and says how
    to find one), and where the last file is no convention of the corpus.
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
    if last_file_held_out and not known.last_file_held_out:
        raise CorpusError(
            f"the last file of {name} is no validation split by anybody's convention",
            expected="last_file_held_out only for "
            + ", ".join(key for key, corpus in sorted(KNOWN.items()) if corpus.last_file_held_out),
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
