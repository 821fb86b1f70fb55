"""What a folder holds: which files are the corpus, and of which kind."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

from paribus.errors import CorpusError

FileKind = Literal["parquet", "jsonl", "text"]

_SUFFIXES: dict[str, FileKind] = {
    ".parquet": "parquet",
    ".jsonl": "jsonl",
    ".jsonl.gz": "jsonl",
    ".jsonl.zst": "jsonl",
    ".ndjson": "jsonl",
    ".ndjson.gz": "jsonl",
    ".ndjson.zst": "jsonl",
    ".json.gz": "jsonl",
    ".json.zst": "jsonl",
    ".txt": "text",
    ".md": "text",
}
_COMPANIONS = ("readme", "license", "licence", "copying", "notice", "citation", "changelog", "attribution")
"""what lies beside data and is about it"""
_SHOWN = 5


def corpus_files(folder: Path, patterns: Sequence[str] = ("*",)) -> tuple[FileKind, tuple[str, ...]]:
    """The kind of the folder's files and their names, relative and sorted; sub-folders are searched.

    Hidden names (of a downloader, of version control) and other kinds are no part of a corpus. Text files named README,
    LICENSE and the like are documents only where there are no others than text files. `patterns` select names; `*`
    also matches `/`. They are of paths in a repository: where none matches, the folder may be one within it, and then
    the folders that a pattern begins with are left out, as many as it takes. Raises CorpusError where nothing is
    found, or files of several kinds.
    """
    if not folder.is_dir():
        raise CorpusError(
            "the corpus folder does not exist",
            expected="a folder of Parquet, JSON lines or text files",
            received=str(folder),
            remedy="correct the path in the experiment file, or restore the folder",
        )
    names = sorted(_names(folder))
    by_kind: dict[FileKind, list[str]] = {}
    for name in _selected([name for name in names if _kind(name) is not None], patterns):
        kind = _kind(name)
        assert kind is not None
        by_kind.setdefault(kind, []).append(name)
    if len(by_kind) > 1 and "text" in by_kind:
        by_kind["text"] = [name for name in by_kind["text"] if not _is_companion(name)]
    found: dict[FileKind, tuple[str, ...]] = {kind: tuple(held) for kind, held in by_kind.items() if held}
    if len(found) != 1:
        selected = "" if tuple(patterns) == ("*",) else f" that match {', '.join(patterns)}"
        raise CorpusError(
            f"the corpus folder holds {'files of several kinds' if found else 'no file of a corpus'}",
            expected=f"files of one kind{selected}: " + ", ".join(f"*{suffix}" for suffix in _SUFFIXES),
            received=f"{folder} with " + _account(found, names),
            remedy="name the folder that holds the files of one kind, and nothing else of a corpus"
            + (", or other patterns (files)" if selected else ""),
        )
    return found.popitem()


def _selected(names: Sequence[str], patterns: Sequence[str]) -> list[str]:
    found = [name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)]
    for left_out in range(1, 1 + max(pattern.count("/") for pattern in patterns)):
        if found:
            break
        within = [pattern.split("/", left_out)[-1] for pattern in patterns if pattern.count("/") >= left_out]
        # Here `*` matches no `/`: files of a folder that is no part of the pattern are others.
        found = [
            name
            for name in names
            if any(name.count("/") == pattern.count("/") and fnmatchcase(name, pattern) for pattern in within)
        ]
    return found


def _names(folder: Path) -> Iterator[str]:
    def refuse(error: OSError) -> None:
        raise CorpusError(
            "a part of the corpus folder cannot be read",
            expected=f"read permission everywhere below {folder}",
            received=f"{type(error).__name__}: {error}",
        ) from error

    entered: set[Path] = set()
    # A hub's cache links to its files, and sub-folders may be links as well; one that leads back up is entered once.
    for place, below, files in os.walk(folder, onerror=refuse, followlinks=True):
        real = Path(place).resolve()
        below[:] = [] if real in entered else sorted(name for name in below if not name.startswith("."))
        if real in entered:
            continue
        entered.add(real)
        for name in files:
            if not name.startswith("."):
                yield (Path(place) / name).relative_to(folder).as_posix()


def _kind(name: str) -> FileKind | None:
    last = name.rsplit("/", 1)[-1].lower()
    return next((kind for suffix, kind in _SUFFIXES.items() if last.endswith(suffix)), None)


def _is_companion(name: str) -> bool:
    return name.rsplit("/", 1)[-1].lower().split(".", 1)[0].startswith(_COMPANIONS)


def _account(found: dict[FileKind, tuple[str, ...]], names: Sequence[str]) -> str:
    if found:
        return "; ".join(f"{len(held)} of {kind} ({', '.join(held[:_SHOWN])})" for kind, held in sorted(found.items()))
    suffixes = Counter(Path(name).suffix or "no suffix" for name in names)
    counts = ", ".join(f"{count} of {suffix}" for suffix, count in sorted(suffixes.items()))
    return f"{counts} ({', '.join(names[:_SHOWN])})" if names else "no files"
