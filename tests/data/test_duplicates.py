from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from hashlib import blake2b
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from paribus.data import partitions
from paribus.data.clusters import _join, _root, clusters
from paribus.data.duplicates import Candidates, find_candidates, near_duplicates_of, write_band_keys
from paribus.data.shingle_files import write_shingle_sets
from paribus.data.shingles import band_keys
from paribus.errors import CorpusError
from paribus.seeds import generator

Layout = list[list[str]]
"""the texts of each piece"""


def near_duplicates(texts: Sequence[str], similarity: float) -> NDArray[np.bool_]:
    """`[document]`: true where a text repeats an earlier kept one, through all files of the four steps."""
    encoded = [text.encode() for text in texts]
    repeats = np.zeros(len(texts), dtype=np.bool_)
    with TemporaryDirectory() as name:
        folder = Path(name)
        write_band_keys(folder / "bands", 0, [band_keys(encoded)])
        candidates = find_candidates([folder / "bands"], folder, left_out=np.empty(0, dtype=np.int64))
        rows = candidates.rows(0).tolist()
        write_shingle_sets(folder / "sets", 0, rows, (encoded[row] for row in rows))
        repeats[near_duplicates_of(candidates, [folder / "sets"], similarity, folder)] = True
    return repeats


@cache
def shingle_tuples(text: str) -> set[tuple[str, ...]]:
    """The slow twin: 5-word shingles as tuples, one begun by every word, padded at the end of the text."""
    words = [*(text.lower().split() or [""]), "", "", "", ""]
    return {tuple(words[index : index + 5]) for index in range(len(words) - 4)}


def jaccard(left: str, right: str) -> float:
    one, other = shingle_tuples(left), shingle_tuples(right)
    return len(one & other) / len(one | other)


def naive_all_pairs(texts: Sequence[str], similarity: float) -> list[bool]:
    kept: list[str] = []
    repeats = []
    for text in texts:
        repeats.append(any(jaccard(text, earlier) >= similarity for earlier in kept))
        if not repeats[-1]:
            kept.append(text)
    return repeats


def naive_banded(texts: Sequence[str], similarity: float) -> list[bool]:
    """In one pass, in memory: every document against the kept ones of its 16 buckets."""
    keys = band_keys([text.encode() for text in texts]).tolist()
    kept: dict[tuple[int, int], list[int]] = defaultdict(list)
    repeats = []
    for document, text in enumerate(texts):
        earlier = {other for bucket in enumerate(keys[document]) for other in kept[bucket]}
        repeats.append(any(jaccard(text, texts[other]) >= similarity for other in earlier))
        if not repeats[-1]:
            for bucket in enumerate(keys[document]):
                kept[bucket].append(document)
    return repeats


def naive_clusters(texts: Sequence[str], similarity: float) -> list[bytes]:
    """`[document]`: the smallest id in the component of all pairs that share a bucket and are alike."""
    keys = band_keys([text.encode() for text in texts])
    ids = [blake2b(text.encode(), digest_size=16).digest() for text in texts]
    alike = [
        [
            bool((keys[one] == keys[other]).any()) and jaccard(texts[one], texts[other]) >= similarity
            for other in range(one)
        ]
        for one in range(len(texts))
    ]
    smallest = list(ids)
    for _ in texts:
        for one, row in enumerate(alike):
            for other in np.flatnonzero(row).tolist():
                smallest[one] = smallest[other] = min(smallest[one], smallest[other])
    return smallest


def laid_out(texts: Sequence[str], pieces: int) -> Layout:
    return [list(part) for part in np.array_split(np.array(texts, dtype=object), pieces)]


def positions(layout: Layout) -> list[int]:
    return [piece * 2**32 + row for piece, texts in enumerate(layout) for row in range(len(texts))]


def prepared(layout: Layout, folder: Path, left_out: Sequence[int] = ()) -> tuple[Candidates, list[Path]]:
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"bands-{piece}" for piece in range(len(layout))]
    for piece, texts in enumerate(layout):
        encoded = [text.encode() for text in texts]
        write_band_keys(
            files[piece], piece, (band_keys(encoded[begin : begin + 7]) for begin in range(0, len(encoded), 7))
        )
    candidates = find_candidates(files[::-1], folder / "work", left_out=np.array(left_out, dtype=np.int64))
    sets = []
    for piece, texts in enumerate(layout):
        rows = candidates.rows(piece).tolist()
        if rows:
            sets.append(folder / f"sets-{piece}")
            write_shingle_sets(sets[-1], piece, rows, (texts[row].encode() for row in rows))
    return candidates, sets[::-1]


@pytest.fixture(scope="module")
def texts_with_repeats() -> list[str]:
    """25 texts and, for each, copies with 0 to 60 % of the words replaced, in mixed order, none of them twice."""
    draw = generator("tests", "repeats")
    texts = []
    for _ in range(25):
        words = draw.integers(5000, size=int(draw.integers(3, 200))).astype(str)
        for share in (0.0, 0.01, 0.02, 0.03, 0.2, 0.6):
            replaced = np.where(
                draw.random(len(words)) < share, draw.integers(5000, size=len(words)).astype(str), words
            )
            texts.append(" ".join(replaced))
    different = list(dict.fromkeys(texts))
    return [different[index] for index in draw.permutation(len(different))]


@pytest.fixture(params=[2_000_000, 16], ids=["one partition", "many partitions"])
def partition_size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitions, "_RECORDS_PER_PARTITION", request.param)
    monkeypatch.setattr(partitions, "_RECORDS_PER_BLOCK", 11)


@pytest.mark.usefixtures("partition_size")
@pytest.mark.parametrize("similarity", [0.7, 0.8, 1.0])
@pytest.mark.parametrize("pieces", [1, 9])
def test_repeats_from_files_are_those_of_the_one_pass_in_memory(
    texts_with_repeats: list[str], similarity: float, pieces: int, tmp_path: Path
):
    layout = laid_out(texts_with_repeats, pieces)
    candidates, sets = prepared(layout, tmp_path)
    found = near_duplicates_of(candidates, sets, similarity, tmp_path)
    expected = naive_banded(texts_with_repeats, similarity)
    assert found.tolist() == [place for place, repeat in zip(positions(layout), expected, strict=True) if repeat]
    assert similarity == 1.0 or 20 <= len(found) <= 120


def test_repeats_equal_those_of_the_all_pairs_comparison(texts_with_repeats: list[str]):
    assert near_duplicates(texts_with_repeats, 0.8).tolist() == naive_all_pairs(texts_with_repeats, 0.8)


def test_documents_that_are_left_out_are_compared_with_nothing(texts_with_repeats: list[str], tmp_path: Path):
    layout = laid_out(texts_with_repeats, 4)
    everything = positions(layout)
    left_out = everything[::3]
    candidates, sets = prepared(layout, tmp_path, left_out)
    remaining = [
        (place, text)
        for index, (place, text) in enumerate(zip(everything, texts_with_repeats, strict=True))
        if index % 3
    ]
    expected = naive_banded([text for _, text in remaining], 0.8)
    assert near_duplicates_of(candidates, sets, 0.8, tmp_path).tolist() == [
        place for (place, _), repeat in zip(remaining, expected, strict=True) if repeat
    ]
    assert not set(left_out) & set(candidates.positions.tolist())


@pytest.mark.usefixtures("partition_size")
def test_candidates_are_the_documents_that_share_a_band_and_their_groups_agree_from_both_sides(
    texts_with_repeats: list[str], tmp_path: Path
):
    layout = laid_out(texts_with_repeats, 5)
    candidates, _ = prepared(layout, tmp_path)
    keys = band_keys([text.encode() for text in texts_with_repeats])
    buckets: dict[tuple[int, int], list[int]] = defaultdict(list)
    for place, row in zip(positions(layout), keys.tolist(), strict=True):
        for bucket in enumerate(row):
            buckets[bucket].append(place)
    expected = sorted(members for members in buckets.values() if len(members) > 1)
    offsets = candidates.member_offsets.tolist()
    groups = [candidates.members[slice(*offsets[number : number + 2])].tolist() for number in range(len(offsets) - 1)]
    assert sorted(groups) == expected
    assert candidates.positions.tolist() == sorted({place for members in expected for place in members})
    for document, place in enumerate(candidates.positions.tolist()):
        own = candidates.groups[slice(*candidates.group_offsets[document : document + 2])].tolist()
        assert own == [number for number, members in enumerate(groups) if place in members]


def smallest_ids(texts: Sequence[str], pieces: int, folder: Path, similarity: float = 0.8) -> dict[str, bytes]:
    layout = laid_out(texts, pieces)
    candidates, sets = prepared(layout, folder)
    found = clusters(candidates, sets, similarity)
    smallest: dict[str, bytes] = {}
    for piece, inside in enumerate(layout):
        of_piece = found.smallest_of(piece)
        for row, text in enumerate(inside):
            smallest[text] = of_piece.get(row, blake2b(text.encode(), digest_size=16).digest())
    return smallest


@pytest.mark.usefixtures("partition_size")
def test_clusters_are_the_components_of_all_alike_pairs(texts_with_repeats: list[str], tmp_path: Path):
    expected = naive_clusters(texts_with_repeats, 0.8)
    assert smallest_ids(texts_with_repeats, 6, tmp_path) == dict(zip(texts_with_repeats, expected, strict=True))
    assert len(set(expected)) < len(expected)


def test_clusters_depend_neither_on_order_nor_on_layout(texts_with_repeats: list[str], tmp_path: Path):
    expected = smallest_ids(texts_with_repeats, 1, tmp_path / "whole")
    for draw in range(3):
        shuffled = generator("tests", "orders", draw).permutation(np.array(texts_with_repeats, dtype=object)).tolist()
        assert smallest_ids(shuffled, 3 * draw + 1, tmp_path / str(draw)) == expected


@given(
    st.sets(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=12),
    st.lists(st.lists(st.integers(0, 9), unique=True), min_size=1, max_size=4),
)
def test_joining_groups_gives_the_components_of_the_alike_pairs_inside_them(
    pairs: set[tuple[int, int]], groups: list[list[int]]
):
    alike = {frozenset(pair) for pair in pairs}
    parent = np.arange(10)
    expected = list(range(10))
    for group in groups:
        _join(group, parent, lambda one, other: frozenset((one, other)) in alike)
    for _ in range(10):
        for group in groups:
            for one, other in combinations(group, 2):
                if frozenset((one, other)) in alike:
                    expected[one] = expected[other] = min(expected[one], expected[other])
    assert [_root(parent, document) for document in range(10)] == expected


def test_a_chain_of_near_duplicates_is_one_cluster_though_its_ends_differ(tmp_path: Path):
    words = [str(index) for index in range(300)]
    chain = [" ".join([*(f"x{index}" for index in range(8 * link)), *words[8 * link :]]) for link in range(12)]
    assert jaccard(chain[0], chain[-1]) < 0.6
    assert min(map(jaccard, chain, chain[1:])) > 0.8
    ids = [blake2b(text.encode(), digest_size=16).digest() for text in chain]
    assert set(smallest_ids([*chain, "another text"], 2, tmp_path).values()) == {
        min(ids),
        blake2b(b"another text", digest_size=16).digest(),
    }


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


def test_short_and_strange_texts_are_compared_like_any_other():
    texts = [
        "a",
        "b",
        "A",
        "two words",
        "",
        "two\n\twords",
        "\u0301",
        "a b",
        "🙂 " * 9,
        "🙂 " * 9 + "b",
        "a\u3000",
        "\u3000",
    ]
    assert near_duplicates(texts, 0.8).nonzero()[0].tolist() == [2, 5, 10, 11]


def test_a_thousand_copies_of_one_template_take_no_quadratic_time(tmp_path: Path):
    template = " ".join(f"word{index}" for index in range(100))
    texts = [f"{template} {index}" for index in range(1000)]
    assert near_duplicates(texts, 0.8).tolist() == [False] + [True] * 999
    assert len(set(smallest_ids(texts, 3, tmp_path).values())) == 1


def test_no_texts_and_no_candidates_are_no_special_case(tmp_path: Path):
    assert near_duplicates([], 0.8).tolist() == []
    candidates, sets = prepared([["a b c"], [], ["d e f"]], tmp_path)
    assert candidates.positions.tolist() == sets == []
    assert near_duplicates_of(candidates, sets, 0.8, tmp_path).tolist() == []
    assert clusters(candidates, sets, 0.8).smallest_of(0) == {}


def test_shingles_that_are_missing_are_named_by_piece_and_row(tmp_path: Path):
    candidates, _ = prepared([["a b c"], ["x", "A b c"]], tmp_path)
    with pytest.raises(CorpusError, match="none of document 1 of piece 1"):
        near_duplicates_of(candidates, [tmp_path / "sets-0"], 0.8, tmp_path)


def test_progress_ends_with_all_candidates(texts_with_repeats: list[str], tmp_path: Path):
    candidates, sets = prepared(laid_out(texts_with_repeats, 2), tmp_path)
    calls: list[tuple[int, int]] = []
    near_duplicates_of(candidates, sets, 0.8, tmp_path, progress=lambda done, total: calls.append((done, total)))
    assert calls[-1] == (len(candidates.positions),) * 2
