"""The run folder read back against the file: every cell with its state. Needs no tensors; writes nothing."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paribus.errors import ParibusError, StudyFolderError
from paribus.experiment import spec
from paribus.experiment.code import code_digest
from paribus.experiment.spec import Key
from paribus.reading.cell import ENDED, ReadCell, checked
from paribus.reading.learning import excess_thresholds
from paribus.runs import layout
from paribus.runs.folder import CellFolder
from paribus.runs.study_folder import StudyFolder


@dataclass(frozen=True)
class ReadStudy:
    """The experiment file and what the run folder holds of it."""

    experiment: spec.Experiment
    folder: StudyFolder
    plan: Mapping[str, Any]
    cells: Mapping[Key, ReadCell]
    doubts: tuple[str, ...] = ()
    """what of the study's own records could not be used, a sentence each"""
    stale_because: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """by (scale, arm) of the plan that no longer holds: what has changed since"""
    code_digests: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """of the present code of each arm, by (scale, arm); empty where it is not installed"""

    def count(self, state: str) -> int:
        return sum(cell.state == state for cell in self.cells.values())

    def cost(self, scale: str) -> tuple[Mapping[str, Any] | None, str]:
        """What was measured of the time of an update at a scale, or None and why it cannot be used.

        None and no reason where nobody measured.
        """
        anew = "`paribus bench` measures anew"
        try:
            found = self.folder.cost(scale)
        except StudyFolderError as error:
            return None, f"The record of the time of an update cannot be read ({error.received}); delete it: {anew}."
        wrong = "" if found is None else layout.cost_fault(found)
        if wrong:
            return None, f"The record of the time of an update is not as it was written ({wrong}); {anew}."
        return found, ""

    def stale_folders(self) -> list[Path]:
        """Folders of cells that the file asks for, under digests that are not the plan's: kept, never used."""
        found = set()
        for (scale, arm, seed, variant), cell in self.cells.items():
            others = self.folder.other_cells(scale, arm, seed, cell.digest or "none", variant)
            found.update(other.path for other in others)
        return sorted(found)


def read_study(experiment: spec.Experiment, runs: Path) -> ReadStudy:
    """Every cell that the file asks for, with its state. StudyFolderError where the folder is another study's."""
    folder = StudyFolder(runs / experiment.study)
    if not (folder.path / "study.json").exists():
        if any(folder.path.glob("*/*/*/cell.json")):
            raise StudyFolderError(
                f"{folder.path} holds cells and no study.json, so nothing says whose they are",
                expected="study.json, as `paribus run` wrote it",
                remedy="restore it from a copy; the cells are untouched",
            )
        raise StudyFolderError(
            f"study '{experiment.study}' has no run folder yet",
            expected=f"{folder.path} with a study in it",
            received="nothing there",
            remedy="start it with `paribus run`, or name its folder with --runs",
        )
    folder.claim_for(experiment.study)
    plan, doubts = _plan(folder)
    code, unknown = _code_digests(plan)
    doubts += unknown + [
        f"looks.jsonl: {line} cannot be read; which words were seen then is not known, so a change of the rule or an "
        "undeclared extension may go unnoticed."
        for line in folder.unreadable_looks()
    ]
    digests = {(c["scale"], c["arm"], c["seed"], c.get("variant", "")): c["digest"] for c in plan["cells"]}
    changed = {(a["scale"], a["arm"]): _changed(experiment, a, code) for a in plan["arms"]}
    current = {key: not what for key, what in changed.items()}
    thresholds = excess_thresholds(plan["corpus"])
    cells = {}
    for key in experiment.cell_keys():
        scale, arm, seed, variant = key
        digest = digests.get(key)
        found = folder.cell(scale, arm, seed, digest, variant) if digest is not None else None
        state = found.state if found is not None else "missing"
        as_declared = current.get((scale, arm), False)
        if found is not None and state in ENDED:
            as_declared = as_declared and _of_the_files_kind(experiment, key, found)
        if state != "missing" and not as_declared:
            state = "stale"
        cells[key] = checked(ReadCell(key, state, digest or "", found, thresholds=thresholds))
    because = {key: what for key, what in changed.items() if what}
    return ReadStudy(experiment, folder, plan, cells, tuple(doubts), because, code)


def _changed(experiment: spec.Experiment, arm: Mapping[str, Any], code: Mapping[tuple[str, str], str]) -> str:
    """What has changed since the plan was written, so that the arm's cells are stale; empty where nothing has."""
    scale, name = arm["scale"], arm["arm"]
    if name not in experiment.arms or scale not in experiment.scales:
        return "it is no longer in the file"
    what = ["the file"] * (arm["declared"] != spec.declared(experiment, scale, name))
    what += ["the code"] * (arm["code_digest"] != code[scale, name])
    return " and ".join(what)


def _of_the_files_kind(experiment: spec.Experiment, key: Key, folder: CellFolder) -> bool:
    """Whether a smaller budget was trained as the file now says: from the start, or as a branch of the full run.

    `spec.declared` does not tell them apart, since the full run is the same. True where the record says nothing.
    """
    scale, _, _, variant = key
    if spec.variant_budget(variant) is None:
        return True
    try:
        branch = "trunk" in folder.record()["resolved"]
    except (StudyFolderError, KeyError, TypeError):
        return True
    return branch == (experiment.scales[scale].budget_cells == "branches")


def _plan(folder: StudyFolder) -> tuple[dict[str, Any], list[str]]:
    """What plan.json says, with empty entries for what it does not, and what of it could not be used."""
    remedy = "`paribus run` writes it anew, and cells are kept"
    try:
        plan = folder.plan()
    except StudyFolderError as error:
        return dict(layout.EMPTY_PLAN), [
            f"plan.json cannot be read ({error.received}), so no cell can be told to be this file's; "
            f"delete it: {remedy}."
        ]
    if plan is None:
        lost = any((cell / "cell.json").exists() for cell in folder.path.glob("*/*/*"))
        said = f"plan.json is missing, so no cell can be told to be this file's; {remedy}."
        return dict(layout.EMPTY_PLAN), [said] if lost else []
    usable, left_out = layout.usable_plan(plan)
    return usable, [f"plan.json is not as it was written and not used in {what}; {remedy}." for what in left_out]


def _code_digests(plan: Mapping[str, Any]) -> tuple[dict[tuple[str, str], str], list[str]]:
    """Digest of the present code of each planned arm, and which cannot be had."""
    found, unknown = {}, []
    for arm in plan["arms"]:
        try:
            found[arm["scale"], arm["arm"]] = code_digest(arm["code_roots"])
        except ParibusError as error:
            found[arm["scale"], arm["arm"]] = ""
            unknown.append(
                f"Cells of {arm['scale']}/{arm['arm']} count as stale, since their code cannot be compared: "
                f"{error.what}."
            )
    return found, unknown
