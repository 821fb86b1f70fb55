import ast
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from paribus.data.sources import local_docs
from paribus.data.sources.contract import RawDocument, Skip
from paribus.data.sources.local_docs import LOCAL_DOCS_PACKAGES, PAGE_CHARACTERS, LocalDocsSource, module_texts
from paribus.errors import CorpusError


def read(*packages: str) -> tuple[list[tuple[str, str]], int, dict[str, str]]:
    """(text, package) in order, how many files could not be read, versions."""
    source = LocalDocsSource(packages)
    judged = [entry for piece in source.pieces() for entry in source.read(piece)]
    texts = [(entry.utf8.decode(), entry.source) for entry in judged if isinstance(entry, RawDocument)]
    return texts, judged.count(Skip.UNREADABLE_FILE), dict(source.versions())


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An importable package whose import would end the process."""
    folder = tmp_path / "dangerous_package"
    (folder / "tests").mkdir(parents=True)
    (folder / "__init__.py").write_text('"""The package itself."""\nraise SystemExit("imported")\n')
    (folder / "zeta.py").write_text('"""Zeta."""\n')
    (folder / "alpha.py").write_text('"""Alpha, with a surrogate \\ud800."""\n')
    (folder / "bare.py").write_text("x = 1\n")
    (folder / "tests" / "test_zeta.py").write_text('"""A test."""\n')
    monkeypatch.syspath_prepend(str(tmp_path))
    return folder


def test_packages_are_parsed_and_never_imported(package: Path):
    texts, _, versions = read(package.name)
    assert [text.split("\n")[0] for text, _ in texts] == [
        "dangerous_package",
        "dangerous_package.alpha",
        "dangerous_package.zeta",
    ]
    assert {source for _, source in texts} == {package.name}
    assert package.name not in sys.modules
    assert versions == {package.name: "unknown"}


def test_files_that_cannot_be_parsed_or_decoded_are_skipped_and_counted(package: Path):
    (package / "broken.py").write_text('"""Docs."""\ndef (:\n')
    (package / "latin.py").write_bytes(b'"""caf\xe9"""\n')
    (package / "null.py").write_bytes(b'"""Docs."""\n\x00')
    texts, skipped_files, _ = read(package.name)
    assert len(texts) == 3
    assert skipped_files == 3


def test_odd_escapes_in_other_peoples_files_raise_no_warning(package: Path):
    (package / "escapes.py").write_text('"""Matches \\d."""\n')
    assert any("Matches" in text for text, _ in read(package.name)[0])


def test_a_lone_surrogate_in_a_docstring_becomes_encodable_text(package: Path):
    texts, _, _ = read(package.name)
    assert any("surrogate ?" in text for text, _ in texts)
    assert all(text.encode() for text, _ in texts)


def test_document_order_does_not_depend_on_the_file_system(package: Path, monkeypatch: pytest.MonkeyPatch):
    before = read(package.name)
    original = Path.rglob
    monkeypatch.setattr(Path, "rglob", lambda self, pattern: reversed(list(original(self, pattern))))
    assert read(package.name) == before
    assert read("typer", "jinja2")[0] == read("jinja2", "typer")[0]


def test_a_module_becomes_running_text_with_a_heading_per_definition():
    source = '''
"""The module."""
def outer():
    """Outer."""
    def inner():
        """Hidden."""
class Thing:
    """A thing.

    First.
        Indented more.
    """
    async def method(self):
        """Does."""
    def bare(self): ...
try:
    def tried():
        """Tried."""
except ImportError:
    pass
'''
    expected: Sequence[str] = [
        "m",
        "The module.",
        "m.outer\n\nOuter.",
        "m.Thing\n\nA thing.\n\nFirst.\n    Indented more.",
        "m.Thing.method\n\nDoes.",
        "m.tried\n\nTried.",
    ]
    assert module_texts("m", ast.parse(source)) == ["\n\n\n".join(expected)]


def test_a_long_module_becomes_pages_that_end_between_docstrings():
    functions = "\n".join(f'def f{n}():\n    """{"word " * 100}{n}."""' for n in range(12))
    pages = module_texts("m", ast.parse(functions))
    assert len(pages) == 3
    assert all(page.startswith("m\n\n\nm.f") and page.endswith(".") for page in pages)
    assert all(PAGE_CHARACTERS <= len(page) < PAGE_CHARACTERS + 600 for page in pages)
    assert sum(page.count("m.f") for page in pages) == 12


def test_a_module_without_docstrings_is_no_document():
    assert module_texts("m", ast.parse("x = 1")) == []


def test_the_standard_library_is_read_without_its_tests_and_without_site_packages(monkeypatch: pytest.MonkeyPatch):
    texts, _, _ = read("json")
    assert any(text.startswith("json.decoder\n") and "JSONDecoder" in text for text, _ in texts)
    # Which modules there are does not depend on what they say, and parsing them all takes a minute on a busy machine.
    monkeypatch.setattr(local_docs, "_parse", lambda _path: ast.parse('"""A docstring."""'))
    texts, _, _ = read("python")
    modules = {text.split("\n", 1)[0] for text, _ in texts}
    assert len(modules) > 500
    assert {"json.decoder", "asyncio.tasks", "argparse"} <= modules
    assert not {name for name in modules if "test" in name.split(".") or name.split(".")[0] in ("numpy", "idlelib")}


def test_the_language_reference_is_read_without_importing_it():
    sys.modules.pop("pydoc_data.topics", None)
    texts, _, _ = read("pydoc-topics")
    assert len(texts) > 50
    assert any("with" in text and "statement" in text for text, _ in texts)
    assert "pydoc_data.topics" not in sys.modules


def test_an_absent_package_is_recorded_as_absent():
    texts, _, versions = read("no_such_package_here")
    assert texts == []
    assert versions == {"no_such_package_here": "absent"}


def test_a_dotted_name_is_refused_because_finding_it_would_import_its_parent():
    with pytest.raises(CorpusError, match="top-level packages"):
        read("os.path")


def test_short_documents_are_counted(package: Path):
    (package / "long.py").write_text('"""' + "Many words. " * 30 + '"""\n')
    source = LocalDocsSource((package.name,), minimum_characters=200)
    (piece,) = source.pieces()
    judged = list(source.read(piece))
    assert judged.count(Skip.TOO_SHORT) == 3
    assert [entry.utf8.count(b"Many") for entry in judged if isinstance(entry, RawDocument)] == [30]


def test_a_package_is_a_piece_as_large_as_its_sources(package: Path):
    source = LocalDocsSource(("zzz_absent", package.name))
    sizes = sum(path.stat().st_size for path in package.glob("*.py"))
    assert [(piece.file, piece.part, piece.bytes) for piece in source.pieces()] == [
        (package.name, 0, sizes),
        ("zzz_absent", 0, 0),
    ]
    assert source.files() == ()


def test_every_installation_has_the_default_packages():
    assert {"pydoc-topics", "python", "numpy"} <= set(LOCAL_DOCS_PACKAGES)
