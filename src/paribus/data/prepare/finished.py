"""Finished work: files that appear whole, and a record beside them that tells whether they still are what was written.

A process may be killed between any two instructions and a disk may lose what was not flushed. So a file is written
aside, flushed and renamed, and its work counts as done only once a record of sizes and digests follows the same way.
Work whose record is missing, or whose files are not the recorded ones, is done again.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from paribus.data.digests import file_digest
from paribus.disk import flush, whole


def record(path: Path, files: Sequence[Path], summary: Mapping[str, Any]) -> None:
    """Declare the files of one piece of work finished; `summary` (JSON types) is what `recorded` returns."""
    for file in files:
        flush(file)
    content = {
        "files": {file.name: [file.stat().st_size, file_digest(file)] for file in files},
        "summary": dict(summary),
    }
    flush(path.parent)
    with whole(path) as stream:
        stream.write(json.dumps(content, sort_keys=True).encode())
    flush(path.parent)


def recorded(path: Path) -> dict[str, Any] | None:
    """The summary of finished work whose files lie beside the record as they were written; else None."""
    try:
        content = json.loads(path.read_bytes())
        for name, (size, digest) in content["files"].items():
            file = path.parent / name
            if file.stat().st_size != size or file_digest(file) != digest:
                return None
        return content["summary"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
