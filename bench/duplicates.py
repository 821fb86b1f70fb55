"""What comparing documents costs: CPU seconds and peak memory of each part, on a folder of Parquet files and at scale.

    python bench/duplicates.py near ../shared/data/pretrain/textmix
    python bench/duplicates.py overlap ../shared/data/pretrain/textmix --evaluation ../shared/data/core_eval_bundle
    python bench/duplicates.py exact --documents 10_000_000
    python bench/duplicates.py candidates --documents 1_000_000

`exact` and `candidates` draw random digests and keys, a tenth of them repeated. One part a run: the peak is the
process's, so parts that run in one process would share it.
"""

import argparse
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray
from rich.console import Console

from paribus.data.clusters import clusters
from paribus.data.duplicates import find_candidates, near_duplicates_of, write_band_keys
from paribus.data.evaluation_sets import read_evaluation_sets
from paribus.data.exact import exact_repeats, write_digests
from paribus.data.overlap import HeldOutNgrams, NgramSet
from paribus.data.shingle_files import write_shingle_sets
from paribus.data.shingles import BANDS, band_keys
from paribus.data.split import split_of
from paribus.seeds import generator
from paribus.terminal import table

_PER_PIECE = 100_000

Row = tuple[str, str, str]


class Clock:
    """Rows of (what, CPU seconds, result)."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self._since = time.process_time()

    def mark(self, what: str, result: object) -> None:
        now = time.process_time()
        self.rows.append((what, f"{now - self._since:.1f}", f"{result}"))
        self._since = time.process_time()


def batches(folder: Path) -> Iterator[list[bytes]]:
    for path in sorted(folder.glob("*.parquet")):
        for batch in pq.ParquetFile(path).iter_batches(batch_size=1024, columns=["text"]):
            yield [text.encode() for text in batch["text"].to_pylist()]


def near(folder: Path, work: Path, clock: Clock) -> None:
    files, sets = [], []
    for piece, texts in enumerate(batches(folder)):
        files.append(work / f"bands-{piece}")
        write_band_keys(files[-1], piece, [band_keys(texts)])
    clock.mark("band keys", f"{len(files)} pieces")
    candidates = find_candidates(files, work / "work", left_out=np.empty(0, dtype=np.int64))
    clock.mark("candidates", len(candidates.positions))
    for piece, texts in enumerate(batches(folder)):
        rows = candidates.rows(piece).tolist()
        if rows:
            sets.append(work / f"sets-{piece}")
            write_shingle_sets(sets[-1], piece, rows, (texts[row] for row in rows))
    clock.mark("shingle sets", f"{sum(path.stat().st_size for path in sets):,} bytes")
    for similarity in (0.8, 0.7):
        clock.mark(f"repeats at {similarity}", len(near_duplicates_of(candidates, sets, similarity, work)))
    clock.mark("documents in clusters at 0.7", len(clusters(candidates, sets, 0.7).positions))


def overlap(folder: Path, evaluation: Path, clock: Clock) -> None:
    read = read_evaluation_sets([evaluation])
    known = NgramSet.of({name: texts() for name, texts in read.items()})
    clock.mark("read the evaluation sets", f"{len(known.hashes):,} 13-grams of {len(known.files)} files")
    found = sum(int(known.matches(texts).any(axis=1).sum()) for texts in batches(folder))
    clock.mark("look every document up", f"{found} share one")
    test = [text for texts in batches(folder) for text in texts if split_of(text) == "test"]
    held_out = HeldOutNgrams.of(test, len(test))
    clock.mark("read the test documents", f"{len(held_out.hashes):,} 13-grams")
    training = ([text for text in texts if split_of(text) == "train"] for texts in batches(folder))
    marks = held_out.free([held_out.hits(texts) for texts in training])
    clock.mark("look for them in training text", f"{marks.count(True)} free, {marks.count(False)} not")


def exact(documents: int, work: Path, clock: Clock) -> None:
    draw = generator("bench", "digests")
    files, repeated = [], 0
    first = draw.bytes(16 * _PER_PIECE)
    for piece, begin in enumerate(range(0, documents, _PER_PIECE)):
        count = min(_PER_PIECE, documents - begin)
        tenth = count // 10 if piece else 0
        content = first[: 16 * tenth] + draw.bytes(16 * (count - tenth)) if piece else first[: 16 * count]
        repeated += tenth
        files.append(work / f"digests-{piece}")
        write_digests(files[-1], piece, (content[at : at + 16] for at in range(0, len(content), 16)))
    clock.mark("draw and write digests", f"{documents:,}, of them {repeated:,} repeated")
    clock.mark("exact repeats", f"{len(exact_repeats(files, work / 'work')):,}")


def candidates_at_scale(documents: int, work: Path, clock: Clock) -> None:
    draw = generator("bench", "keys")
    files = []
    first = _keys(draw, _PER_PIECE)
    for piece, begin in enumerate(range(0, documents, _PER_PIECE)):
        keys = _keys(draw, min(_PER_PIECE, documents - begin)) if piece else first
        if piece:
            keys[: len(keys) // 10] = first[: len(keys) // 10]
        files.append(work / f"bands-{piece}")
        write_band_keys(files[-1], piece, [keys])
    clock.mark("draw and write keys", f"{documents:,}")
    found = find_candidates(files, work / "work", left_out=np.empty(0, dtype=np.int64))
    clock.mark("candidates", f"{len(found.positions):,} documents, {len(found.members):,} memberships")


def _keys(draw: np.random.Generator, count: int) -> NDArray[np.uint64]:
    return draw.integers(2**64, size=(count, BANDS), dtype=np.uint64)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["near", "overlap", "exact", "candidates"])
    parser.add_argument("folder", type=Path, nargs="?", help="Parquet files with a column text")
    parser.add_argument("--evaluation", type=Path, help="evaluation sets, for overlap")
    parser.add_argument("--documents", type=int, default=1_000_000, help="how many are drawn, for exact and candidates")
    arguments = parser.parse_args()
    if arguments.part in ("near", "overlap") and arguments.folder is None:
        parser.error("a folder is needed")
    if arguments.part == "overlap" and arguments.evaluation is None:
        parser.error("--evaluation is needed")
    clock = Clock()
    with TemporaryDirectory() as name:
        work = Path(name)
        if arguments.part == "near":
            near(arguments.folder, work, clock)
        elif arguments.part == "overlap":
            overlap(arguments.folder, arguments.evaluation, clock)
        elif arguments.part == "exact":
            exact(arguments.documents, work, clock)
        else:
            candidates_at_scale(arguments.documents, work, clock)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    clock.rows.append(("peak memory", "", f"{peak:.0f} MiB"))
    columns = ["what", "CPU seconds", "result"]
    Console().print(table(f"Comparing documents: {arguments.part}", columns, clock.rows, right=[1]))


if __name__ == "__main__":
    main()
