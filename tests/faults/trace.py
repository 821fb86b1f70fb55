"""The system calls with which a program changes files, recorded with strace and read back as a list of changes.

Every call that can change a file below the watched folder is either understood or refused: nothing is left out. The
data that is written is part of the record.
"""

import os
import posixpath
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

UNDERSTOOD = (
    "open,openat,creat,lseek,write,pwrite64,ftruncate,fsync,fdatasync,rename,renameat,renameat2,link,linkat,unlink,"
    "unlinkat,mkdir,mkdirat,rmdir"
)
REFUSED = (
    "truncate,writev,pwritev,pwritev2,symlink,symlinkat,copy_file_range,sendfile,splice,fallocate,chdir,fchdir,mmap"
)
"""no such call may concern the watched folder; a mapping only where it can be written through"""
_CALL = re.compile(r"(\w+)\((.*)\)\s+= (-?\d+)")
_BYTES = re.compile(r"(?:\\x[0-9a-f]{2})+")
_DESCRIPTOR = re.compile(r"(-?\d+)<(.*)>(\(deleted\))?$")


@dataclass(frozen=True)
class Change:
    """One call: `what` is open, write, size, sync, rename, link, unlink, mkdir or rmdir. Paths are absolute."""

    what: str
    path: str
    to: str = ""
    """of rename and link"""
    data: bytes = b""
    """of write"""
    number: int = 0
    """of write: where it begins, -1 at the end; of size: the size that the file is cut to; of open: 1 where the file is
    emptied"""


def may_not_trace() -> str:
    """Why tracing does not work here; empty where it does."""
    if shutil.which("strace") is None:
        return "strace is not installed"
    done = subprocess.run(["strace", "-f", "-o", os.devnull, "true"], capture_output=True, check=False)
    return "" if done.returncode == 0 else "this user may not trace processes"


def record(command: list[str], folder: Path, log: Path) -> None:
    """Run the command in the folder. CalledProcessError where it fails."""
    calls = f"trace={UNDERSTOOD},{REFUSED}"
    first = ["strace", "-f", "-y", "--seccomp-bpf", "-xx", "-s", "16777216", "-o", str(log), "-e", calls]
    subprocess.run([*first, *command], cwd=folder, check=True, capture_output=True)


def changes(log: Path, folder: Path) -> Iterator[Change]:
    """Every change below `folder`, where the traced process was started, in the order in which calls returned.

    ValueError for a call on the folder that is not understood.
    """
    reader = _Reader(str(folder))
    for name, arguments in _calls(log):
        yield from reader.read(name, arguments[:-1], int(arguments[-1]))


def _calls(log: Path) -> Iterator[tuple[str, list[str]]]:
    """Names of calls that succeeded, with their arguments and result."""
    begun: dict[str, str] = {}
    with log.open(encoding="ascii") as lines:
        for line in lines:
            process, _, text = line.rstrip("\n").partition(" ")
            text = text.strip()
            if text.endswith("<unfinished ...>"):
                begun[process] = text.removesuffix("<unfinished ...>")
                continue
            if text.startswith("<... "):
                text = begun.pop(process) + text.partition("resumed>")[2]
            if (call := _CALL.match(text)) and not call[3].startswith("-"):
                # What is between quotes and brackets is hexadecimal: no comma of a name or of data is met here.
                yield call[1], [*call[2].split(", "), call[3]]


class _Reader:
    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._places: dict[str, int] = {}
        """where a descriptor writes next, -1 for the end"""

    def read(self, name: str, arguments: list[str], result: int) -> Iterator[Change]:
        if name in ("open", "openat", "creat"):
            path = self._path(*arguments[:2]) if name == "openat" else self._path("", arguments[0])
            flags = "O_CREAT|O_TRUNC" if name == "creat" else arguments[2 if name == "openat" else 1]
            self._places[str(result)] = -1 if "O_APPEND" in flags else 0
            if self._watched(path) and ("O_CREAT" in flags or "O_TRUNC" in flags):
                yield Change("open", path, number=int("O_TRUNC" in flags))
        elif name == "lseek":
            descriptor = arguments[0].partition("<")[0]
            if self._places.get(descriptor, 0) >= 0:
                self._places[descriptor] = result
        elif name in ("write", "pwrite64", "ftruncate", "fsync", "fdatasync"):
            yield from self._on_descriptor(name, arguments, result)
        elif name in ("rename", "link"):
            yield from self._two(name, self._path("", arguments[0]), self._path("", arguments[1]))
        elif name in ("renameat", "renameat2", "linkat"):
            what = "link" if name == "linkat" else "rename"
            yield from self._two(what, self._path(*arguments[:2]), self._path(*arguments[2:4]))
        elif name in ("unlink", "rmdir", "mkdir"):
            yield from self._one(name, self._path("", arguments[0]))
        elif name in ("unlinkat", "mkdirat"):
            what = "mkdir" if name == "mkdirat" else "rmdir" if "AT_REMOVEDIR" in arguments[2] else "unlink"
            yield from self._one(what, self._path(*arguments[:2]))
        elif any(self._folder in _text(each) for each in arguments) and not (
            name == "mmap" and ("PROT_WRITE" not in arguments[2] or "MAP_PRIVATE" in arguments[3])
        ):
            raise ValueError(f"a call on the watched folder is not understood: {name}({', '.join(arguments)[:200]}")

    def _on_descriptor(self, name: str, arguments: list[str], result: int) -> Iterator[Change]:
        found = _DESCRIPTOR.match(arguments[0])
        if found is None or found[3] or not self._watched(path := _text(found[2])):
            return
        if name in ("fsync", "fdatasync"):
            yield Change("sync", path)
        elif name == "ftruncate":
            yield Change("size", path, number=int(arguments[1]))
        else:
            data = _data(arguments[1])[:result]
            place = int(arguments[3]) if name == "pwrite64" else self._places[found[1]]
            if name == "write" and place >= 0:
                self._places[found[1]] = place + result
            yield Change("write", path, data=data, number=place)

    def _one(self, what: str, path: str) -> Iterator[Change]:
        if self._watched(path):
            yield Change(what, path)

    def _two(self, what: str, path: str, to: str) -> Iterator[Change]:
        if self._watched(path) != self._watched(to):
            raise ValueError(f"a file comes from elsewhere or goes there: {path} to {to}")
        if self._watched(path):
            yield Change(what, path, to)

    def _path(self, above: str, name: str) -> str:
        descriptor = _DESCRIPTOR.match(above)
        start = _text(descriptor[2]) if descriptor else self._folder
        return posixpath.normpath(posixpath.join(start, _text(name.strip('"'))))

    def _watched(self, path: str) -> bool:
        return path.startswith(self._folder + "/")


def _text(written: str) -> str:
    return os.fsdecode(_data(written)) if "\\x" in written else written


def _data(written: str) -> bytes:
    if written.endswith("..."):
        raise ValueError("data in the trace is cut off")
    return b"".join(bytes.fromhex(found[0].replace("\\x", "")) for found in _BYTES.finditer(written))
