"""Preparing a corpus: documents become files of tokens, written once and never changed.

    inventory   files, their digests, and lots: portions of the corpus that are finished or done again as a whole
    scan        every lot is read: ids, band keys, splits, what an evaluation set shares                    (parallel)
    dedupe      equal texts, near duplicates and their clusters: what becomes of every document
    tokenizer   learnt from the kept training documents, or loaded
    held-out    the 13-grams of the test documents
    encode      every lot is read again: tokens, tables, which of those 13-grams training texts hold        (parallel)
    assemble    the lots' parts become the files of the splits; the manifest; the folder gets its name

Whatever is finished lies in a file that was written aside, flushed, renamed and recorded with its digest. So a
preparation that was killed or failed at any moment is taken up by the next one, with any number of workers, and ends
in the same files. The tests kill it at random moments.

Memory: a worker holds a batch of 1 MB of text, or one larger document, and what the tokenizer, the shingles and the
13-grams need for it; a block of 50,000 documents takes 20 MB of it. This process holds one partition of records at a
time (under 0.2 GB), 8 bytes a document that is dropped and 50 bytes a candidate for a near duplicate, on pages that
the system may write back. Measured, all processes together with two workers: 0.59 GB for 96 MB of ordinary documents,
0.55 GB for a million of 15 bytes, 0.29 GB for 200,000 in one row group, 0.74 GB for one process with a text of 100 MB,
1.07 GB for two such texts at once (0.97 GB while they are read), which take turns from 8 MB on.
On the disk, a document takes some 230 bytes until the end: 24 of its digest, 136 of its band keys, the rest in tables.
"""

import importlib.metadata
import json
import os
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from filelock import FileLock

from paribus import __version__
from paribus.data.config import CorpusConfig, TokenizerConfig
from paribus.data.digests import REMEMBERED, RememberedDigests
from paribus.data.evaluation_sets import read_evaluation_sets
from paribus.data.frozen import MANIFEST, TOKENIZER, FrozenCorpus, SplitCounts, open_frozen
from paribus.data.overlap import NgramSet
from paribus.data.prepare import assemble, dedupe, encode, key, learn, marks, scan
from paribus.data.prepare.finished import record, recorded
from paribus.data.prepare.inventory import Lot, Work, lots_of
from paribus.data.prepare.workers import Workers
from paribus.data.progress import Advance, Progress, silent
from paribus.data.sources import open_source
from paribus.data.sources.contract import Skip, Source, SourceFile
from paribus.data.split import SPLITS, Split
from paribus.data.tokenizer import Tokenizer
from paribus.disk import flush, make_folder, whole
from paribus.errors import CorpusError, StorageError

_LIBRARIES = ("numpy", "pyarrow", "tokenizers")
_WORKING_FILES = "work"
_WORKING_FORMAT = 2
"""of what the stages record"""
_STAGES = (scan.STAGE, dedupe.STAGE, learn.STAGE, marks.STAGE, encode.STAGE, assemble.STAGE)


def prepare(
    corpus: CorpusConfig,
    tokenizer: TokenizerConfig,
    store: Path,
    *,
    name: str,
    progress: Progress = silent,
    workers: int | None = None,
) -> FrozenCorpus:
    """Freeze the declared corpus into `<store>/<name>-<12 digits of its key>`, or open the one that is there.

    `workers`: processes; by default as many as there are cores. Neither they nor interruptions change a byte.
    Several processes may call this at once; one does the work and the others wait for it.
    Raises CorpusError for a corpus that cannot be read, is empty, or changes while it is read, StorageError where the
    disk refuses a write. What was finished by then is kept, and the same call goes on from there.
    """
    if not name or name.startswith(".") or "/" in name or (workers is not None and workers < 1):
        raise CorpusError(
            "a corpus cannot be prepared under this name, or with so few workers",
            expected="a name that can be a folder's, at least one worker",
            received=f"name {name!r}, {workers} workers",
        )
    try:
        make_folder(store)
        declared = _declare(corpus, tokenizer, store, progress)
        folder = store / f"{name}-{declared.key[: key.KEY_DIGITS]}"
        # Released by the kernel when its holder dies, so nobody waits for a dead process.
        with FileLock(store / f".{folder.name}.lock"):
            if not folder.exists():
                partial = store / f".{folder.name}.partial"
                if not (partial / MANIFEST).exists():
                    _freeze(declared, partial, name, progress, workers or os.cpu_count() or 1)
                shutil.rmtree(partial / _WORKING_FILES, ignore_errors=True)
                partial.rename(folder)
                flush(store)
    except OSError as error:
        raise StorageError(
            "the corpus could not be written",
            expected=f"to write below {store}",
            received=f"{type(error).__name__}: {error}",
            remedy="free space or permissions there, then run the same command again: what is finished is kept",
        ) from error
    frozen = open_frozen(folder)
    if frozen.key != declared.key:
        raise CorpusError(
            f"{folder} holds another corpus",
            expected=f"key {declared.key}",
            received=f"key {frozen.key}",
            remedy="move the folder away, or give the corpus another name",
        )
    return frozen


@dataclass(frozen=True)
class _Declared:
    corpus: CorpusConfig
    tokenizer: TokenizerConfig
    loaded: Tokenizer | None
    """the tokenizer that exists already"""
    source: Source
    source_files: tuple[SourceFile, ...]
    evaluation_files: tuple[SourceFile, ...]
    tokenizer_json: dict[str, Any]
    key: str


def _declare(corpus: CorpusConfig, tokenizer: TokenizerConfig, store: Path, progress: Progress) -> _Declared:
    read = 0

    def digest_of(path: Path) -> str:
        nonlocal read
        digest = digests.of(path)
        read += path.stat().st_size
        progress(Advance("digests of the files", read, 0))
        return digest

    loaded = key.loaded_tokenizer(tokenizer)
    tokenizer_json = key.declared_tokenizer(tokenizer, loaded)
    with RememberedDigests(store / REMEMBERED) as digests:
        source = open_source(corpus, digest_of=digest_of)
        source_files = source.files()
        evaluation = key.evaluation_files(corpus.decontaminate, digests)
    found = key.key_of(corpus, tokenizer_json, source_files, evaluation)
    return _Declared(corpus, tokenizer, loaded, source, source_files, evaluation, tokenizer_json, found)


def _freeze(declared: _Declared, partial: Path, name: str, progress: Progress, processes: int) -> None:
    source = declared.source
    pieces = source.pieces()
    if not pieces:
        raise _empty("no piece of a file")
    lots = lots_of(pieces, last_file_apart=declared.corpus.held_out == "last-file")
    work = Work(
        declared.corpus,
        source,
        partial / _WORKING_FILES,
        pieces[-1].file,
        keeps_texts=declared.corpus.kind == "local-docs",
    )
    made_with = {"paribus": __version__} | {library: importlib.metadata.version(library) for library in _LIBRARIES}
    versions = dict(source.versions())
    plan = {
        "format": _WORKING_FORMAT,
        "pieces": [[str(piece), piece.bytes] for piece in pieces],
        "versions": versions,
        "made_with": made_with,
    }
    _begin(work, plan)
    processes = min(processes, len(lots))
    steps = _Steps(work, lots, progress)
    shared = replace(work, in_turns=processes > 1)
    with Workers(shared, processes) as workers:
        scans = steps.scan(workers)
        documents = [summary["documents"] for summary in scans]
        decided = steps.decide(workers, documents)
    beginning = key.beginning_of(declared.tokenizer_json)
    steps.tokenizer(declared, documents, processes)
    vocabulary = Tokenizer.load(work.path(learn.STAGE, TOKENIZER), beginning)
    steps.held_out(documents, decided["test"], processes)
    with Workers(shared, processes) as workers:
        encodings = steps.encode(workers, documents, beginning)
    free = marks.marks(work, lots)
    splits: dict[Split, dict[str, Any]] = {split: steps.assemble(split, free) for split in SPLITS}
    skips = Counter({str(reason): 0 for reason in Skip})
    for summary in scans:
        skips.update(summary["skips"])
    dropped = {reason: count for reason, count in decided.items() if reason not in SPLITS}
    dropped["uncuttable"] = sum(summary["uncuttable"] for summary in encodings)
    per_set = [sum(column) for column in zip(*(summary["contaminated"] for summary in scans), strict=True)]
    files = {TOKENIZER: vocabulary.digest}
    file_bytes = {TOKENIZER: work.path(learn.STAGE, TOKENIZER).stat().st_size}
    for summary in splits.values():
        files |= summary["files"]
        file_bytes |= summary["file_bytes"]
    frozen = FrozenCorpus(
        folder=partial,
        name=name,
        key=declared.key,
        config=declared.corpus.as_json(),
        tokenizer_config=declared.tokenizer_json,
        split_rule=key.split_rule(declared.corpus),
        vocabulary_size=vocabulary.vocabulary_size,
        bos_id=vocabulary.bos_id,
        counts={split: SplitCounts(**summary["counts"]) for split, summary in splits.items()},
        dropped=dropped | skips,
        contaminated_by=dict(zip(_evaluation_names(work), per_set, strict=True)),
        overlap={
            "free": free.true_count,
            "shared": len(free) - free.true_count - free.null_count,
            "not_checked": free.null_count,
        },
        versions=versions,
        made_with=made_with,
        sources=tuple(sorted({source for summary in splits.values() for source in summary["sources"]})),
        source_files=declared.source_files,
        evaluation_files=declared.evaluation_files,
        files=files,
        file_bytes=file_bytes,
        index={split: summary["index"] for split, summary in splits.items()},
        hostless=sum(summary["hostless"] for summary in scans) if declared.corpus.split_by == "host" else 0,
    )
    _finish(frozen, work)


def _begin(work: Work, plan: dict[str, Any]) -> None:
    """Keep the working files of the same plan, and of no other: a package or a library may have changed since."""
    path = work.folder / "plan.json"
    text = json.dumps(plan, sort_keys=True).encode()
    if not path.exists() or path.read_bytes() != text:
        shutil.rmtree(work.folder, ignore_errors=True)
    for stage in _STAGES:
        (work.folder / stage).mkdir(parents=True, exist_ok=True)
        # Left by processes that were killed.
        for aside in (work.folder / stage).glob(".*"):
            if aside.is_file():
                aside.unlink()
    if not path.exists():
        with whole(path) as stream:
            stream.write(text)


@dataclass(frozen=True)
class _Steps:
    work: Work
    lots: tuple[Lot, ...]
    progress: Progress

    def scan(self, workers: Workers) -> list[dict[str, Any]]:
        if self.work.corpus.decontaminate:
            _collect_evaluation(self.work)
        found = self._run(workers, scan.scan, self.lots, "read documents")
        documents, hostless = (sum(summary[name] for summary in found) for name in ("documents", "hostless"))
        if not documents:
            raise _empty(str(sum((Counter(summary["skips"]) for summary in found), Counter())))
        if self.work.corpus.split_by == "host" and hostless == documents:
            raise _no_host(documents, self.work.corpus.url_column)
        return found

    def decide(self, workers: Workers, documents: Sequence[int]) -> dict[str, int]:
        def compared(done: int, total: int) -> None:
            self.progress(Advance("compare documents", done, total, documents=done))

        return dedupe.decide(self.work, workers, self.lots, documents, compared)

    def tokenizer(self, declared: _Declared, documents: Sequence[int], processes: int) -> None:
        self.progress(Advance("tokenizer", 0, 1))
        if declared.loaded is not None:
            learn.save(self.work, declared.loaded)
        else:
            task = learn.LearnTask(declared.tokenizer, self.lots, tuple(documents))
            # In a process of its own, what the library allocates goes back when it is done.
            with Workers(self.work, 1, threads=processes, apart=processes > 1) as workers:
                list(workers.run(learn.learn, [task]))
        self.progress(Advance("tokenizer", 1, 1))

    def held_out(self, documents: Sequence[int], test_documents: int, processes: int) -> None:
        self.progress(Advance("test documents", 0, 1))
        task = marks.HeldOutTask(self.lots, tuple(documents), test_documents)
        # In a process of its own too: a large document may be among them.
        with Workers(self.work, 1, apart=processes > 1) as workers:
            list(workers.run(marks.collect_held_out, [task]))
        self.progress(Advance("test documents", 1, 1))

    def encode(self, workers: Workers, documents: Sequence[int], beginning: str | None) -> list[dict[str, Any]]:
        firsts = [sum(documents[:number]) for number in range(len(documents))]
        tasks = [
            encode.EncodeTask(lot, first, count, beginning)
            for lot, first, count in zip(self.lots, firsts, documents, strict=True)
        ]
        return self._run(workers, encode.encode, tasks, "encode")

    def assemble(self, split: Split, free: Any) -> dict[str, Any]:
        def written(size: int) -> None:
            self.progress(Advance(f"write {split}", size, 0))

        return assemble.assemble(self.work, self.lots, split, free if split == "test" else None, written)

    def _run(self, workers: Workers, function: Any, tasks: Sequence[Any], phase: str) -> list[dict[str, Any]]:
        total = sum(lot.bytes for lot in self.lots)
        done: Counter[str] = Counter()
        found: list[dict[str, Any]] = [{}] * len(tasks)
        self.progress(Advance(phase, 0, total))
        for index, summary in workers.run(function, tasks):
            found[index] = summary
            done["work"] += self.lots[index].bytes
            done.update({name: summary.get(name, 0) for name in ("documents", "bytes", "tokens")})
            self.progress(Advance(phase, done["work"], total, done["documents"], done["bytes"], done["tokens"]))
        return found


def _collect_evaluation(work: Work) -> None:
    folder = work.folder / scan.EVALUATION
    mark = folder / "ngrams.json"
    if recorded(mark) is None:
        sets = read_evaluation_sets(work.corpus.decontaminate)
        NgramSet.of({name: read() for name, read in sets.items()}).save(folder)
        record(mark, [folder / name for name in ("hashes", "file", "files")], {})


def _evaluation_names(work: Work) -> tuple[str, ...]:
    return NgramSet.open(work.folder / scan.EVALUATION).files if work.corpus.decontaminate else ()


def _finish(frozen: FrozenCorpus, work: Work) -> None:
    """The manifest comes last: where it is, everything is."""
    work.path(learn.STAGE, TOKENIZER).replace(frozen.folder / TOKENIZER)
    assemble.move_into(frozen.folder, work, [name for name in frozen.files if name != TOKENIZER])
    flush(frozen.folder)
    with whole(frozen.folder / MANIFEST, work.folder) as stream:
        stream.write(frozen.to_json().encode())
    flush(frozen.folder)


def _no_host(documents: int, column: str) -> CorpusError:
    return CorpusError(
        "no document has a web address to split by",
        expected=f"addresses in '{column}', where split_by is 'host'",
        received=f"{documents:,} documents without one",
        remedy="name the column or key that holds them (url_column), or split by 'document' or 'minhash-cluster'",
    )


def _empty(received: str) -> CorpusError:
    return CorpusError(
        "the corpus is empty",
        expected="at least one document",
        received=received,
        remedy="name packages that are installed, or a folder whose files hold texts",
    )
