"""Tests of layers that begin as others: from official weights, and a delay layer from a trained S4D layer."""

import math
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from delayssm import DS4D, S4D, Block, Stack
from delayssm.layers import official

H, N = 6, 8


@pytest.fixture
def weights() -> Iterator[dict[str, Tensor]]:
    """Return weights with the names, shapes and initial values of the official layer, a little trained."""
    with torch.random.fork_rng():
        torch.manual_seed(3)
        yield {
            "D": torch.randn(H),
            "kernel.C": torch.randn(H, N // 2, 2),
            "kernel.log_dt": torch.empty(H).uniform_(math.log(1e-3), math.log(1e-1)),
            "kernel.log_A_real": math.log(0.5) + 0.1 * torch.randn(H, N // 2),
            "kernel.A_imag": math.pi * torch.arange(N // 2).float() + 0.1 * torch.randn(H, N // 2),
            "output_linear.0.weight": torch.randn(2 * H, H, 1) / H**0.5,
            "output_linear.0.bias": torch.randn(2 * H),
        }


def published_kernel(weights: dict[str, Tensor], length: int) -> Tensor:
    """Return 2 Re sum_n C_n (e^(dt A_n) - 1) / A_n e^(dt A_n l), as the S4D paper defines it, in complex128."""
    dt = weights["kernel.log_dt"].double().exp()[:, None]
    A = torch.complex(-weights["kernel.log_A_real"].double().exp(), weights["kernel.A_imag"].double())
    C = torch.view_as_complex(weights["kernel.C"].double())
    powers = torch.exp((dt * A)[..., None] * torch.arange(length))
    return 2 * torch.einsum("hn,hnl->hl", C * (torch.exp(dt * A) - 1) / A, powers).real


def test_the_kernel_is_the_published_one(weights: dict[str, Tensor]) -> None:
    layer = S4D.from_official(weights)
    expected = published_kernel(weights, 2000)
    error = (layer.ssm.kernel(2000).double() - expected).abs().max() / expected.abs().max()
    assert error < 2e-6  # float32: the step size is stored differently
    wide = S4D.from_official({name: t.double() for name, t in weights.items()})
    torch.testing.assert_close(wide.ssm.kernel(2000), expected, rtol=0, atol=1e-8 * float(expected.abs().max()))


@torch.no_grad()
def test_the_outputs_are_those_of_the_published_layer(weights: dict[str, Tensor]) -> None:
    weights = {name: t.double() for name, t in weights.items()}
    layer, x = S4D.from_official(weights).eval(), torch.randn(2, 300, H, dtype=torch.float64)
    K = published_kernel(weights, 300)
    y = torch.stack([torch.einsum("hs,bsh->bh", K[:, : t + 1].flip(1), x[:, : t + 1]) for t in range(300)], 1)
    mixed = nn.functional.conv1d(
        nn.functional.gelu(y + weights["D"] * x).transpose(1, 2),
        weights["output_linear.0.weight"],
        weights["output_linear.0.bias"],
    )
    expected = nn.functional.glu(mixed, dim=1).transpose(1, 2)
    torch.testing.assert_close(layer(x), expected, rtol=0, atol=1e-8)


def test_a_layer_inside_a_model(weights: dict[str, Tensor]) -> None:
    inside = {f"s4_layers.1.{name}": t for name, t in weights.items()} | {"encoder.weight": torch.zeros(1)}
    layer = S4D.from_official(inside, "s4_layers.1.", dropout=0.25)
    assert layer.config == S4D(H, N, input="absorbed", dropout=0.25).config
    assert torch.equal(layer.ssm.C[0], weights["kernel.C"])
    with pytest.raises(ValueError, match=r"D, kernel\.C, .* is missing; there are such layers at 's4_layers\.1\.'"):
        S4D.from_official(inside)


def test_weights_of_other_layers_are_refused(weights: dict[str, Tensor]) -> None:
    with pytest.raises(ValueError, match=r"not weights of the official S4D layer: kernel\.A_imag is missing"):
        S4D.from_official({name: t for name, t in weights.items() if name != "kernel.A_imag"})
    with pytest.raises(ValueError, match=r"kernel\.C must have shape \(6, 4, 2\), not \(1, 6, 4, 2\)"):
        official.translate(weights | {"kernel.C": weights["kernel.C"][None]})


OPTIONS = [{}, {"n_ssm": 2}, {"bidirectional": True}, {"input": "absorbed"}, {"init": "inv"}]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("echo", [0.01, 0.1, 0.5])
@torch.no_grad()
def test_a_delay_layer_keeps_what_s4d_has_learned(options: dict[str, object], echo: float) -> None:
    torch.manual_seed(0)
    layer = S4D(H, N, dtype=torch.float64, **options)  # type: ignore[arg-type]
    new = DS4D.from_s4d(layer, max_delay=100, echo=echo)
    before, after = layer.ssm.discretize(), new.ssm.discretize()
    for name in ("lam", "b", "c"):
        torch.testing.assert_close(getattr(after, name), getattr(before, name), rtol=1e-12, atol=0)
    gain = after.mu.abs() / (1 - after.lam.abs())
    assert float(gain.max()) <= echo
    assert float(gain.min()) > echo * 0.9  # the decay of a step is small
    assert torch.equal(new.linear.weight, layer.linear.weight)
    # The promise itself: each mode at each frequency.
    z = torch.exp(1j * torch.linspace(0, math.pi, 500, dtype=torch.float64))[:, None, None]
    k, alpha = after.k[:, None], after.alpha[:, None]
    delayed = after.mu * ((1 - alpha) * z**-k + alpha * z ** -(k + 1))
    change = (1 - before.lam / z) / (1 - after.lam / z - delayed) - 1
    assert float(change.abs().max()) <= echo / (1 - echo) * (1 + 1e-9)


@torch.no_grad()
def test_the_change_vanishes_with_the_echo() -> None:
    torch.manual_seed(0)
    layer, x = S4D(32, 16, dtype=torch.float64), torch.randn(4, 1000, 32, dtype=torch.float64)
    y = layer.ssm(x)
    changes = []
    for echo in (1e-3, 1e-2, 1e-1):
        new = DS4D.from_s4d(layer, max_delay=500, echo=echo)
        changes.append(float((new.ssm(x) - y).norm() / y.norm()))
    assert changes[0] < 1e-3
    assert changes[2] < 0.1
    assert changes[1] / changes[0] == pytest.approx(10, rel=0.05)


def test_the_feedback_learns_as_its_echo() -> None:
    torch.manual_seed(0)
    layer, x = S4D(8, 8, dtype=torch.float64), torch.randn(2, 200, 8, dtype=torch.float64)
    sizes = []
    for echo in (1e-3, 1e-1):
        torch.manual_seed(1)
        new = DS4D.from_s4d(layer, max_delay=50, echo=echo)
        new(x).square().sum().backward()
        assert new.ssm.nu_tau.grad is not None
        sizes.append(float(new.ssm.nu_tau.grad.norm()))
    assert sizes[1] / sizes[0] == pytest.approx(100, rel=0.3)


def test_layers_of_a_model_are_replaced() -> None:
    stack = Stack([Block(S4D(H, N)) for _ in range(2)]).double().eval()
    for block in stack.blocks:
        block.layer = DS4D.from_s4d(block.layer, max_delay=20)
    assert all(block.layer.ssm.D.dtype == torch.float64 and not block.layer.training for block in stack.blocks)
    again = stack.config.build()
    again.double().load_state_dict(stack.state_dict())
    x = torch.randn(1, 30, H, dtype=torch.float64)
    assert torch.equal(again.eval()(x), stack(x))


def test_what_cannot_become_a_delay_layer() -> None:
    with pytest.raises(TypeError, match="layer must be"):
        DS4D.from_s4d(DS4D(4, 4), max_delay=10)  # type: ignore[arg-type]
    for echo in (0.0, 1.0, math.nan):
        with pytest.raises(ValueError, match=r"echo must lie inside \(0, 1\)"):
            DS4D.from_s4d(S4D(4, 4), max_delay=10, echo=echo)
