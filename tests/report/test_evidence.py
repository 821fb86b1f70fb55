"""What a reader may see of a verdict, and which records may stand beside it."""

from dataclasses import replace

from paribus.report.content import ReportContent
from paribus.report.evidence import is_due, may_compare, may_span, may_tell, reference_arm, shown, shown_rows
from paribus.stats.verdict import Word


def test_a_record_that_no_verdict_answers_for_waits_for_its_scale_and_needs_a_page_of_verdicts(
    study: ReportContent, waiting_study: ReportContent
) -> None:
    done, early = shown_rows(study), shown_rows(waiting_study)
    assert is_due(done, "another contrast", "S")
    assert is_due(done, "separate value route", "L")
    assert not is_due(early, "another contrast", "S")
    assert not is_due([], "separate value route", "S")
    assert may_compare([], "S"), "curves of a study that compares nothing may be drawn"
    # One contrast waits: it is not due itself, and nothing that is not of its own contrast is at its scale.
    mixed = [early[0], *done[1:]]
    assert not is_due(mixed, early[0].name, "S")
    assert is_due(mixed, done[1].name, "S")
    assert not is_due(mixed, "another contrast", "S")


def test_a_waiting_verdict_keeps_what_was_declared_and_nothing_else(study: ReportContent) -> None:
    told = replace(study.verdicts[0], word=Word.WAITING, seeds=3, looks=(5, 8), futile=True, look=1, extension=True)
    row = shown(told, study.pairs)
    assert (row.looks, row.extension) == ((5, 8), True)
    assert (row.futile, row.look, row.mean, row.differences) == (False, None, None, ())
    assert "stops are declared at 5 and 8" in row.sentence


def test_while_a_contrast_waits_losses_may_be_told_of_one_arm_and_of_none_beyond_a_look(
    study: ReportContent, waiting_study: ReportContent
) -> None:
    done, early = shown_rows(study), shown_rows(waiting_study)
    arms = ("parent", "rd", "rd-tied", "exclusive")
    assert [may_tell(done, "S", arm, 0) for arm in arms] == [True] * 4
    assert [may_tell(early, "S", arm, 0) for arm in arms] == [True, False, False, False]
    assert [may_tell([done[0], early[1]], "S", arm, 0) for arm in arms] == [True, False, False, False]
    assert [may_tell(early, "L", arm, 0) for arm in arms] == [True, False, False, False]
    look = [replace(done[0], uncounted_seeds=(4,)), *done[1:]]
    assert [may_tell(look, "S", arm, seed) for seed in (3, 4) for arm in arms] == [True] * 4 + [False] * 4
    assert may_tell([], "S", "rd", 0)
    assert (reference_arm(early, "S"), reference_arm([], "S")) == ("parent", None)
    assert reference_arm([early[3], early[0]], "S") == "parent", "the primary's, wherever it stands"


def test_no_interval_stands_beside_a_wait_a_pair_beyond_a_look_or_a_stop_for_futility(study: ReportContent) -> None:
    done = shown_rows(study)
    assert may_span(done, "S")
    for changed in ({"word": Word.WAITING}, {"word": Word.FUTILE}, {"uncounted_seeds": (4,)}):
        assert not may_span([*done[:3], replace(done[3], **changed)], "S")
