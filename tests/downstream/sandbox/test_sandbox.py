"""Programs that do what a program from nowhere may do, run for real."""

import os
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import pytest

from paribus.downstream import sandbox
from paribus.downstream.sandbox import Outcome

pytestmark = pytest.mark.usefixtures("sandboxed")


def run(code: str, seconds: float = 20.0) -> Outcome:
    """With more time than any of these programs needs, so that a loaded machine decides nothing."""
    return sandbox.run(textwrap.dedent(code), seconds=seconds)


@pytest.mark.parametrize(
    "code",
    [
        "x = 1 + 1",
        "import collections, dataclasses, datetime, functools, hashlib, heapq, itertools, math, re, string, typing",
        "import bisect, copy, decimal, fractions, json, operator, random, statistics, ctypes, threading, socket",
        "open('own', 'w').write('text'); assert open('own').read() == 'text'; import os; os.unlink('own')",
        "import os; assert os.listdir('.') == []",
        "for _ in range(10_000): print('x' * 100_000)",
        "import sys; sys.stderr.write('x' * 10**6); assert sys.stdin.read() == ''",
        "import dataclasses\n@dataclasses.dataclass\nclass Point:\n    x: int\nassert Point(1).x == 1",
        "assert __name__ != '__main__'",
        "import os; os.close(1); os.close(2)",
    ],
)
def test_an_ordinary_program_runs_to_its_end(code: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(code) == Outcome(True, "")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("raise ValueError('no')", "raised ValueError: no"),
        ("def f(:", "raised SyntaxError"),
        ("a\0b", "raised "),
        ("assert 1 == 2", "raised AssertionError"),
        ("def f(): return f()\nf()", "raised RecursionError"),
        ("exit(0)", "raised NameError"),
        ("import sys; sys.exit(0)", "raised SystemExit"),
        ("raise SystemExit", "raised SystemExit"),
        ("class E(BaseException):\n    def __str__(self): raise E\nraise E", "an error that cannot be written"),
        ("import numpy", "raised ModuleNotFoundError"),
    ],
)
def test_a_program_that_raises_is_not_through(code: str, words: str) -> None:
    outcome = run(code)
    assert (outcome.ok, outcome.stopped) == (False, False)
    assert words in outcome.problem


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import os; os._exit(0)", "ended before it was through, with code 0"),
        ("import os\nos._exit = None\nos.write(3, b'sealed\\n')\nos.kill(os.getpid(), 9)", "ended before"),
        ("import os; os.write(3, b'0' * 32)", "ended before it was through"),
        ("import os; os.write(3, b'0' * 100_000)", "ended before it was through"),
        ("import os; os.close(3)", "ended before it was through"),
        ("import ctypes; ctypes.string_at(0)", "ended before it was through"),
        ("import os; os.abort()", "ended before it was through"),
        ("import os\nwhile True: os.fork()", "PermissionError"),
        ("import os\nif os.fork() == 0:\n    os.setsid()\n    while True: pass", "PermissionError"),
        ("import subprocess; subprocess.run(['true'])", "PermissionError"),
        ("import os; os.system('true') == 0 or exec('raise PermissionError')", "PermissionError"),
        ("import threading; threading.Thread(target=print).start()", "can't start new thread"),
        ("import multiprocessing; multiprocessing.Process(target=print).start()", "PermissionError"),
        ("import os; os.kill(os.getppid(), 9)", "PermissionError"),
        ("import os; os.kill(-1, 9)", "PermissionError"),
        ("import os; os.killpg(0, 9)", "PermissionError"),
        ("import socket; socket.create_connection(('127.0.0.1', 80))", "PermissionError"),
        ("import urllib.request; urllib.request.urlopen('http://127.0.0.1')", "ended|refused|raised"),
        ("open('/etc/passwd')", "PermissionError"),
        ("open('/proc/self/environ')", "PermissionError"),
        ("import os; os.listdir('/')", "PermissionError"),
        ("import os; os.listdir('..')", "PermissionError"),
        ("open('../file', 'w')", "PermissionError"),
        ("open('/dev/shm/file', 'w')", "PermissionError"),
        ("import os; os.mkdir('folder')", "PermissionError"),
        ("import os; os.symlink('/etc/passwd', 'link'); open('link').read()", "PermissionError"),
        ("import os; os.chmod('.', 0o777)", "PermissionError"),
        ("import os; os.mkfifo('pipe')", "PermissionError"),
        ("import ctypes; x = bytearray(300 * 2**20)", "MemoryError"),
        ("x = []\nwhile True: x.append('x' * 10**6 + str(len(x)))", "MemoryError"),
        ("with open('own', 'wb', 0) as f: f.write(b'0' * 2**20); f.write(b'0')", "OSError: [Errno 27]"),
        ("for n in range(10**6): open(f'{n}', 'wb').write(b'0' * 2**20)", "into its folder"),
        ("for n in range(10**6): open(f'{n}', 'wb')", "into its folder"),
    ],
)
def test_a_program_is_stopped_at(code: str, words: str) -> None:
    outcome = run(code)
    assert not outcome.ok
    assert any(word in outcome.problem for word in words.split("|")), outcome
    assert outcome.stopped or "raised" in words


@pytest.mark.parametrize(
    "code",
    ["while True: pass", "import time; time.sleep(10**6)", "'x' * 2 + input() if 0 else [0 for _ in iter(int, 1)]"],
)
def test_a_program_that_does_not_end_is_ended(code: str) -> None:
    assert run(code, seconds=0.2) == Outcome(False, "ran longer than 0.2 s", stopped=True)


def test_no_way_of_making_a_process_is_open_not_even_by_number() -> None:
    code = """
        import ctypes, errno, platform
        libc = ctypes.CDLL(None, use_errno=True)
        numbers = {"x86_64": [56, 57, 58, 435], "aarch64": [220, 435]}[platform.machine()]
        for number in numbers:
            made = libc.syscall(number, 17, 0, 0, 0, 0)
            assert made == -1 and ctypes.get_errno() == errno.EPERM, (number, made)
        assert libc.fork() == -1
    """
    assert run(code) == Outcome(True, "")


def test_limits_cannot_be_raised() -> None:
    code = """
        import resource
        for kind in (resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_FSIZE):
            for change in (lambda: resource.setrlimit(kind, (-1, -1)), lambda: resource.prlimit(0, kind, (-1, -1))):
                try:
                    change()
                except (PermissionError, ValueError):
                    continue
                raise AssertionError(kind)
    """
    assert run(code) == Outcome(True, "")


def test_a_secret_outside_is_neither_read_nor_changed_by_any_name(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    before = secret.stat()
    code = f"""
        import os
        secret, made = {str(secret)!r}, {str(tmp_path / "made")!r}
        attempts = [
            lambda: open(secret).read(),
            lambda: open(os.path.relpath(secret)).read(),
            lambda: open(secret, "a"),
            lambda: open(secret, "r+"),
            lambda: os.truncate(secret, 0),
            lambda: os.unlink(secret),
            lambda: os.rename(secret, made),
            lambda: os.link(secret, "own"),
            lambda: os.symlink(secret, "own"),
            lambda: os.chmod(secret, 0),
            lambda: os.chown(secret, 1, 1),
            lambda: os.utime(secret, (0, 0)),
            lambda: os.setxattr(secret, "user.x", b"x"),
            lambda: os.listdir(os.path.dirname(secret)),
            lambda: open(made, "w"),
            lambda: os.mkdir(made),
            lambda: os.open(os.path.dirname(secret), os.O_TMPFILE | os.O_RDWR),
            lambda: os.chdir(os.path.dirname(secret)),
            lambda: os.chroot("."),
        ]
        for number, attempt in enumerate(attempts):
            try:
                attempt()
            except PermissionError:
                continue
            raise AssertionError(number)
    """
    assert run(code) == Outcome(True, "")
    after = secret.stat()
    assert secret.read_text() == "secret"
    assert (before.st_mode, before.st_uid, before.st_mtime_ns) == (after.st_mode, after.st_uid, after.st_mtime_ns)
    assert list(tmp_path.iterdir()) == [secret]


def test_a_program_sees_neither_environment_nor_open_files_of_its_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "secret")
    (tmp_path / "secret").write_text("secret")
    with (tmp_path / "secret").open() as stream:
        os.set_inheritable(stream.fileno(), True)
        code = """
            import os
            assert set(os.environ) <= {"LC_CTYPE"}, set(os.environ)
            found = []
            for descriptor in range(3, 64):
                try:
                    os.fstat(descriptor)
                except OSError:
                    continue
                found.append(descriptor)
            assert found == [3], found
        """
        assert run(code) == Outcome(True, "")


def test_what_a_program_says_of_its_end_is_bounded() -> None:
    assert len(run("raise ValueError('x' * 10**7)").problem) < 600
    assert run("raise ValueError('\\ud800')").problem == "raised ValueError: ?"


def test_nothing_is_left_of_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert run("open('own', 'w').write('text')").ok
    assert not run("open('own', 'w').write('text')\nwhile True: pass", seconds=0.2).ok
    assert list(tmp_path.iterdir()) == []


def test_a_program_ends_with_the_process_that_asked(tmp_path: Path) -> None:
    parent = """
        import subprocess, sys
        from paribus.downstream import sandbox
        sandbox.require()
        start = subprocess.Popen.__init__
        def kept(self, *arguments, **named):
            start(self, *arguments, **named)
            sandbox.child = self
        def looked(folder):  # which it does once the child is sealed
            print(sandbox.child.pid, flush=True)
            return 0
        subprocess.Popen.__init__, sandbox._folder_bytes = kept, looked
        sandbox.run("import time; time.sleep(10**6)", seconds=10**6)
    """
    command = [sys.executable, "-c", textwrap.dedent(parent)]
    place = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=place) as asker:
        assert asker.stdout is not None
        child = int(asker.stdout.readline())
        asker.kill()
    for _ in range(600):
        if not _runs(child):
            return
        time.sleep(0.1)
    raise AssertionError("the program outlived its parent by a minute")


def _runs(process: int) -> bool:
    """Whether it is there and no zombie, which nobody but its new parent can remove."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
