import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paribus.data import shards
from paribus.data.corpus import CorpusConfig, read_corpus
from paribus.data.frozen import token_type
from paribus.data.shards import FrozenCorpus, open_frozen, prepare
from paribus.data.split import SPLITS, split_of
from paribus.errors import CorpusError, StorageError

FILES = ["tokenizer.json", *(f"{split}.{ending}" for split in SPLITS for ending in ("tokens", "documents.parquet"))]

# Prepares a corpus in a process of its own; at the named phase it says so and waits to be killed.
PREPARE = """
import sys, time
from pathlib import Path
from paribus.data.corpus import CorpusConfig
from paribus.data.shards import prepare

def progress(phase, done, total):
    sys.stdout.write(phase + "\\n")
    sys.stdout.flush()
    if phase == sys.argv[3]:
        time.sleep(60)

config = CorpusConfig(kind="parquet", folder=Path(sys.argv[1]), test_fraction=0.1, validation_fraction=0.1)
sys.stdout.write(prepare(config, Path(sys.argv[2]), vocabulary_size=400, progress=progress).digest + "\\n")
"""


def start(parquet_folder: Path, folder: Path, stop_at: str = "never") -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PREPARE, str(parquet_folder), str(folder), stop_at]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.fixture
def copy(frozen: FrozenCorpus, tmp_path: Path) -> FrozenCorpus:
    shutil.copytree(frozen.folder, tmp_path / "copy")
    return open_frozen(tmp_path / "copy")


def test_frozen_tokens_decode_to_the_documents_of_their_split(frozen: FrozenCorpus, parquet_config: CorpusConfig):
    documents = {document.id: document for document in read_corpus(parquet_config).documents}
    tokenizer = frozen.tokenizer()
    seen: list[str] = []
    for name in SPLITS:
        file = frozen.split(name)
        table = file.documents
        assert table.offset.tolist() == (np.cumsum(table.tokens) - table.tokens).tolist()
        for index in range(len(table)):
            ids = file.tokens[table.offset[index] : table.offset[index] + table.tokens[index]]
            document = documents[str(table.id[index])]
            assert tokenizer.decode(ids) == document.text
            assert table.bytes[index] == len(document.text.encode()) == tokenizer.token_bytes()[ids].sum()
            assert frozen.sources[table.source[index]] == document.source
            assert split_of(document.text, test_fraction=0.1, validation_fraction=0.1) == name
            seen.append(document.id)
    assert sorted(seen) == sorted(documents)


def test_the_manifest_counts_what_the_files_hold(frozen: FrozenCorpus, random_texts: list[str]):
    assert frozen.sources == ("ash", "birch", "cedar")
    assert sum(counts.documents for counts in frozen.counts.values()) == len(random_texts)
    assert sum(counts.bytes for counts in frozen.counts.values()) == sum(len(text.encode()) for text in random_texts)
    for name in SPLITS:
        assert len(frozen.split(name).tokens) == frozen.counts[name].tokens
        assert frozen.split(name).tokens.dtype == np.uint16
    assert frozen.vocabulary_size == frozen.requested_vocabulary_size == 400
    assert sorted(path.name for path in frozen.folder.iterdir()) == sorted([*FILES, "manifest.json"])


def test_the_tokenizer_has_seen_the_training_split_only(tmp_path: Path, write_parquet):
    rest = [f"plain text number {index}" for index in range(300)]
    held_out = [text for text in (f"zq zq zq zq zq {index}" for index in range(400)) if split_of(text) == "test"]
    write_parquet(tmp_path / "in" / "a.parquet", rest + held_out)
    config = CorpusConfig(kind="parquet", folder=tmp_path / "in", near_duplicate_similarity=None)
    tokenizer = prepare(config, tmp_path / "out", vocabulary_size=300).tokenizer()
    (plain, zq) = tokenizer.encode_batch([" plain", "zq"])
    assert len(plain) < 6
    assert len(zq) == 2


def test_preparing_again_opens_the_finished_corpus_without_reading_documents(
    frozen: FrozenCorpus, parquet_config: CorpusConfig
):
    before = {path: path.stat().st_mtime_ns for path in frozen.folder.iterdir()}
    phases: list[str] = []
    again = prepare(parquet_config, frozen.folder, vocabulary_size=400, progress=lambda phase, *_: phases.append(phase))
    assert again == frozen == open_frozen(frozen.folder)
    assert phases == []
    assert {path: path.stat().st_mtime_ns for path in frozen.folder.iterdir()} == before


def test_the_same_documents_freeze_to_the_same_digest_elsewhere(
    frozen: FrozenCorpus, parquet_config: CorpusConfig, tmp_path: Path
):
    assert parquet_config.folder is not None
    moved = tmp_path / "moved"
    shutil.copytree(parquet_config.folder, moved)
    other = prepare(replace(parquet_config, folder=moved), tmp_path / "out", vocabulary_size=400)
    assert other.digest == frozen.digest
    assert other.files == frozen.files
    smaller = prepare(replace(parquet_config, folder=moved), tmp_path / "smaller", vocabulary_size=390)
    assert smaller.digest != frozen.digest


def test_the_frozen_tokens_do_not_depend_on_the_size_of_the_encoding_batches(
    frozen: FrozenCorpus, parquet_config: CorpusConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(shards, "_CHARACTERS_PER_BATCH", 300)
    assert prepare(parquet_config, tmp_path / "out", vocabulary_size=400).files == frozen.files


def test_the_digest_covers_values_of_the_document_table_and_not_how_they_were_written(copy: FrozenCorpus):
    path = copy.folder / "test.documents.parquet"
    pq.write_table(pq.read_table(path), path, compression="gzip")
    with pytest.raises(CorpusError, match=r"test\.documents\.parquet"):
        copy.verify()
    files = dict(copy.files) | {path.name: "0" * 64}
    assert replace(copy, files=files).digest == copy.digest
    assert replace(copy, index=dict(copy.index) | {"test": "0" * 64}).digest != copy.digest


@pytest.mark.parametrize("name", ["tokenizer.json", *(f"{split}.tokens" for split in SPLITS)])
def test_the_digest_covers_the_tokenizer_and_the_tokens_of_every_split(frozen: FrozenCorpus, name: str):
    assert replace(frozen, files=dict(frozen.files) | {name: "0" * 64}).digest != frozen.digest


@pytest.mark.parametrize("name", FILES)
def test_a_changed_byte_in_any_file_is_found_and_the_file_named(copy: FrozenCorpus, name: str):
    copy.verify()
    path = copy.folder / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(CorpusError) as error:
        copy.verify()
    assert name in error.value.what
    assert copy.files[name] in error.value.expected
    assert "digest" in error.value.received
    assert "restore" in error.value.remedy


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_found_and_named(copy: FrozenCorpus, name: str):
    (copy.folder / name).unlink()
    with pytest.raises(CorpusError, match=name.replace(".", r"\.")):
        copy.verify()


def test_a_truncated_token_file_is_refused_on_opening_the_split(copy: FrozenCorpus):
    path = copy.folder / "train.tokens"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CorpusError, match=r"train\.tokens"):
        copy.split("train")


def test_a_split_name_with_a_typing_error_gets_the_nearest_name(frozen: FrozenCorpus):
    with pytest.raises(CorpusError, match="did you mean 'validation'"):
        frozen.split("validaton")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("damage", ["text", "list", "version", "field", "digest"])
def test_a_damaged_manifest_is_refused(copy: FrozenCorpus, damage: str):
    path = copy.folder / "manifest.json"
    content = json.loads(path.read_text())
    if damage == "version":
        content["format_version"] = 99
    if damage == "field":
        del content["sources"]
    if damage == "digest":
        content["files"]["train.tokens"] = "0" * 64
    path.write_text({"text": "{", "list": "[]"}.get(damage, json.dumps(content)))
    with pytest.raises(CorpusError, match=r"manifest\.json"):
        open_frozen(copy.folder)


def test_a_folder_that_holds_something_else_is_left_alone(tmp_path: Path, parquet_config: CorpusConfig):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("precious")
    with pytest.raises(CorpusError, match=r"without manifest\.json"):
        prepare(parquet_config, tmp_path / "mine", vocabulary_size=400)
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "precious"


def test_another_declaration_for_a_frozen_corpus_is_refused_naming_the_fields(
    frozen: FrozenCorpus, parquet_config: CorpusConfig
):
    with pytest.raises(CorpusError, match=r"(?s)test_fraction = 0\.1\n.*test_fraction = 0\.2.*new name"):
        prepare(replace(parquet_config, test_fraction=0.2), frozen.folder, vocabulary_size=400)
    with pytest.raises(CorpusError, match=r"(?s)vocabulary_size = 400\n.*vocabulary_size = 500"):
        prepare(parquet_config, frozen.folder, vocabulary_size=500)


def test_source_files_that_changed_since_freezing_are_an_error_with_a_remedy(tmp_path: Path, write_parquet):
    texts = [f"text number {index}" for index in range(300)]
    path = write_parquet(tmp_path / "in" / "a.parquet", texts)
    config = CorpusConfig(kind="parquet", folder=path.parent)
    prepare(config, tmp_path / "out", vocabulary_size=270)
    write_parquet(path, [*texts, "one more"])
    with pytest.raises(CorpusError, match="restore the files, or give the study a new name"):
        prepare(config, tmp_path / "out", vocabulary_size=270)


def test_local_docs_stay_frozen_when_the_packages_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    package = tmp_path / "site" / "documented"
    package.mkdir(parents=True)
    for index in range(200):
        (package / f"m{index}.py").write_text(f'"""{" ".join(f"w{index}x{word}" for word in range(80))}"""\n')
    monkeypatch.syspath_prepend(str(package.parent))
    config = CorpusConfig(packages=("documented",))
    frozen = prepare(config, tmp_path / "out", vocabulary_size=300)
    assert frozen.source_digest is None
    assert frozen.versions == {"documented": "unknown"}
    assert sum(counts.documents for counts in frozen.counts.values()) == 200
    (package / "m0.py").write_text('"""Something else entirely."""\n')
    assert prepare(config, tmp_path / "out", vocabulary_size=300) == frozen


def test_an_empty_split_is_an_error_that_names_it(tmp_path: Path, write_parquet):
    write_parquet(tmp_path / "in" / "a.parquet", ["one text", "another one"])
    with pytest.raises(CorpusError, match=r"(?s)(validation|test) split is empty.*_fraction"):
        prepare(CorpusConfig(kind="parquet", folder=tmp_path / "in"), tmp_path / "out", vocabulary_size=300)
    assert not (tmp_path / "out").exists()


def test_a_split_of_fraction_zero_is_empty_and_readable(tmp_path: Path, write_parquet):
    write_parquet(tmp_path / "in" / "a.parquet", [f"text {index}" for index in range(50)])
    config = CorpusConfig(kind="parquet", folder=tmp_path / "in", test_fraction=0.2, validation_fraction=0)
    frozen = prepare(config, tmp_path / "out", vocabulary_size=260)
    frozen.verify()
    assert len(frozen.split("validation").tokens) == len(frozen.split("validation").documents) == 0


def test_sixteen_bits_hold_the_ids_up_to_65536_of_them():
    assert token_type(65536) == np.uint16
    assert token_type(65537) == np.uint32


@pytest.mark.parametrize("phase", ["train the tokenizer", "encode train", "encode test", "move into place"])
def test_a_killed_preparation_leaves_nothing_that_is_accepted_and_the_next_one_succeeds(
    phase: str, parquet_folder: Path, tmp_path: Path, frozen: FrozenCorpus, parquet_config: CorpusConfig
):
    folder = tmp_path / "corpus"
    with start(parquet_folder, folder, phase) as process:
        assert process.stdout is not None
        assert phase in (line.strip() for line in process.stdout)
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert not folder.exists()
    assert any(path.is_dir() for path in tmp_path.iterdir()), "the process died before it wrote anything"
    with pytest.raises(CorpusError, match="no frozen corpus"):
        open_frozen(folder)
    recovered = prepare(parquet_config, folder, vocabulary_size=400)
    recovered.verify()
    assert recovered.digest == frozen.digest
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["corpus"]


def test_two_processes_at_once_prepare_one_corpus(parquet_folder: Path, tmp_path: Path, frozen: FrozenCorpus):
    processes = [start(parquet_folder, tmp_path / "corpus") for _ in range(2)]
    outputs = [process.communicate(timeout=60)[0].splitlines() for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert {output[-1] for output in outputs} == {frozen.digest}
    assert sorted("move into place" in output for output in outputs) == [False, True]


def test_a_full_disk_is_a_storage_error_and_leaves_nothing_behind(
    tmp_path: Path, parquet_config: CorpusConfig, monkeypatch: pytest.MonkeyPatch
):
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(StorageError, match=r"(?s)No space left.*free space"):
        prepare(parquet_config, tmp_path / "corpus", vocabulary_size=400)
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]


@pytest.mark.shared_data
def test_a_shard_of_real_text_freezes_whole_and_planted_near_duplicates_are_found(tmp_path: Path, write_parquet):
    shard = Path(__file__).parents[3] / "shared" / "data" / "pretrain" / "textmix" / "shard_00006.parquet"
    if not shard.is_file():
        pytest.skip("the real text is absent: expected ../shared/data/pretrain/textmix beside the repository")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.parquet").symlink_to(shard)
    table: pa.Table = pq.read_table(shard, columns=["text"])
    long = [text for text in table["text"].to_pylist() if len(text.split()) > 100]
    write_parquet(tmp_path / "in" / "planted.parquet", [text + " And one sentence more." for text in long[::20]])
    frozen = prepare(CorpusConfig(kind="parquet", folder=tmp_path / "in"), tmp_path / "out", vocabulary_size=512)
    frozen.verify()
    assert frozen.dropped["near_duplicates"] == len(long[::20]) > 50
    assert sum(counts.documents for counts in frozen.counts.values()) == len(table)
    assert len(frozen.sources) == 8
    sizes = frozen.tokenizer().token_bytes()
    for name in SPLITS:
        assert sizes[frozen.split(name).tokens].sum() == frozen.counts[name].bytes
