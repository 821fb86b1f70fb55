"""What of a set of tasks may be shown: the door that its page, table, figure and JSON are made behind.

A smoke set is a direction check without words; a full set has them in one place, the verdict (rules of evidence,
section 8). Before the planned seeds of a row are there nothing of its difference leaves (section 2).
"""

import re
from dataclasses import replace

from paribus.errors import ParibusError
from paribus.report.of_tasks import FULL, SMOKE, TunnelContent, TunnelRow
from paribus.stats.rounding import MINUS, probability
from paribus.stats.words import Word

LEAST_SEEDS = 10
"""of a full set with words: fewer cannot pass an exact sign-flip under Holm over the suite"""
WORDS = {word.value: word for word in Word}
_WIN = re.compile(r"\b(better|worse|equivalent|wins?|winner)\b", re.IGNORECASE)


def due_tunnel(content: TunnelContent) -> TunnelContent:
    """The set as it may be shown: nothing of a row that waits, and no word where none is due.

    ParibusError where a smoke set carries a word or an adjusted p, a full set of too few seeds carries a word, a word
    is none of the rules' words, or a sentence beside a difference says who won.
    """
    if content.set not in (SMOKE, FULL):
        raise ParibusError("there is no such set of tasks", expected=f"'{SMOKE}' or '{FULL}'", received=content.set)
    for row in content.rows:
        _refuse_words(row, content)
    return replace(content, rows=tuple(_withheld(row) if row.waiting else row for row in content.rows))


def _refuse_words(row: TunnelRow, content: TunnelContent) -> None:
    where = f"the row of '{row.task}' ({row.difference.compared})"
    if content.set == SMOKE and (row.word or row.p_holm is not None):
        raise ParibusError(
            f"{where} carries a verdict in a smoke set",
            expected="no word and no adjusted p: a smoke set is a direction check",
            received=repr(row.word) if row.word else f"p = {probability(row.p_holm)}",
            remedy="leave both out, or run the full set",
        )
    if row.word and row.word not in WORDS:
        raise ParibusError(
            f"{where} carries a word that no rule gives", expected=", ".join(WORDS), received=repr(row.word)
        )
    if row.word and row.planned_seeds < LEAST_SEEDS:
        raise ParibusError(
            f"{where} carries a verdict word on too few seeds",
            expected=f"at least {LEAST_SEEDS} planned seeds in a full set",
            received=str(row.planned_seeds),
            remedy="plan more seeds, or leave the word out",
        )
    of = row.difference
    for sentence in (row.plateau, of.informative_sentence, of.ratio_sentence, of.rate_sentence):
        # An arm may be called anything.
        told = sentence
        for arm in (name.strip("()") for name in of.compared.split(f" {MINUS} ")):
            told = told.replace(arm, "") if arm else told
        if _WIN.search(told):
            raise ParibusError(
                f"{where} says in a sentence who won",
                expected="win words in the verdict alone",
                received=repr(sentence),
                remedy="say what differs and by how much",
            )


def _withheld(row: TunnelRow) -> TunnelRow:
    """A row before its planned seeds: what was declared, and how many pairs are there."""
    of = replace(
        row.difference,
        area_difference=None,
        interval=None,
        differences=(),
        milestones=(),
        log2_updates_difference=None,
        log2_updates_interval=None,
        censored=(0, 0),
        ratio_sentence="",
        informative_sentence="",
        agreement="",
        rate_sentence="",
        metric="",
        metric_difference=None,
        metric_interval=None,
    )
    return replace(row, difference=of, acquired_baseline=(), acquired_treatment=(), plateau="", word="", p_holm=None)
