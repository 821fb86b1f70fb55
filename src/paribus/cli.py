"""The command line: parses, calls, prints. Commands import what they need, so that help and status load no torch."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from paribus import __version__
from paribus.errors import DivergenceError, ParibusError

app = typer.Typer(
    name="paribus",
    help="All else equal: paired pretraining experiments for changes to Transformer architectures.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
File = Annotated[Path, typer.Argument(metavar="FILE", help="experiment file (TOML)", show_default=False)]
Runs = Annotated[Path, typer.Option("--runs", help="folder of all run folders")]
ScaleName = Annotated[
    str | None, typer.Option("--scale", help="the scale to run, where the file holds several", show_default=False)
]
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
def plan(file: File, runs: Runs = RUNS, scale: ScaleName = None, as_json: AsJson = False) -> None:
    """Print what a study would train and what it could conclude; train and write nothing."""
    from paribus.experiment import loading
    from paribus.planning import describe, describe_json

    experiment = loading.load(file, scale)
    with loading.naming(file):
        if as_json:
            _print_json(describe_json(experiment, file.parent, runs))
        else:
            describe(experiment, file.parent, runs, _console())


@app.command()
def check(file: File, scale: ScaleName = None, as_json: AsJson = False) -> None:
    """Run the gates that must pass before training: laws, pairs, equivalences, gradients, wiring, resuming."""
    from paribus.checking import gate_table, gates_as_json, require_gates, run_gates
    from paribus.experiment import loading
    from paribus.experiment.plan import resolve_arms

    experiment = loading.load(file, scale)
    with loading.naming(file):
        arms = resolve_arms(experiment)
    console = _console(as_json)
    found = run_gates(experiment, arms, console)
    if as_json:
        _print_json(gates_as_json(found))
    else:
        console.print(gate_table(found))
    require_gates(found, str(file))
    if not as_json:
        console.print(f"all {len(found)} gates passed", highlight=False)


@app.command()
def laws(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="a mechanism or its module", show_default=False)
    ] = None,
    as_json: AsJson = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="print a Markdown page and nothing else")] = False,
) -> None:
    """Measure every law of every mechanism, and the perturbation that must break it."""
    from paribus import checking

    console = _console(as_json or as_markdown)
    shown = checking.shown_laws(name, console)
    if as_json:
        _print_json(checking.laws_as_json(shown))
    elif as_markdown:
        sys.stdout.write(checking.laws_as_markdown(shown))
    else:
        console.print(checking.law_table(shown))
    checking.require_laws(shown)
    if not (as_json or as_markdown):
        console.print(f"all {len(shown)} laws hold, and every perturbation breaks its law", highlight=False)


@app.command("try")
def try_(
    arm: Annotated[
        str,
        typer.Argument(
            metavar="ARM",
            help="an arm of --file; without it, a mechanism's name or a table such as 'mask = { name = \"document\" }'",
            show_default=False,
        ),
    ],
    file: Annotated[Path | None, typer.Option("--file", help="experiment file (TOML)", show_default=False)] = None,
    against: Annotated[
        str | None, typer.Option("--against", help="the arm beside it; default: the one that changes no mechanism")
    ] = None,
    steps: Annotated[int, typer.Option("--steps", help="updates of each arm")] = 50,
    scale: ScaleName = None,
    seed: Annotated[
        int | None, typer.Option("--seed", help="default: the first seed that the study does not plan")
    ] = None,
    runs: Runs = RUNS,
    as_json: AsJson = False,
) -> None:
    """Gates, a few steps beside the baseline, speed, and what the taps show. Writes nothing into a study."""
    from paribus import trying
    from paribus.experiment.trial import trial

    console = _console(as_json)
    chosen = trial(arm, file, against=against, scale=scale, seed=seed, steps=steps)
    found, outcome = trying.try_arm(chosen, runs, console)
    if as_json:
        _print_json(trying.outcome_as_json(outcome, found))
    else:
        trying.show_outcome(outcome, chosen, console)
    if outcome.ended:
        raise typer.Exit(130 if outcome.ended == trying.INTERRUPTED else 1)


@app.command()
def run(file: File, runs: Runs = RUNS, scale: ScaleName = None) -> None:
    """Check the gates, train every missing cell, and write the report. Ctrl-C leaves a study that can be resumed."""
    from paribus.checking import run_gates
    from paribus.experiment import loading
    from paribus.experiment.gates import require_all
    from paribus.launch.local import available_gpus, number_of_workers, run_workers
    from paribus.study import open_study, write_plan
    from paribus.terminal import live_study, steps_of_preparation

    experiment = loading.load(file, scale)
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
    found = run_gates(experiment, study.arms, console)
    require_all(found)
    write_plan(study, found)
    steps = sum(study.arms[cell.scale, cell.arm].length.steps for cell in missing)
    workers = number_of_workers(experiment.execution, len(missing), available_gpus(experiment.execution))
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
def status(file: File, runs: Runs = RUNS, scale: ScaleName = None, as_json: AsJson = False) -> None:
    """Print which cells are complete, running, missing or stale. Shows no outcome, so it is not a look."""
    from paribus.experiment import loading
    from paribus.reading import read_study
    from paribus.terminal import table

    study = read_study(loading.load(file, scale), runs)
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
def report(file: File, runs: Runs = RUNS, scale: ScaleName = None, as_json: AsJson = False) -> None:
    """Write report.html, report.json, verdict.svg and verdict.md, and print the verdicts. Recorded as a look."""
    from paribus.experiment import loading

    _report(file, loading.load(file, scale), runs, "report", _console(), as_json=as_json)


def _report(file: Path, experiment: Any, runs: Path, command: str, console: Any, *, as_json: bool = False) -> None:
    from paribus.reading import read_study, record_look, verdicts_of
    from paribus.report import page
    from paribus.report.evidence import shown_rows
    from paribus.report.tables import to_text, verdict_table
    from paribus.reporting import report_content

    study = read_study(experiment, runs)
    verdicts = verdicts_of(study)
    record_look(study, verdicts, command)
    named = f"{file} {experiment.option}".rstrip()
    content = report_content(study, verdicts, f"paribus run {named}")
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
            console.print(f"{unfinished} cells are not complete; see `paribus status {named}`", highlight=False)
        console.print(f"report: {path}", highlight=False, soft_wrap=True)
    diverged = study.count("diverged")
    if command == "run" and diverged:
        raise DivergenceError(
            f"{diverged} of {len(study.cells)} cells diverged",
            remedy="the report names them and counts their pairs as losses; the other cells are complete",
        )


def _print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n")


def _console(elsewhere: bool = False) -> Any:
    """The terminal; on stderr where stdout holds a document and nothing else."""
    from rich.console import Console

    return Console(stderr=elsewhere)
