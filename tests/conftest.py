"""Shapes in annotations are checked and fresh memory is filled with NaN while testing."""

from collections.abc import Iterator

import pytest
import torch
from jaxtyping import install_import_hook

with install_import_hook(["delayssm.system", "delayssm.layers"], "beartype.beartype"):
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
