import hashlib
import importlib.util
import shutil
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paribus.data.config import CorpusConfig, TokenizerConfig
from paribus.data.frozen import FrozenCorpus, index_digest, open_frozen
from paribus.data.marks import NOT_CHECKED
from paribus.data.prepare import inventory
from paribus.data.prepare.pipeline import prepare
from paribus.data.progress import Advance
from paribus.data.split import SPLITS, split_of
from paribus.data.tokenizer import Tokenizer
from paribus.errors import CorpusError
from paribus.seeds import generator

TOKENIZER = TokenizerConfig(vocabulary_size=300)
Row = tuple[str | None, str | None, str | None]

FROZEN_BEFORE = {
    "tokenizer.json": "6fc1397876969fd44df32d9d4e99264c28c7f7dc95958db053e1df18e515beb8",
    "train.tokens": "370f20bd98fbdd509797778d5921eb7f8cdf82280b808276d0fd086db424c7d0",
    "validation.tokens": "f5d4707c875a4950ab02c53fa303cf08fcade5fdce38f0a8f8ff3c05122af718",
    "test.tokens": "aa997aa152fea04635493b6f09df5111fb1e9132bcce1816866912dc065ee015",
}
"""what the first version of paribus, which read a whole corpus into memory, wrote for `local_tree.write_packages`"""


def write(path: Path, texts: Sequence[str | None], **more: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"text": pa.array(texts, pa.string()), **more}), path, row_group_size=50)
    return path


def texts_of(frozen: FrozenCorpus) -> dict[str, list[str]]:
    """Every split's documents, decoded, in order."""
    tokenizer = frozen.tokenizer()
    found = {}
    for name in SPLITS:
        file = frozen.split(name)
        ends = file.documents.offset + file.documents.tokens
        found[name] = [
            tokenizer.decode(file.tokens[begin:end]) for begin, end in zip(file.documents.offset, ends, strict=True)
        ]
    return found


def test_every_text_that_is_no_repeat_is_frozen_once_in_its_split_in_the_order_of_the_files(
    prepared: FrozenCorpus, all_rows: list[Row]
):
    texts = [text for text, _, _ in all_rows if text is not None and text.strip()]
    distinct = list(dict.fromkeys(texts))
    found = texts_of(prepared)
    assert sum(map(len, found.values())) == len(distinct) - prepared.dropped["near_duplicates"]
    for name in SPLITS:
        of_split = [text for text in distinct if split_of(text, test_fraction=0.1, validation_fraction=0.1) == name]
        # An earlier near duplicate may be of another split, so a text may be missing, but never out of order.
        places = [of_split.index(text) for text in found[name]]
        assert places == sorted(places)
        assert len(found[name]) > 10
    stems = [text.removesuffix(" and more") for of_split in found.values() for text in of_split]
    assert len(stems) == len(set(stems))
    assert set(stems) == {text.removesuffix(" and more") for text in distinct}


def test_what_is_dropped_is_counted_by_reason(prepared: FrozenCorpus, all_rows: list[Row]):
    texts = Counter(text for text, _, _ in all_rows if text is not None and text.strip())
    assert prepared.dropped["exact_duplicates"] == sum(texts.values()) - len(texts) == 20
    # All 20 share more than 0.9 of their shingles with their originals.
    assert prepared.dropped["near_duplicates"] == 20
    assert prepared.dropped["null"] == 2
    assert prepared.dropped["empty"] == 3
    assert sum(prepared.dropped.values()) + sum(counts.documents for counts in prepared.counts.values()) == len(
        all_rows
    )


def test_the_manifest_says_what_the_files_hold(prepared: FrozenCorpus, folder: Path, config: CorpusConfig):
    prepared.verify()
    sizes = prepared.tokenizer().token_bytes()
    for name in SPLITS:
        file, counts = prepared.split(name), prepared.counts[name]
        documents = file.documents
        assert len(file.tokens) == counts.tokens == documents.tokens.sum()
        assert sizes[file.tokens].sum() == counts.bytes == documents.bytes.sum()
        assert len(documents) == counts.documents
        assert documents.offset.tolist() == (np.cumsum(documents.tokens) - documents.tokens).tolist()
        for text, id_ in zip(texts_of(prepared)[name], documents.id, strict=True):
            assert id_ == hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
        table = pq.read_table(prepared.folder / f"{name}.documents.parquet")
        assert prepared.index[name] == index_digest(table)
    assert prepared.sources == ("ash", "birch", "shard_0", "shard_1", "shard_2")
    assert prepared.bos_id == 0
    assert [file.name for file in prepared.source_files] == [f"shard_{number}.parquet" for number in range(3)]
    for file in prepared.source_files:
        content = (folder / file.name).read_bytes()
        assert (file.bytes, file.digest) == (len(content), hashlib.blake2b(content, digest_size=32).hexdigest())
    assert prepared.config == config.as_json()
    assert prepared.tokenizer_config == TOKENIZER.as_json()
    assert sorted(path.name for path in prepared.folder.iterdir()) == sorted([*prepared.files, "manifest.json"])


def test_the_mark_of_a_test_document_says_whether_it_shares_thirteen_words_with_the_training_texts(
    prepared: FrozenCorpus,
):
    def grams(text: str) -> set[tuple[str, ...]]:
        words = "".join(character if character.isalnum() else " " for character in text.lower()).split()
        return {tuple(words[place : place + 13]) for place in range(len(words) - 12)}

    found = texts_of(prepared)
    trained = set().union(*map(grams, found["train"]))
    expected = [int(not grams(text) & trained) for text in found["test"]]
    documents = prepared.split("test").documents
    assert documents.overlap_free is not None
    assert documents.overlap_free.tolist() == expected
    assert prepared.overlap == {"free": sum(expected), "shared": expected.count(0), "not_checked": 0}
    assert NOT_CHECKED not in expected
    assert prepared.split("train").documents.overlap_free is None


def test_a_test_document_that_repeats_part_of_a_training_text_is_marked(tmp_path: Path):
    draw = generator("tests", "prepare", "shared passage")
    texts = [" ".join(map(str, draw.integers(10**6, size=60))) for _ in range(120)]
    passage = " ".join(map(str, range(1000, 1013)))
    train = next(place for place, text in enumerate(texts) if split_of(f"{text} {passage}") == "train")
    test = next(place for place, text in enumerate(texts) if split_of(f"{passage} {text}") == "test")
    texts[train], texts[test] = f"{texts[train]} {passage}", f"{passage} {texts[test]}"
    write(tmp_path / "in" / "a.parquet", list(texts))
    frozen = prepare(
        CorpusConfig(kind="folder", folder=tmp_path / "in"), TOKENIZER, tmp_path / "store", name="a", workers=1
    )
    marked = frozen.split("test").documents.overlap_free
    assert marked is not None
    assert [text.startswith(passage) for text in texts_of(frozen)["test"]] == (marked == 0).tolist()
    assert frozen.overlap["shared"] == 1


@pytest.mark.parametrize("lot_bytes", [1, 3000, 10**9])
def test_no_byte_of_the_tokens_depends_on_the_size_of_the_lots(
    prepared: FrozenCorpus, config: CorpusConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lot_bytes: int
):
    monkeypatch.setattr(inventory, "LOT_BYTES", lot_bytes)
    assert prepare(config, TOKENIZER, tmp_path, name="other", workers=1).digest == prepared.digest


def test_no_byte_depends_on_the_number_of_workers(prepared: FrozenCorpus, config: CorpusConfig, tmp_path: Path):
    shared = prepare(config, TOKENIZER, tmp_path, name="rows", workers=2)
    assert shared.files == prepared.files
    assert shared == replace(prepared, folder=shared.folder)


def test_no_byte_of_the_tokens_depends_on_the_size_of_blocks_and_batches(
    prepared: FrozenCorpus, config: CorpusConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from paribus.data.prepare import encode, reading

    for module in (inventory, reading, encode):
        monkeypatch.setattr(module, "DOCUMENTS_PER_BLOCK", 7)
    monkeypatch.setattr("paribus.data.prepare.kept.DOCUMENTS_PER_BLOCK", 7)
    monkeypatch.setattr(reading, "BATCH_BYTES", 500)
    monkeypatch.setattr(reading, "LARGE_BYTES", 800)
    monkeypatch.setattr(encode, "BATCH_BYTES", 300)
    assert prepare(config, TOKENIZER, tmp_path, name="other", workers=1).digest == prepared.digest


def test_preparing_again_opens_what_is_there(prepared: FrozenCorpus, config: CorpusConfig):
    before = {path: path.stat().st_mtime_ns for path in prepared.folder.iterdir()}
    phases: list[str] = []
    again = prepare(
        config,
        TOKENIZER,
        prepared.folder.parent,
        name="rows",
        progress=lambda advance: phases.append(advance.phase),
    )
    assert again == prepared == open_frozen(prepared.folder)
    assert set(phases) == {"digests of the files"}
    assert {path: path.stat().st_mtime_ns for path in prepared.folder.iterdir()} == before


def test_another_declaration_or_file_is_another_folder_and_another_place_is_not(
    prepared: FrozenCorpus, config: CorpusConfig, folder: Path, tmp_path: Path
):
    store = prepared.folder.parent
    for other in (replace(config, test_fraction=0.11), replace(config, near_duplicate_similarity=None)):
        assert prepare(other, TOKENIZER, store, name="rows", workers=1).folder != prepared.folder
    assert (
        prepare(config, TokenizerConfig(vocabulary_size=299), store, name="rows", workers=1).folder != prepared.folder
    )
    moved = tmp_path / "moved"
    shutil.copytree(folder, moved)
    assert prepare(replace(config, folder=moved), TOKENIZER, store, name="rows").folder == prepared.folder
    (moved / "shard_0.parquet").rename(moved / "shard_9.parquet")
    assert prepare(replace(config, folder=moved), TOKENIZER, store, name="rows", workers=1).folder != prepared.folder


def test_a_tokenizer_that_is_loaded_counts_by_its_content(prepared: FrozenCorpus, config: CorpusConfig, tmp_path: Path):
    learnt = prepared.folder / "tokenizer.json"
    copy = tmp_path / "copy.json"
    shutil.copy(learnt, copy)
    first = prepare(config, TokenizerConfig(file=learnt), tmp_path / "store", name="rows", workers=1)
    second = prepare(config, TokenizerConfig(file=copy), tmp_path / "store", name="rows", workers=1)
    assert first == second
    assert first.tokenizer_config["digest"] == Tokenizer.load(learnt).digest
    assert first.digest == prepared.digest
    assert first.key != prepared.key


def test_documentation_of_packages_freezes_to_the_bytes_of_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = Path(__file__).with_name("local_tree.py")
    spec = importlib.util.spec_from_file_location("local_tree", path)
    assert spec is not None
    assert spec.loader is not None
    tree = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tree)
    names = tree.write_packages(tmp_path / "site")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    config = CorpusConfig(packages=names, test_fraction=0.1, validation_fraction=0.1)
    tokenizer = TokenizerConfig(vocabulary_size=350)
    frozen = prepare(config, tokenizer, tmp_path / "store", name="local", workers=2)
    assert {name: frozen.files[name] for name in FROZEN_BEFORE} == FROZEN_BEFORE
    assert {name: counts.documents for name, counts in frozen.counts.items()} == {
        "train": 80,
        "validation": 12,
        "test": 9,
    }
    assert {reason: count for reason, count in frozen.dropped.items() if count} == {
        "near_duplicates": 1,
        "unreadable_file": 2,
        "too_short": 1,
    }
    assert frozen.versions == dict.fromkeys(names, "unknown")
    assert frozen.source_files == ()
    # The packages may change; the copy stays.
    (tmp_path / "site" / names[0] / "m02.py").write_text('"""Something else entirely."""\n')
    assert prepare(config, tokenizer, tmp_path / "store", name="local") == frozen
    for module in [module for module in sys.modules if module.startswith(names)]:
        del sys.modules[module]


def test_training_documents_that_share_thirteen_words_with_an_evaluation_set_are_dropped(
    tmp_path: Path, all_rows: list[Row], config: CorpusConfig, prepared: FrozenCorpus
):
    found = texts_of(prepared)
    long = [text for text in found["train"] if len(text.split()) > 40][:4]
    held = [text for text in found["test"] if len(text.split()) > 40][:1]
    (tmp_path / "sets").mkdir()
    for name, text in (("one", long[0]), ("two", long[1]), ("three", held[0])):
        (tmp_path / "sets" / f"{name}.txt").write_text(" ".join(text.split()[5:30]), encoding="utf-8")
    declared = replace(config, decontaminate=(tmp_path / "sets",))
    frozen = prepare(declared, TOKENIZER, tmp_path / "store", name="rows", workers=1)
    assert frozen.dropped["contaminated"] == 2
    assert frozen.key != prepared.key
    again = texts_of(frozen)
    assert set(found["train"]) - set(again["train"]) == set(long[:2])
    assert again["test"] == found["test"]
    # With its repeats, which are dropped for another reason.
    texts = [text or "" for text, _, _ in all_rows]
    expected = {
        f"{name}.txt": sum(" ".join(text.split()[5:30]) in other for other in texts)
        for name, text in (("one", long[0]), ("two", long[1]), ("three", held[0]))
    }
    assert dict(frozen.contaminated_by) == expected
    (tmp_path / "sets" / "one.txt").write_text("other words", encoding="utf-8")
    assert prepare(declared, TOKENIZER, tmp_path / "store", name="rows", workers=1).key != frozen.key


def test_the_last_file_is_the_validation_split_where_that_is_declared(
    config: CorpusConfig, tmp_path: Path, folder: Path
):
    declared = replace(config, held_out="last-file", near_duplicate_similarity=None)
    frozen = prepare(declared, TOKENIZER, tmp_path, name="rows", workers=1)
    table = pq.read_table(folder / "shard_2.parquet")
    texts = [text for text in table["text"].to_pylist() if text and text.strip()]
    found = texts_of(frozen)
    assert found["validation"] == list(dict.fromkeys(texts))
    assert not set(found["validation"]) & {*found["train"], *found["test"]}
    assert len(found["test"]) > 5


def test_a_host_and_a_cluster_of_near_duplicates_are_kept_in_one_split(
    config: CorpusConfig, tmp_path: Path, all_rows: list[Row]
):
    host = {text: (url or "").removeprefix("https://www.").split("/")[0] for text, _, url in all_rows}
    by_host = prepare(replace(config, split_by="host"), TOKENIZER, tmp_path, name="host", workers=1)
    found = texts_of(by_host)
    hosts = {name: {host[text] for text in texts} for name, texts in found.items()}
    assert not hosts["train"] & hosts["test"]
    assert not hosts["train"] & hosts["validation"]
    assert not hosts["validation"] & hosts["test"]
    declared = replace(config, split_by="minhash-cluster", near_duplicate_similarity=None)
    by_cluster = texts_of(prepare(declared, TOKENIZER, tmp_path, name="cluster", workers=1))
    split = {text: name for name, texts in by_cluster.items() for text in texts}
    pairs = [(text.removesuffix(" and more"), text) for text in split if text.endswith(" and more")]
    assert len(pairs) == 20
    assert all(split[one] == split[other] for one, other in pairs)
    assert len({split[one] for one, _ in pairs}) > 1


def test_progress_counts_every_document_and_token(config: CorpusConfig, tmp_path: Path):
    seen: list[Advance] = []
    frozen = prepare(config, TOKENIZER, tmp_path, name="rows", progress=seen.append, workers=1)
    last = {advance.phase: advance for advance in seen}
    assert last["read documents"].done == last["read documents"].total > 0
    assert last["read documents"].documents == 300
    assert last["encode"].tokens == sum(counts.tokens for counts in frozen.counts.values())
    assert last["encode"].bytes == sum(counts.bytes for counts in frozen.counts.values())


def test_an_empty_corpus_and_an_empty_split_are_errors_that_say_so(tmp_path: Path):
    write(tmp_path / "in" / "a.parquet", [None, " ", None])
    declared = CorpusConfig(kind="folder", folder=tmp_path / "in")
    with pytest.raises(CorpusError, match=r"(?s)the corpus is empty.*null"):
        prepare(declared, TOKENIZER, tmp_path / "store", name="a", workers=1)
    write(tmp_path / "in" / "a.parquet", ["one text", "another one"])
    with pytest.raises(CorpusError, match=r"(?s)(validation|test) split is empty.*_fraction.*0\.3 for test and 0\.3"):
        prepare(declared, TOKENIZER, tmp_path / "store", name="a", workers=1)
    write(tmp_path / "in" / "b.parquet", ["one text"])
    last = replace(declared, held_out="last-file", test_fraction=0)
    write(tmp_path / "in" / "b.parquet", [None])
    with pytest.raises(CorpusError, match=r"(?s)validation split is empty.*hold out another last file"):
        prepare(last, TOKENIZER, tmp_path / "store", name="a", workers=1)


def test_documents_without_a_host_are_counted_and_a_corpus_of_nothing_else_is_refused(tmp_path: Path):
    texts = [f"text number {index} of some" for index in range(90)]
    urls = [None if index % 3 == 0 else f"https://host{index}.org/a" for index in range(90)]
    write(tmp_path / "in" / "a.parquet", [*texts, None], url=[*urls, None])
    config = CorpusConfig(kind="folder", folder=tmp_path / "in", split_by="host", near_duplicate_similarity=None)
    config = replace(config, test_fraction=0.2, validation_fraction=0.2)
    frozen = prepare(config, TOKENIZER, tmp_path / "store", name="a", workers=1)
    assert open_frozen(frozen.folder).hostless == frozen.hostless == 30
    by_text = replace(config, split_by="document")
    assert prepare(by_text, TOKENIZER, tmp_path / "store", name="a", workers=1).hostless == 0
    write(tmp_path / "in" / "a.parquet", texts[:2], url=pa.array([None, None], pa.string()))
    with pytest.raises(CorpusError, match=r"(?s)no document has a web address.*2 documents.*url_column"):
        prepare(config, TOKENIZER, tmp_path / "store", name="a", workers=1)


def test_a_split_of_fraction_zero_is_empty_and_readable(tmp_path: Path):
    write(tmp_path / "in" / "a.parquet", [f"text {index}" for index in range(50)])
    config = CorpusConfig(kind="folder", folder=tmp_path / "in", test_fraction=0.2, validation_fraction=0)
    frozen = prepare(config, TokenizerConfig(vocabulary_size=260), tmp_path / "store", name="a", workers=1)
    frozen.verify()
    assert len(frozen.split("validation").tokens) == len(frozen.split("validation").documents) == 0


def test_the_tokenizer_has_seen_the_training_split_only(tmp_path: Path):
    rest = [f"plain text number {index}" for index in range(300)]
    held_out = [text for text in (f"zq zq zq zq zq {index}" for index in range(400)) if split_of(text) == "test"]
    write(tmp_path / "in" / "a.parquet", [*rest, *held_out])
    config = CorpusConfig(kind="folder", folder=tmp_path / "in", near_duplicate_similarity=None)
    tokenizer = prepare(config, TOKENIZER, tmp_path / "store", name="a", workers=1).tokenizer()
    (plain, zq) = tokenizer.encode_batch([" plain", "zq"])
    assert len(plain) < 6
    assert len(zq) == 2


def test_a_document_that_cannot_be_cut_is_an_error_or_counted(tmp_path: Path):
    texts: list[str | None] = [f"text number {index}" for index in range(200)]
    endless = next("a" * size for size in range(1_100_000, 1_200_000) if split_of("a" * size) == "test")
    write(tmp_path / "in" / "a.parquet", [*texts, endless])
    declared = CorpusConfig(kind="folder", folder=tmp_path / "in")
    tokenizer = TokenizerConfig(vocabulary_size=270)
    with pytest.raises(CorpusError, match=r"(?s)a: document [0-9a-f]{32}: .*run of more than.*bad_documents"):
        prepare(declared, tokenizer, tmp_path / "store", name="a", workers=1)
    frozen = prepare(replace(declared, bad_documents="skip"), tokenizer, tmp_path / "store", name="a", workers=1)
    frozen.verify()
    assert frozen.dropped["uncuttable"] == 1
    assert sum(counts.documents for counts in frozen.counts.values()) == 200
    marked = frozen.split("test").documents.overlap_free
    assert marked is not None
    assert len(marked) == frozen.counts["test"].documents


@pytest.mark.parametrize("name", ["", ".hidden", "a/b"])
def test_a_name_that_cannot_be_a_folders_is_refused(config: CorpusConfig, tmp_path: Path, name: str):
    with pytest.raises(CorpusError, match="a name that can be a folder's"):
        prepare(config, TOKENIZER, tmp_path, name=name)
