import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from paribus.data.frozen import file_digest
from paribus.data.tokenizer import BOS, BOS_ID, Tokenizer
from paribus.errors import CorpusError

TRAINING_TEXTS = [
    "The quick brown fox jumps over the lazy dog. 12345 times!\n\n    indented\tcode() = {}",
    f"{BOS} a text that spells the special token {BOS}{BOS}",
    "naïve café 漢字 🙂🙂🙂 👩‍👩‍👧 e\u0301\u0301",
] * 20

anything = st.lists(
    st.one_of(
        st.text(),
        st.sampled_from(
            [BOS, "<|", "|>", "<|bos", "<|endoftext|>", "🙂", "👩‍👩‍👧", "\u0301", "\x00", "\r\n", "\ufeff", "  "]
        ),
    )
).map("".join)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(TRAINING_TEXTS, 350)


@pytest.fixture(scope="module")
def loaded(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    tokenizer.save(path)
    return Tokenizer.load(path)


@settings(deadline=None, max_examples=300)
@given(anything)
@example("")
@example(f"{BOS}{BOS} {BOS}")
def test_text_never_becomes_the_special_token_and_survives_the_round_trip(
    tokenizer: Tokenizer, loaded: Tokenizer, text: str
):
    (ids,) = tokenizer.encode_batch([text])
    assert ids.dtype == np.int32
    assert BOS_ID not in ids
    assert tokenizer.decode(ids) == text
    (after_loading,) = loaded.encode_batch([text])
    np.testing.assert_array_equal(after_loading, ids)


@settings(deadline=None, max_examples=300)
@given(anything)
@example("🙂\u0301\x00\x7f\u0080\uffff\U0010ffff")
def test_token_bytes_add_up_to_the_utf8_bytes_of_the_text(tokenizer: Tokenizer, text: str):
    (ids,) = tokenizer.encode_batch([text])
    assert tokenizer.token_bytes()[ids].sum() == len(text.encode())


def test_a_token_whose_bytes_are_no_text_alone_counts_its_bytes_and_not_those_of_a_replacement():
    bytes_only = Tokenizer.train(["x"], 257)
    (ids,) = bytes_only.encode_batch(["🙂é"])
    assert bytes_only.token_bytes().tolist() == [0] + [1] * 256
    assert len(set(ids.tolist())) == 6
    assert bytes_only.decode(ids[:1]) == "\ufffd"
    assert bytes_only.decode(ids) == "🙂é"


def test_encoding_many_texts_at_once_equals_encoding_each_alone(tokenizer: Tokenizer):
    texts = [f"{BOS} text {index} 🙂" for index in range(50)]
    together = tokenizer.encode_batch(texts)
    for text, ids in zip(texts, together, strict=True):
        assert BOS_ID not in ids
        np.testing.assert_array_equal(tokenizer.encode_batch([text])[0], ids)


def test_no_texts_give_no_ids(tokenizer: Tokenizer):
    assert tokenizer.encode_batch([]) == []


def test_the_special_token_stands_for_no_text(tokenizer: Tokenizer):
    (ids,) = tokenizer.encode_batch(["brown fox"])
    assert tokenizer.decode([BOS_ID, *ids, BOS_ID]) == "brown fox"


def test_the_digest_is_that_of_the_saved_file_and_survives_loading(
    tokenizer: Tokenizer, loaded: Tokenizer, tmp_path: Path
):
    tokenizer.save(tmp_path / "tokenizer.json")
    assert tokenizer.digest == loaded.digest == file_digest(tmp_path / "tokenizer.json")
    assert Tokenizer.train(TRAINING_TEXTS, 351).digest != tokenizer.digest


def test_the_vocabulary_has_the_size_asked_for_or_stops_where_merges_end(tokenizer: Tokenizer):
    assert tokenizer.vocabulary_size == len(tokenizer.token_bytes()) == 350
    assert Tokenizer.train(["ab"], 1000).vocabulary_size < 300


def test_results_do_not_depend_on_the_number_of_threads():
    program = (
        "import hashlib, sys\n"
        "from paribus.data.tokenizer import Tokenizer\n"
        "texts = [f'{a} some words {a * 7919 % 1000} and {a % 13} others' * 3 for a in range(400)]\n"
        "tokenizer = Tokenizer.train(texts, 350)\n"
        "ids = b''.join(ids.tobytes() for ids in tokenizer.encode_batch(texts))\n"
        "sys.stdout.write(tokenizer.digest + hashlib.sha256(ids).hexdigest())"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=os.environ | threads
        ).stdout
        for threads in ({"TOKENIZERS_PARALLELISM": "false"}, {"RAYON_NUM_THREADS": "1"}, {"RAYON_NUM_THREADS": "5"})
    }
    assert len(outputs) == 1
    assert len(outputs.pop()) == 128


def test_encoding_leaves_the_environment_alone(tokenizer: Tokenizer):
    before = dict(os.environ)
    tokenizer.encode_batch(["a"] * 100)
    assert dict(os.environ) == before


def test_a_vocabulary_without_room_for_all_bytes_is_refused():
    with pytest.raises(CorpusError, match="at least 257"):
        Tokenizer.train(["text"], 256)


def test_a_missing_or_damaged_file_is_named(tokenizer: Tokenizer, tmp_path: Path):
    with pytest.raises(CorpusError, match=r"absent\.json cannot be read"):
        Tokenizer.load(tmp_path / "absent.json")
    path = tmp_path / "tokenizer.json"
    tokenizer.save(path)
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(CorpusError, match=r"tokenizer\.json cannot be read"):
        Tokenizer.load(path)


def test_another_programs_tokenizer_is_refused(tokenizer: Tokenizer, tmp_path: Path):
    path = tmp_path / "tokenizer.json"
    tokenizer.save(path)
    path.write_text(path.read_text().replace(BOS, "<s>"))
    with pytest.raises(CorpusError, match="another tokenizer's file"):
        Tokenizer.load(path)
