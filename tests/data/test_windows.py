import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paribus.data.frozen import DocumentTable, FrozenCorpus, TokenFile
from paribus.data.split import SPLITS
from paribus.data.windows import windows
from paribus.errors import CorpusError

BOS = 1000


def token_file(lengths: list[int]) -> TokenFile:
    """Documents whose tokens are all different: 1, 2, 3 ... through the file."""
    sizes = np.array(lengths, dtype=np.int64)
    table = DocumentTable(
        id=np.array([str(index) for index in range(len(lengths))], dtype="U32"),
        source=np.arange(len(lengths), dtype=np.int16) % 3,
        offset=np.cumsum(sizes) - sizes,
        tokens=sizes,
        bytes=sizes,
    )
    return TokenFile(np.arange(1, sizes.sum() + 1, dtype=np.uint32), table)


@settings(deadline=None, max_examples=200)
@given(st.lists(st.integers(1, 50), max_size=12), st.integers(1, 20), st.integers(1, 100))
def test_every_token_is_scored_exactly_once_after_its_true_predecessor(
    lengths: list[int], context_length: int, max_tokens: int
):
    file = token_file(lengths)
    scored: list[int] = []
    for batch in windows(file, context_length, BOS).batches(max_tokens):
        assert batch.tokens.size <= max(max_tokens, context_length)
        assert batch.tokens.shape[1] <= context_length
        for row, document in enumerate(batch.document_row):
            real = batch.weight[row] == 1
            targets, inputs = batch.targets[row][real], batch.tokens[row][real]
            scored += targets.tolist()
            first = file.documents.offset[document] + 1
            # The token before t is t - 1; before a document's first token stands BOS.
            assert inputs.tolist() == [BOS if target == first else target - 1 for target in targets]
            assert ((first <= targets) & (targets < first + lengths[document])).all()
            assert (batch.slice[row] == file.documents.source[document]).all()
    assert sorted(scored) == list(range(1, sum(lengths) + 1))


def test_a_long_document_is_cut_as_the_equation_says():
    by_start = sorted(
        (batch.targets[row][0], batch.tokens[row].tolist(), batch.targets[row].tolist())
        for batch in windows(token_file([7]), 3, BOS).batches(3)
        for row in range(len(batch.tokens))
    )
    assert [(inputs, targets) for _, inputs, targets in by_start] == [
        ([BOS, 1, 2], [1, 2, 3]),
        ([3, 4, 5], [4, 5, 6]),
        ([6], [7]),
    ]


def test_padding_has_no_weight_and_belongs_to_no_document_of_the_row():
    (batch,) = windows(token_file([2, 5]), 8, BOS).batches(100)
    assert batch.tokens.tolist() == [[BOS, 3, 4, 5, 6], [BOS, 1, BOS, BOS, BOS]]
    assert batch.targets.tolist() == [[3, 4, 5, 6, 7], [1, 2, BOS, BOS, BOS]]
    assert batch.weight.tolist() == [[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]]
    assert batch.document.tolist() == [[0, 0, 0, 0, 0], [0, 0, 1, 1, 1]]
    assert batch.slice.tolist() == [[1] * 5, [0] * 5]
    assert batch.document_row.tolist() == [1, 0]


def test_windows_come_longest_first_and_waste_little(frozen: FrozenCorpus):
    batches = list(windows(frozen.split("train"), 64, frozen.bos_id).batches(512))
    widths = [batch.tokens.shape[1] for batch in batches]
    assert widths == sorted(widths, reverse=True)
    assert sum(batch.weight.sum() for batch in batches) > 0.8 * sum(batch.weight.size for batch in batches)


def test_bytes_of_the_scored_tokens_are_the_bytes_of_each_document(frozen: FrozenCorpus):
    sizes = frozen.tokenizer().token_bytes()
    for name in SPLITS:
        file = frozen.split(name)
        total = np.zeros(len(file.documents), dtype=np.int64)
        for batch in windows(file, 16, frozen.bos_id).batches(256):
            np.add.at(total, batch.document_row, sizes[batch.targets].sum(axis=1))
        np.testing.assert_array_equal(total, file.documents.bytes)


def test_batches_have_the_types_of_training_batches(frozen: FrozenCorpus):
    batch = next(windows(frozen.split("test"), 16, frozen.bos_id).batches(256))
    kinds = [array.dtype for array in (batch.tokens, batch.targets, batch.weight, batch.document, batch.slice)]
    assert kinds == [np.int64, np.int64, np.float32, np.int32, np.int16]
    assert batch.document_row.dtype == np.int64


def test_a_window_of_no_tokens_is_refused(frozen: FrozenCorpus):
    with pytest.raises(CorpusError, match="at least one token"):
        windows(frozen.split("test"), 0, frozen.bos_id)
