"""A model of a file system that has lost power: what was synced is there, of the rest some.

The rules are POSIX's at their weakest. fsync of a file keeps its content, not its name; fsync of a folder keeps the
names in it, not what is in those folders. Of the changes of a folder's names that nobody synced, each may have
reached the disk or not, independently of the others, except that a rename inside a folder is one change. Of the writes
to a file that nobody synced, those up to some moment have reached the disk, the next one perhaps in part; or its
length has and its bytes have not, and zeros are read (as on XFS and on ext4 without ordered data).
"""

import os
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tests.faults.trace import Change


@dataclass(eq=False)
class File:
    content: bytes = b""
    """on the disk when the record began"""
    written: list[tuple[int, bytes | None]] = field(default_factory=list)
    """(where, what), or (size, None) where it was cut"""
    synced: int = 0
    """so many of them are surely on the disk"""

    def after(self, count: int) -> bytes:
        """With so many of its changes."""
        content = bytearray(self.content)
        for place, data in self.written[:count]:
            _apply(content, place, data)
        return bytes(content)


@dataclass(eq=False)
class Folder:
    entries: "dict[str, File | Folder]" = field(default_factory=dict)
    changed: "list[dict[str, File | Folder | None]]" = field(default_factory=list)
    """new names with what they name, and old ones with None"""
    synced: int = 0

    def now(self) -> "dict[str, File | Folder]":
        return self.where([True] * len(self.changed))

    def where(self, kept: list[bool]) -> "dict[str, File | Folder]":
        """Its names after those changes alone that are `kept`."""
        found = dict(self.entries)
        for change, keep in zip(self.changed, kept, strict=True):
            for name, node in change.items() if keep else ():
                if node is None:
                    found.pop(name, None)
                else:
                    found[name] = node
        return found

    def surely(self) -> "dict[str, File | Folder]":
        """Its names that are on the disk and were not changed since."""
        synced = self.where([number < self.synced for number in range(len(self.changed))])
        return {name: node for name, node in self.now().items() if synced.get(name) is node}


def _apply(content: bytearray, place: int, data: bytes | None) -> None:
    if data is None:
        del content[place:]
        content.extend(bytes(place - len(content)))
        return
    place = len(content) if place < 0 else place
    content.extend(bytes(max(0, place - len(content))))
    content[place : place + len(data)] = data


class Volume:
    """A folder, and what happens in it. `start` holds what was in it, where that has changed since."""

    def __init__(self, folder: Path, start: Path | None = None) -> None:
        self._path = str(folder)
        self.root = _read(start or folder)

    def find(self, path: str) -> "File | Folder | None":
        """What a path names now; None where nothing has this name."""
        node: File | Folder | None = self.root
        for part in path.removeprefix(self._path).strip("/").split("/") if path != self._path else ():
            node = node.now().get(part) if isinstance(node, Folder) else None
        return node

    def change(self, change: Change) -> None:
        node = self.find(change.path)
        if change.what == "sync":
            assert node is not None
            node.synced = len(node.written if isinstance(node, File) else node.changed)
            return
        above, name = self._place(change.path)
        match change.what:
            case "open":
                if node is None:
                    above.changed.append({name: File()})
                elif change.number:
                    _file(node).written.append((0, None))
            case "write":
                _file(node).written.append((change.number, change.data))
            case "size":
                _file(node).written.append((change.number, None))
            case "mkdir":
                above.changed.append({name: Folder()})
            case "unlink" | "rmdir":
                above.changed.append({name: None})
            case _:
                assert node is not None
                there, new = self._place(change.to)
                gone: dict[str, File | Folder | None] = {name: None} if change.what == "rename" else {}
                if there is above:
                    above.changed.append({**gone, new: node})
                else:
                    raise ValueError(f"a file changes its folder: {change}")

    def _place(self, path: str) -> tuple[Folder, str]:
        above, _, name = path.rpartition("/")
        node = self.find(above)
        assert isinstance(node, Folder), path
        return node, name

    def lose_power(self, target: Path, draw: np.random.Generator) -> None:
        """Write down what is left. In half of all cases the changes of each folder have reached the disk in order."""
        _write(self.root, target, draw, in_order=bool(draw.random() < 0.5), likely=float(draw.choice([0.2, 0.5, 0.9])))


def _file(node: File | Folder | None) -> File:
    assert isinstance(node, File)
    return node


def _read(folder: Path) -> Folder:
    entries: dict[str, File | Folder] = {}
    for path in folder.iterdir():
        entries[path.name] = _read(path) if path.is_dir() else File(path.read_bytes())
    return Folder(entries)


def _write(folder: Folder, target: Path, draw: np.random.Generator, in_order: bool, likely: float) -> None:
    target.mkdir(exist_ok=True)
    kept = [number < folder.synced or bool(draw.random() < likely) for number in range(len(folder.changed))]
    if in_order and False in kept:
        kept[kept.index(False) :] = [False] * (len(kept) - kept.index(False))
    for name, node in folder.where(kept).items():
        if isinstance(node, Folder):
            _write(node, target / name, draw, in_order, likely)
        elif not os.path.lexists(target / name):
            (target / name).write_bytes(_left_of(node, draw))


def _left_of(file: File, draw: np.random.Generator) -> bytes:
    count = int(draw.integers(file.synced, len(file.written) + 1))
    content = bytearray(file.after(count))
    if count < len(file.written) and draw.random() < 0.5:
        place, data = file.written[count]
        _apply(content, place, data if data is None else data[: int(draw.integers(len(data) + 1))])
    if count < len(file.written) and draw.random() < 0.25:
        content.extend(bytes(max(0, len(file.after(len(file.written))) - len(content))))
    return bytes(content)
