"""The table of known traps stays true: it has every entry, and each test that it names exists."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROWS = [
    line.split("|")[1:-1]
    for line in (ROOT / "docs" / "traps.md").read_text(encoding="utf-8").splitlines()
    if re.match(r"\| *\d+ *\|", line)
]
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


def functions(path: Path) -> set[str]:
    return {n.name for n in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(n, ast.FunctionDef)}


def test_the_table_has_every_trap_once():
    # 21, 26 and 34 are not in the collection either.
    assert [int(row[0]) for row in ROWS] == [n for n in range(1, 37) if n not in (21, 26, 34)]


def test_every_test_that_the_table_names_exists():
    named = [found for row in ROWS for found in NAMED.findall(row[2])]
    assert len(named) > len(ROWS) / 2
    missing = [f"{path}::{name}" for path, name in named if name not in functions(ROOT / path)]
    assert not missing


def test_a_trap_without_a_test_says_why_it_cannot_occur():
    for row in ROWS:
        assert NAMED.search(row[2]) or "cannot occur" in row[2].lower(), row[0]
