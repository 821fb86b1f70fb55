"""Kernels in C beside their Python files, compiled by the machine's own compiler the first time they are wanted.

`depth_read_cpu.py` has its loops in `depth_read_cpu.c`, which gcc and clang turn into a library in seconds, kept in the
user's cache folder by a digest of the source, the compiler and the processor. Where there is no compiler, PyTorch
operators compute the same functions, slower; what a cell ran on is in its record of the environment. Needs no PyTorch.
"""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from paribus.disk import user_cache
from paribus.errors import ParibusError

SWITCH = "PARIBUS_KERNELS"
"""environment variable, looked at once: `operators` computes with PyTorch operators even where there is a compiler"""
FLAGS = ("-O3", "-march=native", "-std=gnu11", "-shared", "-fPIC", "-fno-math-errno", "-fno-trapping-math")
# Vectors wider than the processor's registers are passed within one file only, where the calling convention is moot.
WARNINGS = ("-Wall", "-Wextra", "-Wno-psabi")
HEADER = Path(__file__).with_name("lanes.h")

_failed: set[str] = set()
_wanted = [os.environ.get(SWITCH) != "operators"]
"""compiled kernels; the last entry counts. A look at the environment in every call would cost as much as a kernel"""


class CompilerError(ParibusError):
    """A compiler is there and does not compile a kernel."""


@contextmanager
def operators() -> Iterator[None]:
    """PyTorch operators in place of compiled kernels, within the context and this process."""
    _wanted.append(False)
    try:
        yield
    finally:
        _wanted.pop()


def switched_off() -> bool:
    return not _wanted[-1]


@cache
def interpreted() -> bool:
    """Whether Triton is to run its kernels by its interpreter, on the CPU."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def in_use() -> str:
    """What computes the kernels here, for the record: "C, gcc 12.2.0; on CUDA Triton 3.9.0", or "PyTorch operators"."""
    found = None if switched_off() or _failed else compiler()
    if found is None:
        return "PyTorch operators"
    try:
        return f"C, {found[1]}; on CUDA Triton {version('triton')}"
    except PackageNotFoundError:
        return f"C, {found[1]}"


def library(source: str) -> ctypes.CDLL | None:
    """The compiled library of a Python file's kernel (its `__file__`), or None where operators are to be used."""
    return None if switched_off() else _library(source)


@cache
def compiler() -> tuple[str, str] | None:
    """(path, name and version) of the C compiler: $CC, or the first of cc, gcc, clang; None where there is none."""
    for name in (os.environ.get("CC", ""), "cc", "gcc", "clang"):
        path = shutil.which(name) if name else None
        if path is not None:
            said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False, timeout=60)
            words = said.stdout.splitlines()[:1]
            if said.returncode == 0 and words:
                kind = "clang" if "clang" in words[0] else "gcc"
                return path, f"{kind} {words[0].split()[-1]}"
    return None


@cache
def _library(python_file: str) -> ctypes.CDLL | None:
    found = compiler()
    if found is None:
        return None
    source = Path(python_file).with_suffix(".c")
    digest = hashlib.blake2b(digest_size=12)
    for part in (source.read_bytes(), HEADER.read_bytes(), " ".join((*found, *FLAGS)).encode(), _processor()):
        digest.update(len(part).to_bytes(8, "little") + part)
    target = user_cache() / "kernels" / f"{source.stem}-{digest.hexdigest()}.so"
    try:
        if not target.is_file():
            compile_library(source, target)
        return ctypes.CDLL(str(target))
    except (OSError, CompilerError, subprocess.TimeoutExpired) as error:
        _failed.add(source.name)
        warnings.warn(f"{source.name} is computed with PyTorch operators, which are slower: {error}", stacklevel=2)
        return None


def compile_library(source: Path, target: Path, *flags: str) -> None:
    """Compile one C file; several processes at the same time end with the same file. CompilerError where it fails."""
    found = compiler()
    assert found is not None, "asked only where there is a compiler"
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, unfinished = tempfile.mkstemp(dir=target.parent, suffix=".so")
    os.close(handle)
    try:
        command = [found[0], *FLAGS, *WARNINGS, *flags, f"-I{HEADER.parent}", str(source), "-o", unfinished, "-lm"]
        said = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        if said.returncode != 0:
            raise CompilerError(
                f"{found[1]} does not compile {source.name}",
                expected="a compiler for C with the vector extension: gcc 9 or clang 9, or newer",
                received=said.stderr.strip()[-2000:],
                remedy=f"name another one in the variable CC, or set {SWITCH}=operators",
            )
        Path(unfinished).replace(target)
    finally:
        Path(unfinished).unlink(missing_ok=True)


def _processor() -> bytes:
    """What the processor can do: a cache folder may be shared by machines that differ."""
    try:
        lines = Path("/proc/cpuinfo").read_bytes().splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}".encode()
    told = (b"model name", b"flags", b"Features", b"CPU part")
    return b"\n".join(dict.fromkeys(line for line in lines if line.startswith(told)))
