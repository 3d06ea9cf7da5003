"""Tests of the compiled selective scan against that of `transformers`, which goes token by token under autograd."""

import pytest
import torch

import delayssm
from delayssm_lab.models.selective_scan import selective_scan
from delayssm_lab.models.specs import MambaSpec


@pytest.mark.parametrize(("rows", "channels", "length", "modes"), [(1, 1, 1, 1), (2, 3, 17, 5), (3, 8, 40, 16)])
@pytest.mark.parametrize("around", [True, False])
def test_outputs_and_gradients(rows: int, channels: int, length: int, modes: int, around: bool) -> None:
    from transformers.models.mamba.modeling_mamba import mamba_selective_scan

    torch.manual_seed(rows)
    signals = torch.randn(4, rows, channels, length).unbind()
    u, dt, z, weights = signals if around else (signals[0], signals[1].abs(), *signals[2:])
    A = -torch.rand(channels, modes) * 8
    B, C = torch.randn(2, rows, modes, length)
    options = {"D": torch.randn(channels), "z": z, "delta_bias": torch.randn(channels)} if around else {}
    results = []
    for scan in (selective_scan, mamba_selective_scan):
        inputs = [t.clone().requires_grad_() for t in (u, dt, A, B, C)]
        extra = {name: t.clone().requires_grad_() for name, t in options.items()}
        y = scan(*inputs, **extra, delta_softplus=around)
        (y * weights).sum().backward()
        results.append([y.detach(), *(t.grad for t in (*inputs, *extra.values()))])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5 * float(theirs.abs().max()), rtol=1e-4)


def test_strong_decay_is_zero_and_not_a_surprise() -> None:
    u = torch.ones(1, 1, 3)
    y = selective_scan(u, torch.tensor([[[1.0, 200.0, 1e-8]]]), -torch.ones(1, 1), *torch.ones(2, 1, 1, 3))
    torch.testing.assert_close(y, torch.tensor([[[1.0, 200.0, 200.0]]]))


def test_the_model_is_that_of_transformers(backend: str) -> None:
    torch.manual_seed(0)
    model = MambaSpec(d_model=8, depth=2, d_state=6).build(11, 30)
    tokens = torch.randint(0, 11, (3, 30))
    ours = model(tokens)
    theirs = model.model(input_ids=tokens, use_cache=False).logits
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)
    if backend == "eager":
        assert torch.equal(ours, theirs)
    assert delayssm.backend() == backend


def test_their_scan_is_put_back_after_an_error() -> None:
    from transformers.models.mamba import modeling_mamba

    before = modeling_mamba.mamba_selective_scan
    model = MambaSpec(d_model=8, depth=1, d_state=6).build(11, 30)
    with pytest.raises(IndexError):
        model(torch.full((1, 3), 99))
    assert modeling_mamba.mamba_selective_scan is before


@pytest.mark.parametrize("broken", range(5))
def test_nan_is_not_hidden(broken: int) -> None:
    inputs = [torch.ones(1, 2, 3), torch.ones(1, 2, 3), -torch.ones(2, 4), torch.ones(1, 4, 3), torch.ones(1, 4, 3)]
    inputs[broken].view(-1)[0] = torch.nan
    inputs = [t.requires_grad_() for t in inputs]
    y = selective_scan(*inputs)
    assert y.isnan().any()
    y.sum().backward()
    assert any(t.grad is not None and t.grad.isnan().any() for t in inputs)


def test_gradients_of_answers_long_after_the_inputs_are_zero_and_not_a_surprise() -> None:
    inputs = [torch.ones(1, 2, 300), torch.ones(1, 2, 300), -torch.ones(2, 4), *torch.ones(2, 1, 4, 300)]
    inputs = [t.requires_grad_() for t in inputs]
    selective_scan(*inputs)[..., -1].sum().backward()
    gradient = inputs[0].grad
    assert gradient is not None
    times = torch.arange(299, -1, -1).double()
    torch.testing.assert_close(gradient[0, 0].double(), 4 * (-times).exp(), atol=1e-24, rtol=1e-5)
