"""What an experiment file says of its texts becomes a declaration of the data branch, and stays a study's."""

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paribus.data.config import NANOCHAT_SPECIAL_TOKENS, CorpusConfig, HubFiles, TokenizerConfig
from paribus.data.sources.known import KNOWN
from paribus.data.store import store_of
from paribus.errors import CorpusError, StudyFolderError
from paribus.experiment import corpus as tables
from paribus.experiment import spec
from paribus.preparing.declaring import Options, declare
from paribus.runs.folder import CORPUS
from paribus.runs.records import read_json
from paribus.runs.study_folder import StudyFolder
from paribus.seeds import generator
from paribus.texts import corpus_of, declared_corpus, prepared, recorded, require_texts

COMMIT = "0123456789abcdef0123456789abcdef01234567"
FILE_KEYS = ("split_by", "bad_documents", "held_out", "url_column", "source_column", "text_column", "form")


def base(**changes: object) -> spec.Base:
    return spec.Base.model_validate({"context_length": 16, "batch_tokens": 64, **changes})


def test_the_datasets_that_a_file_may_name_are_the_known_ones() -> None:
    assert set(tables._PUBLISHED) == set(KNOWN)
    assert set(spec.Corpus.model_json_schema()["properties"]["name"]["anyOf"][0]["enum"]) == {*KNOWN, "local-docs"}


def test_a_file_without_a_corpus_reads_the_local_docs_as_the_data_branch_does_by_itself(tmp_path: Path) -> None:
    found = declared_corpus(base(), tmp_path)
    assert (found.corpus, found.tokenizer, found.name) == (CorpusConfig(), TokenizerConfig(), "local-docs")


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    corpus = {"path": "../texts", "decontaminate": ["sets/core"]}
    found = declared_corpus(base(corpus=corpus, tokenizer={"path": "tok.json"}), tmp_path / "studies")
    assert found.corpus.folder == tmp_path / "texts"
    assert found.corpus.decontaminate == (tmp_path / "studies" / "sets" / "core",)
    assert found.tokenizer.file == tmp_path / "studies" / "tok.json"
    assert found.name == "texts"


@pytest.mark.parametrize("key", FILE_KEYS)
def test_what_is_declared_of_files_reaches_the_data_branch(tmp_path: Path, key: str) -> None:
    values = {"split_by": "host", "bad_documents": "skip", "held_out": "last-file", "form": "gpt2-tokens"}
    value = values.get(key, "another")
    found = declared_corpus(base(corpus={"path": "texts", key: value}), tmp_path).corpus
    assert getattr(found, key) == value
    assert getattr(CorpusConfig(), key) != value


@pytest.mark.parametrize(
    ("corpus", "similarity"),
    [
        ({"path": "texts"}, 0.8),
        ({"path": "texts", "near_duplicate_similarity": 0.9}, 0.9),
        ({"path": "texts", "near_duplicates": "keep"}, None),
        ({"hub": "a/b", "revision": COMMIT}, None),
        ({"hub": "a/b", "revision": COMMIT, "near_duplicates": "drop"}, 0.8),
    ],
)
def test_near_duplicates_are_kept_where_a_dataset_of_the_hub_says_nothing(
    tmp_path: Path, corpus: dict[str, object], similarity: float | None
) -> None:
    assert declared_corpus(base(corpus=corpus), tmp_path).corpus.near_duplicate_similarity == similarity


def test_a_repository_is_declared_with_its_commit_its_files_and_how_many(tmp_path: Path) -> None:
    corpus = {"hub": "owner/set", "revision": COMMIT, "files": ["data/*.parquet"], "first_files": 3}
    found = declared_corpus(base(corpus=corpus), tmp_path)
    assert found.corpus.hub == HubFiles("owner/set", COMMIT, ("data/*.parquet",), 3)
    assert (found.corpus.folder, found.name) == (None, "set")


def test_a_known_dataset_keeps_its_own_column_and_may_lie_in_a_folder_already(tmp_path: Path) -> None:
    corpus = {"name": "climbmix-gpt2", "revision": COMMIT, "path": "there"}
    found = declared_corpus(base(corpus=corpus), tmp_path).corpus
    assert (found.form, found.text_column, found.folder) == ("gpt2-tokens", "tokens", tmp_path / "there")


@pytest.mark.parametrize(
    ("corpus", "target", "options"),
    [
        ({}, "local-docs", {}),
        ({"path": "texts"}, "texts", {}),
        (
            {"path": "texts", "form": "gpt2-tokens", "split_by": "host"},
            "texts",
            {"form": "gpt2-tokens", "split_by": "host"},
        ),
        ({"name": "climbmix", "first_files": 2}, "climbmix", {"limit": 2}),
        ({"name": "climbmix", "held_out": "last-file"}, "climbmix", {"held_out": "last-file"}),
        ({"name": "climbmix-gpt2"}, "climbmix-gpt2", {}),
        ({"name": "fineweb-edu", "near_duplicates": "drop"}, "fineweb-edu", {"near_duplicate_similarity": 0.8}),
        ({"hub": "owner/set", "form": "gpt2-tokens"}, "owner/set", {"form": "gpt2-tokens"}),
    ],
)
def test_the_command_line_and_a_file_that_say_the_same_mean_the_same_corpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, corpus: dict[str, object], target: str, options: dict[str, Any]
) -> None:
    (tmp_path / "texts").mkdir()
    monkeypatch.chdir(tmp_path)
    if corpus.keys() & {"name", "hub"}:
        corpus, options = {**corpus, "revision": COMMIT}, {**options, "revision": COMMIT}
    assert declared_corpus(base(corpus=corpus), tmp_path) == declare(target, Options(**options))


def test_a_form_that_a_dataset_has_not_and_a_convention_that_is_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="fineweb-edu is of another form"):
        declared_corpus(base(corpus={"name": "fineweb-edu", "revision": COMMIT, "form": "gpt2-tokens"}), tmp_path)
    with pytest.raises(CorpusError, match="no validation split"):
        declared_corpus(base(corpus={"name": "fineweb-edu", "revision": COMMIT, "held_out": "last-file"}), tmp_path)
    assert base(corpus={"name": "climbmix-gpt2", "revision": COMMIT, "form": "gpt2-tokens"}).corpus.form


def test_token_ids_are_refused_where_nothing_can_decode_them_before_anything_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TIKTOKEN_CACHE_DIR", raising=False)
    (tmp_path / "ids").mkdir()
    pq.write_table(pa.table({"tokens": [[1, 2]]}), tmp_path / "ids" / "a.parquet")
    with pytest.raises(CorpusError, match="GPT-2's vocabulary is needed"):
        require_texts(base(corpus={"path": "ids", "form": "gpt2-tokens"}), tmp_path)
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "a.txt").write_text("text")
    with pytest.raises(CorpusError, match="text files hold no token ids"):
        require_texts(base(corpus={"path": "plain", "form": "gpt2-tokens"}), tmp_path)


def test_what_a_study_wrote_down_of_its_corpus_has_no_form_where_none_is_declared() -> None:
    # A study compares it with the file, and the key is younger than some studies.
    assert "form" not in base(corpus={"path": "texts"}).model_dump(mode="json")["corpus"]
    assert base(corpus={"path": "texts", "form": "text"}).model_dump(mode="json")["corpus"]["form"] == "text"


def test_a_known_dataset_without_a_commit_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="revision = 40 hexadecimal digits"):
        require_texts(base(corpus={"name": "fineweb-edu"}), tmp_path)


def test_nanochats_splits_come_with_its_special_tokens(tmp_path: Path) -> None:
    tokenizer = {"pre_tokenizer": "nanochat", "vocabulary_size": 32_768}
    found = declared_corpus(base(tokenizer=tokenizer), tmp_path).tokenizer
    assert (found.special_tokens, found.vocabulary_size) == (NANOCHAT_SPECIAL_TOKENS, 32_768)


def test_a_tokenizer_of_the_hub_is_named_by_repository_and_commit(tmp_path: Path) -> None:
    table = {"hub": "owner/model", "revision": COMMIT, "beginning": "<s>", "vocabulary_size": 300}
    found = declared_corpus(base(tokenizer=table), tmp_path)
    assert found.tokenizer_of == HubFiles("owner/model", COMMIT)
    assert (found.tokenizer.file, found.tokenizer.beginning) == (None, "<s>")


@pytest.mark.parametrize(
    "table",
    [
        {"corpus": {"name": "climbmix", "hub": "a/b", "revision": COMMIT}},
        {"corpus": {"name": "local-docs", "path": "texts"}},
        {"corpus": {"path": "texts", "task": "cross"}},
        {"corpus": {"path": "texts", "revision": COMMIT}},
        {"corpus": {"hub": "a/b"}},
        {"corpus": {"text_column": "body"}},
        {"corpus": {"held_out": "last-file"}},
        {"corpus": {"form": "gpt2-tokens"}},
        {"corpus": {"name": "local-docs", "form": "text"}},
        {"tokenizer": {"path": "t.json", "hub": "a/b", "revision": COMMIT}},
        {"tokenizer": {"hub": "a/b"}},
        {"tokenizer": {"beginning": "<s>"}},
        {"tokenizer": {"path": "t.json", "train_characters": 300}},
        {"tokenizer": {"hub": "owner/model", "revision": COMMIT}},
    ],
)
def test_keys_that_contradict_each_other_are_refused(table: dict[str, object]) -> None:
    with pytest.raises(
        ValueError,
        match=r"give either|belongs to|needs `revision`|is about|go together|names a token|needs `vocabulary_size`",
    ):
        base(**table)


def test_a_wrong_path_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(CorpusError):
        require_texts(base(corpus={"path": "nowhere"}), tmp_path)
    with pytest.raises(CorpusError):
        require_texts(base(tokenizer={"path": "nowhere.json"}), tmp_path)


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    draw = generator("tests", "texts")
    words = [f"word{number}" for number in range(200)]
    rows = [" ".join(draw.choice(words, size=30)) for _ in range(60)]
    (tmp_path / "texts").mkdir()
    pq.write_table(pa.table({"text": rows}), tmp_path / "texts" / "a.parquet")
    return tmp_path / "texts"


def declaration(**corpus: object) -> spec.Base:
    held_out = {"test_fraction": 0.2, "validation_fraction": 0.2}
    return base(corpus={"path": "texts", **held_out, **corpus}, tokenizer={"vocabulary_size": 300})


@pytest.mark.usefixtures("texts")
def test_two_studies_of_one_declaration_read_one_folder_and_each_remembers_it(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    found = [corpus_of(declaration(), tmp_path, runs, StudyFolder(runs / name)) for name in ("one", "other")]
    assert found[0] == found[1]
    for name in ("one", "other"):
        link = read_json(runs / name / CORPUS)
        assert link == {"corpus": found[0].folder.name, "key": found[0].key, "digest": found[0].digest}
        assert recorded(runs, StudyFolder(runs / name)) == found[0]


def test_a_study_keeps_its_corpus_when_files_come_go_or_are_declared_otherwise(tmp_path: Path, texts: Path) -> None:
    runs, folder = tmp_path / "runs", StudyFolder(tmp_path / "runs" / "study")
    first = corpus_of(declaration(), tmp_path, runs, folder)
    with pytest.raises(CorpusError, match="planned with another corpus"):
        corpus_of(declaration(test_fraction=0.3), tmp_path, runs, folder)
    shutil.copy(texts / "a.parquet", texts / "b.parquet")
    with pytest.raises(CorpusError, match="are not the ones this study was planned with"):
        corpus_of(declaration(), tmp_path, runs, folder)
    shutil.rmtree(texts)
    assert corpus_of(declaration(), tmp_path, runs, folder) == first


@pytest.mark.usefixtures("texts")
def test_another_declaration_never_reuses_a_folder(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    folders = {prepared(declaration(**corpus), tmp_path, runs).folder for corpus in ({}, {"test_fraction": 0.3})}
    assert len(folders) == 2


@pytest.mark.usefixtures("texts")
def test_a_link_to_a_corpus_that_is_gone_replaced_or_damaged_is_an_error(tmp_path: Path) -> None:
    runs, folder = tmp_path / "runs", StudyFolder(tmp_path / "runs" / "study")
    found = corpus_of(declaration(), tmp_path, runs, folder)
    link = {"corpus": found.folder.name, "key": found.key, "digest": found.digest}
    folder.write_corpus(link | {"digest": "another"})
    with pytest.raises(CorpusError, match="is not the corpus that the study was planned with"):
        recorded(runs, folder)
    folder.write_corpus({"corpus": found.folder.name})
    with pytest.raises(StudyFolderError, match="is damaged"):
        recorded(runs, folder)
    folder.write_corpus(link)
    shutil.rmtree(store_of(runs) / found.folder.name)
    with pytest.raises(CorpusError, match="no frozen corpus here"):
        recorded(runs, folder)
