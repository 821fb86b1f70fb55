"""`paribus move`: a study into another folder of run folders, on this disk or on another one.

Every file is copied aside, forced onto the disk, read again and compared by its digest; the copy is renamed into place
as a whole; and only then the source is put aside and deleted. At every moment the source or the target is whole. What
was killed is gone on with by the same command: files that were copied are compared, not copied again.

A study finds its corpus by name in the store beside it, `<runs>/corpora`, so that the corpus is copied along where the
new store lacks it. It stays in the old store too, where other studies may read it.
"""

import hashlib
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from paribus.data.frozen import open_frozen
from paribus.data.progress import Advance, Progress, silent
from paribus.data.store import store_of
from paribus.disk import flush, require_space
from paribus.errors import CorpusError, StudyFolderError
from paribus.keeping.leases import require_free
from paribus.keeping.places import COPYING, LEAVING, corpus_of, files_below, size_of
from paribus.runs.records import explaining_storage
from paribus.runs.study_folder import StudyFolder
from paribus.runs.verifying import trained_folders

BESIDE = ("+tuning", "+calibration")
"""behind a study's name: studies that it reads, in folders of their own"""
_CHUNK_BYTES = 1 << 22
_Listing = dict[str, tuple[int, int]]
"""(bytes, time of change in ns) of every file, by its place below a folder"""


@dataclass(frozen=True)
class Moved:
    """What a move did."""

    target: Path
    files: int
    bytes: int
    corpus: Path | None
    """the copy of the study's corpus that was made; None where none was to be made"""
    kept: bool
    """whether the source is still there"""
    notes: tuple[str, ...] = ()
    """what is left to do"""


def move(
    study: Path,
    runs: Path,
    *,
    keep: bool = False,
    progress: Progress = silent,
    say: Callable[[str], None] = lambda _: None,
) -> Moved:
    """Move a study's folder into `runs`, under its own name; with `keep` the source stays.

    StudyFolderError where it is no study, somebody holds a cell, it changes meanwhile, or another folder is in the
    target's place; StorageError where the disk has no room or refuses.
    """
    source = study.resolve()
    target, leaving = runs / source.name, source.with_name(f".{source.name}{LEAVING}")
    if not source.exists() and leaving.is_dir() and (target / "study.json").exists():
        _remove(leaving)  # an earlier move ended but for this
        return Moved(target, len(_listed(target)), size_of(target), None, kept=False)
    _require_movable(source, runs)
    require_free(trained_folders(source), f"{study} cannot be moved", say)
    corpus, notes = _copy_corpus(source, runs, progress)
    before = _listed(source)
    if target.exists():
        _require_same(source, target, before)
    else:
        require_space(runs, _missing(source, _aside(target)), f"a copy of {source.name}")
        _copy(source, target, before, progress)
    if not keep:
        _require_unchanged(source, target, before)
        with explaining_storage(source):
            source.rename(leaving)
            flush(leaving.parent)
        _remove(leaving)
    total = sum(size for size, _ in before.values())
    return Moved(target, len(before), total, corpus, keep, (*notes, *_beside(source, runs)))


def _require_movable(source: Path, runs: Path) -> None:
    if not (source / "study.json").exists():
        raise StudyFolderError(
            f"{source} is not the run folder of a study",
            expected="a folder with study.json",
            received="a folder without one" if source.is_dir() else "no such folder",
            remedy="name the folder that `paribus run` wrote: runs/<study>",
        )
    place = runs.resolve()
    if place in (source.parent, source) or source in place.parents:
        raise StudyFolderError(
            f"{source.name} cannot be moved there",
            expected="another folder of run folders",
            received="the one that it is in" if place == source.parent else "a folder inside itself",
            remedy="name the folder that the study's own is to lie in: paribus move runs/<study> OTHER_RUNS",
        )
    links = [path for path, _ in files_below(source) if path.is_symlink() or not path.is_file()]
    if links:
        raise StudyFolderError(
            f"{source.name} cannot be copied file by file",
            expected="files and folders",
            received=f"{links[0].relative_to(source)}, a link or no ordinary file",
            remedy="put what it points to in its place, or move the study with another tool and run `paribus doctor`",
        )


def _copy_corpus(source: Path, runs: Path, progress: Progress) -> tuple[Path | None, list[str]]:
    """(the copy that was made of the study's corpus, what is left to do about it)"""
    place = corpus_of(source)
    link = None if place is None else StudyFolder(source).read_corpus()
    if place is None or link is None:
        return None, []
    target = store_of(runs) / place.name
    try:
        if target.exists():
            if open_frozen(target).digest == link["digest"]:
                return None, []
            raise StudyFolderError(
                f"another corpus lies at {target}",
                expected=f"digest {link['digest']}, which {source.name} was planned with",
                received=f"digest {open_frozen(target).digest}",
                remedy="choose another folder",
            )
        open_frozen(place)
    except CorpusError as error:
        return None, [
            f"the corpus {place.name} could not be copied ({error.what}): before the study is gone on with, put it "
            f"into {target.parent}, or prepare it again with `paribus data prepare FILE --runs {runs}`"
        ]
    require_space(runs, _missing(place, _aside(target)), f"a copy of the corpus {place.name}")
    _copy(place, target, _listed(place), progress)
    return target, []


def _copy(source: Path, target: Path, listing: _Listing, progress: Progress) -> None:
    """Copy aside, verify, and rename into place; only where the source has not changed meanwhile."""
    aside = _aside(target)
    total, done = sum(size for size, _ in listing.values()), 0
    phase = f"copy {source.name}"
    with explaining_storage(target):
        aside.mkdir(parents=True, exist_ok=True)
        for name in sorted(_listed(aside).keys() - listing.keys()):
            (aside / name).unlink()  # of a source that has changed since an earlier attempt
        progress(Advance(phase, 0, max(total, 1)))
        for name, (size, _) in sorted(listing.items()):
            _copy_file(source / name, aside / name)
            done += size
            progress(Advance(phase, min(done, total), max(total, 1)))
        folders = sorted(path for path in source.rglob("*") if path.is_dir())
        for folder in folders:
            (aside / folder.relative_to(source)).mkdir(parents=True, exist_ok=True)
        for folder in [*(aside / folder.relative_to(source) for folder in folders), aside]:
            flush(folder)
        _require_unchanged(source, aside, listing)
        aside.rename(target)
        flush(target.parent)


def _copy_file(source: Path, target: Path) -> None:
    """One file with its times; what is there already is compared instead."""
    wanted = _digest(source)
    if not (target.is_file() and target.stat().st_size == source.stat().st_size and _digest(target) == wanted):
        target.parent.mkdir(parents=True, exist_ok=True)
        with source.open("rb") as read, target.open("wb") as written:
            shutil.copyfileobj(read, written, _CHUNK_BYTES)
            written.flush()
            os.fsync(written.fileno())
            with_cache = getattr(os, "posix_fadvise", None)
            if with_cache is not None:  # read from the disk what is compared, where the system can be asked to
                with_cache(written.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        if _digest(target) != wanted:
            raise StudyFolderError(
                f"the copy of {source} is not like it",
                expected=f"digest {wanted}",
                received=f"digest {_digest(target)} at {target}",
                remedy="nothing was moved. Either the file was written meanwhile, or a disk does not keep what it is "
                "given: run the same command again, and see to the disk where it persists",
            )
    shutil.copystat(source, target)


def _require_same(source: Path, target: Path, listing: _Listing) -> None:
    """An earlier move may have ended but for the source. StudyFolderError where the target is anything else."""
    there = _listed(target)
    differing = sorted({name for name in listing.keys() | there.keys() if not _alike(name, listing, there)})
    differing = differing or [name for name in sorted(listing) if _digest(source / name) != _digest(target / name)]
    if differing:
        raise StudyFolderError(
            f"{target} is there already",
            expected="nothing in that place, or an exact copy, which an earlier move has left",
            received=f"a folder that differs in {differing[0]}"
            + (f" and {len(differing) - 1} more" * (len(differing) > 1)),
            remedy="choose another folder, or move that one away; nothing was changed",
        )


def _alike(name: str, one: _Listing, other: _Listing) -> bool:
    return name in one and name in other and one[name][0] == other[name][0]


def _require_unchanged(source: Path, copy: Path, listing: _Listing) -> None:
    now = _listed(source)
    changed = sorted(name for name in now.keys() | listing.keys() if now.get(name) != listing.get(name))
    if changed:
        raise StudyFolderError(
            f"{source} was changed while it was copied",
            expected="a study that nobody works on",
            received=f"another {changed[0]}" + (f" and {len(changed) - 1} more files" if len(changed) > 1 else ""),
            remedy="the source is whole and stays; stop its workers and run the same command again (the copy of "
            f"before is {copy}; where that does not begin with a dot, delete it first)",
        )


def _remove(leaving: Path) -> None:
    with explaining_storage(leaving):
        shutil.rmtree(leaving)
        flush(leaving.parent)


def _beside(source: Path, runs: Path) -> list[str]:
    """Studies that the moved one reads and that lie where it did."""
    others = [source.with_name(source.name + suffix) for suffix in BESIDE]
    return [f"{other} belongs to it: paribus move {other} {runs}" for other in others if other.is_dir()]


def _aside(target: Path) -> Path:
    return target.with_name(f".{target.name}{COPYING}")


def _missing(source: Path, aside: Path) -> int:
    """Bytes that are still to be copied."""
    there = _listed(aside) if aside.is_dir() else {}
    listing = _listed(source)
    return sum(size for name, (size, _) in listing.items() if there.get(name, (-1, 0))[0] != size)


def _listed(folder: Path) -> _Listing:
    found: _Listing = {}
    for path, size in files_below(folder):
        found[path.relative_to(folder).as_posix()] = size, path.lstat().st_mtime_ns
    return found


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
