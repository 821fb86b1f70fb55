"""Which system calls a sandboxed program may make, as a seccomp filter: classic BPF over a call's number and arguments.

A list of what is allowed: memory, the clock, files by way of `open` (which files is Landlock's business). There is no
call in it that makes a process or a thread, a socket, a signal to another process, a link, a folder, a change of
rights, owners, times or limits, or another program. Whatever is not in the list fails with EPERM, so that Python raises
PermissionError and the program goes on; a call in the convention of another architecture ends it.

`open` may not truncate what it does not open for writing: Landlock's first version (Linux 5.13) does not see that.

Sources: Linux, seccomp(2) and Documentation/userspace-api/seccomp_filter.rst; numbers of arch/x86/entry/syscalls and
include/uapi/asm-generic/unistd.h.
"""

import struct
from dataclasses import dataclass

X86_64 = {
    "read": 0, "write": 1, "open": 2, "close": 3, "stat": 4, "fstat": 5, "lstat": 6, "lseek": 8, "mmap": 9,
    "mprotect": 10, "munmap": 11, "brk": 12, "rt_sigaction": 13, "rt_sigprocmask": 14, "rt_sigreturn": 15,
    "ioctl": 16, "pread64": 17, "pwrite64": 18, "readv": 19, "writev": 20, "access": 21, "sched_yield": 24,
    "mremap": 25, "madvise": 28, "dup": 32, "dup2": 33, "nanosleep": 35, "getpid": 39, "exit": 60, "uname": 63,
    "fcntl": 72, "ftruncate": 77, "getcwd": 79, "unlink": 87, "readlink": 89, "gettimeofday": 96, "getrusage": 98,
    "sysinfo": 99, "times": 100, "getuid": 102, "getgid": 104, "geteuid": 107, "getegid": 108, "getppid": 110,
    "sigaltstack": 131, "gettid": 186, "time": 201, "futex": 202, "sched_getaffinity": 204, "getdents64": 217,
    "restart_syscall": 219, "clock_gettime": 228, "clock_getres": 229, "clock_nanosleep": 230, "exit_group": 231,
    "openat": 257, "newfstatat": 262, "unlinkat": 263, "readlinkat": 267, "faccessat": 269, "set_robust_list": 273,
    "dup3": 292, "getrandom": 318, "statx": 332, "rseq": 334, "faccessat2": 439,
}  # fmt: skip
AARCH64 = {
    "getcwd": 17, "dup": 23, "dup3": 24, "fcntl": 25, "ioctl": 29, "unlinkat": 35, "ftruncate": 46, "faccessat": 48,
    "openat": 56, "close": 57, "getdents64": 61, "lseek": 62, "read": 63, "write": 64, "readv": 65, "writev": 66,
    "pread64": 67, "pwrite64": 68, "readlinkat": 78, "newfstatat": 79, "fstat": 80, "exit": 93, "exit_group": 94,
    "futex": 98, "set_robust_list": 99, "nanosleep": 101, "clock_gettime": 113, "clock_getres": 114,
    "clock_nanosleep": 115, "sched_getaffinity": 123, "sched_yield": 124, "restart_syscall": 128, "sigaltstack": 132,
    "rt_sigaction": 134, "rt_sigprocmask": 135, "rt_sigreturn": 139, "times": 153, "uname": 160, "getrusage": 165,
    "gettimeofday": 169, "getpid": 172, "getppid": 173, "getuid": 174, "geteuid": 175, "getgid": 176, "getegid": 177,
    "gettid": 178, "sysinfo": 179, "brk": 214, "munmap": 215, "mremap": 216, "mmap": 222, "mprotect": 226,
    "madvise": 233, "getrandom": 278, "statx": 291, "rseq": 293, "faccessat2": 439,
}  # fmt: skip
"""Number of every call that is allowed, by architecture"""


@dataclass(frozen=True)
class Architecture:
    """How one processor names its system calls."""

    audit: int
    """AUDIT_ARCH of `linux/audit.h`: the machine's ELF number, 64 bits, little endian"""
    calls: dict[str, int]


ARCHITECTURES = {"x86_64": Architecture(0xC000003E, X86_64), "aarch64": Architecture(0xC00000B7, AARCH64)}
"""By what `platform.machine()` says"""

ALLOW = 0x7FFF0000
REFUSE = 0x00050001
"""fail with EPERM"""
KILL = 0x80000000
"""the whole process"""

OPEN_FLAGS_ARGUMENT = {"open": 1, "openat": 2}
COMMANDS = {
    "fcntl": (0, 1, 2, 3, 4, 1030),  # duplicate, descriptor flags, status flags; not whom to signal
    "ioctl": (0x5401, 0x5413, 0x5450, 0x5451),  # is it a terminal, how wide, close on exec
}
"""Of calls that do many things, those that are allowed: values of the second argument"""
_ACCESS_MODE = 3
_TRUNCATE = 0o1000

_LOAD, _EQUAL, _ANY_BIT, _AND, _RETURN = 0x20, 0x15, 0x45, 0x54, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
"""Offsets in `struct seccomp_data`"""
Instruction = tuple[int, int, int, int]
"""Code, how many instructions to skip where it holds and where not, operand"""


def program(architecture: Architecture) -> list[Instruction]:
    """The filter's instructions. Every call has a block that ends in a verdict; a number without one falls through."""
    steps: list[Instruction] = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, architecture.audit),
        (_RETURN, 0, 0, KILL),
        (_LOAD, 0, 0, _NUMBER),
    ]
    for name, number in architecture.calls.items():
        block = _block(name)
        steps += [(_EQUAL, 0, len(block), number), *block]
    return [*steps, (_RETURN, 0, 0, REFUSE)]


def packed(steps: list[Instruction]) -> bytes:
    """As the kernel reads them: an array of `struct sock_filter`."""
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


def _block(name: str) -> list[Instruction]:
    if name in OPEN_FLAGS_ARGUMENT:
        flags = (_LOAD, 0, 0, _ARGUMENTS + 8 * OPEN_FLAGS_ARGUMENT[name])
        return [
            flags,
            (_AND, 0, 0, _ACCESS_MODE),
            (_EQUAL, 5, 0, 3),  # neither for reading nor for writing, which Landlock takes for no access at all
            (_EQUAL, 0, 3, 0),
            flags,
            (_ANY_BIT, 2, 0, _TRUNCATE),
            (_RETURN, 0, 0, ALLOW),
            (_RETURN, 0, 0, ALLOW),
            (_RETURN, 0, 0, REFUSE),
        ]
    if name in COMMANDS:
        allowed = COMMANDS[name]
        tests = [(_EQUAL, len(allowed) - place, 0, command) for place, command in enumerate(allowed)]
        load = (_LOAD, 0, 0, _ARGUMENTS + 8)
        return [load, *tests, (_RETURN, 0, 0, REFUSE), (_RETURN, 0, 0, ALLOW)]
    return [(_RETURN, 0, 0, ALLOW)]
