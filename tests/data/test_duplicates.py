import numpy as np
import pytest

from paribus.data import duplicates
from paribus.data.duplicates import near_duplicates, signatures
from paribus.seeds import generator


def shingle_set(text: str) -> set[tuple[str, ...]]:
    """The slow twin: 5-word shingles as tuples, one begun by every word, padded at the end of the text."""
    words = [*text.lower().split(), "", "", "", ""]
    return {tuple(words[index : index + 5]) for index in range(len(words) - 4)}


def jaccard(left: str, right: str) -> float:
    one, other = shingle_set(left), shingle_set(right)
    return len(one & other) / len(one | other)


def naive_near_duplicates(texts: list[str], similarity: float) -> list[bool]:
    kept: list[str] = []
    repeats = []
    for text in texts:
        repeats.append(any(jaccard(text, earlier) >= similarity for earlier in kept))
        if not repeats[-1]:
            kept.append(text)
    return repeats


@pytest.fixture(scope="module")
def texts_with_repeats() -> list[str]:
    """60 texts and, for each, copies with 0 to 60 % of the words replaced, in mixed order."""
    draw = generator("tests", "repeats")
    texts = []
    for _ in range(60):
        words = draw.integers(5000, size=int(draw.integers(3, 300))).astype(str)
        for share in (0.0, 0.01, 0.02, 0.2, 0.6):
            replaced = np.where(
                draw.random(len(words)) < share, draw.integers(5000, size=len(words)).astype(str), words
            )
            texts.append(" ".join(replaced))
    return [texts[index] for index in draw.permutation(len(texts))]


def test_near_duplicates_equal_those_of_the_all_pairs_comparison(texts_with_repeats: list[str]):
    expected = naive_near_duplicates(texts_with_repeats, 0.8)
    assert 60 <= sum(expected) <= 240
    assert near_duplicates(texts_with_repeats, 0.8).tolist() == expected


def test_a_pair_below_the_threshold_is_never_dropped_and_one_at_it_is():
    words = [str(index) for index in range(100)]
    changed = " ".join([*words[:90], *(f"x{index}" for index in range(10))])
    similarity = jaccard(" ".join(words), changed)
    pair = [" ".join(words), changed]
    assert near_duplicates(pair, similarity).tolist() == [False, True]
    assert near_duplicates(pair, similarity + 1e-9).tolist() == [False, False]


def test_the_same_words_in_reverse_order_are_another_text():
    words = [str(index) for index in range(100)]
    assert not near_duplicates([" ".join(words), " ".join(reversed(words))], 0.8).any()


def test_shared_signature_entries_estimate_the_similarity_within_four_standard_errors():
    words = [str(index) for index in range(2000)]
    for kept in (600, 1200, 1800):
        pair = [" ".join(words), " ".join([*words[:kept], *(f"x{index}" for index in range(2000 - kept))])]
        left, right = signatures(pair)
        similarity = jaccard(*pair)
        standard_error = (similarity * (1 - similarity) / len(left)) ** 0.5
        assert abs(np.mean(left == right) - similarity) < 4 * standard_error


def test_the_result_does_not_depend_on_how_texts_are_chunked(
    texts_with_repeats: list[str], monkeypatch: pytest.MonkeyPatch
):
    whole = near_duplicates(texts_with_repeats, 0.8)
    monkeypatch.setattr(duplicates, "_CHARACTERS_PER_CHUNK", 500)
    np.testing.assert_array_equal(near_duplicates(texts_with_repeats, 0.8), whole)


def test_short_and_strange_texts_are_compared_like_any_other():
    texts = ["a", "b", "A", "two words", "", "two\n\twords", "\u0301", "a b", "🙂 " * 9, "🙂 " * 9 + "b"]
    assert near_duplicates(texts, 0.8).nonzero()[0].tolist() == [2, 5]


def test_a_thousand_copies_of_one_template_take_no_quadratic_time():
    template = " ".join(f"word{index}" for index in range(300))
    repeats = near_duplicates([f"{template} {index}" for index in range(1000)], 0.8)
    assert repeats.tolist() == [False] + [True] * 999
