"""The FFT pass against the recurrence in deep models of long sequences, at the size of the paper's appendix C.3."""

import pytest
import torch

from delayssm import DS4D, S4D, Block, Stack
from tests.support.numerics import relative_rms


@pytest.mark.parametrize("bounded", [False, True], ids=["rings", "smaller of both"])
@pytest.mark.parametrize("length", [1024, 2048, 4096, 8192])
@torch.no_grad()
def test_four_blocks(length: int, bounded: bool) -> None:
    stack = Stack(Block(DS4D(256, 64, length)) for _ in range(4)).eval()
    x = torch.randn(1, length, 256)
    state = stack.init_state(1, length if bounded else None)
    first, state = stack.stream(x[:, :-50], state)
    decoder = stack.decoder(state)
    last = [decoder(x[:, t]).clone() for t in range(length - 50, length)]
    recurrent = torch.cat([first, torch.stack(last, 1)], 1)
    assert relative_rms(recurrent, stack(x)) <= 1e-6


@pytest.mark.parametrize("bounded", [False, True], ids=["rings", "smaller of both"])
@torch.no_grad()
def test_a_long_stream(bounded: bool) -> None:
    length = 65_536
    stack = Stack(Block(DS4D(16, 64, length)) for _ in range(4)).eval()
    x = torch.randn(1, length, 16)
    state = stack.init_state(1, length if bounded else None)
    outputs = []
    for chunk in x.split([30_000, 1, 999, 34_000, 536], 1):
        y, state = stack.stream(chunk, state)
        outputs.append(y)
    assert relative_rms(torch.cat(outputs, 1), stack(x)) <= 1e-6


@torch.no_grad()
def test_four_blocks_of_s4d() -> None:
    stack = Stack(Block(S4D(256, 64)) for _ in range(4)).eval()
    x = torch.randn(1, 8192, 256)
    recurrent, _ = stack.stream(x, stack.init_state(1))
    assert relative_rms(stack(x), recurrent) <= 1e-6
