"""The vectors on CPUs without AVX-512: the same tests, compiled for other processors, each in a process of its own."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TESTS = [
    "tests/delayssm/backends/test_echoes.py",
    "tests/delayssm/backends/test_fft.py",
    "tests/delayssm/system/test_convolution.py",
    "tests/delayssm/system/test_mixing.py",
]
#: Names and features as LLVM knows them: registers of 256 bits with fused products, and of 128 bits without.
TARGETS = {"haswell": "+sse4.2,+avx,+avx2,+fma,+bmi,+bmi2,+lzcnt,+popcnt", "x86-64": ""}


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="these are x86 processors")
@pytest.mark.parametrize("target", TARGETS)
def test_other_processors(target: str, tmp_path: Path) -> None:
    environment = os.environ | {
        "NUMBA_CPU_NAME": target,
        "NUMBA_CPU_FEATURES": TARGETS[target],
        "NUMBA_CACHE_DIR": str(tmp_path),
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:]
