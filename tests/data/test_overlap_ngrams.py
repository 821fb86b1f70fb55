import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paribus.data import ngrams as module
from paribus.data.ngrams import HashSet, ngrams

TEXTS = st.text(st.sampled_from("aAbBİß0² .,-\n\u3000🙂“漢"), max_size=120)


def naive_ngrams(text: str) -> list[tuple[str, ...]]:
    """The slow twin: the 13-grams of a text in order, as tuples of words."""
    spaced = "".join(character.lower()[0] if character.isalnum() else " " for character in text)
    words = spaced.split(" ")
    words = [word for word in words if word]
    return [tuple(words[begin : begin + 13]) for begin in range(len(words) - 12)]


def hashes_of(texts: list[str]) -> list[list[int]]:
    """`[document][ngram]`"""
    found: list[list[int]] = [[] for _ in texts]
    for hashes, document in ngrams([text.encode() for text in texts]):
        for value, number in zip(hashes.tolist(), document.tolist(), strict=True):
            found[number].append(value)
    return found


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(TEXTS, max_size=5), size=st.sampled_from([500, 500_000]))
def test_hashes_stand_for_the_tuples_of_words_in_order(texts: list[str], size: int, monkeypatch: pytest.MonkeyPatch):
    # 120 characters have fewer bytes than the smaller chunk, so texts are batched in different ways and never cut.
    monkeypatch.setattr(module, "_BYTES_PER_CHUNK", size)
    hashes = [value for of_text in hashes_of(texts) for value in of_text]
    tuples = [words for text in texts for words in naive_ngrams(text)]
    assert len(hashes) == len(tuples)
    assert len(set(zip(hashes, tuples, strict=True))) == len(set(hashes)) == len(set(tuples))


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=st.lists(st.text("aß漢0", min_size=1, max_size=4), max_size=60), size=st.integers(20, 60))
def test_a_long_text_in_segments_has_the_hashes_of_the_whole(
    words: list[str], size: int, monkeypatch: pytest.MonkeyPatch
):
    text = "“".join(words)
    whole = hashes_of([text])
    with monkeypatch.context() as patched:
        patched.setattr(module, "_BYTES_PER_CHUNK", size)
        assert hashes_of([text, "a b c", text]) == [whole[0], [], whole[0]]


def test_a_word_longer_than_a_segment_comes_to_an_end(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "_BYTES_PER_CHUNK", 16)
    assert len(hashes_of(["漢" * 1000 + " " + "a b " * 20])[0]) > 0


def test_case_punctuation_and_spacing_do_not_count_and_words_do():
    one = "The quick-brown fox, (it is SAID) jumps over 12 lazy dogs at noon."
    same = "the QUICK brown fox it is said\n\njumps over «12» lazy dogs... at noon"
    other = "the quick brown fox it is said jumps over 13 lazy dogs at noon"
    swapped = "the brown quick fox it is said jumps over 12 lazy dogs at noon"
    joined = "the quick brown fox it is said jumps over 12 lazydogs at noon ok"
    first, second, *rest = hashes_of([one, same, other, swapped, joined])
    assert first == second
    assert len(first) == 2
    assert not set(first) & {value for of_text in rest for value in of_text[:1]}


def test_no_n_gram_reaches_into_the_next_text_and_one_needs_thirteen_words():
    words = " ".join("abcdefghijklm")
    assert [len(found) for found in hashes_of([words[:-2], words, words[:-2], words + " n", ""])] == [0, 1, 0, 2, 0]


def test_lower_case_keeps_what_is_a_letter_or_digit():
    differ = [code for code in range(0x110000) if chr(code).isalnum() != chr(code).lower()[0].isalnum()]
    assert differ == []


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 2**64 - 1), max_size=50),
    st.lists(st.integers(0, 2**64 - 1), max_size=50),
    st.integers(0, 60),
)
def test_a_set_finds_what_is_in_it_and_nothing_else(inside: list[int], others: list[int], shift: int):
    near = [value ^ 1 << shift for value in inside]
    looked_up = np.array([*inside, *near, *others], dtype=np.uint64)
    hashes = HashSet.of(np.array(inside, dtype=np.uint64))
    which, place = hashes.found(looked_up)
    assert which.tolist() == [index for index, value in enumerate(looked_up.tolist()) if value in set(inside)]
    np.testing.assert_array_equal(hashes.hashes[place], looked_up[which])
