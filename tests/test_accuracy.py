"""Deep and long: the FFT pass against the recurrence at the size of the paper's appendix C.3."""

import pytest
import torch

from delayssm import DS4D, S4D, Block, Stack
from tests.helpers import relative_rms


@pytest.mark.parametrize("length", [1024, 2048, 4096, 8192])
@torch.no_grad()
def test_four_blocks(length: int) -> None:
    stack = Stack(Block(DS4D(256, 64, length)) for _ in range(4)).eval()
    x = torch.randn(1, length, 256)
    recurrent, _ = stack.stream(x, stack.init_state(1))
    assert relative_rms(stack(x), recurrent) <= 1e-6


@torch.no_grad()
def test_four_blocks_of_s4d() -> None:
    stack = Stack(Block(S4D(256, 64)) for _ in range(4)).eval()
    x = torch.randn(1, 8192, 256)
    recurrent, _ = stack.stream(x, stack.init_state(1))
    assert relative_rms(stack(x), recurrent) <= 1e-6
