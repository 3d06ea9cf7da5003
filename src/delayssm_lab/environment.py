"""The machine and the software that this process runs on."""

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

import torch

Device = Literal["cpu", "cuda"]


def best_device() -> Device:
    """Return "cuda" if torch can use a GPU here, otherwise "cpu"."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def require_device(device: Device) -> None:
    """Raise an error if torch cannot use the device here."""
    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError(
            "there is no CUDA GPU here that this torch can use; measure on the CPU, or install a CUDA torch"
        )


def available_cores() -> int:
    """Return the number of cores that this process may run on, which can be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def synchronize(device: Device) -> None:
    """Wait until the device has finished all its work, so that the clock can be read."""
    if device == "cuda":
        torch.cuda.synchronize()


def peak_memory(device: Device = "cpu") -> int:
    """Return the largest resident set of this process so far, or its largest allocation on the GPU, in bytes."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated()
    status = Path("/proc/self/status")
    if status.exists():  # on Linux, getrusage includes the peak of the parent process before the fork
        (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    import resource

    unit = 1 if platform.system() == "Darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def total_memory() -> int:
    """Return the memory of this machine, or of its GPU if that has more, in bytes."""
    import psutil

    gpu = torch.cuda.get_device_properties(0).total_memory if torch.cuda.is_available() else 0
    return max(gpu, int(psutil.virtual_memory().total))


def describe() -> dict[str, str]:
    """Return the versions, backend, threads and machine of this process: all that results depend on."""
    from delayssm.backends import backend

    packages = {name: _version(name) for name in ("delayssm", "torch", "numba", "numpy")}
    return {
        **packages,
        "revision": revision(),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "machine": _machine(),
        "backend": backend(),
        "threads": str(torch.get_num_threads()),
        "cuda": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
    }


def revision() -> str:
    """Return the commit of the checkout that this code is in, with "-dirty" if code has changed since."""
    source = Path(__file__).parents[1]

    def git(*command: str) -> str:
        done = subprocess.run(["git", "-C", str(source), *command], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    try:
        # Only the code matters: results are written all the time.
        return git("rev-parse", "--short=12", "HEAD") + ("-dirty" if git("status", "--porcelain", ".") else "")
    except (OSError, subprocess.CalledProcessError):
        return "not a checkout"


def _machine() -> str:
    """Return the model name of the CPU, and the vectors that torch uses on it."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    name = names[0] if names else platform.processor() or platform.machine()
    return f"{name}, {torch.backends.cpu.get_cpu_capability()}"


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
