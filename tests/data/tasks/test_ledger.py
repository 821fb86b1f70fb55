"""`ledger`: one table for each seed, and nothing in the rows that gives it away."""

import hashlib
import math
from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare

from paribus.data.tasks import resolve
from paribus.data.tasks.contract import Rows, sample
from paribus.data.tasks.ledger import Ledger
from paribus.errors import CorpusError, ExperimentFileError

STANDARD_ERRORS = 4.0


def digest(rows: Rows) -> str:
    found = hashlib.blake2b(digest_size=8)
    for array in (rows.tokens, rows.targets, rows.asked, rows.slice, rows.answer, rows.document):
        found.update(np.ascontiguousarray(array, dtype="<i8").tobytes())
    return found.hexdigest()


def test_the_default_is_the_published_instance() -> None:
    assert (Ledger().vocabulary_size, Ledger().least_row_length) == (64 + 16 + 32, 3)
    assert Ledger().learnt()["fact"].amount(0.0) == 5120.0


def test_the_numbers_of_a_sample_are_frozen() -> None:
    assert digest(sample(Ledger(), 7, 3, 16, 48)) == "56936b2e667278a2"


def test_every_fact_of_a_seed_agrees_with_one_table_whatever_the_step() -> None:
    known: dict[tuple[int, int], int] = {}
    for step in (0, 5, 2**40):
        rows = sample(Ledger(), 11, step, 64, 48)
        for r, row in enumerate(rows.tokens.tolist()):
            for t in range(0, 48, 3):
                subject, relation, object_ = row[t : t + 3]
                assert 0 <= subject < 64 <= relation < 80 <= object_ < 112
                assert known.setdefault((subject, relation), object_) == object_
                assert rows.targets[r, t + 1] == object_
                assert list(rows.asked[r, t : t + 3]) == [False, True, False]
                assert list(rows.document[r, t : t + 3]) == [t // 3] * 3
    assert len(known) > 900


def test_another_seed_has_another_table() -> None:
    same = (Ledger().table(1) == Ledger().table(2)).mean()
    assert abs(same - 1 / 32) < STANDARD_ERRORS * math.sqrt(1 / 32 * 31 / 32 / 1024)


def test_the_oracle_is_sure_of_every_target_with_the_table_of_the_seed_and_of_no_other() -> None:
    rows = sample(Ledger(), 3, 1, 16, 50)
    r, t = np.nonzero(rows.asked)
    assert (Ledger().oracle(rows.tokens, 3)[r, t, rows.targets[r, t]] == 1.0).all()
    assert Ledger().oracle(rows.tokens, 4)[r, t, rows.targets[r, t]].mean() < 0.1


def test_keys_and_objects_are_uniform() -> None:
    """Chi-squares; p below 1e-4 once in ten thousand correct generators each."""
    rows = sample(Ledger(), 21, 0, 4000, 48)
    assert chisquare(np.bincount(rows.tokens[:, ::3].ravel(), minlength=64)).pvalue > 1e-4
    assert chisquare(np.bincount(rows.tokens[:, 1::3].ravel() - 64, minlength=16)).pvalue > 1e-4
    objects = np.concatenate([Ledger().table(seed).ravel() for seed in range(20)])
    assert chisquare(np.bincount(objects, minlength=32)).pvalue > 1e-4


def test_the_symbols_alone_say_what_the_levels_say() -> None:
    """Readers with the exact frequencies of the object behind one symbol, over 200 tables, within 4 standard errors."""
    levels = Ledger().levels(48)["fact"]
    by_subject, by_relation = [], []
    for seed in range(200):
        table = Ledger().table(seed).tolist()
        columns = [[line[b] for line in table] for b in range(16)]
        for found, lists in ((by_subject, table), (by_relation, columns)):
            shares = [count / len(objects) for objects in lists for count in Counter(objects).values()]
            found.append(-sum(share * math.log(share) for share in shares) / len(lists))
    for found, words in ((by_subject, "the subject alone"), (by_relation, "the relation alone")):
        noise = STANDARD_ERRORS * np.std(found) / math.sqrt(len(found))
        assert abs(np.mean(found) - levels.shortcuts[words]) < noise


def test_repeating_the_facts_of_a_row_costs_what_the_levels_say() -> None:
    """A reader that knows no table: sure of a key that it saw in the row, uniform over the objects else."""
    by_row = []
    for row in sample(Ledger(subjects=8, relations=4), 9, 1, 3000, 48).tokens.tolist():
        seen: dict[tuple[int, int], bool] = defaultdict(bool)
        nats = 0.0
        for t in range(0, 48, 3):
            nats += 0.0 if seen[row[t], row[t + 1]] else math.log(32)
            seen[row[t], row[t + 1]] = True
        by_row.append(nats / 16)
    level = Ledger(subjects=8, relations=4).levels(48)["fact"].shortcuts["repeating facts of the row"]
    assert abs(np.mean(by_row) - level) < STANDARD_ERRORS * np.std(by_row) / math.sqrt(len(by_row))


def test_bits_stored_counts_what_the_loss_says_is_known() -> None:
    bits = Ledger().learnt()["fact"]
    assert bits.unit == "bits of the table"
    assert bits.amount(math.log(32)) == pytest.approx(0.0, abs=1e-9)
    half_of_the_keys_known = math.log(32) / 2
    assert bits.amount(half_of_the_keys_known) == pytest.approx(2560.0, rel=1e-12)
    assert bits.amount(math.log(32) + math.log(2) / 1024) == pytest.approx(-1.0, rel=1e-9), "worse than knowing nothing"
    # keys * (log2 classes - loss / ln 2), with another table
    other = Ledger(subjects=8, relations=4, objects=10).learnt()["fact"]
    assert other.amount(1.3) == pytest.approx(8 * 4 * (math.log2(10) - 1.3 / math.log(2)), rel=1e-12)


def test_what_is_left_of_a_row_is_padding_that_asks_nothing() -> None:
    short, long = sample(Ledger(), 3, 1, 8, 48), sample(Ledger(), 3, 1, 8, 50)
    for name in ("tokens", "targets", "asked", "slice", "answer", "document"):
        assert np.array_equal(getattr(long, name)[:, :48], getattr(short, name))
    assert not long.asked[:, 48:].any()
    assert (long.document[:, 48:] == 16).all()


@pytest.mark.parametrize(
    ("knobs", "words"),
    [({"objects": 1}, "objects: not a valid value"), ({"subjects": 0}, "subjects: not a valid value")],
)
def test_knobs_that_do_not_fit_are_refused_in_one_sentence(knobs: dict[str, Any], words: str) -> None:
    with pytest.raises(ExperimentFileError, match=words):
        resolve("ledger", knobs, "base.corpus")


def test_a_row_too_short_for_a_fact_is_refused_with_both_numbers() -> None:
    with pytest.raises(CorpusError, match=r"row of 2 tokens[\s\S]*at least 3"):
        sample(Ledger(), 0, 0, 1, 2)
