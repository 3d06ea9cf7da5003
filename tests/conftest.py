"""Settings and fixtures of all tests: annotated shapes are checked, and uninitialised memory is filled with NaN.

Shapes are checked in the mathematical modules only. What users call has errors of its own, which a type checker in
front of it would hide from the tests.
"""

import os
from collections.abc import Iterator
from pathlib import Path

# Several tests run at once, so threads that have nothing to do must not keep a core busy. Read when torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import pytest
import torch
from hypothesis import settings
from jaxtyping import install_import_hook

settings.register_profile("untimed", deadline=None)  # the machine may be busy
settings.load_profile("untimed")

os.environ["TRITON_INTERPRET"] = "1"  # GPU kernels run on CPU tensors; read when triton is imported
MATHEMATICS = ["convolution", "kernel", "mixing", "pairs", "parameters", "recurrence", "spans"]

with install_import_hook([f"delayssm.system.{name}" for name in MATHEMATICS], "beartype.beartype"):
    import delayssm


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what tests recorded as "shown", because output of worker processes is lost."""
    for report in terminalreporter.getreports("passed"):
        for text in (value for name, value in report.user_properties if name == "shown"):
            terminalreporter.write_line(f"\n{text}")


@pytest.fixture(autouse=True)
def _deterministic() -> Iterator[None]:
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)  # also fills uninitialised memory with NaN
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture(params=["eager", "numba"])
def backend(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run the test once with each backend for CPUs."""
    with delayssm.backend(request.param) as name:
        yield str(name)


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Use one thread in tests that train, because several run at once and would wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory in which every data set is prepared, with a few dozen samples of noise."""
    from tests.support.prepared import prepare_all  # after the hook above

    prepare_all(tmp_path / "data", monkeypatch)
    return tmp_path / "data"
