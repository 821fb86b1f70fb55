"""The program that gives up its rights and then runs code that nobody has read. Started by `sandbox`, never imported.

It reads one JSON object from standard input, seals itself, and answers on what was its standard output:

    unsealed: WHY         some right could not be given up; nothing was run
    sealed                one line, before the code runs
    failed WHY            the code raised, whatever it raised
    the nonce             the code ran to its end

Order matters: limits and Landlock first, the filter of system calls last, because it forbids what the others need.
Only Python's own library is used: the interpreter runs isolated, without site packages.
"""

import ctypes
import json
import os
import resource
import signal
import stat
import struct
import sys
import types
from typing import Any

WORDS = 500

# linux/prctl.h
SET_PARENT_DEATH_SIGNAL, SET_DUMPABLE, SET_SECCOMP, SET_NO_NEW_PRIVILEGES = 1, 4, 22, 38
FILTER_MODE = 2
# linux/landlock.h, first version; the numbers of its calls are the same on every architecture
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
BENEATH_PATH = 1
EVERY_RIGHT = (1 << 13) - 1
WRITE_FILE, READ_FILE, READ_FOLDER, REMOVE_FILE, MAKE_FILE = 1 << 1, 1 << 2, 1 << 3, 1 << 5, 1 << 8

LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/share/zoneinfo")
FILES = {
    "/dev/null": READ_FILE | WRITE_FILE,
    "/dev/urandom": READ_FILE,
    "/etc/ld.so.cache": READ_FILE,
    "/etc/localtime": READ_FILE,
}


def main() -> None:
    channel = os.dup(1)
    request: dict[str, Any] = json.loads(sys.stdin.buffer.read())
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    os.close(null)
    # The code may replace what a module holds; these names it does not see.
    write, leave = os.write, os._exit
    try:
        seal(request)
    except Exception as error:
        write(channel, f"unsealed: {error}".encode(errors="replace"))
        leave(3)
    write(channel, b"sealed\n")
    answer = b"failed"
    try:
        module = types.ModuleType("program")
        sys.modules["program"] = module
        exec(compile(request["code"], "program", "exec", dont_inherit=True), module.__dict__)
        answer = request["nonce"].encode()
    except BaseException as error:
        answer = words(error)
    finally:
        write(channel, answer)
        leave(0)


def words(error: BaseException) -> bytes:
    try:
        return f"failed {type(error).__name__}: {error}"[:WORDS].encode(errors="replace")
    except BaseException:
        return b"failed with an error that cannot be written"


def seal(request: dict[str, Any]) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    os.chdir(request["folder"])
    control(libc, "the signal at the parent's death", SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != request["parent"]:
        raise RuntimeError("the process that asked is gone")
    control(libc, "no memory image", SET_DUMPABLE, 0)
    limit(request)
    control(libc, "no new privileges", SET_NO_NEW_PRIVILEGES, 1)
    restrict_files(libc, request["folder"], request["readable"])
    steps = bytes.fromhex(request["filter"])
    array = ctypes.create_string_buffer(steps, len(steps))
    filters = ctypes.create_string_buffer(struct.pack("@HP", len(steps) // 8, ctypes.addressof(array)))
    control(libc, "the filter of system calls (seccomp)", SET_SECCOMP, FILTER_MODE, ctypes.addressof(filters))


def limit(request: dict[str, Any]) -> None:
    """Root too: the filter forbids raising them again."""
    for kind, bound in (
        (resource.RLIMIT_AS, request["memory_bytes"]),
        (resource.RLIMIT_CPU, request["cpu_seconds"]),
        (resource.RLIMIT_FSIZE, request["file_bytes"]),
        (resource.RLIMIT_NOFILE, 64),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (bound, bound))


def restrict_files(libc: ctypes.CDLL, folder: str, readable: list[str]) -> None:
    """Reading of Python, of the system's libraries and of `readable`; reading and writing of `folder`; nothing else."""
    attributes = struct.pack("=Q", EVERY_RIGHT)
    ruleset = libc.syscall(CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)
    if ruleset < 0:
        raise OSError(f"the kernel offers no Landlock ({os.strerror(ctypes.get_errno())})")
    allowed = dict.fromkeys((*LIBRARIES, *sys.path, f"{sys.base_prefix}/lib", *readable), READ_FILE | READ_FOLDER)
    allowed |= {**FILES, folder: READ_FILE | READ_FOLDER | WRITE_FILE | REMOVE_FILE | MAKE_FILE}
    for path, rights in allowed.items():
        try:
            descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        rule = struct.pack("=Qi", rights if is_folder else rights & ~READ_FOLDER, descriptor)
        if libc.syscall(ADD_RULE, ruleset, BENEATH_PATH, rule, 0):
            raise OSError(f"Landlock refuses the rule for {path} ({os.strerror(ctypes.get_errno())})")
        os.close(descriptor)
    if libc.syscall(RESTRICT_SELF, ruleset, 0):
        raise OSError(f"Landlock refuses to restrict the process ({os.strerror(ctypes.get_errno())})")
    os.close(ruleset)


def control(libc: ctypes.CDLL, what: str, operation: int, *values: int) -> None:
    arguments = [ctypes.c_ulong(value) for value in (*values, 0, 0, 0, 0)[:4]]
    if libc.prctl(ctypes.c_int(operation), *arguments):
        raise OSError(f"the kernel refuses {what} ({os.strerror(ctypes.get_errno())})")


if __name__ == "__main__":
    main()
