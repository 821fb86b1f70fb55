from hashlib import blake2b

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paribus.data import shingles
from paribus.data.shingles import band_keys, jaccard_reaches, shingle_sets, signatures
from paribus.seeds import generator

TEXTS = st.text(st.sampled_from("aAbß \n\t\u3000\u0130🙂"), max_size=60)


def lower(text: str) -> str:
    """Every character on its own, as Arrow has it: of İ, Python makes two."""
    return "".join(character.lower()[0] for character in text)


def shingle_tuples(text: str) -> set[tuple[str, ...]]:
    words = [*(lower(text).split() or [""]), *[""] * 4]
    return {tuple(words[index : index + 5]) for index in range(len(words) - 4)}


def naive_scrambled(value: int) -> int:
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB % 2**64
    return value ^ (value >> 31)


def draws(name: str, count: int) -> list[int]:
    return generator("near-duplicates", name).integers(2**64, size=count, dtype=np.uint64).tolist()


def naive_band_keys(text: str) -> list[int]:
    """The keys from their definition, in Python's integers."""
    words = [int.from_bytes(blake2b(word.encode(), digest_size=8).digest(), "little") for word in text.lower().split()]
    weights = [weight | 1 for weight in draws("shingles", 5)]
    padded = [*words, 0, 0, 0, 0]
    hashes = [
        naive_scrambled(sum(word * weight for word, weight in zip(padded[begin:], weights, strict=False)) % 2**64)
        for begin in range(len(words))
    ]
    draw = generator("near-duplicates", "permutations")
    multipliers = (draw.integers(2**64, size=80, dtype=np.uint64) | np.uint64(1)).tolist()
    offsets = draw.integers(2**64, size=80, dtype=np.uint64).tolist()
    signature = [
        min((value * multiplier + offset) % 2**64 for value in hashes)
        for multiplier, offset in zip(multipliers, offsets, strict=True)
    ]
    rows = [weight | 1 for weight in draws("bands", 5)]
    return [
        sum(naive_scrambled(signature[5 * band + row] * rows[row] % 2**64) for row in range(5)) % 2**64
        for band in range(16)
    ]


def test_band_keys_are_those_of_the_definition():
    draw = generator("tests", "band keys")
    texts = [" ".join(draw.integers(50, size=size).astype(str)) for size in (1, 3, 5, 40)] + ["Ä  b\nC"]
    assert band_keys([text.encode() for text in texts]).tolist() == [naive_band_keys(text) for text in texts]


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(TEXTS, max_size=6), size=st.integers(1, 30))
def test_keys_and_sets_do_not_depend_on_how_texts_are_cut_into_chunks(
    texts: list[str], size: int, monkeypatch: pytest.MonkeyPatch
):
    encoded = [text.encode() for text in texts]
    monkeypatch.setattr(shingles, "_BYTES_PER_CHUNK", 1_000_000)
    keys, sets = band_keys(encoded), [hashes.tolist() for hashes in shingle_sets(encoded)]
    monkeypatch.setattr(shingles, "_BYTES_PER_CHUNK", size)
    np.testing.assert_array_equal(band_keys(encoded), keys)
    assert [hashes.tolist() for hashes in shingle_sets(encoded)] == sets


@pytest.mark.parametrize("size", [7, 10, 33])
def test_a_shingle_of_many_segments_stands_in_the_set_once(size: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(shingles, "_BYTES_PER_CHUNK", size)
    (hashes,) = shingle_sets([b"a bb ccc " * 200])
    assert len(hashes) == len(shingle_tuples("a bb ccc " * 200)) == 7
    assert np.all(hashes[1:] > hashes[:-1])


@settings(deadline=None)
@given(TEXTS)
def test_a_set_has_an_element_for_each_different_shingle(text: str):
    (hashes,) = shingle_sets([text.encode()])
    assert len(hashes) == len(shingle_tuples(text))
    assert np.all(hashes[1:] > hashes[:-1])


@settings(deadline=None)
@given(st.sets(st.integers(0, 40), min_size=1), st.sets(st.integers(0, 40), min_size=1), st.floats(0, 1))
def test_the_similarity_is_the_jaccard_index_of_the_sets(left: set[int], right: set[int], similarity: float):
    index = len(left & right) / len(left | right)
    arrays = [np.array(sorted(values), dtype=np.uint64) for values in (left, right)]
    assert jaccard_reaches(arrays[0], arrays[1], similarity) == (index >= similarity)
    assert jaccard_reaches(arrays[1], arrays[0], index)
    assert not jaccard_reaches(arrays[0], arrays[1], np.nextafter(index, 2))


def test_shared_signature_entries_estimate_the_similarity_within_four_standard_errors():
    words = [str(index) for index in range(2000)]
    for kept in (600, 1200, 1800):
        pair = [" ".join(words), " ".join([*words[:kept], *(f"x{index}" for index in range(2000 - kept))])]
        left, right = signatures([text.encode() for text in pair])
        one, other = map(shingle_tuples, pair)
        similarity = len(one & other) / len(one | other)
        standard_error = (similarity * (1 - similarity) / len(left)) ** 0.5
        assert abs(np.mean(left == right) - similarity) < 4 * standard_error


def test_no_texts_have_no_keys():
    assert band_keys([]).shape == (0, 16)
