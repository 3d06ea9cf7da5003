"""While testing, shapes in annotations are checked and fresh memory is filled with NaN.

Shapes are checked where the mathematics is. What users call has errors of its own, which a type checker in front
would hide from the tests.
"""

from collections.abc import Iterator

import pytest
import torch
from jaxtyping import install_import_hook

MATHEMATICS = ["convolution", "fft", "kernel", "padding", "pairs", "parameters", "recurrence"]

with install_import_hook([f"delayssm.system.{name}" for name in MATHEMATICS], "beartype.beartype"):
    import delayssm


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
