"""The corpus that is already on the machine: documentation inside the installed Python packages.

Source files are parsed, never imported and never executed. The docstrings of a module (its own, then those of its
classes and functions under their qualified names) make documents of the length of a page, in the order of the source.
A package is a piece.
"""

import ast
import importlib.metadata
import importlib.util
import inspect
import platform
import sysconfig
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path

from paribus.data.sources.contract import Piece, RawDocument, Skip, SourceFile
from paribus.data.sources.judging import document
from paribus.errors import CorpusError

LOCAL_DOCS_PACKAGES = (
    "pydoc-topics",
    "python",
    "numpy",
    "scipy",
    "matplotlib",
    "pyarrow",
    "pydantic",
    "jinja2",
    "rich",
    "typer",
    "tokenizers",
    "safetensors",
)
"""Packages that paribus itself depends on, so that every installation has them, and the language's own texts.

Torch is left out: parsing its generated sources takes longer than all the others together.
"""

PAGE_CHARACTERS = 2000
"""A document is closed by the first docstring that makes it at least this long."""

# Tests document nothing; the rest is not the standard library but lives below its folder.
_SKIPPED_FOLDERS = {"test", "tests", "idlelib", "site-packages", "dist-packages", "turtledemo", "_bundled"}

_Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class LocalDocsSource:
    """Page-long texts of the named packages, sorted by package and module name.

    A package that is not installed has no documents and the version `absent`. Files that cannot be decoded or parsed
    are counted, whatever bad documents are elsewhere: other people's packages are not the user's to mend.
    """

    packages: tuple[str, ...] = LOCAL_DOCS_PACKAGES
    minimum_characters: int = 0
    """shorter pages are counted as too short"""

    def files(self) -> tuple[SourceFile, ...]:
        """None: what is read is known by its versions."""
        return ()

    def pieces(self) -> tuple[Piece, ...]:
        """A piece a package, sorted by name; its bytes are those of the source files.

        Raises CorpusError for a name that cannot be a package.
        """
        return tuple(Piece(package, 0, _bytes_of(package)) for package in sorted(set(self.packages)))

    def read(self, piece: Piece) -> Iterator[RawDocument | Skip]:
        """The pages of a package."""
        for text in _texts(piece.file):
            if text is None:
                yield Skip.UNREADABLE_FILE
            elif len(text) < self.minimum_characters:
                yield Skip.TOO_SHORT
            else:
                # A docstring may spell a lone surrogate, which has no UTF-8 form.
                yield document(text.encode("utf-8", "replace"), piece.file)

    def versions(self) -> Mapping[str, str]:
        """Version of each package; `absent` where it is not installed, `unknown` where it does not say."""
        return {package: _version(package) for package in sorted(set(self.packages))}


def _texts(package: str) -> Iterator[str | None]:
    """The pages of a package in order, None for a file that cannot be read."""
    if package == "pydoc-topics":
        yield from _topics()
        return
    for module, path in _modules(package):
        tree = _parse(path)
        if tree is None:
            yield None
        else:
            yield from module_texts(module, tree)


def _bytes_of(package: str) -> int:
    paths = [_topics_path()] if package == "pydoc-topics" else [path for _, path in _modules(package)]
    return sum(path.stat().st_size for path in paths if path.is_file())


def module_texts(module: str, tree: ast.Module) -> list[str]:
    """The docstrings of one module as pages of running text, a heading per definition, the module's name on top."""
    own = ast.get_docstring(tree)
    sections = [own] if own else []
    sections += [f"{name}\n\n{docstring}" for name, docstring in _docstrings(module, tree.body)]
    pages: list[list[str]] = []
    for section in sections:
        if not pages or sum(map(len, pages[-1])) >= PAGE_CHARACTERS:
            pages.append([module])
        pages[-1].append(section)
    # A docstring may spell a lone surrogate, which has no UTF-8 form.
    return ["\n\n\n".join(page).encode("utf-8", "replace").decode() for page in pages]


def _docstrings(prefix: str, body: Sequence[ast.stmt]) -> Iterator[tuple[str, str]]:
    for statement in body:
        if isinstance(statement, _Definition):
            name = f"{prefix}.{statement.name}"
            if docstring := ast.get_docstring(statement):
                yield name, docstring
            if isinstance(statement, ast.ClassDef):
                yield from _docstrings(name, statement.body)
        elif isinstance(statement, ast.If | ast.Try):
            # Definitions that depend on the platform or on an optional import.
            yield from _docstrings(prefix, [*statement.body, *statement.orelse])


def _modules(package: str) -> list[tuple[str, Path]]:
    """(qualified module name, file) of a package, sorted by name, without running any of its code."""
    if package == "python":
        return _below(Path(sysconfig.get_path("stdlib")), "")
    spec = _spec(package)
    if spec is None:
        return []
    if spec.submodule_search_locations is None:
        return [(package, Path(spec.origin))] if spec.origin and spec.origin.endswith(".py") else []
    return [module for root in sorted(spec.submodule_search_locations) for module in _below(Path(root), package)]


def _below(root: Path, package: str) -> list[tuple[str, Path]]:
    found = []
    for path in root.rglob("*.py"):
        parts = path.relative_to(root).with_suffix("").parts
        if _SKIPPED_FOLDERS.isdisjoint(parts):
            named = parts[:-1] if parts[-1] == "__init__" else parts
            found.append((".".join([package, *named] if package else named) or package, path))
    return sorted(found)


def _spec(package: str) -> ModuleSpec | None:
    if not package.isidentifier():
        raise CorpusError(
            "local-docs reads top-level packages",
            expected="pydoc-topics, python, or the import name of a package (no dots: a parent would be imported)",
            received=repr(package),
        )
    return importlib.util.find_spec(package)


def _version(package: str) -> str:
    if package in ("python", "pydoc-topics"):
        return platform.python_version()
    if _spec(package) is None:
        return "absent"
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def _parse(path: Path) -> ast.Module | None:
    try:
        with warnings.catch_warnings():
            # Odd escapes in other people's files are not the user's concern.
            warnings.simplefilter("ignore")
            return ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, RecursionError, OSError):
        return None


def _topics() -> list[str]:
    """The language reference that `help()` shows, sorted by topic: a module that only assigns one literal dict."""
    tree = _parse(_topics_path())
    for statement in tree.body if tree else []:
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Dict):
            topics: dict[str, str] = ast.literal_eval(statement.value)
            return [inspect.cleandoc(topics[name]) for name in sorted(topics)]
    return []


def _topics_path() -> Path:
    return Path(sysconfig.get_path("stdlib")) / "pydoc_data" / "topics.py"
