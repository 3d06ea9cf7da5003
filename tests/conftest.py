"""While testing, shapes in annotations are checked and fresh memory is filled with NaN.

Shapes are checked where the mathematics is. What users call has errors of its own, which a type checker in front
would hide from the tests.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from jaxtyping import install_import_hook

os.environ["TRITON_INTERPRET"] = "1"  # GPU kernels run on CPU tensors; read when triton is imported
MATHEMATICS = ["convolution", "fft", "kernel", "pairs", "parameters", "recurrence", "spans"]

with install_import_hook([f"delayssm.system.{name}" for name in MATHEMATICS], "beartype.beartype"):
    import delayssm


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what tests have recorded as "shown"; what they print themselves would be lost in their processes."""
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
    before = delayssm.backend()
    yield delayssm.backend(request.param)
    delayssm.backend(before)


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """For tests that train: several run at once, and threads that wait for each other cost most of the time."""
    import numba

    before = torch.get_num_threads(), numba.get_num_threads()
    torch.set_num_threads(1)
    numba.set_num_threads(1)
    yield
    torch.set_num_threads(before[0])
    numba.set_num_threads(before[1])


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where every data set is prepared, with a few dozen samples of noise."""
    from tests.support.prepared import prepare_all  # after the hook above

    prepare_all(tmp_path / "data", monkeypatch)
    return tmp_path / "data"
