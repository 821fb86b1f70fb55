"""Let a trained model write."""

from pathlib import Path
from typing import Annotated

import typer

from paribus.cli.options import AsJson, import_from_here
from paribus.cli.output import open_console, print_json

app = typer.Typer()


@app.command()
def generate(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="an imported model, or the folder of a finished cell")
    ],
    prompt: Annotated[
        list[str] | None,
        typer.Option(
            "--prompt", help="text to continue; may be repeated. Default: begin a document", show_default=False
        ),
    ] = None,
    tokens: Annotated[int, typer.Option("--tokens", help="of each text, at most", min=1)] = 128,
    temperature: Annotated[
        float, typer.Option("--temperature", help="0 writes the likeliest token, 1 draws as the model says", min=0.0)
    ] = 0.8,
    top_k: Annotated[int, typer.Option("--top-k", help="draw among so many of the likeliest tokens", min=1)] = 50,
    seed: Annotated[int, typer.Option("--seed", help="the same seed writes the same texts", min=0)] = 0,
    step: Annotated[
        int | None, typer.Option("--step", help="checkpoint to take; default: the last", min=0, show_default=False)
    ] = None,
    tokenizer: Annotated[
        Path | None, typer.Option("--tokenizer", help="in place of the model's own", show_default=False)
    ] = None,
    chat: Annotated[
        bool, typer.Option("--chat", help="a prompt is what a user says, and the model answers as an assistant")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Texts that a trained model writes, from its last checkpoint or another one that is kept."""
    from paribus.generating import showing
    from paribus.generating.writing import Request, write

    import_from_here()
    request = Request(tuple(prompt or [""]), tokens, temperature, top_k, seed, chat)
    if as_json:
        print_json(showing.as_json(write(folder, request, tokenizer, step)))
        return
    console = open_console()
    if len(request.prompts) > 1:
        showing.show(write(folder, request, tokenizer, step), console)
        return
    live = showing.Live(console)
    live.end(write(folder, request, tokenizer, step, live))
