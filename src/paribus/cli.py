"""The command line: parses, calls, prints. Commands import what they need, so that help and status load no torch."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from paribus import __version__
from paribus.errors import DivergenceError, GateError, ParibusError

app = typer.Typer(
    name="paribus",
    help="All else equal: paired pretraining experiments for changes to Transformer architectures.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
File = Annotated[Path, typer.Argument(metavar="FILE", help="experiment file (TOML)", show_default=False)]
Runs = Annotated[Path, typer.Option("--runs", help="folder of all run folders")]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON and nothing else")]
RUNS = Path("runs")


def main() -> None:
    """Entry point: a ParibusError is one message on stderr and an exit code, never a traceback."""
    try:
        app()
    except ParibusError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(error.exit_code)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"paribus {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="print the version and exit")
    ] = False,
) -> None:
    del version


@app.command()
def plan(file: File, runs: Runs = RUNS, as_json: AsJson = False) -> None:
    """Print what a study would train and what it could conclude; train and write nothing."""
    from paribus.experiment import loading
    from paribus.planning import describe, describe_json

    experiment = loading.load(file)
    with loading.naming(file):
        if as_json:
            _print_json(describe_json(experiment, file.parent, runs))
        else:
            describe(experiment, file.parent, runs, _console())


@app.command()
def check(file: File) -> None:
    """Run the gates that must pass before training: laws, pair check, shared tensors, scale invariance of norms."""
    from paribus.experiment import loading
    from paribus.experiment.gates import effective_eps_by_read
    from paribus.experiment.plan import resolve_arms
    from paribus.terminal import table

    experiment = loading.load(file)
    with loading.naming(file):
        arms = resolve_arms(experiment)
    console = _console()
    for (scale, name), arm in arms.items():
        reads = [
            (str(read["layer"]), str(read["site"]), f"{read['effective_eps']:.1e}")
            for read in effective_eps_by_read(experiment, arm)
        ]
        console.print(
            table(f"eps K^2 / rms^2 by read: {scale}/{name}", ("layer", "site", "ratio"), reads, right=(0, 2))
        )
        console.print()
    found = _run_gates(experiment, arms, console)
    rows = [("passed" if g.passed else "FAILED", g.subject, g.name, g.detail) for g in found]
    console.print(table("Gates", ("", "subject", "gate", "found"), rows))
    failed = [gate for gate in found if not gate.passed]
    if failed:
        names = "; ".join(f"{gate.name} ({gate.subject})" for gate in failed)
        raise GateError(f"{file}: {len(failed)} of {len(found)} gates failed", received=names)
    console.print(f"all {len(found)} gates passed", highlight=False)


@app.command()
def run(file: File, runs: Runs = RUNS) -> None:
    """Check the gates, train every missing cell, and write the report. Ctrl-C leaves a study that can be resumed."""
    from paribus.experiment import loading
    from paribus.experiment.gates import require_all
    from paribus.launch.local import number_of_workers, run_workers
    from paribus.study import open_study, write_plan
    from paribus.terminal import live_study, steps_of_preparation

    experiment = loading.load(file)
    console = _console()
    with loading.naming(file), steps_of_preparation(console) as progress:
        study = open_study(experiment, file.parent, runs, progress)
    missing = study.missing
    if not missing:
        write_plan(study, None)
        console.print(f"nothing to train: all {len(study.cells)} cells are finished", highlight=False)
        _report(file, experiment, runs, "run", console)
        return
    for arm, count in study.stale_folders().items():
        console.print(f"{count} stale cells of {arm}: kept on disk, not used; trained anew", highlight=False)
    found = _run_gates(experiment, study.arms, console)
    require_all(found)
    write_plan(study, found)
    steps = sum(study.arms[cell.scale, cell.arm].length.steps for cell in missing)
    workers = number_of_workers(experiment.execution, len(missing))
    threads = experiment.execution.threads
    console.print(
        f"training {len(missing)} of {len(study.cells)} cells with {workers} workers of {threads} thread"
        f"{'s' if threads > 1 else ''}",
        highlight=False,
    )
    with live_study(console, len(missing), steps) as on_event:
        finished = run_workers(workers, experiment, file.parent.resolve(), runs.resolve(), on_event)
    if not finished:
        console.print("stopped; the same command continues from the last checkpoints", highlight=False)
        raise typer.Exit(130)
    _report(file, experiment, runs, "run", console)


@app.command()
def status(file: File, runs: Runs = RUNS, as_json: AsJson = False) -> None:
    """Print which cells are complete, running, missing or stale. Shows no outcome, so it is not a look."""
    from paribus.experiment import loading
    from paribus.reading import read_study
    from paribus.terminal import table

    study = read_study(loading.load(file), runs)
    cells = [
        {"scale": c.key[0], "arm": c.key[1], "seed": c.key[2], "repeat": c.key[3], "state": c.state, "digest": c.digest}
        for c in study.cells.values()
    ]
    stale = study.stale_folders()
    if as_json:
        _print_json({"study": study.experiment.study, "cells": cells, "stale_folders": [str(path) for path in stale]})
        return
    console = _console()
    rows = [
        (c["scale"], c["arm"], f"{c['seed']}" + (" (A/A repeat)" if c["repeat"] else ""), c["state"], c["digest"])
        for c in cells
    ]
    console.print(
        table(f"Study {study.experiment.study}", ("scale", "arm", "seed", "state", "digest"), rows, right=(2,))
    )
    states = sorted({c["state"] for c in cells})
    console.print(", ".join(f"{study.count(state)} {state}" for state in states), highlight=False)
    for path in stale:
        console.print(f"stale, kept: {path}", highlight=False, soft_wrap=True)


@app.command()
def report(file: File, runs: Runs = RUNS, as_json: AsJson = False) -> None:
    """Write report.html, report.json, verdict.svg and verdict.md, and print the verdicts. Recorded as a look."""
    from paribus.experiment import loading

    _report(file, loading.load(file), runs, "report", _console(), as_json=as_json)


def _report(file: Path, experiment: Any, runs: Path, command: str, console: Any, *, as_json: bool = False) -> None:
    from paribus.reading import read_study, record_look, verdicts_of
    from paribus.report import page
    from paribus.report.evidence import shown_rows
    from paribus.report.tables import to_text, verdict_table
    from paribus.reporting import report_content

    study = read_study(experiment, runs)
    verdicts = verdicts_of(study)
    record_look(study, verdicts, command)
    content = report_content(study, verdicts, f"paribus run {file}")
    path = page.write(content, study.folder.path)
    if as_json:
        sys.stdout.write(page.to_json(content))
    else:
        rows = shown_rows(content)
        console.print()
        console.print(study.experiment.question, style="bold", highlight=False)
        console.print()
        width = console.width if console.is_terminal else None
        console.print(to_text(verdict_table(rows, content.parameters), width), highlight=False, soft_wrap=True)
        for row in rows:
            console.print(f"{row.name}: {row.sentence}", highlight=False)
        for of, note in page.noted(rows):
            console.print(f"note, {of}: {note}", highlight=False)
        unfinished = sum(study.count(state) for state in ("missing", "started", "running", "stale"))
        if unfinished:
            console.print(f"{unfinished} cells are not complete; see `paribus status {file}`", highlight=False)
        console.print(f"report: {path}", highlight=False, soft_wrap=True)
    diverged = study.count("diverged")
    if command == "run" and diverged:
        raise DivergenceError(
            f"{diverged} of {len(study.cells)} cells diverged",
            remedy="the report names them and counts their pairs as losses; the other cells are complete",
        )


def _run_gates(experiment: Any, arms: Any, console: Any) -> list[Any]:
    """Run all gates behind a bar, in a process set up like the one that trains."""
    from rich.progress import track

    from paribus.experiment.gates import gates, number_of_gates
    from paribus.study import prepare_process

    prepare_process(experiment.execution)
    total, quiet = number_of_gates(experiment, arms), not console.is_terminal
    return list(track(gates(experiment, arms), "gates", total, console=console, transient=True, disable=quiet))


def _print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n")


def _console() -> Any:
    from rich.console import Console

    return Console()
