import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock

from paribus.data import store
from paribus.data.config import HubFiles
from paribus.data.store import clean, find_prepared, hub_folder, plan_cleaning, store_of, stored, told_apart
from paribus.errors import CorpusError

COMMIT = "0123456789abcdef0123456789abcdef01234567"
Fill = Callable[..., Path]


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return tmp_path / "runs"


@pytest.fixture
def corpus(runs: Path) -> Fill:
    """A folder that looks like a prepared corpus of 1,000 bytes of tokens, and one that was made from the hub."""

    def fill(name: str, hub: dict[str, str] | None = None) -> Path:
        folder = store_of(runs) / name
        folder.mkdir(parents=True)
        counts = {split: {"documents": 2, "tokens": 100, "bytes": 300} for split in ("train", "validation", "test")}
        manifest = {"counts": counts, "digest": "d" * 64, "config": {"hub": hub}}
        (folder / "manifest.json").write_text(json.dumps(manifest))
        (folder / "train.tokens").write_bytes(bytes(1000))
        return folder

    return fill


@pytest.fixture
def partial(runs: Path) -> Fill:
    """A folder that looks like a preparation that was stopped."""

    def fill(name: str) -> Path:
        folder = store_of(runs) / f".{name}.partial" / "work" / "scan"
        folder.mkdir(parents=True)
        (folder / "00000.ids").write_bytes(bytes(500))
        (store_of(runs) / f".{name}.lock").touch()
        return folder.parents[1]

    return fill


@pytest.fixture
def fetched(runs: Path) -> Fill:
    """Files that look as if fetched from a repository."""

    def fill(repository: str) -> Path:
        folder = hub_folder(store_of(runs), HubFiles(repository, COMMIT))
        folder.mkdir(parents=True)
        (folder / "shard.parquet").write_bytes(bytes(2000))
        (folder / ".paribus-hub.json").write_text(json.dumps({"repository": repository, "revision": COMMIT}))
        return folder

    return fill


def used(runs: Path, study: str, corpus: str) -> None:
    (runs / study).mkdir(parents=True)
    (runs / study / "corpus.json").write_text(json.dumps({"corpus": corpus, "digest": "d" * 64}))


def test_an_absent_store_holds_nothing_and_is_not_made(runs: Path):
    assert stored(runs) == ()
    assert plan_cleaning(runs).going == ()
    assert not runs.exists()


def test_everything_in_the_store_is_listed_with_its_size_and_its_users(
    runs: Path, corpus: Fill, partial: Fill, fetched: Fill
):
    folder = corpus("mix-0123456789ab")
    partial("half-0123456789ab")
    fetched("owner/texts")
    (store_of(runs) / ".digests.json").write_text("{}")
    used(runs, "study", "mix-0123456789ab")
    used(runs, "tunnel/set", "mix-0123456789ab")
    found = stored(runs)
    assert [(each.kind, each.name) for each in found] == [
        ("corpus", "mix-0123456789ab"),
        ("partial", "half-0123456789ab"),
        ("files", "hub/owner--texts-0123456789ab"),
    ]
    mix, half, files = found
    assert mix.bytes == 1000 + (folder / "manifest.json").stat().st_size
    assert (mix.documents, mix.tokens, mix.digest) == (6, 300, "d" * 64)
    assert mix.studies == ("study", "tunnel/set")
    assert half.bytes == 500
    assert files.made_of == "owner/texts at 0123456789ab"


def test_a_corpus_is_found_by_its_folder_and_by_its_name_where_that_is_unique(runs: Path, corpus: Fill):
    one = corpus("mix-0123456789ab")
    corpus("web-0123456789ab")
    other = corpus("web-ba9876543210")
    assert find_prepared(runs, "mix") == one
    assert find_prepared(runs, "web-ba9876543210") == other
    with pytest.raises(CorpusError, match="several prepared corpora are called web"):
        find_prepared(runs, "web")
    with pytest.raises(CorpusError, match="did you mean 'mix-0123456789ab'"):
        find_prepared(runs, "mix-0123456789ac")


def test_planning_deletes_nothing_and_deleting_leaves_what_a_study_uses(
    runs: Path, corpus: Fill, partial: Fill, fetched: Fill
):
    hub = {"repository": "owner/texts", "revision": COMMIT}
    needed, files = corpus("mix-0123456789ab", hub), fetched("owner/texts")
    unused, half, others = corpus("web-0123456789ab"), partial("half-0123456789ab"), fetched("owner/others")
    used(runs, "study", "mix-0123456789ab")
    plan = plan_cleaning(runs)
    assert {each.path for each in plan.going} == {unused, half, others}
    assert {kept.stored.path: kept.why for kept in plan.kept} == {
        needed: "used by study",
        files: "a corpus that a study uses was made of it",
    }
    assert all(path.exists() for path in (needed, files, unused, half, others))
    done = clean(runs)
    assert done.bytes == plan.bytes > 3000
    assert [path.exists() for path in (needed, files, unused, half, others)] == [True, True, False, False, False]
    assert clean(runs).going == ()


def test_a_preparation_that_is_running_is_never_deleted(runs: Path, partial: Fill):
    half = partial("half-0123456789ab")
    with FileLock(store_of(runs) / ".half-0123456789ab.lock"):
        (found,) = stored(runs)
        assert found.held
        done = clean(runs)
        assert done.going == ()
        assert done.kept[0].why == "a process is writing it"
    assert half.exists()
    assert clean(runs).going[0].path == half
    assert not half.exists()


def test_a_fetch_that_is_running_is_never_deleted(runs: Path, fetched: Fill):
    folder = fetched("owner/texts")
    with FileLock(folder / ".paribus-hub.lock"):
        assert clean(runs).going == ()
    assert clean(runs).going[0].path == folder
    assert not folder.exists()


def test_a_corpus_that_came_into_use_after_the_plan_is_kept(runs: Path, corpus: Fill, monkeypatch: pytest.MonkeyPatch):
    first, second = corpus("a-0123456789ab"), corpus("b-0123456789ab")
    delete = store._delete

    def delete_and_begin_a_study(path: Path) -> None:
        delete(path)
        used(runs, "study", "b-0123456789ab")

    monkeypatch.setattr(store, "_delete", delete_and_begin_a_study)
    done = clean(runs)
    assert [each.path for each in done.going] == [first]
    assert [(kept.stored.path, kept.why) for kept in done.kept] == [(second, "it has just come into use")]
    assert second.exists()


def test_a_lock_taken_between_plan_and_deletion_keeps_the_folder(
    runs: Path, partial: Fill, monkeypatch: pytest.MonkeyPatch
):
    half = partial("half-0123456789ab")
    lock = FileLock(store_of(runs) / ".half-0123456789ab.lock")
    plan = store.plan_cleaning(runs)
    monkeypatch.setattr(store, "plan_cleaning", lambda *_: plan)
    taken = threading.Thread(target=lock.acquire)
    taken.start()
    taken.join()
    try:
        assert clean(runs).going == ()
    finally:
        lock.release()
    assert half.exists()


def test_nothing_prepared_goes_while_a_study_does_not_say_what_it_uses(runs: Path, corpus: Fill, partial: Fill):
    folder, half = corpus("mix-0123456789ab"), partial("half-0123456789ab")
    used(runs, "study", "mix-0123456789ab")
    (runs / "study" / "corpus.json").write_text("{")
    done = clean(runs)
    assert [each.path for each in done.going] == [half]
    assert "corpus.json cannot be read" in done.kept[0].why
    assert folder.exists()


def test_a_damaged_manifest_is_listed_with_what_is_wrong(runs: Path, corpus: Fill):
    folder = corpus("mix-0123456789ab")
    (folder / "manifest.json").write_text("[]")
    (found,) = stored(runs)
    assert found.kind == "corpus"
    assert "manifest cannot be read" in found.note


def test_what_a_killed_deletion_left_is_deleted_by_the_next(runs: Path, corpus: Fill, monkeypatch: pytest.MonkeyPatch):
    corpus("mix-0123456789ab")

    class KilledError(BaseException):
        pass

    def killed(*_: object, **__: object) -> None:
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(store.shutil, "rmtree", killed)
        with pytest.raises(KilledError):
            clean(runs)
    (left,) = stored(runs)
    assert left.kind == "rest"
    clean(runs)
    assert stored(runs) == ()
    assert not left.path.exists()


def test_only_what_is_named_is_deleted(runs: Path, corpus: Fill):
    one, other = corpus("a-0123456789ab"), corpus("b-0123456789ab")
    clean(runs, ("a-0123456789ab",))
    assert not one.exists()
    assert other.exists()
    with pytest.raises(CorpusError, match="nothing of this name"):
        clean(runs, ("a-0123456789ab",))


def test_a_corpus_is_found_by_any_beginning_that_is_one_corpus_alone(runs: Path, corpus: Fill):
    texts, other = corpus("texts-0123456789ab"), corpus("texts-more-0123456789ab")
    assert find_prepared(runs, "texts") == texts  # all before the digits comes first
    assert find_prepared(runs, "texts-0") == texts
    assert find_prepared(runs, "texts-m") == other
    for name in ("text", "", "other"):
        with pytest.raises(CorpusError):
            find_prepared(runs, name)


def test_corpora_of_one_name_are_told_apart_by_what_was_declared_of_each(corpus: Fill):
    folders = [corpus(f"texts-{number}") for number in range(3)]
    for folder, by, tokenizer in zip(folders, ("host", "document", "document"), (300, 300, None), strict=True):
        content = json.loads((folder / "manifest.json").read_text())
        content |= {"config": {"split_by": by, "folder": None}, "evaluation_files": []}
        content["tokenizer_config"] = {"digest": "f" * 64} if tokenizer is None else {"vocabulary_size": tokenizer}
        (folder / "manifest.json").write_text(json.dumps(content))
    assert told_apart(folders) == [
        'texts-0 (split by "host", tokenizer vocabulary size 300)',
        'texts-1 (split by "document", tokenizer vocabulary size 300)',
        'texts-2 (split by "document", tokenizer digest ffffffffffff)',
    ]
    assert told_apart(folders[:1]) == ["texts-0 (declared as the others, of other files)"]
