"""On what a cell ran: versions, processor, code. Reads metadata only; imports none of the packages it names."""

import os
import platform
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import paribus

PACKAGES = ("torch", "numpy", "scipy", "tokenizers", "pyarrow", "safetensors")


@cache
def environment() -> dict[str, str]:
    """Name -> value, all text, for the record and the report."""
    versions = {package: _version(package) for package in PACKAGES}
    return {
        "paribus": paribus.__version__,
        "code version": code_version(),
        "python": platform.python_version(),
        **versions,
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": str(os.cpu_count()),
    }


@cache
def code_version() -> str:
    """The commit that paribus runs from, with "+changes" where tracked files differ; "installed" outside a checkout."""
    folder = Path(paribus.__file__).parent
    try:
        commit = _git(folder, "rev-parse", "--short=12", "HEAD")
        tracked = _git(folder, "ls-files", "--error-unmatch", "__init__.py")
        changed = _git(folder, "status", "--porcelain", "--untracked-files=no", "--", str(folder))
    except (OSError, subprocess.SubprocessError):
        return "installed"
    return f"{commit}{'+changes' if changed else ''}" if tracked else "installed"


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True, timeout=10
    )
    return done.stdout.strip()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown"
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or "unknown"
