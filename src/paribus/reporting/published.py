"""A contrast beside the public figure that the file names for it, by the rule of replication."""

import math
from collections.abc import Iterator
from pathlib import Path

from paribus.published import read
from paribus.reading.study import ReadStudy
from paribus.report.content import NoiseRow, PublishedRow
from paribus.stats.replication import replication
from paribus.stats.rule import Verdict, Word


def published(
    study: ReadStudy, verdicts: tuple[Verdict, ...], noise: tuple[NoiseRow, ...], experiment_folder: Path
) -> Iterator[PublishedRow]:
    """One row a contrast that names a figure; ours is left empty before its words are due."""
    # A publication's arms need not share seeds, so what stands in for its error is the noise of unpaired runs of ours.
    unpaired = {(row.scale, row.metric): row.sd_of_difference for row in noise if row.kind == "other seed"}
    for verdict in verdicts:
        figure = study.experiment.contrasts[verdict.name].published
        if figure is None:
            continue
        theirs = read(figure, experiment_folder)
        what = (verdict.name, verdict.scale, verdict.unit, theirs.source, theirs.difference)
        known = (theirs.standard_error, theirs.seeds)
        why = _not_compared(verdict)
        if why or verdict.mean is None or not verdict.standard_error or not verdict.interval:
            why = f"Not compared: {why or 'ours has no interval'}."
            yield PublishedRow(*what, *known, None, None, "", why, theirs.caveats)
            continue
        claimed = int(math.copysign(1, verdict.mean)) if verdict.word.not_zero else 0
        found = replication(
            mean=verdict.mean,
            standard_error=verdict.standard_error,
            interval=verdict.interval,
            verdict_sign=claimed,
            smallest_effect=verdict.smallest_effect,
            theirs=theirs.difference,
            theirs_standard_error=theirs.standard_error,
            theirs_seeds=theirs.seeds,
            same_recipe=figure.same_recipe,
            aa_sd=unpaired.get((verdict.scale, verdict.metric)),
            unit=verdict.unit,
        )
        ours = (verdict.mean, verdict.interval, found.word.value, found.sentence)
        yield PublishedRow(*what, *known, *ours, theirs.caveats)


def _not_compared(verdict: Verdict) -> str:
    """Why a verdict may not be set against a figure: only what was tested can replicate or contradict."""
    if verdict.word is Word.WAITING:
        return "ours is not due yet"
    tested = verdict.word.settled or verdict.word in (Word.INCONCLUSIVE, Word.SKEWED)
    return "" if tested else f"ours is '{verdict.word.value}', which claims nothing either way"
