"""Code that a model wrote, run where it can do no harm: HumanEval's programs, and nothing else in paribus.

A child process, the same Python without site packages and with an empty environment, gives up its rights before it
runs the code (`sandbox_child`), by three mechanisms of Linux that need no privilege and no set-up:

    limits        address space, processor time, size of a file, open files
    Landlock      reads Python and the system's libraries; reads and writes one empty folder; no other file
    seccomp       no process, thread, socket, signal to others, link, change of rights, other program (`sandbox_filter`)

Since the code can start no process, ending it ends all that it began. What it prints goes nowhere. Its folder is
watched while it runs and removed afterwards. It counts as having run to its end only where the child then writes a
number that this process has just drawn: neither an early exit(0) nor words on the same channel pass for that. A program
that searches its interpreter's frames for the number could forge it: the sandbox keeps a machine safe, not a score.
That files exist, and their sizes, can be seen; their contents, and the names in a folder, cannot.

Nothing runs before `require` has seen, with a real child, that what is forbidden fails (Linux 5.13 with Landlock, on
x86-64 or arm64; other systems are refused).
"""

import functools
import json
import math
import os
import platform
import secrets
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from paribus.downstream.sandbox_filter import ARCHITECTURES, packed, program
from paribus.errors import ParibusError

SECONDS = 5.0
MEMORY_BYTES = 256 * 2**20
"""of address space, the interpreter's own some 30 MiB included"""
FILE_BYTES = 2**20
FOLDER_BYTES = 16 * 2**20
"""of all files together; seen every twentieth of a second"""

_CHILD = Path(__file__).with_name("sandbox_child.py")
_ANSWER_BYTES = 4096
_START_SECONDS = 60.0
_LEAST_BYTES = 4096
"""that a file counts as, so that empty ones are bounded too"""
_LOOK_MILLISECONDS = 50
_REFUSALS = ("PermissionError", "MemoryError", "RuntimeError: can't start new thread", "OSError: [Errno 27]")
"""what Python raises where a limit is met: a right, memory, a thread, the size of a file"""


@dataclass(frozen=True)
class Outcome:
    """What became of a program."""

    ok: bool
    """it ran to its end"""
    problem: str
    """why not, in words; empty where it did"""
    stopped: bool = False
    """whether a limit of the sandbox was the reason, and not an error of the program's own"""


class SandboxError(ParibusError):
    """This machine cannot run code without risk, so none was run."""


def run(code: str, *, seconds: float = SECONDS, memory_bytes: int = MEMORY_BYTES) -> Outcome:
    """Run a program as a module named "program". `seconds` are those of the wall clock from where the code begins, and,
    rounded up, of the processor. Raises SandboxError where the machine cannot sandbox; then nothing was run.
    """
    require()
    return _run(code, seconds=seconds, memory_bytes=memory_bytes)


@functools.cache
def require() -> None:
    """Show with a real child that this machine refuses what must be refused; once a process, and again after a failure.

    Raises SandboxError saying what is missing.
    """
    with tempfile.TemporaryDirectory(prefix="paribus-probe-") as name:
        outside = Path(name)
        # The probe tries in earnest, so what it would destroy is its own.
        secret, readable = outside / "secret", outside / "readable"
        for file in (secret, readable):
            file.write_text(file.name)
        found = _run(_probe(secret, readable), seconds=30.0, memory_bytes=MEMORY_BYTES, readable=[readable])
        unchanged = {file: file.read_text() for file in outside.iterdir()} == {secret: "secret", readable: "readable"}
        if found.ok and not unchanged:
            found = Outcome(False, "a file outside its folder was changed")
    if not found.ok:
        raise _refusal(found.problem)
    if _run("while True: pass", seconds=0.2, memory_bytes=MEMORY_BYTES) != _too_long(0.2):
        raise _refusal("a program that runs for ever is not ended")


def _refusal(received: str) -> SandboxError:
    return SandboxError(
        "this machine cannot run a model's code in a sandbox, so none was run",
        expected="Linux 5.13 or later on x86-64 or arm64, with Landlock and seccomp; in a container, both permitted",
        received=received,
        remedy="run HumanEval on such a machine, or leave it out: the other tasks do not need this",
    )


def _too_long(seconds: float) -> Outcome:
    return Outcome(False, f"ran longer than {seconds:g} s", stopped=True)


def _run(code: str, *, seconds: float, memory_bytes: int, readable: Sequence[Path] = ()) -> Outcome:
    architecture = ARCHITECTURES.get(platform.machine())
    if sys.platform != "linux" or architecture is None:
        raise _refusal(f"{platform.system()} on {platform.machine()}")
    nonce = secrets.token_hex(16)
    with tempfile.TemporaryDirectory(prefix="paribus-sandbox-") as folder:
        request = {
            "code": code,
            "nonce": nonce,
            "folder": folder,
            "readable": [str(path) for path in readable],
            "parent": os.getpid(),
            "memory_bytes": memory_bytes,
            "cpu_seconds": max(1, math.ceil(seconds)),
            "file_bytes": FILE_BYTES,
            "filter": packed(program(architecture)).hex(),
        }
        child = subprocess.Popen(
            [sys.executable, "-I", "-S", "-B", "-X", "utf8", str(_CHILD)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={},
            cwd=folder,
            start_new_session=True,
        )
        try:
            return _watch(child, json.dumps(request).encode(), nonce, Path(folder), seconds)
        finally:
            child.kill()
            child.wait()
            for stream in (child.stdin, child.stdout):
                if stream is not None:
                    stream.close()


def _watch(child: subprocess.Popen[bytes], request: bytes, nonce: str, folder: Path, seconds: float) -> Outcome:
    """Send the request and read the answer, bounded in time and size. The caller ends the child."""
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        child.stdin.write(request)
        child.stdin.close()
    except BrokenPipeError:
        raise _refusal(f"the child ended before it was sealed, with code {child.wait()}") from None
    channel = child.stdout.fileno()
    answer = b""
    deadline = time.monotonic() + _START_SECONDS
    sealed = False
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    while len(answer) < _ANSWER_BYTES:
        if poll.poll(_LOOK_MILLISECONDS):
            read = os.read(channel, _ANSWER_BYTES)
            if not read:
                break
            answer += read
            if not sealed and answer.startswith(b"sealed\n"):
                sealed = True
                deadline = time.monotonic() + seconds
                answer = answer.removeprefix(b"sealed\n")
        if time.monotonic() > deadline:
            if not sealed:
                raise _refusal(f"the child was not sealed within {_START_SECONDS:g} s")
            return _too_long(seconds)
        if sealed and (kept := _folder_bytes(folder)) > FOLDER_BYTES:
            return Outcome(False, f"wrote {kept} bytes into its folder, more than {FOLDER_BYTES}", stopped=True)
    if not sealed:
        said = answer.decode(errors="replace").removeprefix("unsealed: ")
        raise _refusal(said or f"the child ended before it was sealed, with code {child.wait()}")
    if answer == nonce.encode():
        return Outcome(True, "")
    if answer.startswith(b"failed "):
        raised = answer.decode(errors="replace").removeprefix("failed ")
        refused = raised.startswith(_REFUSALS)
        return Outcome(False, f"was refused something: {raised}" if refused else f"raised {raised}", stopped=refused)
    child.kill()
    return Outcome(False, f"ended before it was through, with code {child.wait()}", stopped=True)


def _folder_bytes(folder: Path) -> int:
    """The program can make no folders."""
    total = 0
    with os.scandir(folder) as entries:
        for entry in entries:
            try:
                total += max(_LEAST_BYTES, entry.stat(follow_symlinks=False).st_size)
            except FileNotFoundError:  # removed since
                continue
    return total


def _probe(secret: Path, readable: Path) -> str:
    """A program that tries what is forbidden, and fails naming the first thing that is not refused.

    `secret` it may not even read, `readable` it may only read.
    """
    folders = [path for path in (os.environ.get("HOME", ""), str(secret.parent)) if os.access(path, os.R_OK)]
    return _PROBE.format(secret=str(secret), readable=str(readable), folders=folders, parent=os.getpid())


_PROBE = """
import ctypes, decimal, fcntl, hashlib, mmap, os, resource, signal, socket, threading

def refused(what, attempt, *errors):
    try:
        attempt()
    except (errors or PermissionError):
        return
    raise AssertionError("it is allowed to " + what)

secret, readable = {secret!r}, {readable!r}
made = secret + "-made"
refused("read a file outside its folder", lambda: open(secret).read())
refused("read /etc/passwd", lambda: open("/etc/passwd").read())
refused("read its parent's environment", lambda: open("/proc/{parent}/environ").read())
for folder in {folders!r}:
    refused("list " + folder, lambda: os.listdir(folder))
refused("write a file outside its folder", lambda: open(made, "w"))
assert open(readable).read() == "readable", "a file that may be read cannot be"
refused("write a file that it may only read", lambda: open(readable, "w"))
for mode in (os.O_RDONLY, os.O_ACCMODE):
    refused("empty a file that it may only read", lambda: os.open(readable, mode | os.O_TRUNC))
refused("cut a file that it may only read", lambda: os.truncate(readable, 0))
refused("remove a file outside its folder", lambda: os.unlink(secret))
refused("rename a file outside its folder", lambda: os.rename(secret, made))
refused("change the rights of a file", lambda: os.chmod(secret, 0o777))
refused("make a link", lambda: os.link(secret, "link"))
refused("open a socket", lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM))
refused("open a local socket", lambda: socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
refused("signal another process", lambda: os.kill({parent}, 0))
refused("start another program", lambda: os.execv("/bin/true", ["true"]))
refused("start a process", os.fork)
refused("start a thread", threading.Thread(target=int).start, RuntimeError)
refused("raise its limits", lambda: resource.prlimit(0, resource.RLIMIT_AS, (-1, -1)), PermissionError, ValueError)
refused("take all memory", lambda: mmap.mmap(-1, 1 << 30), OSError)
with open("own", "w") as stream:
    stream.write("own")
assert open("own").read() == "own", "its own folder does not keep a file"
os.unlink("own")
hashlib.sha256(b"").hexdigest()
"""
