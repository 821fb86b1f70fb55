"""What looks after run folders: verify and repair them, free the disk, move a study."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from paribus.cli.options import AsJson
from paribus.cli.output import open_console, print_json

app = typer.Typer()
Folder = Annotated[
    Path, typer.Argument(metavar="RUNS", help="folder of run folders, or one study's", show_default=False)
]


@app.command()
def doctor(
    runs: Folder,
    repair: Annotated[
        bool, typer.Option("--repair", help="do what is safe: never touches rows of a finished cell, nor looks")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Verify every digest and marker of studies and corpora; say what is damaged, left over, held, silent or parked.

    Exit code 0 when all is sound, 1 where something is damaged.
    """
    from paribus.keeping import showing
    from paribus.keeping.doctor import diagnose
    from paribus.keeping.repairing import repair as see_to
    from paribus.terminal import steps_of_preparation

    console = open_console(as_json)
    if console.is_terminal:
        with steps_of_preparation(console) as progress:
            found = diagnose(runs, progress)
    else:
        found = diagnose(runs)
    done, left = [], []
    if repair:
        for study in found.studies:
            repaired = see_to(study, lambda line: console.print(line, highlight=False, markup=False, soft_wrap=True))
            done += repaired.done
            left += repaired.left
        if done:
            found = diagnose(runs)
    if as_json:
        print_json(showing.as_json(found, done, left))
    else:
        if repair:
            showing.show_repairs(done, left, runs, console)
        showing.show(found, console, shlex.join(["paribus", "doctor", str(runs)]))
    if not found.sound:
        raise typer.Exit(1)


@app.command()
def gc(
    runs: Folder,
    delete: Annotated[bool, typer.Option("--delete", help="delete it; without this, only say what would go")] = False,
    stale: Annotated[
        bool, typer.Option("--stale", help="cells that the plan does not name, too: they are evidence")
    ] = False,
    trouble: Annotated[
        bool, typer.Option("--trouble", help="states saved before updates that went wrong, too; their records stay")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Say what occupies the disk and what nothing needs any more, and with --delete delete it.

    Never what a report reads, what evaluating, generating and fine-tuning need, nor a cell that somebody holds.
    """
    from paribus.keeping import showing_gc
    from paribus.keeping.freeing import Asked, free
    from paribus.keeping.occupying import occupied
    from paribus.keeping.places import is_study

    asked = Asked(stale, trouble)
    found = occupied(runs, asked)
    console = open_console(as_json)
    went = None
    if delete:
        went = {each.study: free(each.study, each.going, asked, console.print) for each in found}
    of = runs.parent if is_study(runs) else runs
    if as_json:
        print_json(showing_gc.as_json(found, of, went))
    else:
        showing_gc.show(found, of, console, went)


@app.command()
def move(
    study: Annotated[
        Path, typer.Argument(metavar="STUDY", help="folder of the study: runs/<study>", show_default=False)
    ],
    to: Annotated[
        Path, typer.Argument(metavar="RUNS", help="folder of run folders that it is to lie in", show_default=False)
    ],
    keep: Annotated[bool, typer.Option("--keep", help="leave the source where it is: a verified copy")] = False,
    as_json: AsJson = False,
) -> None:
    """Move a study into another folder: copied file by file, verified by digests, renamed, and only then deleted here.

    Its corpus is copied along where it is missing there. Refused while somebody trains, where the target is another
    folder, and where space is short. Kill and Ctrl-C leave the source or the target whole; the same command goes on.
    """
    from contextlib import nullcontext

    from paribus.data.progress import silent
    from paribus.keeping.moving import move as move_study
    from paribus.terminal import bytes_in_words, steps_of_preparation

    console = open_console(as_json)

    def say(line: str) -> None:
        console.print(line, highlight=False, markup=False, soft_wrap=True)

    try:
        with steps_of_preparation(console) if console.is_terminal else nullcontext(silent) as progress:
            moved = move_study(study, to, keep=keep, progress=progress, say=say)
    except KeyboardInterrupt:
        say("stopped; the same command continues: what was copied is kept")
        raise typer.Exit(130) from None
    if as_json:
        corpus = None if moved.corpus is None else str(moved.corpus)
        told = {"target": str(moved.target), "files": moved.files, "bytes": moved.bytes, "corpus": corpus}
        print_json({**told, "kept": moved.kept, "notes": list(moved.notes)})
        return
    verb = "copied" if moved.kept else "moved"
    say(f"{verb} to {moved.target}: {moved.files:,} files, {bytes_in_words(moved.bytes)}, each compared by its digest")
    if moved.corpus is not None:
        say(f"its corpus was copied to {moved.corpus}")
    for note in moved.notes:
        say(f"note: {note}")
    say(f"from now on name its folder: --runs {to}")
