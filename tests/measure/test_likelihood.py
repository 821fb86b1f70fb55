import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from paribus.data.frozen import FrozenCorpus, TokenFile
from paribus.data.tokenizer import BOS_ID
from paribus.data.windows import windows
from paribus.measure.likelihood import bits_per_byte, document_nats, nats_per_token
from paribus.model.backbone import Backbone
from paribus.train.step import Consumed

CONTEXT = 16
U32 = 2.0**-24


def scored(file: TokenFile, max_tokens: int) -> Iterator[tuple[Consumed, NDArray[np.int64]]]:
    for batch in windows(file, CONTEXT).batches(max_tokens):
        yield Consumed.from_batch(batch, torch.device("cpu")), batch.document_row


class Constant(nn.Module):
    """The same logits everywhere."""

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.register_buffer("logits", logits)

    def forward(self, tokens: Tensor, document: Tensor) -> Tensor:
        del document
        assert isinstance(self.logits, Tensor)
        return self.logits.expand(*tokens.shape, -1)


@pytest.mark.parametrize("max_tokens", [1, 64, 4096])
def test_document_nats_equal_a_loop_that_predicts_one_token_at_a_time(
    model: Backbone, held_out: TokenFile, max_tokens: int
):
    table = held_out.documents
    found = document_nats(model, scored(held_out, max_tokens), len(table))
    for index in np.argsort(table.tokens)[[0, 3, len(table) // 2, -1]]:
        ids = held_out.tokens[table.offset[index] : table.offset[index] + table.tokens[index]].astype(np.int64)
        stream, expected = [BOS_ID, *ids.tolist()], 0.0
        for place in range(len(ids)):
            window = place // CONTEXT * CONTEXT
            context = torch.tensor([stream[window : place + 1]])
            with torch.no_grad():
                logits = model(context, torch.zeros_like(context))[0, -1].double()
            expected -= float(torch.log_softmax(logits, -1)[ids[place]])
        # Each float32 token loss of about 6 comes out of some hundred roundings of a forward pass.
        assert found[index] == pytest.approx(expected, rel=100 * U32)


def test_every_token_counts_exactly_once(frozen: FrozenCorpus, held_out: TokenFile):
    vocabulary = frozen.vocabulary_size
    nats = document_nats(Constant(torch.zeros(vocabulary)), scored(held_out, 64), len(held_out.documents))
    # ln 300 as float32, the same for every token.
    assert nats / np.float32(math.log(vocabulary)) == pytest.approx(held_out.documents.tokens, rel=4 * U32)


def test_the_mark_of_a_beginning_is_never_a_target(frozen: FrozenCorpus, held_out: TokenFile):
    logits = torch.zeros(frozen.vocabulary_size)
    logits[BOS_ID] = -1e6
    nats = document_nats(Constant(logits), scored(held_out, 64), len(held_out.documents))
    assert nats_per_token(nats, held_out.documents.tokens) == pytest.approx(
        math.log(frozen.vocabulary_size - 1), rel=4 * U32
    )


def test_a_document_scores_the_same_in_any_company(model: Backbone, held_out: TokenFile):
    alone, together = (document_nats(model, scored(held_out, n), len(held_out.documents)) for n in (1, 4096))
    assert alone == pytest.approx(together, rel=100 * U32)


def test_sums_are_taken_in_float64():
    """2^24 nats and one more: float32 would lose the second."""

    class Two(nn.Module):
        def forward(self, tokens: Tensor, document: Tensor) -> Tensor:
            del document
            logits = torch.zeros(*tokens.shape, 2)
            logits[0, 0, 1], logits[0, 1, 1] = 2.0**24, 1.0
            return logits

    ones = torch.ones(1, 2)
    batch = Consumed(ones.long(), 0 * ones.long(), ones, 0 * ones.long())
    nats = document_nats(Two(), [(batch, np.array([0]))], 1)
    assert nats[0] == pytest.approx(2.0**24 + math.log(1 + math.e), abs=0.1)


def test_nats_per_token_is_the_sum_over_the_sum_not_a_mean_of_documents():
    assert nats_per_token(np.array([2.0, 10.0]), np.array([1, 3])) == 3.0


def test_bits_per_byte_divides_by_ln_2_and_utf8_bytes():
    assert bits_per_byte(np.array([math.log(2), 3 * math.log(2)]), np.array([1, 7])) == pytest.approx(0.5, rel=1e-15)


def test_bytes_are_those_of_the_documents_texts_so_a_mark_has_none(held_out: TokenFile, frozen: FrozenCorpus):
    nats = document_nats(Constant(torch.zeros(frozen.vocabulary_size)), scored(held_out, 64), len(held_out.documents))
    text = "".join(
        frozen.tokenizer().decode(held_out.tokens[start : start + count])
        for start, count in zip(held_out.documents.offset, held_out.documents.tokens, strict=True)
    )
    expected = len(held_out.tokens) * math.log2(frozen.vocabulary_size) / len(text.encode())
    assert bits_per_byte(nats, held_out.documents.bytes) == pytest.approx(expected, rel=4 * U32)
