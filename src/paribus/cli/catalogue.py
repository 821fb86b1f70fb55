"""What a file can name: mechanisms with their laws, keys, tasks."""

import sys
from typing import Annotated

import typer

from paribus.cli.options import AsJson, import_from_here
from paribus.cli.output import open_console, print_json
from paribus.errors import ParibusError, nearest

app = typer.Typer()


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

    import_from_here()
    console = open_console(as_json or as_markdown)
    shown = checking.shown_laws(name, console)
    if as_json:
        print_json(checking.laws_as_json(shown))
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
        open_console().print(table(f"\\[{at}]" if at else "Top level", ("key", "kind", "default", "what it is"), rows))


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
            print_json(every)
        else:
            listing.show(every, open_console())
        return
    one = listing.described_one(name)
    if as_json:
        print_json(one)
    else:
        listing.show_one(one, open_console())
