"""Every kind of tokenizer keeps every byte of every text, and no text becomes a special token."""

import copy
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import models, pre_tokenizers, trainers

from paribus.data.config import NANOCHAT_SPECIAL_TOKENS, TokenizerConfig
from paribus.data.tokenizer import Tokenizer
from paribus.data.tokenizers import patterns
from paribus.data.tokenizers.learning import learn
from paribus.data.tokenizers.spelling import BYTE_TOKENS
from paribus.errors import CorpusError

SHARED = Path(__file__).parents[3] / "shared" / "data"
TEXTS = [
    "The quick brown fox jumps over the lazy dog's 12345 times!\n\n    indented\tcode() = {}\r\n",
    "naïve café 漢字。 🙂🙂 e\u0301\u0301 <|bos|> </s> <0x0A> [INST] <think>",
] * 20
Definition = dict[str, Any]


def byte_level(**changes: Any) -> Definition:
    """A learnt one with everything in its file that could lose or add text, and tokens that are not flagged special."""
    definition = learn(TEXTS, TokenizerConfig(380, special_tokens=("<|endoftext|>", "[INST]")))
    added = {"single_word": False, "lstrip": True, "rstrip": True, "normalized": True, "special": False}
    definition["added_tokens"] += [added | {"id": 380, "content": "<think>"}, added | {"id": 381, "content": "    "}]
    template = {"id": "<|endoftext|>", "ids": [0], "tokens": ["<|endoftext|>"]}
    wrapped = [{"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    definition |= {
        "truncation": {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0},
        "padding": {
            "strategy": {"Fixed": 50},
            "direction": "Left",
            "pad_to_multiple_of": None,
            "pad_id": 0,
            "pad_type_id": 0,
            "pad_token": "<|endoftext|>",
        },
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}]},
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": wrapped,
            "pair": [*wrapped, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<|endoftext|>": template},
        },
    }
    definition["model"] |= {"dropout": 0.5, "unk_token": "<|endoftext|>"}
    definition["model"] |= changes.pop("model", {})
    return definition | changes


def split(pattern: str, **changes: Any) -> Definition:
    stages = [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False} | changes,
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
    ]
    return {"type": "Sequence", "pretokenizers": stages}


def sentencepiece(*, by_normalizer: bool = False) -> Definition:
    backend = tokenizers.Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    special = ["<unk>", "<s>", "</s>"]
    trainer = trainers.BpeTrainer(vocab_size=420, special_tokens=[*special, *BYTE_TOKENS], show_progress=False)
    backend.train_from_iterator(TEXTS, trainer)
    definition = json.loads(backend.to_str())
    definition["added_tokens"] = definition["added_tokens"][:3]
    if by_normalizer:
        parts = [
            {"type": "Prepend", "prepend": "\u2581"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
        ]
        definition |= {"pre_tokenizer": None, "normalizer": {"type": "Sequence", "normalizers": parts}}
    return definition


MADE: dict[str, Callable[[], Definition]] = {
    "gpt2": lambda: learn(TEXTS, TokenizerConfig(380)),
    "nanochat": lambda: learn(TEXTS, TokenizerConfig(380, "nanochat", NANOCHAT_SPECIAL_TOKENS)),
    "with everything": byte_level,
    "llama 3": lambda: byte_level(pre_tokenizer=split(patterns.LLAMA3), model={"ignore_merges": True}),
    "whole words from the vocabulary": lambda: byte_level(
        pre_tokenizer=split(r"[^ ]+| +"), model={"ignore_merges": True}
    ),
    "without splits": lambda: byte_level(
        pre_tokenizer={"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    ),
    "kept matches": lambda: byte_level(pre_tokenizer=split(patterns.GPT4, behavior="Removed", invert=True)),
    "metaspace": sentencepiece,
    "replaced spaces": lambda: sentencepiece(by_normalizer=True),
}
REAL = {"real gpt2": "tokenizer/tiktoken_cache", "stories260K": "models/stories260K/tokenizer.json"}


@pytest.fixture(scope="module", params=MADE)
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return Tokenizer(MADE[request.param]())


@pytest.fixture(scope="module", params=REAL)
def real(request: pytest.FixtureRequest) -> Tokenizer:
    return Tokenizer.load(shared(REAL[request.param]))


def shared(name: str) -> Path:
    if not (SHARED / name).exists():
        pytest.skip(f"real data is absent: expected ../shared/data/{name} beside the repository")
    return SHARED / name


SPELLED = ["<|bos|>", "<|endoftext|>", "<|user_start|>", "[INST]", "<think>", "<s>", "</s>", "<0x0A>", "<0xE2>"]
ODD = ["\x00", "\r", "\r\n", "\ufffe", "\ufeff", "\u0301", "\u2581", "    ", "\u3000", "\ufb01", "\xe9", "🙂"]
anything = st.lists(st.one_of(st.text(max_size=5), st.sampled_from([*SPELLED, *ODD])), max_size=10).map("".join)


def check(tokenizer: Tokenizer, text: str) -> None:
    utf8 = text.encode()
    ids, lengths = tokenizer.encode_batch_utf8([utf8])
    assert lengths.tolist() == [len(ids)]
    assert tokenizer.decode_bytes(ids) == utf8
    assert tokenizer.token_bytes()[ids].sum() == len(utf8)
    assert tokenizer.decode(ids) == text
    assert not set(ids.tolist()) & set(tokenizer.special_tokens.values())
    np.testing.assert_array_equal(np.concatenate([*tokenizer.encode_utf8(utf8), ids[:0]]), ids)


@settings(deadline=None, max_examples=100)
@given(anything)
@example("\x00\r\ufffe\u0301\u2581\u2581 \u2581a ")
@example("e\u0301ﬁ\u00e9")
def test_no_byte_of_any_text_vanishes_and_token_bytes_add_up(tokenizer: Tokenizer, text: str):
    check(tokenizer, text)


@pytest.mark.shared_data
@settings(deadline=None, max_examples=100)
@given(anything)
def test_no_byte_of_any_text_vanishes_in_a_real_tokenizer(real: Tokenizer, text: str):
    check(real, text)


def in_every_position(name: str) -> list[str]:
    around = ["", " ", "\n", "a", "1", ".", name]
    return [before + name + after for before, after in itertools.product(around, repeat=2)]


def test_text_that_spells_a_special_token_never_becomes_one_also_after_saving(tokenizer: Tokenizer, tmp_path: Path):
    tokenizer.save(tmp_path / "tokenizer.json")
    beginning = next(name for name, index in tokenizer.special_tokens.items() if index == tokenizer.bos_id)
    loaded = Tokenizer.load(tmp_path / "tokenizer.json", beginning)
    assert loaded.digest == tokenizer.digest
    assert loaded.special_tokens == tokenizer.special_tokens
    for name in {*tokenizer.special_tokens, *SPELLED}:
        for text in in_every_position(name):
            check(tokenizer, text)
            check(loaded, text)


@pytest.mark.shared_data
def test_text_that_spells_a_special_token_never_becomes_one_of_a_real_tokenizer(real: Tokenizer):
    for name in {*real.special_tokens, *SPELLED}:
        for text in in_every_position(name):
            check(real, text)


def test_what_changes_a_text_without_being_a_token_is_left_out():
    text = "the quick    brown fox <think> the"
    plain = learn(TEXTS, TokenizerConfig(380, special_tokens=("<|endoftext|>", "[INST]")))
    expected = Tokenizer(plain).encode_batch([text, " " + text])
    found = Tokenizer(byte_level()).encode_batch([text, " " + text])
    assert [ids.tolist() for ids in found] == [ids.tolist() for ids in expected]
    assert Tokenizer(byte_level()).encode_batch([text] * 9)[8].tolist() == expected[0].tolist()


def test_ordinary_text_has_the_ids_that_the_library_gives(tokenizer: Tokenizer):
    made = {Tokenizer(make()).digest: make() for make in MADE.values()}[tokenizer.digest]
    bare: Definition = copy.deepcopy(made) | {"truncation": None, "padding": None}
    bare["model"] |= {"dropout": None}
    bare["added_tokens"] = [token for token in bare["added_tokens"] if token["special"]]
    backend = tokenizers.Tokenizer.from_str(json.dumps(bare))
    backend.encode_special_tokens = True
    for text in (" The lazy dog's 12345\n\n    times! 漢字", " x", " naïve\tcode 🙂"):
        expected = backend.encode(text, add_special_tokens=False).ids
        prefixed = made["pre_tokenizer"] is None or made["pre_tokenizer"].get("type") == "Metaspace"
        # sentencepiece puts a space before the text; here it is the text's own.
        ours = text if not prefixed or made["normalizer"] is None else " " + text
        assert tokenizer.encode_batch([ours])[0].tolist() == expected


def test_a_word_of_the_vocabulary_without_merges_is_a_token_where_the_file_says_so():
    found = {}
    for ignore_merges in (False, True):
        definition = byte_level(model={"ignore_merges": ignore_merges})
        definition["model"]["vocab"]["zebra"] = 400
        tokenizer = Tokenizer(definition)
        check(tokenizer, "zebra zebra")
        found[ignore_merges] = tokenizer.encode_batch(["zebra"])[0].tolist()
    assert found[True] == [400]
    assert len(found[False]) > 1


def test_a_space_of_sentencepiece_and_the_character_that_spells_it_stay_apart():
    tokenizer = Tokenizer(sentencepiece())
    sizes = tokenizer.token_bytes()
    spaces, marks = tokenizer.encode_batch(["a a", "a\u2581a"])
    assert sizes[spaces].sum() == 3
    assert sizes[marks].tolist() == [1, 1, 1, 1, 1]
    assert tokenizer.decode(marks) == "a\u2581a"
    assert tokenizer.decode(tokenizer.encode_batch(["\u2581" * 3])[0]) == "\u2581" * 3


def test_an_added_token_that_merges_spell_too_is_an_ordinary_one():
    definition = learn(TEXTS, TokenizerConfig(380))
    word = "".join(definition["model"]["merges"][0])
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    definition["added_tokens"].append(flags | {"id": definition["model"]["vocab"][word], "content": word})
    assert word not in Tokenizer(definition).special_tokens
    assert Tokenizer(definition).digest == Tokenizer(learn(TEXTS, TokenizerConfig(380))).digest


LOSSY: dict[str, tuple[Callable[[], Definition], str]] = {
    "lower case": (lambda: byte_level(normalizer={"type": "Lowercase"}), r"(?s)Lowercase.*turns ' A .* into ' a "),
    "compatibility": (lambda: byte_level(normalizer={"type": "NFKC"}), r"(?s)NFKC.*turns 'e.* into 'é fi'"),
    "stripped": (
        lambda: byte_level(normalizer={"type": "Strip", "strip_left": True, "strip_right": True}),
        r"(?s)Strip.*it turns",
    ),
    "white space": (lambda: byte_level(pre_tokenizer={"type": "WhitespaceSplit"}), r"(?s)WhitespaceSplit.*it turns"),
    "removed": (lambda: byte_level(pre_tokenizer=split(" ", behavior="Removed")), r"(?s)Removed.*it turns"),
    "scripts": (lambda: byte_level(pre_tokenizer={"type": "UnicodeScripts"}), r"(?s)UnicodeScripts.*it turns"),
    "twice": (
        lambda: byte_level(pre_tokenizer={"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"}] * 2}),
        "two ByteLevel",
    ),
    "suffix": (lambda: byte_level(model={"end_of_word_suffix": "</w>"}), "end_of_word_suffix '</w>'"),
    "no byte tokens": (lambda: byte_level(pre_tokenizer=None), "no ByteLevel pre-tokenizer and no byte fallback"),
    "word pieces": (
        lambda: byte_level(model={"type": "WordPiece"}),
        r"(?s)a WordPiece model.*white space is dropped",
    ),
    "unigram": (lambda: byte_level(model={"type": "Unigram"}), r"(?s)a Unigram model.*special tokens are pieces"),
}


@pytest.mark.parametrize("name", LOSSY)
def test_a_tokenizer_that_loses_text_is_refused_naming_the_part(name: str, tmp_path: Path):
    make, message = LOSSY[name]
    (tmp_path / "odd.json").write_text(json.dumps(make()))
    with pytest.raises(CorpusError, match=message) as raised:
        Tokenizer.load(tmp_path / "odd.json")
    assert "odd.json" in str(raised.value)


def test_a_vocabulary_without_some_byte_is_refused():
    definition = learn(["abc"], TokenizerConfig(257))
    del definition["model"]["vocab"]["!"]
    with pytest.raises(CorpusError, match=r"(?s)1 of 256 byte tokens.*no token for !"):
        Tokenizer(definition)
    without = sentencepiece()
    del without["model"]["vocab"]["<0x0A>"]
    with pytest.raises(CorpusError, match=r"no token for <0x0A>"):
        Tokenizer(without)


@pytest.mark.parametrize("content", ["{}", "[]", "nonsense", '{"model": {"type": "BPE", "vocab": 3, "merges": 4}}'])
def test_what_is_no_tokenizer_is_named(content: str, tmp_path: Path):
    (tmp_path / "odd.json").write_text(content)
    with pytest.raises(CorpusError, match=r"odd\.json cannot be read as a tokenizer"):
        Tokenizer.load(tmp_path / "odd.json")


def test_a_folder_without_a_tokenizer_says_what_it_holds(tmp_path: Path):
    (tmp_path / "other.txt").touch()
    with pytest.raises(CorpusError, match=r"(?s)holds no tokenizer.*received: other\.txt"):
        Tokenizer.load(tmp_path)
