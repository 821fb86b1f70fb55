"""What is held out carries the marks of the frozen corpus: planted overlaps are false, the rest true or unknown."""

from pathlib import Path

import pytest

from paribus.data.config import CorpusConfig, TokenizerConfig
from paribus.data.frozen import FrozenCorpus
from paribus.data.material import held_out_of
from paribus.data.prepare import marks as marking
from paribus.data.prepare.pipeline import prepare
from paribus.data.split import split_of
from paribus.seeds import generator
from tests.data.conftest import WriteCorpus

PLANTED = "planted"
"""in every test text that repeats 13 words of a training text; in 12 others that repeat only 12"""


@pytest.fixture(scope="session")
def texts() -> list[str]:
    """Words that no other text has, but for what is planted."""
    draw = generator("tests", "overlap", "held out")
    plain = [" ".join(f"w{number}x{place}" for place in range(int(draw.integers(20, 60)))) for number in range(120)]
    train = [text for text in plain if split_of(text, test_fraction=0.2, validation_fraction=0.1) == "train"]
    found = list(plain)
    for words, name in ((13, PLANTED), (12, "nearly")):
        repeated = [
            f"{name}{number} before {' '.join(text.split()[:words])} after{number}"
            for number, text in enumerate(train[:60])
        ]
        found += [text for text in repeated if split_of(text, test_fraction=0.2, validation_fraction=0.1) == "test"]
    return found


@pytest.fixture
def corpus(tmp_path: Path, texts: list[str], write_parquet: WriteCorpus) -> FrozenCorpus:
    write_parquet(tmp_path / "texts" / "a.parquet", texts)
    config = CorpusConfig(kind="folder", folder=tmp_path / "texts", test_fraction=0.2, validation_fraction=0.1)
    return prepare(config, TokenizerConfig(vocabulary_size=300), tmp_path / "store", name="texts", workers=1)


def marked(corpus: FrozenCorpus, tokens: int | None = None) -> list[tuple[str, bool | None]]:
    """Text and mark of each scored test document."""
    held_out = held_out_of(corpus, "test", tokens, 32, study="s", scale="S", seed=0)
    assert held_out.overlap_free is not None
    file, tokenizer = corpus.split("test"), corpus.tokenizer()
    table = file.documents.first(len(held_out.unit))
    spans = zip(table.offset.tolist(), table.tokens.tolist(), strict=True)
    texts = [tokenizer.decode(file.tokens[begin : begin + size].tolist()) for begin, size in spans]
    return list(zip(texts, held_out.overlap_free, strict=True))


def test_a_document_with_13_words_of_a_training_document_is_marked_and_one_with_12_is_free(
    corpus: FrozenCorpus,
) -> None:
    found = marked(corpus)
    by_kind = {kind: {mark for text, mark in found if text.startswith(kind)} for kind in (PLANTED, "nearly", "w")}
    assert by_kind == {PLANTED: {False}, "nearly": {True}, "w": {True}}


def test_a_limit_of_tokens_takes_the_marks_of_the_first_documents(corpus: FrozenCorpus) -> None:
    whole, part = marked(corpus), marked(corpus, 500)
    assert 1 < len(part) < len(whole)
    assert part == whole[: len(part)]


def test_other_splits_carry_no_marks(corpus: FrozenCorpus) -> None:
    held_out = held_out_of(corpus, "validation", None, 32, study="s", scale="S", seed=0)
    assert held_out.overlap_free is None


def test_documents_that_were_not_checked_are_neither_free_nor_shared(
    tmp_path: Path, texts: list[str], write_parquet: WriteCorpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marking, "CHECKED_BYTES", 2_000)
    write_parquet(tmp_path / "texts" / "a.parquet", texts)
    config = CorpusConfig(kind="folder", folder=tmp_path / "texts", test_fraction=0.2, validation_fraction=0.1)
    corpus = prepare(config, TokenizerConfig(vocabulary_size=300), tmp_path / "few", name="texts", workers=1)
    marks = [mark for _, mark in marked(corpus)]
    checked = sum(mark is not None for mark in marks)
    assert 1 < checked < len(marks)
    assert marks[checked:] == [None] * (len(marks) - checked), "the first are checked"
