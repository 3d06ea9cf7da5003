"""Comparisons with the reference."""

import numpy as np
import torch
from torch import Tensor

from delayssm import DelaySSM, DiagonalSSM
from delayssm.system import reference


def relative_rms(result: Tensor | np.ndarray, truth: Tensor | np.ndarray) -> float:
    """Return the RMS of the error over the RMS of the truth."""
    tensors = (t if isinstance(t, Tensor) else torch.from_numpy(t) for t in (result, truth))
    result, truth = (t.detach().double() for t in tensors)
    return float((result - truth).square().mean().sqrt() / truth.square().mean().sqrt())


def channels(ssm: DiagonalSSM, direction: int = 0) -> list[reference.Channel]:
    """Return each channel of a module as the reference describes it."""
    system = ssm.discretize()
    c = system.c[direction] if ssm.bidirectional else system.c
    rows = zip(system.lam, system.mu, system.b, c, system.k, system.alpha, strict=True)
    return [
        reference.Channel(*(v.detach().numpy() for v in (lam, mu, b, c_h)), int(k), float(alpha.detach()))
        for lam, mu, b, c_h, k, alpha in rows
    ]


def reference_kernel(ssm: DiagonalSSM, length: int, direction: int = 0) -> np.ndarray:
    """Return the impulse responses of all channels, (H, length), from the recurrence."""
    max_delay = ssm.max_delay if isinstance(ssm, DelaySSM) else 2
    return np.stack([reference.kernel(channel, length, max_delay) for channel in channels(ssm, direction)])
