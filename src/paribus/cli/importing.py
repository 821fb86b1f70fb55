"""Models that come from elsewhere: import one, and look at one."""

from pathlib import Path
from typing import Annotated

import typer

from paribus.cli.options import RUNS, AsJson, Runs
from paribus.cli.output import open_console, print_json

app = typer.Typer()
importing = typer.Typer(help="Models of other programs: their weights under our names.", no_args_is_help=True)
app.add_typer(importing, name="import")

TokenizerFile = Annotated[
    Path | None,
    typer.Option("--tokenizer", help="tokenizer.json, or the ranks of one as JSON; never a pickle", show_default=False),
]


@importing.callback()
def _families() -> None:
    """Models of other programs: their weights under our names."""


@importing.command()
def nanochat(
    directory: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="folder of a model tag, with model_<step>.pt and meta_<step>.json"),
    ],
    step: Annotated[int | None, typer.Option("--step", help="default: the last", min=0, show_default=False)] = None,
    to: Annotated[Path | None, typer.Option("--to", help="default: imported/<tag>-<step>", show_default=False)] = None,
    tokenizer: TokenizerFile = None,
    as_json: AsJson = False,
) -> None:
    """Import a checkpoint of nanochat (April to July 2026): weights, configuration, and its recipe as a study."""
    from paribus.interop.nanochat import import_checkpoint
    from paribus.interop.showing import as_json as outcome_as_json
    from paribus.interop.showing import show

    found = import_checkpoint(directory, step, to, tokenizer)
    if as_json:
        print_json(outcome_as_json(found))
    else:
        show(found, open_console())


@importing.command()
def llama(
    directory: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="folder in the Hugging Face layout: config.json, model.safetensors"),
    ],
    to: Annotated[Path | None, typer.Option("--to", help="default: imported/<folder>", show_default=False)] = None,
    tokenizer: TokenizerFile = None,
    as_json: AsJson = False,
) -> None:
    """Import a Llama decoder that the PreNorm backbone can hold: weights, configuration and tokenizer."""
    from paribus.interop.llama import import_llama
    from paribus.interop.showing import llama_as_json, show_llama

    found = import_llama(directory, to, tokenizer)
    if as_json:
        print_json(llama_as_json(found))
    else:
        show_llama(found, open_console())


@app.command()
def diagnose(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="an imported model, or the folder of a finished cell")
    ],
    text: Annotated[
        str,
        typer.Option(
            "--text",
            help="a text, JSONL or Parquet file, a folder of such, or a prepared corpus (of it, validation)",
        ),
    ],
    tokenizer: TokenizerFile = None,
    tokens: Annotated[
        int, typer.Option("--tokens", help="whole documents are read until there are so many", min=1)
    ] = 16_384,
    runs: Runs = RUNS,
    as_json: AsJson = False,
) -> None:
    """Likelihood of texts under a trained model, and every diagnostic, with standard errors over documents."""
    from paribus.diagnosing import showing
    from paribus.diagnosing.running import diagnose as look_at

    found = look_at(folder, text, tokenizer, tokens, runs)
    if as_json:
        print_json(showing.as_json(found))
    else:
        showing.show(found, open_console())
