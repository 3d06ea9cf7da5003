"""The C allocator of processes that train."""

import ctypes
import platform

#: From <malloc.h>: how many blocks may be mapped from the system one by one; and how much free memory is kept, where
#: -1 is all.
_M_MMAP_MAX, _M_TRIM_THRESHOLD = -4, -1


def keep_freed_memory() -> bool:
    """Let the C allocator keep large freed blocks, and return whether it could.

    By default glibc returns them to the system at once, then fetches and clears new pages for the activations of the
    next layer, which can take as long as the computation itself. Call this once in a program that trains. On systems
    without glibc it does nothing.

    >>> kept = keep_freed_memory()
    """
    if platform.system() != "Linux" or platform.libc_ver()[0] != "glibc":
        return False
    libc = ctypes.CDLL(None)
    return all(libc.mallopt(option, value) for option, value in ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, -1)))
