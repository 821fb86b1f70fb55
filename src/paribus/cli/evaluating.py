"""Downstream tasks: ask trained models."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from paribus.cli.options import RUNS, AsJson, Runs, ScaleName, import_from_here
from paribus.cli.output import open_console, print_json

app = typer.Typer()
_CORE, _CHAT = "CORE", "ChatCORE"


@app.command()
def evaluate(
    target: Annotated[
        Path,
        typer.Argument(
            metavar="FILE|FOLDER",
            help="an experiment file (all of its finished cells), or the folder of a trained model: a cell, a "
            "fine-tuned cell, an import",
            show_default=False,
        ),
    ],
    core: Annotated[
        Path | None,
        typer.Option(
            "--core", help="folder of a CORE bundle; default: [downstream] of the file", rich_help_panel=_CORE
        ),
    ] = None,
    listed_in: Annotated[
        str, typer.Option("--list", help="the list of tasks inside the bundle", rich_help_panel=_CORE)
    ] = "core.yaml",
    baselines_v2: Annotated[
        Path | None,
        typer.Option(
            "--baselines-v2",
            help="CSV of the corrected random baselines (DCLM's eval_meta_data.csv since September 2025)",
            rich_help_panel=_CORE,
            show_default=False,
        ),
    ] = None,
    shots_from: Annotated[
        Literal["all", "truncated"],
        typer.Option(
            "--shots-from",
            help="where examples are drawn from: the whole task, or what --first left of it, as nanochat does",
            rich_help_panel=_CORE,
        ),
    ] = "all",
    too_long: Annotated[
        Literal["crop-shots", "keep"],
        typer.Option(
            "--too-long",
            help="a prompt longer than the context: leave out whole examples, then its beginning; or keep it",
            rich_help_panel=_CORE,
        ),
    ] = "crop-shots",
    chat: Annotated[
        Path | None,
        typer.Option("--chat", help="folder of the ChatCORE sets (of a model that chats)", rich_help_panel=_CHAT),
    ] = None,
    definition: Annotated[
        Literal["chatcore-5", "chatcore-6"],
        typer.Option("--definition", help="with SpellingBee (6) or without; never mixed", rich_help_panel=_CHAT),
    ] = "chatcore-6",
    words: Annotated[
        Path | None,
        typer.Option("--words", help="word list of SpellingBee, one a line", rich_help_panel=_CHAT, show_default=False),
    ] = None,
    allow_code: Annotated[
        bool,
        typer.Option(
            "--allow-code", help="run the programs that a model writes for HumanEval, sandboxed", rich_help_panel=_CHAT
        ),
    ] = False,
    tasks: Annotated[
        list[str] | None, typer.Option("--task", help="only this one; may be repeated", show_default=False)
    ] = None,
    first: Annotated[
        int | None, typer.Option("--first", help="only so many items of each task, in a seeded order", min=1)
    ] = None,
    counterfactual: Annotated[
        bool, typer.Option("--counterfactual", help="also with another item's question: scores should fall to chance")
    ] = False,
    finetuned: Annotated[
        str | None, typer.Option("--finetuned", help="of a FILE: the cells as they were fine-tuned under this name")
    ] = None,
    step: Annotated[
        int | None, typer.Option("--step", help="of a FOLDER: another checkpoint than the last", min=0)
    ] = None,
    tokenizer: Annotated[
        Path | None, typer.Option("--tokenizer", help="of a FOLDER that has none", show_default=False)
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="ask anew what was answered before")] = False,
    runs: Runs = RUNS,
    scale: ScaleName = None,
    as_json: AsJson = False,
) -> None:
    """Ask trained models the tasks of CORE or ChatCORE, item by item. What was answered is kept and not asked again."""
    from paribus.evaluating.command import Asking, run

    import_from_here()
    asking = Asking(
        target=target,
        core=core,
        listed_in=listed_in,
        baselines_v2=baselines_v2,
        shots_from=shots_from,
        too_long=too_long,
        chat=chat,
        definition=definition,
        words=words,
        allow_code=allow_code,
        tasks=tuple(tasks or ()),
        first=first,
        counterfactual=counterfactual,
        finetuned=finetuned,
        step=step,
        tokenizer=tokenizer,
        again=again,
        runs=runs,
        scale=scale,
    )
    found = run(asking, open_console(as_json), show=not as_json)
    if as_json:
        print_json(found)
