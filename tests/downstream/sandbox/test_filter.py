"""The filter of system calls, run by an interpreter of classic BPF that is written here from its definition."""

import re
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paribus.downstream.sandbox_filter import ARCHITECTURES, packed, program

ALLOW, REFUSE, KILL = 0x7FFF0000, 0x00050001, 0x80000000
READ_ONLY, WRITE_ONLY, READ_WRITE, NEITHER, CREATE, TRUNCATE = 0, 1, 2, 3, 0o100, 0o1000
FORBIDDEN = {
    "x86_64": {
        "socket": 41, "clone": 56, "fork": 57, "vfork": 58, "execve": 59, "kill": 62, "truncate": 76, "rename": 82,
        "mkdir": 83, "link": 86, "symlink": 88, "chmod": 90, "chown": 92, "ptrace": 101, "prctl": 157,
        "setrlimit": 160, "mount": 165, "tkill": 200, "tgkill": 234, "openat2": 437, "unshare": 272,
        "prlimit64": 302, "process_vm_writev": 311, "memfd_create": 319, "bpf": 321, "execveat": 322,
        "pidfd_send_signal": 424, "io_uring_setup": 425, "clone3": 435,
    },
    "aarch64": {
        "mknodat": 33, "mkdirat": 34, "symlinkat": 36, "linkat": 37, "renameat": 38, "mount": 40, "truncate": 45,
        "fchmodat": 53, "fchownat": 54, "unshare": 97, "ptrace": 117, "kill": 129, "tkill": 130, "tgkill": 131,
        "setrlimit": 164, "prctl": 167, "socket": 198, "clone": 220, "execve": 221, "prlimit64": 261,
        "process_vm_writev": 271, "memfd_create": 279, "bpf": 280, "execveat": 281, "pidfd_send_signal": 424,
        "io_uring_setup": 425, "clone3": 435, "openat2": 437,
    },
}  # fmt: skip
HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}
every_architecture = pytest.mark.parametrize("machine", sorted(ARCHITECTURES))


def verdict(machine: str, number: int, arguments: tuple[int, ...] = (), audit: int | None = None) -> int:
    """What the kernel would do: an accumulator, the packed instructions, and `struct seccomp_data`."""
    architecture = ARCHITECTURES[machine]
    values = (*arguments, 0, 0, 0, 0, 0, 0)[:6]
    data = struct.pack("<iIQ6Q", number, architecture.audit if audit is None else audit, 0, *values)
    steps = list(struct.iter_unpack("=HBBI", packed(program(architecture))))
    accumulator, place = 0, 0
    while True:
        code, if_true, if_false, operand = steps[place]
        place += 1
        match code:
            case 0x20:  # BPF_LD | BPF_W | BPF_ABS
                [accumulator] = struct.unpack_from("<I", data, operand)
            case 0x54:  # BPF_ALU | BPF_AND | BPF_K
                accumulator &= operand
            case 0x15:  # BPF_JMP | BPF_JEQ | BPF_K
                place += if_true if accumulator == operand else if_false
            case 0x45:  # BPF_JMP | BPF_JSET | BPF_K
                place += if_true if accumulator & operand else if_false
            case 0x06:  # BPF_RET | BPF_K
                return operand
            case _:
                raise AssertionError(f"unknown instruction {code:#x}")


@every_architecture
def test_every_listed_call_is_allowed_with_harmless_arguments(machine: str) -> None:
    harmless = {"ioctl": (0, 0x5401)}
    for name, number in ARCHITECTURES[machine].calls.items():
        assert verdict(machine, number, harmless.get(name, ())) == ALLOW, name


@every_architecture
def test_what_reaches_beyond_the_process_is_refused(machine: str) -> None:
    for name, number in FORBIDDEN[machine].items():
        assert verdict(machine, number) == REFUSE, name


@every_architecture
@given(number=st.integers(-(2**31), 2**31 - 1), arguments=st.tuples(*[st.integers(0, 2**64 - 1)] * 6))
def test_a_call_that_is_not_listed_is_refused_whatever_its_arguments(
    machine: str, number: int, arguments: tuple[int, ...]
) -> None:
    if number not in ARCHITECTURES[machine].calls.values():
        assert verdict(machine, number, arguments) == REFUSE


def test_calls_of_the_32_bit_convention_within_64_bits_are_refused() -> None:
    for number in ARCHITECTURES["x86_64"].calls.values():
        assert verdict("x86_64", number | 0x40000000) == REFUSE


@every_architecture
def test_a_call_of_another_architecture_ends_the_process(machine: str) -> None:
    for audit in (0x40000003, 0x40000028, *(a.audit for m, a in ARCHITECTURES.items() if m != machine)):
        assert verdict(machine, 0, audit=audit) == KILL


@every_architecture
@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (READ_ONLY, ALLOW),
        (WRITE_ONLY, ALLOW),
        (READ_WRITE, ALLOW),
        (READ_ONLY | CREATE, ALLOW),
        (WRITE_ONLY | CREATE | TRUNCATE, ALLOW),
        (READ_WRITE | TRUNCATE, ALLOW),
        (READ_ONLY | TRUNCATE, REFUSE),
        (READ_ONLY | TRUNCATE | CREATE, REFUSE),
        (NEITHER, REFUSE),
        (NEITHER | TRUNCATE, REFUSE),
    ],
)
def test_a_file_is_emptied_only_where_it_is_opened_for_writing(machine: str, flags: int, expected: int) -> None:
    calls = ARCHITECTURES[machine].calls
    assert verdict(machine, calls["openat"], (0, 0, flags)) == expected
    if "open" in calls:
        assert verdict(machine, calls["open"], (0, flags)) == expected


@every_architecture
def test_descriptors_cannot_be_made_to_signal_and_terminals_cannot_be_typed_into(machine: str) -> None:
    calls = ARCHITECTURES[machine].calls
    set_owner, set_signal, lock, pipe_size = 8, 10, 6, 1031
    for command in (set_owner, set_signal, lock, pipe_size):
        assert verdict(machine, calls["fcntl"], (0, command)) == REFUSE
    type_into, lines_of_terminal = 0x5412, 0x5414
    for command in (type_into, lines_of_terminal):
        assert verdict(machine, calls["ioctl"], (0, command)) == REFUSE


@every_architecture
def test_numbers_are_those_of_the_kernel_headers(machine: str) -> None:
    header = HEADERS[machine]
    if not header.exists():
        pytest.skip(f"no {header}")
    found = dict(re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)\b", header.read_text()))
    aliases = {"newfstatat": "fstatat"} if machine == "aarch64" else {}
    listed = ARCHITECTURES[machine].calls | FORBIDDEN[machine]
    assert {name: int(found[aliases.get(name, name)]) for name in listed} == listed
