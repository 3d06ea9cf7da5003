"""The C allocator of processes that train."""

import ctypes
import platform

#: From <malloc.h>: blocks above the first size are mapped from the system one by one, and free memory above the second
#: goes back to it.
_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD = -3, -1
_LARGEST = (1 << 31) - 1


def keep_freed_memory() -> bool:
    """Let the C allocator keep large freed blocks, and return whether it could.

    By default glibc returns them to the system at once, then fetches and clears new pages for the activations of the
    next layer, which can take as long as the computation itself. Call this once in a program that trains. On systems
    without glibc it does nothing.
    """
    if platform.system() != "Linux" or platform.libc_ver()[0] != "glibc":
        return False
    libc = ctypes.CDLL(None)
    return all(libc.mallopt(option, _LARGEST) for option in (_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD))
