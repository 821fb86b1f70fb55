"""What commands write to: one JSON document on stdout, or the terminal."""

import json
import sys
from typing import Any


def print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n")


def open_console(elsewhere: bool = False) -> Any:
    """The terminal; on stderr where stdout holds a document and nothing else."""
    from rich.console import Console

    return Console(stderr=elsewhere)
