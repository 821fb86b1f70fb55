"""What an experiment file says of its corpus and its tokenizer."""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from paribus.data import tasks
from paribus.experiment.table import Positive, Table

_OF_FILES = ("form", "text_column", "source_column", "url_column", "bad_documents", "held_out")
_OF_THE_HUB = ("hub", "revision", "files", "first_files")
_PUBLISHED = ("fineweb-edu", "climbmix", "climbmix-gpt2")


def _is_none(value: object) -> bool:
    """Of a key that is younger than studies: where it is not given, what they wrote down stays as it was."""
    return value is None


class Corpus(Table):
    """What is read: documentation installed on this machine, files of texts, or a synthetic task."""

    name: Literal["local-docs", "fineweb-edu", "climbmix", "climbmix-gpt2"] | None = None
    """"local-docs" (the default) needs no download; the others are datasets of the Hugging Face hub and need a
    `revision`"""
    path: Annotated[Path, Field(strict=False)] | None = None
    """folder of Parquet, JSONL (plain, gz, zst) or text files; relative to the experiment file. Beside the name of a
    dataset: where its files lie already, in whole or in part"""
    hub: Annotated[str, Field(pattern=r"^[\w.-]+/[\w.-]+$")] | None = None
    """any other dataset repository of the Hugging Face hub, as owner/name"""
    revision: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")] | None = None
    """of the dataset: the commit that is read, 40 hexadecimal digits"""
    files: Annotated[tuple[str, ...], Field(strict=False, min_length=1)] | None = None
    """patterns of paths in the repository, such as "sample/10BT/*.parquet"; by default those of the dataset, or all
    Parquet files"""
    first_files: Positive | None = None
    """only so many of the files, in the order of their names; and the last one where it is held out"""
    task: str | None = None
    """a synthetic task by its name, with its knobs beside it: { task = "cross", m = 1 }; rows of context_length tokens,
    never repeated, and a vocabulary of its own"""
    knobs: dict[str, Any] = Field(default_factory=dict)
    """of the task; the keys beside `task` are gathered here"""
    form: Annotated[Literal["text", "gpt2-tokens"] | None, Field(exclude_if=_is_none)] = None
    """what a row of the files holds: a text, or the GPT-2 token ids of one, which are decoded; by default a text, and
    of a known dataset what it has"""
    text_column: str | None = None
    """where files hold the text; by default `text`, and `tokens` for token ids"""
    source_column: str = "source"
    """names the collection that a document comes from; where files have none, it is the file's name"""
    url_column: str = "url"
    """where files hold a document's address; `split_by = "host"` reads it"""
    bad_documents: Literal["refuse", "skip"] = "refuse"
    """a value that is no text, a malformed line, invalid UTF-8: an error, or left out and counted"""
    near_duplicates: Literal["drop", "keep"] | None = None
    """of an earlier document; by default dropped, but kept in datasets of the hub"""
    near_duplicate_similarity: Annotated[float, Field(ge=0.7, le=1.0)] = 0.8
    """Jaccard similarity of word shingles from which a document repeats an earlier one"""
    split_by: Literal["document", "host", "minhash-cluster"] = "document"
    """what is kept in one split: equal texts, all documents of a host, or near duplicates of each other"""
    held_out: Literal["hash", "last-file"] = "hash"
    """documents by a hash of their text, or, as nanochat has it, the last file for validation"""
    test_fraction: Annotated[float, Field(gt=0.0, lt=0.5)] = 0.04
    """share of documents for the verdict"""
    validation_fraction: Annotated[float, Field(gt=0.0, lt=0.5)] = 0.02
    """share of documents for tuning and milestones"""
    decontaminate: Annotated[tuple[Annotated[Path, Field(strict=False)], ...], Field(strict=False)] = ()
    """evaluation sets, files or folders: training documents that share 13 words in a row with one are dropped"""
    packing: Literal["stream", "best-fit"] = "stream"
    """how documents fill rows: end to end, or, as nanochat has it, every row from the beginning of a document, what
    does not fit is cropped"""
    epochs: Positive = 1
    """how often the training documents may be read"""

    @model_validator(mode="before")
    @classmethod
    def _gather_knobs(cls, table: Any) -> Any:
        """Keys beside `task` are its knobs: which there are, the task says."""
        if not isinstance(table, dict):
            return table
        if table.get("task") is None:
            _require_no_knobs(table, cls.model_fields)
            return table
        own = {key: value for key, value in table.items() if key in tasks.TAKEN}
        beside = {key: value for key, value in table.items() if key not in own}
        knobs = own.get("knobs", {})
        if not isinstance(knobs, dict):
            return own
        for twice in sorted(beside.keys() & knobs.keys()):
            raise ValueError(f"the knob '{twice}' is given twice, beside `task` and in `knobs`: keep one of them")
        return {**own, "knobs": {**knobs, **beside}}

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        given = [key for key in ("name", "hub", "path", "task") if getattr(self, key) is not None]
        if given and given[-1] == "path" and given[0] != "path" and self.name != "local-docs":
            given.remove("path")  # where the dataset's files lie already
        if len(given) > 1:
            raise ValueError(f"give either {given[0]} or {given[1]}, not both")
        of_the_hub = self.hub is not None or self.name in _PUBLISHED
        for key in _OF_THE_HUB[1:]:
            if getattr(self, key) is not None and not of_the_hub:
                raise ValueError(f"`{key}` belongs to a dataset of the hub: give its `name` or `hub` too")
        if self.hub is not None and self.revision is None:
            raise ValueError("`hub` needs `revision`, the commit that is read: 40 hexadecimal digits")
        if not of_the_hub and self.path is None:
            for key in _OF_FILES:
                if getattr(self, key) != type(self).model_fields[key].default:
                    raise ValueError(f"`{key}` is about files: give `path`, `hub` or a dataset's `name` too")
        return self


class Tokenizer(Table):
    """Byte-level BPE, learnt from the train split or loaded; a task has tokens of its own and leaves it unused."""

    vocabulary_size: Annotated[int, Field(ge=257)] = 2048
    """rows of the embedding. Of one that is learnt: 256 bytes, special tokens and merges; of one that is loaded:
    how many tokens it has, which is read from a `path` and must be said for a `hub`"""
    pre_tokenizer: Literal["gpt2", "nanochat"] = "gpt2"
    """of one that is learnt: how text is cut before merging; "nanochat" takes digits in groups of one and two, and has
    nanochat's nine special tokens"""
    train_characters: Positive = 500_000_000
    """of one that is learnt: how many it reads"""
    train_document_characters: Positive | None = None
    """of one that is learnt: how many of a document it reads; none: all"""
    path: Annotated[Path, Field(strict=False)] | None = None
    """a tokenizer.json, or a folder with GPT-2's files, that is used as it is; relative to the experiment file"""
    hub: Annotated[str, Field(pattern=r"^[\w.-]+/[\w.-]+$")] | None = None
    """a model repository of the Hugging Face hub whose tokenizer.json is used, as owner/name"""
    revision: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")] | None = None
    """of that repository: the commit, 40 hexadecimal digits"""
    beginning: str | None = None
    """of one that is loaded: the special token that marks where a document begins; none: the usual names are tried"""

    @model_validator(mode="after")
    def _learnt_or_loaded(self) -> Self:
        if self.path is not None and self.hub is not None:
            raise ValueError("give either path or hub, not both")
        if (self.hub is None) != (self.revision is None):
            raise ValueError("`hub` and `revision` go together: a repository, and the commit that is read")
        given = "path" if self.path is not None else "hub"
        if getattr(self, given) is None:
            if self.beginning is not None:
                raise ValueError("`beginning` names a token of a loaded tokenizer: give its `path` or `hub` too")
            return self
        if self.hub is not None and "vocabulary_size" not in self.model_fields_set:
            raise ValueError("`hub` needs `vocabulary_size`: how many tokens that tokenizer has")
        for key in ("pre_tokenizer", "train_characters", "train_document_characters"):
            if key in self.model_fields_set:
                raise ValueError(f"`{key}` is about a tokenizer that is learnt: leave it out, or leave out `{given}`")
        return self


def _require_no_knobs(table: dict[str, Any], known: Collection[str]) -> None:
    """ValueError where a key of a corpus without a task can only be meant as a task's knob."""
    knobs = table["knobs"] if isinstance(table.get("knobs"), dict) else {}
    for key, value in [*knobs.items(), *((key, table[key]) for key in table if key not in known)]:
        if of := tasks.with_knob(key):
            shown = json.dumps(value) if isinstance(value, (str, bool, int, float)) else "..."
            raise ValueError(
                f"`{key}` is a knob of {', '.join(of)}: name its task too, such as "
                f'{{ task = "{of[0]}", {key} = {shown} }}'
            )
