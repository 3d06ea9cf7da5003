"""The operations in plain torch: any device, any floating dtype, no speed. See `Backend` for shapes.

Gradients of a complex z are d/d(re z) + i d/d(im z), as in torch.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from delayssm.backends import BLOCK


def transfer(system: Sequence[Tensor], size: int, rho: float, dtype: torch.dtype) -> Tensor:
    w, _, R, S, *_ = _on_grid(system, size, rho, dtype)
    return torch.view_as_real((w * R + w.conj() * S).sum(-2))


def transfer_backward(grad: Tensor, system: Sequence[Tensor], size: int, rho: float) -> list[Tensor]:
    w, mu, R, S, u, v, dv = _on_grid(system, size, rho, grad.dtype)
    g = torch.view_as_complex(grad.contiguous()).conj().unsqueeze(-2)
    X, Y = g * R * R, g * S * S
    g_w = ((g * R).conj() + g * S).sum(-1)
    g_lam = (w.conj() * ((u * X).conj() + u * Y)).sum(-1).sum(0)
    g_mu = (w.conj() * ((v * X).conj() + v * Y)).sum(-1).sum(0)
    g_alpha = (dv * (w * mu * X + (w * mu).conj() * Y)).real.sum((0, 2, 3))
    return [*(torch.view_as_real(z.resolve_conj()).double() for z in (g_lam, g_mu, g_w)), g_alpha.double()]


def _on_grid(system: Sequence[Tensor], size: int, rho: float, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """w (D, H, n, 1) and mu (H, n, 1); R = 1 / (1 - lam u - mu v) and its conjugate twin S, (H, n, M); u (M,), v and
    dv/dalpha (H, 1, M) on the half grid of M points. All in dtype.
    """
    k, alpha = system[3], system[4][:, None, None]
    m = torch.arange(size // 2 + 1, device=k.device)
    u = rho * _root_of_unity(m, size)
    # The angle of u^k from exact integers: k m mod size, never a large float.
    damping = torch.where(k > 0, rho ** k.double(), 0)[:, None]
    u_to_k = (damping * _root_of_unity(k[:, None] * m % size, size)).unsqueeze(1)
    lam, mu, w = (torch.view_as_complex(z.contiguous()).unsqueeze(-1) for z in system[:3])
    numbers = w, mu, lam, 1 - lam, u, 1 - u, u_to_k * ((1 - alpha) + alpha * u), u_to_k * (u - 1)
    w, mu, lam, one_less_lam, u, one_less_u, v, dv = (z.to(dtype.to_complex()) for z in numbers)
    R = 1 / (one_less_lam + lam * one_less_u - mu * v)
    S = 1 / (one_less_lam.conj() + lam.conj() * one_less_u - mu.conj() * v)
    return w, mu, R, S, u, v, dv


def _root_of_unity(m: Tensor, size: int) -> Tensor:
    """e^(-2 pi i m / size) for integers m."""
    angle = m.to(torch.float64) * (-2 * math.pi / size)
    return torch.polar(torch.ones_like(angle), angle)


def transpose(source: Tensor, target: Tensor) -> None:
    target.copy_(source.transpose(1, 2))


def scan(
    system: Sequence[Tensor], x: Tensor, lengths: Tensor, position: Tensor, layout: Tensor,
    h: Tensor, feedback: Tensor, copies: Tensor, inputs: Tensor,
) -> Tensor:  # fmt: skip
    (lam, mu, b, c), alpha = (_complex(z) for z in system[:4]), system[5][:, None]
    y, now = torch.zeros_like(x, memory_format=torch.contiguous_format), _join(h)
    has_ring, cascades = layout[:, 3] == 0, (layout[:, 3] > 0).nonzero().flatten().tolist()
    for i in range(x.shape[1]):
        live, t = i < lengths, position + i
        for channel in cascades:
            for row in live.nonzero().flatten().tolist():
                time, first = int(t[row]), int(layout[channel, 4])
                if time % BLOCK == channel % BLOCK:
                    _refill(system, row, channel, time, layout, feedback, copies, inputs)
                if time < layout[channel, 5]:
                    inputs[row, first + time] = x[row, i, channel]
        rows, channels, slots = _slots(layout, t)
        f = torch.zeros_like(now)
        f[:, channels] = _join(feedback[rows, slots]).to(now.dtype)
        after = lam * now + f + b * x[:, i, :, None]
        y[:, i] = torch.where(live[:, None], 2 * (c * after).real.sum(-1), 0).to(x.dtype)
        fed = _split(mu * ((1 - alpha) * after + alpha * now))[:, channels].to(feedback.dtype)
        written = (live[:, None] & has_ring[channels])[..., None, None]
        feedback[rows, slots] = torch.where(written, fed, feedback[rows, slots])
        now = torch.where(live[:, None, None], after, now)
    h.copy_(_split(now))
    return y


def _refill(
    system: Sequence[Tensor], row: int, channel: int, t: int, layout: Tensor,
    feedback: Tensor, copies: Tensor, inputs: Tensor,
) -> None:  # fmt: skip
    """The feedback of the next BLOCK tokens from a cascade, by moving its copies of the state, the last one first."""
    lam, mu, b = (_complex(z)[channel] for z in system[:3])
    k, alpha = int(system[4][channel]), system[5][channel]
    slot, _, first, count, oldest, kept = layout[channel].tolist()
    f = lam.new_zeros(BLOCK, len(lam))
    for j in range(count, 0, -1):
        s = _join(copies[row, first + j - 1])
        for i in range(BLOCK):
            past = t + i - j * k
            x = inputs[row, oldest + past] if 0 <= past < kept else 0.0  # a block may look beyond the end
            before, s = s, lam * s + f[i] + b * x
            f[i] = mu * ((1 - alpha) * s + alpha * before)
        copies[row, first + j - 1] = _split(s)
    for i in range(BLOCK):
        feedback[row, slot + (t + i) % BLOCK] = _split(f[i]).to(feedback.dtype)


def scan_backward(
    grads: Sequence[Tensor], system: Sequence[Tensor], x: Tensor, lengths: Tensor, position: Tensor,
    layout: Tensor, h: Tensor, feedback: Tensor,
) -> list[Tensor]:  # fmt: skip
    """With G_t = dLoss/dh_t and F_t = dLoss/df_t, backwards in time:

    G_t = 2 conj(c) gy_t + conj(lam) G_(t+1) + conj(mu) [(1 - alpha) F_(t+k) + alpha F_(t+k+1)],   F_t = G_t.
    """
    (lam, mu, b, c), alpha = (_complex(z) for z in system[:4]), system[5][:, None]
    length, past, states = x.shape[1], feedback.clone(), [_join(h)]
    for i in range(length):
        rows, channels, slots = _slots(layout, position + i)
        f = torch.zeros_like(states[-1])
        f[:, channels] = _join(past[rows, slots]).to(f.dtype)
        states.append(lam * states[-1] + f + b * x[:, i, :, None])
        fed = mu * ((1 - alpha) * states[-1] + alpha * states[-2])
        past[rows, slots] = _split(fed)[:, channels].to(past.dtype)

    carry, F = _join(grads[1]), grads[2].clone()
    g_lam, g_mu, g_b, g_c = (torch.zeros_like(z) for z in (lam, mu, b, c))
    g_alpha, g_x = torch.zeros_like(alpha), torch.zeros_like(x, memory_format=torch.contiguous_format)
    for i in reversed(range(length)):
        live = (i < lengths)[:, None, None]
        before, after, signal = states[i], states[i + 1], x[:, i, :, None].to(alpha.dtype)
        gy = torch.where(live[..., 0], grads[0][:, i], 0).unsqueeze(-1).to(alpha.dtype)
        rows, channels, slots = _slots(layout, position + i)
        g_fed = torch.zeros_like(before)
        g_fed[:, channels] = _join(F[rows, slots]).to(before.dtype)
        g_fed = torch.where(live, g_fed, 0)
        back = mu.conj() * g_fed
        G = torch.where(live, carry, 0) + 2 * c.conj() * gy + (1 - alpha) * back
        g_mu += (((1 - alpha) * after + alpha * before).conj() * g_fed).sum(0)
        g_alpha += (back.conj() * (before - after)).real.sum((0, 2))[:, None]
        g_c += 2 * (after.conj() * gy).sum(0)
        g_lam += (before.conj() * G).sum(0)
        g_b += (signal * G).sum(0)
        g_x[:, i] = (b.conj() * G).real.sum(-1).to(x.dtype)
        carry = torch.where(live, lam.conj() * G + alpha * back, carry)
        F[rows, slots] = torch.where(live[..., None], _split(G)[:, channels].to(F.dtype), F[rows, slots])
    pairs = [torch.view_as_real(z.resolve_conj()) for z in (g_lam, g_mu, g_b, g_c)]
    return [*pairs, g_alpha[:, 0], g_x, _split(carry), F]


def _slots(layout: Tensor, t: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Rows (B, 1), the channels that have feedback (F,), and where that of time t (B,) is for each (B, F)."""
    channels = (layout[:, 1] > 0).nonzero().flatten()
    first, slots = layout[channels, 0], layout[channels, 1]
    return torch.arange(len(t), device=t.device)[:, None], channels, first + t[:, None] % slots


def _complex(z: Tensor) -> Tensor:
    return torch.view_as_complex(z.contiguous())


def _join(z: Tensor) -> Tensor:
    """(..., 2, n) -> complex (..., n)."""
    return torch.complex(z[..., 0, :], z[..., 1, :])


def _split(z: Tensor) -> Tensor:
    """Complex (..., n) -> (..., 2, n)."""
    return torch.stack((z.real, z.imag), -2)
