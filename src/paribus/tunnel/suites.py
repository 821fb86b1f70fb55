"""Which studies a set of tasks consists of: the shipped files, or the same tasks for a mechanism of one's own.

A suite is a folder of ordinary experiment files, one a task, frozen before their first run: `suites/smoke` (a direction
check within minutes) and `suites/full` (verdicts). Each of them can be planned, run and reported by itself like any
other file. With a mechanism of one's own the tasks, sizes and budgets stay; the arms become the base and the base with
that mechanism, and every study has another name, so that its cells and random streams are its own.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from paribus import mechanisms
from paribus.errors import ExperimentFileError, nearest
from paribus.experiment import loading
from paribus.experiment.calibration import baseline_of, declared_calibration, evidence_of
from paribus.experiment.spec import SEAM_FIELDS, Base, Calibration, Experiment
from paribus.experiment.trial import BASELINE, INLINE, plain_name, table_of
from paribus.mechanisms.contract import Seam
from paribus.refusal import refusal

SUITES = Path(__file__).parent / "suites"
"""a folder a suite, a file a task"""
OPTION = "--mechanism"


@dataclass(frozen=True)
class TaskStudy:
    """One task of a suite."""

    file: Path
    """the experiment file, shipped with the package"""
    experiment: Experiment
    """as the file declares it, or with the arms of a mechanism of one's own"""

    @property
    def task(self) -> str:
        """The file's name: that of the task, or of a variant of it."""
        return self.file.stem


@dataclass(frozen=True)
class Suite:
    """A set of tasks."""

    name: str
    """of its folder: "smoke" or "full" """
    studies: tuple[TaskStudy, ...]
    own: str = ""
    """what the names of studies and folder end in for a mechanism of one's own; empty for the shipped arms"""
    whole: int = 0
    """tasks of the set of which these are a part; 0 where these are all"""

    @property
    def folder_name(self) -> str:
        """Of the studies' run folders, and of the page of the whole set."""
        return f"tunnel-{self.name}" + (f"-{self.own}" if self.own else "")

    @property
    def part(self) -> str:
        """Of a part of a set, the folder of its page beside its studies; empty for a whole set.

        A part shares the set's cells; its page has other rows, so that it never takes the place of the set's.
        """
        return f"only-{'-'.join(study.task for study in self.studies)}" if self.whole else ""


def load_suite(name: str) -> Suite:
    """The suite of this name. ExperimentFileError where there is none, or where one of its files reads text."""
    known = sorted(path.name for path in SUITES.iterdir() if path.is_dir())
    if name not in known:
        raise ExperimentFileError(
            "there is no such set of tasks",
            expected=", ".join(known),
            received=f"'{name}'",
            remedy=nearest(name, known),
        )
    studies = tuple(TaskStudy(file, loading.load(file)) for file in sorted((SUITES / name).glob("*.toml")))
    for study in studies:
        if study.experiment.base.task is None:
            raise ExperimentFileError(
                f"{study.file}: base.corpus: a set of tasks holds synthetic tasks only",
                expected='a task, such as corpus = { task = "cross" }',
                received="text",
                remedy="run this file by itself with `paribus run`",
            )
    if not studies:
        raise ExperimentFileError(f"{SUITES / name} holds no experiment file", expected="a TOML file for each task")
    return Suite(name, studies)


def only(suite: Suite, tasks: Sequence[str]) -> Suite:
    """The suite with the tasks of these names alone, in its own order; all of it where none is named.

    ExperimentFileError where it has no task of a name.
    """
    known = [study.task for study in suite.studies]
    for name in tasks:
        if name not in known:
            raise ExperimentFileError(
                f"--task: the {suite.name} set has no task of this name",
                expected=", ".join(known),
                received=f"'{name}'",
                remedy=nearest(name, known),
            )
    chosen = tuple(study for study in suite.studies if study.task in tasks)
    return replace(suite, studies=chosen, whole=suite.whole or len(suite.studies)) if tasks else suite


def with_mechanism(suite: Suite, text: str) -> Suite:
    """The suite with the arms "the base" and "the base with this mechanism" in place of its own.

    `text` is a registered mechanism's name, a table by seam such as 'mask = { name = "document" }', a module that
    declares one mechanism ("mypackage.idea"), or one of several in a module ("mypackage.idea:mine").
    """
    arm, table = _arm(text)
    digest = hashlib.blake2b(json.dumps(table, sort_keys=True).encode(), digest_size=3).hexdigest()
    own = f"{arm}-{digest}"
    return replace(suite, studies=tuple(_with_arm(study, arm, table, own) for study in suite.studies), own=own)


def _with_arm(study: TaskStudy, arm: str, table: dict[str, Any], own: str) -> TaskStudy:
    declared = study.experiment
    assert declared.base.task is not None
    primary = declared.contrasts[declared.primary]
    about = {
        "treatment": arm,
        "baseline": BASELINE,
        "minus_treatment": None,
        "minus_baseline": None,
        "expected": None,
        "assumed_sd": None,
        "published": None,
        "also_differs": (),
    }
    experiment = declared.model_copy(
        update={
            "study": f"{declared.study}-{own}",
            "question": f"What does {arm} change where the task is to {declared.base.task.title}?",
            "arms": {BASELINE: {}, arm: table},
            "contrasts": {arm: primary.model_copy(update=about)},
            # The shipped search names the shipped arms.
            "tuning": None,
            "calibration": None,
            "scales": {name: scale.model_copy(update={"calibration": None}) for name, scale in declared.scales.items()},
        }
    )
    try:
        experiment.arm(arm)
    except ValidationError as error:
        raise refusal(error, f"{OPTION}: ", Base) from None
    return TaskStudy(study.file, experiment.model_copy(update={"calibration": _calibration(declared, experiment)}))


def _calibration(shipped: Experiment, own: Experiment) -> Calibration | None:
    """What the shipped file knows of the difficulty, where it was found on the base alone, at its declared values.

    None where the shipped baseline is an arm of its own, or its calibration is stale: then nobody calibrated this.
    """
    found = declared_calibration(shipped)
    if found is None or found.slices is None:
        return found
    if shipped.arms[baseline_of(shipped)[1]] or found.evidence != evidence_of(shipped, found.slices):
        return None
    # The digest leaves out the field that the shipped file searches; here nothing is searched.
    return found.model_copy(update={"evidence": evidence_of(own, found.slices)})


def _arm(text: str) -> tuple[str, dict[str, Any]]:
    """Name and table of the arm, whose mechanisms are known to exist."""
    try:
        table = table_of(text)
        for seam, mechanism in table.items():
            mechanisms.resolve(Seam(seam), mechanism, seam)
    except ExperimentFileError as error:
        raise ExperimentFileError(
            f"{OPTION}: {error.what.removeprefix('ARM: ')}",
            expected=error.expected,
            received=error.received,
            remedy=error.remedy,
        ) from None
    names = [plain_name(table[seam]["name"]) for seam in SEAM_FIELDS if seam in table]
    name = "-".join(names)
    return (INLINE if name in ("", BASELINE) else name), table
