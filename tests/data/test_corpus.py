from pathlib import Path

import pytest

from paribus.data.corpus import CorpusConfig, Document, read_corpus
from paribus.errors import CorpusError

LONG = " ".join(f"word{index}" for index in range(60))


def test_equal_texts_have_equal_ids_whatever_their_source():
    assert Document.of("ein Text", "a").id == Document.of("ein Text", "b").id
    assert Document.of("ein Text", "a").id != Document.of("ein Text ", "a").id


def test_document_id_is_the_published_hash_of_the_text():
    # Computed with the command line tool: printf abc | b2sum -l 128
    assert Document.of("abc", "a").id == "cf4ab791c62b8d2b2109c90275287816"


def test_exact_and_near_duplicates_are_dropped_and_counted_and_the_first_stays(tmp_path: Path, write_parquet):
    near = LONG + " and one more"
    write_parquet(tmp_path / "one.parquet", [LONG, "another text", LONG, None, "  \n", near], list("abcdef"))
    corpus = read_corpus(CorpusConfig(kind="parquet", folder=tmp_path))
    assert [(document.text, document.source) for document in corpus.documents] == [(LONG, "a"), ("another text", "b")]
    assert (corpus.dropped.exact_duplicates, corpus.dropped.near_duplicates, corpus.dropped.empty) == (1, 1, 2)


def test_near_duplicates_stay_where_the_experiment_keeps_them(tmp_path: Path, write_parquet):
    write_parquet(tmp_path / "one.parquet", [LONG, LONG + " and one more"])
    config = CorpusConfig(kind="parquet", folder=tmp_path, near_duplicate_similarity=None)
    assert len(read_corpus(config).documents) == 2


def test_a_corpus_without_documents_is_an_error_that_says_what_was_dropped(tmp_path: Path, write_parquet):
    write_parquet(tmp_path / "one.parquet", [None, " "])
    with pytest.raises(CorpusError, match=r"(?s)corpus is empty.*empty 2"):
        read_corpus(CorpusConfig(kind="parquet", folder=tmp_path))


def test_reading_reports_progress(parquet_config: CorpusConfig):
    phases: dict[str, tuple[int, int]] = {}
    corpus = read_corpus(parquet_config, progress=lambda phase, done, total: phases.update({phase: (done, total)}))
    count = len(corpus.documents)
    assert phases == {"read files": (2, 2), "find near duplicates": (count, count)}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": "parket"}, "did you mean 'parquet'"),
        ({"kind": "parquet"}, "name the folder"),
        ({"folder": Path("somewhere")}, "name the folder, or leave it out"),
        ({"test_fraction": 0.6, "validation_fraction": 0.4}, "no training split"),
        ({"test_fraction": -0.1}, "no training split"),
        ({"near_duplicate_similarity": 0.2}, "out of range"),
    ],
)
def test_a_declaration_that_cannot_be_meant_is_refused(fields: dict, message: str):
    with pytest.raises(CorpusError, match=message):
        CorpusConfig(**fields)


def test_the_declaration_stores_only_what_selects_documents():
    local = CorpusConfig().as_json()
    parquet = CorpusConfig(kind="parquet", folder=Path("texts")).as_json()
    assert "folder" not in local
    assert local["minimum_characters"] == 200
    assert parquet["folder"] == "texts"
    assert not {"packages", "minimum_characters"} & set(parquet)
