"""Small things that many tests need."""

import numpy as np
import torch
from torch import Tensor

from delayssm import DelaySSM, DiagonalSSM
from delayssm.system import reference


def relative_rms(found: Tensor | np.ndarray, truth: Tensor | np.ndarray) -> float:
    """RMS of the error over RMS of the truth."""
    found, truth = (torch.as_tensor(t).detach().double() for t in (found, truth))
    return float((found - truth).square().mean().sqrt() / truth.square().mean().sqrt())


def channels(ssm: DiagonalSSM, direction: int = 0) -> list[reference.Channel]:
    """The reference's view of each channel of a module."""
    system = ssm.discretize()
    c = system.c[direction] if ssm.bidirectional else system.c
    rows = zip(system.lam, system.mu, system.b, c, system.k, system.alpha, strict=True)
    return [
        reference.Channel(*(v.detach().numpy() for v in (lam, mu, b, c_h)), int(k), float(alpha.detach()))
        for lam, mu, b, c_h, k, alpha in rows
    ]


def reference_kernel(ssm: DiagonalSSM, length: int, direction: int = 0) -> np.ndarray:
    """(H, length), from the recurrence."""
    max_delay = ssm.max_delay if isinstance(ssm, DelaySSM) else 2
    return np.stack([reference.kernel(channel, length, max_delay) for channel in channels(ssm, direction)])
