"""`paribus doctor`: every digest and marker of studies and corpora verified, and who holds what. Writes nothing.

Files are judged by `paribus.runs.verifying`. A cell that is being trained changes while it is read: what is found of it
is looked at again, and only what both looks see is told.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from paribus.data.digests import file_digest
from paribus.data.frozen import open_frozen
from paribus.data.progress import Advance, Progress, silent
from paribus.errors import CorpusError
from paribus.keeping.leases import Lease, lease_of, old_claims
from paribus.keeping.places import Places, corpus_of, files_below, find
from paribus.runs.failures import parked
from paribus.runs.faults import Cure, Fault, Kind
from paribus.runs.holders import tokens_of
from paribus.runs.study_folder import StudyFolder
from paribus.runs.verifying import examine, examine_cell, owner_of, trained_folders

SECOND_LOOK_SECONDS = 0.5
LOOKS = 5
"""at a study in which files vanish while they are read"""
ABANDONED_SECONDS = 3600.0
"""since which a file aside has not changed that no claim protects: whoever wrote it is gone. Clocks of machines differ
by less"""
OUTSIDE_CLAIMS = ("tasks", "finetuned")
"""folders of a cell in which others write without its claim"""


@dataclass(frozen=True)
class Examined:
    """What was found of one study."""

    study: Path
    files: int
    bytes: int
    faults: tuple[Fault, ...]
    """everything that is not as it was written, is not known, or cannot be checked"""
    leases: tuple[Lease, ...]
    parked: Mapping[Path, str]
    """why, by folder of the cell"""
    old_claims: tuple[Path, ...]
    """files of claims long ended, of folders that nobody holds"""

    @property
    def damaged(self) -> list[Fault]:
        return [fault for fault in self.faults if fault.kind is Kind.DAMAGED]

    @property
    def held(self) -> set[Path]:
        """Folders that somebody holds who gives signs of life."""
        return {lease.folder for lease in self.leases if lease.state == "held"}

    @property
    def repairable(self) -> list[Fault]:
        """What `--repair` would see to now."""
        return [fault for fault in self.faults if may_cure(self.study, fault) and not self._belongs_to_held(fault)]

    def _belongs_to_held(self, fault: Fault) -> bool:
        return owner_of(self.study, fault.path) in self.held


@dataclass(frozen=True)
class ExaminedCorpus:
    """What was found of one prepared corpus."""

    corpus: Path
    files: int
    bytes: int
    faults: tuple[Fault, ...]


@dataclass(frozen=True)
class Diagnosis:
    """Of a folder of run folders, or of one study."""

    folder: Path
    studies: tuple[Examined, ...]
    corpora: tuple[ExaminedCorpus, ...]
    strangers: tuple[Fault, ...]

    @property
    def damaged(self) -> list[Fault]:
        everything = [*self.studies, *self.corpora]
        return [fault for each in everything for fault in each.faults if fault.kind is Kind.DAMAGED]

    @property
    def sound(self) -> bool:
        return not self.damaged

    @property
    def repairs(self) -> int:
        """How many things `--repair` would see to."""
        return sum(len(each.repairable) + len(each.old_claims) for each in self.studies)


def diagnose(folder: Path, progress: Progress = silent) -> Diagnosis:
    """Verify a study, or everything in a folder of them. StudyFolderError where there is none."""
    places: Places = find(folder)
    studies = tuple(examined(study, progress) for study in places.studies)
    corpora = tuple(_corpus(corpus, progress) for corpus in places.corpora)
    return Diagnosis(folder, studies, corpora, tuple(places.strangers))


def examined(study: Path, progress: Progress = silent) -> Examined:
    """Every file of a study looked at."""
    total = sum(size for _, size in files_below(study))
    before = {folder: _at_work(folder) for folder in trained_folders(study)}
    found = _looked_at(study, total, progress)
    folders = trained_folders(study)
    leases = {folder: lease for folder in folders if (lease := lease_of(folder)) is not None}
    busy = {folder for folder in folders if (now := _at_work(folder))[0] or now != before.get(folder, (False, []))}
    faults = [fault for fault in found if fault.kind not in (Kind.GOOD, Kind.UNPROTECTED)]
    faults = [fault for fault in _seen_twice(study, faults, busy) if not _gone(fault)]
    faults += _corpus_link(study)
    old = [file for folder in folders if folder not in busy for file in old_claims(folder)]
    aside = {folder: parked(folder) for folder in folders}
    why = {
        folder: reasons[-1].reason.partition("\n")[0] if reasons else "the reasons are not readable"
        for folder, reasons in aside.items()
        if reasons is not None
    }
    return Examined(study, len(found), total, tuple(faults), tuple(leases.values()), why, tuple(old))


def _looked_at(study: Path, total: int, progress: Progress, looks: int = LOOKS) -> list[Fault]:
    """What `examine` finds; begun anew where a file vanishes while it is read, since somebody trains here."""
    found: list[Fault] = []
    advance = _counted(f"verify {study.name}", total, progress)
    try:
        for fault in examine(study):
            found.append(fault)
            advance(fault.path)
    except FileNotFoundError:
        if looks == 1:
            raise
        return _looked_at(study, total, progress, looks - 1)
    return found


def _at_work(folder: Path) -> tuple[bool, list[int]]:
    """(whether somebody holds it who gives signs of life, tokens of all claims)"""
    lease = lease_of(folder)
    return lease is not None and lease.state == "held", tokens_of(folder)


def may_cure(study: Path, fault: Fault) -> bool:
    """Whether a program may see to a fault, once it holds the folder that the file belongs to.

    What others write without a claim (answers to tasks, and what lies beside cells) must have been left alone for long.
    """
    if fault.cure is None:
        return False
    owner = owner_of(study, fault.path)
    protected = owner is not None and fault.path.relative_to(owner).parts[0] not in OUTSIDE_CLAIMS
    return protected or _abandoned(fault.path)


def _abandoned(path: Path) -> bool:
    try:
        newest = max([path.lstat().st_mtime, *(file.lstat().st_mtime for file, _ in files_below(path))])
    except FileNotFoundError:
        return False
    return time.time() - newest > ABANDONED_SECONDS


def _seen_twice(study: Path, faults: Sequence[Fault], busy: Iterable[Path]) -> list[Fault]:
    """Faults but those of cells at work that a second look does not see, and what their holder writes just now."""
    busy = set(busy)
    quiet = [fault for fault in faults if owner_of(study, fault.path) not in busy]
    doubtful = [fault for fault in faults if owner_of(study, fault.path) in busy]
    if not doubtful:
        return quiet
    time.sleep(SECOND_LOOK_SECONDS)
    again: set[tuple[Path, Kind, str]] = set()
    for folder in busy:
        with suppress(FileNotFoundError):  # somebody is at work there
            again |= {(each.path, each.kind, each.what) for each in examine_cell(folder)}
    at_work = (Cure.PARTIAL, Cure.TORN)
    return quiet + [f for f in doubtful if (f.path, f.kind, f.what) in again and f.cure not in at_work]


def _gone(fault: Fault) -> bool:
    """Whether it was aside for a moment, as everything is while it is written."""
    return fault.cure is Cure.PARTIAL and not fault.path.exists()


def _corpus_link(study: Path) -> list[Fault]:
    """A study whose corpus is gone can be reported, and neither be gone on with nor be asked anything."""
    place = corpus_of(study)
    if place is None:
        return []
    remedy = f"put a copy there, or prepare it again (`paribus data prepare FILE --runs {place.parents[1]}`)"
    if not (place / "manifest.json").exists():
        return [Fault(place, Kind.DAMAGED, f"is missing: {study.name} was planned with this corpus", remedy)]
    try:
        link, found = StudyFolder(study).read_corpus(), open_frozen(place)
    except CorpusError:  # told with the corpus
        return []
    if link is None or found.digest == link["digest"]:
        return []
    return [Fault(place, Kind.DAMAGED, f"is not the corpus that {study.name} was planned with", "restore it")]


def _corpus(corpus: Path, progress: Progress) -> ExaminedCorpus:
    """Every file of a prepared corpus, read whatever was remembered of it."""
    remedy = "delete the corpus' folder and prepare it again: it comes out the same, or is refused"
    try:
        frozen = open_frozen(corpus)
    except CorpusError as error:
        fault = Fault(corpus / "manifest.json", Kind.DAMAGED, f"{error.what} ({error.received})", remedy)
        return ExaminedCorpus(corpus, 1, 0, (fault,))
    total, faults = sum(frozen.file_bytes.values()), list[Fault]()
    manifest = corpus / "manifest.json"
    if b'"checksum"' in (text := manifest.read_bytes()) and text != frozen.to_json().encode():
        what = "its content is as it was written, its layout is not"
        faults.append(Fault(manifest, Kind.REFORMATTED, what, "leave it"))
    advance = _counted(f"verify {corpus.name}", total, progress)
    for name, expected in frozen.files.items():
        try:
            received = file_digest(corpus / name)
        except OSError as error:
            faults.append(Fault(corpus / name, Kind.DAMAGED, error.strerror or str(error), remedy))
            continue
        if received != expected:
            faults.append(Fault(corpus / name, Kind.DAMAGED, "was changed after it was prepared", remedy))
        advance(corpus / name)
    return ExaminedCorpus(corpus, len(frozen.files) + 1, total, tuple(faults))


def _counted(phase: str, total: int, progress: Progress) -> Callable[[Path], None]:
    """Tell how many bytes have been read, a file at a time."""
    done = 0
    progress(Advance(phase, 0, max(total, 1)))

    def advance(path: Path) -> None:
        nonlocal done
        done += sum(size for _, size in files_below(path))
        progress(Advance(phase, min(done, total), max(total, 1)))

    return advance
