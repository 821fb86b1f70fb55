import hashlib

import numpy as np
import pyarrow.parquet as pq
import pytest

from paribus.data.frozen import FrozenCorpus
from paribus.data.packing import waste
from paribus.inspecting.findings import SAMPLE_CHARACTERS, SAMPLES_PER_SPLIT, Findings, look_into

SPLITS = ("train", "validation", "test")


def tables(frozen: FrozenCorpus) -> dict[str, dict[str, list]]:
    """The document tables, read without the code that is tested."""
    return {split: pq.read_table(frozen.folder / f"{split}.documents.parquet").to_pydict() for split in SPLITS}


def test_sizes_and_lengths_of_each_split_are_those_of_its_documents(found: Findings, frozen: FrozenCorpus):
    for facts, documents in zip(found.splits, tables(frozen).values(), strict=True):
        lengths = sorted(documents["tokens"])
        assert (facts.documents, facts.bytes, facts.tokens) == (len(lengths), sum(documents["bytes"]), sum(lengths))
        assert (facts.shortest, facts.longest) == (lengths[0], lengths[-1])
        assert facts.median == np.median(lengths)
        assert sum(length <= facts.ninetieth for length in lengths) >= 0.9 * len(lengths) - 1
        assert facts.bytes_per_token == sum(documents["bytes"]) / sum(lengths)
    assert found.documents == sum(len(documents["id"]) for documents in tables(frozen).values())


def test_every_document_and_token_is_in_the_bin_of_its_length(found: Findings, frozen: FrozenCorpus):
    lengths = np.concatenate([documents["tokens"] for documents in tables(frozen).values()])
    edges = found.lengths.edges
    assert np.allclose(edges[1:] / edges[:-1], 2**0.5)
    # No length is an edge that is not a whole number, and powers of two are exact.
    assert found.lengths.documents.tolist() == np.histogram(lengths, edges)[0].tolist()
    assert found.lengths.tokens.tolist() == np.histogram(lengths, edges, weights=lengths)[0].astype(int).tolist()
    assert found.lengths.documents.sum() == len(lengths)


@pytest.mark.parametrize("length", [1, 2, 3, 4, 255, 256, 257, 2**20 - 1, 2**20, 2**20 + 1])
def test_a_length_at_an_edge_is_in_the_bin_that_begins_there(length: int):
    from paribus.inspecting.findings import _binned

    (place,) = _binned(np.array([length]))[0].nonzero()[0].tolist()
    assert 2.0 ** (place / 2) <= length < 2.0 ** ((place + 1) / 2)


def test_sources_add_up_and_the_largest_comes_first(found: Findings, frozen: FrozenCorpus):
    expected: dict[str, list[int]] = {}
    for documents in tables(frozen).values():
        for source, size, tokens in zip(documents["source"], documents["bytes"], documents["tokens"], strict=True):
            row = expected.setdefault(source, [0, 0, 0])
            row[:] = [row[0] + 1, row[1] + size, row[2] + tokens]
    assert {source.source: [source.documents, source.bytes, source.tokens] for source in found.sources} == expected
    assert [source.tokens for source in found.sources] == sorted((row[2] for row in expected.values()), reverse=True)


def test_what_was_left_out_is_told_by_reason(found: Findings):
    assert found.left_out == {"exact duplicates": 2, "null": 1, "empty": 2}


def test_waste_is_that_of_the_training_documents_in_both_packings(found: Findings, frozen: FrozenCorpus):
    lengths = np.array(tables(frozen)["train"]["tokens"])
    assert found.wastes == tuple(waste(lengths, 64, packing) for packing in ("stream", "best-fit"))


def test_samples_are_the_beginnings_of_their_documents_and_the_same_every_time(
    found: Findings, frozen: FrozenCorpus, texts: list[str]
):
    by_id = {hashlib.blake2b(text.encode(), digest_size=16).hexdigest(): text for text in texts}
    assert [sample.split for sample in found.samples] == [split for split in SPLITS for _ in range(SAMPLES_PER_SPLIT)]
    every = look_into(frozen, 64, samples=len(texts)).samples
    assert len(every) == len(texts)
    for sample in every:
        text = by_id[sample.document]
        assert text.startswith(sample.text)
        assert sample.cut == (sample.text != text)
        assert sample.cut == (len(text) > len(sample.text))
        assert len(sample.text) <= SAMPLE_CHARACTERS
        assert sample.bytes == len(text.encode())
        assert (sample.overlap_free is None) == (sample.split != "test")
    assert look_into(frozen, 128).samples == found.samples
    assert len({sample.document for sample in found.samples}) == len(found.samples)


def test_a_corpus_without_held_out_documents_can_be_inspected(only_training: FrozenCorpus):
    found = look_into(only_training, 64)
    assert [facts.documents for facts in found.splits][1:] == [0, 0]
    assert [facts.bytes_per_token for facts in found.splits][1:] == [None, None]
    assert {sample.split for sample in found.samples} == {"train"}
