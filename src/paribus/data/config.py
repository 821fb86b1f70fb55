"""What is declared of a corpus and its tokenizer: everything that decides which tokens a study reads.

Places on a machine are no part of it, contents are: the same declaration over the same files gives the same tokens
everywhere.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from paribus.data.sources.local_docs import LOCAL_DOCS_PACKAGES
from paribus.errors import CorpusError, nearest

Kind = Literal["local-docs", "folder", "hub"]
SplitBy = Literal["document", "host", "minhash-cluster"]
Form = Literal["text", "gpt2-tokens"]
PreTokenizer = Literal["gpt2", "nanochat"]

KINDS: tuple[Kind, ...] = ("local-docs", "folder", "hub")


@dataclass(frozen=True)
class HubFiles:
    """Files of a dataset repository at one commit."""

    repository: str
    """owner/name"""
    revision: str
    """a commit: 40 hexadecimal digits, so that nobody's later push changes a study"""
    files: tuple[str, ...] = ("*.parquet",)
    """patterns of paths in the repository; sorted, all that match are read"""
    limit: int | None = None
    """only the first so many files (and the last one too where it is the held-out one)"""


@dataclass(frozen=True)
class CorpusConfig:
    """Which documents are read, which are left out, and which are held out."""

    kind: Kind = "local-docs"
    """`local-docs`: the docstrings installed on this machine. `folder`: Parquet, JSONL or text files. `hub`: a dataset
    repository of the Hugging Face hub."""
    folder: Path | None = None
    """of `folder`; of `hub`, one that already holds its files, in whole or in part"""
    hub: HubFiles | None = None
    """of `hub`: which files of which repository"""
    form: Form = "text"
    """what a Parquet row holds: text, or GPT-2 token ids that are decoded to it"""
    text_column: str = "text"
    """of Parquet, the key of a JSON line"""
    source_column: str | None = "source"
    """names the collection of a document; where it is absent or null, the file's stem does"""
    url_column: str = "url"
    """whose host `split_by = "host"` reads"""
    packages: tuple[str, ...] = LOCAL_DOCS_PACKAGES
    """What `local-docs` reads: `pydoc-topics`, `python` (the standard library) and names of installed packages."""
    minimum_characters: int = 200
    """`local-docs` documents shorter than this are dropped; other corpora keep every text that is not blank"""
    bad_documents: Literal["refuse", "skip"] = "refuse"
    """a value that is not a string, a malformed line or invalid UTF-8: an error, or counted and left out"""
    near_duplicate_similarity: float | None = 0.8
    """Jaccard similarity of word shingles from which a document repeats an earlier one; none: keep near duplicates"""
    split_by: SplitBy = "document"
    """what is kept together: equal texts, all documents of a host, or near duplicates of each other"""
    held_out: Literal["hash", "last-file"] = "hash"
    """`hash`: by a keyed hash of the text. `last-file`: the last file is the validation split, as nanochat has it, and
    the test split is taken from the others by the hash"""
    test_fraction: float = 0.04
    """share of the documents that no training and no tuning ever sees"""
    validation_fraction: float = 0.02
    """share of the documents for tuning"""
    decontaminate: tuple[Path, ...] = ()
    """evaluation sets, files or folders (JSONL, Parquet, text): training documents sharing a 13-gram are dropped"""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise CorpusError(
                "unknown kind of corpus",
                expected=", ".join(KINDS),
                received=repr(self.kind),
                remedy=nearest(str(self.kind), list(KINDS)),
            )
        if (self.kind == "folder" and self.folder is None) or (self.kind == "local-docs" and self.folder is not None):
            raise CorpusError(
                "a corpus is either the local docs or files in a folder",
                expected="a folder exactly where the kind is not 'local-docs'",
                received=f"kind {self.kind!r}, folder {self.folder}",
                remedy="name the folder, or leave it out for local-docs",
            )
        if (self.kind == "hub") != (self.hub is not None):
            raise CorpusError(
                "a corpus of the hub names a repository, and no other does",
                expected="hub exactly where kind is 'hub'",
                received=f"kind {self.kind!r}, hub {self.hub}",
                remedy="name the repository and its revision, or another kind",
            )
        held_out = self.test_fraction + self.validation_fraction
        if not (self.test_fraction >= 0 and self.validation_fraction >= 0 and held_out < 1):
            raise CorpusError(
                "the split fractions leave no training split",
                expected="test_fraction >= 0, validation_fraction >= 0, their sum < 1",
                received=f"test_fraction {self.test_fraction}, validation_fraction {self.validation_fraction}",
            )
        similarity = self.near_duplicate_similarity
        if similarity is not None and not 0.7 <= similarity <= 1:
            raise CorpusError(
                "the near-duplicate similarity is out of range",
                expected="0.7 to 1 (below, the banded index misses too many pairs), or none to keep near duplicates",
                received=str(similarity),
            )

    def as_json(self) -> dict[str, Any]:
        """The declared fields as JSON types, without places; fields that select nothing for this kind are left out."""
        of_packages = ("packages", "minimum_characters")
        of_files = ("hub", "form", "text_column", "source_column", "url_column", "bad_documents", "held_out")
        unused = {"folder", "decontaminate", *(of_files if self.kind == "local-docs" else of_packages)}
        declared = asdict(self) | {"packages": list(self.packages)}
        if self.hub is not None:
            declared["hub"] = asdict(self.hub) | {"files": list(self.hub.files)}
        return {name: value for name, value in declared.items() if name not in unused}


@dataclass(frozen=True)
class TokenizerConfig:
    """Byte-level BPE: learnt from the train split, or a file that already exists."""

    vocabulary_size: int = 2048
    """of one that is learnt: 256 bytes, the special tokens and the merges"""
    pre_tokenizer: PreTokenizer = "gpt2"
    """of one that is learnt: how text is cut before merging. `nanochat`: digits in groups of one and two"""
    special_tokens: tuple[str, ...] = ("<|bos|>",)
    """of one that is learnt: the first marks where a document begins; no text ever becomes one of them"""
    train_characters: int | None = 500_000_000
    """of one that is learnt: how many it reads; none: all"""
    train_document_characters: int | None = None
    """of one that is learnt: how many of a document it reads; none: all"""
    file: Path | None = None
    """a tokenizer.json that is used as it is"""
    beginning: str | None = None
    """of one that is loaded: the special token that marks where a document begins; none: the usual names are tried"""

    def as_json(self) -> dict[str, Any]:
        """The declared fields as JSON types, without places."""
        declared: Mapping[str, Any] = asdict(self) | {"special_tokens": list(self.special_tokens)}
        learnt = ("vocabulary_size", "pre_tokenizer", "special_tokens", "train_characters", "train_document_characters")
        unused = {"file", *(learnt if self.file is not None else ("beginning",))}
        return {name: value for name, value in declared.items() if name not in unused}


NANOCHAT_SPECIAL_TOKENS = (
    "<|bos|>",
    "<|user_start|>",
    "<|user_end|>",
    "<|assistant_start|>",
    "<|assistant_end|>",
    "<|python_start|>",
    "<|python_end|>",
    "<|output_start|>",
    "<|output_end|>",
)
"""in nanochat's order; it appends them after the merges, so the first has the id vocabulary_size - 9"""
