"""How many tokens a loaded tokenizer has, read while the file that names it is: the embedding has a row for each."""

from contextlib import suppress
from pathlib import Path
from typing import Any

from paribus.errors import ParibusError


def read_into(table: dict[str, Any], path: Path) -> None:
    """Complete `tokenizer.vocabulary_size` of [base] and of the scales' own where a `path` is given and it is not.

    What is not there, or is no tokenizer, is for whoever opens it to say.
    """
    scales = table.get("scales")
    holders = [table, *(scales.values() if isinstance(scales, dict) else ())]
    for base in (holder.get("base") for holder in holders if isinstance(holder, dict)):
        tokenizer = base.get("tokenizer") if isinstance(base, dict) else None
        if isinstance(tokenizer, dict) and isinstance(tokenizer.get("path"), str):
            with suppress(ParibusError):
                size = _tokens(path.parent / tokenizer["path"], tokenizer.get("beginning"))
                tokenizer.setdefault("vocabulary_size", size)


def _tokens(file: Path, beginning: str | None) -> int:
    # Few files load one, and none of the commands that only look at a study should wait for the library.
    from paribus.data.tokenizer import Tokenizer

    return Tokenizer.load(file, beginning).vocabulary_size
