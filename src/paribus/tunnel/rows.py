"""The page of a set of tasks, from the run folders of its studies: a row a task and contrast, words where they are due.

A smoke set has one row a task, its primary, and no word: it is a direction check. A full set has a row for every
contrast, each on its task's primary slice, and the words of one family over all rows (`paribus.tunnel.family`).
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paribus.errors import ParibusError
from paribus.experiment.calibration import State, calibration_of
from paribus.experiment.spec import Experiment
from paribus.publishing import stale_cells
from paribus.reading.evidence import comparisons, record_look, verdicts_of
from paribus.reading.study import ReadStudy, read_study
from paribus.reading.task_arms import budget_updates
from paribus.report.of_tasks import (
    FULL,
    TunnelContent,
    TunnelRow,
)
from paribus.reporting.task_differences import Family, describe_contrast
from paribus.reporting.task_study import definition
from paribus.stats.procedure import at_look
from paribus.tunnel.family import FamilyVerdict, decide_family

QUESTION = "Which behaviour does each change of the architecture alter, and when in training?"
_DOUBTFUL = (State.MISSING, State.STALE, State.TOO_EASY, State.TOO_HARD, State.UNEVEN)
LOOK = "tunnel"
"""what the ledger of looks calls the page of a set"""


def tunnel_content(
    name: str,
    experiments: Mapping[str, Experiment],
    runs: Path,
    *,
    failures: Mapping[str, ParibusError] | None = None,
    seconds: float | None = None,
    repeat_command: str = "",
    reports: Mapping[str, str] | None = None,
) -> TunnelContent:
    """The page's content for the studies below `runs`, by task.

    `failures` say why a task has no row, `reports` where a task's own report is, relative to the page.
    """
    studies = {task: read_study(experiment, runs) for task, experiment in experiments.items()}
    words = _family(studies) if name == FULL else {}
    rows = [
        _row(task, contrast, study, words.get((task, contrast)), (reports or {}).get(task, ""))
        for task, study in studies.items()
        for contrast in _shown(study, name)
    ]
    return TunnelContent(
        question=QUESTION,
        set=name,
        planned_seeds=max((study.experiment.seeds.count for study in studies.values()), default=0),
        rows=tuple(rows),
        definitions=tuple(found for study in studies.values() if (found := definition(study)) is not None),
        seconds=seconds,
        environment=next((study.plan["environment"] for study in studies.values()), {}),
        caveats=tuple(_caveats(name, studies, failures or {})),
        repeat_command=repeat_command,
        arms=_arms({task: study.experiment for task, study in studies.items()}),
        difficulty={task: calibration_of(study.experiment).sentence for task, study in studies.items()},
    )


def _arms(experiments: Mapping[str, Experiment]) -> dict[str, str]:
    """The table of every arm that has one, as its file writes it; under a name of its own where tasks differ in it."""
    tables: dict[str, dict[str, str]] = {}
    for task, experiment in experiments.items():
        for name, table in experiment.arms.items():
            if table:
                tables.setdefault(name, {}).setdefault(_settings(table), task)
    return {
        name if len(found) == 1 else f"{name} ({task})": settings
        for name, found in tables.items()
        for settings, task in found.items()
    }


def _settings(table: Mapping[str, Any]) -> str:
    """One line a field: `mask = { name = "mypackage.idea:mine", width = 8 }`."""
    return "; ".join(f"{name} = {_value(value)}" for name, value in table.items())


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        inner = ", ".join(f"{name} = {_value(entry)}" for name, entry in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_value, value))}]"
    return json.dumps(value)


def record_looks(name: str, experiments: Mapping[str, Experiment], runs: Path) -> None:
    """Put into each study's ledger that the page of the set showed it; a smoke set has shown no word of it."""
    for experiment in experiments.values():
        study = read_study(experiment, runs)
        record_look(study, verdicts_of(study), LOOK, words=name == FULL)


def _shown(study: ReadStudy, name: str) -> list[str]:
    """Contrasts with a row, the primary first."""
    contrasts = study.experiment.contrasts
    primary = study.experiment.primary
    return [primary, *(other for other in contrasts if other != primary)] if name == FULL else [primary]


def _family(studies: Mapping[str, ReadStudy]) -> dict[tuple[str, str], FamilyVerdict]:
    rows = {}
    for task, study in studies.items():
        verdicts = {verdict.name: verdict for verdict in verdicts_of(study)}
        for comparison in comparisons(study):
            stopped = at_look(comparison, study.experiment.seeds.numbers)
            rows[f"{task}/{comparison.name}"] = (stopped, verdicts[comparison.name])
    found = decide_family(rows)
    return {
        (task, contrast): found[f"{task}/{contrast}"]
        for task, study in studies.items()
        for contrast in study.experiment.contrasts
    }


def _row(task: str, contrast: str, study: ReadStudy, word: FamilyVerdict | None, report: str) -> TunnelRow:
    experiment = study.experiment
    declared = experiment.base.task
    assert declared is not None
    family = None
    if word is not None and word.interval is not None:
        family = Family(word.interval, word.confidence, word.equivalence_interval)
    described = describe_contrast(study, contrast, family=family)
    return TunnelRow(
        task=task,
        title=declared.title,
        difference=described.difference,
        planned_seeds=experiment.seeds.count,
        budget_updates=budget_updates(experiment, described.difference.scale),
        acquired_baseline=described.acquired_baseline,
        acquired_treatment=described.acquired_treatment,
        plateau=described.plateau,
        word="" if word is None else word.word.value,
        p_holm=None if word is None else word.p_holm,
        report=report,
    )


def _caveats(name: str, studies: Mapping[str, ReadStudy], failures: Mapping[str, ParibusError]) -> list[str]:
    said = [f"{task} has no result: {error.what}." for task, error in failures.items()]
    said += [f"{task}: {doubt}" for task, study in studies.items() for doubt in (*study.doubts, *stale_cells(study))]
    calibrations = {task: calibration_of(study.experiment) for task, study in studies.items()}
    untuned = [task for task, study in studies.items() if study.experiment.tuning is None]
    if untuned:
        said.append(
            f"Learning rates were not searched for any arm ({', '.join(untuned)}): a difference may be one of rates."
        )
    unchecked = [task for task, study in studies.items() if not study.experiment.robustness.rate_factors]
    if unchecked:
        said.append(f"One learning rate only ({', '.join(unchecked)}): whether a sign depends on it is not known.")
    said += [f"{task}: {found.sentence}." for task, found in calibrations.items() if found.state in _DOUBTFUL]
    if name != FULL:
        said.append("Intervals are not adjusted for the number of rows, and nobody concludes from them.")
    versions = {study.plan["environment"].get("code version", "") for study in studies.values()}
    if len(versions) > 1:
        said.append(f"The studies were planned with {len(versions)} versions of the code.")
    return said
