"""Corpora: prepare one, look into it, list what there is, and delete what no study needs. And tasks: fetch them."""

import shlex
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from paribus.cli.options import RUNS, AsJson, Runs, ScaleName, import_from_here, runs_option
from paribus.cli.output import open_console, print_json

app = typer.Typer()
data = typer.Typer(help="Corpora: prepare, inspect, list and delete them; fetch tasks.", no_args_is_help=True)
fetching = typer.Typer(help="Evaluation tasks: fetch them once.", no_args_is_help=True)
data.add_typer(fetching, name="fetch")
app.add_typer(data, name="data")

_HUB, _FILES, _SPLITS, _TOKENS = "Hub", "Files", "Left out and held out", "Tokenizer"
_TARGET = "an experiment file; a folder of Parquet, JSONL or text; local-docs; fineweb-edu, climbmix, climbmix-gpt2; "


@data.command()
def prepare(
    target: Annotated[
        str,
        typer.Argument(
            metavar="FILE|FOLDER|NAME",
            help=f"{_TARGET}or owner/repository on the hub, with --revision",
            show_default=False,
        ),
    ],
    runs: Runs = RUNS,
    scale: ScaleName = None,
    workers: Annotated[
        int | None, typer.Option("--workers", help="processes; default: one a core", min=1, show_default=False)
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", help="of the prepared corpus; default: that of the folder or repository")
    ] = None,
    as_json: AsJson = False,
    revision: Annotated[
        str | None, typer.Option("--revision", help="commit, 40 hexadecimal digits", rich_help_panel=_HUB)
    ] = None,
    files: Annotated[
        list[str] | None,
        typer.Option("--files", help="pattern of paths in the repository; may be repeated", rich_help_panel=_HUB),
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", help="only the first so many files", min=1, rich_help_panel=_HUB)
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option("--folder", help="holds files of the repository already, in whole or part", rich_help_panel=_HUB),
    ] = None,
    form: Annotated[
        Literal["text", "gpt2-tokens"] | None,
        typer.Option("--form", help="what a row holds; default: text", rich_help_panel=_FILES, show_default=False),
    ] = None,
    text_column: Annotated[
        str | None, typer.Option("--text-column", help="or JSON key; default: text", rich_help_panel=_FILES)
    ] = None,
    source_column: Annotated[
        str | None,
        typer.Option(
            "--source-column",
            help="names a document's collection; default: source, else the file",
            rich_help_panel=_FILES,
        ),
    ] = None,
    url_column: Annotated[
        str | None,
        typer.Option("--url-column", help="whose host --split-by host reads; default: url", rich_help_panel=_FILES),
    ] = None,
    bad_documents: Annotated[
        Literal["refuse", "skip"] | None,
        typer.Option(
            "--bad-documents",
            help="malformed ones: an error, or counted and left out; default: refuse",
            rich_help_panel=_FILES,
            show_default=False,
        ),
    ] = None,
    near_duplicates: Annotated[
        float | None,
        typer.Option(
            "--near-duplicates",
            help="similarity from which one is dropped, 0.7 to 1; 0 keeps them; default: 0.8, of the hub 0",
            rich_help_panel=_SPLITS,
        ),
    ] = None,
    split_by: Annotated[
        Literal["document", "host", "minhash-cluster"] | None,
        typer.Option("--split-by", help="default: document", rich_help_panel=_SPLITS, show_default=False),
    ] = None,
    held_out: Annotated[
        Literal["hash", "last-file"] | None,
        typer.Option(
            "--held-out",
            help="last-file: it is the validation split; default: hash",
            rich_help_panel=_SPLITS,
            show_default=False,
        ),
    ] = None,
    test_fraction: Annotated[
        float | None, typer.Option("--test-fraction", help="of the documents; default: 0.04", rich_help_panel=_SPLITS)
    ] = None,
    validation_fraction: Annotated[
        float | None,
        typer.Option("--validation-fraction", help="of the documents; default: 0.02", rich_help_panel=_SPLITS),
    ] = None,
    decontaminate: Annotated[
        list[Path] | None,
        typer.Option(
            "--decontaminate",
            help="evaluation set: training documents sharing a 13-gram are dropped; may be repeated",
            rich_help_panel=_SPLITS,
        ),
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option("--tokenizer", help="a tokenizer.json (or its folder), or gpt2", rich_help_panel=_TOKENS),
    ] = None,
    beginning: Annotated[
        str | None,
        typer.Option("--beginning", help="its token for the beginning of a document", rich_help_panel=_TOKENS),
    ] = None,
    vocabulary: Annotated[
        int | None,
        typer.Option("--vocabulary", help="of one that is learnt; default: 2048", min=257, rich_help_panel=_TOKENS),
    ] = None,
    pre_tokenizer: Annotated[
        Literal["gpt2", "nanochat"] | None,
        typer.Option(
            "--pre-tokenizer",
            help="of one that is learnt; nanochat: with its nine special tokens",
            rich_help_panel=_TOKENS,
            show_default=False,
        ),
    ] = None,
) -> None:
    """Split, deduplicate and tokenise a corpus, once. What is prepared already is found again.

    The options below belong to folders and names; an experiment file declares all.

    Ctrl-C and kill leave a preparation that the same command continues.
    """
    from paribus.preparing import showing
    from paribus.preparing.declaring import Options, declare, require_none
    from paribus.preparing.running import STOPPED, Stopped, run

    options = Options(
        name=name,
        revision=revision,
        files=tuple(files) if files else None,
        limit=limit,
        folder=folder,
        form=form,
        text_column=text_column,
        source_column=source_column,
        url_column=url_column,
        bad_documents=bad_documents,
        near_duplicate_similarity=near_duplicates,
        split_by=split_by,
        held_out=held_out,
        test_fraction=test_fraction,
        validation_fraction=validation_fraction,
        decontaminate=tuple(decontaminate) if decontaminate else None,
        tokenizer=tokenizer,
        beginning=beginning,
        vocabulary=vocabulary,
        pre_tokenizer=pre_tokenizer,
    )
    if _is_experiment(target):
        require_none(options, Path(target))
        declared, _ = _declared_by(Path(target), scale)
    else:
        declared = declare(target, options)
    console = open_console(as_json)
    found = run(declared, runs, console, workers)
    if isinstance(found, Stopped):
        console.print(STOPPED, highlight=False)
        raise typer.Exit(found.exit_code)
    if as_json:
        print_json(showing.as_json(found.frozen))
        return
    showing.show_prepared(found.frozen, console, new=found.new)
    look = shlex.join(["paribus", "data", "inspect", found.frozen.folder.name, *runs_option(runs)])
    console.print(f"look into it: {look}", highlight=False, markup=False, soft_wrap=True)


@data.command()
def inspect(
    target: Annotated[
        str,
        typer.Argument(
            metavar="FILE|FOLDER|CORPUS",
            help="an experiment file, the folder that a corpus was prepared from, or a name of paribus data list",
            show_default=False,
        ),
    ],
    runs: Runs = RUNS,
    scale: ScaleName = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="PATH", help="write one self-contained page too")
    ] = None,
    context_length: Annotated[
        int | None,
        typer.Option(
            "--context-length",
            help="tokens of a row, for what packing wastes; default: the file's, or 1024",
            min=1,
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what a prepared corpus holds: splits, lengths, sources, what was left out, samples, waste, digests.

    Every file is compared with its digest first.
    """
    from paribus.data.frozen import open_frozen
    from paribus.inspecting.findings import USUAL_CONTEXT_LENGTH, look_into
    from paribus.inspecting.page import write
    from paribus.inspecting.showing import as_json as findings_as_json
    from paribus.inspecting.showing import show

    place, declared_length = _prepared(target, runs, scale)
    frozen = open_frozen(place)
    frozen.verify()
    found = look_into(frozen, context_length or declared_length or USUAL_CONTEXT_LENGTH)
    if html is not None:
        write(found, html)
    if as_json:
        print_json(findings_as_json(found))
        return
    console = open_console()
    show(found, console)
    if html is not None:
        console.print(f"page: {html}", highlight=False, markup=False, soft_wrap=True)


@data.command(name="list")
def list_corpora(runs: Runs = RUNS, as_json: AsJson = False) -> None:
    """List prepared corpora, what they occupy and who uses them; stopped preparations; files of the hub."""
    from paribus.data.store import stored
    from paribus.preparing import listing

    found = stored(runs)
    if as_json:
        print_json([listing.as_json(each) for each in found])
    else:
        listing.show(found, runs, open_console())


@data.command()
def gc(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME ...]", help="only these, as the list calls them", show_default=False),
    ] = None,
    runs: Runs = RUNS,
    delete: Annotated[bool, typer.Option("--delete", help="delete it; without this, only say what would go")] = False,
    as_json: AsJson = False,
) -> None:
    """Say what no study needs, and with --delete delete it: corpora, stopped preparations, files of the hub.

    Never what a study reads, nor what a process is writing.
    """
    from paribus.data.store import clean, plan_cleaning
    from paribus.preparing import listing

    found = clean(runs, names or ()) if delete else plan_cleaning(runs, names or ())
    if as_json:
        print_json(listing.cleaning_as_json(found, deleted=delete))
    else:
        listing.show_cleaning(found, open_console(), deleted=delete)


@fetching.callback()
def _families() -> None:
    """Evaluation tasks: fetch them once."""


@fetching.command()
def core(
    to: Annotated[
        Path | None, typer.Option("--to", metavar="DIR", help="default: eval_bundle", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Fetch the 22 tasks of CORE (nanochat's eval_bundle.zip), compare their digest, and unpack them.

    What was fetched already is compared and left as it is; what was cut goes on where it ended.
    """
    from paribus.downstream.core.bundle import read_bundle
    from paribus.downstream.core.fetching import fetch_core
    from paribus.downstream.core.official import FOLDER
    from paribus.terminal import steps_of_preparation

    folder = Path(FOLDER) if to is None else to
    console = open_console(as_json)
    try:
        with steps_of_preparation(console) as show:
            found = fetch_core(folder, progress=show)
    except KeyboardInterrupt:
        console.print("stopped; the same command continues: what came is kept", highlight=False)
        raise typer.Exit(130) from None
    bundle = read_bundle(found.folder)
    missing = bundle.missing()
    if as_json:
        print_json({"folder": str(found.folder), "new": found.new, **bundle.as_json()})
        return
    items = sum(task.rows_found or 0 for task in bundle.tasks)
    lines = [
        f"{found.folder}: {'fetched' if found.new else 'is there already, unchanged'}",
        f"{len(bundle.tasks)} tasks, {items:,} items, digest {bundle.digest[:12]}",
        f"random baselines: v1 from {bundle.baselines_v1.source}; v2 "
        + (f"from {bundle.baselines_v2.source}" if bundle.baselines_v2 else "unavailable: no copy of it was given"),
        *(f"incomplete, so that no CORE comes of it: {label} {reason}" for label, reason in missing.items()),
        f"ask a model: paribus evaluate CELL --core {shlex.quote(str(found.folder))}",
    ]
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _is_experiment(target: str) -> bool:
    return Path(target).suffix == ".toml" and not Path(target).is_dir()


def _declared_by(file: Path, scale: str | None) -> tuple[Any, int]:
    """What an experiment file declares, and its context length."""
    from paribus.experiment import loading

    import_from_here()
    experiment = loading.load(file, scale)
    from paribus.texts import declared_corpus  # what is wrong with the file is said before tensors are loaded

    with loading.naming(file):
        return declared_corpus(experiment.base, file.parent), experiment.base.context_length


def _prepared(target: str, runs: Path, scale: str | None) -> tuple[Path, int | None]:
    """The folder of the prepared corpus that is meant, and the context length that is declared for it."""
    from paribus.data.frozen import MANIFEST
    from paribus.data.store import find_prepared
    from paribus.preparing.finding import prepared_as, prepared_from

    command = shlex.join(["paribus", "data", "prepare", target, *runs_option(runs)])
    path = Path(target)
    if _is_experiment(target):
        declared, context_length = _declared_by(path, scale)
        return prepared_as(declared, runs, command), context_length
    if path.is_dir():
        return (path if (path / MANIFEST).exists() else prepared_from(path, runs, command)), None
    return find_prepared(runs, target), None
