"""A study as its run folder last reported it: the verdicts of `report.json`, and what its `plan.json` resolved.

Not the rows: a report holds only what was due when it was made, the look at it is already in the study's ledger, and a
study whose code has changed since can still be compared, where its rows would now be stale.
"""

import ast
import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paribus.errors import ParibusError, StudyFolderError, nearest
from paribus.runs.records import read_json
from paribus.runs.study_folder import StudyFolder
from paribus.stats.rule import Word

REPORT = "report.json"
MAKE_AGAIN = "make the report again with `paribus report FILE`; everything else in the folder stays"
ABSENT = "not there"
_NUMBERS = ("mean", "interval", "interval_confidence", "standard_error")


@dataclass(frozen=True)
class Reported:
    """One contrast as its study reported it."""

    place: int
    """of its study among those compared"""
    study: str
    name: str
    arms: tuple[str, ...]
    scale: str
    metric: str
    unit: str
    primary: bool
    word: str
    seeds: int
    """pairs that count"""
    planned_seeds: int
    smallest_effect: float
    budget_tokens: int | None
    """training tokens of a cell; None where the plan does not say"""
    mean: float | None
    """treatment minus baseline, unit of the metric; None while it waits"""
    interval: tuple[float, float] | None
    interval_confidence: float | None
    standard_error: float | None

    @property
    def compared(self) -> str:
        """ "a minus b", or "(a minus b) minus (c minus d)"."""
        pairs = [f"{one} minus {other}" for one, other in zip(self.arms[::2], self.arms[1::2], strict=True)]
        return pairs[0] if len(pairs) == 1 else " minus ".join(f"({pair})" for pair in pairs)


@dataclass(frozen=True)
class ReportedStudy:
    """A run folder, as its last report and its plan describe it."""

    name: str
    folder: Path
    question: str
    contrasts: tuple[Reported, ...]
    facts: Mapping[str, str]
    """corpus and environment of the plan, by path"""
    arms: Mapping[tuple[str, str], Mapping[str, str]]
    """by scale and arm: resolved fields, parameters and code, by path"""
    code: tuple[str, ...]
    """code versions of the complete cells"""
    last_look: str
    """time of the last look that the ledger tells of; empty without one"""


def read_reported(folder: Path, place: int = 0) -> ReportedStudy:
    """The study in a run folder. StudyFolderError where it has no report, or one that paribus did not write."""
    report = folder / REPORT
    if not report.exists():
        raise StudyFolderError(
            f"{folder}: this study has not been reported yet",
            expected=str(report),
            received="no such file",
            remedy="make its report first, with `paribus report FILE`; that is a look, and is recorded as one",
        )
    data = read_json(report, remedy=MAKE_AGAIN)
    study = StudyFolder(folder)
    plan, looks = study.plan() or {}, study.looks()
    try:
        arms = {(arm["scale"], arm["arm"]): dict(_arm_facts(arm)) for arm in plan.get("arms", [])}
        return ReportedStudy(
            name=data["study"],
            folder=folder,
            question=data["question"],
            contrasts=tuple(_reported(place, data["study"], verdict, arms) for verdict in data["verdicts"]),
            facts=dict(_flat({key: plan[key] for key in ("corpus", "environment") if key in plan})),
            arms=arms,
            code=tuple(sorted({cell["code_version"] for cell in data["cells"] if cell["state"] == "complete"})),
            last_look=looks[-1]["time"] if looks else "",
        )
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise StudyFolderError(
            f"{report} is not a report that this version can read",
            expected="study, question, verdicts and cells, as `paribus report` writes them",
            received=f"{type(error).__name__}: {error}",
            remedy=MAKE_AGAIN,
        ) from error


def run_folder(study: Path, runs: Path) -> Path:
    """The run folder that a path, a name or an experiment file means."""
    if study.is_dir():
        return study
    name = str(study)
    if study.suffix == ".toml" and study.is_file():
        try:
            name = str(tomllib.loads(study.read_text(encoding="utf-8")).get("study", study.stem))
        except (OSError, ValueError) as error:
            raise ParibusError(f"{study}: not a readable TOML file", received=str(error)) from None
    known = sorted(path.name for path in runs.iterdir() if path.is_dir()) if runs.is_dir() else []
    if name in known:
        return runs / name
    # A file with several scales has a run folder for each: "file@scale".
    at_scales = [folder for folder in known if folder.partition("@")[0] == name and "+" not in folder]
    if len(at_scales) == 1:
        return runs / at_scales[0]
    raise StudyFolderError(
        f"{study}: " + ("it has a run folder for each scale" if at_scales else "no run folder"),
        expected=" or ".join(at_scales) if at_scales else f"a study below {runs}",
        received=f"'{name}'",
        remedy="name one of them" if at_scales else nearest(name, known),
    )


def _reported(
    place: int, study: str, verdict: Mapping[str, Any], arms: Mapping[tuple[str, str], Mapping[str, str]]
) -> Reported:
    word = str(verdict["word"])
    known = word in {one.value for one in Word}
    arms_of = tuple(verdict.get("arms", (verdict["treatment"], verdict["baseline"])))  # an earlier version has none
    # The report holds no number of a waiting contrast; one that was edited in by hand is not shown either.
    numbers = dict.fromkeys(_NUMBERS) if word == Word.WAITING.value else {name: verdict[name] for name in _NUMBERS}
    bounds = numbers["interval"]
    budget = arms.get((verdict["scale"], arms_of[0]), {}).get("scale.budget_tokens")
    return Reported(
        place=place,
        study=study,
        name=verdict["name"],
        arms=arms_of,
        scale=verdict["scale"],
        metric=verdict["metric"],
        unit=verdict["unit"],
        primary=verdict["primary"],
        word=word if known else f"{word} (a word of another version)",
        seeds=verdict["seeds"],
        planned_seeds=verdict["planned_seeds"],
        smallest_effect=verdict["smallest_effect"],
        budget_tokens=int(budget) if budget is not None else None,
        mean=numbers["mean"],
        interval=None if bounds is None else (float(bounds[0]), float(bounds[1])),
        interval_confidence=numbers["interval_confidence"],
        standard_error=numbers["standard_error"],
    )


def _arm_facts(arm: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What a plan says of an arm: the declared text holds the resolved base, the scale and how it is executed."""
    text, decoder, found = str(arm.get("declared", "")), json.JSONDecoder(), {}
    try:
        for part in ("base", "scale"):
            found[part], end = decoder.raw_decode(text)
            text = text[end:].lstrip()
        found["execution"] = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        found["declared"] = text  # of another version: compared as a whole
    found["parameters"] = arm.get("parameters_by_role", {})
    found["code"] = arm.get("code_digest", ABSENT)
    yield from _flat(found)


def _flat(content: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    for key, value in content.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value if isinstance(value, str) else json.dumps(value)
