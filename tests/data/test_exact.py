from hashlib import blake2b
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paribus.data import exact, partitions
from paribus.data.exact import exact_repeats, write_digests
from paribus.data.partitions import partitions_for, positions_of, prefix, rows_of

CORPORA = st.lists(st.lists(st.integers(0, 12), max_size=8), min_size=1, max_size=6)
"""per piece, the number of each document's text"""


def digest(text: int) -> bytes:
    return blake2b(str(text).encode(), digest_size=16).digest()


def naive_repeats(corpus: list[list[int]], first_piece: int) -> list[int]:
    """The slow twin: one pass over everything, the last pieces before the others."""
    places = [(piece, row, text) for piece, texts in enumerate(corpus) for row, text in enumerate(texts)]
    seen: set[int] = set()
    repeats = []
    for piece, row, text in sorted(places, key=lambda place: (place[0] < first_piece, place)):
        if text in seen:
            repeats.append(piece * 2**32 + row)
        seen.add(text)
    return sorted(repeats)


def repeats_of(corpus: list[list[int]], folder: Path, first_piece: int = 0) -> list[int]:
    files = [folder / f"digests-{piece}" for piece in range(len(corpus))]
    for piece, (path, texts) in enumerate(zip(files, corpus, strict=True)):
        write_digests(path, piece, (digest(text) for text in texts))
    return exact_repeats(files[::-1], folder / "work", first=first_piece << 32).tolist()


@pytest.fixture(params=[2_000_000, 3], ids=["one partition", "many partitions"])
def partition_size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitions, "_RECORDS_PER_PARTITION", request.param)
    monkeypatch.setattr(partitions, "_RECORDS_PER_BLOCK", 5)
    monkeypatch.setattr(exact, "_DIGESTS_PER_BLOCK", 3)


@pytest.mark.usefixtures("partition_size")
@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(corpus=CORPORA, first=st.integers(0, 6))
def test_the_repeats_are_those_of_one_pass_in_memory_whatever_file_comes_first(
    corpus: list[list[int]], first: int, tmp_path_factory: pytest.TempPathFactory
):
    folder = tmp_path_factory.mktemp("exact")
    assert repeats_of(corpus, folder, first) == naive_repeats(corpus, first)


def test_digests_that_agree_in_one_half_only_are_different_texts(tmp_path: Path):
    halves = [b"a" * 8, b"b" * 8]
    digests = [one + other for one in halves for other in halves]
    write_digests(tmp_path / "a", 0, digests)
    write_digests(tmp_path / "b", 1, digests[:1])
    assert exact_repeats([tmp_path / "a", tmp_path / "b"], tmp_path).tolist() == [2**32]


def test_a_large_corpus_of_one_text_keeps_its_first_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(partitions, "_RECORDS_PER_PARTITION", 10)
    assert repeats_of([[1] * 100, [1] * 100], tmp_path) == [*range(1, 100), *range(2**32, 2**32 + 100)]


def test_an_empty_corpus_has_no_repeats(tmp_path: Path):
    assert repeats_of([[], []], tmp_path) == []
    assert exact_repeats([], tmp_path / "none").tolist() == []


def test_doing_it_again_after_a_kill_gives_the_same(tmp_path: Path):
    corpus = [[1, 2, 1], [2, 3]]
    (tmp_path / "work" / "digests").mkdir(parents=True)
    (tmp_path / "work" / "digests" / "000").write_bytes(b"left behind")
    (tmp_path / "work" / "exact-repeats").write_bytes(b"left behind")
    assert repeats_of(corpus, tmp_path) == naive_repeats(corpus, 0) == repeats_of(corpus, tmp_path)


def test_a_failing_source_of_digests_leaves_no_file_of_that_name(tmp_path: Path):
    def failing():
        yield digest(1)
        raise RuntimeError("the piece cannot be read")

    with pytest.raises(RuntimeError):
        write_digests(tmp_path / "digests", 0, failing())
    assert not (tmp_path / "digests").exists()


@given(st.integers(1, 2**31 - 2), st.lists(st.integers(0, 2**32 - 1), unique=True, min_size=1))
def test_positions_sort_as_the_corpus_does_and_give_the_rows_back(piece: int, rows: list[int]):
    here = positions_of(piece, np.array(sorted(rows), dtype=np.int64))
    before = positions_of(piece - 1, np.array([2**32 - 1]))
    everything = np.concatenate([before, here, positions_of(piece + 1, np.array([0]))])
    assert np.all(np.diff(everything) > 0)
    assert rows_of(everything, piece).tolist() == sorted(rows)


@given(st.integers(0, 2**64 - 1), st.integers(0, 9))
def test_partitions_cut_the_range_of_hashes_evenly(value: int, bits: int):
    assert prefix(np.array([value], dtype=np.uint64), 2**bits).tolist() == [value * 2**bits // 2**64]


def test_partitions_grow_with_the_records_and_stay_within_the_open_files():
    for records in (0, 1, 2_000_000, 2_000_001, 10_000_000, 500_000_000, 10**11):
        count = partitions_for(records)
        assert count & (count - 1) == 0
        assert count <= 512
        assert records / count <= 2_000_000 or count == 512
