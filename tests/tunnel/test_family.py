"""The words of a full set: one family over all rows."""

import math
from dataclasses import replace

import numpy as np
import pytest

from paribus.seeds import generator
from paribus.stats.holm import holm
from paribus.stats.paired import PairedDifferences, paired_t, t_interval
from paribus.stats.rule import Comparison, Rule, Verdict, Word
from paribus.stats.verdict import decide
from paribus.tunnel.family import ALPHA, TESTED, decide_family

RULE = Rule(0.1, 0.3, planned_seeds=10)


def comparison(differences: np.ndarray, *, primary: bool = True, diverged: tuple[int, ...] = ()) -> Comparison:
    """Treatment minus baseline at seeds 0, 1, ..., of a baseline at 1."""
    seeds = tuple(seed for seed in range(len(differences) + len(diverged)) if seed not in diverged)
    treatment = tuple((1 + differences).tolist())
    pairs = PairedDifferences(seeds, tuple(value - 1.0 for value in treatment), treatment_diverged=diverged)
    return Comparison(
        "row", "a", "b", "s", "train.area", "nats", primary, RULE, pairs, treatment, (1.0,) * len(differences)
    )


def with_own(comparison: Comparison) -> tuple[Comparison, Verdict]:
    return comparison, decide([comparison])[0]


def drawn(name: str, mean: float = 0.0, sd: float = 1.0) -> np.ndarray:
    return mean + sd * generator("tests", "tunnel", "family", name).standard_normal(10)


def test_a_family_of_one_row_is_its_own_study():
    row = with_own(comparison(drawn("one", 0.8, 0.3)))
    found = decide_family({"x": row})["x"]
    assert (found.word, found.p_holm, found.interval) == (row[1].word, row[1].p_t, row[1].interval)
    assert found.word.worse
    assert found.confidence == 0.95


def test_adjusted_p_words_and_intervals_follow_holm_over_all_rows():
    differences = {f"{i}": drawn(f"h{i}", 0.09 * i, 0.4) for i in range(8)}
    found = decide_family({name: with_own(comparison(values)) for name, values in differences.items()})
    p = {name: paired_t(values.tolist()).p_two_sided for name, values in differences.items()}
    reference = holm(list(p.values()), ALPHA)
    assert [row.p_holm for row in found.values()] == pytest.approx(reference.adjusted, rel=1e-9)
    for (name, values), level in zip(differences.items(), reference.levels, strict=True):
        row = found[name]
        assert row.interval == pytest.approx(t_interval(values.tolist(), 1 - level), rel=1e-9)
        assert row.word.not_zero == (row.p_holm is not None and row.p_holm <= ALPHA)
    assert {row.word.not_zero for row in found.values()} == {True, False}
    alone = {name: with_own(comparison(values))[1].word.not_zero for name, values in differences.items()}
    assert sum(alone.values()) > sum(row.word.not_zero for row in found.values()), "the family asks for more"


def test_a_row_without_a_test_keeps_its_place_and_makes_no_other_easier():
    rows = {"x": with_own(comparison(drawn("kept", 0.5, 0.4)))}
    alone = decide_family(rows)["x"]
    lost = with_own(comparison(drawn("lost")[:9], diverged=(4,)))
    waiting = with_own(comparison(drawn("waiting")[:6]))
    found = decide_family({**rows, "lost": lost, "waiting": waiting})
    assert (found["lost"].word, found["lost"].p_holm, found["lost"].interval) == (Word.DIVERGENCE, None, None)
    assert (found["waiting"].word, found["waiting"].p_holm) == (Word.WAITING, None)
    assert alone.p_holm is not None
    assert found["x"].p_holm == pytest.approx(min(1.0, 3 * alone.p_holm))


def test_a_secondary_that_its_study_did_not_test_is_a_row_like_any_other():
    null = comparison(drawn("null", 0.0, 0.3))
    secondary = replace(comparison(drawn("strong", 0.9, 0.2), primary=False), name="second")
    verdicts = decide([null, secondary])
    assert verdicts[1].word is Word.NOT_TESTED
    found = decide_family({"null": (null, verdicts[0]), "second": (secondary, verdicts[1])})
    assert found["second"].word.worse


def test_every_word_is_either_said_before_a_test_or_after_one():
    early = {
        Word.EXPLORATORY,
        Word.EXPLORATORY_EXTENSION,
        Word.RULE_CHANGED,
        Word.NO_INFORMATION,
        Word.NOT_INFORMATIVE,
        Word.DIVERGENCE,
        Word.WAITING,
        Word.FUTILE,
    }
    assert TESTED | early == set(Word)
    assert not TESTED & early


def test_at_most_five_percent_of_null_pages_carry_a_difference():
    """24 rows, 10 seeds. Of pages whose rows are tested one by one more than half carry one."""
    draw = generator("tests", "tunnel", "family", "null pages")
    pages, rows = 120, 24
    false, unadjusted = 0, 0
    for _ in range(pages):
        page = {str(i): with_own(comparison(0.2 * draw.standard_normal(10))) for i in range(rows)}
        unadjusted += any(own.word.not_zero for _, own in page.values())
        false += any(row.word.not_zero for row in decide_family(page).values())
    # Three binomial standard errors above 5 % of the pages.
    assert false <= pages * ALPHA + 3 * math.sqrt(pages * ALPHA * (1 - ALPHA))
    assert unadjusted > pages / 2
