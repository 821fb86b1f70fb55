"""The disk takes no more, at many points of a run; then there is room again, and the same command goes on.

Three ways, drawn at random: a file system of a few megabytes (tmpfs) whose free space, or number of free files, is what
a ballast leaves of it, from the start or from a random moment on; and a largest size that a file may have
(RLIMIT_FSIZE), which counts bytes where tmpfs counts pages. The tmpfs is mounted in a mount name space of its own;
where this user may not do that, only the third way is tried.

Survived: the worker ends with the code 1 and says which path could not be written and what to do; nothing that was
finished is touched; what is there verifies; and with room again the cells end as undisturbed ones.
"""

import contextlib
import os
import shutil
import subprocess
import time
from pathlib import Path

import numpy as np

from paribus.runs.faults import Kind
from paribus.runs.folder import CellFolder
from paribus.runs.verifying import verify
from paribus.seeds import generator
from tests.faults.scene import STUDY, Advance, LostError, Row, Scene, Server, cells, require_ended, timed

SPACE = ("unshare", "--mount", "--map-root-user")
DISK_BYTES = 24 * 2**20
PAGE_BYTES = 4096
COMMAND = ("work", "study.toml")


def may_mount() -> bool:
    if shutil.which("unshare") is None:
        return False
    command = [*SPACE, "mount", "-t", "tmpfs", "none", "/mnt"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


class Disk:
    """A small file system that processes of its server see, and this one through /proc."""

    def __init__(self, at: Path) -> None:
        at.mkdir(parents=True)
        mount = f'mount -t tmpfs -o size={DISK_BYTES},nr_inodes=4000 none "{at}" && exec "$@"'
        self.server = Server((*SPACE, "sh", "-c", mount, "sh"))
        self.inside = at
        self.seen = Path(f"/proc/{self.server.process.pid}/root{at}")

    def fill(self, free_bytes: int) -> None:
        found = os.statvfs(self.seen)
        size = max(PAGE_BYTES, found.f_bavail * found.f_frsize - free_bytes)
        # Where it fails, somebody else has taken the room meanwhile.
        with (self.seen / "ballast").open("wb") as ballast, contextlib.suppress(OSError):
            os.posix_fallocate(ballast.fileno(), 0, size)

    def fill_files(self, free_files: int) -> None:
        (self.seen / "files").mkdir()
        for number in range(os.statvfs(self.seen).f_favail - free_files):
            try:
                (self.seen / "files" / str(number)).touch()
            except OSError:  # somebody else has taken the last one
                return

    def make_room(self) -> None:
        (self.seen / "ballast").unlink(missing_ok=True)
        shutil.rmtree(self.seen / "files", ignore_errors=True)


def full_disks(scene: Scene, points: int, seed: int, advance: Advance) -> list[Row]:
    """A line for each way."""
    draw = generator("faults", "full disks", seed)
    rows = {
        "space": Row("no space left on the disk", "training, tmpfs", "points"),
        "files": Row("no file left on the disk", "training, tmpfs", "points"),
        "limit": Row("files may not grow", "training, RLIMIT_FSIZE", "points"),
    }
    needed = _needed(scene)
    disk = Disk(scene.home / "disk") if may_mount() else None
    if disk is None:
        for way in ("space", "files"):
            rows[way].skipped = "this user may not mount a file system, not even in a name space of its own"
    try:
        for number in range(points):
            way = "limit" if disk is None or number % 3 == 2 else str(draw.choice(["space", "space", "files"]))
            row = rows[way]
            folder = (disk.seen if disk is not None and way != "limit" else scene.home) / f"full-{number}"
            scene.fresh(folder)  # the corpus is part of it
            with timed(row):
                try:
                    if disk is not None and way != "limit":
                        inside = disk.inside / folder.name
                        _fill_and_run(disk, way, inside, folder, needed, scene, draw, row)
                        said = _said(scene, folder)
                        require_ended(disk.server.run(inside, *COMMAND, said=said), folder, said)
                    else:
                        hook = {"file_bytes": int(draw.integers(100, needed["largest"]))}
                        _check(
                            scene.server.run(folder, *COMMAND, hook=hook, said=_said(scene, folder)),
                            scene,
                            folder,
                            {},
                            row,
                        )
                        require_ended(scene.server.run(folder, *COMMAND), folder)
                    scene.require_same(folder)
                    row.survived += 1
                except LostError as error:
                    row.lost.append(f"{way}: {error}")
            row.tried += 1
            shutil.rmtree(folder)
            advance(row)
    finally:
        if disk is not None:
            disk.server.end()
    return list(rows.values())


def _needed(scene: Scene) -> dict[str, int]:
    """Bytes and files that an undisturbed run adds, and the bytes of its largest file."""
    files = list((scene.finished / "runs" / STUDY / "tiny").rglob("*"))
    sizes = [path.stat().st_size for path in files if path.is_file()]
    pages = sum(-(-size // PAGE_BYTES) for size in sizes)
    return {"space": pages * PAGE_BYTES, "files": len(files), "largest": max(sizes)}


def _fill_and_run(
    disk: Disk,
    way: str,
    inside: Path,
    folder: Path,
    needed: dict[str, int],
    scene: Scene,
    draw: np.random.Generator,
    row: Row,
) -> None:
    free = int(draw.integers(0, needed[way]))
    later = float(draw.uniform(0, scene.seconds)) if draw.random() < 0.4 else None
    fill = disk.fill if way == "space" else disk.fill_files
    if later is None:
        fill(free)
        code, finished = disk.server.run(inside, *COMMAND, said=_said(scene, folder)), {}
    else:
        pid = disk.server.fork(inside, *COMMAND, said=_said(scene, folder))
        time.sleep(later)
        finished = _finished(folder)
        fill(int(draw.integers(0, PAGE_BYTES * 8)) if way == "space" else int(draw.integers(0, 8)))
        code = disk.server.wait(pid)
        row.note("filled in mid-run")
    _check(code, scene, folder, finished, row)
    disk.make_room()


def _finished(folder: Path) -> dict[Path, bytes]:
    return {
        path: path.read_bytes()
        for cell in cells(folder).values()
        if cell.finished
        for path in cell.path.rglob("*")
        if path.is_file() and ".claims" not in path.parts
    }


def _said(scene: Scene, folder: Path) -> Path:
    """Not on the disk that is full."""
    return scene.home / f"{folder.name}.txt"


def _check(code: int, scene: Scene, folder: Path, finished: dict[Path, bytes], row: Row) -> None:
    """LostError where the disk was full and that was not said, or something finished or kept is damaged."""
    text = _said(scene, folder).read_text(encoding="utf-8")
    if code == 0:
        row.note("had room enough")
    else:
        row.note("refused")
        message = text.rpartition("error: ")[2]
        if code != 1 or "Traceback" in text or "runs" not in message or "remedy: " not in message:
            raise LostError(f"ended with {code}, and does not name the place and the remedy: {text[-1500:]}")
    if changed := [path for path, content in finished.items() if path.read_bytes() != content]:
        raise LostError(f"{changed[0]} was finished and has changed")
    study = folder / "runs" / STUDY
    if damaged := [fault for fault in verify(study) if fault.kind is Kind.DAMAGED]:
        raise LostError(f"{damaged[0].path}: {damaged[0].what}")
    for cell in cells(folder).values():
        _require_newest(cell)


def _require_newest(cell: CellFolder) -> None:
    """The newest checkpoint can be used."""
    steps, latest = cell.checkpoint_steps(), cell.latest_checkpoint()
    if steps and (latest is None or latest[0] != steps[-1]):
        raise LostError(f"{cell.path}: the checkpoint of update {steps[-1]} cannot be used")
