"""Published tokenizers give the ids and bytes that their authors' programs gave."""

import base64
import json
from pathlib import Path

import numpy as np
import pytest

from paribus.data.tokenizer import Tokenizer
from paribus.data.tokenizers import files, patterns
from paribus.errors import CorpusError

SHARED = Path(__file__).parents[3] / "shared" / "data"
RANKS = "tokenizer/tiktoken_cache/0ea1e91bbb3a60f729a8dc8f777fd2fc07cd8df4"


def shared(name: str) -> Path:
    if not (SHARED / name).exists():
        pytest.skip(f"real data is absent: expected ../shared/data/{name} beside the repository")
    return SHARED / name


@pytest.mark.shared_data
def test_the_tokenizer_of_nanochat_gives_its_ids_and_bytes():
    golden = json.loads(shared("nanochat_golden/2026-07-text.json").read_text(encoding="utf-8"))
    assert golden["pattern"] == patterns.NANOCHAT
    ranks = sorted(golden["mergeable_ranks_hex"], key=golden["mergeable_ranks_hex"].__getitem__)
    definition = files.from_ranks(list(map(bytes.fromhex, ranks)), golden["pattern"], golden["special_tokens"])
    tokenizer = Tokenizer(definition)
    assert tokenizer.vocabulary_size == golden["vocab_size"]
    assert tokenizer.bos_id == golden["special_tokens"]["<|bos|>"]
    assert tokenizer.token_bytes().tolist() == golden["token_bytes"]
    assert len(golden["encode"]) >= 3
    for case in golden["encode"]:
        (ids,) = tokenizer.encode_batch([case["text"]])
        assert ids.tolist() == case["ids"]
        assert [tokenizer.bos_id, *ids.tolist()] == case["ids_bos"]
    assert tokenizer.decode_bytes(range(tokenizer.vocabulary_size)).hex() == "".join(ranks)


@pytest.mark.shared_data
def test_the_vocabulary_of_stories260k_gives_the_ids_of_its_golden_text():
    folder = shared("models/stories260K")
    golden = json.loads((folder / "golden.json").read_text(encoding="utf-8"))
    tokenizer = Tokenizer.load(folder)
    assert (tokenizer.bos_id, tokenizer.vocabulary_size) == (1, 512)
    # Its program puts a space before the text; here the text has it.
    (ids,) = tokenizer.encode_batch([" " + golden["text"]])
    assert [tokenizer.bos_id, *ids.tolist()] == golden["token_ids"]


@pytest.mark.shared_data
def test_gpt2_is_read_from_its_vocabulary_and_merges_and_equals_its_ranks():
    tokenizer = Tokenizer.load(shared("tokenizer/tiktoken_cache"))
    assert (tokenizer.bos_id, tokenizer.vocabulary_size) == (50256, 50257)
    # Radford et al.'s encoder on this text, as published with it.
    assert tokenizer.encode_batch(["Hello world"])[0].tolist() == [15496, 995]
    lines = shared(RANKS).read_text().splitlines()
    first = [base64.b64decode(line.split(" ")[0]) for line in lines[:3000]]
    by_rank = Tokenizer(files.from_ranks(first, patterns.GPT2, {"<|endoftext|>": 3000}))
    assert b"".join(base64.b64decode(line.split(" ")[0]) for line in lines) == tokenizer.decode_bytes(range(50256))
    text = "The first words of it are theirs: don't, we'll 42\n\n  naïve"
    (ids,), (among_first,) = tokenizer.encode_batch([text]), by_rank.encode_batch([text])
    assert by_rank.decode(among_first) == text
    short = [place for place in ids if place < 3000]
    assert len(short) > 5
    assert set(short) <= set(among_first.tolist())


@pytest.mark.shared_data
@pytest.mark.parametrize("names", files.GPT2_FILES[:2])
def test_gpt2_is_the_same_under_every_name_of_its_files(tmp_path: Path, names: tuple[str, str]):
    cache = shared("tokenizer/tiktoken_cache")
    for there, here in zip(files.GPT2_FILES[2], names, strict=True):
        (tmp_path / here).symlink_to(cache / there)
    assert files.read(tmp_path) == files.read(cache)


@pytest.mark.shared_data
def test_gpt2_saved_as_one_file_is_the_same_tokenizer(tmp_path: Path):
    tokenizer = Tokenizer.load(shared("tokenizer/tiktoken_cache"))
    tokenizer.save(tmp_path / "tokenizer.json")
    assert Tokenizer.load(tmp_path).digest == tokenizer.digest


def test_ranks_restore_the_merges_of_what_was_learnt():
    texts = ["the theme of these themes, then them; 1234 1234 naïve 漢字漢字"] * 30
    learnt = Tokenizer.train(texts, 300)
    ranks = [learnt.decode_bytes([index]) for index in range(1, learnt.vocabulary_size)]
    assert len(ranks) > 256 + 20
    restored = Tokenizer(files.from_ranks(ranks, patterns.GPT2, {"<|bos|>": len(ranks)}))
    (ids,), (again,) = learnt.encode_batch(texts[:1]), restored.encode_batch(texts[:1])
    np.testing.assert_array_equal(ids - 1, again)


def test_ranks_that_no_byte_pair_encoding_learnt_are_refused():
    alphabet = [bytes([byte]) for byte in range(256)]
    with pytest.raises(CorpusError, match=r"b'abc' is no merge of two earlier ones"):
        files.from_ranks([*alphabet, b"abc"], patterns.GPT2, {"<|bos|>": 257})
    with pytest.raises(CorpusError, match="two ranks"):
        files.from_ranks([*alphabet, b"a"], patterns.GPT2, {"<|bos|>": 257})
