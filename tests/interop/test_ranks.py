"""nanochat's tokenizer enters as ranks in JSON; its pickle never does."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paribus.data.tokenizer import Tokenizer
from paribus.errors import CorpusError
from paribus.interop import imported
from paribus.interop.errors import ForeignModelError
from paribus.interop.nanochat import import_checkpoint
from paribus.interop.ranks import CONVERSION, read_tokenizer

from .conftest import Write, ranks_of

SHARED = Path(__file__).parents[3] / "shared" / "data" / "nanochat_golden"


@pytest.mark.shared_data
def test_the_originals_tokenizer_gives_its_ids_and_bytes_after_conversion():
    path = SHARED / "2026-07-text.json"
    if not path.exists():
        pytest.skip(f"real data is absent: expected ../shared/data/nanochat_golden/{path.name} beside the repository")
    golden = json.loads(path.read_text(encoding="utf-8"))
    found = read_tokenizer(path)
    assert (found.vocabulary_size, found.bos_id) == (golden["vocab_size"], golden["special_tokens"]["<|bos|>"])
    assert found.token_bytes().tolist() == golden["token_bytes"]
    for case in golden["encode"]:
        assert found.encode_batch([case["text"]])[0].tolist() == case["ids"]


def test_ranks_are_the_tokenizer_that_they_were_taken_from(tokenizer: Tokenizer, ranks: Path):
    found = read_tokenizer(ranks)
    assert found.special_tokens == tokenizer.special_tokens
    for text in ("abc abcdefgh 1234\n\n  naïve 漢字", "<|bos|> hahaha"):
        np.testing.assert_array_equal(found.encode_batch([text])[0], tokenizer.encode_batch([text])[0])


class _Encoding:
    """The attributes of nanochat's tokenizer object that the conversion reads."""

    def __init__(self, table: dict[str, Any]) -> None:
        self._pat_str = table["pattern"]
        self._mergeable_ranks = {bytes.fromhex(piece): rank for piece, rank in table["mergeable_ranks_hex"].items()}
        self._special_tokens = table["special_tokens"]


def test_the_conversion_writes_what_is_read(tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    table = ranks_of(tokenizer)
    stand_in = CONVERSION.replace("from nanochat.tokenizer import get_tokenizer\n", "")
    assert stand_in != CONVERSION
    holder = type("Tokenizer", (), {"enc": _Encoding(table)})
    exec(compile(stand_in, "conversion", "exec"), {"get_tokenizer": holder})
    assert json.loads((tmp_path / "ranks.json").read_text()) == table
    assert read_tokenizer(tmp_path / "ranks.json").digest == read_tokenizer(tmp_path / "ranks.json").digest


@pytest.mark.parametrize("name", ["tokenizer.pkl", "tokenizer.pickle"])
def test_a_pickle_is_refused_with_the_conversion(write: Write, tmp_path: Path, name: str):
    (tmp_path / name).write_bytes(b"\x80\x04.")
    with pytest.raises(ForeignModelError, match="is a pickle") as caught:
        import_checkpoint(write(), to=tmp_path / "model", tokenizer=tmp_path / name)
    assert CONVERSION in caught.value.remedy
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("place", ["tokenizer", "base_checkpoints/d2"])
def test_a_pickle_that_lies_about_is_named_and_not_read(write: Write, tmp_path: Path, place: str):
    folder = write()
    (tmp_path / place).mkdir(exist_ok=True)
    (tmp_path / place / "tokenizer.pkl").write_bytes(b"\x80\x04.")
    found = import_checkpoint(folder, to=tmp_path / "model")
    assert found.pickle == (tmp_path / place / "tokenizer.pkl").resolve()
    assert found.tokenizer is None


def test_a_tokenizer_is_added_to_a_model_that_was_imported_without(write: Write, tmp_path: Path, ranks: Path):
    folder, to = write(), tmp_path / "model"
    import_checkpoint(folder, to=to)
    weights = (to / "model.safetensors").stat().st_mtime_ns
    added = import_checkpoint(folder, to=to, tokenizer=ranks)
    assert set(added.written.new) == {"tokenizer.json", "recipe.toml", "model.json"}
    assert (to / "model.safetensors").stat().st_mtime_ns == weights
    assert imported.read(to).tokenizer_file == to / "tokenizer.json"
    assert Tokenizer.load(to / "tokenizer.json").digest == read_tokenizer(ranks).digest
    assert import_checkpoint(folder, to=to).written == imported.Written((), ())  # and it stays
    assert import_checkpoint(folder, to=to, tokenizer=to / "tokenizer.json").written == imported.Written((), ())


def test_a_tokenizer_of_another_size_is_refused(write: Write, tmp_path: Path, tokenizer: Tokenizer):
    table = ranks_of(tokenizer)
    del table["special_tokens"]["<|output_end|>"]
    (tmp_path / "ranks.json").write_text(json.dumps(table))
    with pytest.raises(ForeignModelError, match="is not the tokenizer of this model") as caught:
        import_checkpoint(write(), to=tmp_path / "model", tokenizer=tmp_path / "ranks.json")
    assert "279" in caught.value.received
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    "change",
    [
        {"pattern": 3},
        {"mergeable_ranks_hex": ["00"]},
        {"mergeable_ranks_hex": {"zz": 0}},
        {"mergeable_ranks_hex": {"00": 1}},
        {"mergeable_ranks_hex": {"00": True}},
        {"special_tokens": {"<|bos|>": 5}},
        {"special_tokens": {"<|bos|>": 300, "<|end|>": 300}},
    ],
)
def test_damaged_ranks_are_refused(tokenizer: Tokenizer, tmp_path: Path, change: dict[str, Any]):
    path = tmp_path / "ranks.json"
    path.write_text(json.dumps(ranks_of(tokenizer) | change))
    with pytest.raises(ForeignModelError, match=r"ranks\.json cannot be read as a tokenizer's ranks"):
        read_tokenizer(path)


def test_ranks_that_lose_text_are_refused_by_name(tokenizer: Tokenizer, tmp_path: Path):
    table = ranks_of(tokenizer)
    table["mergeable_ranks_hex"] = {f"{byte:02x}": byte for byte in range(255)}
    table["special_tokens"] = {"<|bos|>": 255}
    (tmp_path / "ranks.json").write_text(json.dumps(table))
    with pytest.raises(ForeignModelError, match=r"ranks\.json: the tokenizer cannot encode every text"):
        read_tokenizer(tmp_path / "ranks.json")


def test_a_file_that_is_no_tokenizer_is_refused(tmp_path: Path):
    (tmp_path / "notes.txt").write_text("no")
    with pytest.raises(CorpusError, match=r"notes\.txt cannot be read as a tokenizer"):
        read_tokenizer(tmp_path / "notes.txt")
