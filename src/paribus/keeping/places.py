"""What lies in a folder of run folders: studies, sets of studies, prepared corpora, and what is none of them."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from paribus.data.store import CORPORA, HUB
from paribus.errors import StudyFolderError
from paribus.runs.faults import Fault, Kind
from paribus.runs.study_folder import StudyFolder

IMPORTED = "model.json"
"""in the folder of an imported model, which has digests of its own"""
MANIFEST = "manifest.json"
OF_A_SET = {"tunnel.html", "tunnel.svg", "tunnel.md", "tunnel.json", "time.json"}
"""files beside the studies of a set of tasks"""
COPYING, LEAVING = ".moving", ".moved"
"""behind the name of a study: a copy that is not whole yet, and what a move has left"""


@dataclass
class Places:
    """What was found below a folder, each by name."""

    studies: list[Path] = field(default_factory=list)
    corpora: list[Path] = field(default_factory=list)
    """that are prepared, to the end"""
    strangers: list[Fault] = field(default_factory=list)
    """folders of no study, and files beside studies"""


def is_study(folder: Path) -> bool:
    """Whether a folder is a study's, also where its study.json is lost."""
    return (folder / "study.json").exists() or any(folder.glob("*/*/*/cell.json"))


def find(folder: Path) -> Places:
    """What lies in `folder`, which is that of one study or holds several. Of one study, the corpus that it reads counts
    as found.

    StudyFolderError where there is no such folder, or neither a study nor a corpus in it.
    """
    if not folder.is_dir():
        raise _nothing(folder, "a file" if folder.exists() else "no such folder")
    if is_study(folder):
        corpus = corpus_of(folder)
        return Places([folder], [corpus] if corpus is not None and (corpus / MANIFEST).exists() else [])
    found = Places()
    _look(folder, found, deeper=True)
    if not (found.studies or found.corpora):
        raise _nothing(folder, "neither in it")
    return found


def corpus_of(study: Path) -> Path | None:
    """The folder of the corpus that a study reads, whether it is there or not; None where it reads none or its link
    cannot be read."""
    try:
        link = StudyFolder(study).read_corpus()
    except StudyFolderError:
        return None
    return None if link is None else study.resolve().parent / CORPORA / link["corpus"]


def _look(folder: Path, found: Places, *, deeper: bool) -> None:
    for path in sorted(folder.iterdir()):
        if not path.is_dir():
            found.strangers += [] if path.name in OF_A_SET else [_stranger(path, "lies beside studies, and is no file")]
        elif path.name == CORPORA:
            found.corpora += [each for each in sorted(path.iterdir()) if _is_corpus(each)]
        elif path.name.endswith((COPYING, LEAVING)) and path.name.startswith("."):
            found.strangers.append(_left_by_a_move(path))
        elif is_study(path):
            found.studies.append(path)
        elif deeper and any(is_study(below) for below in path.iterdir() if below.is_dir()):
            _look(path, found, deeper=False)
        elif not (path / IMPORTED).exists():
            found.strangers.append(_stranger(path, "is the folder of no study"))


def _is_corpus(path: Path) -> bool:
    return path.is_dir() and path.name != HUB and not path.name.startswith(".") and (path / MANIFEST).exists()


def _stranger(path: Path, what: str) -> Fault:
    return Fault(path, Kind.ORPHAN, what, "move it elsewhere, or delete it, once you know what it is")


def _left_by_a_move(path: Path) -> Fault:
    if path.name.endswith(COPYING):
        return Fault(path, Kind.ORPHAN, "is a copy that is not whole", "`paribus move` again ends it; or delete it")
    return Fault(path, Kind.ORPHAN, "is what is left of a study that was moved", "delete it")


def _nothing(folder: Path, received: str) -> StudyFolderError:
    return StudyFolderError(
        f"{folder} holds no study",
        expected="the run folder of a study, or a folder of such",
        received=received,
        remedy="name the folder that `paribus run` wrote: `runs`, or one below it",
    )


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files below a folder; links are not followed."""
    return sum(size for _, size in files_below(path))


def files_below(path: Path) -> Iterator[tuple[Path, int]]:
    """(file, bytes) of every file below a folder, or of the file itself; what vanishes meanwhile is left out."""
    try:
        if path.is_dir() and not path.is_symlink():
            for each in sorted(path.iterdir()):
                yield from files_below(each)
        else:
            yield path, path.lstat().st_size
    except FileNotFoundError:
        return
