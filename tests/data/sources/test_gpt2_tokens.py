"""Texts stored as GPT-2 token ids."""

import base64
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import decoders

from paribus.data.config import CorpusConfig
from paribus.data.sources import gpt2_tokens, open_source
from paribus.data.sources.contract import RawDocument, Skip
from paribus.data.sources.gpt2_tokens import byte_letters, gpt2_vocabulary, text_of_ids, token_strings
from paribus.data.sources.judging import BadValueError
from paribus.data.sources.parquet import ParquetSource
from paribus.errors import CorpusError

SHARED = Path(__file__).parents[4] / "shared" / "data"
CACHE = SHARED / "tokenizer" / "tiktoken_cache"
END = 256


def test_the_letters_of_bytes_are_those_of_the_byte_level_alphabet():
    library = decoders.ByteLevel()
    for byte, letter in enumerate(byte_letters()):
        if byte < 0x80:
            assert library.decode([letter]) == chr(byte)
    assert library.decode([byte_letters()[byte] for byte in "é漢🙂".encode()]) == "é漢🙂"
    assert len(set(byte_letters())) == 256


@settings(deadline=None)
@given(text=st.text(min_size=1), before=st.integers(0, 2), after=st.integers(0, 2), cut=st.integers(0, 20))
def test_ids_become_the_bytes_they_spell_without_the_borders(text, before, after, cut, byte_vocabulary: Path):
    ids = np.array([END] * before + list(text.encode()) + [END] * after)
    assert text_of_ids([ids[:cut], ids[cut:]], byte_vocabulary) == text.encode()


@pytest.mark.parametrize("ids", [[97, END, 98], [257], [-1], [97, 70000]])
@pytest.mark.parametrize("block", [1, 10])
def test_a_border_within_and_an_unknown_id_are_malformed(ids: list[int], block: int, byte_vocabulary: Path):
    blocks = [np.array(ids[start : start + block]) for start in range(0, len(ids), block)]
    with pytest.raises(BadValueError) as raised:
        text_of_ids(blocks, byte_vocabulary)
    assert raised.value.skip is Skip.MALFORMED


def judged_rows(folder: Path, column: pa.Array, vocabulary: Path) -> list[bytes | Skip]:
    pq.write_table(pa.table({"tokens": column}), folder / "a.parquet", row_group_size=2)
    source = ParquetSource(folder, ("a.parquet",), False, text_column="tokens", vocabulary=vocabulary)
    found = [entry for piece in source.pieces() for entry in source.read(piece)]
    return [entry.utf8 if isinstance(entry, RawDocument) else entry for entry in found]


ROWS = [list(b"one"), None, [], [END], list("é漢".encode()), [0xE9], [300], [97, None]]
EXPECTED = [
    b"one",
    Skip.NULL,
    Skip.EMPTY,
    Skip.EMPTY,
    "é漢".encode(),
    Skip.INVALID_UTF8,
    Skip.MALFORMED,
    Skip.WRONG_TYPE,
]


@pytest.mark.parametrize("kind", [pa.list_(pa.int64()), pa.list_(pa.uint16()), pa.large_list(pa.int32())], ids=str)
def test_rows_of_ids_are_read_or_counted(kind: pa.DataType, tmp_path: Path, byte_vocabulary: Path):
    assert judged_rows(tmp_path, pa.array(ROWS, kind), byte_vocabulary) == EXPECTED


def test_a_bad_row_of_ids_is_named(tmp_path: Path, byte_vocabulary: Path):
    pq.write_table(pa.table({"tokens": pa.array([[97], [300]])}), tmp_path / "a.parquet")
    source = ParquetSource(tmp_path, ("a.parquet",), text_column="tokens", vocabulary=byte_vocabulary)
    with pytest.raises(CorpusError, match=r"(?s)a\.parquet, row group 0, row 1.*0 to 256.*id 300"):
        list(source.read(source.pieces()[0]))


def test_a_column_of_strings_holds_no_ids(tmp_path: Path, byte_vocabulary: Path):
    with pytest.raises(
        CorpusError, match=r"(?s)'tokens' of a\.parquet is of the wrong type.*lists of integers.*string"
    ):
        judged_rows(tmp_path, pa.array(["text"]), byte_vocabulary)


def test_only_gpt2_s_own_tokens_decode_such_a_corpus(tmp_path: Path, byte_vocabulary: Path, monkeypatch):
    monkeypatch.delenv("TIKTOKEN_CACHE_DIR", raising=False)
    pq.write_table(pa.table({"tokens": pa.array([[97]])}), tmp_path / "a.parquet")
    config = CorpusConfig(kind="folder", folder=tmp_path, form="gpt2-tokens")
    with pytest.raises(CorpusError, match=r"(?s)GPT-2's vocabulary is needed.*TIKTOKEN_CACHE_DIR"):
        open_source(config)
    with pytest.raises(CorpusError, match=r"(?s)GPT-2's vocabulary is needed.*another vocabulary"):
        open_source(config, vocabulary=byte_vocabulary)
    with pytest.raises(CorpusError, match="absent"):
        open_source(config, vocabulary=tmp_path / "nowhere.json")


def test_the_forms_of_a_vocabulary_hold_the_same_tokens(tmp_path: Path, byte_vocabulary: Path):
    tokens = [bytes([byte]) for byte in range(256)]
    ranks = tmp_path / "small.tiktoken"
    ranks.write_bytes(b"".join(base64.b64encode(token) + b" %d\n" % rank for rank, token in enumerate(tokens)))
    flat = tmp_path / "encoder.json"
    flat.write_text(json.dumps(json.loads(byte_vocabulary.read_text())["model"]["vocab"]))
    assert token_strings(byte_vocabulary) == token_strings(ranks) == token_strings(flat) == tuple(tokens)


@pytest.mark.parametrize("content", [b"{", b'{"a": 5}', b"no ranks here", b"\xff\xfe", b'{"model": {}}'])
def test_a_damaged_vocabulary_is_named(content: bytes, tmp_path: Path):
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(CorpusError, match=r"tokenizer\.json cannot be read as a vocabulary"):
        gpt2_vocabulary([tmp_path])


@pytest.fixture
def real_cache() -> Path:
    if not CACHE.is_dir():
        pytest.skip(f"the real vocabulary is not here: {CACHE}")
    return CACHE


@pytest.mark.shared_data
def test_both_published_files_of_gpt2_hold_its_50256_tokens(real_cache: Path):
    files = [real_cache / name for name in gpt2_tokens._USUAL_NAMES[-2:]]
    first, second = (token_strings(path) for path in files)
    assert first == second
    assert len(first) == 50256
    assert gpt2_vocabulary([real_cache]) in files
    with pytest.raises(CorpusError, match="another vocabulary"):  # cl100k, from the same cache
        gpt2_vocabulary([real_cache / "9b5ad71b2ce5302211f9c61530b329a4922fc6a4"])


@pytest.mark.shared_data
@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_a_folder_as_nemotron_climbmix_has_it_is_decoded(kind, real_cache, tmp_path, write_lines, monkeypatch):
    """Ids known from the model's publication: "Hello world" is 15496, 995."""
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(real_cache))
    rows = {"cluster_id": [3, 4], "tokens": [[15496, 995], [50256, 15496, 50256]], "token_count": [2, 3]}
    if kind == "parquet":
        pq.write_table(pa.table(rows), tmp_path / "shard_0.tokenized.parquet")
    else:
        lines = [json.dumps({name: column[row] for name, column in rows.items()}).encode() for row in range(2)]
        write_lines(tmp_path / "part_0.tokenized.jsonl", b"\n".join(lines) + b"\n")
    source = open_source(CorpusConfig(kind="folder", folder=tmp_path, form="gpt2-tokens"))
    found = [entry for piece in source.pieces() for entry in source.read(piece)]
    assert [entry.utf8 for entry in found if isinstance(entry, RawDocument)] == [b"Hello world", b"Hello"]


Write = Callable[[Path, bytes], Path]


@pytest.mark.parametrize("tokens", ["5", '"text"', "[97, true]", "[97.5]", "[[97]]", "{}"])
def test_a_line_whose_tokens_are_no_list_of_integers_is_counted(tokens, tmp_path, write_lines: Write, byte_vocabulary):
    from paribus.data.sources.jsonl import JsonlSource

    write_lines(tmp_path / "a.jsonl", b'{"tokens": [97]}\n{"tokens": %s}\n{"tokens": null}\n' % tokens.encode())
    source = JsonlSource(tmp_path, ("a.jsonl",), False, text_column="tokens", vocabulary=byte_vocabulary)
    _, counted, null = source.read(source.pieces()[0])
    assert (counted, null) == (Skip.WRONG_TYPE, Skip.NULL)
