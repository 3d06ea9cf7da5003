"""The operations in plain torch: any device, any floating dtype, no speed. See `Backend` for shapes.

Gradients of a complex z are d/d(re z) + i d/d(im z), as in torch.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def transfer(system: Sequence[Tensor], size: int, rho: float) -> Tensor:
    lam, mu, w, u, v, _ = _on_grid(system, size, rho)
    K = w / (1 - lam * u - mu * v) + w.conj() / (1 - lam.conj() * u - mu.conj() * v)
    return torch.view_as_real(K.sum(-2))


def transfer_backward(grad: Tensor, system: Sequence[Tensor], size: int, rho: float) -> list[Tensor]:
    lam, mu, w, u, v, dv = _on_grid(system, size, rho)
    g = torch.view_as_complex(grad.contiguous()).conj().unsqueeze(-2)
    R = 1 / (1 - lam * u - mu * v)
    S = 1 / (1 - lam.conj() * u - mu.conj() * v)
    X, Y = g * R * R, g * S * S
    g_w = ((g * R).conj() + g * S).sum(-1)
    g_lam = (w.conj() * ((u * X).conj() + u * Y)).sum(-1).sum(0)
    g_mu = (w.conj() * ((v * X).conj() + v * Y)).sum(-1).sum(0)
    g_alpha = (dv * (w * mu * X + (w * mu).conj() * Y)).real.sum((0, 2, 3))
    return [*(torch.view_as_real(z.resolve_conj()) for z in (g_lam, g_mu, g_w)), g_alpha]


def _on_grid(system: Sequence[Tensor], size: int, rho: float) -> tuple[Tensor, ...]:
    """lam, mu (H, n, 1) and w (D, H, n, 1); u (M,), v and dv/dalpha (H, 1, M) on the half grid of M points."""
    k, alpha = system[3], system[4][:, None, None]
    dtype = alpha.dtype
    m = torch.arange(size // 2 + 1, device=k.device)
    u = rho * _root_of_unity(m, size, dtype)
    # The angle of u^k from exact integers: k m mod size, never a large float.
    damping = torch.where(k > 0, rho ** k.to(dtype), 0)[:, None]
    u_to_k = (damping * _root_of_unity(k[:, None] * m % size, size, dtype)).unsqueeze(1)
    lam, mu, w = (torch.view_as_complex(z.contiguous()).unsqueeze(-1) for z in system[:3])
    return lam, mu, w, u, u_to_k * ((1 - alpha) + alpha * u), u_to_k * (u - 1)


def _root_of_unity(m: Tensor, size: int, dtype: torch.dtype) -> Tensor:
    """e^(-2 pi i m / size) for integers m."""
    angle = m.to(torch.float64) * (-2 * math.pi / size)
    return torch.polar(torch.ones_like(angle), angle).to(dtype.to_complex())


def transpose(source: Tensor, target: Tensor) -> None:
    target.copy_(source.transpose(1, 2))


def scan(system: Sequence[Tensor], x: Tensor, lengths: Tensor, position: Tensor, h: Tensor, history: Tensor) -> Tensor:
    k, c = system[4], _complex(system[3])
    states = _simulate(system, x, position, h, history)
    past = states.shape[1] - x.shape[1]
    live = torch.arange(x.shape[1], device=x.device) < lengths[:, None]
    y = torch.where(live[..., None], 2 * (c * states[:, past:]).real.sum(-1), 0).to(x.dtype)

    # What is remembered are the states up to each row's own end.
    rows = torch.arange(len(x), device=x.device)
    last = states[rows, past + lengths - 1]
    h.copy_(torch.where((lengths > 0)[:, None, None, None], torch.stack((last.real, last.imag), -2), h))
    channel, age, slot = _rings(k, position + lengths)
    kept = states[rows[:, None], (past + lengths)[:, None] - age, channel]
    history[rows[:, None], slot] = torch.stack((kept.real, kept.imag), -2).to(history.dtype)
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
    """The adjoint G_t = dLoss/dh_t runs backwards in time:

    G_t = 2 conj(c) gy_t + conj(lam) G_(t+1) + conj(mu) [(1 - alpha) G_(t+k) + alpha G_(t+k+1)].
    """
    (lam, mu, b, c), (k, alpha) = (_complex(z) for z in system[:4]), system[4:]
    states = _simulate(system, x, position, h, history)
    length, past = x.shape[1], states.shape[1] - x.shape[1]
    rows, channels = torch.arange(len(x), device=x.device), torch.arange(len(k), device=x.device)
    live = torch.arange(length, device=x.device) < lengths[:, None]
    gy = torch.where(live[..., None], grads[0], 0).to(alpha.dtype)
    before = torch.complex(h[..., 0, :], h[..., 1, :])

    G = torch.zeros_like(states)
    G[:, past:] = 2 * c.conj() * gy[..., None]
    channel, age, slot = _rings(k, position + lengths)
    final = grads[2][rows[:, None], slot].to(alpha.dtype)
    G.index_put_(
        (rows[:, None], (past + lengths)[:, None] - age, channel),
        torch.complex(final[..., 0, :], final[..., 1, :]),
        accumulate=True,
    )
    # The last state: of the chunk, or where that is empty the one it began with.
    g_last = torch.complex(grads[1][..., 0, :], grads[1][..., 1, :])
    g_before = torch.where((lengths > 0)[:, None, None], 0, g_last)
    G[rows, past + lengths - 1] += g_last - g_before

    totals = [torch.zeros_like(z) for z in (lam, mu, b)]
    g_alpha, g_x = torch.zeros_like(alpha), torch.zeros_like(x)
    a, has_delay = alpha[:, None], (k > 0)[:, None]
    for t in reversed(range(length)):
        now = past + t
        g = torch.where(live[:, t, None, None], G[:, now], 0)
        previous = states[:, now - 1] if t else before
        anchor, older = states[:, now - k, channels], states[:, now - k - 1, channels]
        signal = x[:, t, :, None].to(alpha.dtype)
        delayed = torch.where(has_delay, (1 - a) * anchor + a * older, 0)
        for total, factor in zip(totals, (previous, delayed, signal), strict=True):
            total += (factor.conj() * g).sum(0)
        g_x[:, t] = (b.conj() * g).real.sum(-1).to(x.dtype)
        if t:
            G[:, now - 1] += lam.conj() * g
        else:
            g_before = g_before + lam.conj() * g
        back = torch.where(has_delay, mu.conj() * g, 0)
        g_alpha += (back.conj() * (older - anchor)).real.sum((0, 2))
        G[:, now - k, channels] += (1 - a) * back
        G[:, now - k - 1, channels] += a * back

    g_c = 2 * (states[:, past:].conj() * gy[..., None]).sum((0, 1))
    channel, age, slot = _rings(k, position)
    g_past = G[rows[:, None], past - age, channel]
    g_history = torch.zeros_like(history)
    g_history[rows[:, None], slot] = torch.stack((g_past.real, g_past.imag), -2).to(history.dtype)
    g_lam, g_mu, g_b = totals
    pairs = [torch.view_as_real(z.resolve_conj()) for z in (g_lam, g_mu, g_b, g_c)]
    return [*pairs, g_alpha, g_x, torch.stack((g_before.real, g_before.imag), -2), g_history]


def _simulate(system: Sequence[Tensor], x: Tensor, position: Tensor, h: Tensor, history: Tensor) -> Tensor:
    """The states in the order of time, (B, K + L, H, n): the remembered ones, then those of the chunk."""
    (lam, mu, b), (k, alpha) = (_complex(z) for z in system[:3]), system[4:]
    past, length = int(k.max()) + 1, x.shape[1]
    rows, channels = torch.arange(len(x), device=x.device)[:, None], torch.arange(len(k), device=x.device)
    states = lam.new_zeros(len(x), past + length, *lam.shape)
    mu = torch.where((k > 0)[:, None], mu, 0)
    channel, age, slot = _rings(k, position)
    remembered = history[rows, slot].to(alpha.dtype)
    states[rows, past - age, channel] = torch.complex(remembered[..., 0, :], remembered[..., 1, :])

    now = torch.complex(h[..., 0, :], h[..., 1, :])
    precision = history.dtype.to_complex()
    a = alpha[:, None]
    for t in range(past, past + length):
        anchor, older = states[:, t - k, channels], states[:, t - k - 1, channels]
        # The past is read in the precision in which it is remembered.
        delayed = (1 - a) * anchor.to(precision) + a * older.to(precision)
        now = lam * now + mu * delayed + b * x[:, t - past, :, None]
        states[:, t] = now
    return states


def _rings(k: Tensor, position: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """For every history slot its channel (S,), its age in steps (S,), and where it is in each row (B, S)."""
    size = torch.where(k > 0, k + 1, 0)
    channel = torch.repeat_interleave(size)
    start = (size.cumsum(0) - size)[channel]
    age = torch.arange(len(channel), device=k.device) - start + 1
    return channel, age, start + (position[:, None] - age) % size[channel]


def _complex(z: Tensor) -> Tensor:
    return torch.view_as_complex(z.contiguous())
