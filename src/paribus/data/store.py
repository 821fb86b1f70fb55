"""Where prepared corpora lie, what they occupy, which studies use them, and how those that none uses go.

<runs>/corpora/<name>-<12 digits>/              a prepared corpus
<runs>/corpora/.<name>-<12 digits>.partial/     one whose preparation has not ended
<runs>/corpora/hub/<repository>-<12 digits>/    files fetched from the hub, of one commit
<runs>/<study>/corpus.json                      which corpus a study reads

Reads names and JSON alone: a list of corpora needs no table, and a corpus that a later version wrote is listed too.
"""

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from filelock import FileLock, Timeout

from paribus.data.config import HubFiles
from paribus.errors import CorpusError, StorageError, nearest

CORPORA = "corpora"
HUB = "hub"
USED_BY = "corpus.json"
"""in a study's run folder: {"corpus": name of a folder in the store, "digest": ...}"""
Kind = Literal["corpus", "partial", "files", "rest"]
"""prepared; half prepared; fetched from the hub; what a deletion that was killed has left"""
_MANIFEST = "manifest.json"
_PARTIAL, _LEAVING = ".partial", ".deleted"
_HUB_LISTING, _HUB_LOCK = ".paribus-hub.json", ".paribus-hub.lock"
_COMMIT_DIGITS = 12
_DIGEST_DIGITS = 12
_OF_TOKENIZER = ("digest", "vocabulary_size", "pre_tokenizer")
"""what a tokenizer that is loaded or learnt is known by"""


@dataclass(frozen=True)
class Stored:
    """One folder of the store."""

    kind: Kind
    path: Path
    bytes: int
    """of all its files"""
    changed: float
    """when it was prepared; of what is not, when something in it last changed. Seconds since 1970"""
    documents: int = 0
    tokens: int = 0
    """without special tokens"""
    digest: str = ""
    """of a prepared corpus, as its manifest has it"""
    made_of: str = ""
    """of a prepared corpus, and of fetched files: the repository and commit on the hub; empty for others"""
    studies: tuple[str, ...] = ()
    """run folders that read it, relative to the folder of run folders"""
    held: bool = False
    """a process is writing it now"""
    note: str = ""
    """what is wrong with it"""

    @property
    def name(self) -> str:
        """What it is called in a list and in gc: of a half-prepared corpus, what it will be called."""
        if self.kind == "files":
            return f"{HUB}/{self.path.name}"
        return self.path.name.removeprefix(".").removesuffix(_PARTIAL) if self.kind == "partial" else self.path.name


@dataclass(frozen=True)
class Kept:
    """What a deletion would leave, and why."""

    stored: Stored
    why: str


@dataclass(frozen=True)
class Cleaning:
    """What may go, and what stays."""

    going: tuple[Stored, ...]
    kept: tuple[Kept, ...]

    @property
    def bytes(self) -> int:
        """That come free."""
        return sum(stored.bytes for stored in self.going)


def store_of(runs: Path) -> Path:
    """The folder of prepared corpora beside the run folders."""
    return runs / CORPORA


def hub_folder(store: Path, hub: HubFiles) -> Path:
    """Where files of this repository and commit are fetched to."""
    return store / HUB / f"{hub.repository.replace('/', '--')}-{hub.revision[:_COMMIT_DIGITS]}"


def stored(runs: Path) -> tuple[Stored, ...]:
    """All that lies in the store, prepared corpora first, by name. StorageError where it cannot be read."""
    store = store_of(runs)
    users, _ = _users(runs)
    try:
        found = [_stored(path, users) for path in _folders(store)]
        found += [_fetched(path) for path in _folders(store / HUB)]
    except OSError as error:
        raise _refused("could not be read", store, error) from error
    order = ("corpus", "partial", "files", "rest")
    return tuple(
        sorted((each for each in found if each is not None), key=lambda each: (order.index(each.kind), each.name))
    )


def find_prepared(runs: Path, name: str) -> Path:
    """The folder of a prepared corpus, by the folder's name, by all of it before the digits, or by any beginning.

    CorpusError where there is none of this name, or several.
    """
    corpora = {path.name: path for path in _folders(store_of(runs)) if (path / _MANIFEST).exists()}
    if name in corpora:
        return corpora[name]
    found = [path for own, path in sorted(corpora.items()) if own.rpartition("-")[0] == name]
    found = found or [path for own, path in sorted(corpora.items()) if name and own.startswith(name)]
    if len(found) == 1:
        return found[0]
    if found:
        raise CorpusError(
            f"several prepared corpora are called {name}",
            expected="one of " + "; ".join(told_apart(found)),
            received=name,
            remedy="name one with its digits",
        )
    raise CorpusError(
        "no prepared corpus of this name",
        expected=f"a folder of {store_of(runs)}",
        received=name,
        remedy=f"prepare it: `paribus data prepare`; {nearest(name, corpora)}" if corpora else "prepare it first",
    )


def told_apart(folders: Sequence[Path]) -> list[str]:
    """The names of prepared corpora, each with what was declared of it and not of all of them."""
    declared = {path.name: _declared(path) for path in folders}
    keys = sorted({key for each in declared.values() for key in each})
    different = [key for key in keys if len({each.get(key) for each in declared.values()}) > 1]
    found = []
    for name, each in declared.items():
        said = [f"{key} {each[key]}" for key in different if key in each]
        found.append(f"{name} ({', '.join(said) or 'declared as the others, of other files'})")
    return found


def plan_cleaning(runs: Path, names: Sequence[str] = ()) -> Cleaning:
    """What no study needs: unused corpora, preparations that were stopped, and files that only those were made of.

    With `names`, of these alone. Changes nothing. CorpusError for a name that is not in the store.
    """
    everything = stored(runs)
    _, doubts = _users(runs)
    known = {each.name: each for each in everything}
    for name in names:
        if name not in known:
            raise CorpusError(
                "nothing of this name is in the store",
                expected="a name that `paribus data list` shows",
                received=name,
                remedy=nearest(name, known),
            )
    going, kept = [], []
    for each in everything:
        why = _why_kept(each, everything, doubts)
        if names and each.name not in names:
            continue
        if why:
            kept.append(Kept(each, why))
        else:
            going.append(each)
    return Cleaning(tuple(going), tuple(kept))


def clean(runs: Path, names: Sequence[str] = ()) -> Cleaning:
    """Delete what `plan_cleaning` says; what came into use since then is kept. StorageError where the disk refuses."""
    going, kept = [], []
    for each in (plan := plan_cleaning(runs, names)).going:
        try:
            with _alone(each) as alone:
                # A study may have begun to read it, or another process to write it.
                if alone and not _came_into_use(runs, each):
                    _delete(each.path)
                    going.append(each)
                else:
                    kept.append(Kept(each, "it has just come into use"))
        except OSError as error:
            raise _refused("could not be deleted", each.path, error) from error
    return Cleaning(tuple(going), (*plan.kept, *kept))


def _came_into_use(runs: Path, each: Stored) -> bool:
    """Whether it is needed now, or gone; asked by the one who holds its lock."""
    everything = stored(runs)
    _, doubts = _users(runs)
    now = next((found for found in everything if found.path == each.path), None)
    return now is None or _why_kept(replace(now, held=False), everything, doubts) != ""


def _why_kept(each: Stored, everything: Sequence[Stored], doubts: Sequence[str]) -> str:
    needed = {other.made_of for other in everything if other.kind == "corpus" and other.studies}
    if each.held:
        return "a process is writing it"
    if each.studies:
        return "used by " + ", ".join(each.studies)
    if each.kind == "files" and each.made_of in needed:
        return "a corpus that a study uses was made of it"
    if each.kind in ("corpus", "files") and doubts:
        return f"a study may use it: {doubts[0]} cannot be read"
    return ""


def _users(runs: Path) -> tuple[Mapping[str, tuple[str, ...]], tuple[str, ...]]:
    """Studies by the folder name of the corpus they read, and records that cannot be read.

    Run folders lie below `runs`, those of a set one level deeper.
    """
    users: dict[str, tuple[str, ...]] = {}
    doubts = []
    for path in sorted([*runs.glob(f"*/{USED_BY}"), *runs.glob(f"*/*/{USED_BY}")]):
        if path.is_relative_to(store_of(runs)):
            continue
        try:
            name = json.loads(path.read_bytes())["corpus"]
        except (OSError, ValueError, KeyError, TypeError):
            name = None
        if isinstance(name, str) and name:
            users[name] = (*users.get(name, ()), path.parent.relative_to(runs).as_posix())
        else:
            doubts.append(str(path))
    return users, tuple(doubts)


def _folders(place: Path) -> list[Path]:
    return sorted(path for path in place.iterdir() if path.is_dir()) if place.is_dir() else []


def _stored(path: Path, users: Mapping[str, tuple[str, ...]]) -> Stored | None:
    name = path.name
    if name.startswith("."):
        if name.endswith(_PARTIAL):
            held = _is_held(path.with_name(f"{name.removesuffix(_PARTIAL)}.lock"))
            return Stored("partial", path, *_extent(path), held=held, studies=users.get(name[1 : -len(_PARTIAL)], ()))
        return Stored("rest", path, *_extent(path)) if name.endswith(_LEAVING) else None
    manifest = path / _MANIFEST
    if name == HUB or not manifest.exists():
        return None
    size, _ = _extent(path)
    about = {"changed": manifest.stat().st_mtime, "studies": users.get(name, ()), "held": _is_held(_lock_of(path))}
    try:
        content = json.loads(manifest.read_bytes())
        counts = content["counts"].values()
        hub = content["config"].get("hub")
        return Stored(
            "corpus",
            path,
            size,
            **about,
            documents=sum(int(count["documents"]) for count in counts),
            tokens=sum(int(count["tokens"]) for count in counts),
            digest=str(content["digest"]),
            made_of=_origin(hub) if hub else "",
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return Stored("corpus", path, size, **about, note=f"its manifest cannot be read ({type(error).__name__})")


def _fetched(path: Path) -> Stored | None:
    size, changed = _extent(path)
    held = _is_held(path / _HUB_LOCK)
    if path.name.endswith(_LEAVING):
        return Stored("rest", path, size, changed)
    try:
        origin, note = _origin(json.loads((path / _HUB_LISTING).read_bytes())), ""
    except (OSError, ValueError, KeyError, TypeError):
        origin, note = "", "no listing of a repository lies in it"
    return Stored("files", path, size, changed, made_of=origin, held=held, note=note)


def _declared(path: Path) -> dict[str, str]:
    """The declaration in a manifest, flat and as text; empty where it cannot be read."""
    try:
        content = json.loads((path / _MANIFEST).read_bytes())
        of_tokenizer = {f"tokenizer {key}": content["tokenizer_config"].get(key) for key in _OF_TOKENIZER}
        found = {**content["config"], **of_tokenizer, "evaluation files": len(content["evaluation_files"])}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
    said = {key.replace("_", " "): value for key, value in found.items() if value is not None}
    return {
        key: value[:_DIGEST_DIGITS] if key == "tokenizer digest" else json.dumps(value) for key, value in said.items()
    }


def _origin(about: Mapping[str, Any]) -> str:
    return f"{about['repository']} at {about['revision'][:_COMMIT_DIGITS]}"


def _extent(path: Path) -> tuple[int, float]:
    """Bytes of all files below, and when one last changed; what vanishes meanwhile is left out."""
    size, changed = 0, 0.0
    for place, _, files in os.walk(path):
        for name in files:
            try:
                found = (Path(place) / name).stat(follow_symlinks=False)
            except OSError:
                continue
            size += found.st_size
            changed = max(changed, found.st_mtime)
    return size, changed or path.stat().st_mtime


def _lock_of(path: Path) -> Path:
    return path.with_name(f".{path.name.removeprefix('.').removesuffix(_PARTIAL)}.lock")


def _is_held(lock: Path) -> bool:
    if not lock.exists():
        return False
    try:
        with FileLock(lock, timeout=0):
            return False
    except (Timeout, OSError):
        # Where it cannot be asked for, somebody else may have it.
        return True


@contextmanager
def _alone(each: Stored) -> Iterator[bool]:
    """Whether nobody writes it, for as long as the context lasts."""
    if each.kind == "rest" or (each.kind == "files" and not (each.path / _HUB_LOCK).exists()):
        yield True
        return
    lock = FileLock(each.path / _HUB_LOCK if each.kind == "files" else _lock_of(each.path), timeout=0)
    try:
        lock.acquire()
    except Timeout:
        yield False
        return
    try:
        yield True
    finally:
        lock.release()


def _delete(path: Path) -> None:
    """Under another name first: no moment shows a folder that looks whole and is not."""
    leaving = path if path.name.endswith(_LEAVING) else path.with_name(f".{path.name.removeprefix('.')}{_LEAVING}")
    if leaving != path:
        if leaving.exists():
            shutil.rmtree(leaving)
        path.rename(leaving)
    shutil.rmtree(leaving)


def _refused(what: str, path: Path, error: OSError) -> StorageError:
    return StorageError(
        f"{path} {what}",
        received=f"{type(error).__name__}: {error}",
        remedy="correct its permissions, then run the same command again",
    )
