"""A process that has imported paribus once and forks a child for each command line, which then runs as `paribus` does.

Starting PyTorch takes seconds, so hundreds of killed processes would mostly be killed there. A child is a whole process
of its own with the same imports behind it; what it runs is `paribus.cli.main` with the arguments it is given.

Protocol, one JSON line each way: ["fork", folder, log, arguments, hook] answers with the child's pid, ["wait", pid]
with its exit code as `subprocess` gives it.

`hook`, where it is not null, is {"file_bytes": n}, which limits the size that a file may have, or {"below": folder,
"part": text, "number": n, "late_seconds": s, "count": file}: the n-th operation on files below the folder whose path
contains the text ends the child with SIGKILL, before it is carried out, or, where `late_seconds` is not null, so much
later and by another process. `count`, where it is not empty, is a file that gets the number of operations.
"""

import importlib
import json
import os
import resource
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

CHANGES = {"open", "os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "shutil.rmtree"}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class Watch:
    """Counts operations on files, and ends this process at one of them."""

    def __init__(self, hook: dict[str, Any]) -> None:
        self._below, self._part = hook["below"], hook["part"]
        self._number, self._count = hook["number"], 0
        self._killer = None if hook["late_seconds"] is None else _killer(hook["late_seconds"])
        sys.addaudithook(self._on_event)

    def _on_event(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event not in CHANGES or (event == "open" and not arguments[2] & WRITING):
            return
        paths = [str(each) for each in arguments if isinstance(each, str | os.PathLike)]
        if not any(os.path.abspath(path).startswith(self._below) and self._part in path for path in paths):  # noqa: PTH100 - without a look at the disk
            return
        self._count += 1
        if self._count == self._number:
            if self._killer is None:
                os.kill(os.getpid(), signal.SIGKILL)
            else:
                os.write(self._killer, b"k")

    @property
    def count(self) -> int:
        return self._count


def _killer(late_seconds: float) -> int:
    """A process that kills this one so long after a byte was written to the descriptor that is returned."""
    victim = os.getpid()
    hears, says = os.pipe()
    if os.fork():
        os.close(hears)
        return says
    os.close(says)
    if os.read(hears, 1):
        time.sleep(late_seconds)
        os.kill(victim, signal.SIGKILL)
    os._exit(0)


def _through_a_pipe() -> None:
    """From now on another process writes what this one prints."""
    hears, says = os.pipe()
    if os.fork() == 0:
        os.close(says)
        while said := os.read(hears, 65536):
            os.write(1, said)
        os._exit(0)
    os.dup2(says, 1)
    os.dup2(says, 2)
    os.close(says)
    os.close(hears)


def _run(folder: str, log: str, arguments: list[str], hook: dict[str, Any] | None) -> int:
    os.chdir(folder)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    if hook is not None and "file_bytes" in hook:
        _through_a_pipe()  # what is printed must not grow a file
        resource.setrlimit(resource.RLIMIT_FSIZE, (hook["file_bytes"],) * 2)
        hook = None
    sys.argv = ["paribus", *arguments]
    watch = None if hook is None else Watch(hook)
    code: Any = 0
    try:
        main()
    except SystemExit as ended:
        code = ended.code or 0
    if hook is not None and watch is not None and hook["count"]:
        Path(hook["count"]).write_text(str(watch.count), encoding="ascii")
    return code if isinstance(code, int) else 1


def serve() -> None:
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        command, *arguments = json.loads(line)
        if command == "fork":
            child = os.fork()
            if child == 0:
                code = 99
                try:
                    code = _run(*arguments)
                    sys.stdout.flush()
                except BaseException:
                    traceback.print_exc()
                    sys.stderr.flush()
                os._exit(code)
            answer = child
        else:
            answer = os.waitstatus_to_exitcode(os.waitpid(arguments[0], 0)[1])
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    import torch

    from paribus import mechanisms
    from paribus.cli import main
    from paribus.experiment.code import source_closure

    # What imports much, and what is remembered: here once for all children.
    for module in ("draining", "evaluating.command", "publishing", "running"):
        importlib.import_module(f"paribus.{module}")
    mechanisms.all_diagnostics()
    source_closure(["paribus.training", "paribus.running"])
    torch.set_num_threads(1)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # as Python starts with
    serve()
