import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from hypothesis import example, given, settings
from hypothesis import strategies as st

from paribus.data.config import NANOCHAT_SPECIAL_TOKENS, TokenizerConfig
from paribus.data.tokenizer import BOS, BOS_ID, Tokenizer
from paribus.data.tokenizers.learning import read_texts
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
    saved = (tmp_path / "tokenizer.json").read_bytes()
    assert tokenizer.digest == loaded.digest == hashlib.blake2b(saved, digest_size=32).hexdigest()
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


def test_a_file_without_a_beginning_names_the_special_tokens_that_it_has(tokenizer: Tokenizer, tmp_path: Path):
    path = tmp_path / "tokenizer.json"
    tokenizer.save(path)
    path.write_text(path.read_text().replace(BOS, "<odd>"))
    with pytest.raises(CorpusError, match=r"(?s)tokenizer\.json: .*marks where a document begins.*received: <odd>"):
        Tokenizer.load(path)
    with pytest.raises(CorpusError, match=r"expected: <absent>"):
        Tokenizer.load(path, "<absent>")
    assert Tokenizer.load(path, "<odd>").bos_id == 0


def test_the_default_learns_exactly_what_the_library_writes_for_it(tokenizer: Tokenizer, tmp_path: Path):
    backend = tokenizers.Tokenizer(tokenizers.models.BPE())
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    backend.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=350,
        special_tokens=[BOS],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(TRAINING_TEXTS, trainer)
    tokenizer.save(tmp_path / "tokenizer.json")
    assert (tmp_path / "tokenizer.json").read_text(encoding="utf-8") == backend.to_str()
    assert Tokenizer.train(TRAINING_TEXTS, TokenizerConfig(vocabulary_size=350)).digest == tokenizer.digest
    assert tokenizer.bos_id == BOS_ID


def test_the_layout_of_nanochat_puts_its_nine_special_tokens_after_the_merges():
    config = TokenizerConfig(350, "nanochat", NANOCHAT_SPECIAL_TOKENS)
    tokenizer = Tokenizer.train(TRAINING_TEXTS, config)
    assert tokenizer.vocabulary_size == 350
    assert tokenizer.bos_id == 341
    assert tokenizer.special_tokens == {name: 341 + place for place, name in enumerate(NANOCHAT_SPECIAL_TOKENS)}
    assert tokenizer.token_bytes()[341:].tolist() == [0] * 9
    assert tokenizer.token_bytes()[:341].min() == 1


def test_digits_are_grouped_by_at_most_two_where_nanochat_is_declared():
    texts = ["In 1234567 of 1234567 cases 1234567 or 1234567."] * 50
    longest = {}
    for kind in ("gpt2", "nanochat"):
        tokenizer = Tokenizer.train(texts, TokenizerConfig(300, kind))
        (ids,) = tokenizer.encode_batch([" 1234567"])
        longest[kind] = tokenizer.token_bytes()[ids].tolist()
    assert longest == {"gpt2": [8], "nanochat": [1, 2, 2, 2, 1]}


def test_only_the_first_characters_are_learnt_from():
    texts = ["aaaa bbbb", "cccc", "dddd", "eeee"]

    def read(characters: int | None, of_a_document: int | None) -> list[str]:
        config = TokenizerConfig(train_characters=characters, train_document_characters=of_a_document)
        return list(read_texts(texts, config))

    assert read(None, None) == texts
    assert read(None, 3) == ["aaa", "ccc", "ddd", "eee"]
    assert read(11, None) == ["aaaa bbbb", "cc"]
    assert read(7, 3) == ["aaa", "ccc", "d"]
    capped = TokenizerConfig(300, train_document_characters=4)
    assert Tokenizer.train(["abab" + "xyz" * 9] * 9, capped).digest == Tokenizer.train(["abab"] * 9, 300).digest


@pytest.mark.parametrize("special", [(), ("<a>", "<a>"), ("",)])
def test_special_tokens_that_are_no_distinct_names_are_refused(special: tuple[str, ...]):
    with pytest.raises(CorpusError, match="not distinct names"):
        Tokenizer.train(["text"], TokenizerConfig(300, special_tokens=special))


def test_a_special_token_that_words_can_spell_is_refused():
    with pytest.raises(CorpusError, match="text can become the token 'abab'"):
        Tokenizer.train(["abab abab"] * 9, TokenizerConfig(300, special_tokens=("abab",)))


def test_documents_of_bytes_give_ids_end_to_end_in_the_smallest_type(tokenizer: Tokenizer):
    texts = [f"text {index} \U0001f642" * (index % 4) for index in range(30)]
    ids, lengths = tokenizer.encode_batch_utf8([text.encode() for text in texts])
    assert ids.dtype == tokenizer.token_type == np.dtype("<u2")
    assert lengths.dtype == np.int64
    expected = tokenizer.encode_batch(texts)
    assert lengths.tolist() == [len(part) for part in expected]
    np.testing.assert_array_equal(ids, np.concatenate(expected))
    none, no_lengths = tokenizer.encode_batch_utf8([])
    assert len(none) == len(no_lengths) == 0


def test_a_batch_larger_than_one_call_of_the_library_keeps_its_order(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
):
    texts = [f"text {index} naïve" * (index % 7) for index in range(60)]
    expected = tokenizer.encode_batch(texts)
    monkeypatch.setattr("paribus.data.tokenizer.BATCH_BYTES", 100)
    for found, wanted in zip(tokenizer.encode_batch(texts), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_bytes_that_are_not_utf8_are_an_error(tokenizer: Tokenizer):
    with pytest.raises(CorpusError, match=r"(?s)not valid UTF-8.*at byte 3"):
        tokenizer.encode_batch_utf8([b"abc\xff"])
