import errno
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from filelock import FileLock, Timeout

from paribus.data.config import CorpusConfig, TokenizerConfig
from paribus.data.frozen import FrozenCorpus, open_frozen
from paribus.data.prepare import inventory, reading
from paribus.data.prepare.finished import record, recorded
from paribus.data.prepare.pipeline import prepare
from paribus.data.prepare.workers import Workers
from paribus.data.progress import Advance
from paribus.data.sources import open_source
from paribus.disk import whole
from paribus.errors import CorpusError
from paribus.seeds import generator

TOKENIZER = TokenizerConfig(vocabulary_size=300)
PHASES = ["read documents", "compare documents", "tokenizer", "test documents", "encode", "write train", "write test"]

LIMITED = """
import resource, signal, sys
from pathlib import Path
from paribus.data.config import CorpusConfig, TokenizerConfig
from paribus.data.prepare import inventory
from paribus.data.prepare.pipeline import prepare
from paribus.errors import StorageError

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]),) * 2)
inventory.LOT_BYTES = 1
config = CorpusConfig(kind="folder", folder=Path(sys.argv[1]), test_fraction=0.1, validation_fraction=0.1)
try:
    prepare(config, TokenizerConfig(vocabulary_size=300), Path(sys.argv[2]), name="rows", workers=2)
except StorageError as error:
    sys.stdout.write(str(error))
"""


def faults() -> Any:
    path = Path(__file__).parents[2] / "faults" / "kill_prepare.py"
    spec = importlib.util.spec_from_file_location("kill_prepare", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["kill_prepare"] = module
    spec.loader.exec_module(module)
    return module


def test_a_preparation_killed_at_random_moments_ends_in_the_same_files(folder: Path, tmp_path: Path):
    kill = faults()
    corpus = {"kind": "folder", "folder": str(folder), "test_fraction": 0.1, "validation_fraction": 0.1}
    setting = kill.Setting(corpus, {"file": None, "vocabulary_size": 300}, 3000, 2)
    expected, seconds = kill.undisturbed(setting, tmp_path / "undisturbed")
    kills = kill.kill_at_random(setting, tmp_path / "killed", expected, seconds, 2)
    assert sum(found.phase != "ended" for found in kills) == 2


@pytest.mark.parametrize("phase", PHASES)
def test_whatever_was_finished_is_not_done_again_and_the_rest_gives_the_same_files(
    phase: str, partly: Callable[[str], Path], config: CorpusConfig, prepared: FrozenCorpus
):
    partial = partly(phase)
    store = partial.parent
    with pytest.raises(CorpusError, match="no frozen corpus"):
        open_frozen(partial)
    marks = {path: path.stat().st_mtime_ns for path in (partial / "work").glob("*/*.json")}
    assert len(marks) >= PHASES.index(phase)
    kept: dict[Path, int] = {}

    def progress(advance: Advance) -> None:
        if advance.phase == "write test" and not kept:
            kept.update({path: path.stat().st_mtime_ns for path in marks})

    again = prepare(config, TOKENIZER, store, name="rows", progress=progress, workers=1)
    same = {path for path in marks if kept[path] == marks[path]}
    # Saving a tokenizer again costs nothing and is not avoided.
    assert {path.name for path in marks.keys() - same} <= {"tokenizer.json.json"}
    assert again.files == prepared.files
    assert [path.name for path in store.iterdir() if path.is_dir()] == [again.folder.name]


def test_a_working_file_that_was_torn_or_changed_is_made_again(
    partly: Callable[[str], Path], config: CorpusConfig, prepared: FrozenCorpus
):
    partial = partly("write test")
    draw = generator("tests", "prepare", "torn")
    files = sorted(path for path in (partial / "work").glob("*/*") if path.is_file() and path.stat().st_size)
    for path in draw.choice(files, size=25, replace=False):  # pyright: ignore[reportArgumentType, reportCallIssue]
        content = bytearray(path.read_bytes())
        if draw.random() < 0.5:
            path.write_bytes(content[: int(draw.integers(len(content)))])
        else:
            content[int(draw.integers(len(content)))] ^= 1
            path.write_bytes(content)
    assert prepare(config, TOKENIZER, partial.parent, name="rows", workers=1).files == prepared.files


def test_working_files_of_other_versions_are_not_used(
    partly: Callable[[str], Path], config: CorpusConfig, prepared: FrozenCorpus
):
    partial = partly("encode")
    planned = (partial / "work" / "plan.json").read_text()
    (partial / "work" / "plan.json").write_text(planned.replace("tokenizers", "tokenisers"))
    phases: list[int] = []

    def progress(advance: Advance) -> None:
        if advance.phase == "read documents" and advance.done == 0:
            phases.append(sum(1 for _ in (partial / "work").glob("*/*.json")))

    assert prepare(config, TOKENIZER, partial.parent, name="rows", progress=progress, workers=1).files == prepared.files
    assert phases == [0]


def test_a_shard_that_vanishes_is_named_and_putting_it_back_is_enough(
    prepared: FrozenCorpus, folder: Path, tmp_path: Path
):
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    declared = CorpusConfig(kind="folder", folder=copy, test_fraction=0.1, validation_fraction=0.1)

    def progress(advance: Advance) -> None:
        if advance.phase == "encode" and (copy / "shard_1.parquet").exists():
            (copy / "shard_1.parquet").rename(tmp_path / "away")

    with pytest.raises(CorpusError, match=r"shard_1\.parquet"):
        prepare(declared, TOKENIZER, tmp_path / "store", name="rows", progress=progress, workers=2)
    (tmp_path / "away").rename(copy / "shard_1.parquet")
    assert prepare(declared, TOKENIZER, tmp_path / "store", name="rows", workers=1).files == prepared.files


def test_texts_that_change_between_the_readings_are_an_error_even_where_no_size_changes(tmp_path: Path):
    texts = [f"text number {index:03d}" for index in range(200)]
    path = tmp_path / "in" / "a.parquet"
    path.parent.mkdir()

    def write(some: list[str]) -> None:
        pq.write_table(pa.table({"text": some}), path, compression="none", use_dictionary=False)

    def progress(advance: Advance) -> None:
        if advance.phase == "encode":
            write(texts[::-1])

    write(texts)
    declared = CorpusConfig(kind="folder", folder=path.parent)
    with pytest.raises(CorpusError, match=r"a\.parquet.* changed while the corpus was prepared"):
        prepare(declared, TOKENIZER, tmp_path / "store", name="a", progress=progress, workers=1)


# With 2 kB the first reading fails, with 9 kB the comparison of near duplicates.
@pytest.mark.parametrize("limit", [2_000, 9_000])
def test_a_disk_that_takes_no_more_is_a_storage_error_and_space_is_enough_to_go_on(
    limit: int, folder: Path, config: CorpusConfig, prepared: FrozenCorpus, tmp_path: Path
):
    store = tmp_path / "store"
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(folder), str(store), str(limit)], capture_output=True, text=True, check=True
    )
    assert "the corpus could not be written" in done.stdout, done.stderr
    assert "run the same command again" in done.stdout
    assert not list(store.glob("rows*"))
    assert prepare(config, TOKENIZER, store, name="rows", workers=1).files == prepared.files


def test_a_full_device_leaves_neither_the_file_nor_a_record(tmp_path: Path):
    aside = tmp_path / f".part.{os.getpid()}"
    aside.symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left") as error, whole(tmp_path / "part") as stream:
        stream.write(b"x" * 100_000)
    assert error.value.errno == errno.ENOSPC
    assert list(tmp_path.iterdir()) == []


def test_what_gets_its_name_is_on_the_disk_by_then(
    config: CorpusConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    flushed: set[Path] = set()
    named: list[Path] = []
    replace_path, rename_path = Path.replace, Path.rename

    def flush(descriptor: int) -> None:
        flushed.add(Path(f"/proc/self/fd/{descriptor}").readlink())

    def replacing(path: Path, target: Path) -> Path:
        assert path in flushed or path.parent == store  # where digests are remembered, which may be forgotten
        if target.suffix == ".json" and target.name not in ("plan.json", "tokenizer.json", ".digests.json"):
            assert target.parent in flushed  # a record, or the manifest: the entries of its files come first
        flushed.discard(target.parent)  # its entries have changed
        return replace_path(path, target)

    def renaming(path: Path, target: Path) -> Path:
        assert path in flushed
        named.append(target)
        flushed.discard(store)
        return rename_path(path, target)

    store = tmp_path.resolve() / "store"
    monkeypatch.setattr(os, "fsync", flush)
    monkeypatch.setattr(Path, "replace", replacing)
    monkeypatch.setattr(Path, "rename", renaming)
    frozen = prepare(config, TOKENIZER, store, name="rows", workers=1)
    assert named == [frozen.folder]
    assert store in flushed


def test_two_processes_at_once_prepare_one_corpus(folder: Path, tmp_path: Path, prepared: FrozenCorpus):
    kill = faults()
    corpus = {"kind": "folder", "folder": str(folder), "test_fraction": 0.1, "validation_fraction": 0.1}
    setting = kill.Setting(corpus, {"file": None, "vocabulary_size": 300}, 3000, 1)
    processes = [setting.start(tmp_path / "store") for _ in range(2)]
    outputs = [process.communicate(timeout=120)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert sorted("write test" in output for output in outputs) == [False, True]
    assert kill.only_corpus(tmp_path / "store").files == prepared.files


def test_a_record_holds_only_as_long_as_its_files_are_the_recorded_ones(tmp_path: Path):
    file, mark = tmp_path / "a", tmp_path / "a.json"
    assert recorded(mark) is None
    file.write_bytes(b"content")
    record(mark, [file], {"count": 3})
    assert recorded(mark) == {"count": 3}
    for content in (b"contents", b"Content", b""):
        file.write_bytes(content)
        assert recorded(mark) is None
    file.unlink()
    assert recorded(mark) is None
    file.write_bytes(b"content")
    assert recorded(mark) == {"count": 3}
    mark.write_bytes(mark.read_bytes()[:-5])
    assert recorded(mark) is None


def loaded_modules(shared: object, item: int) -> tuple[object, int, bool, str | None, int]:
    return shared, item, "torch" in sys.modules, os.environ.get("TOKENIZERS_PARALLELISM"), os.getpid()


def die(shared: object, item: int) -> None:
    del shared, item
    os.kill(os.getpid(), signal.SIGKILL)


def refuse(shared: object, item: int) -> None:
    del shared
    raise CorpusError("refused", received=str(item))


def test_workers_load_no_torch_and_have_one_thread_each(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    import test_interrupted as importable

    with Workers("shared", 2) as workers:
        found = dict(workers.run(importable.loaded_modules, range(8)))
    assert sorted(found) == list(range(8))
    assert all(found[item][:4] == ("shared", item, False, "false") for item in range(8))
    pids = {found[item][4] for item in range(8)}
    assert os.getpid() not in pids
    assert len(pids) <= 2
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_a_worker_that_dies_is_an_error_that_says_how_and_an_error_in_a_worker_is_raised_here(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    import test_interrupted as importable

    with pytest.raises(CorpusError, match=r"(?s)died.*SIGKILL.*what is finished is kept"), Workers(None, 2) as workers:
        list(workers.run(importable.die, range(4)))
    with pytest.raises(CorpusError, match=r"(?s)refused.*received: 0"), Workers(None, 2) as workers:
        list(workers.run(importable.refuse, [0]))


def test_processes_that_share_the_work_take_turns_with_large_documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(reading, "LARGE_BYTES", 100)
    texts = ["small", "large " * 30, "small too", "larger " * 40]
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"text": texts}), tmp_path / "in" / "a.parquet")
    corpus = CorpusConfig(kind="folder", folder=tmp_path / "in")
    source = open_source(corpus)
    work = inventory.Work(corpus, source, tmp_path, "a.parquet", in_turns=True)
    (lot,) = inventory.lots_of(source.pieces(), last_file_apart=False)

    def held() -> bool:
        try:
            with FileLock(tmp_path / "large.lock", timeout=0):
                return False
        except Timeout:
            return True

    def seen(work: inventory.Work) -> list[tuple[list[str], bool]]:
        return [([text.decode() for text in batch.texts], held()) for batch in reading.batches(work, lot)]

    # With what precedes it where that fits into a batch, and alone from there on.
    assert seen(work) == [(texts[:2], True), (texts[2:], True)]
    assert not held()
    assert [alone for _, alone in seen(replace(work, in_turns=False))] == [False, False]
    monkeypatch.setattr(reading, "LARGE_BYTES", 10_000)
    assert seen(work) == [(texts, False)]
