"""The own report of every task of a set, in its run folder: what the page of the set links.

A smoke set is a direction check without words (rules of evidence, section 8), and a report that its page links is part
of it: it is the ordinary one, but a contrast that was tested is exploratory in it, with its mean and interval and
neither a p value nor a count of wins. A reason why there was no test stays.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from paribus.experiment.spec import Experiment
from paribus.reading.evidence import verdicts_of
from paribus.reading.study import read_study
from paribus.report.of_tasks import FULL
from paribus.report.page import PAGE, write
from paribus.reporting.assemble import report_content
from paribus.stats.power import count_of
from paribus.stats.rounding import MINUS, decimals_for, fixed, percent
from paribus.stats.rule import Verdict, Word
from paribus.tuning.reading import read_tuning
from paribus.tunnel.family import TESTED
from paribus.tunnel.suites import Suite


def write_reports(
    suite: Suite, experiments: Mapping[str, Experiment], folder: Path, repeat_command: str
) -> dict[str, str]:
    """Write the report of each task of `experiments`; where it is, relative to the set's page, by task.

    A shipped file of a full set can be run by itself, and its report says so; any other is repeated with its set.
    """
    found = {}
    for study in suite.studies:
        if study.task not in experiments:
            continue
        read = read_study(experiments[study.task], folder)
        verdicts = verdicts_of(read)
        if suite.name != FULL:
            verdicts = tuple(map(direction_check, verdicts))
        by_itself = suite.name == FULL and not suite.own
        command = f"paribus run {study.file} --runs {folder}" if by_itself else repeat_command
        # The search belongs to the file as it was declared: the trained experiment holds what it chose.
        tuning = None if study.experiment.tuning is None else read_tuning(study.experiment, folder)
        content = report_content(read, verdicts, command, study.file.parent, tuning)
        write(content, read.folder.path)
        found[study.task] = f"{'../' if suite.part else ''}{study.experiment.study}/{PAGE}"
    return found


def direction_check(verdict: Verdict) -> Verdict:
    """The verdict as a direction check may show it: no word that a test gave, no p value and no wins."""
    if verdict.word not in TESTED:
        return verdict
    return replace(
        verdict,
        word=Word.EXPLORATORY,
        primary_word=None,
        equivalence_interval=None,
        equivalence_confidence=None,
        p_t=None,
        p_holm=None,
        p_equivalence=None,
        p_equivalence_holm=None,
        p_sign_flip=None,
        wins=None,
        p_divergence=None,
        sentence=_sentence(verdict),
        notes=(),
    )


def _sentence(verdict: Verdict) -> str:
    against = MINUS if verdict.interaction else "against"
    head = f"{verdict.treatment} {against} {verdict.baseline} at {verdict.scale} on {verdict.metric}"
    said = f"{head}: direction check on {count_of(verdict.seeds, 'pair')}, which carries no verdict word."
    if verdict.mean is None:
        return said
    digits = decimals_for(verdict.standard_error)
    said += f" Mean difference {fixed(verdict.mean, digits, signed=True)} {verdict.unit}"
    if verdict.interval is None:
        return f"{said}."
    low, high = (fixed(end, digits, signed=True) for end in verdict.interval)
    return f"{said}, {percent(verdict.interval_confidence)} interval {low} to {high}. The full set may give a word."
