"""The operations in plain torch: any device, any floating dtype, no speed. See `Backend` for shapes.

The gradients are not written out: each is autograd's, of the function just above it run once more.
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def transfer(system: Sequence[Tensor], size: int, rho: float) -> Tensor:
    lam, mu, w, k, alpha = system
    m = torch.arange(size // 2 + 1, device=lam.device)
    u = rho * _root_of_unity(m, size, lam.dtype)
    # The angle of u^k from exact integers: k m mod size, never a large float.
    damping = torch.where(k > 0, rho ** k.to(lam.dtype), 0)[:, None]
    u_to_k = damping * _root_of_unity(k[:, None] * m % size, size, lam.dtype)
    alpha = alpha[:, None]
    v = u_to_k * ((1 - alpha) + alpha * u)

    lam, mu, w = (torch.view_as_complex(z)[..., None] for z in (lam, mu, w))
    K = w / (1 - lam * u - mu * v[:, None]) + w.conj() / (1 - lam.conj() * u - mu.conj() * v[:, None])
    return torch.view_as_real(K.sum(-2))


def transfer_backward(grad: Tensor, system: Sequence[Tensor], size: int, rho: float) -> list[Tensor]:
    lam, mu, w, k, alpha = system

    def again(lam: Tensor, mu: Tensor, w: Tensor, alpha: Tensor) -> tuple[Tensor]:
        return (transfer((lam, mu, w, k, alpha), size, rho),)

    return _differentiate(again, (lam, mu, w, alpha), (grad,))


def transpose(source: Tensor, target: Tensor) -> None:
    target.copy_(source.transpose(1, 2))


def scan(
    system: Sequence[Tensor], x: Tensor, lengths: Tensor, position: Tensor, h: Tensor, history: Tensor
) -> Tensor:
    y, new_h, new_history = _scan(system, x, lengths, position, h, history)
    h.copy_(new_h)
    history.copy_(new_history)
    return y


def scan_backward(
    grads: Sequence[Tensor],
    system: Sequence[Tensor],
    x: Tensor,
    lengths: Tensor,
    position: Tensor,
    h: Tensor,
    history: Tensor,
) -> list[Tensor]:
    lam, mu, b, c, k, alpha = system

    def again(
        lam: Tensor, mu: Tensor, b: Tensor, c: Tensor, alpha: Tensor, x: Tensor, h: Tensor, history: Tensor
    ) -> tuple[Tensor, ...]:
        return _scan((lam, mu, b, c, k, alpha), x, lengths, position, h, history)

    return _differentiate(again, (lam, mu, b, c, alpha, x, h, history), grads)


def _scan(
    system: Sequence[Tensor], x: Tensor, lengths: Tensor, position: Tensor, h: Tensor, history: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    k, alpha = system[4:]
    lam, mu, b, c = (torch.view_as_complex(z) for z in system[:4])
    h = torch.complex(h[..., 0, :], h[..., 1, :])
    has_ring = k > 0
    ring = (k + 1)[has_ring]
    start = ring.cumsum(0) - ring
    k, a = k[has_ring], alpha[has_ring, None, None]
    rows = torch.arange(len(x), device=x.device)[:, None]
    history = history.clone()

    y = torch.zeros_like(x)
    for t in range(x.shape[1]):
        live = (t < lengths)[:, None]
        now = (position + t)[:, None]
        anchor = history[rows, start + (now - k) % ring]  # h_(t-k)
        oldest = history[rows, start + now % ring]  # h_(t-k-1), whose slot h_t will take
        delayed = torch.zeros_like(h)
        interpolated = (1 - a) * anchor + a * oldest
        delayed[:, has_ring] = torch.complex(interpolated[..., 0, :], interpolated[..., 1, :])
        new = lam * h + mu * delayed + b * x[:, t, :, None]
        y[:, t] = torch.where(live, 2 * (c * new).real.sum(-1), 0).to(y.dtype)
        h = torch.where(live[..., None], new, h)
        kept = torch.stack((h.real, h.imag), dim=-2)[:, has_ring].to(history.dtype)
        history[rows, start + now % ring] = torch.where(live[..., None, None], kept, oldest)
    return y, torch.stack((h.real, h.imag), dim=-2), history


def _root_of_unity(m: Tensor, size: int, dtype: torch.dtype) -> Tensor:
    """e^(-2 pi i m / size) for integers m."""
    angle = m.to(torch.float64) * (-2 * math.pi / size)
    return torch.polar(torch.ones_like(angle), angle).to(dtype.to_complex())


def _differentiate(
    function: Callable[..., tuple[Tensor, ...]], inputs: Sequence[Tensor], grads: Sequence[Tensor]
) -> list[Tensor]:
    with torch.enable_grad():
        leaves = [t.detach().requires_grad_() for t in inputs]
        outputs = [(o, g) for o, g in zip(function(*leaves), grads, strict=True) if o.requires_grad]
        found = torch.autograd.grad(
            [o for o, _ in outputs], leaves, [g for _, g in outputs], allow_unused=True
        )
    return [torch.zeros_like(leaf) if g is None else g for g, leaf in zip(found, leaves, strict=True)]
