"""The C library's allocator as cells are trained with it (`paribus.launch.local.MALLOC_TUNABLES`), here.

Large buffers stay in the heap between updates. Otherwise each is taken from the system and given back, and part of what
is timed is the system handing out pages.
"""

import ctypes
import os

TRIM_THRESHOLD, MMAP_MAX = -1, -4
"""names of mallopt's parameters in glibc's malloc.h"""
NEVER = 2**31 - 1


def keep_buffers() -> bool:
    """Whether buffers stay in the heap from now on. Not where the user has set the C library's variable, which workers
    then have too, nor where the C library is another one."""
    if "GLIBC_TUNABLES" in os.environ:
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return bool(mallopt(MMAP_MAX, 0)) and bool(mallopt(TRIM_THRESHOLD, NEVER))
