"""GELU, dropout, linear and GLU as one operation, against the four of torch."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from delayssm import DS4D
from delayssm.backends import numba_mix
from delayssm.layers import layer as layer_module
from delayssm.system.mixing import _mix, mix
from tests.support.numerics import relative_rms


def _plain(y: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    bent = F.gelu(y) if mask is None else F.gelu(y) * mask
    return F.glu(F.linear(bent, weight, bias))


@pytest.mark.parametrize("tokens", [1, 3, 7, 4096], ids=lambda n: f"{n} at a time")
@pytest.mark.parametrize("width", [1, 16, 21, 133])
@pytest.mark.parametrize("masked", [False, True])
def test_one_operation_equals_four(
    backend: str, masked: bool, width: int, tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numba_mix, "_TOKENS", tokens)
    y, grad = 3 * torch.randn(3, 5, width), torch.randn(3, 5, width)
    weight, bias = torch.randn(2 * width, width) / width**0.5, torch.randn(2 * width)
    mask = torch.bernoulli(torch.full((3, 1, width), 0.5)) * 2 if masked else None
    ours = [t.clone().requires_grad_() for t in (y, weight, bias)]
    exact = [t.double().requires_grad_() for t in (y, weight, bias)]
    results = mix(*ours, mask), _plain(*exact, None if mask is None else mask.double())
    results[0].backward(grad)
    results[1].backward(grad.double())
    assert relative_rms(results[0], results[1]) <= 1e-6
    for a, b, size in zip(ours, exact, _sizes(exact, mask, grad), strict=True):
        assert (a.grad - b.grad).norm() <= 1e-6 * size


def _sizes(exact: list[torch.Tensor], mask: torch.Tensor | None, grad: torch.Tensor) -> list[torch.Tensor]:
    """Return the norms that gradients have on average if what tokens add to them has random signs.

    The sum itself may be small by chance, and its rounding errors are not.
    """
    y, weight, bias = (t.detach().requires_grad_() for t in exact)
    result = _plain(y, weight, bias, None if mask is None else mask.double())
    squares = torch.zeros(3, dtype=torch.float64)
    for token in range(y.shape[0] * y.shape[1]):
        chosen = torch.zeros_like(y).flatten(0, 1)
        chosen[token] = grad.double().flatten(0, 1)[token]
        parts = torch.autograd.grad(result, (y, weight, bias), chosen.view_as(y), retain_graph=True)
        squares += torch.stack([part.square().sum() for part in parts])
    return list(squares.sqrt())


def test_extreme_gates(backend: str) -> None:
    """Infinite and missing values come out as with torch, so that a divergence can be seen."""
    bias = torch.tensor([88.0, 1e4, 1e30, -88.0, -1e4, -1e30, 0.0, float("inf"), -float("inf"), float("nan")] * 2)
    bias = torch.cat([torch.ones(20), bias])
    y, weight = torch.zeros(1, 1, 20), torch.zeros(40, 20)
    torch.testing.assert_close(mix(y, weight, bias, None), _plain(y, weight, bias, None), equal_nan=True)


@pytest.mark.parametrize("masked", [False, True])
def test_gradients(backend: str, masked: bool) -> None:
    shapes = [(2, 3, 4), (8, 4), (8,)]
    inputs = [torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    mask = torch.rand(2, 1, 4, dtype=torch.float64) if masked else None
    assert torch.autograd.gradcheck(lambda *t: mix(*t, mask), inputs)


def test_operator_registrations() -> None:
    inputs = [torch.randn(*shape, requires_grad=True) for shape in [(2, 3, 4), (8, 4), (8,)]]
    torch.library.opcheck(_mix, (*inputs, None))
    torch.library.opcheck(_mix, (*inputs, torch.rand(2, 1, 4)))


class _Traced(nn.Linear):
    """A linear map that does something of its own."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + 1


def test_a_changed_linear_map_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a user has put in place of the linear map, or hung on it, is used."""

    def never(*_: object) -> torch.Tensor:
        raise AssertionError("the fused operation does not know of this change")

    layer, x = DS4D(16, d_state=4, max_delay=8), torch.randn(2, 9, 16)
    expected = layer(x)
    monkeypatch.setattr(layer_module, "mix", never)
    with pytest.raises(AssertionError):
        layer(x)
    with torch.autocast("cpu", torch.bfloat16):
        assert relative_rms(layer(x), expected) <= 2e-2
    with torch.no_grad():
        assert relative_rms(layer(x), expected) <= 1e-6
    handle = layer.linear.register_forward_hook(lambda module, inputs, output: 0 * output)
    assert not bool(layer(x).any())
    handle.remove()
    linear = layer.linear
    layer.linear = _Traced(16, 32)
    layer.linear.load_state_dict(linear.state_dict())
    assert not torch.allclose(layer(x), expected)
    layer.linear = nn.Linear(16, 32, bias=False)
    assert layer(x).shape == x.shape
