"""The operations in plain torch: any device, any floating dtype, no speed. See `Backend` for equations and shapes.

Gradients of a complex z are d/d(re z) + i d/d(im z), as in torch.
"""

import functools
import math
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from delayssm.backends import (
    HISTORY_NEAR,
    ConvolutionGradients,
    KernelGradients,
    MixGradients,
    ScanGradients,
)
from delayssm.backends.lengths import fast_length

#: Size of one padded slice of a batch. A transform of the whole would spend its time moving temporaries through memory.
_SLICE_BYTES = {"cpu": 1 << 22}
_SLICE_BYTES_ELSEWHERE = 1 << 28


def kernel(
    *, lam: Tensor, mu: Tensor, w: Tensor, k: Tensor, alpha: Tensor, skip: Tensor, length: int, size: int, eps: float,
    dtype: torch.dtype, result: torch.dtype,
) -> Tensor:  # fmt: skip
    system = {"lam": lam, "mu": mu, "w": w, "k": k, "alpha": alpha}
    K = transfer(**system, size=size, rho=eps ** (1 / size), dtype=dtype)
    return from_transfer(K, skip, length, size, eps, result)


def kernel_backward(
    *, grad: Tensor, lam: Tensor, mu: Tensor, w: Tensor, k: Tensor, alpha: Tensor, size: int, eps: float,
    dtype: torch.dtype,
) -> KernelGradients:  # fmt: skip
    system = {"lam": lam, "mu": mu, "w": w, "k": k, "alpha": alpha}
    return transfer_backward(grad=to_transfer(grad.to(dtype), size, eps), **system, size=size, rho=eps ** (1 / size))


def from_transfer(K: Tensor, skip: Tensor, length: int, size: int, eps: float, result: torch.dtype) -> Tensor:
    """Return the kernel (D, length, H) that has a transfer function (D, H, size//2 + 1, 2) on the half grid."""
    damped: Tensor = torch.fft.irfft(torch.view_as_complex(K), n=size)[..., :length]
    kernel = (damped * _restore(length, size, eps, K.dtype, K.device)).transpose(1, 2)
    first = F.pad(skip.to(K.dtype)[None, None], (0, 0, 0, length - 1, 0, len(K) - 1))
    return (kernel + first).to(result, memory_format=torch.contiguous_format)


def to_transfer(grad: Tensor, size: int, eps: float) -> Tensor:
    """Apply the adjoint of `from_transfer`."""
    restored = grad.transpose(1, 2) * _restore(grad.shape[1], size, eps, grad.dtype, grad.device)
    G = torch.fft.rfft(restored, n=size) / size
    G[..., 1 : (size + 1) // 2] *= 2  # the half grid stands for both halves, save for its ends
    return torch.view_as_real(G)


@functools.lru_cache(maxsize=32)
@torch.inference_mode(False)  # a tensor that was made in inference mode could not be saved for a backward pass later
def _restore(length: int, size: int, eps: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return rho^-t for t < length, where rho^size = eps."""
    t = torch.arange(length, dtype=torch.float64, device=device)
    return torch.pow(eps, -t / size).to(dtype)


def transfer(
    *, lam: Tensor, mu: Tensor, w: Tensor, k: Tensor, alpha: Tensor, size: int, rho: float, dtype: torch.dtype
) -> Tensor:
    """Return the transfer function at u = rho e^(-2 pi i m / size), m = 0..size//2, as (D, H, size//2 + 1, 2)."""
    w = _complex(w).unsqueeze(-1).to(dtype.to_complex())
    u, v, _ = _on_grid(k, alpha, size, rho)
    R, S = _resolvents(lam, mu, u, v, dtype)
    return torch.view_as_real((w * R + w.conj() * S).sum(-2))


def transfer_backward(
    *, grad: Tensor, lam: Tensor, mu: Tensor, w: Tensor, k: Tensor, alpha: Tensor, size: int, rho: float
) -> KernelGradients:
    dtype = grad.dtype
    u, v, dv = _on_grid(k, alpha, size, rho)
    R, S = _resolvents(lam, mu, u, v, dtype)
    mu, w = (_complex(z).unsqueeze(-1) for z in (mu, w))
    mu, w, u, v, dv = (z.to(dtype.to_complex()) for z in (mu, w, u, v, dv))
    g = _complex(grad).conj().unsqueeze(-2)
    X, Y = g * R * R, g * S * S
    g_w = ((g * R).conj() + g * S).sum(-1)
    g_lam = (w.conj() * ((u * X).conj() + u * Y)).sum(-1).sum(0)
    g_mu = (w.conj() * ((v * X).conj() + v * Y)).sum(-1).sum(0)
    g_alpha = (dv * (w * mu * X + (w * mu).conj() * Y)).real.sum((0, 2, 3))
    lam, mu, w = (torch.view_as_real(z.resolve_conj()).double() for z in (g_lam, g_mu, g_w))
    return KernelGradients(lam, mu, w, g_alpha.double())


def _on_grid(k: Tensor, alpha: Tensor, size: int, rho: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return u (M,), v and dv/dalpha (H, 1, M) on the half grid of M points, in complex128."""
    m = torch.arange(size // 2 + 1, device=k.device)
    u = rho * _root_of_unity(m, size)
    # The angle of u^k from exact integers: k m mod size, never a large float.
    damping = torch.where(k > 0, rho ** k.double(), 0)[:, None]
    u_to_k = (damping * _root_of_unity(k[:, None] * m % size, size)).unsqueeze(1)
    alpha = alpha[:, None, None]
    return u, u_to_k * ((1 - alpha) + alpha * u), u_to_k * (u - 1)


def _resolvents(lam: Tensor, mu: Tensor, u: Tensor, v: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return R = 1 / (1 - lam u - mu v) and S, the same with conjugated coefficients, (H, n, M)."""
    lam, mu = (_complex(z).unsqueeze(-1) for z in (lam, mu))
    numbers = lam, 1 - lam, mu, 1 - u, v
    lam, one_less_lam, mu, one_less_u, v = (z.to(dtype.to_complex()) for z in numbers)
    R = 1 / (one_less_lam + lam * one_less_u - mu * v)
    S = 1 / (one_less_lam.conj() + lam.conj() * one_less_u - mu.conj() * v)
    return R, S


def _root_of_unity(m: Tensor, size: int) -> Tensor:
    """Return e^(-2 pi i m / size) for integers m."""
    angle = m.to(torch.float64) * (-2 * math.pi / size)
    return torch.polar(torch.ones_like(angle), angle)


def convolve(x: Tensor, kernel: Tensor) -> Tensor:
    size = fast_length(2 * x.shape[1] - 1)
    spectrum = torch.fft.rfft(_circular(kernel, size))
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    for rows, channels in _slices(x, size):
        y[rows, :, channels] = _signal(_spectrum(x, rows, channels, size) * spectrum[channels], x.shape[1], size)
    return y


def convolve_backward(grad: Tensor, x: Tensor, kernel: Tensor) -> ConvolutionGradients:
    size = fast_length(2 * x.shape[1] - 1)
    conjugate = torch.fft.rfft(_circular(kernel, size)).conj()
    g_spectrum = torch.zeros_like(conjugate)
    g_x = torch.empty_like(x, memory_format=torch.contiguous_format)
    for rows, channels in _slices(x, size):
        X, G = (_spectrum(signal, rows, channels, size) for signal in (x, grad))
        g_spectrum[channels] += (X.conj() * G).sum(0)
        g_x[rows, :, channels] = _signal(G * conjugate[channels], x.shape[1], size)
    return ConvolutionGradients(g_x, _uncircular(torch.fft.irfft(g_spectrum, n=size), kernel))


def _circular(kernel: Tensor, size: int) -> Tensor:
    """Turn (D, L, H) into (H, size): K_0[t] at lag t, K_1[t] at lag -(t + 1), which is size - 1 - t."""
    _, length, channels = kernel.shape
    full = kernel.new_zeros(channels, size)
    full[:, :length] = kernel[0].T
    if len(kernel) == 2 and length > 1:
        full[:, -(length - 1) :] = kernel[1, : length - 1].flip(0).T
    return full


def _uncircular(full: Tensor, kernel: Tensor) -> Tensor:
    """Apply the adjoint of `_circular`."""
    length = kernel.shape[1]
    g = torch.zeros_like(kernel, memory_format=torch.contiguous_format)
    g[0] = full[:, :length].T
    if len(kernel) == 2 and length > 1:
        g[1, : length - 1] = full[:, -(length - 1) :].flip(-1).T
    return g


def _slices(x: Tensor, size: int) -> Iterator[tuple[slice, slice]]:
    """Yield some rows of all channels at a time, or where one row is too much, some channels of one row."""
    batch, _, width = x.shape
    lines = max(1, _SLICE_BYTES.get(x.device.type, _SLICE_BYTES_ELSEWHERE) // (size * x.element_size()))
    channels, rows = min(width, lines), max(1, lines // width)
    for h in range(0, width, channels):
        for i in range(0, batch, rows):
            yield slice(i, min(i + rows, batch)), slice(h, min(h + channels, width))


def _spectrum(x: Tensor, rows: slice, channels: slice, size: int) -> Tensor:
    spectrum: Tensor = torch.fft.rfft(x[rows, :, channels].transpose(1, 2), n=size)
    return spectrum


def _signal(spectrum: Tensor, length: int, size: int) -> Tensor:
    signal: Tensor = torch.fft.irfft(spectrum, n=size)[..., :length].transpose(1, 2)
    return signal


def mix(y: Tensor, weight: Tensor, bias: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    z = F.linear(_bent(y, mask), weight)
    return F.glu(z + bias), z


def mix_backward(grad: Tensor, y: Tensor, weight: Tensor, bias: Tensor, mask: Tensor | None, z: Tensor) -> MixGradients:
    g_z = torch.ops.aten.glu_backward(grad, z + bias, -1)
    g_bent = g_z @ weight if mask is None else g_z @ weight * mask
    rows = g_z.flatten(0, 1)
    g_weight = rows.T @ _bent(y, mask).flatten(0, 1)
    return MixGradients(torch.ops.aten.gelu_backward(g_bent, y), g_weight, rows.sum(0))


def _bent(y: Tensor, mask: Tensor | None) -> Tensor:
    return F.gelu(y) if mask is None else F.gelu(y) * mask


def scan(
    *, lam: Tensor, mu: Tensor, b: Tensor, c: Tensor, k: Tensor, alpha: Tensor,
    x: Tensor, lengths: Tensor, position: Tensor, h: Tensor, feedback: Tensor,
) -> Tensor:  # fmt: skip
    lam, mu, b, c = (_complex(z) for z in (lam, mu, b, c))
    alpha = alpha[:, None]
    y, now = torch.zeros_like(x, memory_format=torch.contiguous_format), _join(h)
    for i in range(x.shape[1]):
        live = i < lengths
        rows, channels, slots = _slots(k, position + i)
        f = torch.zeros_like(now)
        f[:, channels] = _join(feedback[rows, slots]).to(now.dtype)
        after = lam * now + f + b * x[:, i, :, None]
        y[:, i] = torch.where(live[:, None], 2 * (c * after).real.sum(-1), 0).to(x.dtype)
        fed = _split(mu * ((1 - alpha) * after + alpha * now))[:, channels].to(feedback.dtype)
        feedback[rows, slots] = torch.where(live[:, None, None, None], fed, feedback[rows, slots])
        now = torch.where(live[:, None, None], after, now)
    h.copy_(_split(now))
    return y


def scan_backward(
    *, g_y: Tensor, g_h: Tensor, g_feedback: Tensor,
    lam: Tensor, mu: Tensor, b: Tensor, c: Tensor, k: Tensor, alpha: Tensor,
    x: Tensor, lengths: Tensor, position: Tensor, h: Tensor, feedback: Tensor,
) -> ScanGradients:  # fmt: skip
    """Compute the states again, then the gradients backwards in time.

    With G_t = dLoss/dh_t and F_t = dLoss/df_t,

    G_t = 2 conj(c) gy_t + conj(lam) G_(t+1) + conj(mu) [(1 - alpha) F_(t+k) + alpha F_(t+k+1)],   F_t = G_t.
    """
    lam, mu, b, c = (_complex(z) for z in (lam, mu, b, c))
    alpha = alpha[:, None]
    length, past, states = x.shape[1], feedback.clone(), [_join(h)]
    for i in range(length):
        rows, channels, slots = _slots(k, position + i)
        f = torch.zeros_like(states[-1])
        f[:, channels] = _join(past[rows, slots]).to(f.dtype)
        states.append(lam * states[-1] + f + b * x[:, i, :, None])
        fed = mu * ((1 - alpha) * states[-1] + alpha * states[-2])
        past[rows, slots] = _split(fed)[:, channels].to(past.dtype)

    carry, F = _join(g_h), g_feedback.clone()
    g_lam, g_mu, g_b, g_c = (torch.zeros_like(z) for z in (lam, mu, b, c))
    g_alpha, g_x = torch.zeros_like(alpha), torch.zeros_like(x, memory_format=torch.contiguous_format)
    for i in reversed(range(length)):
        live = (i < lengths)[:, None, None]
        before, after, signal = states[i], states[i + 1], x[:, i, :, None].to(alpha.dtype)
        gy = torch.where(live[..., 0], g_y[:, i], 0).unsqueeze(-1).to(alpha.dtype)
        rows, channels, slots = _slots(k, position + i)
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
    lam, mu, b, c = (torch.view_as_real(z.resolve_conj()) for z in (g_lam, g_mu, g_b, g_c))
    return ScanGradients(lam, mu, b, c, alpha=g_alpha[:, 0], x=g_x, h=_split(carry), feedback=F)


def _slots(k: Tensor, t: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return rows (B, 1), the channels that have feedback (F,), and the slot of time t (B,) of each (B, F)."""
    channels, first = k.nonzero().flatten(), k.cumsum(0) - k
    return torch.arange(len(t), device=t.device)[:, None], channels, first[channels] + t[:, None] % k[channels]


def respond(kernel: Tensor, slots: int) -> tuple[Tensor, Tensor]:
    return kernel[:slots].contiguous(), kernel.new_empty(0)


def respond_far(kernel: Tensor, slots: int) -> Tensor:
    return kernel[: 2 * slots].contiguous()


def advance(
    *, x: Tensor, lengths: Tensor, position: Tensor, values: Tensor, response: tuple[Tensor, Tensor, Tensor],
    max_length: int,
) -> Tensor:  # fmt: skip
    y = torch.zeros_like(x, memory_format=torch.contiguous_format)
    near, _, far = (t[..., : x.shape[2]] if t.ndim == 2 else t for t in response)
    ages = torch.stack((position, lengths), 1).tolist()
    for age in sorted(set(map(tuple, ages))):
        rows = torch.tensor([i for i, other in enumerate(ages) if tuple(other) == age], device=x.device)
        memory = values[rows, :, : x.shape[2]]
        y[rows, : age[1]] = _advance(x[rows, : age[1]], age[0], memory, near, far, max_length)
        values[rows, :, : x.shape[2]] = memory
    return y


def _advance(x: Tensor, t: int, values: Tensor, near: Tensor, far: Tensor, max_length: int) -> Tensor:
    """Run rows of the same age t, as `delayssm.system.history` describes it, in steps that end with their blocks."""
    slots, outputs, start = values.shape[1], [], 0
    while start < x.shape[1]:
        block = t - t % HISTORY_NEAR
        stop = min(x.shape[1], start + block + HISTORY_NEAR - t)
        count, slot = stop - start, t % slots
        pending = values[:, slot : slot + count].clone()
        values[:, slot : slot + count] = x[:, start:stop]
        inputs = values[:, block % slots : slot + count]
        outputs.append(pending + convolve(inputs, near[None, : inputs.shape[1]])[:, -count:])
        t, start = t + count, stop
        if t % HISTORY_NEAR == 0 and t < max_length:
            size = min(t & -t, slots)
            kernel = (far if size == slots else near)[: 2 * size].T
            past = values[:, (t - size) % slots :][:, :size].transpose(1, 2)
            both = torch.fft.irfft(torch.fft.rfft(past, n=2 * size) * torch.fft.rfft(kernel, n=2 * size), n=2 * size)
            to = values[:, t % slots :][:, :size]
            to.copy_(both[..., size:].transpose(1, 2) + (0 if size == slots else to))
    return torch.cat(outputs, 1) if outputs else x


def _complex(z: Tensor) -> Tensor:
    return torch.view_as_complex(z.contiguous())


def _join(z: Tensor) -> Tensor:
    """Turn (..., 2, n) into complex (..., n)."""
    return torch.complex(z[..., 0, :], z[..., 1, :])


def _split(z: Tensor) -> Tensor:
    """Turn complex (..., n) into (..., 2, n)."""
    return torch.stack((z.real, z.imag), -2)
