"""`paribus check` and `paribus laws`: gates and laws are run behind a bar and shown as tables, failures first."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import track
from rich.table import Table

from paribus import mechanisms
from paribus.errors import ExperimentFileError, GateError, nearest
from paribus.experiment.gate import Gate, Job
from paribus.experiment.gates import planned_gates
from paribus.experiment.plan import ArmAtScale
from paribus.experiment.spec import Execution, Experiment
from paribus.experiment.trial import declared_in, means_module, plain_name, table_of
from paribus.mechanisms.contract import Seam
from paribus.mechanisms.laws import ROW, UniversalLaw, all_laws
from paribus.model.lawbench import TIME, LawBench, Shown, show
from paribus.study import prepare_process, task_corpus
from paribus.terminal import table

TASK_GATE = "the task is what it says"
LAW_COLUMNS = ("mechanism", "backbone", "law", "found", "bound", "perturbation that broke it", "found then")


def run_gates(experiment: Experiment, arms: Mapping[tuple[str, str], ArmAtScale], console: Console) -> list[Gate]:
    """Every gate of the study, in a process set up like the one that trains. A task's own comes first."""
    prepare_process(experiment.execution)
    return run_jobs([*_task_gates(experiment), *planned_gates(experiment, arms)], console)


def _task_gates(experiment: Experiment) -> list[Job]:
    """That the task is what it says, of a study that reads one."""
    task = experiment.base.task
    if task is None:
        return []

    def run() -> Gate:
        task_corpus(experiment.base)
        return Gate(TASK_GATE, task.name, True, "no target can be read off one token; rows are a pure function")

    return [Job(TASK_GATE, task.name, run)]


def run_jobs(jobs: Sequence[Callable[[], Gate]], console: Console) -> list[Gate]:
    """The gates behind a bar, where somebody watches a terminal. A mechanism that crashes fails its gate (`Job`)."""
    quiet = not console.is_terminal
    return [job() for job in track(jobs, "gates", console=console, transient=True, disable=quiet)]


def gate_table(found: Sequence[Gate]) -> Table:
    """One row for each thing found: failures first, and passed arms of which the same is to be said side by side."""
    together: dict[tuple[bool, str, str], list[str]] = {}
    for gate in sorted(found, key=lambda gate: gate.passed):
        together.setdefault((gate.passed, gate.name, gate.detail), []).append(gate.subject)
    arms = {gate.subject for gate in found if "/" in gate.subject}
    every = f"all {len(arms)} arms"
    rows: list[tuple[str, ...]] = []
    said: tuple[str, str] | None = None
    for (passed, name, detail), subjects in together.items():
        of = every if set(subjects) == arms and len(arms) > 1 else ", ".join(subjects)
        # What crashes one gate of an arm crashes the next.
        found_there = "as above" if not passed and (of, detail) == said else detail
        said = (of, detail)
        rows.append(("passed" if passed else "FAILED", *(escape(cell) for cell in (name, of, found_there))))
    return table("Gates", ("", "gate", "of", "found"), rows)


def gates_as_json(found: Sequence[Gate]) -> list[dict[str, Any]]:
    return [asdict(gate) for gate in found]


def require_gates(found: Sequence[Gate], where: str) -> None:
    """GateError naming every gate that failed, where any did."""
    failed = [gate for gate in found if not gate.passed]
    if failed:
        together: dict[tuple[str, str], list[str]] = {}
        for gate in failed:
            together.setdefault((gate.subject, gate.detail), []).append(gate.name)
        raise GateError(
            f"{where}: {len(failed)} of {len(found)} gates failed",
            received="; ".join(f"{' + '.join(names)} ({of}: {detail})" for (of, detail), names in together.items()),
            remedy="nothing was trained; mend the mechanism or the experiment file and check again",
        )


def shown_laws(name: str | None, console: Console) -> list[tuple[str, Shown]]:
    """(subject, law as measured just now) of every law, or of those of one mechanism or module."""
    prepare_process(Execution())
    wanted = _subjects(name)
    jobs = [
        (subject, law, backbone)
        for subject, law in all_laws()
        for backbone in law.backbones
        if wanted is None or subject in wanted
    ]
    quiet = not console.is_terminal
    return [
        (subject, show(law, LawBench(backbone, time=ROW if isinstance(law, UniversalLaw) else TIME)))
        for subject, law, backbone in track(jobs, "laws", console=console, transient=True, disable=quiet)
    ]


def law_table(shown: Sequence[tuple[str, Shown]]) -> Table:
    """The laws as a table for the terminal, failures first."""
    ordered = sorted(shown, key=lambda entry: entry[1].passed)
    rows = [
        ("passed" if law.passed else "FAILED", *(escape(cell) for cell in _law_row(subject, law)))
        for subject, law in ordered
    ]
    return table("Laws", ("", *LAW_COLUMNS), rows, right=(4, 5, 7))


def laws_as_markdown(shown: Sequence[tuple[str, Shown]]) -> str:
    """The laws as a page: measured, not asserted."""
    lines = [
        "# Laws",
        "",
        "Written by `paribus laws --markdown`, which measured every number. A law holds where `found` is at most "
        "`bound` (0 is bit for bit), and is able to fail: its perturbation breaks it.",
        "",
        "| " + " | ".join((*LAW_COLUMNS, "where the bound comes from")) + " |",
        "|" + " --- |" * (len(LAW_COLUMNS) + 1),
    ]
    for subject, law in shown:
        cells = (cell.replace("|", "\\|") for cell in (*_law_row(subject, law), law.law.why))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def laws_as_json(shown: Sequence[tuple[str, Shown]]) -> list[dict[str, Any]]:
    return [
        {
            "mechanism": subject,
            "backbone": law.backbone,
            "law": law.law.claim,
            "found": _finite(law.found),
            "bound": law.law.bound,
            "why": law.law.why,
            "perturbation": law.law.perturbation,
            "found_when_perturbed": _finite(law.found_when_perturbed),
            "passed": law.passed,
        }
        for subject, law in shown
    ]


def require_laws(shown: Sequence[tuple[str, Shown]]) -> None:
    """GateError naming every law that failed, where any did."""
    failed = [f"{law.law.claim} ({subject})" for subject, law in shown if not law.passed]
    if failed:
        raise GateError(
            f"{len(failed)} of {len(shown)} laws failed", received="; ".join(failed), remedy="mend the mechanism"
        )


def _subjects(name: str | None) -> set[str] | None:
    """The subjects of laws that a mechanism's or a module's name stands for; None for all."""
    if name is None:
        return None
    if means_module(name):
        return _of_module(name)
    by_name = {subject: {subject} for subject, _ in all_laws()}
    for seam in Seam:
        for mechanism, config in mechanisms.mechanisms(seam).items():
            module = config.__module__.rpartition(".")[2]
            by_name.setdefault(mechanism, set()).update({mechanism, module})
    if name not in by_name:
        raise ExperimentFileError(
            f"'{name}': no mechanism and no module of this name has laws",
            expected=", ".join(sorted(by_name)) + ", or a module such as mypackage.idea",
            remedy=nearest(name, by_name),
        )
    return by_name[name]


def _of_module(name: str) -> set[str]:
    """The subjects of "mypackage.idea", or of one mechanism of it; the module joins the registry of this process."""
    found, mechanism = declared_in(name)
    if mechanism:
        table_of(name)  # one error for a mechanism that the module does not declare
    module = name.partition(mechanisms.OF_MODULE)[0]
    return {module.rpartition(".")[2], *([mechanism] if mechanism else map(plain_name, found))}


def _law_row(subject: str, shown: Shown) -> tuple[str, ...]:
    numbers = (f"{number:.1e}" if number else "0" for number in (shown.found, shown.law.bound))
    return (
        subject,
        shown.backbone,
        shown.law.claim,
        *numbers,
        shown.law.perturbation,
        f"{shown.found_when_perturbed:.1e}",
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
