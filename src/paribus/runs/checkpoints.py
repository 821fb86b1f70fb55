"""Checkpoints of a cell: folders of files whose marker vouches for each of them.

checkpoints/step-<number>/<files>   COMPLETE: a JSON record of the step, the cell, and the size and digest of each file

All files and then the marker are written aside and fsynced, and the folder is renamed into place: it is whole or not
there. A marker of an earlier version is empty: such a checkpoint is read as it is, and nothing vouches for it.
"""

import hashlib
import re
import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from paribus.disk import flush, make_folder
from paribus.errors import StudyFolderError
from paribus.runs import layout
from paribus.runs.records import Fence, explaining_storage, name_aside, sealed, unsealed, write_flushed

GROUP = "checkpoints"
MARKER = "COMPLETE"
KEPT = 2
FORMAT = 2
NAME = re.compile(r"step-(\d{8,})")


@dataclass(frozen=True)
class Checkpoint:
    """The folder of one checkpoint whose marker is there."""

    path: Path

    @property
    def step(self) -> int:
        return int(self.path.name.removeprefix("step-"))

    @property
    def checked(self) -> bool:
        """Whether it was written with digests; False of an earlier version's."""
        return (self.path / MARKER).stat().st_size > 0

    def read(self) -> dict[str, bytes]:
        """Its files by name, each read once and as the marker says. StudyFolderError where it is damaged."""
        files: dict[str, bytes] = {}
        try:
            marker = self._marker()
            names = self._present() if marker is None else sorted(marker.files)
            files = {name: (self.path / name).read_bytes() for name in names}
            wrong = self._wrong(marker, {name: (len(c), _digest(c)) for name, c in files.items()}, files)
        except (OSError, ValueError) as error:
            wrong = str(error)
        if wrong:
            raise StudyFolderError(
                f"checkpoint {self.path} is damaged",
                expected="every file as its marker says",
                received=wrong,
                remedy="`paribus run` goes on from an earlier checkpoint, or trains the cell anew; of a finished cell, "
                "restore the checkpoint from a copy, or delete the cell's folder to train it anew",
            )
        return files

    def damage(self) -> str:
        """What is wrong with it, in words; empty where all is well. Big files are read piece by piece."""
        try:
            marker = self._marker()
            if marker is None:
                small = {n: (self.path / n).read_bytes() for n in self._present() if n.endswith(".json")}
                return self._wrong(None, {}, small)
            return self._wrong(marker, {name: self._stated(name) for name in sorted(marker.files)}, {})
        except (OSError, ValueError) as error:
            return str(error)

    def foreign_files(self) -> list[str]:
        """What lies in the folder and is not of this checkpoint, as far as the marker knows."""
        try:
            marker = self._marker()
        except (OSError, ValueError):
            return []
        return [] if marker is None else sorted(set(self._present()) - marker.files.keys())

    def _present(self) -> list[str]:
        return sorted(entry.name for entry in self.path.iterdir() if entry.name != MARKER)

    def _stated(self, name: str) -> tuple[int, str]:
        with (self.path / name).open("rb") as file:
            digest = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
            return file.tell(), digest

    def _marker(self) -> layout.Marker | None:
        """None of an earlier version. ValueError where it is not as it was written, or another checkpoint's."""
        content = (self.path / MARKER).read_bytes()
        if not content:
            return None
        found, checked = unsealed(content)
        wrong = layout.fault(layout.Marker, found) if checked else "without its checksum"
        if wrong:
            raise ValueError(f"{MARKER} is not as it was written ({wrong})")
        marker = layout.Marker.model_validate(found)
        if (marker.step, marker.cell) != (self.step, _cell_of(self.path)):
            raise ValueError(f"{MARKER} is that of step {marker.step} of {marker.cell}")
        return marker

    @staticmethod
    def _wrong(marker: layout.Marker | None, found: Mapping[str, tuple[int, str]], files: Mapping[str, bytes]) -> str:
        if marker is None:
            # The records inside tell a marker that was emptied from one that always was.
            emptied = any(unsealed(content)[1] for name, content in files.items() if name.endswith(".json"))
            return f"{MARKER} was emptied" if emptied else ""
        for name, stated in marker.files.items():
            size, digest = found[name]
            if size != stated.bytes:
                return f"{name} has {size:,} bytes of {stated.bytes:,}"
            if digest != stated.digest:
                return f"{name} was changed after it was written"
        return ""


def present(cell: Path) -> list[Checkpoint]:
    """Checkpoints of a cell whose marker was written, by step."""
    markers = (cell / GROUP).glob(f"step-*/{MARKER}")
    found = [Checkpoint(marker.parent) for marker in markers if NAME.fullmatch(marker.parent.name)]
    return sorted(found, key=lambda checkpoint: checkpoint.step)


def write(
    cell: Path, step: int, files: Mapping[str, bytes], kept: Collection[int] = (), fence: Fence | None = None
) -> None:
    """A checkpoint, after which the last KEPT up to its step stay, and those of the steps `kept`.

    Those of later steps go: training has come back to before them, because they could not be used. A write that
    fails leaves every checkpoint as it was.
    """
    final = write_alone(cell / GROUP, step, files, fence)
    with explaining_storage(final):
        removable = [c for c in present(cell) if c.step not in kept]
        earlier = [c for c in removable if c.step <= step]
        _remove([*earlier[:-KEPT], *removable[len(earlier) :]])


def _remove(checkpoints: Sequence[Checkpoint]) -> None:
    """Each loses its name first, durably: one that was removed in part would be taken for a damaged one."""
    gone = [checkpoint.path.with_name(name_aside(checkpoint.path.name)) for checkpoint in checkpoints]
    for checkpoint, aside in zip(checkpoints, gone, strict=True):
        checkpoint.path.rename(aside)
    if gone:
        flush(gone[0].parent)
    for aside in gone:
        shutil.rmtree(aside)


def write_alone(group: Path, step: int, files: Mapping[str, bytes], fence: Fence | None = None) -> Path:
    """A checkpoint below any folder of a cell; no other one is touched. Its folder."""
    final = group / f"step-{step:08d}"
    aside, before = group / name_aside(final.name), group / name_aside(final.name)
    with explaining_storage(final):
        try:
            make_folder(group)
            aside.mkdir()
            for name, content in files.items():
                write_flushed(aside / name, content)
            stated = {name: {"bytes": len(c), "digest": _digest(c)} for name, c in files.items()}
            marker = {"format": FORMAT, "step": step, "cell": _cell_of(final), "files": stated}
            write_flushed(aside / MARKER, sealed(marker))
            flush(aside)
            if fence is not None:
                fence()
            if final.exists():
                final.rename(before)
            aside.rename(final)
        except OSError:
            if fence is not None:
                fence()  # the successor may have removed what was written aside: that is no trouble of the disk
            raise
        finally:
            shutil.rmtree(aside, ignore_errors=True)
        flush(group)
        shutil.rmtree(before, ignore_errors=True)
    return final


def _cell_of(checkpoint: Path) -> str:
    return checkpoint.parents[1].resolve().name


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()
