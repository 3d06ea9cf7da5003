"""Outputs and kernels stay finite in long streams and in training with far too large a learning rate."""

import torch

from delayssm import DS4D, Block, DelaySSM, Stack, param_groups


@torch.no_grad()
def test_two_hundred_thousand_steps_of_noise() -> None:
    ssm = DelaySSM(8, 16, 1000, branch_fraction=(0.01, 0.9), dt_min=1e-4)
    state = ssm.init_state(1)
    early, late = 0.0, 0.0
    for chunk in range(20):
        y, state = ssm.stream(torch.randn(1, 10_000, 8), state)
        assert bool(torch.isfinite(y).all())
        loudest = float(y.abs().max())
        early, late = (max(early, loudest), late) if chunk < 10 else (early, max(late, loudest))
    assert int(state.position) == 200_000
    assert late < 2 * early  # stationary, not growing


def test_a_learning_rate_far_too_large_never_breaks_the_kernel() -> None:
    model = Stack(Block(DS4D(8, 8, 40)) for _ in range(2))
    optimiser = torch.optim.AdamW(param_groups(model, lr=0.3, dt_lr=0.1, weight_decay=0.0))  # 100 times the usual
    x = torch.randn(4, 60, 8)
    target = x.roll(20, dims=1)
    for _ in range(60):
        loss = (model(x) - target).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        for block in model.blocks:
            assert bool(torch.isfinite(block.layer.ssm.kernel(60)).all())
            system = block.layer.ssm.discretize()
            assert bool((system.lam.abs() + system.mu.abs() < 1).all())
