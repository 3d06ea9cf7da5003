"""Selective scan for the Mamba of `transformers` on a CPU.

Without a GPU kernel, that library goes through the sequence token by token under autograd. The backward pass of each
token then touches tensors as large as the whole sequence, so that the time grows with the square of the length:
minutes, where a compiled loop takes a second. It also keeps every state of every channel at every time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from delayssm.backends.threads import parts_for, run


class _Scan(torch.autograd.Function):
    """Scan h_t = exp(dt_t A) h_(t-1) + dt_t u_t B_t, y_t = C_t . h_t, which saves only its inputs for backward."""

    @staticmethod
    def forward(ctx: Any, *inputs: Tensor) -> Tensor:
        from delayssm_lab.models import selective_numba

        inputs = tuple(t.detach().float().contiguous() for t in inputs)
        y = torch.empty_like(inputs[0])
        run(selective_numba.forward, parts_for(y.numel()), *(t.numpy() for t in inputs), y.numpy())
        ctx.save_for_backward(*inputs)
        return y

    @staticmethod
    def backward(ctx: Any, grad_y: Tensor) -> tuple[Tensor, ...]:
        from delayssm_lab.models import selective_numba

        u, dt, A, B, C = inputs = ctx.saved_tensors
        g_A = A.new_zeros(len(u), *A.shape)
        gradients = torch.empty_like(u), torch.empty_like(dt), g_A, torch.empty_like(B), torch.empty_like(C)
        arrays = (t.numpy() for t in (*inputs, grad_y.float().contiguous()))
        run(selective_numba.backward, parts_for(u.numel()), *arrays, tuple(t.numpy() for t in gradients))
        g_u, g_dt, _, g_B, g_C = gradients
        return g_u, g_dt, g_A.sum(0), g_B, g_C


def selective_scan(
    u: Float[Tensor, "B D L"],
    dt: Float[Tensor, "B D L"],
    A: Float[Tensor, "D N"],
    B: Float[Tensor, "B N L"],
    C: Float[Tensor, "B N L"],
    D: Float[Tensor, " D"] | None = None,
    z: Float[Tensor, "B D L"] | None = None,
    delta_bias: Float[Tensor, " D"] | None = None,
    delta_softplus: bool = False,
) -> Float[Tensor, "B D L"]:
    """Return the output of the scan, with the softplus of dt, the skip D and the gate z around it."""
    # Channels next to each other in memory, as they are in all inputs but u: where layouts differ, torch is slow.
    u, dt, B, C = (t.transpose(1, 2) for t in (u, dt, B, C))
    u = u.contiguous()
    if delta_bias is not None:
        dt = dt + delta_bias
    if delta_softplus:
        dt = F.softplus(dt)
    y: Tensor = _Scan.apply(u, dt, A, B, C)  # type: ignore[no-untyped-call]
    if D is not None:
        y = y + u * D
    if z is not None:
        y = y * F.silu(z.transpose(1, 2))
    return y.transpose(1, 2)


@contextmanager
def compiled_scan() -> Iterator[None]:
    """Make the Mamba of `transformers` use `selective_scan` for whole sequences on a CPU within a `with` block."""
    from transformers.models.mamba import modeling_mamba

    original = modeling_mamba.mamba_selective_scan

    def scan(u: Tensor, *others: Any, return_last_state: bool = False, **options: Any) -> Any:
        if return_last_state or u.device.type != "cpu":
            return original(u, *others, return_last_state=return_last_state, **options)
        supported = {name: options[name] for name in ("D", "z", "delta_bias", "delta_softplus") if name in options}
        return selective_scan(u, *others, **supported)

    modeling_mamba.mamba_selective_scan = scan
    try:
        yield
    finally:
        modeling_mamba.mamba_selective_scan = original
