"""The command line: parses, calls, prints. Commands import what they need, so that help and status load no torch."""

import json
import shlex
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
    from paribus.calibrating.saying import before_training
    from paribus.experiment import loading
    from paribus.planning import describe, describe_json

    _import_from_here()
    experiment = loading.load(file, scale)
    with loading.naming(file):
        doubts = before_training(experiment, runs)
        if as_json:
            _print_json(describe_json(experiment, file.parent, runs) | {"calibration": list(doubts)})
        else:
            describe(experiment, file.parent, runs, _console(), doubts)


@app.command()
def power(
    file: File,
    runs: Runs = RUNS,
    scale: ScaleName = None,
    sd: Annotated[
        float | None,
        typer.Option("--sd", help="assumed sd of the paired difference, in the primary's unit", show_default=False),
    ] = None,
    cell_sd: Annotated[
        float | None, typer.Option("--cell-sd", help="assumed sd of one cell over seeds", show_default=False)
    ] = None,
    correlation: Annotated[
        float | None, typer.Option("--correlation", help="assumed, of a pair over seeds", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print what the design can see and what it cannot conclude, from measured or assumed noise; train nothing."""
    from dataclasses import replace

    from paribus.experiment import loading
    from paribus.powering.page import describe, describe_json
    from paribus.reading.evidence import verdicts_of
    from paribus.reading.study import read_study
    from paribus.reporting.noise import known_noise
    from paribus.runs.folder import StudyFolder
    from paribus.stats.noise import Noise
    from paribus.tuning.reading import tuned

    _import_from_here()
    declared = loading.load(file, scale)
    experiment = tuned(declared, runs) or declared
    noise = Noise()
    if (StudyFolder(runs / experiment.study).path / "study.json").exists():
        study = read_study(experiment, runs)
        noise = known_noise(study, verdicts_of(study))
    noise = replace(noise, assumed_sd=sd, cell_sd=cell_sd, correlation=correlation)
    if as_json:
        _print_json(describe_json(experiment, noise))
    else:
        describe(experiment, noise, _console())


@app.command()
def check(file: File, scale: ScaleName = None, as_json: AsJson = False) -> None:
    """Run the gates that must pass before training: laws, pairs, equivalences, gradients, wiring, resuming."""
    from paribus.checking import gate_table, gates_as_json, require_gates, run_gates
    from paribus.experiment import loading
    from paribus.experiment.plan import resolve_arms
    from paribus.tuning.running import require_knobs_used

    _import_from_here()
    experiment = loading.load(file, scale)
    with loading.naming(file):
        arms = resolve_arms(experiment)
        require_knobs_used(experiment, arms)
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
        str | None,
        typer.Argument(metavar="[NAME]", help="a mechanism, or a module such as mypackage.idea", show_default=False),
    ] = None,
    as_json: AsJson = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="print a Markdown page and nothing else")] = False,
) -> None:
    """Measure every law of every mechanism, and the perturbation that must break it."""
    from paribus import checking

    _import_from_here()
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


@app.command()
def fields(
    name: Annotated[
        str | None, typer.Argument(metavar="[TABLE]", help="such as seeds or base.optimiser", show_default=False)
    ] = None,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="print a Markdown page and nothing else")] = False,
) -> None:
    """Every key that an experiment file may hold, with its kind, its default and what it is."""
    from paribus.data.tasks import in_tree
    from paribus.errors import ParibusError, nearest
    from paribus.experiment import reference
    from paribus.terminal import table

    if as_markdown:
        sys.stdout.write(reference.as_markdown())
        return
    if name is not None and name not in reference.TABLES:
        tables = [table for table in reference.TABLES if table]
        raise ParibusError(
            f"an experiment file has no table '{name}'",
            expected=", ".join(tables),
            remedy=f"it is a task: `paribus tasks {name}` shows its knobs"
            if name in in_tree()
            else nearest(name, tables),
        )
    for at in [name] if name is not None else reference.TABLES:
        rows = [(f.key, f.kind, f.default or "needed", f.sentence) for f in reference.fields(at)]
        _console().print(table(f"\\[{at}]" if at else "Top level", ("key", "kind", "default", "what it is"), rows))


@app.command()
def tasks(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="a task", show_default=False)] = None,
    as_json: AsJson = False,
) -> None:
    """The synthetic tasks that a study can read; of one, its knobs, its slices and the losses known beforehand."""
    from paribus import listing

    if name is None:
        every = listing.described()
        if as_json:
            _print_json(every)
        else:
            listing.show(every, _console())
        return
    one = listing.described_one(name)
    if as_json:
        _print_json(one)
    else:
        listing.show_one(one, _console())


@app.command("try")
def try_(
    arm: Annotated[
        str,
        typer.Argument(
            metavar="ARM",
            help="an arm of --file; without it, a mechanism's name, a module such as mypackage.idea, or a table such "
            "as 'mask = { name = \"document\" }'",
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

    _import_from_here()
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
    """Tune where the file says so, check the gates, train every missing cell, time the arms, and write the report.

    Ctrl-C leaves a study that can be resumed.
    """
    from paribus.calibrating.saying import before_training
    from paribus.experiment import loading
    from paribus.publishing import Asked, publish
    from paribus.running import finish

    _import_from_here()
    declared = loading.load(file, scale)
    console = _console()
    with loading.naming(file):
        for doubt in before_training(declared, runs):
            console.print(f"note: {doubt}", highlight=False, markup=False, soft_wrap=True)
    if not finish(declared, file, runs, console):
        console.print("stopped; the same command continues from the last checkpoints", highlight=False)
        raise typer.Exit(130)
    study = publish(Asked(file, declared, runs, _arguments(file, declared, runs)), "run", console)
    diverged = study.count("diverged")
    if diverged:
        raise DivergenceError(
            f"{diverged} of {len(study.cells)} cells diverged",
            remedy="the report names them and counts their pairs as losses; the other cells are complete",
        )


@app.command()
def calibrate(
    file: File,
    runs: Runs = RUNS,
    scale: ScaleName = None,
    seeds: Annotated[
        int | None, typer.Option("--seeds", help="calibration seeds; default: those of the file, or 3", min=1)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Train a task's baseline alone, on seeds of its own, and say whether the budget suits the task.

    No treatment is trained. Exit code 0 where the task is calibrated, 1 where it is too easy, too hard or uneven.
    Ctrl-C leaves a calibration that can be resumed.
    """
    from paribus.calibrating import showing
    from paribus.calibrating.running import calibrate as train_baseline
    from paribus.experiment import loading
    from paribus.experiment.calibration import DEFAULT_SEEDS, State, declared_calibration

    _import_from_here()
    experiment = loading.load(file, scale)
    console = _console(as_json)
    frozen = declared_calibration(experiment)
    known = frozen.seeds if frozen is not None else None
    with loading.naming(file):
        outcome = train_baseline(experiment, file.parent, runs, console, seeds or known or DEFAULT_SEEDS)
    found = outcome.read.found
    if found is None:
        console.print("stopped; the same command continues from the last checkpoints", highlight=False)
        raise typer.Exit(130)
    if as_json:
        _print_json(showing.as_json(outcome.read))
    else:
        showing.show(outcome.read, console)
    if found.state is not State.CALIBRATED:
        raise typer.Exit(1)


@app.command()
def cost(file: File, runs: Runs = RUNS, scale: ScaleName = None, as_json: AsJson = False) -> None:
    """Time an update of every arm against the others, in interleaved turns on this machine, and put it on record."""
    from paribus.costing import measure_missing_costs, show
    from paribus.experiment import loading
    from paribus.experiment.plan import resolve_arms
    from paribus.runs.folder import StudyFolder
    from paribus.tuning.reading import tuned

    _import_from_here()
    declared = loading.load(file, scale)
    console = _console(as_json)
    with loading.naming(file):
        experiment = tuned(declared, runs) or declared
        arms = resolve_arms(experiment)
    folder = StudyFolder(runs / experiment.study)
    folder.claim_for(experiment.study)
    measure_missing_costs(experiment, arms, folder, console, again=True)
    found = {name: folder.cost(name) for name in experiment.scales}
    if as_json:
        _print_json(found)
        return
    for name, measured in found.items():
        if measured is not None:
            show(measured, name, console)


@app.command()
def status(file: File, runs: Runs = RUNS, scale: ScaleName = None, as_json: AsJson = False) -> None:
    """Print which cells are complete, running, missing or stale. Shows no outcome, so it is not a look."""
    from paribus.experiment import loading
    from paribus.publishing import stale_cells
    from paribus.reading.study import read_study
    from paribus.terminal import table
    from paribus.tuning.reading import read_tuning

    _import_from_here()
    tuning = read_tuning(loading.load(file, scale), runs)
    if tuning.sentence and not as_json:
        _console().print(tuning.sentence, highlight=False)
    if tuning.tuned is None:
        if as_json:
            _print_json({"study": tuning.experiment.study, "tuning": tuning.sentence, "cells": [], "stale_folders": []})
        return
    study = read_study(tuning.tuned, runs)
    cells = [
        {
            "scale": c.key[0],
            "arm": c.key[1],
            "seed": c.key[2],
            "variant": c.key[3],
            "state": c.state,
            "digest": c.digest,
        }
        for c in study.cells.values()
    ]
    stale = study.stale_folders()
    if as_json:
        found = {"study": study.experiment.study, "tuning": tuning.sentence, "cells": cells}
        _print_json({**found, "stale_folders": [str(path) for path in stale]})
        return
    console = _console()
    rows = [(c["scale"], c["arm"], f"{c['seed']}", c["variant"], c["state"], c["digest"]) for c in cells]
    console.print(
        table(
            f"Study {study.experiment.study}", ("scale", "arm", "seed", "variant", "state", "digest"), rows, right=(2,)
        )
    )
    states = sorted({c["state"] for c in cells})
    console.print(", ".join(f"{study.count(state)} {state}" for state in states), highlight=False)
    for what in stale_cells(study):
        console.print(what, highlight=False, soft_wrap=True)
    for path in stale:
        console.print(f"stale, kept: {path}", highlight=False, soft_wrap=True)


@app.command()
def report(
    file: File,
    runs: Runs = RUNS,
    scale: ScaleName = None,
    as_json: AsJson = False,
    watching: Annotated[bool, typer.Option("--watch", help="rewrite the page while the study runs")] = False,
    every: Annotated[int, typer.Option("--every", help="seconds between two looks at the folder", min=1)] = 30,
) -> None:
    """Write the page, Markdown, LaTeX, CSV and figures, and print the verdicts. Recorded as a look."""
    from paribus.experiment import loading
    from paribus.publishing import Asked, publish, watch

    if watching and as_json:
        raise typer.BadParameter("--watch rewrites the page again and again: there is no one JSON", param_hint="--json")
    _import_from_here()
    experiment = loading.load(file, scale)
    asked = Asked(file, experiment, runs, _arguments(file, experiment, runs))
    if watching:
        watch(asked, every, _console())
    else:
        publish(asked, "report", _console(), as_json=as_json)


@app.command()
def compare(
    studies: Annotated[
        list[Path], typer.Argument(metavar="STUDY STUDY ...", help="names, run folders or experiment files")
    ],
    runs: Runs = RUNS,
    as_json: AsJson = False,
) -> None:
    """Put the reports of studies side by side: what was found, what is comparable, and what differs between them."""
    from paribus.comparing.showing import describe, describe_json
    from paribus.comparing.side_by_side import compare as put_side_by_side

    found = put_side_by_side(studies, runs)
    if as_json:
        _print_json(describe_json(found))
    else:
        describe(found, _console())


@app.command()
def adopt(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="folder of somebody's result files (JSON, CSV)")],
    mapping: Annotated[
        Path | None, typer.Option("--mapping", help="what their fields mean; default: DIR/mapping.toml")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="folder of the report; default: DIR/paribus-report")] = None,
    as_json: AsJson = False,
) -> None:
    """Read results of another harness and print what can, and what cannot, be concluded from them."""
    from paribus.adopting import page
    from paribus.adopting.conclude import adopt as read_results
    from paribus.adopting.showing import describe, describe_json

    found = read_results(directory, mapping)
    path = page.write(found, out or page.default_folder(directory))
    if as_json:
        _print_json(describe_json(found))
        return
    console = _console()
    describe(found, console)
    console.print(f"report: {path}", highlight=False, soft_wrap=True, markup=False)


@app.command()
def tunnel(
    full: Annotated[
        bool, typer.Option("--full/--smoke", help="8 tasks and verdicts, or 4 tasks and a direction check")
    ] = False,
    mechanism: Annotated[
        str | None,
        typer.Option(
            "--mechanism",
            help="your own instead of the shipped arms: a mechanism's name, a table such as "
            "'mask = { name = \"document\" }', or a module such as mypackage.idea",
            show_default=False,
        ),
    ] = None,
    task: Annotated[
        list[str] | None,
        typer.Option("--task", help="only this task of the set; may be repeated", show_default=False),
    ] = None,
    runs: Runs = RUNS,
) -> None:
    """Train on synthetic tasks that show what a mechanism changes, and write one page. Minutes, or hours for --full.

    Ctrl-C leaves a set that the same command continues.
    """
    from paribus.tunnel.command import run_tunnel
    from paribus.tunnel.suites import load_suite, only, with_mechanism

    _import_from_here()
    chosen = task or []
    suite = only(load_suite("full" if full else "smoke"), chosen)
    if mechanism is not None:
        suite = with_mechanism(suite, mechanism)
    console = _console()
    own = [] if mechanism is None else ["--mechanism", mechanism]
    folder = [] if runs == RUNS else ["--runs", str(runs)]
    part = [word for name in chosen for word in ("--task", name)]
    command = shlex.join(["paribus", "tunnel", f"--{suite.name}", *part, *own, *folder])
    if not run_tunnel(suite, runs, console, command):
        console.print("stopped; the same command continues from the last checkpoints", highlight=False)
        raise typer.Exit(130)


def _arguments(file: Path, experiment: Any, runs: Path) -> str:
    """What follows a command's name to mean this study here; options only where they are needed."""
    folder = [] if runs == RUNS else ["--runs", str(runs)]
    return shlex.join([str(file), *experiment.option.split(), *folder])


def _import_from_here() -> None:
    """Let a module of one's own be found in the working folder, where it usually lies; workers get the same path."""
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))


def _print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n")


def _console(elsewhere: bool = False) -> Any:
    """The terminal; on stderr where stdout holds a document and nothing else."""
    from rich.console import Console

    return Console(stderr=elsewhere)
