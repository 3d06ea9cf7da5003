"""The fused operations, once per way of running them.

A backend is a module with the functions of `Backend`. To add one, write that module, name it in `_BACKENDS`, and list
it in `_CHOICES` for the devices that it can run on.
"""

from __future__ import annotations

import functools
import importlib
import os
from types import TracebackType
from typing import NamedTuple, Protocol, Self, cast

import torch
from torch import Tensor

#: Inputs of a bounded stream reach outputs in their own block of this many tokens by plain sums; and the channels of
#: its memory are padded to a multiple of this number.
HISTORY_NEAR, HISTORY_PADDED = 64, 16

_BACKENDS = {
    "numba": "delayssm.backends.numba_cpu",
    "triton": "delayssm.backends.triton_gpu",
    "eager": "delayssm.backends.eager",
}
#: The backends that can run on a kind of device, the best first; on any other device, eager.
_CHOICES = {"cpu": ["numba", "eager"], "cuda": ["triton", "eager"]}
if os.environ.get("TRITON_INTERPRET") == "1":
    _CHOICES["cpu"].append("triton")


class KernelGradients(NamedTuple):
    """Gradients of the inputs of `Backend.kernel`, all float64."""

    lam: Tensor  # (H, n, 2)
    mu: Tensor  # (H, n, 2)
    w: Tensor  # (D, H, n, 2)
    alpha: Tensor  # (H,)


class ConvolutionGradients(NamedTuple):
    """Gradients of the inputs of `Backend.convolve`."""

    x: Tensor  # (B, L, H)
    kernel: Tensor  # (D, L, H)


class MixGradients(NamedTuple):
    """Gradients of the inputs of `Backend.mix`."""

    y: Tensor  # (B, L, H)
    weight: Tensor  # (2 H, H)
    bias: Tensor  # (2 H,)


class ScanGradients(NamedTuple):
    """Gradients of the inputs of `Backend.scan`; h and feedback as they were before the chunk."""

    lam: Tensor  # (H, n, 2)
    mu: Tensor  # (H, n, 2)
    b: Tensor  # (H, n, 2)
    c: Tensor  # (H, n, 2)
    alpha: Tensor  # (H,)
    x: Tensor  # (B, L, H)
    h: Tensor  # (B, H, 2, n)
    feedback: Tensor  # (B, S, 2, n)


class Backend(Protocol):
    """The operations that a backend provides.

    H channels, n = N/2 stored modes, D directions. Complex coefficients are real pairs: lam, mu, b and c (H, n, 2),
    w = b c (D, H, n, 2); k (H,) int64, 0 for a channel without a delayed branch; alpha (H,).

    The memory of B endless streams is h (B, H, 2, n) float64, the last state; and feedback (B, S, 2, n), with k slots
    for each channel, those of one after those of another. States have their real parts before their imaginary parts.
    The memory of B bounded streams is values (B, S, W), see `delayssm.system.history`. position (B,) int64 counts the
    tokens seen.
    """

    def kernel(
        self, *, lam: Tensor, mu: Tensor, w: Tensor, k: Tensor, alpha: Tensor, skip: Tensor,
        length: int, size: int, eps: float, dtype: torch.dtype, result: torch.dtype,
    ) -> Tensor:  # fmt: skip
        """Return the impulse response, (D, length, H), from the transfer function at about `size` points.

        skip (H,) is added to the first sample of the first direction.

        With u on the circle |u| = rho, and v = u^k ((1 - alpha) + alpha u),

            K(u) = sum over modes of  w / (1 - lam u - mu v) + conj(w) / (1 - conj(lam) u - conj(mu) v),

        which is the sum over t of K_t u^t. At all M >= size points where u^M = eps or, for half of that number of
        complex values, u^(M/2) = i sqrt(eps), its inverse transform is rho^t K_t and echoes of relative size eps.

        The coefficients are float64; all else is computed in dtype, and rounded to `result`. In float32 a slow mode
        near zero frequency would drown, as its denominator is the small difference of numbers close to 1. Written as

            1 - lam u - mu v = (1 - lam) + lam (1 - u) - mu v

        with 1 - lam and 1 - u rounded after the subtraction, nothing is lost.
        """

    def kernel_backward(
        self, *, grad: Tensor, lam: Tensor, mu: Tensor, w: Tensor, k: Tensor, alpha: Tensor,
        size: int, eps: float, dtype: torch.dtype,
    ) -> KernelGradients:  # fmt: skip
        """Return the gradients for `grad`, the gradient of the result of `kernel`, computed in dtype."""

    def convolve(self, x: Tensor, kernel: Tensor) -> Tensor:
        """Return y_t = sum over s <= t of K_0[t - s] x_s, for x (B, L, H) and K (D, L, H).

        With a second direction, + sum over s > t of K_1[s - t - 1] x_s. Both have the same dtype.
        """

    def convolve_backward(self, grad: Tensor, x: Tensor, kernel: Tensor) -> ConvolutionGradients:
        """Return the gradients for that of y."""

    def mix(self, y: Tensor, weight: Tensor, bias: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return a sigmoid(b), (B, L, H), for (a, b) = z + bias, and z = weight (mask * gelu(y)), (B, L, 2 H).

        y is (B, L, H), and a mask (B, 1, H).
        """

    def mix_backward(
        self, grad: Tensor, y: Tensor, weight: Tensor, bias: Tensor, mask: Tensor | None, z: Tensor
    ) -> MixGradients:
        """Return the gradients for that of the first result."""

    def scan(
        self, *, lam: Tensor, mu: Tensor, b: Tensor, c: Tensor, k: Tensor, alpha: Tensor,
        x: Tensor, lengths: Tensor, position: Tensor, h: Tensor, feedback: Tensor,
    ) -> Tensor:  # fmt: skip
        """Run the recurrence over a chunk; the memory advances in place.

        x is (B, L, H), and row i is valid up to lengths[i]. The result y is (B, L, H), 0 where padded.
        """

    def scan_backward(
        self, *, g_y: Tensor, g_h: Tensor, g_feedback: Tensor,
        lam: Tensor, mu: Tensor, b: Tensor, c: Tensor, k: Tensor, alpha: Tensor,
        x: Tensor, lengths: Tensor, position: Tensor, h: Tensor, feedback: Tensor,
    ) -> ScanGradients:  # fmt: skip
        """Return the gradients for those of y, and of h and feedback as they are after the chunk."""

    def respond(self, kernel: Tensor, slots: int) -> tuple[Tensor, Tensor]:
        """Return `near` and `levels` of a `delayssm.system.history.Response` for an impulse response (S, W)."""

    def respond_far(self, kernel: Tensor, slots: int) -> Tensor:
        """Return `far` of a response, for 2 S samples, (2 S, W)."""

    def advance(
        self, *, x: Tensor, lengths: Tensor, position: Tensor, values: Tensor,
        response: tuple[Tensor, Tensor, Tensor], max_length: int,
    ) -> Tensor:  # fmt: skip
        """Run a chunk through bounded streams; the memory advances in place. x and y are as in `scan`.

        `far` of the response may be empty if no row comes to have S tokens of more.
        """


class Chosen(str):
    """The name of a backend that was switched to. As a context manager, it switches back at the end of the block."""

    _before: str | None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        global _asked
        _asked = self._before


_asked: str | None = os.environ.get("DELAYSSM_BACKEND") or None


def backend(name: str | None = None) -> str | Chosen:
    """Return the name of the backend in use; given a name, switch to that one.

    The switch is for the whole process, or for a block: ``with delayssm.backend("eager"): ...``. Unless a backend is
    asked for, here or by the environment variable DELAYSSM_BACKEND, it is the best one that can be imported, for the
    GPU if there is one. A backend that was asked for and cannot be imported is an error. Tensors on a kind of device
    that it is not made for are left to `eager`.

    >>> with backend("eager"):
    ...     print(backend())
    eager
    """
    global _asked
    if name is not None:
        _load(name)
        chosen = Chosen(name)
        chosen._before, _asked = _asked, name
        return chosen
    if _asked is not None:
        _load(_asked)
        return _asked
    return choice("cuda" if torch.cuda.is_available() else "cpu")


def choice(device_type: str) -> str:
    """Return the name of the backend for a kind of device: eager where the one asked for does not run on it."""
    choices = _CHOICES.get(device_type, ["eager"])
    if _asked is not None:
        _require_known(_asked)
        return _asked if _asked in choices else "eager"
    return _best(device_type)


def active(device_type: str) -> Backend:
    """Return the backend for tensors on a kind of device."""
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


def _require_known(name: str) -> None:
    if name not in _BACKENDS:
        asked = " (DELAYSSM_BACKEND)" if name == os.environ.get("DELAYSSM_BACKEND") else ""
        raise ValueError(f"no backend is called {name!r}{asked}; there are {', '.join(_BACKENDS)}")


def _load(name: str) -> Backend:
    _require_known(name)
    try:
        return cast(Backend, importlib.import_module(_BACKENDS[name]))
    except ImportError as error:
        raise ImportError(
            f"the backend {name!r} cannot run here ({error}); install what it needs, or choose another with "
            "delayssm.backend(name) or DELAYSSM_BACKEND"
        ) from error
