"""The probe sees each right that a broken sandbox would leave, and then nothing is run."""

import dataclasses
import platform
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from paribus.downstream import sandbox, sandbox_filter
from paribus.downstream.sandbox import SandboxError

CHILD = Path(sandbox.__file__).with_name("sandbox_child.py")
CALLS = {
    "x86_64": {"socket": 41, "clone": 56, "kill": 62, "chmod": 90, "truncate": 76},
    "aarch64": {"socket": 198, "clone": 220, "kill": 129, "fchmodat": 53, "truncate": 45},
}
WORDS = {
    "socket": "open a socket",
    "clone": "start a process",
    "kill": "signal another process",
    "chmod": "change the rights",
    "fchmodat": "change the rights",
    "truncate": "cut a file",
}


@pytest.fixture
def tampered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the child's program, used in its place."""
    path = tmp_path / "child.py"
    path.write_text(CHILD.read_text())
    monkeypatch.setattr(sandbox, "_CHILD", path)
    return path


def without(path: Path, text: str, instead: str = "") -> None:
    program = path.read_text()
    assert program.count(text) == 1
    path.write_text(program.replace(text, instead))


@pytest.mark.usefixtures("sandboxed", "unproven")
@pytest.mark.parametrize(
    ("text", "instead", "words"),
    [
        ('    restrict_files(libc, request["folder"], request["readable"])\n', "", "read a file outside its folder"),
        ('"/usr/share/zoneinfo")', '"/usr/share/zoneinfo", "/etc")', "read /etc/passwd"),
        ('"/usr/share/zoneinfo")', '"/usr/share/zoneinfo", "/proc")', "read its parent's environment"),
        ('"/dev/urandom": READ_FILE,', '"/tmp": READ_FOLDER,', "list "),
        ('"/dev/urandom": READ_FILE,', '"/": MAKE_FILE | WRITE_FILE,', "write a file outside its folder"),
        ('"/dev/urandom": READ_FILE,', '"/": REMOVE_FILE,', "remove a file outside its folder"),
        ("| MAKE_FILE}", "}", "PermissionError"),
        ('control(libc, "the filter of system calls (seccomp)", ', "print(", "empty a file"),
        ('        (resource.RLIMIT_AS, request["memory_bytes"]),\n', "", "take all memory"),
    ],
)
def test_a_right_that_was_kept_is_seen(tampered: Path, text: str, instead: str, words: str) -> None:
    without(tampered, text, instead)
    with pytest.raises(SandboxError) as refusal:
        sandbox.require()
    assert words in refusal.value.received


@pytest.mark.usefixtures("sandboxed", "unproven")
@pytest.mark.parametrize("name", sorted(CALLS.get(platform.machine(), {})))
def test_a_call_that_was_allowed_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = platform.machine()
    architecture = sandbox_filter.ARCHITECTURES[machine]
    calls: Mapping[str, int] = architecture.calls | {name: CALLS[machine][name]}
    monkeypatch.setitem(sandbox.ARCHITECTURES, machine, dataclasses.replace(architecture, calls=dict(calls)))
    with pytest.raises(SandboxError) as refusal:
        sandbox.require()
    assert WORDS[name] in refusal.value.received


@pytest.mark.usefixtures("sandboxed", "unproven")
def test_no_program_is_run_before_the_machine_is_proven(tampered: Path, tmp_path: Path) -> None:
    without(tampered, '"/dev/urandom": READ_FILE,', '"/": MAKE_FILE | WRITE_FILE,')
    ran = tmp_path / "ran"
    for _ in range(2):  # a refusal is not remembered as a proof
        with pytest.raises(SandboxError):
            sandbox.run(f"open({str(ran)!r}, 'w')")
    assert not ran.exists()


@pytest.mark.usefixtures("unproven")
def test_a_machine_without_landlock_is_refused_and_nothing_runs(tampered: Path, tmp_path: Path) -> None:
    without(
        tampered, "CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444,", "CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 10**6,"
    )
    ran = tmp_path / "ran"
    with pytest.raises(SandboxError) as refusal:
        sandbox.run(f"open({str(ran)!r}, 'w')")
    assert "the kernel offers no Landlock" in refusal.value.received
    assert "leave it out" in refusal.value.remedy
    assert not ran.exists()


@pytest.mark.usefixtures("unproven")
@pytest.mark.parametrize(
    ("text", "instead", "words"),
    [
        ("SET_NO_NEW_PRIVILEGES = 1, 4, 22, 38", "SET_NO_NEW_PRIVILEGES = 1, 4, 22, 10**4", "no new privileges"),
        ("FILTER_MODE = 2", "FILTER_MODE = 3", "the filter of system calls"),
        ('request["parent"]', "0", "the process that asked is gone"),
        ("    channel = os.dup(1)\n", "    os._exit(7)\n", "code 7"),
        ('    write(channel, b"sealed\\n")\n', "    leave(9)\n", "code 9"),
    ],
)
def test_a_child_that_cannot_seal_itself_says_why(tampered: Path, text: str, instead: str, words: str) -> None:
    without(tampered, text, instead)
    with pytest.raises(SandboxError) as refusal:
        sandbox.run("pass")
    assert words in refusal.value.received


@pytest.mark.usefixtures("unproven")
@pytest.mark.parametrize(("system", "machine"), [("darwin", "arm64"), ("win32", "AMD64"), ("linux", "riscv64")])
def test_other_systems_are_refused_before_anything_starts(
    system: str, machine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def started(*_: object, **__: object) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(subprocess, "Popen", started)
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    with pytest.raises(SandboxError) as refusal:
        sandbox.run("pass")
    assert machine in refusal.value.received
    assert "Linux" in refusal.value.expected
