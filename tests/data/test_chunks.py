"""A long text that is cut has the ids of the whole, for every kind of tokenizer and however short the pieces."""

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import tokenizers
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import models, pre_tokenizers, trainers

from paribus.data.chunks import LongRunError, ends_a_token, pieces
from paribus.data.config import NANOCHAT_SPECIAL_TOKENS, TokenizerConfig
from paribus.data.tokenizer import Tokenizer
from paribus.data.tokenizers import patterns
from paribus.data.tokenizers.learning import learn
from paribus.errors import CorpusError
from paribus.seeds import generator

SHARED = Path(__file__).parents[3] / "shared" / "data"
TEXTS = [
    "The dog's 12345 times, don't! They'll run.\n\n    indented\tcode() = {};\r\n \n x \u3000 y\u00a0z 1,000\n",
    "naïve café 漢字。 🙂🙂 e\u0301 a  b   c\n\n\nNew 'quoted' .\n.\n, \n x.y/z 12ab34",
] * 30
Definition = dict[str, Any]
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
GPT2_SPLIT = BYTES | {"use_regex": True}
MIXED_CASE = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""A pattern that is not among the known ones: a contraction belongs to its word, a slash to the mark before it."""


SNIPPETS = [
    *("a", "B", "the", "dog's", "'ll", "'", "\u2019", "don't", "é", "e\u0301", "漢字", "\u0301", "\u01c5", "\u02b0"),
    *("1", "12", "12345", "\u0663", "\u00bd", "\u2167"),
    *(".", ",", "!?", "/", "_", "。", "\uff0c", "—", "🙂", "$", "(", "\x00", "\u200b", "\ufeff", "\u180e", "\u2581"),
    *(" ", "  ", "   ", "\n", "\n\n", "\r\n", "\r", "\t"),
    *("\x0b", "\x1c", "\x1f", "\x85", "\xa0", "\u2003", "\u2028", "\u3000"),
]


def prose(words: int, *, seed: int = 0) -> str:
    draw = generator("tests", "chunks", seed)
    return "".join(draw.choice([*SNIPPETS, " of ", " and", ".\n", " the 12", ", "], size=words))


def made(*stages: Definition) -> Definition:
    """Merges learnt without any split, so that they join everything that the pre-tokenizers do not keep apart."""
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    trainer = trainers.BpeTrainer(
        vocab_size=1500,
        special_tokens=["<|bos|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator([prose(12, seed=seed) for seed in range(400)], trainer)
    return json.loads(backend.to_str()) | {"pre_tokenizer": {"type": "Sequence", "pretokenizers": list(stages)}}


def split(pattern: str) -> Definition:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


MADE: dict[str, Callable[[], Definition]] = {
    "gpt2": lambda: learn(TEXTS, TokenizerConfig(600)),
    "nanochat": lambda: learn(TEXTS, TokenizerConfig(600, "nanochat", NANOCHAT_SPECIAL_TOKENS)),
    "gpt4": lambda: made(split(patterns.GPT4), BYTES),
    "llama 3": lambda: made(split(patterns.LLAMA3), BYTES),
    "qwen 2": lambda: made(split(patterns.QWEN2), BYTES),
    "digits, then gpt2": lambda: made({"type": "Digits", "individual_digits": True}, GPT2_SPLIT),
    "marks, gpt2, digits": lambda: made(
        {"type": "Punctuation", "behavior": "Contiguous"}, GPT2_SPLIT, {"type": "Digits", "individual_digits": False}
    ),
    "an unknown pattern": lambda: made(split(MIXED_CASE), BYTES),
    "words with the space after them": lambda: made(split(r"\w+ ?|\W"), BYTES),
    "a pattern after the spelling": lambda: made(GPT2_SPLIT, split("[0-9][0-9][0-9]")),
    "nothing splits": lambda: made(BYTES),
}
REAL = {"real gpt2": "tokenizer/tiktoken_cache", "stories260K": "models/stories260K/tokenizer.json"}


@pytest.fixture(scope="module", params=MADE)
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return Tokenizer(MADE[request.param]())


@pytest.fixture(scope="module", params=REAL)
def real(request: pytest.FixtureRequest) -> Tokenizer:
    path = SHARED / REAL[request.param]
    if not path.exists():
        pytest.skip(f"real data is absent: expected ../shared/data/{REAL[request.param]} beside the repository")
    return Tokenizer.load(path)


mixes = st.lists(st.one_of(st.sampled_from(SNIPPETS), st.text(max_size=2)), max_size=14).map("".join)


def ids_of(tokenizer: Tokenizer, text: str, piece_bytes: int) -> list[int]:
    ids, _ = tokenizer.encode_batch_utf8([text.encode()], piece_bytes=piece_bytes)
    return ids.tolist()


def check_every_cut(tokenizer: Tokenizer, text: str) -> None:
    whole = ids_of(tokenizer, text, 10_000)
    for index in range(1, len(text)):
        if tokenizer.safe_cut(text, index) and "\u2581" not in text:
            parts = [ids_of(tokenizer, part, 10_000) for part in (text[:index], text[index:])]
            assert list(itertools.chain(*parts)) == whole, (text[:index], text[index:])


def check_pieces(tokenizer: Tokenizer, text: str, limit: int) -> None:
    found = [part.tolist() for part in tokenizer.encode_utf8(text.encode(), piece_bytes=limit)]
    assert list(itertools.chain(*found)) == ids_of(tokenizer, text, 10_000)


@settings(deadline=None, max_examples=150)
@given(mixes, st.integers(1, 40))
@example("word.\nnext .\n\nx", 6)
@example("a  b   c\t\n d", 3)
@example("it's don't they'll", 4)
def test_the_ids_of_pieces_are_the_ids_of_the_whole(tokenizer: Tokenizer, text: str, limit: int):
    check_every_cut(tokenizer, text)
    check_pieces(tokenizer, text, limit)


@pytest.mark.shared_data
@settings(deadline=None, max_examples=150)
@given(mixes, st.integers(1, 40))
def test_the_ids_of_pieces_are_the_ids_of_the_whole_for_a_real_tokenizer(real: Tokenizer, text: str, limit: int):
    check_every_cut(real, text)
    check_pieces(real, text, limit)


def test_ordinary_text_is_cut_into_pieces_close_to_the_limit(tokenizer: Tokenizer):
    text = prose(4000).replace("\u2581", "")
    utf8 = text.encode()
    parts = list(pieces(utf8, tokenizer.safe_cut, 400))
    assert "".join(parts) == text
    sizes = np.array([len(part.encode()) for part in parts])
    assert sizes.max() <= 400
    assert np.median(sizes) > 300
    assert ids_of(tokenizer, text, 400) == ids_of(tokenizer, text, 1_000_000)


@pytest.mark.shared_data
def test_ordinary_text_is_cut_by_a_real_tokenizer(real: Tokenizer):
    text = prose(3000)
    assert ids_of(real, text, 400) == ids_of(real, text, 1_000_000)


@pytest.mark.shared_data
@pytest.mark.parametrize("name", ["nanochat", "an unknown pattern", "nothing splits"])
def test_real_prose_and_code_in_short_pieces_have_the_ids_of_the_whole(name: str):
    shard = SHARED / "pretrain" / "textmix" / "shard_00006.parquet"
    if not shard.exists():
        pytest.skip("the real text is absent: expected ../shared/data/pretrain/textmix beside the repository")
    rows = next(pq.ParquetFile(shard).iter_batches(batch_size=80, columns=["text"]))
    text = "\n".join(rows.column(0).to_pylist())
    tokenizer = Tokenizer(MADE[name]())
    assert len(list(pieces(text.encode(), tokenizer.safe_cut, 500))) > len(text.encode()) / 500
    assert ids_of(tokenizer, text, 500) == ids_of(tokenizer, text, len(text) * 4)


def test_a_text_without_spaces_is_cut_beside_its_marks_and_digits():
    tokenizer = Tokenizer(MADE["nanochat"]())
    text = "漢字漢字\uff0c漢字。" * 50 + "data:image/png;base64,aGVsbG8gd29ybGQ+/" * 20
    assert len(list(pieces(text.encode(), tokenizer.safe_cut, 60))) > 20
    assert ids_of(tokenizer, text, 60) == ids_of(tokenizer, text, 10_000)


@pytest.mark.parametrize("run", ["a", " ", "漢", "7", "\n", "!"])
def test_a_run_longer_than_a_piece_is_refused_with_its_place(run: str):
    tokenizer = Tokenizer(MADE["gpt2"]())
    text = "few words " * 10 + run * 200 + " end"
    size = len((run * 200).encode())
    with pytest.raises(LongRunError, match=r"(?s)more than 180 bytes without a place.*from byte (9\d|100) of \d+"):
        list(pieces(text.encode(), tokenizer.safe_cut, 60, 180))
    assert issubclass(LongRunError, CorpusError)
    shorter = list(pieces(text.encode(), tokenizer.safe_cut, 60, size + 20))
    assert "".join(shorter) == text
    assert size <= max(len(part.encode()) for part in shorter) <= size + 20
    assert ids_of(tokenizer, text, 60) == ids_of(tokenizer, text, 10_000)


def test_a_run_of_a_megabyte_is_refused_and_one_less_at_the_end_is_not():
    tokenizer = Tokenizer(MADE["gpt2"]())
    with pytest.raises(LongRunError, match="1,000,000 bytes"):
        tokenizer.encode_batch_utf8([b"short", b" " * 1_100_000])
    (rest,) = pieces(b"a" * 900_000, tokenizer.safe_cut)
    assert len(rest) == 900_000


def test_invalid_utf8_in_a_long_text_names_its_byte():
    tokenizer = Tokenizer(MADE["gpt2"]())
    with pytest.raises(CorpusError, match=r"(?s)not valid UTF-8.*at byte 503"):
        list(tokenizer.encode_utf8(b"word " * 100 + b"abc\xff" + b" word" * 100, piece_bytes=60))


def test_what_may_be_white_space_to_some_is_no_place_to_cut():
    for uncertain in "\x1c\x1f\u180e\u200b\ufeff\u0085\u2003":
        assert not ends_a_token(uncertain, " ")
    for mark in ".'!\u0301\u2019":
        assert not ends_a_token(mark, "\n")
    for after in ("a", "\u00e9"):
        assert not ends_a_token("'", after)
    assert not ends_a_token(" ", "a")
    assert ends_a_token("n", "\n")
    assert ends_a_token(".", " ")
