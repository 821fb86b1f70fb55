"""Which source files determine a cell, and their digest. Reads files; imports nothing that they import."""

import ast
import hashlib
import importlib.util
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from paribus.errors import ParibusError

COMMON_ROOTS = (
    "paribus.model.build",
    "paribus.train.loop",
    "paribus.optim.groups",
    "paribus.data.order",
    "paribus.data.windows",
    "paribus.measure.likelihood",
    "paribus.measure.probes",
)
"""What every cell runs through, whatever its arm."""
WITHOUT_NUMBERS = ("paribus.disk", "paribus.errors", "paribus.shapes")
"""How files are written, words and annotations: editing them changes no cell."""


def module_path(name: str) -> Path | None:
    """The file of a module by its dotted name, found without importing it; None where there is no such file."""
    top, *rest = name.split(".")
    spec = importlib.util.find_spec(top)
    if spec is None or spec.origin is None:
        return None
    if not rest:
        return Path(spec.origin)
    stem = Path(spec.origin).parent.joinpath(*rest)
    for candidate in (stem.with_suffix(".py"), stem / "__init__.py"):
        if candidate.is_file():
            return candidate
    return None


@cache
def _imports(name: str, path: Path) -> tuple[str, ...]:
    """Dotted names that the module imports, or might: `from a import b` names `a` and `a.b`."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.rsplit(".", node.level - 1)[0] if node.level else ""
            source = ".".join(part for part in (above, node.module) if part)
            found.add(source)
            found.update(f"{source}.{alias.name}" for alias in node.names)
    return tuple(sorted(found))


def _compiled(name: str, path: Path) -> dict[str, Path]:
    """The file in C that bears a module's name (`paribus.kernels.compiler` compiles it), and what it includes of its
    folder."""
    source = path.with_suffix(".c")
    if not source.is_file():
        return {}
    included = re.findall(r'^#include "(.+)"$', source.read_text(encoding="utf-8"), re.MULTILINE)
    return {f"{name}.c": source} | {f"{name}.c {other}": source.with_name(other) for other in included}


def source_closure(roots: Iterable[str]) -> dict[str, Path]:
    """The roots and every module that they import, directly or not, from paribus or from a root's own package, with the
    files in C that bear a module's name."""
    roots = tuple(roots)
    packages = {"paribus", *(root.split(".")[0] for root in roots)}
    closure: dict[str, Path] = {}
    pending = list(roots)
    while pending:
        name = pending.pop()
        if name in closure or name in WITHOUT_NUMBERS or name.split(".")[0] not in packages:
            continue
        path = module_path(name)
        if path is None:
            if name in roots:
                raise ParibusError(
                    f"the source of module '{name}' is not found",
                    expected="a module whose source is a file, as when the study was run",
                    remedy="install the package that holds it (as source files), or put it on PYTHONPATH",
                )
            continue  # a name inside a module, not a module
        if path.name == "__init__.py" and name.split(".")[0] == "paribus":
            continue  # here packages hold no logic except the registry; elsewhere they may hold a mechanism
        closure[name] = path
        closure.update(_compiled(name, path))
        pending.extend(_imports(name, path))
    return closure


def code_digest(roots: Iterable[str]) -> str:
    """Digest of the closure's names and bytes, 16 hexadecimal digits. A changed comment counts."""
    digest = hashlib.blake2b(digest_size=8)
    for name, path in sorted(source_closure(roots).items()):
        content = path.read_bytes()
        digest.update(f"{name} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()
