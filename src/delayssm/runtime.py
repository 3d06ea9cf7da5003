"""What this process runs on, and how it treats memory."""

import ctypes
import platform
from importlib.metadata import PackageNotFoundError, version

import torch

#: From <malloc.h>: sizes above the threshold get pages of their own; free memory above the other goes back.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LARGEST = (1 << 31) - 1


def keep_freed_memory() -> bool:
    """Let the C allocator keep large freed blocks, for processes that train. Says whether it could.

    By default glibc returns them to the system at once, and fetches and clears new pages for the next layer's
    activations, which can take as long as the computation itself. Other systems are left alone.
    """
    if platform.system() != "Linux" or platform.libc_ver()[0] != "glibc":
        return False
    libc = ctypes.CDLL(None)
    return all(libc.mallopt(option, _LARGEST) for option in (_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD))


def describe() -> dict[str, str]:
    """Versions, backend and threads: all that decides how results come about."""
    from delayssm.backends import backend

    packages = {name: _version(name) for name in ("delayssm", "torch", "numba", "numpy")}
    return {
        **packages,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "backend": backend(),
        "threads": str(torch.get_num_threads()),
        "cuda": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
    }


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
