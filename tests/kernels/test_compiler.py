"""Kernels in C: compiled once, kept by what they depend on, and done without where no compiler will have them."""

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from paribus.kernels import compiler, depth_read_cpu, exclude_self_cpu

SOURCES = [Path(str(module.__file__)).with_suffix(".c") for module in (depth_read_cpu, exclude_self_cpu)]


@pytest.fixture
def afresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache folder, and nothing known from before."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    forget()
    yield tmp_path / "paribus" / "kernels"
    forget()


def forget() -> None:
    compiler._library.cache_clear()
    compiler.compiler.cache_clear()
    compiler._failed.clear()


@pytest.fixture
def own_source(tmp_path: Path) -> Path:
    source = tmp_path / "own.c"
    source.write_text('#include "lanes.h"\nint answer(void) { return LANES; }\n', encoding="utf-8")
    return source


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_every_kernel_compiles_without_a_warning(source: Path, tmp_path: Path):
    compiler.compile_library(source, tmp_path / "strict.so", "-Werror", "-O1")


def test_a_warning_does_fail_a_strict_compilation(tmp_path: Path):
    source = tmp_path / "careless.c"
    source.write_text("int careless(int unused) { return 1; }\n", encoding="utf-8")
    with pytest.raises(compiler.CompilerError, match=r"does not compile careless\.c"):
        compiler.compile_library(source, tmp_path / "strict.so", "-Werror")


def test_a_library_is_compiled_once_and_again_when_its_source_changes(afresh: Path, own_source: Path):
    first = compiler.library(str(own_source))
    assert first is not None
    assert first.answer() in (8, 16)
    [kept] = afresh.iterdir()
    written = kept.stat().st_mtime_ns
    forget()
    assert compiler.library(str(own_source)) is not None
    assert kept.stat().st_mtime_ns == written
    own_source.write_text("int answer(void) { return 3; }\n", encoding="utf-8")
    forget()
    again = compiler.library(str(own_source))
    assert again is not None
    assert again.answer() == 3
    assert len(list(afresh.iterdir())) == 2


def test_many_that_compile_at_the_same_time_end_with_one_whole_file(tmp_path: Path, own_source: Path):
    target = tmp_path / "shared" / "own.so"
    with ThreadPoolExecutor(4) as together:
        list(together.map(lambda _: compiler.compile_library(own_source, target), range(4)))
    assert [path.name for path in target.parent.iterdir()] == ["own.so"]
    assert ctypes.CDLL(str(target)).answer() in (8, 16)


def test_where_no_compiler_is_operators_are_used_and_the_record_says_so(afresh: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(afresh))
    monkeypatch.delenv("CC", raising=False)
    assert compiler.library(depth_read_cpu.__file__) is None
    assert compiler.in_use() == "PyTorch operators"


def test_a_compiler_that_fails_is_said_once_and_operators_are_used(afresh: Path, own_source: Path):
    del afresh
    own_source.write_text("this is no C\n", encoding="utf-8")
    with pytest.warns(UserWarning, match=r"own\.c is computed with PyTorch operators, which are slower"):
        assert compiler.library(str(own_source)) is None
    assert compiler.library(str(own_source)) is None  # a second warning would be an error here
    assert compiler.in_use() == "PyTorch operators"


def test_the_record_names_the_compiler_and_its_version():
    assert compiler.in_use().startswith(("C, gcc ", "C, clang "))


def test_the_switch_turns_compiled_kernels_off_and_on_again():
    assert compiler.library(depth_read_cpu.__file__) is not None
    with compiler.operators():
        assert compiler.library(depth_read_cpu.__file__) is None
        assert compiler.in_use() == "PyTorch operators"
    assert compiler.library(depth_read_cpu.__file__) is not None


def test_the_environment_can_turn_them_off():
    script = "from paribus.kernels import compiler\nprint(compiler.in_use())"
    environment = {**os.environ, compiler.SWITCH: "operators"}
    said = subprocess.run([sys.executable, "-c", script], check=True, env=environment, capture_output=True, text=True)
    assert said.stdout.strip() == "PyTorch operators"


def test_naming_the_compiler_loads_no_torch():
    script = "import sys\nfrom paribus.kernels import compiler\ncompiler.in_use()\nsys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)
