"""Updates are timed with the allocator that cells are trained with."""

import os
import platform
import subprocess
import sys

import pytest

SCRIPT = """
import ctypes
import resource
from paribus.costing.allocator import keep_buffers
c = ctypes.CDLL(None)
c.malloc.restype, c.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
c.free.argtypes = [ctypes.c_void_p]
kept = keep_buffers() if {keep} else None
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        buffer = c.malloc(1 << 26)
        ctypes.memset(buffer, 1, 1 << 26)
        c.free(buffer)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(kept, faults())
"""


def measured(keep: bool, **variables: str) -> tuple[str, int]:
    """(what `keep_buffers` said, pages that five buffers of 64 MiB had to be given). The C library is asked for them
    itself: where torch aligns a buffer, what else the process allocates decides whether the next one fits its place."""
    environment = {name: value for name, value in os.environ.items() if name != "GLIBC_TUNABLES"} | variables
    command = [sys.executable, "-c", SCRIPT.format(keep=keep)]
    said = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout.split()
    return said[0], int(said[1])


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="the C library is not glibc, whose allocator this is about"
)
def test_buffers_that_are_kept_are_given_no_pages_again():
    kept, few = measured(keep=True)
    _, many = measured(keep=False)
    assert kept == "True"
    # 16,384 pages each, or 32 where the system hands out larger ones.
    assert few < 5 * 32 <= many


def test_an_allocator_that_the_user_has_set_stays():
    assert measured(keep=True, GLIBC_TUNABLES="glibc.malloc.trim_threshold=1000000")[0] == "False"
