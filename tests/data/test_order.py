import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from paribus.data.frozen import FrozenCorpus
from paribus.data.order import Batch, Order, micro_batches
from paribus.data.packing import PACKINGS, Packing
from paribus.errors import CorpusError
from paribus.seeds import generator

KEY = ("study", "S", 3)
BOS = 7
FIRST = 1000
"""id of the corpus' first token; the others follow, so that a token says which one it is"""


@dataclass(frozen=True)
class Documents:
    tokens: NDArray[np.int64]
    offset: NDArray[np.int64]
    source: NDArray[np.int16]

    def __len__(self) -> int:
        return len(self.tokens)


def corpus(lengths: Sequence[int] | NDArray[np.int64], bos_id: int = BOS) -> FrozenCorpus:
    """A corpus with only a train split, whose tokens are all different."""
    tokens = np.asarray(lengths, dtype=np.int64)
    source = (np.arange(len(tokens)) % 5).astype(np.int16)
    documents = Documents(tokens, np.cumsum(tokens) - tokens, source)
    train = SimpleNamespace(tokens=np.arange(FIRST, FIRST + tokens.sum(), dtype=np.uint32), documents=documents)
    return cast("FrozenCorpus", SimpleNamespace(bos_id=bos_id, split={"train": train}.__getitem__))


def some_lengths(count: int = 400) -> NDArray[np.int64]:
    """1 to 381 tokens, most of them few; integers alone, equal on every machine."""
    return generator("tests", "lengths").integers(1, 40, count) ** 2 // 4 + 1


SOME = corpus(some_lengths())


def order(
    of: FrozenCorpus = SOME,
    context_length: int = 32,
    rows_per_batch: int = 4,
    *,
    seed: int = 3,
    packing: Packing = "stream",
    epochs: int = 1,
) -> Order:
    names: dict[str, Any] = {"study": "study", "scale": "S", "seed": seed}
    return Order(of, context_length, rows_per_batch, **names, packing=packing, epochs=epochs)


def assert_equal(left: Batch, right: Batch) -> None:
    for field in fields(Batch):
        one, other = getattr(left, field.name), getattr(right, field.name)
        assert one.dtype == other.dtype, field.name
        np.testing.assert_array_equal(one, other, err_msg=field.name)


def joined(batches: Sequence[Batch]) -> Batch:
    """The batches' rows, one batch after the other."""
    return Batch(**{field.name: np.concatenate([getattr(b, field.name) for b in batches]) for field in fields(Batch)})


def all_batches(of: Order) -> list[Batch]:
    return [of.batch(step) for step in range(of.batches)]


def naive_batch(frozen: FrozenCorpus, context_length: int, rows_per_batch: int, step: int) -> Batch:
    """The slow twin of `stream`: write the whole stream down, token by token, and cut it."""
    train = frozen.split("train")
    table = train.documents
    stream: list[tuple[int, int, int]] = []
    for number, document in enumerate(generator(*KEY, "order", "documents").permutation(len(table))):
        begin = int(table.offset[document])
        ids = [BOS, *train.tokens[begin : begin + int(table.tokens[document])].tolist()]
        stream += [(token, number, int(table.source[document])) for token in ids]
    rows = [
        stream[begin : begin + context_length + 1]
        for begin in range(0, len(stream), context_length)
        if begin + context_length < len(stream)
    ]
    permuted = generator(*KEY, "order", "rows").permutation(len(rows))
    return written([rows[index] for index in permuted[step * rows_per_batch : (step + 1) * rows_per_batch]])


def written(rows: list[list[tuple[int, int, int]]]) -> Batch:
    """A batch of rows of (token, number of the document, source)."""
    first = [row[0][1] for row in rows]
    return Batch(
        tokens=np.array([[token for token, _, _ in row[:-1]] for row in rows], dtype=np.int64),
        targets=np.array([[token for token, _, _ in row[1:]] for row in rows], dtype=np.int64),
        weight=np.array([[float(token != BOS) for token, _, _ in row[1:]] for row in rows], dtype=np.float32),
        document=np.array(
            [[number - begin for _, number, _ in row[:-1]] for begin, row in zip(first, rows, strict=True)],
            dtype=np.int32,
        ),
        slice=np.array([[source for _, _, source in row[:-1]] for row in rows], dtype=np.int16),
    )


@pytest.mark.parametrize(("context_length", "rows_per_batch"), [(1, 1), (7, 3), (32, 4), (500, 2)])
def test_batches_equal_those_cut_from_the_written_out_stream(context_length: int, rows_per_batch: int):
    fast = order(SOME, context_length, rows_per_batch)
    for step in (0, 1, fast.batches // 2, fast.batches - 1):
        assert_equal(fast.batch(step), naive_batch(SOME, context_length, rows_per_batch, step))


@pytest.mark.parametrize(
    ("context_length", "rows_per_batch", "key", "batches", "digest"),
    [
        (1, 1, ("study", "S", 3), 199_542, "5be5b17e7b0431a91d83896078a6626e"),
        (7, 3, ("study", "S", 3), 9_502, "1fbc75dd833475a81736d504c5907ee6"),
        (32, 4, ("other", "M", 0), 1_558, "4810213424fd0826ee7d203ec682a283"),
        (128, 16, ("study", "S", 1), 97, "d433bb5280ceab8db252caa5ff44819c"),
        (1024, 8, ("study", "L", 7), 24, "df58719718ae0ba1b2d8d74eb47a45f1"),
    ],
)
def test_stream_batches_are_those_of_the_first_version_bit_for_bit(
    context_length: int, rows_per_batch: int, key: tuple[str, str, int], batches: int, digest: str
):
    """The digests were taken from the order as it was before it knew packings, epochs and other BOS ids than 0."""
    old = corpus(some_lengths(1500), bos_id=0)
    train = old.split("train")
    # Ids fit the 16 bits they had in those digests; that they repeat does not matter here.
    ids = SimpleNamespace(tokens=((train.tokens - FIRST) % 997 + 3).astype(np.uint16), documents=train.documents)
    frozen = cast("FrozenCorpus", SimpleNamespace(bos_id=0, split={"train": ids}.__getitem__))
    study, scale, seed = key
    of = Order(frozen, context_length, rows_per_batch, study=study, scale=scale, seed=seed)
    assert of.batches == batches
    found = hashlib.blake2b(digest_size=16)
    for step in (0, 1, batches // 2, batches - 1):
        batch = of.batch(step)
        for field in fields(Batch):
            array = getattr(batch, field.name)
            found.update(f"{field.name} {array.dtype.str} {array.shape}".encode())
            found.update(np.ascontiguousarray(array).tobytes())
    assert found.hexdigest() == digest


@pytest.mark.parametrize("packing", PACKINGS)
@settings(deadline=None, max_examples=20)
@given(steps=st.lists(st.integers(0, 100), min_size=1, max_size=8))
def test_a_batch_depends_on_its_step_alone_and_not_on_earlier_calls(packing: Packing, steps: list[int]):
    used = order(packing=packing, epochs=3)
    assert used.batches > 100
    for step in steps:
        assert_equal(used.batch(step), order(packing=packing, epochs=3).batch(step))


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("epochs", [1, 3])
def test_the_rows_of_a_run_do_not_depend_on_how_many_rows_a_batch_has(packing: Packing, epochs: int):
    one = joined(all_batches(order(rows_per_batch=1, packing=packing, epochs=epochs)))
    for rows_per_batch in (2, 7):
        many = joined(all_batches(order(rows_per_batch=rows_per_batch, packing=packing, epochs=epochs)))
        assert_equal(many, one.rows(0, len(many.tokens)))
        assert len(one.tokens) - len(many.tokens) < rows_per_batch


@settings(deadline=None, max_examples=40)
@given(
    packing=st.sampled_from(PACKINGS),
    epochs=st.integers(1, 3),
    rows_per_batch=st.integers(1, 24),
    data=st.data(),
)
def test_processes_and_micro_batches_together_read_exactly_the_batch(
    packing: Packing, epochs: int, rows_per_batch: int, data: st.DataObject
):
    of = order(rows_per_batch=rows_per_batch, packing=packing, epochs=epochs)
    step = data.draw(st.integers(0, of.batches - 1))
    world_size = data.draw(st.integers(1, rows_per_batch))
    whole = of.batch(step)
    parts = [of.rows_of(step, rank, world_size) for rank in range(world_size)]
    assert_equal(joined(parts), whole)
    sizes = {len(part.tokens) for part in parts}
    assert max(sizes) - min(sizes) <= 1
    assert min(sizes) >= 1
    micro_batch_rows = data.draw(st.integers(1, rows_per_batch + 2))
    cut = [micro for part in parts for micro in micro_batches(part, micro_batch_rows)]
    assert_equal(joined(cut), whole)
    assert all(1 <= len(micro.tokens) <= micro_batch_rows for micro in cut)


@pytest.mark.parametrize("packing", PACKINGS)
def test_a_run_that_is_resumed_anywhere_goes_on_as_one_that_was_not(packing: Packing):
    whole = all_batches(order(packing=packing, epochs=2))
    border = order(packing=packing).batches
    for start in (1, border - 1, border, border + 1):
        resumed = order(packing=packing, epochs=2)
        for step in range(start, min(start + 3, len(whole))):
            assert_equal(resumed.batch(step), whole[step])


@pytest.mark.parametrize("packing", PACKINGS)
def test_seeds_scales_and_studies_order_the_data_differently(packing: Packing):
    keys = [("study", "S", 3), ("study", "S", 4), ("study", "M", 3), ("other", "S", 3)]
    batches = [
        Order(SOME, 32, 4, study=study, scale=scale, seed=seed, packing=packing).batch(0).tokens.tobytes()
        for study, scale, seed in keys
    ]
    assert len(set(batches)) == 4


def test_one_epoch_of_the_stream_scores_every_token_once(frozen: FrozenCorpus):
    whole = order(frozen, context_length=16, rows_per_batch=1)
    batches = all_batches(whole)
    scored = np.concatenate([batch.targets[batch.weight > 0] for batch in batches])
    count = frozen.counts["train"]
    # A rest of less than one row stays unread.
    assert count.tokens - 16 <= len(scored) <= count.tokens
    there = np.bincount(frozen.split("train").tokens, minlength=frozen.vocabulary_size)
    read = np.bincount(scored, minlength=frozen.vocabulary_size)
    assert (read <= there).all()


@pytest.mark.parametrize("packing", PACKINGS)
def test_no_token_is_scored_twice_in_an_epoch_and_each_at_most_once_in_every_other(packing: Packing):
    epoch = order(rows_per_batch=1, packing=packing).batches
    of = order(rows_per_batch=1, packing=packing, epochs=2)
    tokens = int(some_lengths().sum())
    times = np.zeros((2, tokens), dtype=np.int64)
    for step in range(of.batches):
        batch = of.batch(step)
        np.add.at(times[int(step >= epoch)], batch.targets[batch.weight > 0] - FIRST, 1)
    assert times.max() == 1
    if packing == "stream":
        assert (times.sum(axis=1) >= tokens - 32).all()


@pytest.mark.parametrize("packing", PACKINGS)
def test_a_target_follows_its_input_in_the_document_and_a_bos_is_never_scored(packing: Packing):
    for batch in all_batches(order(context_length=256, rows_per_batch=8, packing=packing)):
        assert batch.targets.dtype == batch.tokens.dtype == np.int64
        np.testing.assert_array_equal(batch.weight == 0, batch.targets == BOS)
        np.testing.assert_array_equal(batch.targets[:, :-1], batch.tokens[:, 1:])
        assert (batch.document[:, 0] == 0).all()
        np.testing.assert_array_equal(np.diff(batch.document, axis=1), batch.tokens[:, 1:] == BOS)
        follows = (batch.tokens != BOS) & (batch.targets != BOS)
        np.testing.assert_array_equal(batch.targets[follows], batch.tokens[follows] + 1)
        starts = np.cumsum(some_lengths()) - some_lengths() + FIRST
        after_bos = (batch.tokens == BOS) & (batch.targets != BOS)
        assert np.isin(batch.targets[after_bos], starts).all()
        source_of = np.repeat(np.arange(len(starts)) % 5, some_lengths())
        scored = batch.weight > 0
        np.testing.assert_array_equal(batch.slice[scored], source_of[batch.targets[scored] - FIRST])


@pytest.mark.parametrize("packing", PACKINGS)
def test_the_corpus_says_which_id_marks_a_beginning(packing: Packing):
    one, other = (order(corpus(some_lengths(), bos_id), packing=packing).batch(0) for bos_id in (0, 500))
    np.testing.assert_array_equal(np.where(one.tokens == 0, 500, one.tokens), other.tokens)
    np.testing.assert_array_equal(np.where(one.targets == 0, 500, one.targets), other.targets)
    assert (other.tokens == 500).any()


def test_consecutive_rows_of_the_stream_do_not_share_a_batch_more_often_than_by_chance():
    shuffled = order(context_length=8, rows_per_batch=8)
    follows = 0
    for batch in all_batches(shuffled):
        # A row's last target is the next row's first input.
        follows += int((batch.targets[:-1, -1] == batch.tokens[1:, 0]).sum())
    # In stream order all 7 neighbours would match; by chance, one row in thousands and a BOS now and then.
    assert follows < 0.1 * 7 * shuffled.batches


def test_the_first_of_several_epochs_is_the_only_one_of_a_single_one():
    for packing in PACKINGS:
        single = order(packing=packing)
        several = order(packing=packing, epochs=4)
        for step in (0, single.batches - 1):
            assert_equal(several.batch(step), single.batch(step))


@pytest.mark.parametrize("packing", PACKINGS)
def test_every_epoch_has_documents_and_rows_in_an_order_of_its_own(packing: Packing):
    # More documents than best fit chooses from at once, none longer than a row.
    many = corpus(some_lengths(4000))
    epoch = order(many, 512, 1, packing=packing).batches
    of = order(many, 512, 1, packing=packing, epochs=3)
    first, second, third = (
        {of.batch(step).tokens.tobytes() for step in range(start, start + 100)} for start in (0, epoch, 2 * epoch)
    )
    assert len(first | second | third) > 290


def test_rows_are_permuted_anew_in_every_epoch():
    # Of a single document every epoch has the same rows.
    epoch = order(corpus([5000]), rows_per_batch=1).batches
    rows = [batch.tokens.tobytes() for batch in all_batches(order(corpus([5000]), rows_per_batch=1, epochs=2))]
    assert rows[:epoch] != rows[epoch:]
    assert sorted(rows[:epoch]) == sorted(rows[epoch:])


def test_every_epoch_counts_its_own_rows():
    of = order(corpus(some_lengths(4000)), 512, 1, packing="best-fit", epochs=4)
    rows = [of.waste(epoch).rows for epoch in range(4)]
    assert len(set(rows)) > 1
    assert of.batches == sum(rows)
    of.require(sum(rows))
    with pytest.raises(CorpusError, match="corpus smaller than the budget"):
        of.batch(sum(rows))
    # The last rows of one epoch and the first of the next are drawn from the right ones.
    first, second = (order(corpus(some_lengths(4000)), 512, 1, packing="best-fit", epochs=n) for n in (1, 2))
    assert_equal(second.batch(rows[0] - 1), first.batch(rows[0] - 1))
    assert not np.array_equal(second.batch(rows[0]).tokens, first.batch(0).tokens)


@pytest.mark.parametrize("packing", PACKINGS)
def test_a_budget_beyond_the_corpus_is_refused_with_both_numbers_and_the_epochs_it_would_take(packing: Packing):
    short = order(packing=packing)
    short.require(short.batches)
    for call in (lambda: short.batch(short.batches), lambda: short.require(short.batches + 1)):
        with pytest.raises(CorpusError, match="corpus smaller than the budget") as error:
            call()
        assert f"{(short.batches + 1) * 128:,} tokens" in error.value.expected
        assert f"{short.batches * 128:,} tokens without repeating data" in error.value.received
        assert "larger corpus" in error.value.remedy
        assert "epochs = 2 in [base.corpus]" in error.value.remedy
    steps = 5 * short.batches // 2
    with pytest.raises(CorpusError, match=r"epochs = 3 in \[base\.corpus\]"):
        short.require(steps)
    order(packing=packing, epochs=3).require(steps)
    with pytest.raises(CorpusError, match=r"in 2 epochs(.|\n)*epochs = 3 in"):
        order(packing=packing, epochs=2).require(steps)


@pytest.mark.parametrize("packing", PACKINGS)
def test_how_often_a_run_reads_the_corpus_is_known(packing: Packing):
    of = order(rows_per_batch=1, packing=packing, epochs=3)
    epoch = order(rows_per_batch=1, packing=packing).batches
    assert of.epochs == 3
    assert of.passes(0) == 0
    assert of.passes(epoch // 2) == (epoch // 2) / epoch
    assert of.passes(epoch) == 1
    assert 1 < of.passes(epoch + 1) < 1.1
    assert of.passes(of.batches) == 3
    with pytest.raises(CorpusError, match="corpus smaller than the budget"):
        of.passes(of.batches + 1)


def test_steps_sizes_and_processes_that_cannot_be_meant_are_refused():
    with pytest.raises(CorpusError, match="steps count from 0"):
        order().batch(-1)
    with pytest.raises(CorpusError, match="at least one row"):
        order(rows_per_batch=0)
    with pytest.raises(CorpusError, match="at least once"):
        order(epochs=0)
    for rank in (-1, 2):
        with pytest.raises(CorpusError, match="no such process"):
            order().rows_of(0, rank, 2)
    with pytest.raises(CorpusError, match="more processes than rows"):
        order().rows_of(0, 0, 5)
    with pytest.raises(CorpusError, match="at least one row"):
        next(micro_batches(order().batch(0), 0))


@pytest.mark.parametrize("packing", PACKINGS)
def test_a_context_longer_than_the_corpus_offers_no_batch_and_no_epochs_would_help(packing: Packing):
    of = order(context_length=10_000_000, packing=packing, epochs=2)
    assert of.batches == 0
    with pytest.raises(CorpusError, match="larger corpus") as error:
        of.require(1)
    assert "epochs" not in error.value.remedy
