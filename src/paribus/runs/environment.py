"""On what a cell ran: versions, processor, code, kernels. Reads metadata only; imports none of the packages it names.

Nothing of it comes from the process' environment variables, names of users, or places on the machine. What an error
says may hold some of them: before it goes on record, `without_secrets` takes out what must not be read by others.
"""

import os
import platform
import re
import subprocess
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import paribus
from paribus.kernels import compiler

PACKAGES = ("torch", "numpy", "scipy", "tokenizers", "pyarrow", "safetensors")
SECRET_NAME = re.compile(r"TOKEN|SECRET|PASS|PROXY|CREDENTIAL|PRIVATE|COOKIE|AUTH|API_?KEY|ACCESS_?KEY", re.IGNORECASE)
"""names of variables whose values nobody writes down; of a proxy also the host says whose network it is"""
SHORTEST_SECRET = 6
"""characters: a shorter value ("1", "true") is no secret, and would be found in the middle of words"""
_USER_OF_ADDRESS = re.compile(r"(?<=://)[^/\s@'\"]+@")
"""user and password in https://user:password@host, as git remotes and proxies have it"""


def environment() -> dict[str, str]:
    """Name -> value, all text, for the record and the report."""
    return {**_of_process(), "kernels": compiler.in_use()}


@cache
def _of_process() -> dict[str, str]:
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


def without_secrets(text: str, variables: Mapping[str, str] | None = None) -> str:
    """The text with [NAME] for the value of each variable whose name says that it is secret, ~ for the home folder,
    and without users and passwords in addresses. `variables`: by default those of this process."""
    known = os.environ if variables is None else variables
    home = known.get("HOME", "").rstrip("/")
    text = text.replace(f"{home}/", "~/") if home else text
    secret = {value: name for name, value in known.items() if SECRET_NAME.search(name)}
    for value in sorted(secret, key=len, reverse=True):  # one may begin with another
        if len(value) >= SHORTEST_SECRET:
            text = text.replace(value, f"[{secret[value]}]")
    return _USER_OF_ADDRESS.sub("[user]@", text)


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
