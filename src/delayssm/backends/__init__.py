"""The few fused operations, once per way of running them.

A backend is a module with the functions of `Backend`. Adding one means writing that module, and naming it in
`_BACKENDS` and for the devices that it can run on.
"""

import functools
import importlib
import os
from collections.abc import Sequence
from typing import Protocol, cast

import torch
from torch import Tensor

#: Tokens whose feedback a cascade computes at a time. It reads and writes its copies that much less often.
BLOCK = 8

_BACKENDS = {
    "numba": "delayssm.backends.numba_cpu",
    "triton": "delayssm.backends.triton_gpu",
    "eager": "delayssm.backends.eager",
}
#: What can run on a kind of device, the best first; on any other, eager.
_CHOICES = {"cpu": ["numba", "eager"], "cuda": ["triton", "eager"]}
if os.environ.get("TRITON_INTERPRET") == "1":
    _CHOICES["cpu"].append("triton")


class Backend(Protocol):
    """What a backend provides.

    H channels, n = N/2 stored modes, D directions. Coefficients are real pairs: lam, mu and b (H, n, 2), c (H, n, 2),
    w = b c (D, H, n, 2); k (H,) int64, 0 for a channel without a delayed branch; alpha (H,).

    The memory of B streams is h (B, H, 2, n) float64, the last state; feedback (B, S, 2, n); copies (B, C, 2, n)
    float64; inputs (B, I). States have their real parts before their imaginary parts. layout (H, 6) int64 says where
    each channel has its own: first slot, slots; first copy, copies; first input, inputs. `delayssm.system.layout`
    explains them. position (B,) int64 counts the tokens seen.
    """

    def transfer(self, system: Sequence[Tensor], size: int, rho: float, dtype: torch.dtype) -> Tensor:
        """The transfer function of system = (lam, mu, w, k, alpha) on the half grid
        z_m = e^(2 pi i m / size) / rho, m = 0..size//2. With u = 1/z_m and v = u^k ((1 - alpha) + alpha u),

            K(z_m) = sum over modes of  w / (1 - lam u - mu v) + conj(w) / (1 - conj(lam) u - conj(mu) v).

        The system is float64; the sum is computed in dtype. In float32 a slow mode near zero frequency would drown, as
        its denominator is the small difference of numbers close to 1. Written as

            1 - lam u - mu v = (1 - lam) + lam (1 - u) - mu v

        with 1 - lam and 1 - u rounded after the subtraction, nothing is lost. Returns (D, H, size//2 + 1, 2) of dtype.
        """

    def transfer_backward(self, grad: Tensor, system: Sequence[Tensor], size: int, rho: float) -> list[Tensor]:
        """Gradients of lam, mu, w and alpha in float64, for the gradient of `transfer`'s result, in its dtype."""

    def transpose(self, source: Tensor, target: Tensor) -> None:
        """target[i, b, a] = source[i, a, b]. Either may be a part of something larger."""

    def scan(
        self, system: Sequence[Tensor], x: Tensor, lengths: Tensor, position: Tensor, layout: Tensor,
        h: Tensor, feedback: Tensor, copies: Tensor, inputs: Tensor,
    ) -> Tensor:  # fmt: skip
        """The recurrence of system = (lam, mu, b, c, k, alpha) over a chunk; the memory advances in place.

        x (B, L, H), row i valid up to lengths[i]. Returns y (B, L, H), 0 where padded.
        """

    def scan_backward(
        self, grads: Sequence[Tensor], system: Sequence[Tensor], x: Tensor, lengths: Tensor, position: Tensor,
        layout: Tensor, h: Tensor, feedback: Tensor,
    ) -> list[Tensor]:  # fmt: skip
        """Gradients of lam, mu, b, c, alpha, x, h and feedback (the last two as they were before the chunk) for the
        gradients of y, h and feedback (as they are after it). All delays have rings.
        """


_asked: str | None = os.environ.get("DELAYSSM_BACKEND") or None


def backend(name: str | None = None) -> str:
    """The name of the backend in use, on the GPU if there is one; given a name, switch to that one.

    Unless one is asked for, by this function or the environment variable DELAYSSM_BACKEND, it is the best that can be
    imported. One that was asked for and cannot run is an error, never a silent fallback.
    """
    global _asked
    if name is not None:
        _load(name)
        _asked = name
    if _asked is not None:
        _load(_asked)
        return _asked
    return choice("cuda" if torch.cuda.is_available() else "cpu")


def choice(device_type: str) -> str:
    """The name of the backend for tensors on this kind of device; eager where the one asked for has no such device."""
    choices = _CHOICES.get(device_type, ["eager"])
    if _asked is not None:
        return _asked if _asked in choices else "eager"
    return _best(device_type)


def active(device_type: str) -> Backend:
    """The backend for tensors on this kind of device."""
    return _load(choice(device_type))


@functools.cache
def _best(device_type: str) -> str:
    for name in _CHOICES.get(device_type, []):
        try:
            _load(name)
        except ImportError:
            continue
        return name
    return "eager"  # it needs nothing but torch


def _load(name: str) -> Backend:
    if name not in _BACKENDS:
        raise ValueError(f"no backend is called {name!r}; there are {', '.join(_BACKENDS)}")
    try:
        return cast(Backend, importlib.import_module(_BACKENDS[name]))
    except ImportError as error:
        raise ImportError(
            f"the backend {name!r} cannot run here ({error}); install what it needs, or choose another with "
            "delayssm.backend(name) or DELAYSSM_BACKEND"
        ) from error
