from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paribus.data.evaluation_sets import read_evaluation_sets
from paribus.data.overlap import HeldOutNgrams, NgramSet

SHARED = Path(__file__).parents[3] / "shared" / "data"

PASSAGES = st.lists(st.sampled_from([" ".join(f"{letter}{index}" for index in range(14)) for letter in "pqrs"] + ["x"]))
TEXTS = PASSAGES.map(". ".join)
"""made of passages of 14 words, so that texts often share 13"""


def naive_ngrams(text: str) -> set[tuple[str, ...]]:
    """The slow twin: a set of tuples of words."""
    words = "".join(character.lower() if character.isalnum() else " " for character in text).split()
    return {tuple(words[begin : begin + 13]) for begin in range(len(words) - 12)}


def encoded(texts: list[str]) -> list[bytes]:
    return [text.encode() for text in texts]


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from("abc"), st.lists(TEXTS, max_size=3)), st.lists(TEXTS, max_size=5))
def test_a_document_matches_exactly_the_files_with_which_it_shares_a_tuple(
    files: dict[str, list[str]], documents: list[str]
):
    evaluation = NgramSet.of({name: encoded(texts) for name, texts in files.items()})
    expected = [
        [any(naive_ngrams(document) & naive_ngrams(text) for text in texts) for texts in files.values()]
        for document in documents
    ]
    assert evaluation.files == tuple(files)
    assert evaluation.matches(encoded(documents)).tolist() == expected
    assert [evaluation.shares(text) for text in encoded(documents)] == [any(row) for row in expected]


@settings(deadline=None)
@given(st.lists(TEXTS, max_size=6), st.lists(st.lists(TEXTS, max_size=3), max_size=4), st.integers(0, 400))
def test_marks_are_those_of_sets_of_tuples_whatever_the_pieces(
    test: list[str], pieces: list[list[str]], max_bytes: int
):
    held_out = HeldOutNgrams.of(iter(encoded(test)), len(test), max_bytes=max_bytes)
    training = {words for piece in pieces for text in piece for words in naive_ngrams(text)}
    size, expected = 0, []
    for text in test:
        size += len(text.encode())
        expected.append(None if size > max_bytes else not naive_ngrams(text) & training)
    hits = [held_out.hits(encoded(piece)) for piece in pieces]
    assert held_out.free(hits) == held_out.free(reversed(hits)) == expected


def test_reading_test_documents_ends_at_the_cap():
    def texts():
        yield b"one two"
        yield b"x" * 100
        raise AssertionError("read on")

    assert HeldOutNgrams.of(texts(), 5, max_bytes=50).free([]) == [True, None, None, None, None]


def test_saved_sets_answer_as_the_ones_in_memory(tmp_path: Path):
    texts = encoded([" ".join(f"{letter}{index}" for index in range(20)) for letter in "pqr"])
    evaluation = NgramSet.of({"a/ä.jsonl": texts[:1], "b.txt": texts[:2], "empty": []})
    evaluation.save(tmp_path / "evaluation")
    opened = NgramSet.open(tmp_path / "evaluation")
    assert opened.files == evaluation.files
    assert (
        opened.matches(texts).tolist()
        == evaluation.matches(texts).tolist()
        == [[True, True, False], [False, True, False], [False] * 3]
    )
    held_out = HeldOutNgrams.of(texts, 4, max_bytes=150)
    held_out.save(tmp_path / "held out")
    again = HeldOutNgrams.open(tmp_path / "held out")
    assert again.free([again.hits(texts[1:])]) == held_out.free([held_out.hits(texts[1:])]) == [True, False, None, None]


def test_sets_of_nothing_share_nothing(tmp_path: Path):
    for evaluation in (NgramSet.of({}), NgramSet.of({"empty": [b"a few words only"]})):
        evaluation.save(tmp_path)
        assert not NgramSet.open(tmp_path).shares(b"a " * 50)
    held_out = HeldOutNgrams.of([], 0)
    held_out.save(tmp_path / "held out")
    assert HeldOutNgrams.open(tmp_path / "held out").free([held_out.hits([b"a " * 50])]) == []


@pytest.mark.shared_data
def test_a_question_of_the_core_sets_is_found_in_a_page_that_quotes_it():
    folder = SHARED / "core_eval_bundle" / "eval_data" / "world_knowledge"
    if not folder.is_dir():
        pytest.skip(f"the real evaluation sets are absent: expected {folder}")
    sets = read_evaluation_sets([folder])
    evaluation = NgramSet.of({name: read() for name, read in sets.items()})
    question = next(text for text in sets["arc_easy.jsonl"]() if len(text.split()) > 20)
    page = b"Somebody wrote: '" + question.upper().replace(b" ", b"\n") + b"' and more."
    matched = dict(zip(evaluation.files, evaluation.matches([page, b"nothing " * 40])[0].tolist(), strict=True))
    assert matched == {name: name == "arc_easy.jsonl" for name in sets}
    assert not evaluation.shares(b"nothing " * 40)
