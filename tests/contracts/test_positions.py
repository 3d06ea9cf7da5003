"""Outputs at some positions are those of the whole sequence, gradients included."""

import pytest
import torch

from tests.contracts.modules import MODULES, Build, H, every_module_and_direction, make


@every_module_and_direction
@pytest.mark.parametrize("training", [False, True])
def test_outputs_at_some_positions_are_those_of_the_whole(build: Build, training: bool) -> None:
    module = make(build).train(training)
    x = torch.randn(3, 20, H)
    lengths = torch.tensor([20, 11, 5])
    at = torch.tensor([[19, 0, 7, 7], [10, 3, 11, 19], [4, 5, 0, 2]])  # one position twice, and some in the padding
    weights = torch.randn(3, 4, H)
    results = []
    for some in (True, False):
        torch.manual_seed(2)  # dropout
        module.zero_grad()
        inputs = x.clone().requires_grad_()
        y = module(inputs, lengths, at) if some else module(inputs, lengths)[torch.arange(3)[:, None], at]
        (y * weights).sum().backward()
        results.append([y, inputs.grad, *(p.grad for p in module.parameters())])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)
    assert results[0][0][1, 2:].eq(0).all()


def test_wrong_positions_are_refused() -> None:
    module, x = make(MODULES["Stack"]), torch.randn(2, 5, H)
    with pytest.raises(ValueError, match="a row for each of the 2 rows"):
        module(x, at=torch.zeros(3, 1, dtype=torch.int64))
    with pytest.raises(ValueError, match="whole numbers"):
        module(x, at=torch.zeros(2, 1))
    with pytest.raises(ValueError, match="between 0 and 4, not -1 and 0"):
        module(x, at=torch.tensor([[0], [-1]]))
    with pytest.raises(ValueError, match="between 0 and 4, not 0 and 5"):
        module(x, at=torch.tensor([[0], [5]]))
